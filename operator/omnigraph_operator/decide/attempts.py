"""Failed attempts: how many, what they mean, when the next one may start."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from omnigraph_operator.decide.conditions import timestamp
from omnigraph_operator.decide.shapes import Observed, Phase, Workload

__all__ = ["LIMIT", "Track", "failure_message", "track"]

LIMIT = 3  # failures that count, after which somebody has to look
INTERRUPTED_LIMIT = 30  # attempts ended from outside (killed, evicted), which say little about the work itself
BACKOFF_SECONDS = 5.0
INTERRUPTED_BACKOFF_SECONDS = 0.5
BACKOFF_LIMIT_SECONDS = 300.0
INTERRUPTED_BACKOFF_LIMIT_SECONDS = 10.0
STEADY_SECONDS = 60.0  # a server that lived this long didn't fail to start

# Result codes of failures that may go away by themselves; any other refusal stands until something is changed.
RETRYABLE = frozenset(
    {
        "unavailable", "os_error", "conflict", "recovery_pending",
        "expected_version_mismatch", "row_level_cas_contention", "deadline_exceeded",
    }
)  # fmt: skip
_KILLED = frozenset({None, -9, -15, -2, -1, 130, 137, 143})


@dataclass(frozen=True, slots=True)
class Track:
    """Where one piece of work stands.

    Args:
        attempt: the attempt that is current; its workload is `current`, None when it hasn't been started.
        exhausted: no further attempt without a change.
        wait_seconds: until the next attempt may start; 0 when it may.
        entry: for `status.attempts`, None when nothing failed.
    """

    attempt: int
    current: Workload | None
    exhausted: bool = False
    wait_seconds: float = 0.0
    entry: Mapping[str, Any] | None = None
    code: str = ""
    message: str = ""

    def seconds_since_failure(self, now: datetime) -> float:
        """Since the last attempt failed; 0 when its end isn't known."""
        last = (self.entry or {}).get("lastFailed")
        return (now - datetime.fromisoformat(last)).total_seconds() if last else 0.0

    @property
    def succeeded(self) -> bool:
        return self.current is not None and self.current.phase is Phase.SUCCEEDED and self.current.gone


def track(observed: Observed, work: str, digest: str, name_of: Callable[[int], str], *, round_: str) -> Track:
    """Counts the attempts of one piece of work, from the stored status and from what is still there.

    Args:
        work: which work, as in `status.attempts`.
        name_of: the workload's name for an attempt.
        round_: generation and reconcile-at; a change of it allows another round after the limit.
    """
    stored = next((e for e in observed.status.get("attempts", ()) if e["work"] == work and e["digest"] == digest), None)
    entry: dict[str, Any] = dict(stored) if stored else {"work": work, "digest": digest, "failures": 0, "round": round_}
    current = observed.workloads.get(name_of(entry["failures"]))
    while current is not None and current.ended and current.phase is Phase.FAILED:
        _count(entry, current)
        current = observed.workloads.get(name_of(entry["failures"]))
    if entry["failures"] == 0:
        return Track(0, current)
    since = entry.get("since", 0)
    counted, interrupted = entry.get("counted", 0), entry["failures"] - since - entry.get("counted", 0)
    exhausted = entry.get("permanent", False) or counted >= LIMIT or interrupted >= INTERRUPTED_LIMIT
    if exhausted and entry["round"] != round_:
        entry |= {"since": entry["failures"], "counted": 0, "permanent": False, "round": round_}
        exhausted, counted, interrupted = False, 0, 0
    wait = 0.0
    if not exhausted and current is None and counted + interrupted > 0:
        wait = _wait(entry, counted, interrupted, observed.now)
    return Track(
        attempt=entry["failures"],
        current=current,
        exhausted=exhausted and current is None,
        wait_seconds=wait,
        entry=entry,
        code=entry.get("code", ""),
        message=entry.get("message", ""),
    )


def _count(entry: dict[str, Any], failed: Workload) -> None:
    entry["failures"] += 1
    entry["lastFailed"] = timestamp(failed.finished) or entry.get("lastFailed")
    code = str((failed.result or {}).get("code") or "")
    killed = failed.result is None and failed.exit_code in _KILLED and "OOM" not in failed.message
    interrupted = killed or code == "terminated"
    if failed.purpose.serves and failed.started and failed.finished:
        interrupted = (
            interrupted
            or failed.exit_code == 0
            or failed.finished - failed.started >= timedelta(seconds=STEADY_SECONDS)
        )
    if not interrupted:
        entry["counted"] = entry.get("counted", 0) + 1
    entry["permanent"] = (
        failed.result is not None and code not in RETRYABLE and not (interrupted or failed.purpose.serves)
    )
    entry["code"] = "interrupted" if interrupted else code or "failed"
    entry["message"] = failure_message(failed)[:4096]


def _wait(entry: Mapping[str, Any], counted: int, interrupted: int, now: datetime) -> float:
    last = entry.get("lastFailed")
    if not last:
        return 0.0
    if entry["code"] == "interrupted":
        pause = min(INTERRUPTED_BACKOFF_LIMIT_SECONDS, INTERRUPTED_BACKOFF_SECONDS * 2.0 ** min(interrupted - 1, 10))
    else:
        pause = min(BACKOFF_LIMIT_SECONDS, BACKOFF_SECONDS * 2.0 ** min(max(counted, 1) - 1, 10))
    return float(max(0.0, pause - (now - datetime.fromisoformat(last)).total_seconds()))


def failure_message(failed: Workload) -> str:
    """Why a workload failed, for people: the task's own words before the platform's."""
    own = str((failed.result or {}).get("message") or "")
    if own or failed.message:
        return own or failed.message
    return f"{failed.name} ended with exit code {failed.exit_code} and said nothing"
