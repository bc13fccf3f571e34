"""Literals of both languages: from tokens to Python values, and the one judgement whether a value fits a type.

Python values by type: String, Enum `str`; Bool `bool`; integers `int`; floats `float`; Date `datetime.date`; DateTime
`datetime.datetime` (UTC, whole milliseconds); lists and vectors `tuple`; null `None`.
"""

from __future__ import annotations

import datetime as dt
import json
import math
import re
import struct
from collections.abc import Sequence
from typing import Any

from omnigraph.records import dataclass
from omnigraph.schema.catalog import INTEGERS, Type
from omnigraph.schema.grammar import RefusedWhileParsing

__all__ = [
    "BOUNDS",
    "Literal",
    "Mismatch",
    "fit",
    "is_zero",
    "parse_date",
    "parse_datetime",
    "read_float",
    "read_int",
    "read_string",
]

BOUNDS = {
    "I32": (-(2**31), 2**31 - 1),
    "I64": (-(2**63), 2**63 - 1),
    "U32": (0, 2**32 - 1),
    "U64": (0, 2**64 - 1),
}
_MOST_F32 = struct.unpack("<f", b"\xff\xff\x7f\x7f")[0]
_ZERO_F32 = 2.0**-150  # half of the least number above zero: rounds to zero
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_DATETIME = re.compile(
    r"(\d{4}-\d{2}-\d{2})[Tt ](\d{2}:\d{2}(?::\d{2}(?:\.(\d{1,9}))?)?)([Zz]|[+-]\d{2}:?\d{2})?", re.ASCII
)


@dataclass(frozen=True, slots=True)
class Literal:
    """A literal as written. `kind`: string int float bool null list date datetime; a list's `value` is a tuple of
    `Literal`, a date's or datetime's the text between the quotes."""

    kind: str
    value: Any
    place: tuple[int, int]

    def python(self) -> Any:
        """The value without any type asked of it.

        Raises:
            Mismatch: a date or datetime that doesn't exist.
        """
        if self.kind == "list":
            return tuple(item.python() for item in self.value)
        if self.kind == "date":
            return parse_date(self.value)
        if self.kind == "datetime":
            return parse_datetime(self.value)
        return self.value


class Mismatch(ValueError):
    """A value doesn't fit a type; `str()` says why in words that follow the value's name."""


def read_string(token: str, start: int) -> str:
    text = json.loads(token, strict=False) if "\\" in token else token[1:-1]  # control characters may stand raw
    if any("\ud800" <= c <= "\udfff" for c in text):
        raise RefusedWhileParsing("half of a surrogate pair in a string", start, start + len(token))
    return str(text)


def read_int(token: str, start: int) -> int:
    if len(token) > 40:
        raise RefusedWhileParsing("this number is too long", start, start + len(token))
    return int(token)


def read_float(token: str, start: int) -> float:
    value = float(token)
    if math.isinf(value):
        raise RefusedWhileParsing("this number is too large", start, start + len(token))
    return value


def parse_date(text: str) -> dt.date:
    if _DATE.fullmatch(text):
        try:
            return dt.date.fromisoformat(text)
        except ValueError:
            pass
    raise Mismatch(f"{text[:60]!r} is not a date; write YYYY-MM-DD")


def parse_datetime(text: str) -> dt.datetime:
    """UTC, at most milliseconds; a text without a zone is UTC."""
    match = _DATETIME.fullmatch(text)
    if match is None:
        raise Mismatch(f"{text[:60]!r} is not a date and time; write YYYY-MM-DDTHH:MM:SS.mmmZ")
    if match[3] and match[3][3:].strip("0"):
        raise Mismatch(f"{text[:60]!r} is finer than a millisecond")
    zone = match[4] or "Z"
    fraction = f".{match[3][:3]:0<3}" if match[3] else ""
    clock = match[2].split(".")[0]
    try:
        value = dt.datetime.fromisoformat(
            f"{match[1]}T{clock}{fraction if clock.count(':') == 2 else ''}{'+00:00' if zone in 'Zz' else zone}"
        )
        return value.astimezone(dt.UTC)
    except (ValueError, OverflowError):
        raise Mismatch(f"{text[:60]!r} is not a date and time that exists") from None


def fit(value: Any, type: Type, *, json_forms: bool = False) -> Any:
    """The value as one of `type`, in the Python form above.

    Dates may come as ISO texts. With `json_forms` (parameters from JSON) 64-bit integers may come as decimal texts and
    integral floats as integers.

    Raises:
        Mismatch: it isn't one.
    """
    if value is None:
        if type.nullable:
            return None
        raise Mismatch(f"null is not {_article(type)}")
    if type.list:
        if not isinstance(value, (list, tuple)):
            raise Mismatch(f"{_show(value)} is not a list")
        element = Type(type.base, enum=type.enum, dim=type.dim)
        return tuple(fit(item, element, json_forms=json_forms) for item in value)
    base = type.base
    if base in INTEGERS:
        return _fit_integer(value, base, json_forms)
    if base in ("F32", "F64"):
        return _fit_float(value, base)
    if base == "Bool":
        if isinstance(value, bool):
            return value
    elif base in ("String", "Blob"):
        if base == "Blob" and isinstance(value, (bytes, bytearray, memoryview)):
            return bytes(value)
        if isinstance(value, str):
            # JSON can spell half a character, UTF-8 can't.
            if not value.isascii() and any("\ud800" <= c <= "\udfff" for c in value):
                raise Mismatch("the text holds half a surrogate pair, which is no character")
            return value
    elif base == "Enum":
        if value in type.enum if isinstance(value, str) else False:
            return value
        raise Mismatch(f"{_show(value)} is not one of {', '.join(type.enum)}")
    elif base == "Date":
        if isinstance(value, dt.date) and not isinstance(value, dt.datetime):
            return value
        if isinstance(value, str):
            return parse_date(value)
    elif base == "DateTime":
        if isinstance(value, dt.datetime):
            return _fit_datetime(value)
        if isinstance(value, str):
            return parse_datetime(value)
    elif base == "Vector":
        return _fit_vector(value, type.dim)
    raise Mismatch(f"{_show(value)} is not {_article(type)}")


def _fit_integer(value: Any, base: str, json_forms: bool) -> int:
    if json_forms and isinstance(value, str) and re.fullmatch(r"-?\d{1,20}", value, re.ASCII):
        value = int(value)
    if json_forms and isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise Mismatch(f"{_show(value)} is not {_article(Type(base))}")
    low, high = BOUNDS[base]
    if not low <= value <= high:
        raise Mismatch(f"{_show(value)} is out of the range of {base} ({low} to {high})")
    return value


def _fit_float(value: Any, base: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise Mismatch(f"{_show(value)} is not {_article(Type(base))}")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise Mismatch(f"{_show(value)} is not a finite number")
    if base == "F32" and abs(number) > _MOST_F32:
        raise Mismatch(f"{_show(value)} is out of the range of F32")
    return number


def _fit_datetime(value: dt.datetime) -> dt.datetime:
    if value.microsecond % 1000 or getattr(value, "nanosecond", 0):  # pandas' times have nanoseconds beside
        raise Mismatch(f"{value.isoformat()} is finer than a millisecond")
    try:
        return value.replace(tzinfo=dt.UTC) if value.tzinfo is None else value.astimezone(dt.UTC)
    except OverflowError:
        raise Mismatch(f"{value.isoformat()} is not in the years 1 to 9999 of UTC") from None


def _fit_vector(value: Any, dim: int) -> tuple[float, ...]:
    if not isinstance(value, (list, tuple)):
        raise Mismatch(f"{_show(value)} is not a vector")
    if len(value) != dim:
        raise Mismatch(f"a vector of {len(value)} numbers where {dim} are expected")
    if (
        {*map(type, value)} == {float}
        and math.isfinite(sum(value))
        and -_MOST_F32 <= min(value) <= max(value) <= _MOST_F32
    ):
        return tuple(value)  # what all but strange vectors are, in a tenth of the time
    return tuple(_fit_float(item, "F32") for item in value)


def is_zero(vector: Sequence[float]) -> bool:
    """Whether a vector is all zeros as it is kept, in single precision: it has no direction."""
    return all(abs(number) <= _ZERO_F32 for number in vector)


def _article(type: Type) -> str:
    name = str(Type(type.base, list=type.list, enum=type.enum, dim=type.dim))
    return f"an {name}" if name[0] in "AEI" or name.startswith("[I") else f"a {name}"


def _show(value: Any) -> str:
    if isinstance(value, str):
        return json.dumps(value[:60], ensure_ascii=False)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value) if abs(value) < 10**40 else "this number"
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, (list, tuple)):
        return "a list"
    if isinstance(value, (dt.date, dt.datetime)):
        return value.isoformat()
    return f"a {type(value).__name__}"
