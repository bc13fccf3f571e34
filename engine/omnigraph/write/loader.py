"""`load`: records from files, streams or tables into one commit (03 §3.2).

One way for every source: typed batches → constraints of a row → spool → constraints of the whole, against the pinned
snapshot → one `Repository.commit`. Nothing is visible in the graph's tables before every record has been judged. Where
no row can change or be left out afterwards, data files are written while the sources are read (`ahead`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

import pyarrow as pa

from omnigraph.arguments import expect_number, expect_text
from omnigraph.errors import BadRequest, NotFound, OmniGraphError
from omnigraph.read.compute import Array, pc
from omnigraph.records import dataclass
from omnigraph.schema.catalog import Catalog, EdgeType, NodeType
from omnigraph.storage import (
    CommitInfo,
    Repository,
    Snapshot,
    Staging,
    TableChange,
    WriterKind,
    check_operation_id,
)
from omnigraph.storage.whole import among, joined
from omnigraph.ulids import new_ulid
from omnigraph.write import constraints
from omnigraph.write.ahead import Ahead
from omnigraph.write.blobs import BlobSpool, Tickets, blob_names
from omnigraph.write.committed import Committed, refuse_repeated
from omnigraph.write.embedding import (
    EmbedWhen,
    check_models,
    fill,
    follow_texts,
    made_vectors,
    provider,
    unfilled,
    with_wanted,
)
from omnigraph.write.findings import ROW, Findings
from omnigraph.write.givers import name_givers
from omnigraph.write.mapping import Mapping
from omnigraph.write.merge_rows import MOST_BYTES, folded, keeps_value, merge_rows, with_kept
from omnigraph.write.pool import system_pool
from omnigraph.write.quarantine import QUARANTINE_LIMIT, Quarantine, finish, finished, nothing_left
from omnigraph.write.rows import Reading, table_rows
from omnigraph.write.sources import PACKED, Source, SourceFile, SourcePlan, plan_sources
from omnigraph.write.spool import Spool

if TYPE_CHECKING:
    from omnigraph.embed import Embedder

__all__ = [
    "FRAGMENT_ROWS",
    "LoadResult",
    "Loaded",
    "Mode",
    "Progress",
    "change_of",
    "done_before",
    "fill_vectors",
    "good_ones",
    "judge",
    "load",
    "reads_of",
    "table_rows",
]

Mode = Literal["append", "merge", "overwrite"]
MERGE_BYTES = 256 << 20
MERGE_ROWS = 50_000
"""A merge completes so many bytes of rows at a time, and at least so many rows: each time the table is read anew."""
FRAGMENT_ROWS = 50_000  # from here on rows are written as data files of their own instead of travelling in the commit


@dataclass(frozen=True, slots=True)
class Progress:
    """What a load has done so far: records read, bytes of the sources read, bytes of all.

    Of a file that is packed or has columns, the bytes count once it is finished.
    """

    rows: int
    bytes: int
    total_bytes: int


@dataclass(frozen=True, slots=True)
class LoadResult:
    """`tables`: (table key, rows loaded). `commit` is None when no record is left to load; a missing branch is made."""

    tables: tuple[tuple[str, int], ...]
    commit: CommitInfo | None
    branch: str
    branch_created: bool = False
    operation_id: str = ""
    vectors: int = 0  # made by an embedding provider
    quarantined: int = 0  # bad records put aside
    unfilled: tuple[tuple[str, int], ...] = ()  # (type.property, rows with a text and no vector): `Graph.embed` fills

    @property
    def rows(self) -> int:
        return sum(n for _, n in self.tables)


@dataclass(slots=True)
class Loaded:
    """Rows of one table on their way into the commit, in `row_schema`; of one written ahead what is to be judged."""

    entity: NodeType | EdgeType
    rows: pa.Table
    generated: bool  # every id was made by this load
    read: int  # records read, before repeats were folded
    known: int = 0  # merge: so many rows at the end have ids that are committed already
    given: pa.Table | None = None  # merge, where ids repeat: the records as they were read
    unknown_ends: pa.Table | None = None  # the edges whose ends are to be judged; None: all


def load(
    repository: Repository,
    source: Source | None,
    *,
    mode: Mode = "append",
    branch: str = "main",
    from_: str | None = None,
    mapping: Mapping | None = None,
    format: str | None = None,
    actor: str | None = None,
    operation_id: str | None = None,
    expect_head: str | None = None,
    progress: Callable[[Progress], None] | None = None,
    embed: EmbedWhen | None = None,
    quarantine: str | None = None,
    max_quarantined: int = QUARANTINE_LIMIT,
) -> LoadResult:
    """Loads records, all or none; with `quarantine` all good ones.

    Args:
        source: path(s), globs or URIs; an open file or a text with NDJSON records; or tables by type name.
        mode: `append` refuses ids that exist, `merge` updates them (omitted properties stay), `overwrite` replaces
            the rows of every type that the sources hold.
        from_: the branch to fork a missing `branch` from.
        mapping: how columns become properties; needed for Parquet, ORC, CSV and Arrow files.
        operation_id: ULID of the write; the same id again changes nothing.
        embed: when the vectors that `@embed` makes and records omit are made; default `OMNIGRAPH_EMBED_WRITES`.
        quarantine: a file for the bad records, which are then left out instead of refusing the load.
        max_quarantined: more bad records refuse the load all the same.

    Raises:
        BadRequest: bad sources, mapping or records; `details` has counts by kind and the first twenty.
        Unavailable: the embedding provider gives no vectors.
        NotFound: the branch is missing and `from_` isn't given.
        Conflict: the branch moved meanwhile.
    """
    if mode not in ("append", "merge", "overwrite"):
        raise BadRequest(f"mode {mode!r} isn't known: append, merge or overwrite")
    expect_number("max_quarantined", max_quarantined)
    if max_quarantined < 0:
        raise BadRequest(f"max_quarantined is {max_quarantined}: give a number from 0 on")
    expect_text("branch", branch)
    operation = check_operation_id(operation_id or new_ulid())
    missing = branch not in {b.name for b in repository.branches()}
    if missing and from_ is None:
        raise NotFound(f"branch {branch!r} doesn't exist: create it, or give the branch to fork it from")
    base = repository.snapshot(from_ if missing and from_ is not None else branch)
    if not missing and operation_id is not None:
        done = done_before(repository, branch, operation_id)
        if done is not None:
            if quarantine is not None:
                finish(quarantine, operation)
            return LoadResult((), done, branch, operation_id=operation)
    aside = Quarantine(quarantine, operation, max_quarantined) if quarantine is not None else None
    findings = aside.findings() if aside is not None else Findings()
    embedder = provider(embed, base.catalog.by_table_key.values())
    fills = embedder is not None
    merge = mode == "merge"
    writes_ahead = not (merge or fills or missing or aside is not None)
    with (
        system_pool(),
        plan_sources(source, mapping, base.catalog, format=format) as plan,
        Spool() as spool,
        ExitStack() as spools,
        BlobSpool() as blobs,
    ):
        reading = Reading(base.catalog, operation, merge=merge, fills=fills, findings=findings, blobs=blobs)
        ahead = (
            spools.enter_context(Ahead(repository, base, plan.files, spool, FRAGMENT_ROWS)) if writes_ahead else None
        )
        rows = done_bytes = 0
        generated: dict[str, bool] = {}
        for file in plan.files:
            for batch in plan.read(file, reading):
                if ahead is not None and ahead.takes(batch.table_key):
                    if findings:
                        ahead.stop()
                    ahead.take(batch)
                else:
                    spool.append(batch.table_key, batch.rows)
                    generated[batch.table_key] = generated.get(batch.table_key, True) and batch.generated_ids
                rows += batch.rows.num_rows
                if aside is not None:
                    aside.watch(findings, plan)
                if progress is not None:
                    progress(Progress(rows, done_bytes + _read_of(file, batch.rows), plan.size))
            done_bytes += file.size
            if ahead is not None:
                ahead.source_read(file.index)
            if progress is not None:
                progress(Progress(rows, done_bytes, plan.size))
        loaded = {
            e.table_key: _loaded(e, spool, generated, ahead)
            for e in _nodes_first(base.catalog)
            if e.table_key in generated or (ahead is not None and e.table_key in ahead)
        }
        made = 0
        if aside is not None:
            loaded, made = good_ones(base, loaded, mode, findings, embedder, aside, plan, spools)
        else:
            if not (findings and merge):  # a merged row is made of good values only
                judge(base, loaded, mode, findings, spools.enter_context(Spool()), fills=fills)
            findings.refuse(plan.locate)
            if embedder is not None:
                made = fill_vectors(loaded, embedder, spools.enter_context(Spool()), findings)
                findings.refuse(plan.locate)
        put_aside = len(aside) if aside is not None else 0
        with finished(aside, plan, reading):
            commit = _committed(
                repository, base, loaded, mode, blobs, branch, missing, operation, actor, expect_head, ahead
            )
        lacking = tuple(
            (f"{item.entity.name}.{prop.name}", n)
            for item in loaded.values()
            for prop, n in unfilled(item.entity, item.rows)
        )
    tables = tuple((k, item.read) for k, item in loaded.items())
    return LoadResult(tables, commit, branch, missing, operation, made, put_aside, lacking)


def _read_of(file: SourceFile, rows: pa.RecordBatch) -> int:
    """How far into its file these rows are, in bytes, as far as their places tell: those of text that isn't packed."""
    if file.format != "ndjson" or file.path.endswith(PACKED) or not rows.num_rows:
        return 0
    return int(min(rows.column(ROW)[-1].as_py(), file.size))


def _committed(
    repository: Repository,
    base: Snapshot,
    loaded: dict[str, Loaded],
    mode: Mode,
    blobs: BlobSpool,
    branch: str,
    missing: bool,
    operation: str,
    actor: str | None,
    expect_head: str | None,
    ahead: Ahead | None,
) -> CommitInfo | None:
    """The judged rows, if there are any, as one commit, on a new branch where it is missing."""
    with _forked(repository, branch, base, actor) if missing else nullcontext(base) as base:
        if not loaded:
            return None
        changes = tuple(
            ahead.change(key, overwrite=mode == "overwrite")
            if ahead is not None and key in ahead
            else change_of(repository, base, item, mode, blobs)
            for key, item in loaded.items()
        )
        if ahead is not None:
            ahead.keep()
        staging = Staging(
            branch=branch,
            kind=WriterKind.LOAD,
            changes=changes,
            reads=reads_of(base.catalog, loaded, mode),
            operation_id=operation,
            actor=actor,
            expect_head=expect_head,
        )
        return repository.commit(staging, base)


def good_ones(
    base: Snapshot,
    loaded: dict[str, Loaded],
    mode: Mode,
    findings: Findings,
    embedder: Embedder | None,
    aside: Quarantine,
    plan: SourcePlan,
    spools: ExitStack,
) -> tuple[dict[str, Loaded], int]:
    """What is left when every bad record is put aside, and the vectors made for it.

    A record put aside may be what another relied on, so the rest is judged until nothing is found.
    """
    aside.take(findings, plan)
    while True:
        spool = spools.enter_context(Spool())
        kept: dict[str, Loaded] = {}
        for key, item in loaded.items():
            rows = aside.without(item.rows, key, spool)
            if rows.num_rows:
                kept[key] = replace(item, rows=rows, read=rows.num_rows)
            elif mode == "overwrite":
                raise nothing_left(item.entity)
        found = aside.findings()
        judge(base, kept, mode, found, spools.enter_context(Spool()), fills=embedder is not None)
        made = 0
        if not found and embedder is not None:
            made = fill_vectors(kept, embedder, spools.enter_context(Spool()), found)
        if not aside.take(found, plan, first_kinds=True):
            return kept, made


def fill_vectors(loaded: dict[str, Loaded], embedder: Embedder, spool: Spool, findings: Findings) -> int:
    """Makes the vectors that judged rows lack; how many. After all judging, since each costs time and money."""
    check_models([item.entity for item in loaded.values()], embedder)
    total = 0
    for item in loaded.values():
        if made_vectors(item.entity):
            item.rows, made = fill(item.entity, item.rows, embedder, spool, findings)
            total += made
        if item.given is not None:
            name_givers(findings, item.entity, item.given)
    return total


@contextmanager
def _forked(repository: Repository, branch: str, base: Snapshot, actor: str | None) -> Iterator[Snapshot]:
    """The new branch, taken back when the load fails after all."""
    made = repository.create_branch(branch, from_=base.branch, at=base, actor=actor)
    try:
        yield base.on(branch)  # not the branch as it now is: what others write there nobody has judged this against
    except BaseException as error:
        try:
            stays = not repository.undo_branch(made)
        except OmniGraphError as second:
            stays = True
            error.add_note(f"taking branch {branch!r} back failed too: {second.message}")
        if stays:
            error.add_note(f"branch {branch!r} was created and stays; it holds nothing of this load")
        raise


def done_before(repository: Repository, branch: str, operation_id: str) -> CommitInfo | None:
    """The branch's commit of this operation, if it has one already. Raises BadRequest for an unusable id."""
    check_operation_id(operation_id)
    return repository.engine.history.find_operation(branch, operation_id, repository.head(branch))


def _nodes_first(catalog: Catalog) -> Iterator[NodeType | EdgeType]:
    yield from catalog.nodes.values()
    yield from catalog.edges.values()


def _loaded(entity: NodeType | EdgeType, spool: Spool, generated: dict[str, bool], ahead: Ahead | None) -> Loaded:
    key = entity.table_key
    if ahead is not None and key in ahead:
        table = ahead[key]
        return Loaded(entity, ahead.rows(key), table.generated, table.read, unknown_ends=ahead.unknown_ends(key))
    rows = spool.table(key)
    return Loaded(entity, rows, generated[key], rows.num_rows)


def reads_of(catalog: Catalog, table_keys: Collection[str], mode: Mode) -> frozenset[str]:
    """Tables whose rows the validation relied on: the ends of loaded edges, and edges at nodes that are replaced."""
    out = set(_edges_at(catalog, table_keys) if mode == "overwrite" else ())
    for key in table_keys:
        entity = catalog.by_table_key[key]
        if isinstance(entity, EdgeType):
            out |= {catalog.nodes[entity.source].table_key, catalog.nodes[entity.target].table_key}
    return frozenset(out)


def _edges_at(catalog: Catalog, table_keys: Iterable[str]) -> frozenset[str]:
    """Edge tables at these node tables: replacing nodes relies on no edge being added meanwhile."""
    names = {key.removeprefix("node:") for key in table_keys}
    return frozenset(e.table_key for e in catalog.edges.values() if {e.source, e.target} & names)


# ---- judging the whole -----------------------------------------------------------------------------------------------


def judge(
    base: Snapshot, loaded: dict[str, Loaded], mode: Mode, findings: Findings, spool: Spool, *, fills: bool = False
) -> None:
    """Constraints over the state as it would be; in a merge it first completes the rows from what is committed.

    Args:
        spool: an empty one, where completed rows wait; to be kept until they are committed.
        fills: vectors that `@embed` makes are made afterwards, and so aren't missing.
    """
    committed = Committed(base, replaced=frozenset(loaded) if mode == "overwrite" else frozenset())
    for item in loaded.values():
        committed.check_keys(item.entity)
        if mode == "merge":
            _merge(committed, item, findings, spool, fills)
        else:
            _distinct(committed, item, findings)
        for parts in item.entity.uniques:
            _unique(committed, item, parts, findings)
    for item in loaded.values():
        if isinstance(item.entity, EdgeType):
            rows = item.rows if item.unknown_ends is None else item.unknown_ends
            _endpoints(committed, item.entity, rows, loaded, findings)
            _cardinality(committed, item.entity, item, loaded if mode == "overwrite" else {}, findings)
    if mode == "overwrite":
        _dangling(committed, base.catalog, loaded, findings)
    for item in loaded.values():
        if item.given is not None:
            name_givers(findings, item.entity, item.given)


def _distinct(committed: Committed, item: Loaded, findings: Findings) -> None:
    if item.generated:
        return
    constraints.check_distinct_ids(item.entity, item.rows, findings)
    present = committed.present(item.entity.table_key, item.rows.column("id"))
    constraints.check_existing_ids(item.entity, item.rows, present, findings)


def _merge(committed: Committed, item: Loaded, findings: Findings, spool: Spool, fills: bool) -> None:
    """A portion of the rows at a time, so that neither the stored nor the completed ones stand in memory as a whole."""
    entity, key, read = item.entity, item.entity.table_key, item.rows
    again = None if item.generated else constraints.duplicates(read.column("id"))
    item.given = read if again is not None else None
    new, known = f"{key} new", f"{key} known"
    portions = folded(entity, read, again, spool, least=MERGE_ROWS, size=MERGE_BYTES)
    for some, old in _with_stored(committed, item, portions):
        rows, wanted = follow_texts(entity, merge_rows(entity, some, old), some, old)
        constraints.check_values(entity, rows, findings, excused=wanted if fills else None)
        rows = with_kept(entity, with_wanted(rows, wanted), some, old)
        ids = rows.column("id")
        there = among(ids, ids.slice(0, 0) if old is None else old.column("id"))
        for name, mask in ((new, pc.invert(there)), (known, there)):
            for batch in rows.filter(mask).to_batches():
                spool.append(name, batch)
    parts = {name: spool.table(name) for name in (new, known) if name in spool}
    item.rows, item.known = pa.concat_tables(parts.values()), parts[known].num_rows if known in parts else 0


def _with_stored(
    committed: Committed, item: Loaded, portions: Iterable[pa.Table]
) -> Iterator[tuple[pa.Table, pa.Table | None]]:
    """Portions with the stored rows of their ids; in smaller ones where those are large."""
    for some in portions:
        if item.generated:
            yield some, None
            continue
        old = committed.rows(item.entity.table_key, some.column("id"))
        refuse_repeated(item.entity, old.column("id"))
        pieces = 1 + old.nbytes // MOST_BYTES
        step = -(-some.num_rows // pieces)
        for start in range(0, some.num_rows, step):
            part = some.slice(start, step)
            yield part, old if pieces == 1 else old.filter(among(old.column("id"), part.column("id")))


def _unique(committed: Committed, item: Loaded, parts: tuple[str, ...], findings: Findings) -> None:
    others = committed.with_values(item.entity.table_key, parts, item.rows)
    kept = keeps_value(parts)
    spared = item.rows.column(kept) if kept in item.rows.schema.names else None
    constraints.check_unique(item.entity, parts, item.rows, others, findings, spared=spared)


def _endpoints(
    committed: Committed, edge: EdgeType, rows: pa.Table, loaded: dict[str, Loaded], findings: Findings
) -> None:
    """Incoming nodes first; only what they lack is looked up among the committed ones."""
    ends = (("src", edge.source), ("dst", edge.target))

    def lacking(end: tuple[str, str]) -> Array:
        column, key = rows.column(end[0]), f"node:{end[1]}"
        return constraints.absent(column, [loaded[key].rows.column("id")] if key in loaded else [])

    with ThreadPoolExecutor(2) as pool:
        masks = list(pool.map(lacking, ends))
    for (column, node), mask in zip(ends, masks, strict=True):
        if not pc.any(mask).as_py():
            continue
        missing = pc.unique(joined(rows.column(column).filter(mask))).drop_null()
        key = f"node:{node}"
        still = missing.filter(constraints.absent(missing, [committed.present(key, missing)]))
        if len(still):
            found = among(rows.column(column), still)
            constraints.add_missing_endpoints(edge, rows, found, column, node, findings)


def _cardinality(
    committed: Committed, edge: EdgeType, item: Loaded, replaced: dict[str, Loaded], findings: Findings
) -> None:
    if edge.cardinality.min == 0 and edge.cardinality.max is None:
        return
    stays, lost = committed.edges_of(edge.table_key, item.rows.column("src"), without=item.rows.column("id"))
    if f"node:{edge.source}" in replaced:  # a source that goes needs no edges
        lost = lost.filter(among(lost, replaced[f"node:{edge.source}"].rows.column("id")))
    constraints.check_cardinality(edge, item.rows, stays, findings, lost_src=lost)


def _dangling(committed: Committed, catalog: Catalog, loaded: dict[str, Loaded], findings: Findings) -> None:
    """Edges of types that stay must not lose their ends to a replaced node type."""
    for edge in catalog.edges.values():
        replaced = [n for n in {edge.source, edge.target} if f"node:{n}" in loaded]
        if edge.table_key in loaded or not replaced:
            continue
        rows = committed.edges(edge.table_key)
        for column, node in (("src", edge.source), ("dst", edge.target)):
            if node in replaced:
                mask = constraints.absent(rows.column(column), [loaded[f"node:{node}"].rows.column("id")])
                constraints.add_missing_endpoints(edge, rows, mask, column, node, findings)


# ---- into the commit ------------------------------------------------------------------------------------------------


def change_of(
    repository: Repository, base: Snapshot, item: Loaded, mode: Mode, spool: BlobSpool | None = None
) -> TableChange:
    """Judged rows as one table's change; many new rows become data files at once."""
    key = item.entity.table_key
    rows = table_rows(item.entity, item.rows)
    new = rows.num_rows - item.known
    upserts, rows = (rows.slice(new) if item.known else None), rows.slice(0, new)
    overwrite = mode == "overwrite"
    blobs = Tickets(spool, base, key) if blob_names(item.entity) else None
    if rows.num_rows < FRAGMENT_ROWS:
        appends = rows if rows.num_rows else None
        return TableChange(key, appends=appends, upserts=upserts, overwrite=overwrite, blobs=blobs)
    fragments = repository.write_fragments(base, key, rows, blobs=blobs)
    return TableChange(key, upserts=upserts, fragments=fragments, overwrite=overwrite, blobs=blobs)
