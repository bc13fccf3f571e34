"""The servers of a graph: one that may write, and any number that only read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from omnigraph_operator.decide import names
from omnigraph_operator.decide.attempts import track
from omnigraph_operator.decide.shapes import (
    Action,
    Desired,
    Ensure,
    Observed,
    Phase,
    Purpose,
    Start,
    Stop,
    Work,
    Workload,
)
from omnigraph_operator.model.omnigraph import ReadOnly, ReadWrite, Server

__all__ = ["Serving", "serving"]

CLUSTER_PORT = 8080
RETRY_SECONDS = 60.0  # between attempts of a server that failed to start as often as is tried at once
_KEYS = {Purpose.SERVE_RW: "readWrite", Purpose.SERVE_RO: "readOnly"}


@dataclass(frozen=True, slots=True)
class Serving:
    """Where the servers stand.

    Args:
        wanted: the read-write server, when it has to be started; needs the writer's lease.
        actions: what may be done without the lease.
        ready: every server that is asked for answers.
        endpoints: for the status.
    """

    ready: bool
    asked: bool
    wanted: Work | None = None
    wait_seconds: float = 0.0
    actions: tuple[Action, ...] = ()
    problem: tuple[str, str] | None = None
    endpoints: Mapping[str, str] | None = None
    entries: tuple[Mapping[str, Any], ...] = ()
    keep: frozenset[str] = frozenset()
    doing: str = ""


def serving(desired: Desired, observed: Observed, *, may_start: bool, round_: str) -> Serving:
    """What the servers need next.

    Args:
        may_start: loads and indexes are done. Until then servers that run are left alone and none is started.
    """
    server = desired.spec.server
    write = server is not None and server.enabled and server.read_write.enabled
    read = server is not None and server.enabled and server.read_only.replicas > 0
    parts: list[Serving] = []
    for purpose, asked in ((Purpose.SERVE_RW, write), (Purpose.SERVE_RO, read)):
        if asked and server is not None:
            part = server.read_write if purpose is Purpose.SERVE_RW else server.read_only
            parts.append(_one(desired, observed, server, purpose, part, may_start=may_start, round_=round_))
        else:
            parts.append(Serving(True, False, actions=_stops(observed, purpose, None, "not asked for")))
    rw, ro = parts
    endpoints = {**(rw.endpoints or {}), **(ro.endpoints or {})}
    asked = write or read
    actions = rw.actions + ro.actions
    if asked and endpoints:
        actions += _connection(desired, observed, endpoints)
    return Serving(
        ready=rw.ready and ro.ready,
        asked=asked,
        wanted=rw.wanted,
        wait_seconds=max(rw.wait_seconds, ro.wait_seconds),
        actions=actions,
        problem=rw.problem or ro.problem,
        endpoints=endpoints or None,
        entries=rw.entries + ro.entries,
        keep=rw.keep | ro.keep,
        doing=rw.doing or ro.doing,
    )


def _one(
    desired: Desired,
    observed: Observed,
    server: Server,
    purpose: Purpose,
    part: ReadWrite | ReadOnly,
    *,
    may_start: bool,
    round_: str,
) -> Serving:
    digest = _settings_digest(desired, observed, server, part)

    def name_of(attempt: int) -> str:
        return names.workload(desired.name, purpose, desired.uid, digest, attempt)

    tracked = track(observed, purpose.value, digest, name_of, round_=round_)
    entries = (tracked.entry,) if tracked.entry else ()
    current = tracked.current
    keep = frozenset({name_of(tracked.attempt), name_of(max(0, tracked.attempt - 1))})
    others = _stops(observed, purpose, current.name if current else None, "its settings changed")
    actions = _service(desired, observed, purpose, part) if may_start or current else ()
    what = "read-write server" if purpose is Purpose.SERVE_RW else "read-only servers"
    if current is not None and not current.ended:
        if current.ready:
            endpoints = {_KEYS[purpose]: current.endpoint} if current.endpoint else {}
            return Serving(True, True, actions=actions + others, endpoints=endpoints, entries=entries, keep=keep)
        return Serving(
            False,
            True,
            actions=actions,
            entries=entries,
            keep=keep,
            doing=": ".join(filter(None, (f"{what} starting", current.message))),
        )
    if tracked.exhausted:
        # What keeps a server from starting (a busy port, a node without room) often goes away by itself.
        rest = RETRY_SECONDS - tracked.seconds_since_failure(observed.now)
        if rest > 0 or not may_start:
            problem = ("ServerFailed", f"the {what} can't be started, tried again every minute: {tracked.message}")
            wait = max(rest, 1.0)
            return Serving(False, True, wait_seconds=wait, actions=actions, problem=problem, entries=entries, keep=keep)
    if not may_start:
        old = next((w for w in observed.workloads.values() if w.purpose is purpose and w.ready and not w.ended), None)
        if old is None:
            return Serving(False, True, entries=entries, keep=keep)
        endpoints = {_KEYS[purpose]: old.endpoint} if old.endpoint else {}
        return Serving(False, True, endpoints=endpoints, entries=entries, keep=keep | {old.name})
    work = Work(
        name=name_of(tracked.attempt),
        graph=desired.name,
        purpose=purpose,
        digest=digest,
        attempt=tracked.attempt,
        writes=purpose is Purpose.SERVE_RW,
        operation_id=names.operation_id(desired.created, desired.uid, purpose.value, digest),
        # Short workloads may run beside a server that is started again in place: it never rolls back.
        sweep="forward" if purpose is Purpose.SERVE_RW else "none",
        inputs=tuple(k for k in observed.sources if k.startswith("queries/") or k == "tokens"),
        flags=("--unauthenticated",) if server.auth.unauthenticated else (),
        replicas=part.replicas if isinstance(part, ReadOnly) else 1,
        port=part.port,
    )
    if tracked.wait_seconds > 0:
        return Serving(
            False, True, wait_seconds=tracked.wait_seconds, actions=actions, entries=entries, keep=keep,
            doing=f"{what} again after: {tracked.message}",
        )  # fmt: skip
    if purpose is Purpose.SERVE_RO:
        # A new set comes up beside the old one, which goes once the new one answers.
        return Serving(False, True, actions=(*actions, Start(work)), entries=entries, keep=keep, doing=f"{what}")
    if others or any(w.purpose is purpose and not w.ended for w in observed.workloads.values()):
        # Two read-write servers never overlap: the old one is gone before the new one is wanted.
        return Serving(False, True, actions=actions + others, entries=entries, keep=keep, doing=f"{what} changing over")
    return Serving(False, True, wanted=work, actions=actions, entries=entries, keep=keep, doing=what)


def _settings_digest(desired: Desired, observed: Observed, server: Server, part: ReadWrite | ReadOnly) -> str:
    spec = desired.spec
    known = ("tokens", "storage", "embedding")
    texts = {k: s.digest for k, s in observed.sources.items() if k.startswith("queries/") or k in known}
    settings = [server.auth, part, spec.storage, spec.task, *([server.embedding] if server.embedding else [])]
    return names.digest(texts, [m.model_dump(mode="json", by_alias=True) for m in settings])


def _stops(observed: Observed, purpose: Purpose, keep: str | None, reason: str) -> tuple[Action, ...]:
    return tuple(
        Stop(w.name, reason)
        for w in sorted(observed.workloads.values(), key=_by_name)
        if w.purpose is purpose and w.name != keep and not w.ended and w.phase is not Phase.SUCCEEDED
    )


def _by_name(workload: Workload) -> str:
    return workload.name


def _service(desired: Desired, observed: Observed, purpose: Purpose, part: ReadWrite | ReadOnly) -> tuple[Action, ...]:
    name = f"{desired.name}-{'rw' if purpose is Purpose.SERVE_RW else 'ro'}"
    data = {"purpose": purpose.value, "port": str(part.port or CLUSTER_PORT)}
    return _ensure(observed, Ensure("service", name, data, names.digest(data)))


def _connection(desired: Desired, observed: Observed, endpoints: Mapping[str, str]) -> tuple[Action, ...]:
    data = {"graph": desired.name, "uri": desired.spec.storage.uri, **endpoints}
    return _ensure(observed, Ensure("config", f"{desired.name}-connection", data, names.digest(data)))


def _ensure(observed: Observed, wanted: Ensure) -> tuple[Action, ...]:
    return () if observed.ensured.get((wanted.kind, wanted.name)) == wanted.digest else (wanted,)
