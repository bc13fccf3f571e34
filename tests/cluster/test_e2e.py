"""The whole way on real pods: image, operator as a pod, a graph by kubectl, an answer through its Service, all gone."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from hack.demo.collect import collect
from tests.cluster.support import CHECKOUT, Journal, Kube, volume, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

SYSTEM = "omnigraph-system"
TOKEN = "demo-token"  # of the example
ASK = """
import sys, urllib.request
headers = {"Authorization": "Bearer " + sys.argv[2], "Content-Type": "application/json"}
request = urllib.request.Request(sys.argv[1], data=sys.argv[3].encode(), headers=headers)
print(urllib.request.urlopen(request, timeout=20).read().decode())
"""


@pytest.fixture
def deployed_operator(kube: Kube, image: str) -> Iterator[None]:
    """The operator as users deploy it, for all namespaces."""
    manifests = str(CHECKOUT / "deploy/operator.yaml")
    kube.run("apply", "-f", manifests)
    # the same tag may stand for newer code than a pod that is there already
    kube.run("rollout", "restart", "deployment/omnigraph-operator", "-n", SYSTEM)
    kube.run("rollout", "status", "deployment/omnigraph-operator", "-n", SYSTEM, "--timeout=60s")
    yield
    print(kube.run("logs", "deployment/omnigraph-operator", "-n", SYSTEM, "--tail=60", check=False))
    kube.run("delete", "-f", manifests, "--wait=false")


def ask(kube: Kube, namespace: str, address: str, query: str, params: dict[str, Any]) -> dict[str, Any]:
    """The answer of a stored query, asked from a pod of its own, as an application would."""
    body = json.dumps({"params": params})
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "asker", "namespace": namespace},
        "spec": {
            "restartPolicy": "Never",
            "containers": [
                {
                    "name": "ask",
                    "image": "localhost/omnigraph:dev",
                    "imagePullPolicy": "IfNotPresent",
                    "command": ["python", "-c", ASK, f"{address}/queries/{query}", TOKEN, body],
                }
            ],
        },
    }
    kube.apply(pod)
    kube.run("wait", "pod/asker", "-n", namespace, "--for=jsonpath={.status.phase}=Succeeded", "--timeout=60s")
    answer: dict[str, Any] = json.loads(kube.run("logs", "asker", "-n", namespace))
    return answer


def test_from_the_examples_manifests_to_an_answer(
    kube: Kube, image: str, namespace: str, journal: Journal, deployed_operator: None
) -> None:
    folder = kube.folders[namespace]
    counts = collect(folder / "data")
    kube.apply(volume(namespace, f"{namespace}-example", "python-env", folder))
    began = time.monotonic()
    kube.run("apply", "-n", namespace, "-k", str(CHECKOUT / "examples/python-env-cluster"))
    found = kube.wait_condition(namespace, "python-env", "Ready", timeout=400)
    ready_after = time.monotonic() - began

    packages, files = found["status"]["loads"]
    assert (packages["phase"], files["phase"]) == ("Loaded", "Loaded")
    assert files["engine"] == "spark"  # the fall-back: one Job with Spark inside
    assert files["rows"] > 1000
    order = journal.check_order()
    assert order[:5] == ["init", "sweep", "load", "sweep", "load"]
    services = kube.items(namespace, "services", "omnigraph.io/graph=python-env")
    assert [service["metadata"]["name"] for service in services] == ["python-env-rw"]

    answer = ask(kube, namespace, found["status"]["endpoints"]["readWrite"], "most_required", {"top": 5})
    assert answer["row_count"] == 5
    print(f"{counts} rows; ready after {ready_after:.1f} s, answered after {time.monotonic() - began:.1f} s: {answer}")

    kube.run("delete", "omnigraph", "python-env", "-n", namespace, "--timeout=90s")
    kinds = "jobs,deployments,services,configmaps,leases"
    wait_for("all of it to go", lambda: not kube.items(namespace, kinds, "omnigraph.io/graph=python-env"), 90)
    wait_for("its pods to go", lambda: not kube.items(namespace, "pods", "omnigraph.io/graph=python-env"), 90)
    assert (folder / "python-env.omni").is_dir()  # deletionPolicy: Retain
