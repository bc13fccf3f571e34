"""The writer: who may move a graph's tables next, and what has to happen before. A machine over observation alone.

| observed | next |
|---|---|
| no lease, a write is wanted | take it for that workload |
| our lease, no sweep since it was taken | start the sweep |
| sweep failed too often | stalled with the reason; no writer |
| sweep succeeded, workload absent | start the workload |
| holder terminal, not all gone | wait; past the deadline stop |
| holder terminal and gone, or absent | release |
| forward sweep left something to roll back | fence: stop the read-write server, full sweep |

"Since it was taken" is exact: a sweep's name holds the lease's transition count.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from omnigraph_operator.decide import names
from omnigraph_operator.decide.attempts import track
from omnigraph_operator.decide.shapes import (
    Action,
    Desired,
    Observed,
    Purpose,
    ReleaseWriter,
    Start,
    Stop,
    SweepMode,
    TakeWriter,
    Work,
    Workload,
)

__all__ = ["Step", "describe", "pending_of", "server_lives", "step", "sweep_name"]

LINGER_SECONDS = 120.0  # how long parts of an ended workload may still live before they are stopped
NO_SWEEP = frozenset({Purpose.INIT, Purpose.DELETE})  # nothing there yet, or nothing to keep


@dataclass(frozen=True, slots=True)
class Step:
    """What the writer does in this pass.

    Args:
        stalled: reason and message when nobody may write until somebody acts.
        waiting_for: the holder that the wanted workload waits for.
        entry: the sweep's failed attempts, for `status.attempts`.
    """

    actions: tuple[Action, ...] = ()
    again_in: float | None = None
    stalled: tuple[str, str] | None = None
    waiting_for: str | None = None
    doing: str = ""
    entry: Mapping[str, Any] | None = None


def step(desired: Desired, observed: Observed, wanted: Work | None, *, round_: str) -> Step:
    """The next step towards running `wanted`, or towards a free lease when nothing is wanted."""
    lease = observed.lease
    if lease.holder is None:
        return _take(observed, wanted)
    if lease.owner not in (None, desired.uid):
        return Step(waiting_for=lease.holder if wanted else None, again_in=15.0)
    if wanted is None or wanted.name != lease.holder:
        settled = _settle(observed, lease.holder)
        return settled if wanted is None or settled.actions else _waiting(settled, lease.holder)
    if wanted.name in observed.workloads:
        there = observed.workloads[wanted.name]
        # What keeps it from running (an image, a volume) is worth saying; otherwise its stage says what it does.
        return Step(doing=f"{there.name}: {there.message}" if there.message and not there.phase.terminal else "")
    if wanted.purpose in NO_SWEEP:
        return Step((Start(wanted),), 0.0)
    return _swept(desired, observed, wanted, round_)


def sweep_name(desired: Desired, holder: str, transitions: int, mode: SweepMode, attempt: int) -> str:
    """The sweep that belongs to one taking of the lease."""
    return names.workload(desired.name, Purpose.SWEEP, desired.uid, holder, transitions, mode, attempt)


def server_lives(observed: Observed) -> bool:
    """A read-write server, or a part of one, may still write."""
    return any(w.purpose is Purpose.SERVE_RW and not w.ended for w in observed.workloads.values())


def pending_of(sweep: Workload) -> list[str]:
    """What a sweep found and left, one text each."""
    result = sweep.result or {}
    report = result.get("sweep") or {}
    pending = [describe(p) for p in report.get("pending", ()) or ()]
    if not pending and result.get("code") == "recovery_pending":
        pending = [str(result.get("message") or "an interrupted write")]
    return pending


def describe(item: Any) -> str:
    """One interrupted write or its outcome as a line."""
    if not isinstance(item, dict):
        return str(item)
    words = [str(item[k]) for k in ("operationId", "sidecar", "writerKind", "outcome") if item.get(k)]
    return " ".join(words) or str(item)


def _short_writers(observed: Observed) -> list[Workload]:
    return sorted(
        (w for w in observed.workloads.values() if w.writes and not w.purpose.serves and not w.ended),
        key=lambda w: (w.purpose is Purpose.SWEEP, w.name),
    )


def _take(observed: Observed, wanted: Work | None) -> Step:
    living = _short_writers(observed)
    if living and living[0].purpose is not Purpose.SWEEP:
        # It runs without the lease (which was lost from outside): nobody else gets it before.
        return Step((TakeWriter(living[0].name),), 0.0, waiting_for=living[0].name)
    if living:
        return Step(waiting_for=living[0].name, again_in=5.0)
    if wanted is None:
        return Step()
    return Step((TakeWriter(wanted.name),), 0.0)


def _settle(observed: Observed, holder: str) -> Step:
    """Towards releasing a lease whose holder isn't what is wanted next."""
    workload = observed.workloads.get(holder)
    living = [w for w in _short_writers(observed) if w.name != holder]
    if workload is not None and not workload.ended:
        if workload.purpose.serves and workload.ready and not living:
            return Step((ReleaseWriter(holder),), 0.0)
        if workload.phase.terminal and workload.finished is not None:
            over = (observed.now - workload.finished).total_seconds() - LINGER_SECONDS
            if over >= 0:
                return Step((Stop(holder, "its parts outlived it"),), 15.0)
            return Step(again_in=min(15.0, -over))
        return Step()
    if living:
        return Step(again_in=5.0)
    return Step((ReleaseWriter(holder),), 0.0)


def _waiting(settled: Step, holder: str) -> Step:
    return Step(settled.actions, settled.again_in, waiting_for=holder)


def _swept(desired: Desired, observed: Observed, wanted: Work, round_: str) -> Step:
    """The lease is ours and the workload isn't there: sweep, then start it."""
    lives = server_lives(observed)
    mode: SweepMode = "forward" if lives else "full"
    transitions = observed.lease.transitions

    def name_of(attempt: int) -> str:
        return sweep_name(desired, wanted.name, transitions, mode, attempt)

    tracked = track(observed, "sweep", names.digest(wanted.name, transitions, mode), name_of, round_=round_)
    pending = pending_of(tracked.current) if tracked.current is not None and tracked.succeeded else []
    if not pending and tracked.code == "recovery_pending" and tracked.current is None:
        pending = [tracked.message]
    if pending:
        return _roll_back(desired, observed, pending, tracked.entry, round_)
    if tracked.exhausted:
        return _again(observed, round_) or Step(
            stalled=("SweepFailed", f"the recovery sweep failed: {tracked.message}"), entry=tracked.entry
        )
    if tracked.succeeded:
        return Step((Start(wanted),), 0.0)
    if tracked.current is not None:
        return Step(
            doing=f"{tracked.current.name} settles interrupted writes before {wanted.name}", entry=tracked.entry
        )
    if tracked.wait_seconds > 0:
        return Step(again_in=tracked.wait_seconds, doing=f"sweep again after: {tracked.message}", entry=tracked.entry)
    if _short_writers(observed):
        return Step(again_in=5.0, entry=tracked.entry)
    sweep = Work(
        name=name_of(tracked.attempt),
        graph=desired.name,
        purpose=Purpose.SWEEP,
        digest=names.digest(wanted.name, transitions, mode),
        attempt=tracked.attempt,
        writes=True,
        operation_id=names.operation_id(desired.created, desired.uid, "sweep", wanted.name, transitions, mode),
        sweep=mode,
        deadline_seconds=desired.spec.recovery.timeout_seconds,
    )
    return Step(
        (Start(sweep),), 0.0, doing=f"{sweep.name} settles interrupted writes before {wanted.name}", entry=tracked.entry
    )


def _roll_back(
    desired: Desired, observed: Observed, pending: list[str], entry: Mapping[str, Any] | None, round_: str
) -> Step:
    what = "; ".join(pending)
    if not server_lives(observed):
        return _again(observed, round_) or Step(
            stalled=("RecoveryPending", f"a full sweep left interrupted writes: {what}"), entry=entry
        )
    if desired.spec.recovery.on_rollback == "Hold":
        message = f"a roll-back is needed beside the read-write server and recovery.onRollback is Hold: {what}"
        return _again(observed, round_) or Step(stalled=("RollBackHeld", message), entry=entry)
    servers = [w for w in observed.workloads.values() if w.purpose is Purpose.SERVE_RW and not w.ended]
    stops = tuple(Stop(w.name, "fenced: a write must be rolled back") for w in servers)
    return Step(stops, 1.0, doing=f"fencing the read-write server to roll back {what}", entry=entry)


def _again(observed: Observed, round_: str) -> Step | None:
    """Somebody changed the spec or asked for another pass: taking the lease anew asks for a new sweep."""
    status = observed.status
    handled = f"{status.get('observedGeneration', -1)}/{status.get('lastHandledReconcileAt', '')}"
    if handled == round_ or observed.lease.holder is None or _short_writers(observed):
        return None
    return Step((ReleaseWriter(observed.lease.holder),), 0.0, doing="sweeping again")
