"""What the read room may keep in memory and when it prefers what. Each setting is one environment variable."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields
from functools import cache

__all__ = ["ReadSettings", "read_settings"]


@dataclass(frozen=True, slots=True)
class ReadSettings:
    """Limits of reads.

    Args:
        cache_bytes: decoded columns, id maps and adjacency kept by this process (`OMNIGRAPH_READ_CACHE_BYTES`).
        adjacency_count: edge tables whose adjacency is kept (`OMNIGRAPH_READ_ADJACENCY_COUNT`).
        small_table_rows: tables up to this size are cached at the first question; of bigger ones a selective first
            question reads only its own rows (`OMNIGRAPH_READ_SMALL_TABLE_ROWS`).
        max_rows: rows a query may hold between two steps; more is refused (`OMNIGRAPH_READ_MAX_ROWS`).
        bitmap_bytes: scratch memory of one breadth-first step (`OMNIGRAPH_READ_BITMAP_BYTES`).
    """

    cache_bytes: int = 2 << 30
    adjacency_count: int = 8
    small_table_rows: int = 50_000
    max_rows: int = 200_000_000
    bitmap_bytes: int = 64 << 20


@cache
def read_settings() -> ReadSettings:
    """The settings of this process, read from the environment once."""
    given = {f.name: os.environ.get(f"OMNIGRAPH_READ_{f.name.upper()}") for f in fields(ReadSettings)}
    return ReadSettings(**{name: int(text) for name, text in given.items() if text})
