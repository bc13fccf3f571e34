"""The platform on a cluster: observes through the API server, acts by making and removing its objects."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from omnigraph_operator import decide
from omnigraph_operator.decide.shapes import (
    Action,
    Capabilities,
    CreateChild,
    Desired,
    Emit,
    Ensure,
    Finalize,
    Forget,
    Observed,
    ReleaseWriter,
    Start,
    Stop,
    TakeWriter,
    Work,
    Workload,
)
from omnigraph_operator.decide.sources import Reference
from omnigraph_operator.model.omnigraph import OmniGraphStatus
from omnigraph_operator.platform import kubernetes_render as render
from omnigraph_operator.platform.base import Object, PlatformError
from omnigraph_operator.platform.kubernetes_api import GROUPS, Api, Conflict, Json, Refused
from omnigraph_operator.platform.kubernetes_inputs import Input, place, read
from omnigraph_operator.platform.kubernetes_lease import lease_name, read_lease, release_writer, take_writer
from omnigraph_operator.platform.kubernetes_names import (
    DIGEST,
    FINALIZER,
    GRAPH,
    MANAGED_BY,
    SPARK_APP_NAME,
    STOPPED,
    WORKLOAD,
    owned_by,
)
from omnigraph_operator.platform.kubernetes_observe import application_state, parse_time, unexplained, workloads

__all__ = ["KubernetesPlatform"]

WORKLOAD_RESOURCES = ("jobs", "deployments", "sparkapplications")
SPARK_SILENCE = timedelta(seconds=120)  # a new application that nobody has looked at for so long: no operator listens


class KubernetesPlatform:
    """Sees and does, for one object at a time; keeps nothing between calls.

    Args:
        guard: called before every action; raises when this operator may not act.
        spark_min_bytes: from this source size on `Auto` takes Spark.
    """

    def __init__(
        self,
        api: Api,
        settings: render.RenderSettings,
        *,
        guard: Callable[[], None] = lambda: None,
        spark_min_bytes: int = 256 * 1024 * 1024,
    ) -> None:
        self._api = api
        self._settings = settings
        self._guard = guard
        self._spark_min_bytes = spark_min_bytes

    # ---- observe ----

    def observe(self, obj: Object) -> Observed:
        """Read everything the decision needs, newest state first hand (no cache)."""
        meta = obj["metadata"]
        namespace, name = meta["namespace"], meta["name"]
        selector = f"{GRAPH}={name}"
        applications, spark_problem = self._applications(namespace, selector)
        # Pods last: a pod that is there when its owner was already listed is an owner seen alive, never one missed.
        jobs = self._api.list("jobs", namespace, selector)
        deployments = self._api.list("deployments", namespace, selector)
        pods = self._api.list("pods", namespace, selector)
        if applications:
            names = ",".join(item["metadata"]["name"] for item in applications)
            known = {pod["metadata"]["uid"] for pod in pods}
            by_app = self._api.list("pods", namespace, f"{SPARK_APP_NAME} in ({names})")
            pods += [pod for pod in by_app if pod["metadata"]["uid"] not in known]
        now = datetime.now(UTC).replace(microsecond=0)
        try:
            inputs = self._inputs(decide.desired_from(obj))
        except decide.InvalidSpec:
            inputs = {}  # the decision says so in the status; what runs is still seen
        terminating = False
        if "deletionTimestamp" in meta:
            terminating = self._namespace_terminating(namespace)
        seen = workloads(jobs, deployments, applications, pods)
        seen |= {
            name: replace(seen[name], message=self._warning(namespace, pod))
            for name, pod in unexplained(seen, pods, now).items()
        }
        self._end_overdue(namespace, applications, seen, now)
        return Observed(
            now=now,
            status=obj.get("status") or {},
            workloads=seen,
            lease=read_lease(self._api.get("leases", namespace, lease_name(name))),
            sources={key: found.source for key, (_, found) in inputs.items()},
            capabilities=Capabilities(
                spark_operator=spark_problem or _silent(applications, now),
                spark_process=None,
                spark_min_bytes=self._spark_min_bytes,
            ),
            ensured=self._ensured(obj, selector),
            namespace_terminating=terminating,
        )

    def _inputs(self, desired: Desired) -> dict[str, tuple[Reference, Input]]:
        cache: dict[str, Json | None] = {}

        def config_map(name: str) -> Json | None:
            if name not in cache:
                cache[name] = self._api.get("configmaps", desired.namespace, name)
            return cache[name]

        return {key: (ref, read(desired.spec, ref, config_map)) for key, ref in decide.references(desired).items()}

    def _applications(self, namespace: str, selector: str) -> tuple[list[Json], str | None]:
        """The SparkApplications, and why none can be made if so."""
        try:
            served = self._api.group(GROUPS["sparkapplications"])
            if served is None or all(kind["name"] != "sparkapplications" for kind in served.get("resources", ())):
                return [], "SparkCRDMissing"
            found = self._api.list("sparkapplications", namespace, selector)
        except Refused as error:
            if error.status == 403:
                return [], "SparkForbidden"
            raise
        for item in found:  # a list's items carry neither
            item.setdefault("kind", "SparkApplication")
        return found, None

    def _ensured(self, obj: Object, selector: str) -> dict[tuple[str, str], str]:
        out: dict[tuple[str, str], str] = {}
        namespace = obj["metadata"]["namespace"]
        for kind, resource in (("service", "services"), ("config", "configmaps")):
            for child in self._api.list(resource, namespace, selector):
                digest = (child["metadata"].get("annotations") or {}).get(DIGEST)
                if digest is not None and owned_by(child, obj):
                    out[kind, child["metadata"]["name"]] = digest
        return out

    def _warning(self, namespace: str, pod: str) -> str:
        """What the newest warning about a pod says."""
        found = self._api.list("events", namespace, fields=f"involvedObject.name={pod},type=Warning")
        newest = max(found, key=lambda event: str(event.get("lastTimestamp") or event["metadata"]["creationTimestamp"]),
                     default={})  # fmt: skip
        return f"{newest.get('reason', '')}: {newest.get('message', '')}".strip(": ")

    def _namespace_terminating(self, namespace: str) -> bool:
        try:
            found = self._api.call("GET", f"/api/v1/namespaces/{namespace}")
        except Refused as error:
            if error.status in (403, 404):  # with rights in namespaces only, it can't be seen
                return False
            raise
        phase: str = (found.get("status") or {}).get("phase", "")
        return phase == "Terminating"

    def _end_overdue(
        self, namespace: str, applications: Sequence[Json], seen: Mapping[str, Workload], now: datetime
    ) -> None:
        """A SparkApplication has no deadline of its own (one without an image stays submitted for ever)."""
        for application in applications:
            name = application["metadata"]["name"]
            notes = application["metadata"].get("annotations") or {}
            created = parse_time(application["metadata"]["creationTimestamp"])
            limit = notes.get(render.DEADLINE)
            if limit is None or created is None or seen[name].phase.terminal or STOPPED in notes:
                continue
            if (now - created).total_seconds() > int(limit):
                self._guard()
                self._stop_application(namespace, name, f"not finished within {limit} seconds")

    # ---- act ----

    def act(self, obj: Object, actions: Sequence[Action]) -> None:
        """Carry out in order; each is idempotent, the first failure ends the row."""
        for action in actions:
            self._guard()
            match action:
                case Start(work):
                    self._start(obj, work)
                case Stop(name, reason):
                    self._stop(obj, name, reason)
                case Forget(name):
                    self._forget(obj, name)
                case TakeWriter(holder):
                    self._hold(obj)
                    if not take_writer(self._api, obj, holder, datetime.now(UTC)):
                        return  # what follows was decided on a lease that somebody else has now
                case ReleaseWriter(holder):
                    release_writer(self._api, obj, holder)
                case Ensure():
                    self._ensure(obj, action)
                case CreateChild(child):
                    raise PlatformError(f"{child['kind']} is not a kind this operator makes", permanent=True)
                case Emit():
                    self._emit(obj, action)
                case Finalize():
                    self._finalize(obj)

    def _start(self, obj: Object, work: Work) -> None:
        self._hold(obj)
        desired = decide.desired_from(obj)
        spec, inputs = desired.spec, self._inputs(desired)
        placement = place({key: inputs[key] for key in work.inputs}, config_map=work.name)
        if (claim := render.claim(obj, spec)) is not None:
            self._create_once("persistentvolumeclaims", claim, obj, ours=False)
        if placement.texts:
            self._create_once("configmaps", render.inputs(obj, work, placement), obj)
        resource, manifest = render.workload(obj, spec, work, placement, self._settings)
        self._create_once(resource, manifest, obj)

    def _create_once(self, resource: str, manifest: Json, obj: Object, *, ours: bool = True) -> None:
        """Create, or adopt what an earlier pass of this object created; never edit."""
        meta = manifest["metadata"]
        try:
            self._api.create(resource, manifest)
        except Conflict as error:
            found = self._api.get(resource, meta["namespace"], meta["name"])
            if found is None or "deletionTimestamp" in found["metadata"]:
                raise PlatformError(f"{resource} {meta['name']} is still going away", retry_after_seconds=1) from error
            if ours and not owned_by(found, obj):
                raise PlatformError(
                    f"{resource} {meta['name']} exists and belongs to something else: remove or rename it",
                    retry_after_seconds=30,
                ) from error

    def _stop(self, obj: Object, name: str, reason: str) -> None:
        namespace = obj["metadata"]["namespace"]
        if self._api.get("deployments", namespace, name) is not None:
            self._api.delete("deployments", namespace, name, foreground=True)
            self._api.delete("configmaps", namespace, name)
        elif self._api.get("jobs", namespace, name) is not None:
            # Suspending ends the pods and leaves the Job to be looked at.
            body = {"metadata": {"annotations": {STOPPED: reason}}, "spec": {"suspend": True}}
            self._api.patch("jobs", namespace, name, body)
        elif self._served("sparkapplications") and self._api.get("sparkapplications", namespace, name) is not None:
            self._stop_application(namespace, name, reason)
        else:  # pods whose owner is gone already
            for pod in self._api.list("pods", namespace, f"{GRAPH}={obj['metadata']['name']}"):
                if (pod["metadata"].get("labels") or {}).get(WORKLOAD) == name:
                    self._api.delete("pods", namespace, pod["metadata"]["name"])

    def _stop_application(self, namespace: str, name: str, reason: str) -> None:
        """Suspension is the one change of a SparkApplication that doesn't run it again; the driver goes in any case."""
        body = {"metadata": {"annotations": {STOPPED: reason}}, "spec": {"suspend": True}}
        self._api.patch("sparkapplications", namespace, name, body)
        self._api.delete("pods", namespace, f"{name}-driver")

    def _forget(self, obj: Object, name: str) -> None:
        namespace = obj["metadata"]["namespace"]
        for resource in WORKLOAD_RESOURCES:
            if resource != "sparkapplications" or self._served(resource):
                self._api.delete(resource, namespace, name)
        self._api.delete("configmaps", namespace, name)

    def _served(self, resource: str) -> bool:
        try:
            return self._api.group(GROUPS[resource]) is not None
        except Refused as error:
            if error.status == 403:
                return False
            raise

    def _ensure(self, obj: Object, action: Ensure) -> None:
        resource, manifest = render.ensured(obj, action)
        namespace, name = manifest["metadata"]["namespace"], manifest["metadata"]["name"]
        found = self._api.get(resource, namespace, name)
        if found is None:
            self._create_once(resource, manifest, obj)
            return
        if not owned_by(found, obj):
            raise PlatformError(
                f"{resource} {name} exists and belongs to something else: remove or rename it", retry_after_seconds=30
            )
        content = {"data": manifest["data"]} if resource == "configmaps" else {"spec": manifest["spec"]}
        self._api.patch(resource, namespace, name, {"metadata": {"annotations": {DIGEST: action.digest}}, **content})

    def _emit(self, obj: Object, event: Emit) -> None:
        """An Event; the same one again counts up, as the cluster's own components do it."""
        meta = obj["metadata"]
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        digest = hashlib.sha256(f"{meta['uid']} {event.type} {event.reason} {event.message}".encode()).hexdigest()[:16]
        involved = {key: meta[key] for key in ("name", "namespace", "uid")}
        body: Json = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"{meta['name']}.{digest}", "namespace": meta["namespace"]},
            "involvedObject": {"apiVersion": obj["apiVersion"], "kind": obj["kind"], **involved},
            "type": event.type,
            "reason": event.reason,
            "message": event.message[:1024],
            "source": {"component": MANAGED_BY},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        try:
            self._api.create("events", body)
        except Conflict:
            found = self._api.get("events", meta["namespace"], body["metadata"]["name"])
            again = {"lastTimestamp": now, "count": (found or {}).get("count", 0) + 1}
            self._api.patch("events", meta["namespace"], body["metadata"]["name"], again)
        except Refused as error:
            if error.status != 403:  # a terminating namespace takes no new ones, and no event is worth a failed pass
                raise

    # ---- the object itself ----

    def _hold(self, obj: Object) -> None:
        """Before anything runs: an object whose data goes with it must not vanish before that is done."""
        meta = obj["metadata"]
        if FINALIZER in meta.get("finalizers", ()) or "deletionTimestamp" in meta:
            return
        if not decide.needs_finalizer(decide.desired_from(obj)):
            return
        self._set_finalizers(obj, [*meta.get("finalizers", ()), FINALIZER])

    def _finalize(self, obj: Object) -> None:
        rest = [name for name in obj["metadata"].get("finalizers", ()) if name != FINALIZER]
        self._set_finalizers(obj, rest)

    def _set_finalizers(self, obj: Object, finalizers: list[str]) -> None:
        meta = obj["metadata"]
        body = {"metadata": {"finalizers": finalizers, "resourceVersion": meta["resourceVersion"]}}
        try:
            changed = self._api.patch("omnigraphs", meta["namespace"], meta["name"], body)
        except Conflict as error:
            raise PlatformError(f"{meta['name']} changed meanwhile", retry_after_seconds=0.2) from error
        except Refused as error:
            if error.status == 404:
                return
            raise
        # This pass goes on with the object as it is now; its status must still be written in the end.
        meta["finalizers"] = finalizers
        meta["resourceVersion"] = changed["metadata"]["resourceVersion"]

    def write_status(self, obj: Object, status: Mapping[str, Any]) -> None:
        """Replace the status; refused when anybody changed the object since it was read.

        The API server fills in defaults, so what was stored is compared through the model: when nothing changed,
        nothing is written.
        """
        with contextlib.suppress(ValueError):  # a stored status of another version is simply replaced
            if OmniGraphStatus.model_validate(obj.get("status") or {}) == OmniGraphStatus.model_validate(status):
                return
        try:
            self._api.replace("omnigraphs", {**obj, "status": dict(status)}, subresource="status")
        except Conflict as error:
            raise PlatformError(f"{obj['metadata']['name']} changed meanwhile", retry_after_seconds=0.2) from error
        except Refused as error:
            if error.status != 404:  # deleted meanwhile: nothing to write it to
                raise


def _silent(applications: Sequence[Json], now: datetime) -> str | None:
    for application in applications:
        created = parse_time(application["metadata"]["creationTimestamp"])
        if not application_state(application) and created is not None and now - created > SPARK_SILENCE:
            return "SparkOperatorNotResponding"
    return None
