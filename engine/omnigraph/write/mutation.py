"""`mutate`: the statements of one query, judged on the state after the last, in one commit (02 §2.2, 03 §3.2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa

from omnigraph.errors import BadRequest
from omnigraph.query.ir import (
    CompiledQuery,
    Delete,
    Expr,
    InsertEdge,
    InsertNode,
    Lit,
    Param,
    Statement,
    UpdateNode,
)
from omnigraph.read.compute import Array, Chunked, pc
from omnigraph.read.datum import as_array, as_mask
from omnigraph.read.expr import compile_expr
from omnigraph.read.scan import pushed_filter
from omnigraph.read.told import told
from omnigraph.read.walk import conjuncts, may_fail, properties
from omnigraph.records import dataclass
from omnigraph.schema.catalog import Catalog, EdgeType, NodeType, Property
from omnigraph.storage import CommitInfo, Repository, Staging, TableChange, WriterKind
from omnigraph.storage.arrow import loose_schema
from omnigraph.storage.commit import check_head
from omnigraph.storage.whole import among, joined
from omnigraph.ulids import new_ulid
from omnigraph.write import constraints
from omnigraph.write.blobs import BlobSpool, blob_problem
from omnigraph.write.columns import cast_column, one_chunk, values_column
from omnigraph.write.committed import refuse_repeated
from omnigraph.write.embedding import (
    EmbedWhen,
    Retold,
    check_models,
    fill_table,
    follow_texts,
    provider,
    with_wanted,
)
from omnigraph.write.findings import BadRecord, Findings
from omnigraph.write.keys import hashed_ids, render_key
from omnigraph.write.loader import done_before
from omnigraph.write.rows import default_column, endpoint, key_parts
from omnigraph.write.staging import MutationStaging
from omnigraph.write.stored import StoredRows

__all__ = ["MutationResult", "mutate"]


@dataclass(frozen=True, slots=True)
class MutationResult:
    """How many nodes and edges were inserted, updated or deleted, cascaded edges included. No change, no commit."""

    nodes: int
    edges: int
    commit: CommitInfo | None


def mutate(
    repository: Repository,
    compiled: CompiledQuery,
    params: Mapping[str, Any],
    *,
    branch: str = "main",
    actor: str | None = None,
    operation_id: str | None = None,
    expect_head: str | None = None,
    embed: EmbedWhen | None = None,
) -> MutationResult:
    """Runs a mutation, all of it or nothing.

    Args:
        params: bound parameters (`bind_params`).
        expect_head: refuse when the branch's head is another commit by now.
        embed: when the vectors of new texts are made; default `OMNIGRAPH_EMBED_WRITES`.

    Raises:
        BadRequest: a value, an endpoint or a constraint; `details` names each.
        Conflict: the branch moved meanwhile.
        Unavailable: the embedding provider gives no vectors.
    """
    if compiled.kind != "mutation":
        raise BadRequest(f"query {compiled.name!r} reads: run it as a query, not as a mutation")
    operation = operation_id or new_ulid()
    if operation_id is not None:
        done = done_before(repository, branch, operation_id)
        if done is not None:
            return MutationResult(0, 0, done)
    snapshot = repository.snapshot(branch)
    check_head(snapshot.state, expect_head)  # also where nothing changes; the commit asks again
    with BlobSpool() as blobs:
        run = _Run(snapshot.catalog, MutationStaging(snapshot, blobs), dict(params), datetime.now(UTC), operation)
        return _carried_out(repository, compiled, run, actor, operation_id, expect_head, embed)


def _carried_out(
    repository: Repository,
    compiled: CompiledQuery,
    run: _Run,
    actor: str | None,
    operation_id: str | None,
    expect_head: str | None,
    embed: EmbedWhen | None,
) -> MutationResult:
    snapshot = run.staging.snapshot
    changes = told(compiled.name, lambda: _changes(compiled, run, embed))
    if not changes:
        return MutationResult(run.nodes, run.edges, None)
    staging = Staging(
        branch=snapshot.branch,
        kind=WriterKind.MUTATION,
        changes=changes,
        reads=frozenset(run.reads),
        operation_id=run.operation_id,
        fresh=operation_id is None,
        actor=actor,
        expect_head=expect_head,
    )
    return MutationResult(run.nodes, run.edges, repository.commit(staging, snapshot))


def _changes(compiled: CompiledQuery, run: _Run, embed: EmbedWhen | None) -> tuple[TableChange, ...]:
    """What the statements change, once it is judged."""
    for number, statement in enumerate(compiled.statements):
        run.statement(number, statement)
    _make_vectors(run, embed)
    _judge(run)
    run.findings.refuse(what="row")
    return run.staging.changes(run.catalog.by_table_key.values())


class _Run:
    """One mutation under way."""

    def __init__(
        self, catalog: Catalog, staging: MutationStaging, params: dict[str, Any], now: datetime, operation_id: str
    ) -> None:
        self.catalog, self.staging, self.params = catalog, staging, params
        self.blobs = staging.blobs or BlobSpool()
        self.now = now.replace(microsecond=now.microsecond // 1000 * 1000)
        self.operation_id = operation_id
        self.findings = Findings()
        self.nodes = self.edges = 0
        self.reads: set[str] = set()
        self.retold = Retold()

    def statement(self, number: int, statement: Statement) -> None:
        if isinstance(statement, InsertNode):
            self._insert_node(number, statement)
        elif isinstance(statement, InsertEdge):
            self._insert_edge(number, statement)
        elif isinstance(statement, UpdateNode):
            self._update(statement)
        elif statement.kind == "node":
            self._delete_nodes(statement)
        else:
            edge = self.catalog.edges[statement.type]
            self._drop_edges(edge, self._where(edge, statement.where).column("id"))

    # ---- values ----

    def _value(self, expr: Expr) -> Any:
        """One value for all rows, as Python has it."""
        if isinstance(expr, Lit):
            value = expr.value
        elif isinstance(expr, Param):
            value = self.params.get(expr.name)
        else:
            value = compile_expr(expr)(StoredRows(None, self.params, self.now)).as_py()
        return list(value) if isinstance(value, tuple) else value

    def _column(self, entity: NodeType | EdgeType, prop: Property, expr: Expr, rows: StoredRows, n: int) -> Array:
        """The property's new value in each of `n` rows."""
        if isinstance(expr, (Lit, Param)):  # a Blob or a Vector too, which no expression computes
            value = self._value(expr)
            column = pa.array([value], pa.large_binary()) if isinstance(value, bytes) else values_column([value])
        else:
            computed = compile_expr(expr)(rows)
            column = computed if isinstance(computed, pa.Array) else as_array(computed, 1)
        blob = prop.type.base == "Blob"
        cast = self.blobs.cast(column) if blob else cast_column(column, prop.type)
        if cast.bad is not None:
            wrong = column[cast.bad.index(True).as_py()].as_py()
            message = f"{prop.name}: {wrong!r} is not {prop.type}"
            if blob:
                message = f"{prop.name}: {blob_problem(wrong)}"
            self.findings.add(BadRecord("type", message, entity.table_key, property=prop.name))
        return cast.column if len(column) == n else cast.column.take(pa.array(np.zeros(n, dtype=np.int64)))

    def _assign(
        self,
        entity: NodeType | EdgeType,
        rows: pa.Table,
        values: Sequence[tuple[str, Expr]],
        *,
        known: Mapping[str, Array] | None = None,
        fresh: bool = False,
    ) -> pa.Table:
        """The rows with new values, all of them computed from the rows as they were.

        Args:
            known: values that are computed already.
        """
        self.retold.assigned(entity, one_chunk(rows.column("id")), {name for name, _ in values}, fresh=fresh)
        before = StoredRows(rows, self.params, self.now)
        for name, expr in values:
            column = None if known is None else known.get(name)
            if column is None:
                column = self._column(entity, entity.properties[name], expr, before, rows.num_rows)
            at = rows.schema.get_field_index(name)
            rows = rows.set_column(at, rows.schema.field(at), column)
        return rows

    # ---- inserts and updates ----

    def _insert_node(self, number: int, statement: InsertNode) -> None:
        node = self.catalog.nodes[statement.node]
        self._insert(number, node, statement.values, {})
        self.nodes += 1

    def _insert_edge(self, number: int, statement: InsertEdge) -> None:
        edge = self.catalog.edges[statement.edge]
        ends = {}
        for column, name, expr in (("src", edge.source, statement.source), ("dst", edge.target, statement.target)):
            node = self.catalog.nodes[name]
            ends[column] = self._end(edge, node, "from" if column == "src" else "to", self._value(expr))
            self.reads.add(node.table_key)
        self._insert(number, edge, statement.values, ends)
        self.edges += 1

    def _end(self, edge: EdgeType, node: NodeType, word: str, value: Any) -> Array:
        kinds = key_parts(node)
        parts = value if len(kinds) > 1 else [value]
        if not isinstance(parts, list) or len(parts) != len(kinds) or any(p is None for p in parts):
            names = ", ".join(node.key) or "id"
            raise BadRequest(f"{edge.name}: {word} holds the key of a {node.name} ({names}), not {value!r}")
        cast = endpoint(node, [values_column([part]) for part in parts], text=len(kinds) > 1)
        if cast.bad is not None:
            raise BadRequest(f"{edge.name}: {word}: {value!r} is no key of {node.name}")
        return cast.column

    def _insert(
        self,
        number: int,
        entity: NodeType | EdgeType,
        values: Sequence[tuple[str, Expr]],
        ends: Mapping[str, Array],
    ) -> None:
        """One row; with a key it goes over the present row of that key."""
        given, known = dict(values), dict(ends)
        if entity.key:
            nothing = StoredRows(None, self.params, self.now)
            self.staging.committed.check_keys(entity)
            for prop in (entity.properties[name] for name in entity.key if name not in ends):
                expr = given.get(prop.name)
                column = default_column(prop, 1) if expr is None else self._column(entity, prop, expr, nothing, 1)
                known[prop.name] = column
            ids = render_key([known[name] for name in entity.key])
            if ids.null_count:
                raise BadRequest(f"{entity.name}: the key ({', '.join(entity.key)}) has no value")
            present = self.staging.rows(entity, ids)
            if present.num_rows > 1:
                raise BadRequest(f"{entity.name} {ids[0].as_py()!r} is stored {present.num_rows} times: run verify")
            if present.num_rows:
                self.staging.put(entity, self._assign(entity, present, values, known=known))
                return
        else:
            ids = hashed_ids(self.operation_id, "mutation", np.array([number]))
        own = {"id": ids, **ends} | {p.name: default_column(p, 1) for p in entity.properties.values()}
        schema = loose_schema(entity)
        fresh = pa.table([own[name] for name in schema.names], schema=schema)
        self.staging.put(entity, self._assign(entity, fresh, values, known=known, fresh=True))

    def _update(self, statement: UpdateNode) -> None:
        node = self.catalog.nodes[statement.node]
        rows = self._where(node, statement.where, whole=True)
        if rows.num_rows:
            self.staging.put(node, self._assign(node, rows, statement.values))
        self.nodes += rows.num_rows

    # ---- deletes ----

    def _delete_nodes(self, statement: Delete) -> None:
        node = self.catalog.nodes[statement.type]
        ids = joined(self._where(node, statement.where).column("id"))
        if len(ids) == 0:
            return
        refuse_repeated(node, self.staging.present(node, ids), met=len(ids))
        self.staging.delete(node, ids)
        self.nodes += len(pc.unique(ids))
        for edge in self.catalog.edges_at(node.name):
            self.reads.add(edge.table_key)
            rows = []
            if edge.source == node.name:
                rows.append(self.staging.edges_at(edge, "src", ids))
            if edge.target == node.name:
                there = self.staging.edges_at(edge, "dst", ids)
                rows.append(there.filter(pc.invert(among(there.column("src"), ids))) if rows else there)
            self._drop_edges(edge, pa.concat_tables(rows).column("id"))

    def _drop_edges(self, edge: EdgeType, ids: Chunked) -> None:
        if len(ids) == 0:
            return
        refuse_repeated(edge, self.staging.committed.present(edge.table_key, ids), met=len(ids))
        self.staging.delete(edge, ids)
        self.edges += len(ids)

    def _where(self, entity: NodeType | EdgeType, where: Expr, *, whole: bool = False) -> pa.Table:
        """The present rows for which it is true, whole or by `id` alone; what may be an error in a row is asked last,
        about the rows left."""
        conditions = [compile_expr(condition) for condition in sorted(conjuncts(where), key=may_fail)]

        def passing(rows: pa.Table) -> pa.Table:
            for condition in conditions:
                if rows.num_rows:
                    found = condition(StoredRows(rows, self.params, self.now))
                    rows = rows.filter(pa.array(as_mask(found, rows.num_rows)))
            return rows

        names = sorted({name for _, name in properties(where)})
        return self.staging.passing(entity, names, passing, pushed_filter(where, self.params), whole=whole)


def _make_vectors(run: _Run, embed: EmbedWhen | None) -> None:
    """The vectors of texts that changed: made now, or gone until they are made."""
    entities = [e for e in run.catalog.by_table_key.values() if e.table_key in run.retold]
    embedder = provider(embed, entities)
    if embedder is not None:
        check_models(entities, embedder)
    for entity in entities:
        rows = run.staging.pending(entity)
        old = run.staging.committed.rows(entity.table_key, rows.column("id"))
        refuse_repeated(entity, old.column("id"))
        rows, wanted = follow_texts(entity, rows, run.retold.given(entity, rows), old)
        if embedder is not None:
            rows, _ = fill_table(entity, with_wanted(rows, wanted), embedder, run.findings)
        run.staging.put(entity, rows)


def _judge(run: _Run) -> None:
    """Every constraint on the state as the commit would leave it."""
    staging, findings, touched = run.staging, run.findings, run.staging.touched
    for entity in run.catalog.by_table_key.values():
        if entity.table_key not in touched:
            continue
        rows = staging.pending(entity)
        if rows.num_rows:
            constraints.check_values(entity, rows, findings)
            for parts in entity.uniques:
                others = staging.committed.with_values(entity.table_key, parts, rows)
                if others is not None:
                    kept = pc.invert(pc.is_in(others.column("id"), value_set=staging.deleted(entity.table_key)))
                    others = others.filter(kept)
                constraints.check_unique(entity, parts, rows, others, findings)
        if isinstance(entity, EdgeType):
            _judge_edges(run, entity, rows)


def _judge_edges(run: _Run, edge: EdgeType, rows: pa.Table) -> None:
    staging = run.staging
    source, target = run.catalog.nodes[edge.source], run.catalog.nodes[edge.target]
    known = [
        one_chunk(staging.rows(node, pc.unique(one_chunk(rows.column(column)))).column("id"))
        for node, column in ((source, "src"), (target, "dst"))
        if rows.num_rows
    ]
    if rows.num_rows:
        constraints.check_endpoints(edge, rows, [known[0]], [known[1]], run.findings)
    if edge.cardinality.min == 0 and edge.cardinality.max is None:
        return
    gone = joined(rows.column("id"), staging.deleted(edge.table_key))
    stays, lost = staging.committed.edges_of(edge.table_key, rows.column("src"), without=gone)
    lost = lost.filter(pc.invert(among(lost, staging.deleted(source.table_key))))
    constraints.check_cardinality(edge, rows, stays, run.findings, lost_src=lost)
