"""Opening Lance datasets under one root: one shared session, a small cache of pinned handles."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Collection
from typing import Any
from weakref import WeakKeyDictionary

import lance
import pyarrow as pa

from omnigraph.errors import BadRequest, NotFound
from omnigraph.records import dataclass
from omnigraph.storage.files import Files, LocalFiles, files_of
from omnigraph.storage.layout import MARK, lance_branch
from omnigraph.storage.relocate import Moved, is_moved
from omnigraph.storage.short_files import ShortFiles
from omnigraph.storage.translate import is_missing, lance_errors
from omnigraph.storage.types import TableRef
from omnigraph.storage.uri import Root

__all__ = ["HANDLES_KEPT", "Identity", "Place", "Store", "create_dataset"]

HANDLES_KEPT = 256
"""Pinned table handles kept open per root."""

_AT_ONCE_NS = 1_000_000_000
"""How soon after a version its folder may change without anything else having happened."""


Identity = tuple[int, int]
"""Which file holds a version: another one, if the folder was removed and made anew, or put back from a copy."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where one version of a lineage lies in a folder, and where the next one would; worth keeping, to look again."""

    version: int
    folder: str
    file: str
    successor: str


class Store:
    """A root opened: file access, a Lance session, pinned handles. Thread-safe.

    Args:
        read_only: change nothing, not even the paths that the branches of a moved graph name.
    """

    def __init__(self, root: Root, *, read_only: bool = False) -> None:
        self.root = root
        self.read_only = read_only
        self.files: Files = files_of(root)
        self.session = lance.Session()
        self.short_files = ShortFiles()
        self._pid = os.getpid()
        self._pinned: OrderedDict[tuple[Any, ...], lance.LanceDataset] = OrderedDict()
        self._schemas: WeakKeyDictionary[lance.LanceDataset, pa.Schema] = WeakKeyDictionary()
        self._lock = threading.Lock()
        self._moved: Moved | None = None
        self._listed: dict[str, tuple[int, int]] = {}  # folder of versions → the newest, the folder's change then

    def check_process(self) -> None:
        """Raise BadRequest in a child forked since: a lock that a thread of the parent held stays locked in it."""
        if self._pid != os.getpid():
            raise BadRequest(
                f"{self.root.uri} was opened by the process that this one was forked from, and threads and locks "
                "don't survive a fork, nor do Lance's: start processes with `spawn` "
                '(multiprocessing.get_context("spawn")), and open the graph in them',
                code="forked_process",
            )

    def path(self, location: str, branch: str | None = None) -> str:
        """A dataset's URI. A branch is opened at its own tree: a handle from checkout_version would write to main."""
        name = lance_branch(branch)
        return self.root.join(location) if name is None else self.root.join(location, "tree", name)

    def latest(self, location: str, branch: str | None = None) -> lance.LanceDataset:
        """A fresh handle at the newest version of a lineage, shared with nobody."""
        with lance_errors(f"opening {location}" + (f" on branch {branch}" if lance_branch(branch) else "")):
            return self._open(location, branch, None)

    def latest_or_none(self, location: str, branch: str | None = None) -> lance.LanceDataset | None:
        """As `latest`, None where there is no such dataset or fork."""
        try:
            return self._open(location, branch, None)
        except (ValueError, OSError) as error:
            if is_missing(error):
                return None
            with lance_errors(f"opening {location}"):
                raise

    def version(self, location: str, branch: str | None, version: int) -> lance.LanceDataset:
        """A fresh handle at one version of a lineage."""
        with lance_errors(f"opening {location} at version {version}"):
            return self._open(location, branch, version)

    def place(self, location: str, branch: str | None, version: int) -> Place | None:
        """Where a version lies; None on object stores, where a look is a request and nothing tells files apart."""
        if not isinstance(self.files, LocalFiles):
            return None
        folder = os.path.join(self.path(location, branch), "_versions")
        return Place(version, folder, _manifest(folder, version), _manifest(folder, version + 1))

    def stands(self, location: str, branch: str | None, version: int) -> bool:
        """Whether this version is known to be a lineage's newest; False: it isn't, or one look can't tell (stores)."""
        place = self.place(location, branch, version)
        return place is not None and self.newest(place) is not None

    def newest(self, place: Place) -> Identity | None:
        """Which file holds the version, if it is known to be the lineage's newest.

        Versions are made without a gap, so the newest is the one whose successor has no file: a look at a few names,
        where a listing takes longer the more versions there are. Only cleanup makes gaps: it may take the successor
        away and leave this version, which a branch or a tag holds. Then the folder has changed since this version came,
        and a listing tells, once for each such change.
        """
        try:
            changed = os.stat(place.folder).st_mtime_ns  # before all other looks
            seen = os.stat(place.file)
        except OSError:
            return None
        came = seen.st_mtime_ns
        if os.access(place.successor, os.F_OK):
            return None
        if changed - came >= _AT_ONCE_NS and self._listed.get(place.folder) != (place.version, changed):
            try:
                names = [name for name in os.listdir(place.folder) if name.endswith(".manifest")]
            except OSError:  # removed since
                return None
            if not names or min(names) != os.path.basename(place.file):
                return None
            with self._lock:
                if len(self._listed) >= HANDLES_KEPT:
                    self._listed.clear()
                self._listed[place.folder] = (place.version, changed)
        return seen.st_ino, came

    def identity(self, place: Place) -> Identity | None:
        """Which file holds the version; None where there is none."""
        try:
            seen = os.stat(place.file)
        except OSError:
            return None
        return seen.st_ino, seen.st_mtime_ns

    def pinned(self, ref: TableRef) -> lance.LanceDataset:
        """A handle at the version a snapshot sees; shared, for reading only.

        Raises:
            NotFound: cleanup has removed that version.
        """
        self.check_process()
        key = (ref.location, ref.branch, ref.version, ref.stamp)
        with self._lock:
            handle = self._pinned.get(key)
            if handle is not None:
                self._pinned.move_to_end(key)
                return handle
        try:
            handle = self._open(ref.location, ref.branch, ref.version)
        except (ValueError, OSError) as error:
            if is_missing(error):
                raise _removed(ref) from error
            with lance_errors(f"opening {ref.table_key} at version {ref.version}"):
                raise
        self.remember(ref, handle)
        return handle

    def schema(self, handle: lance.LanceDataset) -> pa.Schema:
        """The columns of a pinned handle; Lance makes its answer anew each time it is asked."""
        with self._lock:
            known = self._schemas.get(handle)
        if known is None:
            known = handle.schema
            with self._lock:
                self._schemas[handle] = known
        return known

    def keep_schema(self, handle: lance.LanceDataset, before: lance.LanceDataset) -> None:
        """Note that a handle has the columns of an earlier one, where those are known."""
        with self._lock:
            if before in self._schemas:
                self._schemas[handle] = self._schemas[before]

    def check_version(self, ref: TableRef, cause: Exception | None = None) -> None:
        """Raise NotFound (`version_removed`) unless the version is there, whatever handle of it is still kept."""
        try:
            self._open(ref.location, ref.branch, ref.version)
        except (ValueError, OSError) as error:
            if is_missing(error):
                self.forget(ref.location, ref.branch, [ref.version])
                raise _removed(ref) from cause or error
            with lance_errors(f"opening {ref.table_key} at version {ref.version}"):
                raise

    def remember(self, ref: TableRef, handle: lance.LanceDataset) -> None:
        """Keep a handle that is known to stand at the pinned version."""
        with self._lock:
            self._pinned[(ref.location, ref.branch, ref.version, ref.stamp)] = handle
            while len(self._pinned) > HANDLES_KEPT:
                self._pinned.popitem(last=False)

    def forget(self, location: str, branch: str | None, versions: Collection[int] | None = None) -> None:
        """Let go of handles to versions that have been removed; of all of the lineage where none are named."""
        name = lance_branch(branch)
        with self._lock:
            for key in [k for k in self._pinned if k[0] == location and lance_branch(k[1]) == name]:
                if versions is None or key[2] in versions:
                    del self._pinned[key]

    def _open(self, location: str, branch: str | None, version: int | None) -> lance.LanceDataset:
        self.check_process()
        handle = self._dataset(self.path(location, branch), version)
        if lance_branch(branch) is None or not is_moved(self.root, location, handle):
            return handle
        with self._lock:
            self._moved = self._moved or Moved(self.root, self.files, read_only=self.read_only)
            path = self._moved.settle(location, str(branch), int(handle.version))
            self.session = lance.Session()  # the old one keeps the manifest as it was
        return self._dataset(path, int(handle.version) if version is not None or self.read_only else None)

    def _dataset(self, path: str, version: int | None) -> lance.LanceDataset:
        return lance.dataset(
            path, version=version, session=self.session, storage_options=dict(self.root.options) or None
        )


def _manifest(versions: str, version: int) -> str:
    return f"{versions}/{2**64 - 1 - version:020}.manifest"


def _removed(ref: TableRef) -> NotFound:
    return NotFound(
        f"version {ref.version} of {ref.table_key} is gone: cleanup removed it. Read the branch as it is now, or at a "
        "newer commit",
        code="version_removed",
        details={"table_key": ref.table_key, "branch": ref.branch, "version": ref.version},
    )


def create_dataset(store: Store, location: str, data: pa.Table, *, mark: str | None = None) -> lance.LanceDataset:
    """Create a dataset as the engine wants every one: stable row ids, file format 2.2. Fails if it exists (OSError).

    Args:
        mark: the name of the sidecar that makes it, which tells a sweep whose it is.
    """
    return lance.write_dataset(
        data,
        store.root.join(location),
        mode="create",
        enable_stable_row_ids=True,
        data_storage_version="2.2",
        storage_options=dict(store.root.options) or None,
        session=store.session,
        transaction_properties={MARK: mark} if mark else None,
    )
