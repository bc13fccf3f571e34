"""How sources write texts, dates and CSV: the parts of a mapping that are checked by themselves.

Imports neither pyarrow nor lance, because the operator's CRDs are made from the same models.
"""

from __future__ import annotations

import codecs
import re
import zoneinfo
from array import array
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

__all__ = ["Constant", "CsvOptions", "DateFormat", "Form", "Text"]

_DIRECTIVE = re.compile(
    r"%[-_0^#]?\d*(E[cCxXyY]|O[bBdehHImMSUVwWy]|[aAbBcCdDeFgGhHIjklmMnprRsStTuUVwWxXyYzZ%])"
)  # those that strptime knows
_OFFSET = re.compile(r"[+-]([01]\d|2[0-3]):[0-5]\d")


def _unicode(value: Any) -> Any:
    """Half of a surrogate pair, which YAML and JSON can write, is no text that Arrow takes."""
    if isinstance(value, str) and any("\ud800" <= c <= "\udfff" for c in value):
        raise ValueError("holds half of a surrogate pair (\\ud800 to \\udfff), which is no text")
    return value


Text = Annotated[str, AfterValidator(_unicode)]
Constant = Annotated[str | int | float | bool | None, AfterValidator(_unicode)]


class DateFormat(BaseModel):
    """How dates or times are written as text."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    pattern: Text = Field(description="A strptime pattern, such as %d.%m.%Y")
    zone: Text = Field(default="UTC", description="IANA zone of times written without one")


def _readable(form: str | DateFormat) -> str | DateFormat:
    pattern, zone = (form, "UTC") if isinstance(form, str) else (form.pattern, form.zone)
    _unicode(pattern)
    wrong = re.search(r"%.?|\0", _DIRECTIVE.sub(" ", pattern), re.DOTALL)
    if wrong is not None:
        raise ValueError(f"the pattern {pattern!r} holds {wrong.group()!r}, which strptime doesn't know")
    if not any(d.group(1) not in ("%", "n", "t") for d in _DIRECTIVE.finditer(pattern)):
        raise ValueError(
            f"the pattern {pattern!r} names no part of a date; write it as strptime does, such as %d.%m.%Y"
        )
    if _OFFSET.fullmatch(zone) is None and not _is_zone(zone):
        raise ValueError(f"{zone!r} is no IANA time zone, such as Europe/Berlin")
    return form


Form = Annotated[str | DateFormat, AfterValidator(_readable)]


def _is_zone(name: str) -> bool:
    try:
        zoneinfo.ZoneInfo(name)
    except (ValueError, OSError, zoneinfo.ZoneInfoNotFoundError):
        return not zoneinfo.available_timezones()  # without their list, nothing can be said
    return True


def _character(value: str | None) -> str | None:
    if value is not None and (len(value) != 1 or not value.isascii() or value in "\0\r\n"):
        raise ValueError(f"takes one ASCII character that ends no line, not {value!r}")
    return value


Character = Annotated[str | None, AfterValidator(_character)]


def _encoding(name: str) -> str:
    try:
        "".encode(name)  # LookupError: of bytes to bytes, say
        codecs.getincrementaldecoder(name)().decode(array("B", b"a"))  # from a buffer, as files are
    except (LookupError, ValueError, TypeError, AttributeError) as error:
        raise ValueError(f"{name!r} names no encoding") from error
    return name


class CsvOptions(BaseModel):
    """How a CSV file is written."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    delimiter: Character = Field(default=None, description="What separates cells: a comma, of .tsv a tab")
    quote: Character = Field(default=None, description='What encloses cells: "')
    escape: Character = Field(default=None, description="What makes the next character a plain one: none")
    encoding: Annotated[str, AfterValidator(_encoding)] = Field(default="utf8", description="The text's encoding")
    header: bool = Field(default=True, description="Whether the first row names the columns; if not: f0, f1, …")

    @model_validator(mode="after")
    def _distinct(self) -> CsvOptions:
        given = [c for c in (self.delimiter or ",", self.quote or '"', self.escape) if c is not None]
        if len(set(given)) < len(given):
            raise ValueError("delimiter, quote and escape are different characters")
        return self
