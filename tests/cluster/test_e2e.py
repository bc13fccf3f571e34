"""The whole way on real pods: image, operator as a pod, a graph by kubectl, an answer through its Service, all gone."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.cluster.support import (
    CHECKOUT,
    QUERIES,
    RECORDS,
    Journal,
    Kube,
    config_map,
    graph,
    wait_for,
)

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

SYSTEM = "omnigraph-system"
TOKEN = "a-token-for-this-test"
ASK = """
import json, sys, urllib.request
body = json.dumps({"params": {"name": "Ada"}}).encode()
headers = {"Authorization": "Bearer " + sys.argv[2], "Content-Type": "application/json"}
request = urllib.request.Request(sys.argv[1] + "/queries/known_by", data=body, headers=headers)
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


def ask(kube: Kube, namespace: str, address: str) -> dict[str, Any]:
    """The answer of a stored query, asked from a pod of its own, as an application would."""
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
                    "command": ["python", "-c", ASK, address, TOKEN],
                }
            ],
        },
    }
    kube.apply(pod)
    kube.run("wait", "pod/asker", "-n", namespace, "--for=jsonpath={.status.phase}=Succeeded", "--timeout=60s")
    answer: dict[str, Any] = json.loads(kube.run("logs", "asker", "-n", namespace))
    return answer


def test_from_a_manifest_to_an_answer(
    kube: Kube, image: str, namespace: str, journal: Journal, deployed_operator: None
) -> None:
    began = time.monotonic()
    tokens = {"demo": {"token": TOKEN, "allow": ["read", "change"]}}
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "tokens", "namespace": namespace},
        "stringData": {"tokens.yaml": yaml.safe_dump(tokens)},
    }
    (kube.folders[namespace] / "incoming/people.ndjson").write_text(RECORDS)
    load = {
        "name": "people",
        "source": {"uri": "file:///graphs/incoming/people.ndjson"},
        "mode": "merge",
        "spark": "Always",
    }
    server = {
        "auth": {"tokensSecretRef": {"name": "tokens", "key": "tokens.yaml"}},
        "queries": [{"configMapRef": {"name": "queries"}}],
    }
    kube.apply(
        secret,
        config_map(namespace, "queries", **{"people.gq": QUERIES}),
        graph(namespace, loads=[load], server=server),
    )
    found = kube.wait_condition(namespace, "people", "Ready", timeout=300)
    ready_after = time.monotonic() - began
    [loaded] = found["status"]["loads"]
    assert (loaded["phase"], loaded["rows"], loaded["engine"]) == ("Loaded", 5, "spark")
    order = journal.check_order()
    assert order[:3] == ["init", "sweep", "load"]
    assert [s["metadata"]["name"] for s in kube.items(namespace, "services", "omnigraph.io/graph=people")] == [
        "people-rw"
    ]

    answer = ask(kube, namespace, found["status"]["endpoints"]["readWrite"])
    assert [row["f.name"] for row in answer["rows"]] == ["Grace", "Linus"]
    print(f"ready after {ready_after:.1f} s, answered after {time.monotonic() - began:.1f} s: {answer}")

    kube.run("delete", "omnigraph", "people", "-n", namespace, "--timeout=90s")
    kinds = "jobs,deployments,services,configmaps,leases"
    wait_for("all of it to go", lambda: not kube.items(namespace, kinds, "omnigraph.io/graph=people"), 90)
    wait_for("its pods to go", lambda: not kube.items(namespace, "pods", "omnigraph.io/graph=people"), 90)
    assert (kube.folders[namespace] / "people").is_dir()  # deletionPolicy: Retain
