"""The Spark load: the contract of `write.load`, its work spread over executors (04).

Executors read splits, check rows and write data files; nothing of that is visible. Constraints across rows are Spark
joins over the key columns. The driver then commits once, through `Repository.commit` like every writer. A killed driver
leaves orphan files, or a sidecar that the sweep settles; the same operation id again changes nothing.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

from omnigraph.actors import check_actor
from omnigraph.errors import BadRequest, NotFound
from omnigraph.pipeline.judging import StagedLoad, judged
from omnigraph.pipeline.session import session
from omnigraph.pipeline.settings import PipelineSettings
from omnigraph.pipeline.splits import split_file
from omnigraph.pipeline.stage import Staged, StageTask, blob_folder, stage
from omnigraph.records import dataclass
from omnigraph.storage import Repository, Snapshot, Staging, WriterKind, check_operation_id, working_folder
from omnigraph.write.blobs import BlobSpool
from omnigraph.write.embedding import EmbedWhen, provider
from omnigraph.write.findings import Findings
from omnigraph.write.loader import LoadResult, Mode, done_before, reads_of
from omnigraph.write.mapping import Mapping, entity_of
from omnigraph.write.quarantine import QUARANTINE_LIMIT, Quarantine, finish, finished
from omnigraph.write.rows import Reading
from omnigraph.write.sources import SourcePlan, plan_sources

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["LoadJob", "run"]


@dataclass(frozen=True, slots=True)
class LoadJob:
    """One load. `sources` as `write.load` takes them: files, globs, or the folder a mapping's paths start from.

    `quarantine` is a file of the driver for bad records, which are then left out; more than `max_quarantined` of them
    refuse the load.
    """

    uri: str
    sources: tuple[str, ...]
    mode: Mode
    branch: str
    operation_id: str
    mapping: Mapping | None = None
    actor: str | None = None
    format: str | None = None
    embed: EmbedWhen | None = None
    quarantine: str | None = None
    max_quarantined: int = QUARANTINE_LIMIT


def run(job: LoadJob, say: Callable[[str], None] | None = None) -> LoadResult:
    """Load all records of the job, or none; with a quarantine all good ones.

    Args:
        say: told of each stage, a line for people; default standard error.

    Raises:
        BadRequest: bad sources, mapping or records, as the in-process loader says it.
        Unavailable: no Spark or no Java here.
        Conflict: the branch moved meanwhile.
    """
    say = say or (lambda line: print(line, file=sys.stderr, flush=True))
    check_actor(job.actor)
    check_operation_id(job.operation_id)  # a folder is named by it, and removed
    settings = PipelineSettings.from_env()
    repository = Repository.open(job.uri)
    if job.branch not in {b.name for b in repository.branches()}:
        raise NotFound(f"branch {job.branch!r} doesn't exist: create it first")
    if (done := done_before(repository, job.branch, job.operation_id)) is not None:
        if job.quarantine is not None:
            finish(job.quarantine, job.operation_id)
        return LoadResult((), done, job.branch, operation_id=job.operation_id)
    aside = Quarantine(job.quarantine, job.operation_id, job.max_quarantined) if job.quarantine is not None else None
    base = repository.snapshot(job.branch)
    folder = _staging_folder(repository.uri, job.operation_id, settings)
    with plan_sources(list(job.sources), job.mapping, base.catalog, format=job.format) as plan:
        tasks = _tasks(plan, job, repository, base, folder, settings)
        with session(f"omnigraph load {job.operation_id}", settings) as spark, working_folder(folder):
            say(f"reading {len(plan.files)} files, {plan.size / 1e6:.1f} MB, in {len(tasks)} tasks")
            staged = _stage(spark, tasks)
            load = StagedLoad(spark, repository, base, job.mode, job.embed, plan, staged, folder, say)
            return _finish(job, load, aside)


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
    merge, refs = job.mode == "merge", None
    if not merge and job.quarantine is None:
        # NDJSON may hold any type; on a branch every table that might be written is forked ahead.
        entities = [entity_of(f.mapping, base.catalog) for f in plan.files if f.mapping is not None]
        named = {entity.table_key for entity in entities if entity is not None}
        refs = tuple(repository.write_target(base, key) for key in sorted(named or base.tables))
    fills = provider(job.embed, base.catalog.by_table_key.values()) is not None
    source, kept = base.catalog.source, _findings(job)
    return [
        StageTask(i, file, split, source, job.operation_id, repository.uri, folder, refs, fills, merge, kept)
        for i, (file, split) in enumerate(pieces)
    ]


def _findings(job: LoadJob) -> Findings:
    return Findings() if job.quarantine is None else Findings(job.max_quarantined + 1, whole=True)


def _stage(spark: SparkSession, tasks: Sequence[StageTask]) -> list[Staged]:
    context = spark.sparkContext
    staged = context.parallelize(tasks, max(1, len(tasks))).map(stage).collect()
    return sorted(staged, key=lambda s: s.part)


def _finish(job: LoadJob, load: StagedLoad, aside: Quarantine | None) -> LoadResult:
    """Judge what was staged, and commit it."""
    for part in load.parts:
        if part.error is not None:
            raise part.error
    findings = _findings(job)
    for part in load.parts:
        findings.merge(part.findings)
    load.say(f"checking {sum(load.counts.values()):,} records of {len(load.counts)} tables")
    with BlobSpool(blob_folder(load.folder)) as blobs, ExitStack() as spools:
        judgement = judged(load, findings, aside, blobs, spools)
        counts, quarantined = judgement.counts, len(aside) if aside is not None else 0
        with finished(aside, load.plan, Reading(load.base.catalog, job.operation_id)):
            if not judgement.changes:
                return LoadResult((), None, job.branch, operation_id=job.operation_id, quarantined=quarantined)
            staging = Staging(
                branch=job.branch,
                kind=WriterKind.LOAD,
                changes=judgement.changes,
                reads=reads_of(load.base.catalog, counts, job.mode),
                operation_id=job.operation_id,
                actor=job.actor,
            )
            commit = load.repository.commit(staging, load.base)
    load.say(f"committed {sum(counts.values()):,} records as {commit.id}")
    return LoadResult(
        tuple(counts.items()),
        commit,
        job.branch,
        operation_id=job.operation_id,
        vectors=judgement.vectors,
        quarantined=quarantined,
        unfilled=tuple(judgement.unfilled.items()),
    )
