"""Points in a graph's history, as people write them. Pure text in, values out.

A *moment* is a manifest version, a commit id or a time. A *point* is a branch (`draft`), a branch at a moment
(`draft@12`, `main@2026-01-31`, `main@01J9…`), or a commit id alone.
"""

from __future__ import annotations

from datetime import UTC, datetime

__all__ = ["parse_moment", "split_point"]


def parse_moment(text: str) -> int | str | datetime:
    """Digits are a manifest version, an ISO date or time a moment (UTC unless it says), anything else a commit id."""
    # A ULID may be all digits too, but has 26 of them.
    if text.isdecimal() and len(text) < 20:
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return text
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def split_point(text: str) -> tuple[str, int | str | datetime | None]:
    """The name before the `@` (a branch or a commit id) and the moment after it; None where there is none."""
    name, at, moment = text.partition("@")
    return name, parse_moment(moment) if at else None
