"""Conditions as kstatus reads them, and the events that their changes are worth."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from omnigraph_operator.decide.shapes import Emit

__all__ = ["Fact", "condition", "conditions", "events", "timestamp"]

MESSAGE_LIMIT = 4096  # characters; the CRD allows twice as many


@dataclass(frozen=True, slots=True)
class Fact:
    """A condition before it has its generation and time. `holds` None is Unknown."""

    type: str
    holds: bool | None
    reason: str
    message: str = ""


def timestamp(moment: datetime | None) -> str | None:
    """As the API server writes times: UTC, whole seconds, Z."""
    if moment is None:
        return None
    return moment.astimezone(UTC).replace(microsecond=0).isoformat().replace("+00:00", "Z")


def conditions(
    facts: Iterable[Fact], previous: Iterable[Mapping[str, Any]], *, generation: int, now: datetime
) -> list[dict[str, Any]]:
    """The status's condition list, in the order of the facts. A transition time is kept while the status is."""
    before = {c["type"]: c for c in previous}
    out = []
    for fact in facts:
        status = "Unknown" if fact.holds is None else str(fact.holds)
        old = before.get(fact.type)
        since = old["lastTransitionTime"] if old and old["status"] == status else timestamp(now)
        out.append(
            {
                "type": fact.type,
                "status": status,
                "observedGeneration": generation,
                "lastTransitionTime": since,
                "reason": fact.reason,
                "message": _cut(fact.message),
            }
        )
    return out


def condition(status: Mapping[str, Any], type_: str) -> Mapping[str, Any] | None:
    """The condition of a type in a status, or None."""
    return next((c for c in status.get("conditions", ()) if c["type"] == type_), None)


# Which conditions people want to hear of, and when they are bad news.
_HEARD: Mapping[str, bool] = {
    "Initialized": True, "RecoveryClean": True, "Loaded": True, "IndexesReady": True, "Serving": True,
    "Ready": True, "Stalled": False, "Paused": False,
}  # fmt: skip


def events(previous: Mapping[str, Any], facts: Iterable[Fact]) -> list[Emit]:
    """An event for every condition that became true, and a warning for one that became bad."""
    out = []
    for fact in facts:
        good = _HEARD.get(fact.type)
        if good is None or fact.holds is None:
            continue
        old = condition(previous, fact.type)
        changed = old is None or old["status"] != str(fact.holds) or (fact.holds and old["reason"] != fact.reason)
        bad = fact.type == "Stalled" and fact.holds
        lost = good and not fact.holds and old is not None and old["status"] == "True"
        if changed and (fact.holds or lost):
            level: Literal["Normal", "Warning"] = "Warning" if bad or lost else "Normal"
            out.append(Emit(level, fact.reason, _cut(fact.message or fact.type, 1024)))
    return out


def _cut(text: str, limit: int = MESSAGE_LIMIT) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"
