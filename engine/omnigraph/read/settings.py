"""What the read room may keep in memory and when it prefers what. Each setting is one environment variable."""

from __future__ import annotations

import os
from dataclasses import fields
from functools import cache

from omnigraph.errors import BadRequest
from omnigraph.records import dataclass

__all__ = ["ReadSettings", "read_settings"]


@dataclass(frozen=True, slots=True)
class ReadSettings:
    """Limits of reads.

    Args:
        cache_bytes: decoded columns, id maps and adjacency kept by this process (`OMNIGRAPH_READ_CACHE_BYTES`).
        adjacency_count: edge tables whose adjacency is kept (`OMNIGRAPH_READ_ADJACENCY_COUNT`).
        small_table_rows: tables up to this size are cached at the first question; of bigger ones a selective first
            question reads only its own rows (`OMNIGRAPH_READ_SMALL_TABLE_ROWS`).
        traversal_mode: how edges are followed: `indexed` looks them up in the edge table, `csr` through adjacency in
            memory, empty: whichever is expected to be quicker; `scan` reads every table of the query from end to end,
            without indexes and anything kept, to compare answers with (`OMNIGRAPH_TRAVERSAL_MODE`).
        expand_indexed_max_frontier: nodes whose edges are looked up in one hop at most
            (`OMNIGRAPH_EXPAND_INDEXED_MAX_FRONTIER`).
        expand_indexed_max_hops: hops that are looked up at most (`OMNIGRAPH_EXPAND_INDEXED_MAX_HOPS`).
        csr_build_factor: how much dearer than estimated adjacency is taken to be; above 1 favours looking up
            (`OMNIGRAPH_CSR_BUILD_FACTOR`).
        ann_min_rows: tables from this size on answer `nearest` through their vector index, approximately
            (`OMNIGRAPH_ANN_MIN_ROWS`).
        max_rows: rows a query may hold between two steps; more is refused (`OMNIGRAPH_READ_MAX_ROWS`).
        max_bytes: memory that one step of a query, or its result, may take as estimated before it is made; more is
            refused (`OMNIGRAPH_READ_MAX_BYTES`).
        bitmap_bytes: scratch memory of one breadth-first step (`OMNIGRAPH_READ_BITMAP_BYTES`).
    """

    cache_bytes: int = 2 << 30
    adjacency_count: int = 8
    small_table_rows: int = 50_000
    traversal_mode: str = ""
    expand_indexed_max_frontier: int = 1024
    expand_indexed_max_hops: int = 6
    csr_build_factor: float = 1.5
    ann_min_rows: int = 2_000_000
    max_rows: int = 200_000_000
    max_bytes: int = 4 << 30
    bitmap_bytes: int = 64 << 20


_PLAIN = (
    "traversal_mode",
    "expand_indexed_max_frontier",
    "expand_indexed_max_hops",
    "csr_build_factor",
    "ann_min_rows",
)
"""Settings whose variable has no `READ` in its name."""


@cache
def read_settings() -> ReadSettings:
    """The settings of this process, read from the environment once.

    Raises:
        BadRequest: a variable has a value that is none of its setting's.
    """
    given: dict[str, int | float | str] = {}
    for field in fields(ReadSettings):
        variable = f"OMNIGRAPH_{'' if field.name in _PLAIN else 'READ_'}{field.name.upper()}"
        if text := os.environ.get(variable):
            given[field.name] = _value(variable, text, type(field.default))
    return ReadSettings(**given)  # type: ignore[arg-type]


def _value(variable: str, text: str, kind: type) -> int | float | str:
    if kind is str:
        if text not in ("indexed", "csr", "scan"):
            raise BadRequest(f"{variable}={text!r}: expected indexed, csr, scan or nothing")
        return text
    try:
        value: int | float = kind(text)
    except ValueError:
        value = -1
    if not value >= 0:
        raise BadRequest(f"{variable}={text!r}: expected a number from 0 on")
    return value
