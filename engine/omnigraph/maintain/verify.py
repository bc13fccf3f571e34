"""`verify`: walk a graph and report every inconsistency as data. Reads only.

Checked for every branch: the history has no hole; every table opens at its pin and holds as many rows as the manifest
says; no table's head is ahead of its pin; ids are unique and say the key; edges end at nodes; `@unique`, `@card` and
what the schema asks of a value hold; every stored number is finite; every Blob can be read; indexes cover their rows. A
table that two branches share is checked once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from dataclasses import field, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.errors import OmniGraphError
from omnigraph.maintain.indices import label, wanted_indices
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
        findings: each with `kind`, `severity`, `message`, mostly `branch` and `table_key`. Severities: `error`;
            `warning` for nodes below a `@card` minimum, which commits allow; `note` for indexes that lag.
        counts: how many branches, tables, rows and commits were looked at.
    """

    ok: bool
    findings: list[dict[str, Any]]
    counts: dict[str, int]


@dataclass(slots=True)
class _Walk:
    findings: list[dict[str, Any]] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    seen: set[Hashable] = field(default_factory=set)

    def add(self, kind: str, message: str, *, severity: str = "error", **where: Any) -> None:
        self.findings.append({"kind": kind, "severity": severity, "message": message, **where})

    def first(self, *identity: Hashable) -> bool:
        """Whether this combination of table versions comes for the first time."""
        if identity in self.seen:
            return False
        self.seen.add(identity)
        return True


def verify(repository: Repository) -> VerifyReport:
    """Looks at every branch as it is now. A write that runs meanwhile shows as a pending sidecar."""
    walk = _Walk()
    for name in repository.pending():
        _pending(repository, name, walk)
    folders = repository.working_folders()
    if folders:
        message = (
            f"{len(folders)} folder(s) in __staging: of loads that run, or that were killed (recover removes those)"
        )
        walk.add("staging", message, severity="note")
    for kind, message in repository.leftovers():
        walk.add(kind, message, severity="note")
    for branch in repository.branches():
        walk.counts["branches"] += 1
        try:
            snapshot = repository.snapshot(branch.name)
            catalog = snapshot.catalog
        except OmniGraphError as error:
            walk.add("unreadable_branch", error.message, branch=branch.name)
            continue
        _history(repository, branch.name, walk)
        columns: dict[str, pa.Table] = {}
        for entity in catalog.by_table_key.values():
            table = _table(repository, snapshot, entity, walk)
            if table is not None:
                columns[entity.table_key] = table
        for entity in catalog.by_table_key.values():
            if entity.table_key in columns:
                _constraints(snapshot, entity, columns, walk)
    ok = not any(one["severity"] == "error" for one in walk.findings)
    return VerifyReport(ok, walk.findings, dict(walk.counts))


def _pending(repository: Repository, name: str, walk: _Walk) -> None:
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


def _history(repository: Repository, branch: str, walk: _Walk) -> None:
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


def _table(repository: Repository, snapshot: Snapshot, entity: NodeType | EdgeType, walk: _Walk) -> pa.Table | None:
    """The columns that constraints need, or None after saying why they can't be read."""
    key, branch = entity.table_key, snapshot.branch
    where = {"branch": branch, "table_key": key}
    ref = snapshot.tables.get(key)
    if ref is None:
        walk.add("missing_table", f"the schema declares {entity.name}, but the manifest has no table of it", **where)
        return None
    ends = ["src", "dst"] if isinstance(entity, EdgeType) else []
    unique = [part for parts in entity.uniques for part in parts]
    try:
        have = set(snapshot.schema(key).names)
        lacking = [n for n in ("id", *ends, *entity.properties) if n not in have]
        if lacking:
            walk.add("missing_column", f"the table lacks {', '.join(lacking)}", **where)
            return None
        rows = snapshot.scan(key, list(dict.fromkeys(["id", *ends, *unique])))
    except OmniGraphError as error:
        walk.add("unreadable_table", error.message, **where)
        return None
    if walk.first("table", snapshot.fingerprint(key)):
        walk.counts["tables"] += 1
        walk.counts["rows"] += rows.num_rows
        if rows.num_rows != ref.row_count:
            message = f"the manifest says {ref.row_count} rows, the table holds {rows.num_rows}"
            walk.add("row_count", message, **where)
        _head(repository, snapshot, entity, walk)
        _finite(snapshot, entity, walk)
        for prop in entity.properties.values():
            if prop.type.base == "Blob":
                _blobs(snapshot, entity, prop.name, walk)
    return rows


def _finite(snapshot: Snapshot, entity: NodeType | EdgeType, walk: _Walk) -> None:
    """No NaN and no infinity in numbers, lists and vectors: loads and mutations refuse them, other programs may not."""
    names = [p.name for p in entity.properties.values() if p.type.base in ("F32", "F64", "Vector")]
    bad: Counter[str] = Counter()
    first: dict[str, str] = {}
    for batch in snapshot.scan_batches(entity.table_key, ["id", *names]) if names else ():
        for name in names:
            column = batch.column(name)
            values, rows = column, None
            if pa.types.is_list(column.type) or pa.types.is_fixed_size_list(column.type):
                values, rows = pc.list_flatten(column), pc.list_parent_indices(column)
            at = pc.indices_nonzero(pc.invert(pc.is_finite(values)))  # a null counts as no
            if len(at):
                places = pc.unique(at if rows is None else pc.take(rows, at))
                bad[name] += len(places)
                first.setdefault(name, batch.column("id")[places[0].as_py()].as_py())
    for name, count in bad.items():
        message = f"{name} is NaN or infinite in {count} row(s): write finite numbers there, or null"
        where = {"branch": snapshot.branch, "table_key": entity.table_key, "id": first[name]}
        walk.add("not_finite", message, **where)


def _blobs(snapshot: Snapshot, entity: NodeType | EdgeType, name: str, walk: _Walk) -> None:
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


def _head(repository: Repository, snapshot: Snapshot, entity: NodeType | EdgeType, walk: _Walk) -> None:
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
    if ref.row_count:
        covered = index_coverage(snapshot.dataset(key), wanted_indices(entity))
        short: dict[int, list[str]] = {}
        for (column, kind), rows in covered.items():
            if rows is not None and rows < ref.row_count:
                short.setdefault(rows, []).append(label(column, kind))
        for rows, columns in short.items():
            which = f"index on {columns[0]} covers" if len(columns) == 1 else f"indexes on {', '.join(columns)} cover"
            message = f"the {which} {rows} of {ref.row_count} rows: run `omnigraph ensure-indices` for speed"
            walk.add("index_coverage", message, severity="note", **where)


def _constraints(snapshot: Snapshot, entity: NodeType | EdgeType, columns: dict[str, pa.Table], walk: _Walk) -> None:
    rows, found = columns[entity.table_key], Findings()
    if walk.first("rows", snapshot.fingerprint(entity.table_key), snapshot.schema_hash):
        constraints.check_distinct_ids(entity, rows, found)
        for parts in entity.uniques:
            constraints.check_unique(entity, parts, rows, None, found)
        _values(snapshot, entity, found, walk)
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


def _values(snapshot: Snapshot, entity: NodeType | EdgeType, found: Findings, walk: _Walk) -> None:
    """What the schema asks of a row by itself: values that are allowed, and an id that is the key."""
    asked = [p.name for p in entity.properties.values() if p.type.base == "Enum" or not p.type.nullable]
    if isinstance(entity, NodeType):
        asked += [bound.property for bound in entity.ranges] + [check.property for check in entity.checks]
    judged = [name for name in dict.fromkeys(asked) if entity.properties[name].type.base not in ("Blob", "Vector")]
    foreign = 0
    for batch in snapshot.scan_batches(entity.table_key, list(dict.fromkeys(["id", *judged, *entity.key]))):
        constraints.check_values(entity, batch.select(["id", *judged]), found)
        if entity.key:
            keys = render_key([batch.column(name) for name in entity.key])
            foreign += batch.num_rows - len(pc.indices_nonzero(pc.equal(keys, batch.column("id"))))
    if foreign:
        message = (
            f"{foreign} row(s) have an id that isn't their key ({', '.join(entity.key)}), so writing that key makes a "
            "second row: export the graph and load it into a new one"
        )
        # The origin made the ids of composite keys otherwise; writes of them are refused.
        severity = "warning" if snapshot.head.schema_hash is None or len(entity.key) > 1 else "error"
        walk.add("foreign_ids", message, severity=severity, branch=snapshot.branch, table_key=entity.table_key)


def _report(
    snapshot: Snapshot, entity: NodeType | EdgeType, found: Findings, walk: _Walk, kind: str | None, severity: str
) -> None:
    where = {"severity": severity, "branch": snapshot.branch, "table_key": entity.table_key}
    for record in found.shown:
        walk.add(kind or _KINDS.get(record.kind, record.kind), str(record), id=record.id, **where)
    hidden = sum(found.counts.values()) - len(found.shown)
    if hidden:
        walk.add(kind or "more", f"and {hidden} more of this table", **where)
