"""lancedb, for search alone: an inverted index on the texts, a bitmap on what is filtered.

Vectors by brute force, which is what an exact answer behind a filter takes.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from hack.bench.lines import Line

__all__ = ["LanceSearch"]


class LanceSearch:
    def _table(self, target: Path) -> Any:
        import lancedb  # type: ignore[import-not-found, unused-ignore]  # a peer to measure against, no dependency

        return lancedb.connect(str(target)).open_table("person")

    def load(self, files: Path, target: Path, data: str) -> None:
        import lancedb

        lancedb.connect(str(target)).create_table("person", pq.read_table(files / "persons.parquet"))

    def prepare(self, target: Path, data: str) -> None:
        table = self._table(target)
        table.create_scalar_index("key", index_type="BTREE")
        table.create_scalar_index("city", index_type="BITMAP")
        table.create_scalar_index("age", index_type="BTREE")
        table.create_fts_index("bio", stem=False, remove_stop_words=False, ascii_folding=False)

    def open(self, target: Path, data: str) -> None:
        self._opened = self._table(target)

    def reader(self, line: Line) -> Callable[[dict[str, Any]], Any] | None:
        table = self._opened
        match line.lance:
            case "knn":
                return lambda p: (
                    table.search(p["v"])
                    .distance_type("cosine")
                    .where(f"city = '{p['c']}'", prefilter=True)
                    .select(["key", "_distance"])
                    .limit(10)
                    .to_arrow()
                )
            case "bm25":
                return lambda p: (
                    table.search(p["q"], query_type="fts", fts_columns="bio")
                    .select(["key", "_score"])
                    .limit(10)
                    .to_arrow()
                )
            case "bm25f":
                return lambda p: (
                    table.search(p["q"], query_type="fts", fts_columns="bio")
                    .where(f"age >= {p['a']}", prefilter=True)
                    .select(["key", "_score"])
                    .limit(10)
                    .to_arrow()
                )
        return None

    def rows(self, result: Any) -> list[list[Any]]:
        return [[key] for key in result.column("key").to_pylist()]

    def upsert(self, row: dict[str, Any]) -> None:
        raise NotImplementedError
