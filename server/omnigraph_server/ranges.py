"""Byte ranges and entity tags of a request (RFC 9110 §13, §14). Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["Range", "matches", "range_applies", "range_of"]

_RANGE = re.compile(r"bytes\s*=\s*(\d*)\s*-\s*(\d*)", re.IGNORECASE | re.ASCII)
_TAGS = re.compile(r'\s*(?:(W/)?"([\x21\x23-\x7e\x80-\xff]*)")\s*(?:,|$)')
_DIGITS = 19  # more of them is no size of anything


@dataclass(frozen=True, slots=True)
class Range:
    """Bytes [start, end); `satisfiable` is false where the request means bytes that aren't there."""

    start: int
    end: int
    satisfiable: bool = True


def range_of(header: str | None, size: int) -> Range | None:
    """The range that a `Range` header asks for.

    Returns:
        None where the whole is to be sent: there is no header, or it has another unit, several ranges, or no sense,
        which a server may all ignore.
    """
    found = _RANGE.fullmatch(header.strip()) if header is not None else None
    if found is None or found[1] == found[2] == "" or max(len(found[1]), len(found[2])) > _DIGITS:
        return None
    if found[1] == "":
        suffix = int(found[2])
        return Range(max(size - suffix, 0), size, satisfiable=suffix > 0 and size > 0)
    start = int(found[1])
    last = int(found[2]) if found[2] else size - 1
    if found[2] and last < start:
        return None
    return Range(start, min(last + 1, size), satisfiable=start < size)


def matches(header: str | None, etag: str, *, weak: bool) -> bool | None:
    """Whether an `If-Match` (strong) or `If-None-Match` (weak) header names the tag; None where there is none.

    Args:
        etag: without its quotes.
    """
    if header is None:
        return None
    if header.strip() == "*":
        return True
    at = 0
    while at < len(header):
        tag = _TAGS.match(header, at)
        if tag is None:
            return False  # no list of tags: it names none
        if tag[2] == etag and (weak or tag[1] is None):
            return True
        at = tag.end()
    return False


def range_applies(if_range: str | None, etag: str) -> bool:
    """Whether what the caller has is of the same tag, so that a range completes it. A date never says so."""
    return if_range is None or if_range.strip() == f'"{etag}"'
