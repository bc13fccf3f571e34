"""Rows of one table as the expressions of a mutation see them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.errors import Internal
from omnigraph.read.compute import Array
from omnigraph.write.columns import one_chunk

__all__ = ["StoredRows"]


class StoredRows:
    """An `Env` of `read.datum`: bare names are the rows' stored values; without rows there are parameters only."""

    def __init__(self, rows: pa.Table | None, params: Mapping[str, Any], now: datetime) -> None:
        self._rows, self.params, self.now = rows, params, now

    def prop(self, var: str, name: str) -> Array:
        if self._rows is None:
            raise Internal(f"{name!r} where nothing is stored yet")
        column = one_chunk(self._rows.column(name))
        if pa.types.is_date64(column.type):
            return column.view(pa.int64()).view(pa.timestamp("ms", "UTC"))
        return column

    def some(self, rows: npt.NDArray[np.int64]) -> StoredRows:
        at: Array = pa.array(rows)
        return StoredRows(None if self._rows is None else self._rows.take(at), self.params, self.now)

    def computed(self, name: str) -> Array:
        raise Internal(f"an expression of a mutation names the output column {name!r}")

    def entity(self, var: str) -> Any:
        raise Internal("a search in a mutation")

    def special(self, what: object) -> Array:
        raise Internal("a block or a ranking in a mutation")
