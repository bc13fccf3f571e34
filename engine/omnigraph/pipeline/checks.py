"""Constraints across rows as Spark joins, with the messages of the in-process loader.

Spark finds which rows offend and counts them; the shown ones are collected and handed to `write.constraints`, so that
both loaders say the same.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import field
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

import pyarrow as pa

from omnigraph.pipeline.stage import table_folder, unique_column
from omnigraph.records import dataclass
from omnigraph.schema.catalog import Catalog, EdgeType, NodeType
from omnigraph.write import constraints
from omnigraph.write.findings import FILE, ROW, Findings
from omnigraph.write.quarantine import Places

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["STEPS", "Checks", "Step", "incoming_keys"]

Step: TypeAlias = Literal["ids", "unique", "endpoints", "cardinality"]
STEPS: tuple[Step, ...] = get_args(Step)
"""In the order in which bad records are put aside: without those that an earlier one finds, a later one may find fewer
or more, and never an earlier one."""


@dataclass(frozen=True)
class Checks:
    """One load's checks.

    Args:
        folder: where executors left `keys/` (incoming rows), `committed/` and `replaced/`.
        incoming: table keys with incoming rows.
        generated: those whose ids were all made by this load, so that none can repeat.
        committed: tables with committed rows that stay.
        replaced: edge tables with committed rows that all go, where the sources that lose them are judged.
        bad: incoming records put aside, which aren't looked at.
    """

    spark: SparkSession
    folder: str
    catalog: Catalog
    incoming: frozenset[str]
    generated: frozenset[str]
    committed: frozenset[str]
    replaced: frozenset[str] = frozenset()
    bad: Places = field(default_factory=dict)

    def run(self, findings: Findings, steps: Sequence[Step] = STEPS) -> None:
        """Judge everything, or what these steps look at; findings get what is wrong."""
        for step in steps:
            for key in sorted(self.incoming):
                self._one(step, self.catalog.by_table_key[key], self._keys(key), findings)
            if step == "endpoints":
                self._left_dangling(findings)

    def _one(self, step: Step, entity: NodeType | EdgeType, rows: DataFrame, findings: Findings) -> None:
        if step == "ids" and entity.table_key not in self.generated:
            self._distinct_ids(entity, rows, findings)
            self._existing_ids(entity, rows, findings)
        if step == "unique":
            for number in range(len(entity.uniques)):
                self._unique(entity, rows, number, findings)
        if isinstance(entity, EdgeType):
            if step == "endpoints":
                for column, node in (("src", entity.source), ("dst", entity.target)):
                    self._endpoints(entity, rows, column, node, findings)
            if step == "cardinality":
                self._cardinality(entity, rows, findings)

    # ---- inputs

    def _keys(self, table_key: str) -> DataFrame:
        return incoming_keys(self.spark, self.folder, table_key, self.bad)

    def _kept(self, table_key: str) -> DataFrame | None:
        where = table_folder(self.folder, "committed", table_key)
        if table_key not in self.committed or not os.path.isdir(where):
            return None
        return self.spark.read.parquet(where)

    # ---- checks

    def _distinct_ids(self, entity: NodeType | EdgeType, rows: DataFrame, findings: Findings) -> None:
        repeated = rows.groupBy("id").count().where("count > 1").select("id")
        bad = rows.join(repeated, "id", "left_semi")
        total, sample = _look(bad, findings.kept, by="id")
        _report(findings, total, lambda f: constraints.check_distinct_ids(entity, sample, f))

    def _existing_ids(self, entity: NodeType | EdgeType, rows: DataFrame, findings: Findings) -> None:
        kept = self._kept(entity.table_key)
        if kept is None:
            return
        total, sample = _look(rows.join(kept.select("id"), "id", "left_semi"), findings.kept)
        _report(findings, total, lambda f: constraints.check_existing_ids(entity, sample, sample.column("id"), f))

    def _unique(self, entity: NodeType | EdgeType, rows: DataFrame, number: int, findings: Findings) -> None:
        column, parts = unique_column(number), entity.uniques[number]
        given = rows.where(f"{column} is not null")
        repeated = given.groupBy(column).count().where("count > 1").select(column)
        total, sample = _look(given.join(repeated, column, "left_semi"), findings.kept, by=column)
        _report(findings, total, lambda f: constraints.check_unique(entity, parts, sample, None, f))
        kept = self._kept(entity.table_key)
        if kept is None:
            return
        total, taken = _look(given.join(kept.select(column), column, "left_semi"), findings.kept)
        # Each alone, so that rows which also collide among themselves aren't counted a second time.
        _report(findings, total, lambda f: _one_by_one(entity, parts, taken, f))

    def _endpoints(self, edge: EdgeType, rows: DataFrame, column: str, node: str, findings: Findings) -> None:
        table_key = self.catalog.nodes[node].table_key
        bad = rows
        known = [self._keys(table_key)] if table_key in self.incoming else []
        if (kept := self._kept(table_key)) is not None:
            known.append(kept)
        for ids in known:
            bad = bad.join(ids.select(ids["id"].alias(column)), column, "left_anti")
        total, sample = _look(bad, findings.kept)
        everything = pa.array([True] * sample.num_rows)
        _report(findings, total, partial(constraints.add_missing_endpoints, edge, sample, everything, column, node))

    def _cardinality(self, edge: EdgeType, rows: DataFrame, findings: Findings) -> None:
        low, high = edge.cardinality.min, edge.cardinality.max
        if low == 0 and high is None:
            return
        kept = self._kept(edge.table_key)
        touched = rows.select("src").distinct()
        every = rows.select("src")
        if kept is not None:
            every = every.union(kept.select("src").join(touched, "src", "left_semi"))
        counted = every.groupBy("src").count()
        lost = self._lost(edge)
        if lost is not None:
            bare = lost.join(touched, "src", "left_anti").selectExpr("src", "cast(0 as bigint) as count")
            counted = counted.union(bare)
        named: set[Any] = set()
        total = 0
        if low > 0:
            below = counted.where(f"count < {low}").select("src")
            named = set(below.orderBy("src").limit(findings.kept).toArrow().column("src").to_pylist())
            total = below.count() if named else 0
        if high is not None:
            too_many = rows.join(counted.where(f"count > {high}"), "src", "left_semi")
            over, first = _look(too_many, findings.kept)
            total += over
            named |= set(first.column("src").to_pylist()) if over else set()
        if not named:
            return
        few = self.spark.createDataFrame([(s,) for s in sorted(named)], "src string")
        sample = rows.join(few, "src", "left_semi").orderBy(FILE, ROW).toArrow()
        committed = (
            kept.join(few, "src", "left_semi").select("src").toArrow().column("src")
            if kept is not None
            else pa.array([], pa.string())
        )
        shown = pa.array(sorted(named)) if lost is not None else None
        _report(findings, total, lambda f: constraints.check_cardinality(edge, sample, committed, f, lost_src=shown))

    def _lost(self, edge: EdgeType) -> DataFrame | None:
        """`src`, each once, of the edges that an overwrite removes, as far as the source stays."""
        if edge.table_key not in self.replaced:
            return None
        where = table_folder(self.folder, "replaced", edge.table_key)
        lost = self.spark.read.parquet(where).select("src").distinct()
        source = self.catalog.nodes[edge.source].table_key
        if source in self.incoming:  # written anew: whom the load doesn't name goes
            ids = self._keys(source)
            lost = lost.join(ids.select(ids["id"].alias("src")), "src", "left_semi")
        return lost

    def _left_dangling(self, findings: Findings) -> None:
        """Overwritten node types: edges of types that stay must keep their ends."""
        for edge in self.catalog.edges.values():
            kept = self._kept(edge.table_key)
            if edge.table_key in self.incoming or kept is None:
                continue
            for column, node in (("src", edge.source), ("dst", edge.target)):
                table_key = self.catalog.nodes[node].table_key
                if table_key not in self.incoming or table_key in self.committed:
                    continue  # its old rows stay
                ids = self._keys(table_key)
                gone = kept.join(ids.select(ids["id"].alias(column)), column, "left_anti")
                total, sample = _look(gone, findings.kept)
                everything = pa.array([True] * sample.num_rows)
                _report(
                    findings,
                    total,
                    partial(constraints.add_missing_endpoints, edge, sample, everything, column, node),
                )


def incoming_keys(spark: SparkSession, folder: str, table_key: str, bad: Places) -> DataFrame:
    """The keys of a table's incoming rows, without those of records put aside."""
    keys = spark.read.parquet(table_folder(folder, "keys", table_key))
    if not bad:
        return keys
    from pyspark.sql.functions import broadcast

    places = [(file, row) for file, rows in bad.items() for row in rows.tolist()]
    aside = spark.createDataFrame(places, f"{FILE} int, {ROW} bigint")
    return keys.join(broadcast(aside), [FILE, ROW], "left_anti")


def _look(bad: DataFrame, kept: int, *, by: str | None = None) -> tuple[int, pa.Table]:
    """How many rows there are, and the first ones; with `by` all rows that share a value with one of those."""
    order = [c for c in (FILE, ROW) if c in bad.columns] or ["id"]
    ordered = bad.orderBy(*order).limit(kept)
    first = ordered.toArrow()
    if not first.num_rows:
        return 0, first
    total = first.num_rows if first.num_rows < kept else bad.count()
    if by is not None:
        first = bad.join(ordered.select(by).distinct(), by, "left_semi").orderBy(*order).toArrow()
    return total, first


def _report(findings: Findings, total: int, check: Callable[[Findings], None]) -> None:
    """Let a shared check name the sample, then count what wasn't in it."""
    if total == 0:
        return
    said = findings.like()
    check(said)
    kinds = list(said.counts)
    missing = total - sum(said.counts.values())
    if missing > 0 and kinds:
        said.counts[kinds[0]] += missing
    findings.merge(said)


def _one_by_one(entity: NodeType | EdgeType, parts: tuple[str, ...], rows: pa.Table, findings: Findings) -> None:
    for i in range(rows.num_rows):
        one = rows.slice(i, 1)
        constraints.check_unique(entity, parts, one, one, findings)
