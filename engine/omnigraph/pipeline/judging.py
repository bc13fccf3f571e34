"""What a Spark load does with staged rows: judge them, put bad ones aside, and say what the commit is to hold.

An append or overwrite is judged by joins over keys (`checks`). Without a quarantine its data files are written while
its splits are read, since one bad record ends the load anyway; with one, rows wait in the shared folder until every bad
record is known. A merge is completed from stored values by the driver, with the in-process loader's own functions.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import field
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from omnigraph.pipeline.checks import STEPS, Checks, Step, incoming_keys
from omnigraph.pipeline.stage import (
    CommittedTask,
    Staged,
    WriteTask,
    table_folder,
    write_committed,
    write_kept,
)
from omnigraph.records import dataclass
from omnigraph.schema.catalog import EdgeType
from omnigraph.storage import Repository, Snapshot, TableChange
from omnigraph.write.blobs import BlobSpool
from omnigraph.write.committed import Committed
from omnigraph.write.embedding import EmbedWhen, provider, unfilled
from omnigraph.write.findings import Findings
from omnigraph.write.loader import Loaded, Mode, change_of, fill_vectors, good_ones, judge
from omnigraph.write.quarantine import Places, Quarantine, nothing_left
from omnigraph.write.sources import SourcePlan
from omnigraph.write.spool import Spool

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Judged", "StagedLoad", "judged"]


@dataclass(frozen=True, slots=True)
class StagedLoad:
    """A load whose splits are read.

    Args:
        base: the state it goes upon.
        parts: what the executors did, in the order of the splits.
        folder: where they left keys, rows and Blobs.
    """

    spark: SparkSession
    repository: Repository
    base: Snapshot
    mode: Mode
    embed: EmbedWhen | None
    plan: SourcePlan
    parts: Sequence[Staged]
    folder: str
    say: Callable[[str], None]

    @property
    def counts(self) -> dict[str, int]:
        """Rows by table, nodes first."""
        counts = Counter[str]()
        for part in self.parts:
            counts.update({table.table_key: table.rows for table in part.tables})
        return {key: counts[key] for key in self.in_order(counts)}

    def in_order(self, table_keys: Iterable[str]) -> list[str]:
        """As the schema has them, nodes first."""
        there = frozenset(table_keys)
        return [key for key in self.base.catalog.by_table_key if key in there]

    @property
    def generated(self) -> frozenset[str]:
        """Tables whose ids were all made by this load."""
        tables = [table for part in self.parts for table in part.tables]
        return frozenset(t.table_key for t in tables) - {t.table_key for t in tables if not t.generated_ids}


@dataclass(frozen=True, slots=True)
class Judged:
    """What the commit holds, and what there is to say of it. `counts`: rows by table, nodes first."""

    changes: tuple[TableChange, ...]
    counts: dict[str, int]
    vectors: int
    unfilled: Counter[str] = field(default_factory=Counter)


def judged(
    load: StagedLoad, findings: Findings, aside: Quarantine | None, blobs: BlobSpool, spools: ExitStack
) -> Judged:
    """Judges everything.

    Args:
        findings: what the executors found.
        aside: takes the bad records; None refuses the load if there is one.
        blobs: the Blobs in the shared folder.
        spools: keeps what the changes need until they are committed.

    Raises:
        BadRequest: a bad record, or with a quarantine too many, or what is wrong is no record.
    """
    if load.mode == "merge":
        return _merged(load, findings, aside, blobs, spools)
    if aside is not None:
        return _good_ones(load, findings, aside)
    _check(load, load.counts, findings, {})
    findings.refuse(load.plan.locate)
    return _of(load, load.parts)


def _of(load: StagedLoad, parts: Sequence[Staged]) -> Judged:
    """The data files that executors wrote."""
    files: dict[str, list[str]] = {}
    counts, lacking = Counter[str](), Counter[str]()
    vectors = 0
    for part in parts:
        for table in part.tables:
            files.setdefault(table.table_key, []).extend(table.fragments)
            counts[table.table_key] += table.rows
            lacking.update(dict(table.unfilled))
            vectors += table.vectors
    overwrite = load.mode == "overwrite"
    keys = load.in_order(counts)
    changes = tuple(TableChange(key, fragments=tuple(files[key]), overwrite=overwrite) for key in keys)
    return Judged(changes, {key: counts[key] for key in keys}, vectors, lacking)


def _good_ones(load: StagedLoad, findings: Findings, aside: Quarantine) -> Judged:
    """An append or overwrite without its bad records.

    One put aside may be what another relied on: each kind is judged without those that the kinds before it found, and
    all again when a provider refuses texts. What is left in the end is what the in-process loader keeps.
    """
    aside.take(findings, load.plan)
    written: dict[int, tuple[Places, Staged]] = {}
    while True:
        for step in STEPS:
            _some_left(load, aside.places)
            found = aside.findings()
            _check(load, load.counts, found, aside.places, (step,))
            if aside.take(found, load.plan):
                load.say(f"put aside {len(aside):,} bad records up to the check of {step}")
        found = aside.findings()
        _write(load, written, aside.places, found)
        if not aside.take(found, load.plan):
            return _of(load, [staged for _, staged in sorted(written.values(), key=lambda one: one[1].part)])


def _some_left(load: StagedLoad, bad: Places) -> None:
    """Refuses an overwrite that has no record left of a type."""
    if load.mode != "overwrite" or not bad:
        return
    for key in load.counts:
        if incoming_keys(load.spark, load.folder, key, bad).isEmpty():
            raise nothing_left(load.base.catalog.by_table_key[key])


def _write(load: StagedLoad, written: dict[int, tuple[Places, Staged]], bad: Places, found: Findings) -> None:
    """Have data files written of every split, but for those that stand already and lack no further record."""
    fills = provider(load.embed, load.base.catalog.by_table_key.values()) is not None
    source, uri = load.base.catalog.source, load.repository.uri
    refs = {key: load.repository.write_target(load.base, key) for key in load.counts}
    mine = {part.part: {f: rows for f, rows in bad.items() if f == part.file} for part in load.parts}
    tasks = [
        WriteTask(
            part.part,
            part.file,
            source,
            uri,
            load.folder,
            tuple(refs[table.table_key] for table in part.tables),
            tuple(mine[part.part].items()),
            fills,
            found.like(),
        )
        for part in load.parts
        if part.tables and (part.part not in written or _moved(written[part.part][0], mine[part.part]))
    ]
    if not tasks:
        return
    load.say(f"writing the others of {len(tasks)} splits")
    for done in load.spark.sparkContext.parallelize(tasks, len(tasks)).map(write_kept).collect():
        if done.error is not None:
            raise done.error
        found.merge(done.findings)
        written[done.part] = mine[done.part], done


def _moved(before: Places, now: Places) -> bool:
    return {f: len(rows) for f, rows in before.items()} != {f: len(rows) for f, rows in now.items()}


# ---- constraints across rows -----------------------------------------------------------------------------------------


def _check(
    load: StagedLoad, counts: dict[str, int], findings: Findings, bad: Places, steps: Sequence[Step] = STEPS
) -> None:
    """Constraints across rows, against incoming and committed ones."""
    base = load.base
    replaced = frozenset(counts) if load.mode == "overwrite" else frozenset()
    committed = Committed(base, replaced=replaced)
    for key in counts:
        committed.check_keys(base.catalog.by_table_key[key])
    kept = [r for key, r in base.tables.items() if r.row_count and key in _wanted(base, counts) and key not in replaced]
    lost = [r for key, r in base.tables.items() if r.row_count and key in replaced and _has_minimum(base, key)]
    work = [CommittedTask(load.repository.uri, ref, base.catalog.source, load.folder) for ref in kept]
    work += [CommittedTask(load.repository.uri, ref, base.catalog.source, load.folder, "replaced") for ref in lost]
    work = [t for t in work if not os.path.isdir(table_folder(load.folder, t.kind, t.ref.table_key))]  # none twice
    if work:
        load.spark.sparkContext.parallelize(work, len(work)).map(write_committed).collect()
    Checks(
        load.spark,
        load.folder,
        base.catalog,
        incoming=frozenset(counts),
        generated=load.generated,
        committed=frozenset(r.table_key for r in kept),
        replaced=frozenset(r.table_key for r in lost),
        bad=bad,
    ).run(findings, steps)


def _has_minimum(base: Snapshot, table_key: str) -> bool:
    entity = base.catalog.by_table_key[table_key]
    return isinstance(entity, EdgeType) and entity.cardinality.min > 0


def _wanted(base: Snapshot, counts: dict[str, int]) -> set[str]:
    """Tables whose committed keys matter: the loaded ones, ends of loaded edges, edges at loaded nodes."""
    out = set(counts)
    for edge in base.catalog.edges.values():
        ends = {base.catalog.nodes[edge.source].table_key, base.catalog.nodes[edge.target].table_key}
        if edge.table_key in counts:
            out |= ends
        elif ends & counts.keys():
            out.add(edge.table_key)
    return out


# ---- merge -----------------------------------------------------------------------------------------------------------


def _merged(
    load: StagedLoad, findings: Findings, aside: Quarantine | None, blobs: BlobSpool, spools: ExitStack
) -> Judged:
    """Executors parsed and typed the rows; completing them from stored values is the driver's work."""
    if aside is None:
        findings.refuse(load.plan.locate)
    loaded = {}
    for key, rows in load.counts.items():
        table: pa.Table = pq.read_table(table_folder(load.folder, "rows", key))
        loaded[key] = Loaded(load.base.catalog.by_table_key[key], table, key in load.generated, rows)
    embedder = provider(load.embed, [item.entity for item in loaded.values()])
    made = 0
    if aside is not None:
        loaded, made = good_ones(load.base, loaded, "merge", findings, embedder, aside, load.plan, spools)
    else:
        waiting = spools.enter_context(Spool())
        judge(load.base, loaded, "merge", findings, waiting, fills=embedder is not None)
        findings.refuse(load.plan.locate)
        if embedder is not None:
            made = fill_vectors(loaded, embedder, spools.enter_context(Spool()), findings)
            findings.refuse(load.plan.locate)
    lacking = Counter[str]()
    for item in loaded.values():
        lacking.update({f"{item.entity.name}.{p.name}": n for p, n in unfilled(item.entity, item.rows)})
    changes = tuple(change_of(load.repository, load.base, item, "merge", blobs) for item in loaded.values())
    return Judged(changes, {key: item.read for key, item in loaded.items()}, made, lacking)
