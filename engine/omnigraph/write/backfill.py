"""`embed`: the vectors that `@embed` makes and rows lack, made for rows that are stored already.

Batch by batch, each its own commit: an interrupted run has kept what it finished, and the next one goes on from there.
Rows are read anew for each commit, so that what others wrote meanwhile stands.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from omnigraph.errors import BadRequest, Conflict, Internal, NotFound
from omnigraph.read.compute import Array, pc
from omnigraph.records import dataclass
from omnigraph.schema.catalog import Catalog, EdgeType, NodeType, Property
from omnigraph.storage import CommitInfo, Repository, Snapshot, Staging, WriterKind
from omnigraph.ulids import new_ulid
from omnigraph.write.columns import one_chunk
from omnigraph.write.committed import refuse_repeated
from omnigraph.write.embedding import (
    check_models,
    fill_table,
    given_texts,
    made_vectors,
    provider,
    with_wanted,
    without_vectors,
)
from omnigraph.write.findings import BadRecord, Findings
from omnigraph.write.staging import MutationStaging

if TYPE_CHECKING:
    from omnigraph.embed import Embedder

__all__ = ["EmbedProgress", "EmbedReport", "Embedded", "embed"]

BATCH_BYTES = 64 << 20  # of vectors in one commit
_TRIES = 5  # for a batch whose table others write


@dataclass(frozen=True, slots=True)
class EmbedProgress:
    """How far `embed` has come: rows looked at, and rows it found at its start."""

    done: int
    total: int


@dataclass(frozen=True, slots=True)
class Embedded:
    """One property, named `Type.property`: rows that lacked their vector at the start, and vectors made."""

    property: str
    missing: int
    made: int


@dataclass(frozen=True, slots=True)
class EmbedReport:
    """What `embed` did. `refused`: texts the provider won't take, at most 20 of `refused_count`; their rows stay."""

    branch: str
    properties: tuple[Embedded, ...]
    commits: tuple[CommitInfo, ...] = ()
    refused: tuple[BadRecord, ...] = ()
    refused_count: int = 0

    @property
    def made(self) -> int:
        return sum(p.made for p in self.properties)

    @property
    def missing(self) -> int:
        return sum(p.missing for p in self.properties)


@dataclass(slots=True)
class _Run:
    repository: Repository
    branch: str
    actor: str | None
    only_missing: bool
    findings: Findings = field(default_factory=Findings)
    commits: list[CommitInfo] = field(default_factory=list)


def embed(
    repository: Repository,
    *,
    types: Collection[str] | None = None,
    branch: str = "main",
    only_missing: bool = True,
    dry_run: bool = False,
    batch_rows: int | None = None,
    actor: str | None = None,
    progress: Callable[[EmbedProgress], None] | None = None,
) -> EmbedReport:
    """Makes the vectors that rows with a text lack; does nothing where none is missing.

    Args:
        types: names of node and edge types; None for all.
        only_missing: False makes every vector anew, after a change of the model.
        dry_run: count, and neither ask the provider nor write.
        batch_rows: rows of one commit; default by the size of their vectors.

    Raises:
        BadRequest: vectors are to be made and no provider is set up, its model isn't the recorded one, or a type has
            no vector that `@embed` makes.
        NotFound: no such branch or type.
        Unavailable: the provider gives no vectors; finished batches stay.
        Conflict: others write the same table without a pause.
    """
    snapshot = repository.snapshot(branch)
    entities = _chosen(snapshot.catalog, types)
    embedder = None if dry_run else provider("now", entities)
    if embedder is not None:
        check_models(entities, embedder)
    work = {entity.table_key: _lacking(snapshot, entity, only_missing) for entity in entities}
    total, done = sum(len(ids) for ids, _ in work.values()), 0
    if embedder is None and not dry_run and total:
        from omnigraph.embed import how_to_set_up

        what = "have no vector" if only_missing else "have a text whose vector is to be made anew"
        raise BadRequest(f"{total:,} rows of {branch} {what}, and {how_to_set_up()}", code="no_embedder")
    run = _Run(repository, branch, actor, only_missing)
    report: list[Embedded] = []
    for entity in entities:
        ids, counts = work[entity.table_key]
        made: Counter[str] = Counter()
        step = batch_rows or _batch_rows(entity)
        for start in range(0, len(ids), step):
            if embedder is None:
                break
            part = ids.slice(start, step)
            made += _one_commit(run, entity.table_key, part, embedder)
            done += len(part)
            if progress is not None:
                progress(EmbedProgress(done, total))
        report += [Embedded(f"{entity.name}.{name}", missing, made[name]) for name, missing in counts.items()]
    findings = run.findings
    return EmbedReport(branch, tuple(report), tuple(run.commits), tuple(findings.shown), sum(findings.counts.values()))


def _chosen(catalog: Catalog, types: Collection[str] | None) -> list[NodeType | EdgeType]:
    every = [e for e in catalog.by_table_key.values() if made_vectors(e)]
    if types is None:
        return every
    out = []
    for name in types:
        entity = catalog.nodes.get(name) or catalog.edge(name)
        if entity is None:
            raise NotFound(f"type {name!r} isn't declared; declared: {', '.join([*catalog.nodes, *catalog.edges])}")
        if not made_vectors(entity):
            known = ", ".join(e.name for e in every) or "none"
            raise BadRequest(f"{entity.name} has no vector that @embed makes; types that have one: {known}")
        out.append(entity)
    return out


def _batch_rows(entity: NodeType | EdgeType) -> int:
    size = sum(4 * p.type.dim for p in made_vectors(entity))
    return max(256, min(20_000, BATCH_BYTES // max(1, size)))


def _lacking(snapshot: Snapshot, entity: NodeType | EdgeType, only_missing: bool) -> tuple[Array, dict[str, int]]:
    """Ids of the rows to be filled, and how many of each property."""
    counts = {p.name: 0 for p in made_vectors(entity)}
    ref = snapshot.tables.get(entity.table_key)
    if ref is None or ref.row_count == 0:
        return pa.array([], pa.string()), counts
    parts: list[Array] = []
    tests = []
    for prop in made_vectors(entity):
        assert prop.embed is not None
        tests.append(f"(`{prop.embed.source}` is not null{f' and `{prop.name}` is null' if only_missing else ''})")
    names = list(dict.fromkeys(["id", *_sources(entity), *(counts if only_missing else ())]))
    for batch in snapshot.scan_batches(entity.table_key, names, filter=" or ".join(tests)):
        hit = np.zeros(batch.num_rows, dtype=bool)
        for prop in made_vectors(entity):
            mask = np.asarray(_wanted(batch, prop, only_missing))
            counts[prop.name] += int(mask.sum())
            hit |= mask
        parts.append(batch.column("id").filter(pa.array(hit)))
    return pa.concat_arrays(parts) if parts else pa.array([], pa.string()), counts


def _sources(entity: NodeType | EdgeType) -> Iterator[str]:
    for prop in made_vectors(entity):
        assert prop.embed is not None
        yield prop.embed.source


def _wanted(rows: pa.RecordBatch | pa.Table, prop: Property, only_missing: bool) -> Array:
    assert prop.embed is not None
    texts = given_texts(one_chunk(rows.column(prop.embed.source)))
    return pc.and_(texts, pc.is_null(one_chunk(rows.column(prop.name)))) if only_missing else texts


def _one_commit(run: _Run, table_key: str, ids: Array, embedder: Embedder) -> Counter[str]:
    """One batch into one commit; how many vectors of each property it made."""
    for attempt in range(1, _TRIES + 1):
        snapshot = run.repository.snapshot(run.branch)
        entity = snapshot.catalog.by_table_key.get(table_key)
        if entity is None:
            raise NotFound(f"{table_key} is gone: the schema changed meanwhile")
        staging, findings = MutationStaging(snapshot), Findings()
        rows = staging.rows(entity, ids)
        refuse_repeated(entity, rows.column("id"))
        wanted = {p.name: _wanted(rows, p, run.only_missing) for p in made_vectors(entity)}
        before = {p.name: one_chunk(rows.column(p.name)) for p in made_vectors(entity)}
        if not run.only_missing:
            for prop in made_vectors(entity):
                rows = without_vectors(rows, prop, wanted[prop.name])
        rows, made = fill_table(entity, with_wanted(rows, wanted), embedder, findings, most_refused=None)
        for name, vectors in before.items():  # a text that is refused now keeps the vector it had
            at = rows.schema.get_field_index(name)
            kept = pc.coalesce(one_chunk(rows.column(name)), vectors)
            rows = rows.set_column(at, rows.schema.field(at), kept)
        staging.put(entity, rows)
        changes = staging.changes([entity])
        try:
            if changes:
                name = new_ulid()
                write = Staging(
                    run.branch, WriterKind.MUTATION, changes, operation_id=name, fresh=True, actor=run.actor
                )
                run.commits.append(run.repository.commit(write, snapshot))
        except Conflict as error:
            if not error.retryable or attempt == _TRIES:
                raise
            continue
        run.findings.merge(findings)
        return made
    raise Internal("a batch that neither ended nor failed")
