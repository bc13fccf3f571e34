"""JSON values of records: what a line holds, and each value in the form of its property's type."""

from __future__ import annotations

import json
import re
import sys
from datetime import date, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any

import pyarrow as pa

from omnigraph.json_text import NotJson, read_json
from omnigraph.schema.catalog import Type

__all__ = ["json_type", "json_value", "kind_name", "layout_hint", "value_of"]

_JSON: dict[str, pa.DataType] = {
    "I32": pa.int64(),
    "I64": pa.int64(),
    "U32": pa.int64(),
    "U64": pa.uint64(),
    "F32": pa.float64(),
    "F64": pa.float64(),
    "Bool": pa.bool_(),
}
_INTEGER = re.compile(r"-?[0-9]+", re.ASCII)


class _Rounded(float):
    """A whole number that isn't what was written; `whole` is, or None where that is no whole number."""

    __slots__ = ("whole",)
    whole: int | None


def _number(text: str) -> float:
    """A number written with a point or an exponent."""
    value = float(text)
    if not value.is_integer() or abs(value) > 2**64:
        return value
    try:
        exact = Decimal(text)
        whole = int(exact) if exact == exact.to_integral_value() else None
    except InvalidOperation:  # too small even for it
        whole = None
    if whole == value:
        return value
    rounded = _Rounded(value)
    rounded.whole = whole
    return rounded


def json_value(line: bytes) -> Any:
    """What a line holds. Whole numbers are read from it exactly by `value_of`, however they are written.

    Raises:
        ValueError: it isn't one JSON value of UTF-8; its words say why.
    """
    try:
        return read_json(line.decode("utf-8").removeprefix("\ufeff"), parse_float=_number)
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8 at byte {error.start + 1} of the line") from error
    except NotJson as error:
        place = "" if error.column is None else f" at column {error.column}{layout_hint(line)}"
        raise ValueError(f"not one JSON record: {error.problem}{place}") from error


def layout_hint(line: bytes) -> str:
    """What to do where the file looks like JSON that isn't one record a line."""
    start = line.strip()
    if start[:1] == b"[":
        return "; an array isn't read: write one record a line (jq -c '.[]' does)"
    return "; write each record on one line (jq -c . does)" if start == b"{" else ""


def json_type(kind: Type) -> pa.DataType:
    """How a property's value stands in JSON."""
    if kind.base == "Vector":
        return pa.list_(pa.float32())
    base = _JSON.get(kind.base, pa.string())
    return pa.list_(base) if kind.list else base


def value_of(value: Any, kind: Type | None) -> Any:
    """A JSON value in the form of `json_type`; without a type, a composite key's parts as texts.

    Raises:
        ValueError: it isn't one of the type.
    """
    if kind is None:
        if not isinstance(value, list) or any(v is None or isinstance(v, (list, dict, float)) for v in value):
            raise ValueError
        return [v if isinstance(v, str) else json.dumps(v) for v in value]
    if kind.list or kind.base == "Vector":
        if not isinstance(value, list):
            raise ValueError
        element = Type("F64") if kind.base == "Vector" else Type(kind.base, enum=kind.enum)
        out = [value_of(v, element) for v in value]
        if kind.base == "Vector" and len(out) != kind.dim:
            raise ValueError
        return out
    if kind.base == "Bool":
        if not isinstance(value, bool):
            raise ValueError
        return value
    if kind.base in ("I32", "I64", "U32", "U64"):
        return _integer(value, kind.base)
    if kind.base in ("F32", "F64"):
        if isinstance(value, bool) or not isinstance(value, (int, float)) or abs(value) > sys.float_info.max:
            raise ValueError
        return float(value)
    if kind.base == "Date" and isinstance(value, int) and not isinstance(value, bool):
        return (date(1970, 1, 1) + _days(value)).isoformat()
    if not isinstance(value, str):
        raise ValueError
    return value


def _days(count: int) -> timedelta:
    try:
        date(1970, 1, 1) + timedelta(count)
    except OverflowError as error:
        raise ValueError from error
    return timedelta(count)


def _integer(value: Any, base: str) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise ValueError
    if isinstance(value, _Rounded):
        if value.whole is None:
            raise ValueError
        value = value.whole
    if isinstance(value, float) and not value.is_integer():
        raise ValueError
    if isinstance(value, str) and _INTEGER.fullmatch(value) is None:  # Python's own reading takes "1_000" and " 1"
        raise ValueError
    number = int(value)
    low, high = (0, 2**64) if base == "U64" else (-(2**63), 2**63)
    if not low <= number < high:
        raise ValueError
    return number


def kind_name(value: Any) -> str:
    names = {list: "an array", str: "a string", bool: "a boolean", int: "a number", float: "a number"}
    return names.get(type(value), "null")
