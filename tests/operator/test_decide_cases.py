"""Decisions as a table: what is seen, and what has to follow from it."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from omnigraph_operator import decide
from omnigraph_operator.decide import names
from omnigraph_operator.decide.conditions import Fact, conditions
from omnigraph_operator.decide.loads import choose_engine
from omnigraph_operator.decide.shapes import (
    Capabilities,
    Decision,
    Engine,
    Lease,
    Observed,
    Phase,
    Purpose,
    Source,
    Start,
    Stop,
    TakeWriter,
    Workload,
)
from omnigraph_operator.model.omnigraph import Load, Spark

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
TEXT = "node Person { name: String @key }"
OBJECT: Mapping[str, Any] = {
    "apiVersion": "omnigraph.io/v1alpha1",
    "kind": "OmniGraph",
    "metadata": {
        "name": "g", "namespace": "n", "uid": "u", "generation": 3, "creationTimestamp": "2026-01-01T00:00:00Z",
    },
    "spec": {
        "storage": {"uri": "file:/g"},
        "schema": {"configMapRef": {"name": "texts"}},
        "loads": [{"name": "people", "source": {"uri": "people.ndjson"}}],
        "server": {"auth": {"unauthenticated": True}, "queries": [{"inline": "query a() { match { $p: Person } }"}]},
    },
}  # fmt: skip
SOURCES = {
    "schema": Source("s", 10, TEXT, "ConfigMap/texts/schema.pg"),
    "load/people": Source("p", 10, None, "people.ndjson"),
    "queries/0": Source("q", 10, "query a() { match { $p: Person } return { $p.name as name } }", "q.gq"),
}


def seen(**given: Any) -> Observed:
    return replace(Observed(now=NOW, sources=dict(SOURCES)), **given)


def run(observed: Observed, change: Mapping[str, Any] | None = None, **meta: Any) -> Decision:
    obj = copy.deepcopy(dict(OBJECT))
    obj["spec"] |= change or {}
    obj["metadata"] |= meta
    return decide.decide(obj, observed)


def fact(decision: Decision, type_: str) -> Mapping[str, Any]:
    return next((c for c in decision.status["conditions"] if c["type"] == type_), {})


def effects(decision: Decision) -> list[str]:
    return [type(a).__name__ for a in decision.actions if type(a).__name__ != "Emit"]


def test_an_empty_world_takes_the_lease_for_the_init() -> None:
    decision = run(seen())
    assert effects(decision) == ["TakeWriter"]
    assert decision.status["phase"] == "Initializing"
    assert decision.status["observedGeneration"] == 3
    assert fact(decision, "Reconciling")["status"] == "True"
    assert fact(decision, "Stalled") == {}


BROKEN: dict[str, tuple[str, Source, str, str]] = {
    "schema doesn't compile": (
        "schema", Source("s", 1, "node Person {\n  name: Strin\n}", "schema.pg"), "SchemaInvalid", r"schema\.pg:2:9: ",
    ),
    "schema missing": ("schema", Source(error="ConfigMap/texts isn't there"), "SourceMissing", "ConfigMap/texts"),
    "source missing": ("load/people", Source(error="people.ndjson: no such file"), "SourceMissing", "people.ndjson"),
    "query doesn't compile": (
        "queries/0", Source("q", 1, "query a() {\n  match { $p: Persn }\n  return { $p }\n}", "q.gq"),
        "QueryInvalid", r"q\.gq:2:15: T1 ",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BROKEN)
def test_what_is_broken_stalls_before_anything_starts(case: str) -> None:
    key, source, reason, pattern = BROKEN[case]
    decision = run(seen(sources=SOURCES | {key: source}))
    assert effects(decision) == []
    assert decision.status["phase"] == "Stalled"
    for type_, status in (("Ready", "False"), ("Stalled", "True")):
        assert fact(decision, type_)["status"] == status
        assert fact(decision, type_)["reason"] == reason
    assert re.search(pattern, fact(decision, "Ready")["message"]), fact(decision, "Ready")["message"]


def test_a_mapping_that_does_not_fit_stalls() -> None:
    load = {
        "name": "people", "source": {"uri": "d"}, "format": "parquet",
        "mapping": {"sources": [{"path": "a.parquet", "node": "Robot"}]},
    }  # fmt: skip
    decision = run(seen(), {"loads": [load]})
    assert fact(decision, "Stalled")["reason"] == "MappingInvalid"
    assert "Robot" in fact(decision, "Stalled")["message"]


@pytest.mark.parametrize(
    ("change", "meta", "reason"),
    [
        ({"suspend": True}, {}, "Suspended"),
        ({}, {"annotations": {"omnigraph.io/paused": "true"}}, "Annotated"),
    ],
)
def test_paused_does_nothing_and_says_so(change: dict[str, Any], meta: dict[str, Any], reason: str) -> None:
    decision = run(seen(lease=Lease("g-load-x", "u", NOW, 1)), change, **meta)
    assert effects(decision) == []
    assert fact(decision, "Paused") | {"lastTransitionTime": 0, "message": 0} == {
        "type": "Paused", "status": "True", "observedGeneration": 3, "reason": reason,
        "lastTransitionTime": 0, "message": 0,
    }  # fmt: skip
    assert decision.status["phase"] == "Paused"


def test_a_spec_that_cannot_be_read_stalls() -> None:
    decision = run(seen(), {"deletionPolicy": "Perhaps"})
    assert fact(decision, "Stalled")["reason"] == "SpecInvalid"
    assert "deletionPolicy" in fact(decision, "Stalled")["message"]


def test_anothers_lease_is_waited_for() -> None:
    decision = run(seen(lease=Lease("g-merge-12345678", "another", NOW, 4)))
    assert effects(decision) == []
    assert "g-merge-12345678" in fact(decision, "WaitingForWriter")["message"]


def workload(name: str, **given: Any) -> Workload:
    facts: dict[str, Any] = {
        "purpose": Purpose.LOAD, "digest": "d", "attempt": 0, "writes": True, "phase": Phase.RUNNING, "gone": False,
    }  # fmt: skip
    return Workload(name=name, **(facts | given))


HOLDER = Lease("g-load-old", "u", NOW - timedelta(hours=1), 2)
LEASES: dict[str, tuple[Workload | None, list[str]]] = {
    "holder runs": (workload("g-load-old"), []),
    "holder ended, parts live": (workload("g-load-old", phase=Phase.FAILED, finished=NOW - timedelta(seconds=5)), []),
    "parts live for long": (
        workload("g-load-old", phase=Phase.FAILED, finished=NOW - timedelta(minutes=5)), ["Stop"],
    ),
    "holder ended and gone": (
        workload("g-load-old", phase=Phase.SUCCEEDED, gone=True, finished=NOW), ["ReleaseWriter"],
    ),
    "holder absent": (None, ["ReleaseWriter"]),
    "holder is a server that starts": (workload("g-load-old", purpose=Purpose.SERVE_RO, writes=False), []),
}  # fmt: skip


@pytest.mark.parametrize("case", LEASES)
def test_a_lease_is_given_back_only_when_its_holder_is_gone(case: str) -> None:
    holder, wanted = LEASES[case]
    workloads = {holder.name: holder} if holder else {}
    decision = run(seen(lease=HOLDER, workloads=workloads), {"server": None})
    assert [e for e in effects(decision) if e != "Forget" and not (e == "Stop" and "server" in case)] == wanted


def test_a_writer_without_the_lease_gets_it_back_first() -> None:
    decision = run(seen(workloads={"g-load-old": workload("g-load-old")}))
    assert [a for a in decision.actions if isinstance(a, TakeWriter)] == [TakeWriter("g-load-old")]


def initialized(**given: Any) -> Observed:
    schema_hash = __import__("hashlib").sha256(TEXT.encode()).hexdigest()
    return seen(status={"schemaHash": schema_hash, "created": True, **given.pop("status", {})}, **given)


def test_a_changed_schema_is_reported_and_nothing_is_done() -> None:
    changed = SOURCES | {"schema": Source("s2", 1, TEXT + "\nnode Robot { name: String @key }", "schema.pg")}
    decision = run(initialized(sources=changed))
    assert effects(decision) == []
    assert fact(decision, "SchemaInSync")["reason"] == "SchemaChanged"
    decision = run(initialized(sources=changed), {"schemaPolicy": {"apply": "InitOnly"}})
    assert effects(decision) == ["TakeWriter"]


def test_read_only_servers_need_no_lease_and_the_old_ones_stay_until_the_new_answer() -> None:
    spec = {"loads": [], "server": {"auth": {"unauthenticated": True}, "readWrite": {"enabled": False},
                                    "readOnly": {"replicas": 2}}}  # fmt: skip
    old = workload("g-serve-ro-old", purpose=Purpose.SERVE_RO, writes=False, ready=True, endpoint="http://old")
    decision = run(initialized(workloads={old.name: old}), spec)
    starts = [a.work for a in decision.actions if isinstance(a, Start)]
    assert [(w.purpose, w.replicas, w.writes, w.sweep) for w in starts] == [(Purpose.SERVE_RO, 2, False, "none")]
    assert not [a for a in decision.actions if isinstance(a, Stop)]
    new = replace(old, name=starts[0].name, digest=starts[0].digest, endpoint="http://new")
    decision = run(initialized(workloads={old.name: old, new.name: new}), spec)
    assert [a.name for a in decision.actions if isinstance(a, Stop)] == [old.name]
    assert decision.status["endpoints"] == {"readOnly": "http://new"}


def test_a_source_that_was_loaded_may_go_away() -> None:
    loads = [{"name": "people", "phase": "Loaded", "digest": "x", "revision": 0, "rows": 3}]
    gone = SOURCES | {"load/people": Source(error="people.ndjson: no such file")}
    decision = run(initialized(sources=gone, status={"loads": loads}))
    assert fact(decision, "Stalled") == {}
    assert decision.status["loads"] == loads


def test_a_second_pass_over_the_same_world_changes_nothing() -> None:
    first = run(seen())
    second = run(seen(status=first.status, now=NOW + timedelta(minutes=5)))
    assert second.status == first.status
    assert effects(second) == effects(first)
    assert len(second.actions) < len(first.actions) or not any("Emit" in type(a).__name__ for a in second.actions)


def test_transition_times_move_with_the_status_alone() -> None:
    first = conditions([Fact("Ready", False, "A", "a")], [], generation=1, now=NOW)
    later = NOW + timedelta(hours=1)
    second = conditions([Fact("Ready", False, "B", "b")], first, generation=2, now=later)
    assert second[0]["lastTransitionTime"] == first[0]["lastTransitionTime"] == "2026-05-01T12:00:00Z"
    assert (second[0]["reason"], second[0]["observedGeneration"]) == ("B", 2)
    third = conditions([Fact("Ready", True, "B", "b")], second, generation=2, now=later)
    assert third[0]["lastTransitionTime"] == "2026-05-01T13:00:00Z"


HERE = Capabilities(spark_operator="NoCluster", spark_min_bytes=100)
SERVED = Capabilities(spark_operator=None, spark_min_bytes=100)
BARE = Capabilities(spark_operator="SparkCRDMissing", spark_process="no Java", spark_min_bytes=100)
ENGINES: list[tuple[str, str, int | None, Capabilities, Engine, bool]] = [
    # spark.mode, loads[].spark, bytes, place -> engine, refused
    ("Auto", "Auto", 99, HERE, Engine.PROCESS, False),
    ("Auto", "Auto", 100, HERE, Engine.SPARK, False),
    ("Auto", "Auto", 100, SERVED, Engine.SPARK_APPLICATION, False),
    ("Auto", "Auto", None, SERVED, Engine.SPARK_APPLICATION, False),
    ("Auto", "Auto", None, HERE, Engine.PROCESS, False),
    ("Auto", "Auto", 100, BARE, Engine.PROCESS, False),
    ("Auto", "Always", 1, HERE, Engine.SPARK, False),
    ("Auto", "Always", 1, BARE, Engine.SPARK, True),
    ("Auto", "Never", 999, SERVED, Engine.PROCESS, False),
    ("Job", "Auto", 1, SERVED, Engine.SPARK, False),
    ("Job", "Never", 1, SERVED, Engine.PROCESS, False),
    ("SparkOperator", "Auto", 1, SERVED, Engine.SPARK_APPLICATION, False),
    ("SparkOperator", "Auto", 1, HERE, Engine.SPARK_APPLICATION, True),
    ("Never", "Auto", 999, SERVED, Engine.PROCESS, False),
    ("Never", "Always", 1, HERE, Engine.SPARK, False),
]


@pytest.mark.parametrize(("mode", "word", "size", "place", "engine", "refused"), ENGINES)
def test_the_engine_of_a_load(
    mode: Any, word: Any, size: int | None, place: Capabilities, engine: Engine, refused: bool
) -> None:
    load = Load.model_validate({"name": "l", "source": {"uri": "x"}, "spark": word})
    choice = choose_engine(load, Spark(mode=mode), Source("d", size), place)
    assert (choice.engine, choice.problem is not None) == (engine, refused)
    assert choice.why


def test_names_fit_and_ids_are_ulids() -> None:
    name = names.workload("g" * 40, Purpose.SERVE_RW, "u", "d", 0)
    assert len(name) == 58
    assert name == names.workload("g" * 40, Purpose.SERVE_RW, "u", "d", 0)
    assert len(names.workload("g" * 40, Purpose.LOAD, "u")) <= 56, "Spark's limit"
    created = datetime(2026, 1, 1, tzinfo=UTC)
    one, two = names.operation_id(created, "u", "load", "a"), names.operation_id(created, "u", "load", "b")
    assert re.fullmatch(r"[0-7][0-9A-HJKMNP-TV-Z]{25}", one)
    assert one != two
    assert one[:10] == two[:10]


def test_other_embedding_settings_or_another_key_are_another_server() -> None:
    server: dict[str, Any] = {"auth": {"unauthenticated": True}, "readWrite": {"enabled": False}}
    server["readOnly"] = {"replicas": 1}
    key = {"apiKeySecretRef": {"name": "ai", "key": "token"}}
    digests = []
    for embedding, found in ((None, None), ({"model": "m"}, None), ({"model": "n"}, None), (key, "1"), (key, "2")):
        spec = {"loads": [], "server": {**server, **({"embedding": embedding} if embedding else {})}}
        observed = initialized()
        if found:
            observed = replace(observed, sources={**observed.sources, "embedding": Source(digest=found)})
        [work] = [a.work for a in run(observed, spec).actions if isinstance(a, Start)]
        digests.append(work.digest)
    assert len(set(digests)) == len(digests)


def test_a_server_that_fails_to_start_is_tried_again_every_minute_and_holds_no_load_up() -> None:
    server = {"auth": {"unauthenticated": True}, "readWrite": {"enabled": False}, "readOnly": {"replicas": 1}}
    spec = {"loads": [], "server": server}
    [work] = [a.work for a in run(initialized(), spec).actions if isinstance(a, Start)]
    failed = {}
    for attempt in range(3):
        name = names.workload("g", Purpose.SERVE_RO, "u", work.digest, attempt)
        failed[name] = workload(
            name, purpose=Purpose.SERVE_RO, digest=work.digest, attempt=attempt, writes=False, phase=Phase.FAILED,
            gone=True, exit_code=1, message="port 80 is taken", started=NOW, finished=NOW + timedelta(seconds=1),
        )  # fmt: skip
    soon = run(initialized(workloads=failed, now=NOW + timedelta(seconds=30)), spec)
    assert fact(soon, "Stalled")["reason"] == "ServerFailed"
    assert "port 80 is taken" in fact(soon, "Stalled")["message"]
    assert not [a for a in soon.actions if isinstance(a, Start)]
    assert soon.again_in is not None
    assert soon.again_in <= 31
    later = run(initialized(workloads=failed, now=NOW + timedelta(seconds=62)), spec)
    assert [a.work.attempt for a in later.actions if isinstance(a, Start)] == [3]
    with_load = run(initialized(workloads=failed, now=NOW + timedelta(seconds=30)), {"server": server})
    assert [type(a) for a in with_load.actions if isinstance(a, TakeWriter)] == [TakeWriter]
