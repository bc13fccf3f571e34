"""`verify`: walk a graph and report every inconsistency as data. Reads only.

Checked for every branch: the history has no hole; every table opens at its pin, holds as many rows as the manifest says
and can be read, every column of it; no table's head is ahead of its pin; ids are unique and say the key; edges end at
nodes; `@unique`, `@card` and what the schema asks of a value hold; every stored number is finite; every Blob can be
read; indexes cover their rows. A table that two branches share is checked once; what can't be read ends no run.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.errors import NotFound, OmniGraphError
from omnigraph.maintain.indices import label, wanted_indices
from omnigraph.maintain.walk import Walk, columns_of, ends_of, whole
from omnigraph.records import dataclass
from omnigraph.schema.catalog import EdgeType, NodeType
from omnigraph.storage import Repository, Snapshot, index_coverage
from omnigraph.write import constraints
from omnigraph.write.findings import Findings
from omnigraph.write.keys import render_key

__all__ = ["VerifyReport", "verify"]

_ALL = 1_000_000_000
_NONE = pa.array([], pa.string())
_KINDS = {
    "duplicate_id": "duplicate_id",
    "endpoint": "orphan_edge",
    "unique": "unique_violation",
    "cardinality": "cardinality_violation",
} | dict.fromkeys(("required", "enum", "range", "check"), "value_constraint_violation")


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """What was found.

    Args:
        ok: no error was found.
        findings: each with `kind`, `severity`, `message`, mostly `branch` and `table_key`, where there is one `id` or
            `column`. Severities: `error`; `warning` for nodes below a `@card` minimum, which commits allow; `note` for
            indexes that lag.
        counts: how many branches, tables, rows and commits were looked at.
    """

    ok: bool
    findings: list[dict[str, Any]]
    counts: dict[str, int]


def verify(repository: Repository) -> VerifyReport:
    """Looks at every branch as it is now. A write that runs meanwhile shows as a pending sidecar."""
    walk = Walk()
    for name in repository.pending():
        _pending(repository, name, walk)
    folders = repository.working_folders()
    if folders:
        message = (
            f"{len(folders)} folder(s) in __staging: of loads that run, or that were killed (recover removes those)"
        )
        walk.add("staging", message, severity="note")
    with walk.guarded("unreadable_branch", "what killed writes left can't be listed"):
        for kind, message in repository.leftovers():
            walk.add(kind, message, severity="note")
    for name in ("main", *sorted(repository.engine.manifest.names())):
        if not name.startswith("__"):
            _branch(repository, name, walk)
    ok = not any(one["severity"] == "error" for one in walk.findings)
    return VerifyReport(ok, walk.findings, dict(walk.counts))


def _branch(repository: Repository, name: str, walk: Walk) -> None:
    """One branch: its history, its tables, and what holds across them."""
    try:
        snapshot = repository.snapshot(name)
        catalog = snapshot.catalog
    except OmniGraphError as error:
        if not isinstance(error, NotFound) or repository.engine.manifest.exists(name):  # else deleted since
            walk.counts["branches"] += 1
            walk.add("unreadable_branch", f"branch {name}: {error.message}", branch=name)
        return
    walk.counts["branches"] += 1
    with walk.guarded("unreadable_history", f"the history of {name} can't be read", branch=name):
        _history(repository, name, walk)
    columns: dict[str, pa.Table] = {}
    for entity in catalog.by_table_key.values():
        table = _table(repository, snapshot, entity, walk)
        if table is not None:
            columns[entity.table_key] = table
    for entity in catalog.by_table_key.values():
        if entity.table_key in columns:
            _constraints(snapshot, entity, columns, walk)


def _pending(repository: Repository, name: str, walk: Walk) -> None:
    """A sidecar: of a write that runs, of one that was interrupted, or none can tell (object stores)."""
    sidecars = repository.engine.sidecars
    alive = sidecars.alive(name)
    if alive:
        walk.add("running_write", f"the write of {name} is running", severity="note")
    elif alive is False:
        walk.add("pending_recovery", f"the write of {name} was interrupted: run `omnigraph recover`")
    elif name in repository.pending():
        walk.add("pending_recovery", f"the write of {name} is unfinished: if none is running, run `omnigraph recover`")


def _moving(repository: Repository, snapshot: Snapshot, table_key: str) -> bool:
    """Whether a write explains a head ahead of the snapshot's pin: published since, or running now."""
    if repository.snapshot(snapshot.branch).tables.get(table_key) != snapshot.tables[table_key]:
        return True
    sidecars = repository.engine.sidecars
    for name in sidecars.names():
        if sidecars.alive(name):
            sidecar = sidecars.read(name)
            if sidecar is not None and any(t.table_key == table_key for t in sidecar.tables):
                return True
    return repository.snapshot(snapshot.branch).tables.get(table_key) != snapshot.tables[table_key]


def _history(repository: Repository, branch: str, walk: Walk) -> None:
    """Every parent of a commit is there, and the newest commit is the head."""
    commits = repository.commits(branch, limit=_ALL)
    known = {commit.id for commit in commits}
    for commit in commits:
        if walk.first("commit", commit.id):
            walk.counts["commits"] += 1
        for parent in commit.parents:
            if parent not in known and walk.first("hole", parent):
                # Commits of omnigraph 0.7 name no schema; it lost parents with the branches they were made on.
                severity = "note" if commit.schema_hash is None else "error"
                message = f"commit {commit.id} names the parent {parent}, which is missing"
                walk.add("history_hole", message, severity=severity, branch=branch)
    if repository.head(branch).id not in known:
        walk.add("history_hole", f"the head of {branch} isn't in its history", branch=branch)


def _table(repository: Repository, snapshot: Snapshot, entity: NodeType | EdgeType, walk: Walk) -> pa.Table | None:
    """The columns that constraints need, or None after saying why they can't be read."""
    key, branch = entity.table_key, snapshot.branch
    where = {"branch": branch, "table_key": key}
    ref = snapshot.tables.get(key)
    if ref is None:
        walk.add("missing_table", f"the schema declares {entity.name}, but the manifest has no table of it", **where)
        return None
    try:
        have = set(snapshot.schema(key).names)
    except OmniGraphError as error:
        walk.add("unreadable_table", f"version {ref.version} can't be opened: {error.message}", **where)
        return None
    lacking = [n for n in columns_of(entity) if n not in have]
    if lacking:
        walk.add("missing_column", f"the table lacks {', '.join(lacking)}", **where)
        return None
    rows = _kept(snapshot, entity, walk)
    _values(snapshot, entity, walk)
    if walk.first("table", snapshot.fingerprint(key)):
        walk.counts["tables"] += 1
        walk.counts["rows"] += ref.row_count if rows is None else rows.num_rows
        if rows is not None and rows.num_rows != ref.row_count:
            message = f"the manifest says {ref.row_count} rows, the table holds {rows.num_rows}"
            walk.add("row_count", message, **where)
        with walk.guarded("unreadable_table", "the table's newest version can't be opened", **where):
            _head(repository, snapshot, entity, walk)
        with walk.guarded("unreadable_index", "the indexes can't be looked at", **where):
            _indexes(snapshot, entity, walk)
        for prop in entity.properties.values():
            if prop.type.base == "Blob" and walk.readable(snapshot, key, [prop.name]):
                with walk.reading(snapshot, entity):
                    _blobs(snapshot, entity, prop.name, walk)
    return rows


def _kept(snapshot: Snapshot, entity: NodeType | EdgeType, walk: Walk) -> pa.Table | None:
    """The columns that constraints across rows need, as far as they can be read; None where ids or ends can't."""
    key, needed = entity.table_key, ["id", *ends_of(entity)]
    for _ in range(2):
        names = walk.readable(snapshot, key, [*needed, *(part for parts in entity.uniques for part in parts)])
        if not set(needed) <= set(names):
            break
        with walk.reading(snapshot, entity):
            return whole(key, snapshot.scan(key, names))
    return None


def _values(snapshot: Snapshot, entity: NodeType | EdgeType, walk: Walk) -> None:
    """Every property is read and judged, as far as it can be read."""
    key = entity.table_key
    if not walk.first("values", snapshot.fingerprint(key), snapshot.schema_hash):
        return
    for _ in range(2):
        names = walk.readable(snapshot, key, ["id", *entity.properties, *entity.key])
        if len(names) == 1 or "id" not in names:
            break
        with walk.reading(snapshot, entity):
            _judge(snapshot, entity, names, walk)
            return


def _judge(snapshot: Snapshot, entity: NodeType | EdgeType, names: list[str], walk: Walk) -> None:
    """What the schema asks of a row by itself: values that are allowed, and an id that is the key.

    No NaN and no infinity in numbers, lists and vectors: loads and mutations refuse them, other programs may not.
    """
    read = {name: entity.properties[name].type for name in names if name in entity.properties}
    numbers = [name for name, kind in read.items() if kind.base in ("F32", "F64", "Vector")]
    judged = [name for name, kind in read.items() if kind.base not in ("Blob", "Vector")]
    keyed = bool(entity.key) and set(entity.key) <= set(names)
    found, foreign = Findings(), 0
    bad: Counter[str] = Counter()
    first: dict[str, str] = {}
    for batch in snapshot.scan_batches(entity.table_key, names):
        whole(entity.table_key, batch)
        for name in numbers:
            places = _not_finite(batch.column(name))
            if len(places):
                bad[name] += len(places)
                first.setdefault(name, batch.column("id")[places[0].as_py()].as_py())
        constraints.check_values(entity, batch.select(["id", *judged]), found)
        if keyed:
            keys = render_key([batch.column(name) for name in entity.key])
            foreign += batch.num_rows - len(pc.indices_nonzero(pc.equal(keys, batch.column("id"))))
    where: dict[str, Any] = {"branch": snapshot.branch, "table_key": entity.table_key}
    for name, count in bad.items():
        message = f"{name} is NaN or infinite in {count} row(s): write finite numbers there, or null"
        walk.add("not_finite", message, id=first[name], **where)
    _report(snapshot, entity, found, walk, None, "error")
    if foreign:
        message = (
            f"{foreign} row(s) have an id that isn't their key ({', '.join(entity.key)}), so writing that key makes a "
            "second row: export the graph and load it into a new one"
        )
        # The origin made the ids of composite keys otherwise; writes of them are refused.
        severity = "warning" if snapshot.head.schema_hash is None or len(entity.key) > 1 else "error"
        walk.add("foreign_ids", message, severity=severity, **where)


def _not_finite(column: pa.Array[Any]) -> pa.Array[Any]:
    """The places of the rows that hold a number that is none; nulls may stand anywhere."""
    values, rows = column, None
    if pa.types.is_list(column.type) or pa.types.is_fixed_size_list(column.type):
        values, rows = pc.list_flatten(column), pc.list_parent_indices(column)
    at = pc.indices_nonzero(pc.invert(pc.is_finite(values)))  # a null counts as no
    return pc.unique(at if rows is None else pc.take(rows, at))


def _blobs(snapshot: Snapshot, entity: NodeType | EdgeType, name: str, walk: Walk) -> None:
    """The last byte of every Blob can be read; so the file that holds it is there and long enough."""
    for batch in snapshot.scan_batches(entity.table_key, ["id", "_rowid"]):
        try:
            walk.counts["blobs"] += snapshot.check_blobs(entity.table_key, name, batch.column("_rowid"))
        except OmniGraphError:
            for at in range(batch.num_rows):  # which of them it is
                try:
                    one = batch.column("_rowid").slice(at, 1)
                    walk.counts["blobs"] += snapshot.check_blobs(entity.table_key, name, one)
                except OmniGraphError as error:
                    severity = "note" if error.code == "external_blob" else "error"
                    where: dict[str, Any] = {"branch": snapshot.branch, "table_key": entity.table_key}
                    where["id"] = batch.column("id")[at].as_py()
                    walk.add("unreadable_blob", f"{name}: {error.message}", severity=severity, **where)


def _head(repository: Repository, snapshot: Snapshot, entity: NodeType | EdgeType, walk: Walk) -> None:
    """The lineage that the branch itself writes must end at the pin."""
    key = entity.table_key
    ref = snapshot.tables[key]
    where = {"branch": snapshot.branch, "table_key": key}
    if (ref.branch or "main") == snapshot.branch:
        drift = repository.drift(snapshot, key)
        if drift is not None and not (drift.head > ref.version and _moving(repository, snapshot, key)):
            message = f"the table's head is version {drift.head}, the manifest pins {ref.version}"
            if drift.kind == "NoRowChanged":
                # The next write of the table publishes it.
                walk.add("drift", f"{message}: no row differs", severity="note", **where)
            else:
                walk.add("drift", f"{message}: run `omnigraph repair`", **where)


def _indexes(snapshot: Snapshot, entity: NodeType | EdgeType, walk: Walk) -> None:
    """Indexes that are there cover every row."""
    ref = snapshot.ref(entity.table_key)
    if not ref.row_count:
        return
    covered = index_coverage(snapshot.dataset(entity.table_key), wanted_indices(entity))
    short: dict[int, list[str]] = {}
    for (column, kind), rows in covered.items():
        if rows is not None and rows < ref.row_count:
            short.setdefault(rows, []).append(label(column, kind))
    for rows, columns in short.items():
        which = f"index on {columns[0]} covers" if len(columns) == 1 else f"indexes on {', '.join(columns)} cover"
        message = f"the {which} {rows} of {ref.row_count} rows: run `omnigraph ensure-indices` for speed"
        where = {"branch": snapshot.branch, "table_key": entity.table_key}
        walk.add("index_coverage", message, severity="note", **where)


def _constraints(snapshot: Snapshot, entity: NodeType | EdgeType, columns: dict[str, pa.Table], walk: Walk) -> None:
    rows, found = columns[entity.table_key], Findings()
    if walk.first("rows", snapshot.fingerprint(entity.table_key), snapshot.schema_hash):
        constraints.check_distinct_ids(entity, rows, found)
        for parts in (parts for parts in entity.uniques if set(parts) <= set(rows.column_names)):
            constraints.check_unique(entity, parts, rows, None, found)
    if isinstance(entity, EdgeType):
        source, target = f"node:{entity.source}", f"node:{entity.target}"
        if source in columns and target in columns:
            prints = tuple(snapshot.fingerprint(k) for k in (entity.table_key, source, target))
            if walk.first("ends", prints, snapshot.schema_hash):
                ids = columns[source].column("id"), columns[target].column("id")
                constraints.check_endpoints(entity, rows, [ids[0]], [ids[1]], found)
                most = replace(entity, cardinality=replace(entity.cardinality, min=0))
                least = replace(entity, cardinality=replace(entity.cardinality, max=None))
                constraints.check_cardinality(most, rows, _NONE, found, said="has")
                below = Findings()
                constraints.check_cardinality(least, rows, _NONE, below, lost_src=ids[0], said="has")
                _report(snapshot, entity, below, walk, "below_minimum", "warning")
    _report(snapshot, entity, found, walk, None, "error")


def _report(
    snapshot: Snapshot, entity: NodeType | EdgeType, found: Findings, walk: Walk, kind: str | None, severity: str
) -> None:
    where = {"severity": severity, "branch": snapshot.branch, "table_key": entity.table_key}
    for record in found.shown:
        walk.add(kind or _KINDS.get(record.kind, record.kind), str(record), id=record.id, **where)
    hidden = sum(found.counts.values()) - len(found.shown)
    if hidden:
        walk.add(kind or "more", f"and {hidden} more of this table", **where)
