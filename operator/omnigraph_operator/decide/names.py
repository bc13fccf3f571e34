"""Names and ids that are the same in every pass, so that doing a thing twice is doing it once."""

from __future__ import annotations

import hashlib
import json
from datetime import datetime
from typing import Any

from omnigraph_operator.decide.shapes import Purpose

__all__ = ["digest", "operation_id", "workload"]

_CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


def digest(*parts: Any) -> str:
    """32 hex digits over JSON-serialisable parts; order matters, the order of an object's keys doesn't."""
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"), ensure_ascii=False, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def workload(graph: str, purpose: Purpose, *parts: Any) -> str:
    """`<graph>-<purpose>-<8 hex>`: at most 40 + 1 + 8 + 1 + 8 characters."""
    return f"{graph}-{purpose.value}-{digest(purpose.value, *parts)[:8]}"


def operation_id(created: datetime, *parts: Any) -> str:
    """A ULID: its time is the object's creation, its random part a hash of what the operation is."""
    number = (int(created.timestamp() * 1000) & ((1 << 48) - 1)) << 80
    number |= int.from_bytes(hashlib.sha256(digest(*parts).encode()).digest()[:10], "big")
    return "".join(_CROCKFORD[(number >> shift) & 31] for shift in range(125, -1, -5))
