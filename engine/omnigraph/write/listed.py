"""Lists of dictionaries as tables: each dictionary is a record, which mentions the members that it has."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import date, datetime
from numbers import Number
from typing import Any, cast

import numpy as np
import pyarrow as pa

from omnigraph.errors import BadRequest
from omnigraph.read.compute import Array
from omnigraph.records import dataclass
from omnigraph.write.rows import short

__all__ = ["Listed", "listed"]

_SEVERAL = (list, tuple, set, frozenset)
_KINDS: tuple[tuple[type | tuple[type, ...], str], ...] = (
    ((bool, np.bool_), "a boolean"),
    ((Number, np.number), "a number"),
    (str, "a text"),
    ((bytes, bytearray, memoryview), "bytes"),
    ((datetime, np.datetime64), "a time"),
    (date, "a day"),
    ((*_SEVERAL, np.ndarray), "a list"),
)
_NESTED = 3  # lists and dictionaries in one another: no property has more, and Arrow's stack ends at some depth
_REFUSALS = (pa.ArrowException, OverflowError, TypeError, ValueError)  # what Arrow raises of a value of Python


@dataclass(frozen=True, slots=True)
class Listed:
    """A column per member of any record; `omitted`: by column, the rows (bool) without it, where there are any."""

    table: pa.Table
    omitted: Mapping[str, Array]


def listed(name: str, rows: Sequence[Mapping[Any, Any]]) -> Listed:
    """The records as columns.

    Args:
        name: the list's name in messages.

    Raises:
        BadRequest: a name is no text, or a value is none that a column holds beside the others; says which row.
    """
    members: dict[str, None] = {}
    for i, row in enumerate(rows):
        if row.keys() <= members.keys():
            continue
        for member in row:
            if not isinstance(member, str) or not _is_text(member):
                raise _refused(name, i, f"{member!r} is no text, and so no name of a member")
        members.update(dict.fromkeys(row))
    columns, omitted = {}, {}
    for member in members:
        columns[member] = _column(name, member, [row.get(member) for row in rows])
        if columns[member].null_count:
            lacking = np.fromiter((member not in row for row in rows), bool, len(rows))
            if lacking.any():
                omitted[member] = pa.array(lacking)
    if not members:  # Arrow counts the rows of columns, and these have none
        empty = cast("pa.StructArray", pa.array(rows, pa.struct([])))
        return Listed(pa.Table.from_struct_array(empty), {})
    return Listed(pa.table(columns), omitted)


def _column(name: str, member: str, values: list[Any]) -> Array:
    if _is_nested(values, _NESTED):
        row = next(i for i, value in enumerate(values) if _is_nested([value], _NESTED))
        raise _refused(name, row, f"{member}: lists or dictionaries within one another, {_NESTED} deep and more")
    if not _of_one_kind(values):
        _refuse_mixed(name, member, list(enumerate(values)))
    try:
        return _array(values)
    except _REFUSALS:
        i = bisect_left(range(len(values)), True, key=lambda at: _refuses(values[: at + 1]))
        raise _refused(name, i, f"{member}: {_shown(values[i])} is no value that a column could hold") from None


def _is_nested(values: Collection[Any], depth: int) -> bool:
    """Whether any of the values holds lists or dictionaries in one another, `depth` deep or deeper."""
    holding = {kind for kind in set(map(type, values)) if issubclass(kind, (*_SEVERAL, Mapping))}
    if not holding or depth == 1:
        return bool(holding)
    several = (value for value in values if type(value) in holding)
    return any(_is_nested(each.values() if isinstance(each, Mapping) else each, depth - 1) for each in several)


def _of_one_kind(values: list[Any]) -> bool:
    types = set(map(type, values)) - {type(None)}
    if len({_kind(each) for each in types}) > 1:
        return False
    within = any(issubclass(each, _SEVERAL) for each in types)
    return not within or _of_one_kind([each for value in values if isinstance(value, _SEVERAL) for each in value])


def _refuse_mixed(name: str, member: str, values: Sequence[tuple[int, Any]]) -> None:
    """Raises BadRequest for (row, value) of several kinds: of some Arrow would make one, with a loss."""
    kinds = {kind: _kind(kind) for kind in {type(value) for _, value in values} - {type(None)}}
    if len(set(kinds.values())) > 1:
        told = ((row, value, kinds[type(value)]) for row, value in values if value is not None)
        _, first, wanted = next(told)
        row, other, kind = next(one for one in told if one[2] != wanted)
        raise _refused(name, row, f"{member}: {_shown(other)} is {kind}, but {_shown(first)} before it is {wanted}")
    if within := [(row, each) for row, value in values if isinstance(value, _SEVERAL) for each in value]:
        _refuse_mixed(name, member, within)


def _kind(kind: type) -> str:
    return next((word for kinds, word in _KINDS if issubclass(kind, kinds)), f"a {kind.__name__}")


def _array(values: list[Any]) -> Array:
    try:
        return pa.array(values)
    except OverflowError:  # left alone, Arrow takes every integer for int64
        for unsigned, depth in ((pa.uint64(), 0), (pa.list_(pa.uint64()), 1)):
            with suppress(*_REFUSALS):
                if _are_integers(values, depth):
                    return pa.array(values, unsigned)
        raise


def _are_integers(values: Iterable[Any], depth: int) -> bool:
    """Whether Arrow, told to make integers of them, would leave every value as it is."""
    some = [v for v in values if v is not None]
    if depth:
        return all(isinstance(v, _SEVERAL) and _are_integers(v, depth - 1) for v in some)
    return all(isinstance(v, (int, np.integer)) for v in some)


def _refuses(values: list[Any]) -> bool:
    try:
        _array(values)
    except _REFUSALS:
        return True
    return False


def _shown(value: Any) -> str:
    try:
        return short(repr(value))
    except ValueError:  # Python writes no number of thousands of digits
        return "a number of thousands of digits"


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _refused(name: str, row: int, why: str) -> BadRequest:
    return BadRequest(f"table {name!r} row {row + 1}: {why}", code="bad_source", details={"row": row + 1})
