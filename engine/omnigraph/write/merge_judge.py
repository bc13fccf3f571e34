"""Constraints on the state that a merge would leave: each side may be sound and both together not."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pyarrow as pa

from omnigraph.read.compute import Array, Chunked, pc
from omnigraph.records import dataclass
from omnigraph.schema.catalog import Catalog, EdgeType
from omnigraph.storage.whole import among, joined
from omnigraph.write import constraints
from omnigraph.write.columns import one_chunk
from omnigraph.write.findings import BadRecord, Findings
from omnigraph.write.staging import MutationStaging

__all__ = ["Found", "judge_merged"]

_KINDS = {"endpoint": "orphan_edge", "unique": "unique_violation", "cardinality": "cardinality_violation"}


@dataclass(frozen=True, slots=True)
class Found:
    """One conflict, before the rows' values are looked up."""

    kind: str
    table_key: str
    id: str
    message: str


class _All(Findings):
    """Findings that keep every record: a merge names all its conflicts at once."""

    def add_rows(
        self,
        kind: str,
        table_key: str,
        rows: pa.RecordBatch | pa.Table,
        mask: Array | Chunked,
        message: Callable[[dict[str, Any]], str],
        *,
        property: str | None = None,
    ) -> int:
        hits = pc.indices_nonzero(pc.fill_null(mask, False))
        if len(hits):
            self.counts[kind] += len(hits)
            self._show(
                BadRecord(kind, message(row), table_key, row.get("id"), property) for row in rows.take(hits).to_pylist()
            )
        return len(hits)

    def _show(self, records: Iterable[BadRecord]) -> None:
        self.shown.extend(records)


def judge_merged(
    catalog: Catalog, staging: MutationStaging, copied: Mapping[str, pa.Table], undecided: Mapping[str, Array]
) -> list[Found]:
    """Values, uniqueness, ends and cardinality of what comes, and the edges at nodes that go.

    Args:
        staging: the target with the merge's rows and deletes.
        undecided: ids of rows that are conflicts already, by table: what hangs on them alone is no conflict of its own,
            so that both directions of a merge find the same ones.
        copied: rows that come with their data files, which `staging` doesn't hold: ids, of edges also the ends.
    """
    findings = _All()
    for entity in catalog.by_table_key.values():
        rows = staging.pending(entity)
        if rows.num_rows:
            constraints.check_values(entity, rows, findings)
            for parts in entity.uniques:
                others = staging.committed.with_values(entity.table_key, parts, rows)
                if others is not None:
                    gone = staging.deleted(entity.table_key)
                    if entity.table_key in undecided:
                        gone = pa.concat_arrays([gone, undecided[entity.table_key]])
                    others = others.filter(pc.invert(pc.is_in(others.column("id"), value_set=gone)))
                constraints.check_unique(entity, parts, rows, others, findings)
        if isinstance(entity, EdgeType):
            _ends(catalog, entity, staging, copied, undecided, findings)
            _cardinality(catalog, entity, staging, rows, findings)
    found = [
        Found(_KINDS.get(r.kind, "value_constraint_violation"), r.table_key or "", r.id or "", r.message)
        for r in findings.shown
    ]
    return list(dict.fromkeys(found))


def _ends(
    catalog: Catalog,
    edge: EdgeType,
    staging: MutationStaging,
    copied: Mapping[str, pa.Table],
    undecided: Mapping[str, Array],
    findings: Findings,
) -> None:
    """Edges that come must find their nodes; edges that stay must not lose theirs."""
    columns = ["id", "src", "dst"]
    parts = [staging.pending(edge).select(columns)]
    if edge.table_key in copied:
        parts.append(copied[edge.table_key].select(columns))
    for column, name in (("src", edge.source), ("dst", edge.target)):
        gone = staging.deleted(catalog.nodes[name].table_key)
        if len(gone):
            parts.append(staging.edges_at(edge, column, gone))
    rows = pa.concat_tables([part.cast(parts[0].schema) for part in parts])
    for column, name in (("src", edge.source), ("dst", edge.target)):
        node = catalog.nodes[name]
        wanted = pc.unique(one_chunk(rows.column(column)))
        known = [staging.present(node, wanted)] if len(wanted) else []
        if node.table_key in copied:
            known.append(copied[node.table_key].column("id"))
        if node.table_key in undecided:
            known.append(undecided[node.table_key])
        missing = constraints.absent(rows.column(column), known)
        constraints.add_missing_endpoints(edge, rows, missing, column, name, findings)


def _cardinality(
    catalog: Catalog, edge: EdgeType, staging: MutationStaging, rows: pa.Table, findings: Findings
) -> None:
    if edge.cardinality.min == 0 and edge.cardinality.max is None:
        return
    gone = joined(rows.column("id"), staging.deleted(edge.table_key))
    stays, lost = staging.committed.edges_of(edge.table_key, rows.column("src"), without=gone)
    nodes = catalog.nodes[edge.source]
    lost = lost.filter(pc.invert(among(lost, staging.deleted(nodes.table_key))))
    constraints.check_cardinality(edge, rows, stays, findings, lost_src=lost)
