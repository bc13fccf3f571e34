"""Sidecars: the intent file of a writer that moves table heads (01 §1.6, 07 §1).

On a directory the writer holds an exclusive `flock` on its sidecar until the write is done or given up, so whoever gets
that lock knows the writer is dead. On an object store nothing tells the dead from the living.
"""

from __future__ import annotations

import fcntl
import json
import os
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import field
from datetime import UTC, datetime
from io import FileIO
from typing import Any
from weakref import WeakValueDictionary

from omnigraph.actors import stored_actor
from omnigraph.errors import Conflict, NotFound, RecoveryPending
from omnigraph.records import dataclass
from omnigraph.storage.files import LocalFiles, opened, unlock, write_all
from omnigraph.storage.layout import MAIN, RECOVERY, is_branch_path, is_location, lance_branch
from omnigraph.storage.manifest import Pin
from omnigraph.storage.steps import Step, reach
from omnigraph.storage.store import Store
from omnigraph.storage.translate import lance_errors
from omnigraph.storage.types import WriterKind

__all__ = ["Held", "SchemaChangeNote", "Sidecar", "SidecarTable", "Sidecars", "parse", "render"]

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True)
class SidecarTable:
    """What the writer will do to one table: from the pin `(expected_branch, expected_version)` to `post_commit_pin` on
    the lineage `table_branch` (None: main's)."""

    table_key: str
    table_path: str
    expected_version: int
    post_commit_pin: int
    expected_branch: str | None = None
    table_branch: str | None = None


@dataclass(frozen=True, slots=True)
class SchemaChangeNote:
    """What a schema apply does beside moving tables, so that a sweep can finish it or take it back.

    Args:
        schema_hash, schema_ir: the schema that is applied, in `_schemas/`.
        registrations: table key → location, of new tables and of renamed ones.
        tombstones: table key → the version that is its last.
        purged: locations whose old versions are removed after the publish.
    """

    schema_hash: str
    schema_ir: str
    registrations: Mapping[str, str] = field(default_factory=dict)
    tombstones: Mapping[str, int] = field(default_factory=dict)
    purged: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Sidecar:
    """One write in flight.

    `reads` are pins the validation relied on: a roll forward checks them as the writer's own publish would have.
    `merge_source`: the commit that a merge takes in, its second parent.
    `expected_head`: the only commit of the branch that the write may follow, where its caller named one.
    `marked`: the writer's Lance transactions carry the sidecar's name, so its moves are told from another's.
    """

    name: str
    operation_id: str
    started_at: str
    branch: str
    actor_id: str | None
    writer_kind: WriterKind
    tables: tuple[SidecarTable, ...]
    reads: Mapping[str, Pin | None] = field(default_factory=dict)
    schema_hash: str | None = None
    marked: bool = False
    merge_source: str | None = None
    schema_change: SchemaChangeNote | None = None
    expected_head: str | None = None

    @property
    def file(self) -> str:
        return f"{RECOVERY}/{self.name}.json"


def render(sidecar: Sidecar) -> bytes:
    data: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "operation_id": sidecar.operation_id,
        "started_at": sidecar.started_at,
        "branch": lance_branch(sidecar.branch),
        "actor_id": sidecar.actor_id,
        "writer_kind": sidecar.writer_kind.value,
        "tables": [
            {
                "table_key": t.table_key,
                "table_path": t.table_path,
                "expected_version": t.expected_version,
                "expected_branch": t.expected_branch,
                "post_commit_pin": t.post_commit_pin,
                "table_branch": t.table_branch,
            }
            for t in sidecar.tables
        ],
        "reads": [{"table_key": k, "pin": None if p is None else list(p)} for k, p in sorted(sidecar.reads.items())],
        "schema_hash": sidecar.schema_hash,
        "marked": sidecar.marked,
        "merge_source_commit_id": sidecar.merge_source,
        "expected_head": sidecar.expected_head,
    }
    if (note := sidecar.schema_change) is not None:
        data |= {
            "desired_schema_hash": note.schema_hash,
            "desired_schema_ir": note.schema_ir,
            "additional_registrations": [
                {"table_key": k, "table_path": p, "table_branch": lance_branch(sidecar.branch)}
                for k, p in note.registrations.items()
            ],
            "tombstones": [{"table_key": k, "tombstone_version": v} for k, v in note.tombstones.items()],
            "purged_paths": list(note.purged),
        }
    return json.dumps(data, indent=1).encode()


def parse(name: str, data: bytes) -> Sidecar:
    """Read a sidecar strictly.

    Raises:
        RecoveryPending: not JSON, an unknown schema_version, or a field missing or of the wrong type; names the file.
    """
    try:
        raw = json.loads(data)
        if not isinstance(raw, dict):
            raise ValueError("not a JSON object")
        if raw.get("schema_version") != SCHEMA_VERSION:
            raise ValueError(f"schema_version {raw.get('schema_version')!r} is unknown here")
        sidecar = Sidecar(
            name=name,
            operation_id=_text(raw, "operation_id"),
            started_at=str(raw["started_at"]),
            branch=_branch(raw, "branch") or MAIN,
            actor_id=stored_actor(raw.get("actor_id")),
            writer_kind=WriterKind(raw["writer_kind"]),
            tables=tuple(_table(t) for t in raw["tables"]),
            reads={_text(r, "table_key"): _pin(r["pin"]) for r in raw.get("reads") or ()},
            schema_hash=_optional(raw, "schema_hash"),
            marked=bool(raw.get("marked", False)),
            merge_source=_optional(raw, "merge_source_commit_id"),
            schema_change=_schema_change(raw),
            expected_head=_optional(raw, "expected_head"),
        )
        if len({t.table_key for t in sidecar.tables}) != len(sidecar.tables):
            raise ValueError("a table stands in it twice")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        path = f"{RECOVERY}/{name}.json"
        raise RecoveryPending(
            f"{path} can't be read ({type(error).__name__}: {error}): no write is possible until it is dealt with. "
            "If a newer omnigraph wrote it, run that one's `omnigraph recover`; else keep a copy, find out which write "
            "left it, and remove it",
            sidecars=[path],
        ) from error
    return sidecar


def _text(raw: Mapping[str, Any], key: str) -> str:
    value = raw[key]
    if not isinstance(value, str) or not value:
        raise TypeError(f"{key} must be a text")
    return value


def _optional(raw: Mapping[str, Any], key: str) -> str | None:
    return None if raw.get(key) is None else _text(raw, key)


def _branch(raw: Mapping[str, Any], key: str) -> str | None:
    name = _optional(raw, key)
    if name is not None and not is_branch_path(name):
        raise ValueError(f"{key} {name!r} is no branch's name")
    return name


def _number(raw: Mapping[str, Any], key: str) -> int:
    value = raw[key]
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise TypeError(f"{key} must be a whole number")
    return value


def _schema_change(raw: Mapping[str, Any]) -> SchemaChangeNote | None:
    if raw.get("desired_schema_hash") is None:  # a schema apply of the origin names files it staged, not a hash
        return None
    return SchemaChangeNote(
        _text(raw, "desired_schema_hash"),
        _text(raw, "desired_schema_ir"),
        {_text(r, "table_key"): _location(r["table_path"]) for r in raw.get("additional_registrations") or ()},
        {_text(t, "table_key"): _number(t, "tombstone_version") for t in raw.get("tombstones") or ()},
        tuple(_location(path) for path in raw.get("purged_paths") or ()),
    )


def _location(raw: Any) -> str:
    """A sweep may remove what lies there: nothing but a table's own folder will do."""
    if not isinstance(raw, str) or not is_location(raw):
        raise ValueError(f"{raw!r} is no table's place")
    return raw


def _pin(raw: Any) -> Pin | None:
    if raw is None:
        return None
    branch, version = raw
    return (None if branch is None else str(branch), int(version))


def _table(raw: Mapping[str, Any]) -> SidecarTable:
    return SidecarTable(
        table_key=_text(raw, "table_key"),
        table_path=_text(raw, "table_path"),
        expected_version=_number(raw, "expected_version"),
        post_commit_pin=_number(raw, "post_commit_pin"),
        expected_branch=_branch(raw, "expected_branch"),
        table_branch=_branch(raw, "table_branch"),
    )


@dataclass
class Held:
    """A sidecar this process owns: its own, or a dead writer's it has claimed."""

    owner: Sidecars
    name: str
    handle: FileIO | None  # the locked file; None on an object store

    def remove(self) -> None:
        """Delete the file, then let go of the lock."""
        try:
            self.owner.store.files.delete(f"{RECOVERY}/{self.name}.json")
            reach(Step.SIDECAR_REMOVED)
        finally:
            self.release()

    def release(self) -> None:
        """Let go without deleting: a sweep may take it from now on. Once more does nothing."""
        if self.handle is not None:
            unlock(self.handle)
        self.owner.own.pop(self.name, None)


class Sidecars:
    """The `__recovery/` folder of one root."""

    def __init__(self, store: Store) -> None:
        self.store = store
        # By name; of a write that was interrupted before it could let go nothing is left here, and a sweep takes it.
        self.own: WeakValueDictionary[str, Held] = WeakValueDictionary()
        self._lock = threading.Lock()

    @property
    def tells_the_dead(self) -> bool:
        return self.store.root.is_local

    def names(self) -> list[str]:
        """Names (without `.json`) of every sidecar, oldest first. Raises where the folder can't be listed."""
        return [n.removesuffix(".json") for n in self.store.files.list(RECOVERY) if n.endswith(".json")]

    def read(self, name: str) -> Sidecar | None:
        """The sidecar, or None when it has just gone."""
        try:
            data = self.store.files.read(f"{RECOVERY}/{name}.json")
        except NotFound:
            return None
        return parse(name, data)

    def write(self, sidecar: Sidecar) -> Held:
        """Step A. The file appears whole and locked, or not at all; an existing one is never replaced.

        Raises:
            Conflict: the same operation is in flight.
        """
        data = render(sidecar)
        with self._lock:
            if isinstance(self.store.files, LocalFiles):
                return self._write_local(self.store.files, sidecar, data)
            if self.store.files.exists(sidecar.file):
                raise _in_flight(sidecar)
            self.store.files.write(sidecar.file, data)
            return self._owned(sidecar, None)

    def _write_local(self, files: LocalFiles, sidecar: Sidecar, data: bytes) -> Held:
        folder, path = files.path(RECOVERY), files.path(sidecar.file)
        with lance_errors(f"writing {path}"):
            os.makedirs(folder, exist_ok=True)
            temporary, handle = _temporary(folder, sidecar.name)
            try:
                write_all(handle.fileno(), data)
                os.fsync(handle)
                reach(Step.SIDECAR_TEMPORARY)
                os.link(temporary, path)  # unlike a rename it fails where the name is taken
            except FileExistsError as error:
                handle.close()
                raise _in_flight(sidecar) from error
            except BaseException:
                handle.close()
                raise
            finally:
                os.unlink(temporary)
        return self._owned(sidecar, handle)

    def _owned(self, sidecar: Sidecar, handle: FileIO | None) -> Held:
        held = Held(self, sidecar.name, handle)
        self.own[sidecar.name] = held
        reach(Step.SIDECAR_WRITTEN)
        return held

    def claim(self, name: str) -> Held | None:
        """Take over a sidecar whose writer is dead. None: its writer lives, or it has just been settled.

        On an object store every sidecar but this process's own can be claimed: the caller answers for that.
        """
        if name in self.own:
            return None
        if not isinstance(self.store.files, LocalFiles):
            return Held(self, name, None) if self.store.files.exists(f"{RECOVERY}/{name}.json") else None
        path = self.store.files.path(f"{RECOVERY}/{name}.json")
        with lance_errors(f"claiming {path}"):
            try:
                handle = opened(path, os.O_RDWR)
            except FileNotFoundError:
                return None
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                # Settled by another sweep between our open and our lock: the name is gone or names another file.
                if os.fstat(handle.fileno()).st_ino != os.stat(path).st_ino:
                    handle.close()
                    return None
            except (BlockingIOError, FileNotFoundError):
                handle.close()
                return None
        return Held(self, name, handle)

    def alive(self, name: str) -> bool | None:
        """Whether the writer of a sidecar lives; None where nothing tells, and for one that has just gone."""
        if name in self.own:
            return True
        if not isinstance(self.store.files, LocalFiles):
            return None
        path = self.store.files.path(f"{RECOVERY}/{name}.json")
        with lance_errors(f"looking at {path}"):
            try:
                handle = FileIO(path)
            except FileNotFoundError:
                return None
            try:
                fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
            finally:
                handle.close()
            return False if os.path.exists(path) else None

    def sweep_temporary(self) -> None:
        """Remove temporary files that a writer killed while writing its sidecar left."""
        if not isinstance(self.store.files, LocalFiles):
            return
        folder = self.store.files.path(RECOVERY)
        with lance_errors(f"tidying {folder}"):
            for name in os.listdir(folder) if os.path.isdir(folder) else ():
                if not (name.startswith(".") and name.endswith(".tmp")):
                    continue
                try:
                    handle = opened(os.path.join(folder, name), os.O_RDWR)
                except FileNotFoundError:
                    continue
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    os.unlink(os.path.join(folder, name))
                except (BlockingIOError, FileNotFoundError):
                    continue
                finally:
                    handle.close()


def _temporary(folder: str, name: str) -> tuple[str, FileIO]:
    """A new file, locked. Before it is, a sweep may take it for a dead writer's and remove it: then another one."""
    while True:
        # Process numbers repeat: two containers on one volume are both process 1.
        path = os.path.join(folder, f".{name}.{os.urandom(8).hex()}.tmp")
        handle = opened(path, os.O_CREAT | os.O_EXCL | os.O_RDWR)
        try:
            with suppress(BlockingIOError):
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.fstat(handle.fileno()).st_nlink:
                    return path, handle
        except BaseException:
            handle.close()
            with suppress(FileNotFoundError):
                os.unlink(path)
            raise
        handle.close()


def _in_flight(sidecar: Sidecar) -> Conflict:
    return Conflict(
        f"operation {sidecar.operation_id} is in flight already ({sidecar.file}): wait for it, or run "
        "`omnigraph recover` if its process is gone",
        code="operation_in_flight",
        details={"operation_id": sidecar.operation_id, "sidecar": sidecar.file},
    )


def now_text() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds")
