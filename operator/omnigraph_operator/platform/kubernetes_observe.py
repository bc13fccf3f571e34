"""From what the API server lists to the workloads of a graph. Pure.

Whether a workload is over and whether it is gone are two facts: a Job or SparkApplication may say failed while its pod
still runs and commits, so `gone` is read from pods alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from omnigraph_operator.decide.shapes import Engine, Phase, Purpose, Workload
from omnigraph_operator.platform.kubernetes_names import (
    ATTEMPT,
    DIGEST,
    ENGINE,
    PURPOSE,
    SPARK_APP_NAME,
    STOPPED,
    WORKLOAD,
    WRITES,
)
from omnigraph_operator.platform.kubernetes_render import DRIVER_CONTAINER, SERVER_PORT, TASK

__all__ = ["application_state", "parse_time", "unexplained", "workloads"]

Json = Mapping[str, Any]
MESSAGE_LENGTH = 2000
PATIENCE = timedelta(seconds=5)  # how long a pod may take to start before its events are looked at


def workloads(
    jobs: Iterable[Json], deployments: Iterable[Json], applications: Iterable[Json], pods: Iterable[Json]
) -> dict[str, Workload]:
    """Every workload of one graph, by name.

    Args:
        jobs, deployments, applications: with the graph's label.
        pods: with the graph's label, and those a Spark operator made for one of the applications.
    """
    by_workload: dict[str, list[Json]] = {}
    for pod in pods:
        if name := _workload_of(pod):
            by_workload.setdefault(name, []).append(pod)
    out: dict[str, Workload] = {}
    for job in jobs:
        name = job["metadata"]["name"]
        out[name] = _job(job, by_workload.pop(name, []))
    for application in applications:
        name = application["metadata"]["name"]
        out[name] = _application(application, by_workload.pop(name, []))
    for deployment in deployments:
        name = deployment["metadata"]["name"]
        seen = _deployment(deployment, by_workload.pop(name, []))
        if seen is not None:
            out[name] = seen
    for name, orphans in by_workload.items():
        if any(map(_lives, orphans)):
            out[name] = _orphaned(name, orphans)
    return out


def application_state(application: Json) -> str:
    """The SparkApplication's state; empty until its operator has looked at it."""
    state: str = (application.get("status") or {}).get("applicationState", {}).get("state", "")
    return state


def unexplained(seen: Mapping[str, Workload], pods: Iterable[Json], now: datetime) -> dict[str, str]:
    """Pods that have been about to start for a while without saying why not.

    Their reason (a Secret or volume that isn't there) is told by events alone.

    Returns:
        A pod's name for each such workload.
    """
    out: dict[str, str] = {}
    for pod in pods:
        name = _workload_of(pod)
        workload = seen.get(name or "")
        if name is None or workload is None or workload.message or workload.ready or _phase(pod) != "Pending":
            continue
        created = parse_time(pod["metadata"]["creationTimestamp"])
        if created is not None and now - created >= PATIENCE:
            out[name] = pod["metadata"]["name"]
    return out


def parse_time(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None


# ---- one form each ---------------------------------------------------------------------------------------------------


def _job(job: Json, pods: Sequence[Json]) -> Workload:
    status = job.get("status") or {}
    conditions = {item["type"]: item for item in status.get("conditions") or () if item["status"] == "True"}
    stopped = _annotations(job).get(STOPPED)
    living = [pod for pod in pods if _lives(pod)]
    ending = next((conditions[name] for name in ("Failed", "FailureTarget") if name in conditions), None)
    if "Complete" in conditions:
        phase = Phase.SUCCEEDED
    elif "Failed" in conditions or stopped is not None or "deletionTimestamp" in job["metadata"]:
        phase = Phase.FAILED
    else:
        phase = Phase.RUNNING if any(_runs(pod) for pod in living) else Phase.PENDING
    result, exit_code, message = _outcome(pods)
    if stopped is not None:
        message = stopped
    elif ending is not None and ending.get("reason") == "DeadlineExceeded":
        message = f"not finished within {job['spec'].get('activeDeadlineSeconds')} seconds"
    elif not message and ending is not None:
        message = ending.get("message", "")
    finished = status.get("completionTime") or (ending or {}).get("lastTransitionTime") or _finished(pods)
    # A Job that isn't over may start a pod at any moment, seen or not.
    return _seen(job, phase, gone=phase.terminal and not living, result=result, exit_code=exit_code, message=message,
                 started=_started(pods) or status.get("startTime"), finished=finished)  # fmt: skip


def _application(application: Json, pods: Sequence[Json]) -> Workload:
    state = application_state(application)
    stopped = _annotations(application).get(STOPPED)
    drivers = [pod for pod in pods if pod["metadata"]["labels"].get("spark-role") != "executor"]
    living = [pod for pod in pods if _lives(pod)]
    result, exit_code, message = _outcome(drivers)
    over = state in ("COMPLETED", "FAILED", "SUBMISSION_FAILED", "SUSPENDED")
    if over or stopped is not None or "deletionTimestamp" in application["metadata"]:
        if any(_lives(pod) for pod in drivers):
            phase = Phase.RUNNING  # said to be over, but the driver may still commit
        elif result is not None and result.get("ok") is True:
            phase = Phase.SUCCEEDED  # whatever the application says, the work is done
        else:
            phase = Phase.SUCCEEDED if state == "COMPLETED" else Phase.FAILED
    elif any(_runs(pod) for pod in drivers):
        phase = Phase.RUNNING
    else:
        phase = Phase.PENDING
    if stopped is not None:
        message = stopped
    elif phase is Phase.FAILED and not message:
        told = (application.get("status") or {}).get("applicationState", {}).get("errorMessage", "")
        message = told[max(told.find("Exception in thread"), 0) :][:MESSAGE_LENGTH]
    terminated = (application.get("status") or {}).get("terminationTime")
    return _seen(application, phase, gone=phase.terminal and not living, result=result, exit_code=exit_code,
                 message=message, started=_started(drivers), finished=_finished(drivers) or terminated)  # fmt: skip


def _deployment(deployment: Json, pods: Sequence[Json]) -> Workload | None:
    living = [pod for pod in pods if _lives(pod)]
    metadata, status = deployment["metadata"], deployment.get("status") or {}
    wanted = deployment["spec"].get("replicas", 1)
    deleting = "deletionTimestamp" in metadata
    if deleting and not living:
        return None
    purpose = metadata["labels"][PURPOSE]
    ready = (
        not deleting
        and status.get("observedGeneration", 0) >= metadata.get("generation", 1)
        and 0 < wanted <= status.get("readyReplicas", 0)
    )
    _, exit_code, message = _outcome(living)
    access = "rw" if purpose == Purpose.SERVE_RW else "ro"
    graph = metadata["labels"]["app.kubernetes.io/instance"]
    container = deployment["spec"]["template"]["spec"]["containers"][0]
    port = next((port["containerPort"] for port in container.get("ports") or ()), SERVER_PORT)
    return _seen(
        deployment, Phase.FAILED if deleting else Phase.RUNNING, gone=False, ready=ready,
        exit_code=None if ready else exit_code, message="" if ready else message, started=_started(living),
        endpoint=f"http://{graph}-{access}.{metadata['namespace']}.svc:{port}",
    )  # fmt: skip


def _orphaned(name: str, pods: Sequence[Json]) -> Workload:
    """Pods that live on without the object that made them."""
    tags = pods[0]["metadata"]["labels"]
    purpose = Purpose(tags[PURPOSE]) if PURPOSE in tags else Purpose.LOAD
    return Workload(
        name=name, purpose=purpose, digest="", attempt=0, writes=purpose is not Purpose.SERVE_RO, phase=Phase.FAILED,
        gone=False, message="its pods live on without what made them", started=parse_time(_started(pods)),
    )  # fmt: skip


def _seen(
    child: Json,
    phase: Phase,
    *,
    gone: bool,
    ready: bool = False,
    result: Mapping[str, Any] | None = None,
    exit_code: int | None = None,
    message: str = "",
    endpoint: str | None = None,
    started: str | None = None,
    finished: str | None = None,
) -> Workload:
    metadata, notes = child["metadata"], _annotations(child)
    return Workload(
        name=metadata["name"],
        purpose=Purpose(metadata["labels"][PURPOSE]),
        digest=notes.get(DIGEST, ""),
        attempt=int(notes.get(ATTEMPT, "0")),
        writes=notes.get(WRITES) == "true",
        engine=Engine(notes.get(ENGINE, Engine.PROCESS.value)),
        phase=phase,
        gone=gone,
        ready=ready,
        result=result,
        exit_code=exit_code,
        message=message,
        endpoint=endpoint,
        started=parse_time(started),
        finished=parse_time(finished) if phase.terminal else None,
    )


# ---- pods ------------------------------------------------------------------------------------------------------------


def _lives(pod: Json) -> bool:
    return _phase(pod) not in ("Succeeded", "Failed")


def _runs(pod: Json) -> bool:
    return _phase(pod) == "Running"


def _phase(pod: Json) -> str:
    phase: str = (pod.get("status") or {}).get("phase", "Pending")
    return phase


def _workload_of(pod: Json) -> str | None:
    tags = pod["metadata"].get("labels") or {}
    return tags.get(WORKLOAD) or tags.get(SPARK_APP_NAME)


def _outcome(pods: Sequence[Json]) -> tuple[Mapping[str, Any] | None, int | None, str]:
    """The newest pod's result object, exit code, and why it isn't running or has failed."""
    if not pods:
        return None, None, ""
    status = max(pods, key=lambda pod: str(pod["metadata"]["creationTimestamp"])).get("status") or {}
    main = _container(status.get("containerStatuses"), (TASK, DRIVER_CONTAINER))
    failed_first = next(
        (
            state
            for state in (_ended(item) for item in status.get("initContainerStatuses") or ())
            if state is not None and state.get("exitCode") != 0
        ),
        None,
    )
    ended = failed_first or _ended(main)
    if ended is not None:
        text = ended.get("message", "").strip()
        result = _result(text)
        code: int | None = ended.get("exitCode")
        if result is not None:
            return result, code, str(result.get("message") or "")
        if code == 0:
            return None, 0, ""
        reason = ended.get("reason", "Error")
        return None, code, f"{reason}, exit code {code}: {text[-MESSAGE_LENGTH:]}".rstrip(": ")
    for item in [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]:
        waiting = (item.get("state") or {}).get("waiting")
        if waiting and waiting.get("reason") not in (None, "PodInitializing", "ContainerCreating"):
            before = (item.get("lastState") or {}).get("terminated") or {}  # why it is being restarted
            told = before.get("message", "").strip()[-MESSAGE_LENGTH:] or waiting.get("message", "")
            return None, before.get("exitCode"), f"{waiting['reason']}: {told}".rstrip(": ")
    for condition in status.get("conditions") or ():
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return None, None, f"{condition.get('reason', 'Unscheduled')}: {condition.get('message', '')}"
    return None, None, status.get("message", "")


def _container(items: Sequence[Json] | None, names: Sequence[str]) -> Json | None:
    return next((item for item in items or () if item["name"] in names), None)


def _ended(item: Json | None) -> Json | None:
    ended: Json | None = ((item or {}).get("state") or {}).get("terminated")
    return ended


def _result(text: str) -> Mapping[str, Any] | None:
    try:
        value = json.loads(text)
    except ValueError:
        return None
    return value if isinstance(value, dict) and "ok" in value else None


def _started(pods: Sequence[Json]) -> str | None:
    times = [time for pod in pods if (time := (pod.get("status") or {}).get("startTime"))]
    return min(times, default=None)


def _finished(pods: Sequence[Json]) -> str | None:
    times = [
        ended["finishedAt"]
        for pod in pods
        for item in (pod.get("status") or {}).get("containerStatuses") or ()
        if (ended := _ended(item)) is not None and ended.get("finishedAt")
    ]
    return max(times, default=None)


def _annotations(child: Json) -> Mapping[str, str]:
    return child["metadata"].get("annotations") or {}
