"""ULIDs as texts: the names of commits, operations and sidecars.

The package that makes them is imported at first use: a process that only reads makes none, and its import reads what is
installed.
"""

from __future__ import annotations

__all__ = ["new_ulid", "ulid_seconds"]


def new_ulid() -> str:
    from ulid import ULID

    return str(ULID())


def ulid_seconds(text: str) -> float:
    """When a ULID was made, as seconds since the epoch. Raises ValueError: it is none."""
    from ulid import ULID

    return float(ULID.from_str(text).timestamp)
