"""`cleanup`: old versions go, and the files that only they held (03 §3.5)."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta

from omnigraph.errors import BadRequest
from omnigraph.storage import CleanupReport, Repository

__all__ = ["FEW", "cleanup", "parse_age"]

FEW = 3
"""Below this many commits kept, readers that began a moment ago may find their version gone."""

_AGE = re.compile(r"(\d+)\s*([smhdw])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def parse_age(text: str) -> timedelta:
    """`90s`, `30m`, `12h`, `7d`, `2w`.

    Raises:
        BadRequest: anything else.
    """
    found = _AGE.fullmatch(text.strip())
    try:
        if found:
            return timedelta(**{_UNITS[found[2]]: int(found[1])})
    except OverflowError:
        pass
    raise BadRequest(f"{text!r} is no age: write a number and s, m, h, d or w, such as 12h or 7d")


def cleanup(
    repository: Repository,
    *,
    keep: int | None = None,
    older_than: timedelta | str | None = None,
    confirm: bool = False,
    notice: Callable[[str], None] | None = None,
) -> CleanupReport:
    """Remove what neither a kept commit nor anything that lives needs; see `Graph.cleanup`."""
    age = parse_age(older_than) if isinstance(older_than, str) else older_than
    return repository.cleanup(keep=keep, older_than=age, confirm=confirm, notice=notice)
