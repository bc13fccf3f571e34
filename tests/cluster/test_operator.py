"""The operator as a process against a real API server, its work in real pods."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.cluster.support import (
    QUERIES,
    RECORDS,
    SCHEMA,
    Journal,
    Kube,
    OperatorProcess,
    config_map,
    graph,
    wait_for,
)

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]
SERVER = {"auth": {"unauthenticated": True}, "queries": [{"inline": QUERIES}]}


def check_status(found: dict[str, Any]) -> None:
    """What every status has to keep (kstatus, and a generation with every condition)."""
    status = found["status"]
    conditions = {c["type"]: c for c in status["conditions"]}
    assert status["observedGeneration"] == found["metadata"]["generation"]
    assert "Ready" in conditions
    assert len(conditions) == len(status["conditions"])
    for condition in conditions.values():
        assert condition["observedGeneration"] == found["metadata"]["generation"]
        assert condition["reason"]
        assert condition["lastTransitionTime"]
    if conditions["Ready"]["status"] == "True":
        assert "Reconciling" not in conditions
        assert "Stalled" not in conditions
    else:
        assert ("Reconciling" in conditions) or ("Stalled" in conditions) or ("Paused" in conditions)


def check_children(kube: Kube, namespace: str, found: dict[str, Any]) -> None:
    """Everything made for a graph is owned by it and says so in its labels."""
    children = [
        child
        for kind in ("jobs", "deployments", "services", "configmaps", "leases")
        for child in kube.items(namespace, kind, f"omnigraph.io/graph={found['metadata']['name']}")
    ]
    assert children
    for child in children:
        [owner] = child["metadata"]["ownerReferences"]
        assert owner["uid"] == found["metadata"]["uid"], child["metadata"]["name"]
        assert owner["controller"] is True
        assert child["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "omnigraph-operator"


def test_a_graph_is_made_loaded_and_served_in_the_one_safe_order(
    kube: Kube, image: str, namespace: str, journal: Journal, operator: OperatorProcess
) -> None:
    kube.apply(config_map(namespace, "records", **{"people.ndjson": RECORDS}), graph(namespace, server=SERVER))
    found = kube.wait_condition(namespace, "people", "Ready")
    check_status(found)
    check_children(kube, namespace, found)
    order = journal.check_order()
    assert order[0] == "init"
    assert order.count("load") == 1
    assert order.count("serve-rw") == 1
    assert order.index("load") < order.index("serve-rw")
    [load] = found["status"]["loads"]
    assert (load["phase"], load["rows"]) == ("Loaded", 5)
    assert found["status"]["endpoints"]["readWrite"] == f"http://people-rw.{namespace}.svc:8080"
    assert kube.get(namespace, "service", "people-rw") is not None
    lease = kube.get(namespace, "lease", "people-writer")
    assert lease is not None
    assert "holderIdentity" not in lease["spec"]

    # A changed source is loaded once more, beside the server, which stays.
    more = RECORDS + '{"type":"Person","data":{"name":"Barbara"}}\n'
    kube.apply(config_map(namespace, "records", **{"people.ndjson": more}))
    found = wait_for("the new rows", lambda: _loaded(kube, namespace, 6), 120)
    check_status(found)
    journal.check_order()
    assert len(journal.added("load")) == 2
    assert len(journal.added("serve-rw")) == 1


def _loaded(kube: Kube, namespace: str, rows: int) -> dict[str, Any] | None:
    found = kube.get(namespace, "omnigraph", "people")
    assert found is not None
    [load] = found["status"]["loads"]
    return found if (load["phase"], load["rows"]) == ("Loaded", rows) else None


def test_a_broken_schema_is_told_with_line_and_column_and_nothing_starts(
    kube: Kube, namespace: str, journal: Journal, operator: OperatorProcess
) -> None:
    broken = SCHEMA.replace("age: I32?", "age: Strng?")
    kube.apply(config_map(namespace, "records", **{"people.ndjson": RECORDS}))
    kube.apply(graph(namespace, schema={"inline": broken}))
    found = kube.wait_condition(namespace, "people", "Stalled", timeout=60)
    check_status(found)
    ready = next(c for c in found["status"]["conditions"] if c["type"] == "Ready")
    assert (ready["status"], ready["reason"]) == ("False", "SchemaInvalid")
    assert "4:" in ready["message"]  # the line of the unknown type
    assert "Strng" in ready["message"]
    assert journal.added("init", "sweep", "load", "index") == []


def test_a_missing_source_is_named_and_found_when_it_comes(
    kube: Kube, image: str, namespace: str, journal: Journal, operator: OperatorProcess
) -> None:
    kube.apply(graph(namespace))
    found = kube.wait_condition(namespace, "people", "Stalled", timeout=60)
    check_status(found)
    ready = next(c for c in found["status"]["conditions"] if c["type"] == "Ready")
    assert ready["reason"] == "SourceMissing"
    assert "ConfigMap/records" in ready["message"]
    assert journal.added("init", "sweep", "load", "index") == []
    kube.apply(config_map(namespace, "records", **{"people.ndjson": RECORDS}))
    wait_for("work to begin", lambda: journal.added("init"), 60)
    check_status(kube.wait_condition(namespace, "people", "Reconciling"))


def test_a_bad_record_fails_the_load_and_says_which(
    kube: Kube, image: str, namespace: str, journal: Journal, operator: OperatorProcess
) -> None:
    bad = RECORDS + '{"edge":"Knows","from":"Ada","to":"Nobody"}\n'
    kube.apply(config_map(namespace, "records", **{"people.ndjson": bad}), graph(namespace))

    def failed() -> dict[str, Any] | None:
        found = kube.get(namespace, "omnigraph", "people")
        entries = ((found or {}).get("status") or {}).get("attempts") or []
        return found if any("Nobody" in (entry.get("message") or "") for entry in entries) else None

    found = wait_for("a failed attempt that names the record", failed, 120)
    check_status(found)
    journal.check_order()
    assert journal.added("serve-rw") == []


def test_a_paused_graph_waits(
    kube: Kube, image: str, namespace: str, journal: Journal, operator: OperatorProcess
) -> None:
    paused = graph(namespace)
    paused["metadata"]["annotations"] = {"omnigraph.io/paused": "true"}
    kube.apply(config_map(namespace, "records", **{"people.ndjson": RECORDS}), paused)
    found = kube.wait_condition(namespace, "people", "Paused", timeout=60)
    check_status(found)
    assert journal.added("init", "sweep", "load", "index") == []
    kube.run("annotate", "omnigraph", "people", "-n", namespace, "omnigraph.io/paused-")
    wait_for("work to begin", lambda: journal.added("init"), 60)
    found = kube.wait_condition(namespace, "people", "Reconciling")
    assert all(c["type"] != "Paused" for c in found["status"]["conditions"])


def test_a_server_waiting_for_its_secret_says_which(
    kube: Kube, image: str, namespace: str, operator: OperatorProcess
) -> None:
    server = {"auth": {"tokensSecretRef": {"name": "tokens"}}}
    kube.apply(graph(namespace, loads=[], server=server))

    def told() -> bool:
        ready = kube.condition(namespace, "people", "Ready")
        return ready is not None and 'secret "tokens" not found' in ready["message"]

    wait_for("the missing Secret to be named", told, 90)
    found = kube.get(namespace, "omnigraph", "people")
    assert found is not None
    check_status(found)


@pytest.mark.parametrize("policy", ["Retain", "Delete"])
def test_deletion_takes_the_data_only_when_told_to(
    kube: Kube, image: str, namespace: str, operator: OperatorProcess, policy: str
) -> None:
    kube.apply(graph(namespace, loads=[], deletionPolicy=policy))
    kube.wait_condition(namespace, "people", "Ready")
    data = kube.folders[namespace] / "people"
    assert data.is_dir()
    kube.run("delete", "omnigraph", "people", "-n", namespace, "--wait=false")
    wait_for("the object to go", lambda: kube.get(namespace, "omnigraph", "people") is None, 90)
    wait_for("its children to go", lambda: not kube.items(namespace, "jobs,deployments,leases", "omnigraph.io/graph"))
    assert data.is_dir() is (policy == "Retain")


def test_an_operator_killed_at_any_moment_is_taken_over_and_nothing_is_done_twice(
    kube: Kube,
    image: str,
    namespace: str,
    journal: Journal,
    start_operator: Callable[[], OperatorProcess],
) -> None:
    kube.apply(config_map(namespace, "records", **{"people.ndjson": RECORDS}), graph(namespace, server=SERVER))
    for purpose in ("init", "sweep", "load"):
        process = start_operator()
        wait_for(f"{purpose} to begin", lambda purpose=purpose: journal.added(purpose), 90)
        process.kill()
    start_operator()
    found = kube.wait_condition(namespace, "people", "Ready", timeout=200)
    check_status(found)
    order = journal.check_order()
    assert order.count("init") == 1
    assert order.count("load") == 1
    assert order.count("serve-rw") == 1
    [load] = found["status"]["loads"]
    assert (load["phase"], load["rows"]) == ("Loaded", 5)
