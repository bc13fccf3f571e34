"""`merge`: one branch's changes on top of another's, row by row against their common ancestor (03 §3.3).

Of each table that the source changed since the base only the touched rows are read, in portions; new data files of the
source are copied where all their rows are new here. The result is written on the target's own lineage in one commit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field, replace
from typing import Any

import pyarrow as pa

from omnigraph.errors import Conflict, MergeConflicts
from omnigraph.read.compute import Array, pc
from omnigraph.read.entity import plain_rows
from omnigraph.records import dataclass
from omnigraph.schema.catalog import Catalog, EdgeType, NodeType
from omnigraph.storage import CommitInfo, Repository, Snapshot, Staging, TableChange, WriterKind
from omnigraph.storage.arrow import loose_schema, moving_schema
from omnigraph.storage.commit import check_head
from omnigraph.ulids import new_ulid
from omnigraph.write.blobs import Tickets, blob_names
from omnigraph.write.columns import one_chunk
from omnigraph.write.committed import Committed
from omnigraph.write.loader import FRAGMENT_ROWS, done_before
from omnigraph.write.merge_judge import Found, judge_merged
from omnigraph.write.merge_step import merge_step
from omnigraph.write.spool import Spool
from omnigraph.write.staging import MutationStaging

__all__ = ["MergeResult", "merge"]

PORTION = 100_000
"""Touched rows compared at a time."""

COPIED_FROM_ROWS = 10_000
"""A data file with fewer rows than this isn't copied: its rows join others, so that no table gets many small files."""

DIGEST = "__sha256:"
"""Before a Blob's name: the column of its digests."""

SHOWN = 10_000
"""Conflicts that are listed; the rest is counted."""


@dataclass(frozen=True, slots=True)
class TableMerge:
    """Rows that the merge inserted, updated and deleted in the target; `copied` of them came with their data file."""

    table_key: str
    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    copied: int = 0


@dataclass(frozen=True, slots=True)
class MergeResult:
    """What a merge did.

    Args:
        outcome: `already_up_to_date`, `fast_forward` or `merged`.
        commit: the target's new commit, or the one that this very operation made before; None where it had it all.
        base: id of the common ancestor.
        source: id of the commit that was merged.
        tables: one entry for each table that changed.
    """

    outcome: str
    commit: CommitInfo | None
    base: str
    source: str
    tables: tuple[TableMerge, ...] = ()


@dataclass(slots=True)
class _Taken:
    """What the target gets of one table."""

    entity: NodeType | EdgeType
    inserts: pa.Table
    updates: pa.Table
    deletes: Array
    files: tuple[dict[str, Any], ...] = ()
    copied: int = 0

    def __bool__(self) -> bool:
        return bool(self.inserts.num_rows or self.updates.num_rows or len(self.deletes) or self.files)


@dataclass(slots=True)
class _Merge:
    """`crossed`: further common ancestors, each with the root it shares with `base`."""

    repository: Repository
    base: Snapshot
    ours: Snapshot
    theirs: Snapshot
    crossed: list[tuple[Snapshot, Snapshot]]
    found: list[Found] = field(default_factory=list)


def merge(
    repository: Repository,
    source: str,
    target: str = "main",
    *,
    actor: str | None = None,
    operation_id: str | None = None,
    expect_head: str | None = None,
) -> MergeResult:
    """Merges a branch, or the state a commit made, into a branch; all of it or nothing.

    Args:
        source: a branch, `branch@moment` or a commit id.
        expect_head: refuse when the target's head is another commit by now.

    Raises:
        MergeConflicts: rows that both sides changed, or that together break a constraint; nothing is published.
        NotFound: no such branch, or the state of the common ancestor went with a deleted branch.
        Conflict: the target moved meanwhile, the schemas differ, or there is no common ancestor.
    """
    ours, theirs = repository.snapshot(target), repository.point(source)
    if operation_id is not None:
        done = done_before(repository, target, operation_id)
        if done is not None:
            return MergeResult("already_up_to_date", done, done.parents[0], theirs.head.id)
    check_head(ours.state, expect_head)
    (base, _), *crossed = repository.merge_bases(ours, theirs)
    if base.head.id == theirs.head.id:
        return MergeResult("already_up_to_date", None, base.head.id, theirs.head.id)
    if ours.schema_hash != theirs.schema_hash and ours.schema_ir.identity != theirs.schema_ir.identity:
        raise Conflict(
            f"{source!r} and {target!r} have different schemas, so their rows can't be merged",
            code="schema_mismatch",
            details={"source": source, "target": target},
        )
    work = _Merge(repository, base, ours, theirs, crossed)
    forward = base.head.id == ours.head.id
    with Spool() as spool:
        taken = [t for e in ours.catalog.by_table_key.values() if (t := _table(work, e, spool)) is not None and t]
        if not forward:  # else the target becomes what the source is, and that has been judged
            _judge(work, taken)
        _refuse(work)
        repository.adopt_history(theirs, target)
        staging = Staging(
            branch=target,
            kind=WriterKind.BRANCH_MERGE,
            changes=tuple(_change(work, item) for item in taken),
            reads=_reads(ours.catalog, taken),
            operation_id=operation_id or new_ulid(),
            fresh=operation_id is None,
            actor=actor,
            expect_head=expect_head,
            merged_parent=theirs.head.id,
        )
        commit = repository.commit(staging, ours)
    outcome = "fast_forward" if forward else "merged"
    return MergeResult(outcome, commit, base.head.id, theirs.head.id, tuple(_count(item) for item in taken))


# ---- one table -------------------------------------------------------------------------------------------------------


def _table(work: _Merge, entity: NodeType | EdgeType, spool: Spool) -> _Taken | None:
    """What the source changed in a table since the base, decided against what the target has; None: nothing."""
    key = entity.table_key
    theirs, ours, base = (s.tables.get(key) for s in (work.theirs, work.ours, work.base))
    crossed = [other.tables.get(key) for other, _ in work.crossed]
    if theirs == ours or all(theirs == one for one in (base, *crossed)):
        return None
    names, shape = work.ours.schema(key).names, loose_schema(entity)
    files = _files(work, key)
    ids = work.repository.touched_ids(base, theirs, without=files)
    for other in crossed:
        ids = pc.unique(pa.concat_arrays([ids, work.repository.touched_ids(other, theirs)]))
    deletes: list[Array] = []
    for portion in _portions(ids):
        before = _base_rows(work, entity, portion, names)
        here = before if ours == base and not crossed else _rows(work.ours, entity, portion, names)
        rows = before, here, _rows(work.theirs, entity, portion, names)
        step = merge_step(portion, *rows, unlike=blob_names(entity))
        work.found += [Found(c.kind, key, c.id, c.message) for c in step.clashes]
        for kind, part in (("+", step.inserts), ("~", step.updates)):
            for batch in part.select(shape.names).cast(shape).to_batches():
                spool.append(kind + key, batch)
        deletes.append(one_chunk(step.deletes))
    inserts, updates = (spool.table(kind + key) if kind + key in spool else shape.empty_table() for kind in "+~")
    gone = pa.concat_arrays(deletes) if deletes else pa.array([], pa.string())
    return _Taken(
        entity, inserts, updates, gone, tuple(files.values()), sum(f["physical_rows"] for f in files.values())
    )


def _base_rows(work: _Merge, entity: NodeType | EdgeType, ids: Array, names: list[str]) -> pa.Table:
    """The rows of the common ancestor; of several, what merging them would make.

    With one of them alone, what one side had put back since would look unchanged, and be lost. A row that they can't
    agree on is left out: if the sides differ in it too, that is a conflict.
    """
    rows = _rows(work.base, entity, ids, names)
    for other, root in work.crossed:
        sides = _rows(root, entity, ids, names), rows, _rows(other, entity, ids, names)
        step = merge_step(ids, *sides, unlike=blob_names(entity))
        clashed = pa.array([c.id for c in step.clashes], pa.string())
        gone = pa.concat_arrays([one_chunk(step.updates.column("id")), one_chunk(step.deletes), clashed])
        kept = rows.filter(pc.invert(pc.is_in(rows.column("id"), value_set=gone)))
        rows = pa.concat_tables([kept, step.updates, step.inserts])
    return rows


def _rows(snapshot: Snapshot, entity: NodeType | EdgeType, ids: Array, names: list[str]) -> pa.Table:
    """A side's rows; Blobs as tickets of that side, and as digests, which the sides can be compared by."""
    key, blobs, side = entity.table_key, blob_names(entity), Committed(snapshot)
    if not blobs:
        return _distinct(entity, side.matching(key, "id", ids, names))
    rows = _distinct(entity, side.matching(key, "id", ids))
    for name in blobs:
        row_ids = pc.subtract(pa.scalar(-1), one_chunk(rows.column(name)))
        digests = side.snapshot.blob_digests(key, name, row_ids.drop_null().cast(pa.uint64()))
        where = pc.subtract(pc.cumulative_sum(pc.is_valid(row_ids).cast(pa.int64())), 1)
        rows = rows.append_column(DIGEST + name, digests.take(pc.if_else(pc.is_valid(row_ids), where, None)))
    return rows


def _portions(ids: Array) -> Iterator[Array]:
    for start in range(0, len(ids), PORTION):
        yield ids.slice(start, PORTION)


def _distinct(entity: NodeType | EdgeType, rows: pa.Table) -> pa.Table:
    ids = one_chunk(rows.column("id"))
    if pc.count_distinct(ids).as_py() != len(ids):
        raise Conflict(
            f"{entity.name}: ids that the merge meets are stored several times: `omnigraph verify` lists them. Export "
            "the graph, give each row an id of its own, and load it anew",
            code="repeated_id",
            details={"table_key": entity.table_key},
        )
    return rows


def _files(work: _Merge, key: str) -> dict[int, dict[str, Any]]:
    """Data files of the source to copy, by fragment number: every row in them is new, here and since the base."""
    if work.crossed:
        return {}  # what one ancestor lacks, another may have had, and our side deleted
    entity = work.ours.catalog.by_table_key[key]
    bounded = isinstance(entity, EdgeType) and (entity.cardinality.min > 0 or entity.cardinality.max is not None)
    if work.base.head.id != work.ours.head.id and (entity.uniques or bounded):
        return {}  # such rows are judged against the others, so they are read anyway
    files = work.repository.whole_fragments(key, work.base, work.theirs, work.ours, COPIED_FROM_ROWS)
    same = work.base.tables.get(key) == work.ours.tables.get(key)
    before = [Committed(work.base)] if same else [Committed(work.base), Committed(work.ours)]
    out = {}
    for number, data in files.items():
        ids = work.theirs.fragment_rows(key, [number], ["id"]).column("id")
        if not any(len(side.present(key, ids)) for side in before):
            out[number] = data
    return out


# ---- the whole -------------------------------------------------------------------------------------------------------


def _judge(work: _Merge, taken: Sequence[_Taken]) -> None:
    """Constraints on the state as the merge would leave it."""
    staging = MutationStaging(work.ours)
    for item in taken:
        if len(item.deletes):
            staging.delete(item.entity, item.deletes)
        if item.updates.num_rows or item.inserts.num_rows:
            staging.put(item.entity, pa.concat_tables([item.updates, item.inserts]))
    copied = {
        item.entity.table_key: work.theirs.fragment_rows(
            item.entity.table_key, _numbers(item), ["id", "src", "dst"] if isinstance(item.entity, EdgeType) else ["id"]
        )
        for item in taken
        if item.files
    }
    undecided = {
        key: pa.array([f.id for f in work.found if f.table_key == key], pa.string())
        for key in {f.table_key for f in work.found}
    }
    work.found += judge_merged(work.ours.catalog, staging, copied, undecided)


def _numbers(item: _Taken) -> list[int]:
    return [int(data["id"]) for data in item.files]


def _refuse(work: _Merge) -> None:
    if not work.found:
        return
    shown = work.found[:SHOWN]
    sides = {"base": work.base, "ours": work.ours, "theirs": work.theirs}
    values: dict[str, dict[tuple[str, str], dict[str, Any]]] = {}
    for name, snapshot in sides.items():
        values[name] = {}
        for key in {f.table_key for f in shown}:
            entity = work.ours.catalog.by_table_key[key]
            plain = ["id", *(["src", "dst"] if isinstance(entity, EdgeType) else [])]
            plain += [name for name in entity.properties if name not in blob_names(entity)]
            ids = pa.array(sorted({f.id for f in shown if f.table_key == key}), pa.string())
            found = Committed(snapshot).matching(key, "id", ids, [*plain, "_rowid"])
            row_ids = one_chunk(found.column("_rowid"))
            blobs = {b: _shown_blobs(snapshot, key, b, row_ids) for b in blob_names(entity)}
            for at, row in enumerate(plain_rows(found.drop_columns(["_rowid"]))):
                values[name][key, row["id"]] = {k: _text(v) for k, v in row.items()} | {
                    b: v[at] for b, v in blobs.items()
                }
    raise MergeConflicts(
        [
            {"kind": f.kind, "table_key": f.table_key, "id": f.id, "message": f.message}
            | {name: values[name].get((f.table_key, f.id)) for name in sides}
            for f in shown
        ],
        total=len(work.found),
    )


def _shown_blobs(snapshot: Snapshot, key: str, name: str, row_ids: Array) -> list[dict[str, Any] | None]:
    """What a conflict says of Blobs: size and SHA-256."""
    sizes, digests = snapshot.blob_sizes(key, name, row_ids), snapshot.blob_digests(key, name, row_ids)
    pairs = zip(sizes.to_pylist(), digests.to_pylist(), strict=True)
    return [None if digest is None else {"size": size, "sha256": digest.hex()} for size, digest in pairs]


def _text(value: Any) -> Any:
    """A value as JSON has it: times as ISO texts."""
    if isinstance(value, list):
        return [_text(v) for v in value]
    return value.isoformat() if hasattr(value, "isoformat") else value


def _change(work: _Merge, item: _Taken) -> TableChange:
    key, schema = item.entity.table_key, moving_schema(item.entity)
    blobs = Tickets(None, work.theirs, key) if blob_names(item.entity) else None
    fragments: tuple[str, ...] = ()
    if item.files:
        fragments = work.repository.copy_fragments(work.theirs, work.ours, key, item.files)
    inserts = item.inserts.select(schema.names)
    if inserts.num_rows >= FRAGMENT_ROWS:
        fragments += work.repository.write_fragments(work.ours, key, inserts, blobs=blobs)
        inserts = inserts.slice(0, 0)
    return TableChange(
        key,
        appends=inserts if inserts.num_rows else None,
        upserts=item.updates.select(schema.names) if item.updates.num_rows else None,
        delete_ids=item.deletes if len(item.deletes) else None,
        fragments=fragments,
        blobs=blobs,
    )


def _reads(catalog: Catalog, taken: Sequence[_Taken]) -> frozenset[str]:
    """Tables the judgement relied on: the ends of edges that come, and the edges at nodes that go."""
    out: set[str] = set()
    for item in taken:
        if isinstance(item.entity, EdgeType):
            out |= {catalog.nodes[item.entity.source].table_key, catalog.nodes[item.entity.target].table_key}
        elif len(item.deletes):
            out |= {edge.table_key for edge in catalog.edges_at(item.entity.name)}
    return frozenset(out)


def _count(item: _Taken) -> TableMerge:
    inserted = item.inserts.num_rows + item.copied
    counted = TableMerge(item.entity.table_key, inserted, item.updates.num_rows, len(item.deletes))
    return replace(counted, copied=item.copied)
