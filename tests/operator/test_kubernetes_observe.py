"""From listed objects to workloads: above all, when one is over and when it is gone."""

from __future__ import annotations

import json
from typing import Any

import pytest

from omnigraph_operator.decide.shapes import Engine, Phase, Purpose
from omnigraph_operator.platform.kubernetes_observe import workloads

NAME = "people-load-12345678"
CREATED = "2026-01-02T03:04:05Z"


def child(name: str = NAME, purpose: str = "load", engine: str = "process", **more: Any) -> dict[str, Any]:
    labels = {"omnigraph.io/purpose": purpose, "app.kubernetes.io/instance": "people"}
    notes = {
        "omnigraph.io/digest": "d" * 32,
        "omnigraph.io/attempt": "2",
        "omnigraph.io/writes": "true",
        "omnigraph.io/engine": engine,
    }
    notes |= more.pop("notes", {})
    metadata = {"name": name, "namespace": "graphs", "labels": labels, "annotations": notes}
    metadata |= {"creationTimestamp": CREATED, "generation": 1, **more.pop("metadata", {})}
    return {"metadata": metadata, "spec": {}, **more}


def pod(
    phase: str,
    *,
    message: str | None = None,
    exit_code: int = 0,
    reason: str = "Completed",
    container: str = "task",
    labels: dict[str, str] | None = None,
    **status: Any,
) -> dict[str, Any]:
    if message is not None:
        ended = {"message": message, "exitCode": exit_code, "reason": reason, "finishedAt": "2026-01-02T03:05:00Z"}
        status["containerStatuses"] = [{"name": container, "state": {"terminated": ended}}]
    tags = labels or {"omnigraph.io/workload": NAME, "omnigraph.io/purpose": "load"}
    return {
        "metadata": {"labels": tags, "creationTimestamp": CREATED},
        "status": {"phase": phase, "startTime": "2026-01-02T03:04:06Z", **status},
    }


def condition(name: str, **more: str) -> dict[str, Any]:
    return {"status": {"conditions": [{"type": name, "status": "True", **more}]}}


def test_a_job_without_pods_yet_is_pending_and_not_gone() -> None:
    seen = workloads([child()], [], [], [])[NAME]
    assert (seen.phase, seen.gone, seen.purpose, seen.attempt) == (Phase.PENDING, False, Purpose.LOAD, 2)


def test_a_complete_job_gives_its_result() -> None:
    result = {"ok": True, "purpose": "load", "rows": 3}
    done = child(**condition("Complete"))
    seen = workloads([done], [], [], [pod("Succeeded", message=json.dumps(result))])[NAME]
    assert (seen.phase, seen.gone, seen.ended) == (Phase.SUCCEEDED, True, True)
    assert seen.result == result
    assert seen.exit_code == 0


def test_a_failed_job_with_a_living_pod_is_over_but_not_gone() -> None:
    failed = child(**condition("Failed", reason="DeadlineExceeded"))
    failed["spec"]["activeDeadlineSeconds"] = 60
    seen = workloads([failed], [], [], [pod("Running")])[NAME]
    assert (seen.phase, seen.gone) == (Phase.FAILED, False)
    assert "60 seconds" in seen.message


def test_the_results_message_is_preferred_to_the_log() -> None:
    result = {"ok": False, "code": "conflict", "message": "the head moved"}
    seen = workloads([child(**condition("Failed"))], [], [], [pod("Failed", message=json.dumps(result), exit_code=3)])[
        NAME
    ]
    assert (seen.message, seen.exit_code) == ("the head moved", 3)


def test_without_a_result_the_end_of_the_log_and_the_exit_code_are_told() -> None:
    seen = workloads(
        [child(**condition("Failed"))],
        [],
        [],
        [pod("Failed", message="…\nMemoryError", exit_code=137, reason="OOMKilled")],
    )[NAME]
    assert seen.result is None
    assert seen.message.startswith("OOMKilled, exit code 137")
    assert seen.message.endswith("MemoryError")


def test_a_failed_sweep_container_is_the_workloads_own_failure() -> None:
    result = {"ok": False, "purpose": "sweep", "message": "sidecar 01J… can't be read"}
    ended = {"message": json.dumps(result), "exitCode": 1}
    status = {"initContainerStatuses": [{"name": "sweep", "state": {"terminated": ended}}]}
    seen = workloads([child(**condition("Failed"))], [], [], [pod("Failed", **status)])[NAME]
    assert seen.result == result
    assert seen.exit_code == 1


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (
            {
                "containerStatuses": [
                    {"name": "task", "state": {"waiting": {"reason": "ErrImagePull", "message": "no"}}}
                ]
            },
            "ErrImagePull: no",
        ),
        (
            {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1"}]},
            "Unschedulable: 0/1",
        ),
        ({"containerStatuses": [{"name": "task", "state": {"waiting": {"reason": "ContainerCreating"}}}]}, ""),
    ],
)
def test_why_a_pod_does_not_run(status: dict[str, Any], said: str) -> None:
    seen = workloads([child()], [], [], [pod("Pending", **status)])[NAME]
    assert seen.phase is Phase.PENDING
    assert seen.message == said


def test_a_stopped_job_is_failed_with_the_reason_and_gone_with_its_pods() -> None:
    stopped = child(notes={"omnigraph.io/stopped": "the graph is being deleted"})
    before = workloads([stopped], [], [], [pod("Running")])[NAME]
    assert (before.phase, before.gone) == (Phase.FAILED, False)
    after = workloads([stopped], [], [], [])[NAME]
    assert (after.phase, after.gone, after.message) == (Phase.FAILED, True, "the graph is being deleted")


def test_pods_outlive_the_job_that_made_them() -> None:
    seen = workloads([], [], [], [pod("Running")])[NAME]
    assert (seen.phase, seen.gone, seen.writes) == (Phase.FAILED, False, True)
    assert workloads([], [], [], [pod("Succeeded")]) == {}


def application(state: str, **more: Any) -> dict[str, Any]:
    return child(engine="spark-application", status={"applicationState": {"state": state, **more}})


DRIVER = {"sparkoperator.k8s.io/app-name": NAME, "spark-role": "driver"}
EXECUTOR = {"sparkoperator.k8s.io/app-name": NAME, "spark-role": "executor"}


def test_a_failed_application_whose_driver_lives_is_running() -> None:
    """The Spark operator was killed between making the driver and saying so: it then says FAILED of a live driver."""
    seen = workloads([], [], [application("FAILED")], [pod("Running", labels=DRIVER)])[NAME]
    assert (seen.phase, seen.gone, seen.engine) == (Phase.RUNNING, False, Engine.SPARK_APPLICATION)


def test_a_failed_application_whose_driver_committed_is_succeeded() -> None:
    driver = pod("Succeeded", message='{"ok": true}', container="spark-kubernetes-driver", labels=DRIVER)
    seen = workloads([], [], [application("FAILED")], [driver])[NAME]
    assert (seen.phase, seen.gone) == (Phase.SUCCEEDED, True)


def test_a_living_executor_keeps_an_application_from_being_gone() -> None:
    driver = pod("Failed", message="boom", exit_code=1, container="spark-kubernetes-driver", labels=DRIVER)
    seen = workloads([], [], [application("FAILED")], [driver, pod("Running", labels=EXECUTOR)])[NAME]
    assert (seen.phase, seen.gone) == (Phase.FAILED, False)
    assert "boom" in seen.message


def test_submission_errors_show_the_cause_not_the_warnings_before_it() -> None:
    told = "WARNING: Using incubator\n" * 50 + "Exception in thread main: pods is forbidden"
    seen = workloads([], [], [application("FAILED", errorMessage=told)], [])[NAME]
    assert seen.message == "Exception in thread main: pods is forbidden"


def deployment(ready: int, **metadata: Any) -> dict[str, Any]:
    out = child("people-serve-rw-1", "serve-rw", metadata=metadata)
    container = {"ports": [{"containerPort": 9000}]}
    out["spec"] = {"replicas": 1, "template": {"spec": {"containers": [container]}}}
    out["status"] = {"observedGeneration": 1, "readyReplicas": ready}
    return out


def test_a_server_is_ready_when_all_its_replicas_are() -> None:
    tags = {"omnigraph.io/workload": "people-serve-rw-1", "omnigraph.io/purpose": "serve-rw"}
    seen = workloads([], [deployment(1)], [], [pod("Running", labels=tags)])["people-serve-rw-1"]
    assert (seen.phase, seen.ready, seen.gone) == (Phase.RUNNING, True, False)
    assert seen.endpoint == "http://people-rw.graphs.svc:9000"
    assert not workloads([], [deployment(0)], [], [])["people-serve-rw-1"].ready


def test_a_server_being_deleted_is_there_until_its_last_pod_has_ended() -> None:
    tags = {"omnigraph.io/workload": "people-serve-rw-1", "omnigraph.io/purpose": "serve-rw"}
    going = deployment(1, deletionTimestamp=CREATED)
    seen = workloads([], [going], [], [pod("Running", labels=tags)])["people-serve-rw-1"]
    assert (seen.phase, seen.gone, seen.ready) == (Phase.FAILED, False, False)
    assert workloads([], [going], [], []) == {}
