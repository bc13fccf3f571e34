"""What a caller gives of another kind than it must be, refused by the argument's name."""

from __future__ import annotations

import os
from collections.abc import Iterable

from omnigraph.errors import BadRequest

__all__ = ["expect_number", "expect_path", "expect_text", "is_text", "listed"]


def is_text(value: str) -> bool:
    """Whether UTF-8 can hold it: half a surrogate pair is a letter of Python's alone."""
    return value.isascii() or not any("\ud800" <= c <= "\udfff" for c in value)


def expect_text(name: str, value: object) -> None:
    """Raises BadRequest unless the argument is a text."""
    if not isinstance(value, str):
        raise BadRequest(f"{name} is a text, not {_kind(value)}")


def expect_number(name: str, value: object, *, fractions: bool = False) -> None:
    """Raises BadRequest unless the argument is a whole number, or any number."""
    if isinstance(value, bool) or not isinstance(value, (int, float) if fractions else int):
        raise BadRequest(f"{name} is a {'number' if fractions else 'whole number'}, not {_kind(value)}")


def expect_path(name: str, value: object) -> None:
    """Raises BadRequest unless the argument is a path or URI that a file may have."""
    if not isinstance(value, (str, os.PathLike)):
        raise BadRequest(f"{name} is a path or URI, not {_kind(value)}")
    if "\0" in str(value) or not is_text(str(value)):
        raise BadRequest(f"{name} {str(value)!r}: no file can have this name")


def listed(name: str, given: str | Iterable[str] | None) -> list[str] | None:
    """Names that may be given as one text: a text's letters are never meant."""
    if given is None or isinstance(given, str):
        return None if given is None else [given]
    if not isinstance(given, Iterable):
        raise BadRequest(f"{name} is a text or several, not {_kind(given)}")
    names = list(given)
    for one in names:
        expect_text(f"each of {name}", one)
    return names


def _kind(value: object) -> str:
    return "None" if value is None else f"a {type(value).__name__}"
