"""The kinds of index, which of them a table lacks, and building them.

BTREE answers comparisons, INVERTED finds words (cut as `read.tokens` cuts them), VECTOR finds near vectors by cosine.
Lance answers a condition on a column from one index alone, the one committed first of those that know any condition.
So there is no NGRAM beside the BTREE, and the INVERTED is built with the one setting that keeps it out of conditions.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import lance

from omnigraph.records import dataclass
from omnigraph.storage.steps import Step, reach
from omnigraph.storage.translate import lance_errors

__all__ = [
    "Job",
    "Pending",
    "build",
    "extend",
    "index_coverage",
    "index_name",
    "inherited",
    "lacking",
    "text_index",
    "vector_index",
]

TEXT_OPTIONS: dict[str, Any] = {
    "base_tokenizer": "simple",
    "lower_case": True,
    "ascii_folding": True,
    "stem": False,
    "remove_stop_words": False,
    "max_token_length": 1 << 30,  # none is longer; with no limit written, Lance takes conditions from the BTREE
    "with_position": True,
}
"""How an INVERTED index cuts and changes texts: no stemming, no stop words, no word too long."""

VECTOR_MIN_ROWS = 256
"""Vectors a table must hold before their index can be trained."""
PARTITION_ROWS = 4096
"""Vectors of one partition of their index, about; far more of them and the index is made anew."""
PQ_MIN_ROWS = 1_000_000
"""From here on vectors are kept as product codes (about a byte for four numbers), below as one byte a number."""

_TYPES = {"BTREE": {"BTree"}, "BITMAP": {"Bitmap"}, "INVERTED": {"Inverted"}, "VECTOR": {"IVF_SQ", "IVF_PQ"}}


@dataclass(frozen=True, slots=True)
class Job:
    column: str
    kind: str
    action: Literal["created", "extended"]


@dataclass(frozen=True, slots=True)
class Pending:
    """An index that can't be built yet, and why."""

    column: str
    kind: str
    reason: str


def index_name(column: str, kind: str) -> str:
    return f"{column}_idx" if kind == "BTREE" else f"{column}_{kind.lower()}_idx"


def _ours(found: Any, kind: str) -> bool:
    """Whether an index of our name is one we would build."""
    if found.index_type not in _TYPES[kind]:
        return False
    if kind == "INVERTED":
        return all(found.details.get(option) == value for option, value in TEXT_OPTIONS.items())
    return kind != "VECTOR" or found.details.get("metric_type") == "COSINE"


def inherited(dataset: lance.LanceDataset) -> set[str]:
    """Names of the indices whose files lie with the branch this one was made from.

    Compaction writes their new files here and goes on looking for them there: they must be made anew before.
    """
    return {i.name for i in dataset.describe_indices() if any(s.base_id is not None for s in i.segments)}


def lacking(
    dataset: lance.LanceDataset, wanted: Sequence[tuple[str, str]], *, own: bool = False
) -> tuple[list[Job], list[Pending]]:
    """What isn't there or doesn't cover every row, and what can't be there yet.

    Args:
        wanted: (column, kind).
        own: make inherited indices anew.
    """
    with lance_errors("reading the indices"):
        rows = dataset.count_rows()
        found = {i.name: i for i in dataset.describe_indices()}
        foreign = inherited(dataset) if own else set()
    if not rows:
        return [], []  # the first write overwrites an empty table, and its indices with it
    jobs: list[Job] = []
    pending: list[Pending] = []
    for column, kind in wanted:
        index = found.get(index_name(column, kind))
        if index is not None and _ours(index, kind) and index.name not in foreign:
            if index.num_rows_indexed >= rows:
                continue
            if kind != "VECTOR":
                jobs.append(Job(column, kind, "extended"))
                continue
            if not _new_vectors(dataset, index, column):
                continue  # nor could Lance extend several partitions by none
            if not _outgrown(dataset, index.name, column, rows):
                jobs.append(Job(column, kind, "extended"))
                continue
        if kind == "VECTOR":
            vectors = _vectors(dataset, column)
            if vectors < VECTOR_MIN_ROWS:
                pending.append(Pending(column, kind, f"{vectors} vectors, and an index takes {VECTOR_MIN_ROWS}"))
                continue
        jobs.append(Job(column, kind, "created"))
    return jobs, pending


def index_coverage(dataset: lance.LanceDataset, wanted: Sequence[tuple[str, str]]) -> dict[tuple[str, str], int | None]:
    """(column, kind) → rows its index covers; 0 where there is none, None where there can't be one yet."""
    jobs, pending = lacking(dataset, wanted)
    with lance_errors("reading the indices"):
        covered = {i.name: i.num_rows_indexed for i in dataset.describe_indices()}
    out: dict[tuple[str, str], int | None] = {(p.column, p.kind): None for p in pending}
    for job in jobs:
        there = job.action == "extended"
        out[job.column, job.kind] = int(covered[index_name(job.column, job.kind)]) if there else 0
    return out


def _outgrown(dataset: lance.LanceDataset, name: str, column: str, rows: int) -> bool:
    """Whether there are far more vectors than the partitions of their index are meant for."""
    with lance_errors(f"reading index {name}"):
        partitions = sum(int(part["num_partitions"]) for part in dataset.stats.index_stats(name)["indices"][:1])
    limit = 8 * PARTITION_ROWS * partitions
    return rows > limit and _vectors(dataset, column) > limit


def _new_vectors(dataset: lance.LanceDataset, index: Any, column: str) -> bool:
    """Whether the data files that an index doesn't cover hold any vector."""
    covered = {number for segment in index.segments for number in segment.fragment_ids}
    new = [fragment for fragment in dataset.get_fragments() if fragment.fragment_id not in covered]
    return not new or _vectors(dataset, column, new) > 0


def _vectors(dataset: lance.LanceDataset, column: str, fragments: Sequence[Any] | None = None) -> int:
    """How many vectors there are, in the whole table or some of its fragments."""
    test = f"`{column}` IS NOT NULL"
    with lance_errors(f"counting the vectors of {column}"):
        return int(dataset.scanner(columns=[], filter=test, fragments=fragments, with_row_id=True).count_rows())


def build(dataset: lance.LanceDataset, jobs: Sequence[Job]) -> Iterator[tuple[Job, float]]:
    """Carry the jobs out, each with its seconds; those that extend in one commit, and first."""
    extended = [job for job in jobs if job.action == "extended"]
    if extended:
        began = time.perf_counter()
        names = [index_name(job.column, job.kind) for job in extended]
        with lance_errors(f"extending {', '.join(names)}"):
            dataset.optimize.optimize_indices(index_names=names)
        reach(Step.INDEX_BUILT)
        for job in extended:
            yield job, (time.perf_counter() - began) / len(extended)
    for job in (job for job in jobs if job.action == "created"):
        began = time.perf_counter()
        with lance_errors(f"building the {job.kind} index of {job.column}"):
            _create(dataset, job)
        reach(Step.INDEX_BUILT)
        yield job, time.perf_counter() - began


def extend(dataset: lance.LanceDataset, wanted: Sequence[tuple[str, str]]) -> list[Job]:
    """Make the indices that are there cover every row, as after a compaction; builds none anew."""
    jobs = [job for job in lacking(dataset, wanted)[0] if job.action == "extended"]
    return [job for job, _ in build(dataset, jobs)]


def _create(dataset: lance.LanceDataset, job: Job) -> None:
    name = index_name(job.column, job.kind)
    if job.kind in ("INVERTED", "VECTOR"):  # of two, Lance would ask whichever came first: another maker's
        for other in _of_kind(dataset, job.column, job.kind):
            if other.name != name:
                dataset.drop_index(other.name)
    if job.kind == "VECTOR":
        _create_vector(dataset, job.column, name)
    else:
        options = TEXT_OPTIONS if job.kind == "INVERTED" else {}
        dataset.create_scalar_index(job.column, job.kind, name=name, replace=True, **options)


def _create_vector(dataset: lance.LanceDataset, column: str, name: str) -> None:
    vectors = _vectors(dataset, column)
    options: dict[str, Any] = {"num_partitions": max(1, vectors // PARTITION_ROWS)}
    kind = "IVF_SQ"
    if vectors >= PQ_MIN_ROWS:
        kind = "IVF_PQ"
        dim = int(dataset.schema.field(column).type.list_size)
        options["num_sub_vectors"] = dim // next(width for width in (4, 2, 1) if dim % width == 0)
    dataset.create_index(column, kind, name=name, metric="cosine", replace=True, **options)


def _of_kind(dataset: lance.LanceDataset, column: str, kind: str) -> list[Any]:
    found = [i for i in dataset.describe_indices() if i.field_names == [column]]
    if kind == "VECTOR":
        return [i for i in found if i.index_type.startswith("IVF")]
    return [i for i in found if i.index_type in _TYPES[kind]]


def text_index(dataset: lance.LanceDataset, column: str) -> Any | None:
    """Lance's description of the index that a word search of the column would ask, if it cuts words our way."""
    found = _of_kind(dataset, column, "INVERTED")
    return found[0] if len(found) == 1 and _ours(found[0], "INVERTED") else None


def vector_index(dataset: lance.LanceDataset, column: str) -> Any | None:
    """Lance's description of the index that a search of the vectors would ask, if its metric is cosine."""
    found = _of_kind(dataset, column, "VECTOR")
    return found[0] if len(found) == 1 and found[0].details.get("metric_type") == "COSINE" else None
