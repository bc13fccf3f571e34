"""The Spark load: the contract of `write.load`, its work spread over executors (04).

Executors read splits, check rows and write data files; nothing of that is visible. Constraints across rows are Spark
joins over the key columns. The driver then commits once, through `Repository.commit` like every writer. A killed driver
leaves orphan files, or a sidecar that the sweep settles; the same operation id again changes nothing.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from omnigraph.errors import BadRequest, NotFound
from omnigraph.pipeline.checks import Checks
from omnigraph.pipeline.session import session
from omnigraph.pipeline.settings import PipelineSettings
from omnigraph.pipeline.splits import split_file
from omnigraph.pipeline.stage import CommittedTask, Staged, StageTask, blob_folder, stage, table_folder, write_committed
from omnigraph.schema.catalog import EdgeType
from omnigraph.storage import (
    Repository,
    Snapshot,
    Staging,
    TableChange,
    WriterKind,
    check_operation_id,
    working_folder,
)
from omnigraph.write.blobs import BlobSpool
from omnigraph.write.committed import Committed
from omnigraph.write.embedding import EmbedWhen, provider, unfilled
from omnigraph.write.findings import Findings
from omnigraph.write.loader import (
    Loaded,
    LoadResult,
    Mode,
    change_of,
    done_before,
    fill_vectors,
    judge,
    reads_of,
)
from omnigraph.write.mapping import Mapping, entity_of
from omnigraph.write.sources import SourcePlan, plan_sources
from omnigraph.write.spool import Spool

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["LoadJob", "run"]


@dataclass(frozen=True, slots=True)
class LoadJob:
    """One load. `sources` as `write.load` takes them: files, globs, or the folder a mapping's paths start from."""

    uri: str
    sources: tuple[str, ...]
    mode: Mode
    branch: str
    operation_id: str
    mapping: Mapping | None = None
    actor: str | None = None
    format: str | None = None
    embed: EmbedWhen | None = None


def run(job: LoadJob, say: Callable[[str], None] | None = None) -> LoadResult:
    """Load all records of the job, or none.

    Args:
        say: told of each stage, a line for people; default standard error.

    Raises:
        BadRequest: bad sources, mapping or records, as the in-process loader says it.
        Unavailable: no Spark or no Java here.
        Conflict: the branch moved meanwhile.
    """
    say = say or (lambda line: print(line, file=sys.stderr, flush=True))
    check_operation_id(job.operation_id)  # a folder is named by it, and removed
    settings = PipelineSettings.from_env()
    repository = Repository.open(job.uri)
    if job.branch not in {b.name for b in repository.branches()}:
        raise NotFound(f"branch {job.branch!r} doesn't exist: create it first")
    if (done := done_before(repository, job.branch, job.operation_id)) is not None:
        return LoadResult((), done, job.branch, operation_id=job.operation_id)
    base = repository.snapshot(job.branch)
    folder = _staging_folder(repository.uri, job.operation_id, settings)
    with plan_sources(list(job.sources), job.mapping, base.catalog, format=job.format) as plan:
        tasks = _tasks(plan, job, repository, base, folder, settings)
        with session(f"omnigraph load {job.operation_id}", settings) as spark, working_folder(folder):
            say(f"reading {len(plan.files)} files, {plan.size / 1e6:.1f} MB, in {len(tasks)} tasks")
            staged = _stage(spark, tasks)
            with BlobSpool(blob_folder(folder)) as blobs:
                return _finish(spark, job, repository, base, plan, staged, folder, say, blobs)


def _staging_folder(uri: str, operation_id: str, settings: PipelineSettings) -> str:
    root = settings.staging or ("" if "://" in uri else os.path.join(uri, "__staging"))
    if not root:
        raise BadRequest(
            f"{uri}: a Spark load of a graph in an object store needs a folder that driver and executors share: "
            "set OMNIGRAPH_SPARK_STAGING, or load with --engine process"
        )
    return os.path.join(root, operation_id)


def _tasks(
    plan: SourcePlan, job: LoadJob, repository: Repository, base: Snapshot, folder: str, settings: PipelineSettings
) -> list[StageTask]:
    pieces = [(file, split) for file in plan.files for split in split_file(file, settings.split_bytes)]
    refs = None
    if job.mode != "merge":
        # NDJSON may hold any type; on a branch every table that might be written is forked ahead.
        entities = [entity_of(f.mapping, base.catalog) for f in plan.files if f.mapping is not None]
        named = {entity.table_key for entity in entities if entity is not None}
        refs = tuple(repository.write_target(base, key) for key in sorted(named or base.tables))
    fills = provider(job.embed, base.catalog.by_table_key.values()) is not None
    return [
        StageTask(i, file, split, base.catalog.source, job.operation_id, repository.uri, folder, refs, fills)
        for i, (file, split) in enumerate(pieces)
    ]


def _stage(spark: SparkSession, tasks: Sequence[StageTask]) -> list[Staged]:
    context = spark.sparkContext
    staged = context.parallelize(tasks, max(1, len(tasks))).map(stage).collect()
    return sorted(staged, key=lambda s: s.part)


def _finish(
    spark: SparkSession,
    job: LoadJob,
    repository: Repository,
    base: Snapshot,
    plan: SourcePlan,
    staged: list[Staged],
    folder: str,
    say: Callable[[str], None],
    blobs: BlobSpool,
) -> LoadResult:
    """Judge what was staged, and commit it."""
    for part in staged:
        if part.error is not None:
            raise part.error
    findings = Findings()
    counts: dict[str, int] = {}
    generated: dict[str, bool] = {}
    for part in staged:
        findings.merge(part.findings)
        for table in part.tables:
            counts[table.table_key] = counts.get(table.table_key, 0) + table.rows
            generated[table.table_key] = generated.get(table.table_key, True) and table.generated_ids
    say(f"checking {sum(counts.values()):,} records of {len(counts)} tables")
    made, unfilled_here = 0, Counter[str]()
    for part in staged:
        for table in part.tables:
            made += table.vectors
            unfilled_here.update(dict(table.unfilled))
    if job.mode == "merge":
        loaded = _completed(base, job, counts, generated, folder, findings, plan)
        embedder = provider(job.embed, [item.entity for item in loaded.values()])
        with Spool() as filled:
            made = fill_vectors(loaded, embedder, filled, findings) if embedder is not None else 0
            findings.refuse(plan.locate)
            changes = tuple(change_of(repository, base, item, "merge", blobs) for item in loaded.values())
            for item in loaded.values():
                unfilled_here.update({f"{item.entity.name}.{p.name}": n for p, n in unfilled(item.entity, item.rows)})
    else:
        _check(spark, job, repository.uri, base, counts, generated, folder, findings)
        findings.refuse(plan.locate)
        changes = tuple(
            TableChange(
                key,
                fragments=tuple(f for part in staged for t in part.tables if t.table_key == key for f in t.fragments),
                overwrite=job.mode == "overwrite",
            )
            for key in _nodes_first(counts)
        )
    if not changes:
        return LoadResult((), None, job.branch, operation_id=job.operation_id)
    staging = Staging(
        branch=job.branch,
        kind=WriterKind.LOAD,
        changes=changes,
        reads=reads_of(base.catalog, counts, job.mode),
        operation_id=job.operation_id,
        actor=job.actor,
    )
    commit = repository.commit(staging, base)
    tables = tuple((key, counts[key]) for key in _nodes_first(counts))
    say(f"committed {sum(counts.values()):,} records as {commit.id}")
    lacking = tuple(unfilled_here.items())
    return LoadResult(tables, commit, job.branch, operation_id=job.operation_id, vectors=made, unfilled=lacking)


def _nodes_first(table_keys: dict[str, int]) -> list[str]:
    return sorted(table_keys, key=lambda key: (not key.startswith("node:"), key))


def _check(
    spark: SparkSession,
    job: LoadJob,
    uri: str,
    base: Snapshot,
    counts: dict[str, int],
    generated: dict[str, bool],
    folder: str,
    findings: Findings,
) -> None:
    """Constraints across rows, against incoming and committed ones."""
    replaced = frozenset(counts) if job.mode == "overwrite" else frozenset()
    committed = Committed(base, replaced=replaced)
    for key in counts:
        committed.check_keys(base.catalog.by_table_key[key])
    kept = [r for key, r in base.tables.items() if r.row_count and key in _wanted(base, counts) and key not in replaced]
    lost = [r for key, r in base.tables.items() if r.row_count and key in replaced and _has_minimum(base, key)]
    if kept or lost:
        work = [CommittedTask(uri, ref, base.catalog.source, folder) for ref in kept]
        work += [CommittedTask(uri, ref, base.catalog.source, folder, "replaced") for ref in lost]
        spark.sparkContext.parallelize(work, len(work)).map(write_committed).collect()
    checks = Checks(
        spark,
        folder,
        base.catalog,
        incoming=frozenset(counts),
        generated=frozenset(key for key, made in generated.items() if made),
        committed=frozenset(r.table_key for r in kept),
        replaced=frozenset(r.table_key for r in lost),
    )
    checks.run(findings)


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


def _completed(
    base: Snapshot,
    job: LoadJob,
    counts: dict[str, int],
    generated: dict[str, bool],
    folder: str,
    findings: Findings,
    plan: SourcePlan,
) -> dict[str, Loaded]:
    """Merge: executors parsed and typed the rows; completing them from stored values is the driver's work."""
    findings.refuse(plan.locate)
    loaded = {}
    for key in _nodes_first(counts):
        rows: pa.Table = pq.read_table(table_folder(folder, "rows", key))
        loaded[key] = Loaded(base.catalog.by_table_key[key], rows, generated[key], rows.num_rows)
    fills = provider(job.embed, [item.entity for item in loaded.values()]) is not None
    judge(base, loaded, "merge", findings, fills=fills)
    findings.refuse(plan.locate)
    return loaded
