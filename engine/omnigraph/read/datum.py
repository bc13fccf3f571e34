"""Values while an expression runs: a column (an Arrow array) or one value for all rows (an Arrow scalar)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.errors import BadRequest
from omnigraph.read.compute import Array, Scalar, flags, nulls, widened

if TYPE_CHECKING:
    from omnigraph.read.tables import Rows

__all__ = [
    "Bools",
    "Datum",
    "Env",
    "Evaluate",
    "Fault",
    "Longs",
    "as_array",
    "as_mask",
    "cast_to",
    "columnar",
    "is_array",
    "is_null_type",
    "nulls_like",
    "scalar",
    "validity",
]

Datum: TypeAlias = Array | Scalar
Bools: TypeAlias = npt.NDArray[np.bool_]
Longs: TypeAlias = npt.NDArray[np.int64]


class Fault(BadRequest):
    """An expression has no value in some row. Its text names the expression; `execute` and `mutate` add the query."""

    def of(self, query: str) -> BadRequest:
        """The same, naming the query."""
        return BadRequest(f"query `{query}`: {self.message}", code=self.code)


class Env(Protocol):
    """Where an expression finds its values: a number of rows, and what is known about each."""

    @property
    def params(self) -> Mapping[str, Any]: ...

    @property
    def now(self) -> datetime: ...

    def prop(self, var: str, name: str) -> Datum:
        """The property in each row."""
        ...

    def computed(self, name: str) -> Datum:
        """A column computed before: an output column, an aggregate, a block's answer."""
        ...

    def entity(self, var: str) -> tuple[Rows, npt.NDArray[np.integer[Any]] | None]:
        """The rows a variable points into and the position in each (negative: null); None for all of them in order."""
        ...

    def some(self, rows: Longs) -> Env:
        """The same for the given rows only."""
        ...

    def special(self, what: object) -> Datum:
        """What takes more than the row's own values: a block inside an expression, a ranking."""
        ...


Evaluate: TypeAlias = Callable[[Env], Datum]


def is_array(value: Datum) -> bool:
    return isinstance(value, pa.Array)


def is_null_type(value: Datum) -> bool:
    return bool(pa.types.is_null(value.type))


def scalar(value: Any, type_: pa.DataType) -> Scalar:
    """A Python value as an Arrow scalar; a datetime without a zone is UTC."""
    if isinstance(value, datetime) and pa.types.is_timestamp(type_):
        value = value.astimezone(UTC) if value.tzinfo is not None else value.replace(tzinfo=UTC)
    elif isinstance(value, date) and not isinstance(value, datetime) and pa.types.is_timestamp(type_):
        value = datetime(value.year, value.month, value.day, tzinfo=UTC)
    elif isinstance(value, (tuple, list)) and pa.types.is_list(type_) and pa.types.is_timestamp(type_.value_type):
        value = [None if v is None else scalar(v, type_.value_type).as_py() for v in value]
    return pa.scalar(value, type_)


def as_array(value: Datum, length: int) -> Array:
    """A scalar repeated; an array as it is."""
    return value if isinstance(value, pa.Array) else pa.repeat(widened(value, length), length)


def as_mask(value: Datum, length: int) -> Bools:
    """Where a predicate is true."""
    if isinstance(value, pa.Scalar):
        return np.full(length, value.as_py() is True)
    if pa.types.is_null(value.type):
        return np.zeros(length, dtype=bool)
    return flags(value.fill_null(False) if value.null_count else value)


def validity(column: Array) -> Bools:
    """Where a column isn't null."""
    if not column.null_count:
        return np.ones(len(column), dtype=bool)
    return flags(column.is_valid())


def nulls_like(kind: pa.DataType, *values: Datum) -> Datum:
    """All null, as long as the values are."""
    for value in values:
        if isinstance(value, pa.Array):
            return nulls(len(value), kind)
    return pa.scalar(None, kind)


def cast_to(value: Datum, kind: pa.DataType) -> Datum:
    """A value in a wider type; an integer becomes the nearest float, and wide texts stay so."""
    if value.type == kind or (pa.types.is_string(kind) and pa.types.is_large_string(value.type)):
        return value
    if pa.types.is_floating(kind):
        return value.cast(kind, safe=False)
    return value.cast(kind)


def columnar(work: Callable[..., Array], *values: Datum) -> Datum:
    """Run what works on columns over a mix of columns and scalars."""
    length = next((len(v) for v in values if isinstance(v, pa.Array)), None)
    out = work(*(as_array(v, 1 if length is None else length) for v in values))
    return out[0] if length is None else out
