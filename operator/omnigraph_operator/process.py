"""The operator as a process: from an event to a pass, one active process at a time.

kopf delivers events; it keeps no state in the objects. An event only wakes the object's key on the wheel; the pass then
reads everything anew, so that a lost, doubled or late event changes nothing but the time.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from omnigraph_operator import decide, metrics
from omnigraph_operator.decide.shapes import Action, Emit, Ensure, ReleaseWriter, Start, Stop, TakeWriter
from omnigraph_operator.platform.base import Object, PlatformError, reconcile
from omnigraph_operator.platform.kubernetes import KubernetesPlatform
from omnigraph_operator.platform.kubernetes_api import Api
from omnigraph_operator.platform.kubernetes_lease import Leader
from omnigraph_operator.platform.kubernetes_names import GRAPH
from omnigraph_operator.platform.kubernetes_render import RenderSettings
from omnigraph_operator.wheel import Wheel

__all__ = ["KIND", "Operator", "OperatorSettings"]

KIND = "OmniGraph"
API_VERSION = "omnigraph.io/v1alpha1"
Key: TypeAlias = tuple[str, str]
"""Namespace and name of an OmniGraph."""

logger = logging.getLogger("omnigraph.operator")


@dataclass(frozen=True, slots=True)
class OperatorSettings:
    """Everything one can set.

    Args:
        namespaces: the ones to look after; empty for all of the cluster.
        lease_namespace: where the operator's own Lease is.
        identity: of this process, in that Lease.
        metrics_port, health_port: 0 for none.
        workers: passes at the same time.
        resync_seconds: after which every object is looked at again though nothing was heard of it.
        first_retry_seconds, last_retry_seconds: after a failed pass; doubled each time in between.
        silence_seconds: without any event for so long, the process counts as dead (its own Lease makes one every 3 s).
    """

    namespaces: tuple[str, ...]
    lease_namespace: str
    identity: str
    metrics_port: int = 8081
    health_port: int = 8082
    workers: int = 4
    resync_seconds: float = 300
    request_timeout_seconds: float = 30
    first_retry_seconds: float = 1
    last_retry_seconds: float = 300
    lease_seconds: float = 15
    silence_seconds: float = 120
    spark_min_bytes: int = 256 * 1024 * 1024
    render: RenderSettings = field(default_factory=RenderSettings)


class Operator:
    """Wakes, passes, and the health of it all. Only caches in memory: it may end at any line."""

    def __init__(self, api: Api, settings: OperatorSettings) -> None:
        self.settings = settings
        self._api = api
        self._lost = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self.leader = Leader(
            api,
            settings.lease_namespace,
            settings.identity,
            duration_seconds=settings.lease_seconds,
            on_lost=self._lose,
        )
        self._platform = KubernetesPlatform(
            api, settings.render, guard=self.leader.check, spark_min_bytes=settings.spark_min_bytes
        )
        self._wheel: Wheel[Key] = Wheel(self._turn, workers=settings.workers)
        self._failures: dict[Key, int] = {}
        self._configs: dict[Key, frozenset[str]] = {}
        self._last_event = time.monotonic()
        self._tasks: list[asyncio.Task[Any]] = []
        self.problem: Exception | None = None

    # ---- what handlers call ----

    def object_event(self, body: Mapping[str, Any]) -> None:
        """An OmniGraph came, changed or went."""
        self._wake(body["metadata"]["namespace"], body["metadata"]["name"])

    def child_event(self, body: Mapping[str, Any]) -> None:
        """Something with a graph's label came, changed or went."""
        meta = body["metadata"]
        if graph := (meta.get("labels") or {}).get(GRAPH):
            self._wake(meta["namespace"], graph)

    def config_event(self, body: Mapping[str, Any]) -> None:
        """A ConfigMap came, changed or went: wakes the graphs that refer to it."""
        self._last_event = time.monotonic()
        meta = body["metadata"]
        for (namespace, name), configs in self._configs.items():
            if namespace == meta["namespace"] and meta["name"] in configs:
                self._wheel.wake((namespace, name))

    def lease_event(self) -> None:
        """The operator's own Lease was renewed: events still arrive."""
        self._last_event = time.monotonic()

    def silence(self) -> float:
        """Seconds since the last event of any kind."""
        return time.monotonic() - self._last_event

    def _wake(self, namespace: str, name: str) -> None:
        self._last_event = time.monotonic()
        self._wheel.wake((namespace, name))

    # ---- running ----

    async def start(self, ended: asyncio.Event) -> None:
        """Try for the lease and turn the wheel, until `stop`; sets `ended` when it ends by itself before."""
        await asyncio.to_thread(self.leader.start)
        self._tasks = [asyncio.create_task(self._wheel.run()), asyncio.create_task(self._lost.wait())]
        for task in self._tasks:
            task.add_done_callback(lambda _: ended.set())
        self._tasks.append(asyncio.create_task(self._gauges()))

    async def stop(self) -> None:
        """End what `start` began, passes included, and give the lease back. `problem` then says why, if so."""
        for task in self._tasks:
            task.cancel()
        results = await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.to_thread(self.leader.stop)
        self.problem = next((result for result in results if isinstance(result, Exception)), None)
        if self._lost.is_set():
            self.problem = PlatformError("the operator's lease was lost to another process", permanent=True)

    def _lose(self) -> None:
        self._loop.call_soon_threadsafe(self._lost.set)

    async def _gauges(self) -> None:
        while True:
            metrics.LEADER.set(1 if self.leader.holds() else 0)
            metrics.QUEUE_DEPTH.set(self._wheel.depth)
            await asyncio.sleep(1)

    async def _turn(self, key: Key) -> float | None:
        if not self.leader.holds():
            return 2.0
        namespace, name = key
        about: dict[str, object] = {"kind": KIND, "namespace": namespace, "object": name}
        try:
            with metrics.PASS_SECONDS.labels(KIND).time():
                again = await asyncio.to_thread(self._pass, key, about)
        except PlatformError as error:
            failures = self._failures[key] = self._failures.get(key, 0) + 1
            wait = min(self.settings.first_retry_seconds * 2 ** min(failures - 1, 16), self.settings.last_retry_seconds)
            if error.retry_after_seconds is not None:
                wait = error.retry_after_seconds
            quiet = error.retry_after_seconds is not None and error.retry_after_seconds <= 1
            metrics.PASSES.labels(KIND, "retried" if quiet else "failed").inc()
            level = logging.DEBUG if quiet else logging.WARNING
            logger.log(level, "pass failed, again in %.1f s: %s", wait, error.message, extra=about)
            return self.settings.last_retry_seconds if error.permanent else wait
        except Exception:  # a bug: said with its place, and the wheel turns on for all other objects
            logger.exception("pass failed", extra=about)
            metrics.PASSES.labels(KIND, "bug").inc()
            failures = self._failures[key] = self._failures.get(key, 0) + 1
            return float(min(5 * 2 ** min(failures, 10), self.settings.last_retry_seconds))
        self._failures.pop(key, None)
        metrics.PASSES.labels(KIND, "done").inc()
        return again

    def _pass(self, key: Key, about: dict[str, object]) -> float | None:
        obj = self._api.get("omnigraphs", *key)
        if obj is None:
            self._configs.pop(key, None)
            return None
        about["generation"] = obj["metadata"]["generation"]
        self._configs[key] = frozenset(_config_maps(obj))
        decision = reconcile(self._platform, obj)
        metrics.count_actions(decision.actions)
        for action in decision.actions:
            logger.info("%s", _told(action), extra=about)
        again = decision.again_in
        return self.settings.resync_seconds if again is None else min(again, self.settings.resync_seconds)


def _told(action: Action) -> str:
    """An action as a line of the log."""
    match action:
        case Start(work):
            return f"start {work.name} ({work.purpose}, attempt {work.attempt}, {work.engine}, sweep {work.sweep})"
        case Stop(name, reason):
            return f"stop {name}: {reason}"
        case Emit(type_, reason, message):
            return f"event {type_} {reason}: {message}"
        case Ensure():
            return f"ensure {action.kind} {action.name}"
        case TakeWriter(holder):
            return f"take the write lease for {holder}"
        case ReleaseWriter(holder):
            return f"release the write lease of {holder}"
        case _:
            return str(action)


def _config_maps(obj: Object) -> Iterable[str]:
    try:
        desired = decide.desired_from(obj)
    except decide.InvalidSpec:
        return ()
    return (ref.config_map.name for ref in decide.references(desired).values() if ref.config_map is not None)
