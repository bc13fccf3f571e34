"""`__manifest`: which version of which table is visible (01 §1.3). Rows in, one `ManifestState` out."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import field, replace
from datetime import UTC, datetime
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.actors import stored_actor
from omnigraph.errors import Internal, NotFound
from omnigraph.records import dataclass
from omnigraph.storage.formats import CURRENT, KEY, STAMP, check_known, is_current, migrate
from omnigraph.storage.layout import MAIN, MANIFEST, data_paths, is_branch_path, lance_branch, table_path
from omnigraph.storage.lineage import LISTINGS, branch_names, parent_of, ref_file
from omnigraph.storage.store import Identity, Place, Store
from omnigraph.storage.translate import lance_errors
from omnigraph.storage.types import CommitInfo, TableRef

__all__ = [
    "Manifest", "ManifestState", "Row", "RowPlace", "head_id", "head_row", "manifest_schema",
    "manifest_table", "overlay", "pin_of",
    "registration_row", "state_from_rows", "tombstone_row", "version_row",
]  # fmt: skip

_MAX_U64 = 2**64 - 1
_READ = ["object_type", "location", "metadata", "table_key", "table_version", "table_branch", "row_count"]
_UPDATED = "_row_last_updated_at_version"

Pin = tuple[str | None, int]
Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class RowPlace:
    """Where a row lies in one version of the manifest, and the row id that it has in all of them."""

    address: int
    row_id: int


def manifest_schema(schema_hash: str) -> pa.Schema:
    return pa.schema(
        [
            pa.field("object_id", pa.string(), False, metadata=KEY),
            pa.field("object_type", pa.string(), False),
            pa.field("location", pa.string()),
            pa.field("metadata", pa.string()),
            pa.field("base_objects", pa.list_(pa.string())),
            pa.field("table_key", pa.string(), False),
            pa.field("table_version", pa.uint64()),
            pa.field("table_branch", pa.string()),
            pa.field("row_count", pa.uint64()),
        ],
        metadata={
            STAMP: str(CURRENT),
            "omnigraph:schema_hash": schema_hash,
        },
    )


@dataclass(frozen=True, slots=True)
class ManifestState:
    """What one version of one branch of the manifest says. Immutable, safe to share."""

    branch: str
    version: int
    tables: Mapping[str, TableRef]
    locations: Mapping[str, str]  # of every table ever registered here, tombstoned ones too
    head: CommitInfo
    memo: dict[tuple[str, str], Any] = field(default_factory=dict, init=False, repr=False, compare=False)


def pin_of(ref: TableRef | None) -> Pin | None:
    """The pair a publish compares: lineage and version. None: the table isn't there."""
    return None if ref is None else (ref.branch, ref.version)


# --- rows -----------------------------------------------------------------------------------------------------------


def registration_row(table_key: str, location: str) -> Row:
    return _row(table_key, "table", table_key, location=location)


def version_row(ref: TableRef, dataset_uri: str) -> Row:
    fork = f"@{ref.branch}" if ref.branch else ""
    metadata = {
        # Never used to open. Older readers of this format do, in just this form: absolute, without the leading slash.
        "manifest_path": f"{_object_path(dataset_uri)}/_versions/{_MAX_U64 - ref.version:020}.manifest",
        "manifest_size": None,
        "e_tag": None,
        "naming_scheme": "V2",
        "commit": ref.stamp,
    }
    return _row(
        f"{_named(ref.table_key, ref.location)}{fork}${ref.version:020}",
        "table_version",
        ref.table_key,
        location=ref.location,
        metadata=json.dumps(metadata),
        table_version=ref.version,
        table_branch=ref.branch,
        row_count=ref.row_count,
    )


def tombstone_row(ref: TableRef) -> Row:
    """The table is gone from here on, until its key is registered again. `ref` is the last anyone saw of it."""
    return _row(
        f"{_named(ref.table_key, ref.location)}$tombstone${ref.version:020}",
        "table_tombstone",
        ref.table_key,
        location=ref.location,
        table_version=ref.version,
    )


def _named(table_key: str, location: str) -> str:
    """A key and where its table lies: a type renamed, or dropped and added again, counts its versions anew."""
    return table_key if location == table_path(table_key) else f"{table_key}[{location}]"


def head_row(commit: CommitInfo) -> Row:
    """The branch's one row that every publish updates; `metadata` holds the newest commit whole.

    So it does those that it carries: the row is all there is of a commit whose rows in the history aren't written yet.
    """
    carried = [{**_metadata(c), "manifest_version": c.manifest_version} for c in commit.unrecorded]
    metadata = _metadata(commit) | ({"unrecorded": carried} if carried else {})
    return _row(head_id(commit.branch), "graph_head", "graph", metadata=json.dumps(metadata))


def _metadata(commit: CommitInfo) -> dict[str, Any]:
    return {
        "id": commit.id,
        "branch": commit.branch,
        "parents": list(commit.parents),
        "created_at": commit.created_at.astimezone(UTC).isoformat(timespec="microseconds"),
        "actor": commit.actor,
        "operation_id": commit.operation_id,
        "schema_hash": commit.schema_hash,
        "schema_ir": commit.schema_ir,
        "recovery_kind": commit.recovery_kind,
        **{k: v for k, v in commit.extra.items() if v is not None},
    }


def head_id(branch: str) -> str:
    return f"graph_head:{branch}"


def manifest_table(rows: Iterable[Row], schema: pa.Schema) -> pa.Table:
    return pa.Table.from_pylist(list(rows), schema=schema)


def _row(object_id: str, object_type: str, table_key: str, **columns: Any) -> Row:
    return {"object_id": object_id, "object_type": object_type, "table_key": table_key} | columns


def _object_path(uri: str) -> str:
    return re.sub(r"^[a-z0-9]+://[^/]+", "", uri).lstrip("/")


_OF_A_COMMIT = frozenset(
    {
        "id",
        "branch",
        "manifest_version",
        "parents",
        "created_at",
        "actor",
        "operation_id",
        "schema_hash",
        "recovery_kind",
        "schema_ir",
        "unrecorded",
    }
)


def _commit_of(data: Mapping[str, Any], manifest_version: int) -> CommitInfo:
    return CommitInfo(
        id=data["id"],
        branch=data["branch"],
        manifest_version=manifest_version,
        parents=tuple(data["parents"]),
        created_at=datetime.fromisoformat(data["created_at"]),
        actor=stored_actor(data.get("actor")),
        operation_id=data.get("operation_id"),
        schema_hash=data.get("schema_hash"),
        recovery_kind=data.get("recovery_kind"),
        extra={k: v for k, v in data.items() if k not in _OF_A_COMMIT},
        schema_ir=data.get("schema_ir"),
        unrecorded=tuple(_commit_of(c, c["manifest_version"]) for c in data.get("unrecorded") or ()),
    )


# --- rows → state ---------------------------------------------------------------------------------------------------


def state_from_rows(
    branch: str,
    version: int,
    rows: pa.Table,
    base: ManifestState | None = None,
    *,
    no_head: Callable[[], CommitInfo | None] = lambda: None,
) -> ManifestState:
    """The snapshot: per table the version or tombstone published last (then the larger table_version).

    Args:
        rows: the columns of `_READ` and `_row_last_updated_at_version`, in any order.
        base: an older state of the same lineage; then `rows` are only those changed since.
        no_head: finds the head of a graph that has no `graph_head` row (one of the origin's).

    Raises:
        Internal: no head.
    """
    tables = dict(base.tables) if base else {}
    locations = dict(base.locations) if base else {}
    head = base.head if base else None
    last: dict[str, dict[str, Any]] = {}  # of each table, its version or tombstone
    named: dict[str, Any] | None = None
    listed = (rows if rows.num_rows <= _FEW else _newest(rows)).to_pylist()
    for row in sorted(listed, key=lambda row: (row[_UPDATED] or 0, row["table_version"] or 0)):
        match row["object_type"]:
            case "table":
                locations[row["table_key"]] = row["location"]
            case "table_version" | "table_tombstone":
                last[row["table_key"]] = row
            case "graph_head":
                named = row
    for key, row in last.items():
        if row["object_type"] == "table_tombstone":
            tables.pop(key, None)
            continue
        tables[key] = TableRef(
            table_key=key,
            location=locations.get(key) or row["location"],
            branch=row["table_branch"],
            version=row["table_version"],
            row_count=row["row_count"] or 0,
            stamp=json.loads(row["metadata"] or "{}").get("commit") or "",
        )
    if named is not None:
        head = _commit_of(json.loads(named["metadata"]), named[_UPDATED])
    elif head is None or head.schema_hash is None:  # only the origin's commits name no schema
        head = no_head()
    if head is None:
        raise Internal(
            f"{MANIFEST} of branch {branch!r} names no head commit: it was made by another version of the product "
            "or is damaged; export it with that version and load it anew"
        )
    return ManifestState(branch, version, tables, locations, head)


_FEW = 500
"""Above this many rows, those that a newer one replaces are left out by Arrow."""


def _newest(rows: pa.Table) -> pa.Table:
    """The rows but those of table versions that a later one of the same table replaces."""
    order = pc.sort_indices(rows, sort_keys=[(_UPDATED, "ascending"), ("table_version", "ascending")])
    rows = rows.take(order).combine_chunks()
    states = pc.is_in(rows["object_type"], value_set=pa.array(["table_version", "table_tombstone"]))
    versions = rows.filter(states)
    keys = versions["table_key"].combine_chunks().dictionary_encode()
    last = np.zeros(len(keys.dictionary), dtype=np.int64)
    last[keys.indices.to_numpy()] = np.arange(len(keys))  # numpy keeps the last of repeated assignments
    return pa.concat_tables([rows.filter(pc.invert(states)), versions.take(np.sort(last))])


# --- reading --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Known:
    """A state read before, and what tells that a manifest has really come through it: version numbers alone don't.

    A graph may be removed and made anew at its place, or put back from a copy, while it is open here.

    Args:
        place, file: where the state's version lies and which file that is; None on object stores.
        rows: the data file that its version added last.
        head: where the head row lies, if this process wrote it.
    """

    state: ManifestState
    place: Place | None
    file: Identity | None
    rows: str
    head: RowPlace | None


@dataclass
class Manifest:
    """Reads the manifest of a root; keeps the newest state of each branch and reads only what changed since."""

    store: Store
    _newest: dict[str, _Known] = field(default_factory=dict)
    _records: dict[str, bytes] = field(default_factory=dict)
    _prepared: set[str] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def open(self) -> bool:
        """Read the newest state of main. False: there is no manifest."""
        dataset = self.store.latest_or_none(MANIFEST)
        if dataset is None:
            return False
        check_known(dataset)
        if is_current(dataset):
            self._prepared.add(MAIN)
        self.read(MAIN, dataset)
        return True

    def handle(self, branch: str) -> lance.LanceDataset:
        """A fresh handle at the newest version of the branch. Raises NotFound for an unknown branch."""
        known = self._known(branch)
        if known is not None:
            dataset = self.store.version(MANIFEST, branch, known.state.version)
        else:
            dataset = self.store.latest_or_none(MANIFEST, branch) if self._is_branch(branch) else None
        if dataset is None:
            self.forget(branch)
            raise NotFound(f"there is no branch {branch!r}", details={"branch": branch})
        check_known(dataset)
        return dataset

    def _known(self, branch: str) -> _Known | None:
        """The branch's newest state, where it is at hand and one look tells that nothing followed."""
        known = self._newest.get(branch)
        if known is not None and branch != MAIN:
            known = self._newest.get(branch) if self._is_branch(branch) else None  # forgotten, if it was made anew
        if known is None or known.place is None or self.store.newest(known.place) != known.file:
            return None
        return known

    def _stands(self, known: _Known) -> bool:
        """Whether its version is there as it was read; False where nothing tells, on object stores."""
        return known.place is not None and known.file == self.store.identity(known.place)

    def _follows(self, known: _Known, branch: str, dataset: lance.LanceDataset) -> bool:
        """Whether the handle's version is the known one, or has grown from it."""
        if known.state.version > int(dataset.version):
            return False
        if known.place is not None:
            return self._stands(known)
        # Stores have no such sign that costs no request. A compaction takes this one away: then all is read again.
        return any(known.rows in data_paths(fragment.data_files()) for fragment in dataset.get_fragments())

    def prepare(self, branch: str) -> None:
        """Before the first write of this process on a branch: bring its manifest to our shape.

        Raises:
            Conflict: it can't be, so nothing may be written.
        """
        if branch not in self._prepared:
            migrate(self.store, self.handle(branch))
            self._prepared.add(branch)

    def _is_branch(self, branch: str) -> bool:
        """Whether Lance lists it. A folder isn't enough: a killed creation leaves one, and `..` names main's.

        A branch that was deleted and made anew has another record: what is known of its namesake is dropped, whose
        versions count the same.
        """
        if lance_branch(branch) is None:
            return True
        if not is_branch_path(branch):
            return False
        try:
            record = self.store.files.read(ref_file(MANIFEST, branch))
        except NotFound:
            return False
        if self._records.get(branch, record) != record:
            self.forget(branch)
        self._records[branch] = record
        return True

    def branches(self) -> dict[str, dict[str, Any]]:
        """Lance's record of every branch but main: parent_branch (None: main), parent_version, create_at (s)."""
        for attempt in range(LISTINGS):
            try:
                with lance_errors(f"listing the branches of {self.store.root.uri}"):
                    listed: dict[str, dict[str, Any]] = self.store.latest(MANIFEST).branches.list()
                return listed
            except NotFound:  # Lance reads the record of each name it has listed, and one may go in between
                if attempt + 1 == LISTINGS:
                    raise
        raise Internal(f"the branches of {self.store.root.uri} were never listed")

    def names(self) -> set[str]:
        """The names of every branch but main; one listing, nothing is read."""
        return branch_names(self.store, MANIFEST)

    def began(self, branch: str, version: int) -> str:
        """The lineage that holds a version a branch sees: its own, or the ancestor's that it began from."""
        while lance_branch(branch) is not None:
            parent, at = parent_of(self.store, MANIFEST, branch)
            if version >= at:
                break
            branch = parent
        return branch

    def exists(self, branch: str) -> bool:
        name = lance_branch(branch)
        return name is None or (is_branch_path(name) and self.store.files.exists(ref_file(MANIFEST, name)))

    def current(self, branch: str) -> ManifestState:
        """The branch's newest state. Raises NotFound for an unknown branch."""
        known = self._known(branch)
        return self.read(branch, self.handle(branch)) if known is None else known.state

    def read(self, branch: str, dataset: lance.LanceDataset) -> ManifestState:
        """The state at the handle's version. Cheap when little changed since the newest one known."""
        version = int(dataset.version)
        with self._lock:
            known = self._newest.get(branch)
        if known is not None and not self._follows(known, branch, dataset):
            known = None
        if known is not None and known.state.version == version:
            return known.state
        # Without stable row ids no row says when it was changed; nothing of ours is like that, and it isn't written.
        base = known.state if known is not None and dataset.has_stable_row_ids else None
        with lance_errors(f"reading {MANIFEST} of branch {branch} at version {version}"):
            rows = dataset.scanner(
                columns=[*_READ, _UPDATED], filter=f"{_UPDATED} > {base.version}" if base else None
            ).to_table()
        state = state_from_rows(branch, version, rows, base, no_head=lambda: self._origin_head(branch, version))
        self.learn(state, dataset)
        return state

    def head_place(self, state: ManifestState) -> RowPlace | None:
        """Where the head row lies in a state, if this process published it last."""
        known = self._newest.get(state.branch)
        return known.head if known is not None and known.state is state else None

    def learn(self, state: ManifestState, dataset: lance.LanceDataset, head: RowPlace | None = None) -> None:
        """Take note of a state just read or published; the handle stands at its version."""
        newest = max(dataset.get_fragments(), key=lambda fragment: fragment.fragment_id)
        place = self.store.place(MANIFEST, state.branch, state.version)
        file = None if place is None else self.store.identity(place)
        made = _Known(state, None if file is None else place, file, data_paths(newest.data_files())[0], head)
        with self._lock:
            known = self._newest.get(state.branch)
            # A thread that read a little earlier may come a little later.
            if known is None or known.state.version < state.version or not self._stands(known):
                self._newest[state.branch] = made

    def forget(self, branch: str) -> None:
        with self._lock:
            self._newest.pop(branch, None)
            self._records.pop(branch, None)

    def at(self, branch: str, version: int) -> ManifestState:
        """The state at an older version; a version from before the branch began is its parent's.

        Raises:
            NotFound: no such version.
        """
        if not self._is_branch(branch):
            raise NotFound(f"there is no branch {branch!r}", details={"branch": branch})
        with self._lock:
            known = self._newest.get(branch)
        if known is not None and known.state.version == version and self._stands(known):
            return known.state
        if not 0 <= version < 2**63:
            raise NotFound(f"branch {branch!r} has no version {version}", details={"branch": branch})
        lineage = self.began(branch, version)
        try:
            dataset = self.store.version(MANIFEST, lineage, version)
        except NotFound as error:
            raise self._gone(branch, lineage, version) from error
        check_known(dataset)
        with lance_errors(f"reading {MANIFEST} at version {version}"):
            rows = dataset.scanner(columns=[*_READ, _UPDATED]).to_table()
        return state_from_rows(branch, version, rows, no_head=lambda: self._origin_head(lineage, version))

    def _gone(self, branch: str, lineage: str, version: int) -> NotFound:
        details = {"branch": branch, "version": version}
        if 0 < version < int(self.store.latest(MANIFEST, lineage).version):
            message = (
                f"version {version} of branch {branch!r} is gone: cleanup removed it. "
                "Read the branch as it is now, or at a newer commit"
            )
            return NotFound(message, code="version_removed", details=details)
        return NotFound(f"branch {branch!r} has no version {version}", details=details)

    def _origin_head(self, branch: str, version: int) -> CommitInfo | None:
        from omnigraph.storage.origin import head_from_history

        return head_from_history(self.store, self.branches(), branch, version)


def overlay(
    state: ManifestState,
    version: int,
    refs: Sequence[TableRef],
    locations: Mapping[str, str],
    gone: Collection[str],
    head: CommitInfo,
) -> ManifestState:
    """The state right after a publish of ours that followed directly on `state`; `gone` are tombstoned keys."""
    kept = {key: ref for key, ref in state.tables.items() if key not in gone}
    tables = kept | {ref.table_key: ref for ref in refs}
    return replace(state, version=version, tables=tables, locations=dict(state.locations) | dict(locations), head=head)
