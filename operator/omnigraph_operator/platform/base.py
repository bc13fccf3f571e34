"""What a platform is, and the one pass every cause leads to: observe, decide, act, write status.

Only the implementations (`kubernetes`, `local`) know whether a workload is a pod or a process.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeAlias

from omnigraph_operator import decide
from omnigraph_operator.decide.shapes import Action, Decision, Engine, Observed, Purpose, Work
from omnigraph_operator.platform.errors import PlatformError

__all__ = ["Object", "Platform", "PlatformError", "command_arguments", "reconcile"]

Object: TypeAlias = Mapping[str, Any]
"""An object of one of our kinds as the API server shows it: apiVersion, kind, metadata, spec, status."""


class Platform(Protocol):
    """Sees and does. Every method may block; callers in an event loop run it in a thread.

    Methods raise `PlatformError` and nothing else for what the surroundings do.
    """

    def observe(self, obj: Object) -> Observed:
        """Everything `decide` needs, read now; keeps the promises in `decide.shapes`."""
        ...

    def act(self, obj: Object, actions: Sequence[Action]) -> None:
        """Carry out in order. Each is idempotent; the first failure ends the row and is raised."""
        ...

    def write_status(self, obj: Object, status: Mapping[str, Any]) -> None:
        """Replace the object's status as a whole. Only called when it differs from the observed one."""
        ...


def reconcile(platform: Platform, obj: Object) -> Decision:
    """One pass for one object.

    The status is written even when an action failed: it says what was seen, which is true either way.

    Raises:
        PlatformError: from the platform; the pass may be repeated at any time.
    """
    observed = platform.observe(obj)
    decision = decide.decide(obj, observed)
    try:
        platform.act(obj, decision.actions)
    finally:
        if decision.status != observed.status:
            platform.write_status(obj, decision.status)
    return decision


def command_arguments(
    work: Work, *, uri: str, paths: Mapping[str, str], host: str = "127.0.0.1", port: int | None = None
) -> list[str]:
    """The arguments after `omnigraph` for a workload.

    Args:
        uri: the graph's address as the workload sees it.
        paths: for every key of `work.inputs`, the path or URI under which the workload finds it.
        host, port: where a server listens.
    """
    by_kind: dict[str, list[str]] = {}
    for key in work.inputs:
        by_kind.setdefault(key.partition("/")[0], []).append(paths[key])
    if work.purpose.serves:
        out = ["serve", uri, "--host", host, "--port", str(port if port is not None else work.port or 8080)]
        for path in by_kind.get("queries", ()):
            out += ["--queries", path]
        out += [part for path in by_kind.get("tokens", ()) for part in ("--tokens-file", path)]
        if work.purpose is Purpose.SERVE_RO:
            out.append("--read-only")
        return [*out, "--sweep", work.sweep, *work.flags]
    out = ["task", work.purpose.value, "--uri", uri, "--operation-id", work.operation_id]
    if work.purpose is Purpose.SWEEP:
        return [*out, "--mode", work.sweep, *work.flags]
    for flag, kind in (("--schema", "schema"), ("--source", "load"), ("--mapping", "mapping")):
        out += [part for path in by_kind.get(kind, ()) for part in (flag, path)]
    if work.purpose is Purpose.LOAD:
        out += ["--engine", "process" if work.engine is Engine.PROCESS else "spark"]
    if work.sweep != "none":
        out += ["--sweep", work.sweep]
    return [*out, *work.flags]
