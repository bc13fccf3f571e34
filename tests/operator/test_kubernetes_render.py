"""What the operator would create, without a cluster."""

from __future__ import annotations

from typing import Any

import pytest

from omnigraph_operator.decide.shapes import Engine, Ensure, Purpose, Work
from omnigraph_operator.decide.sources import references
from omnigraph_operator.model.omnigraph import OmniGraphSpec
from omnigraph_operator.platform import kubernetes_render as render
from omnigraph_operator.platform.kubernetes_inputs import place, read

SETTINGS = render.RenderSettings(image="localhost/omnigraph:test")
OBJ = {
    "apiVersion": "omnigraph.io/v1alpha1",
    "kind": "OmniGraph",
    "metadata": {
        "name": "people",
        "namespace": "graphs",
        "uid": "6f0c",
        "labels": {"argocd.argoproj.io/instance": "app"},
        "annotations": {"argocd.argoproj.io/tracking-id": "app"},
    },
}
SPEC: dict[str, Any] = {
    "storage": {"uri": "file:///graphs/people", "volume": {"claimName": "disk"}},
    "schema": {"inline": "node Person { name: String @key }\n"},
    "loads": [
        {"name": "base", "source": {"configMapRef": {"name": "records"}}, "mode": "merge"},
        {"name": "claimed", "source": {"claimName": "incoming", "path": "today/*.ndjson"}},
        {"name": "far", "source": {"uri": "s3://bucket/people.ndjson"}},
    ],
    "server": {
        "auth": {"tokensSecretRef": {"name": "tokens"}},
        "queries": [{"inline": "query all() { match { $p: Person } return { $p.name } }"}],
        "readOnly": {"replicas": 2},
    },
}


def spec_of(**changes: Any) -> OmniGraphSpec:
    return OmniGraphSpec.model_validate({**SPEC, **changes})


def work_of(purpose: Purpose, **changes: Any) -> Work:
    given: dict[str, Any] = {
        "name": f"people-{purpose.value}-12345678",
        "graph": "people",
        "purpose": purpose,
        "digest": "d" * 32,
        "attempt": 1,
        "writes": True,
        "operation_id": "01JDSN0000000000000000000A",
    }
    return Work(**{**given, **changes})


def rendered(work: Work, spec: OmniGraphSpec | None = None) -> tuple[str, dict[str, Any]]:
    spec = spec or spec_of()
    all_references = references(spec)
    configs = {"records": {"data": {"people.ndjson": '{"type":"Person","data":{"name":"Ada"}}\n'}}}
    given = {
        key: (all_references[key], read(spec, all_references[key], lambda name: configs.get(name)))
        for key in work.inputs
    }
    return render.workload(OBJ, spec, work, place(given, config_map=work.name), SETTINGS)


def pod_of(manifest: dict[str, Any]) -> dict[str, Any]:
    pod: dict[str, Any] = manifest["spec"]["template"]["spec"]
    return pod


def test_load_job_sweeps_first_and_once_more_in_its_own_arguments() -> None:
    work = work_of(Purpose.LOAD, sweep="full", inputs=("load/base",), flags=("--name", "base"), deadline_seconds=600)
    resource, job = rendered(work)
    assert resource == "jobs"
    assert job["spec"]["backoffLimit"] == 0
    assert job["spec"]["activeDeadlineSeconds"] == 600
    pod = pod_of(job)
    assert pod["restartPolicy"] == "Never"
    [sweep] = pod["initContainers"]
    assert sweep["command"] == ["omnigraph", "task", "sweep", "--uri", "/graphs/people", "--mode", "full"]
    command = pod["containers"][0]["command"]
    assert command[:6] == ["omnigraph", "task", "load", "--uri", "/graphs/people", "--operation-id"]
    assert command[command.index("--sweep") + 1] == "full"
    assert command[command.index("--source") + 1] == "/omnigraph/inputs/load-base.ndjson"


def test_children_are_owned_and_carry_none_of_the_parents_labels() -> None:
    _, job = rendered(work_of(Purpose.SWEEP, sweep="full"))
    [owner] = job["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"], owner["controller"]) == ("OmniGraph", "6f0c", True)
    assert "argocd.argoproj.io/instance" not in job["metadata"]["labels"]
    assert "argocd.argoproj.io/tracking-id" not in job["metadata"]["annotations"]
    assert job["metadata"]["labels"]["omnigraph.io/graph"] == "people"
    assert job["spec"]["template"]["metadata"]["labels"]["omnigraph.io/workload"] == "people-sweep-12345678"


@pytest.mark.parametrize(
    "work",
    [
        work_of(Purpose.SWEEP, sweep="full"),
        work_of(Purpose.INIT, inputs=("schema",)),
        work_of(Purpose.LOAD, sweep="full", inputs=("load/claimed",), engine=Engine.SPARK),
        work_of(Purpose.SERVE_RW, sweep="forward", inputs=("queries/0", "tokens")),
        work_of(Purpose.SERVE_RO, writes=False, replicas=2, inputs=("queries/0", "tokens")),
    ],
    ids=lambda work: work.purpose.value,
)
def test_every_pod_is_restricted(work: Work) -> None:
    _, manifest = rendered(work)
    pod = pod_of(manifest)
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod["automountServiceAccountToken"] is False
    for container in pod["initContainers"] + pod["containers"]:
        assert container["securityContext"]["allowPrivilegeEscalation"] is False
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert {"name": "tmp", "mountPath": "/tmp"} in container["volumeMounts"]


def test_init_has_no_sweep_container_since_there_is_nothing_to_sweep() -> None:
    _, job = rendered(work_of(Purpose.INIT, inputs=("schema",), sweep="none"))
    assert pod_of(job)["initContainers"] == []


def test_writing_server_never_overlaps_with_another() -> None:
    resource, rw = rendered(work_of(Purpose.SERVE_RW, sweep="forward", inputs=("queries/0", "tokens")))
    assert resource == "deployments"
    assert rw["spec"]["strategy"] == {"type": "Recreate"}
    assert rw["spec"]["replicas"] == 1
    command = pod_of(rw)["containers"][0]["command"]
    assert command[:3] == ["omnigraph", "serve", "/graphs/people"]
    assert command[command.index("--tokens-file") + 1] == "/omnigraph/secrets/tokens"
    assert command[command.index("--queries") + 1] == "/omnigraph/inputs/queries-0.gq"
    assert "--read-only" not in command
    _, ro = rendered(work_of(Purpose.SERVE_RO, writes=False, replicas=2, inputs=("queries/0", "tokens")))
    assert ro["spec"]["replicas"] == 2
    assert "--read-only" in pod_of(ro)["containers"][0]["command"]
    assert pod_of(ro)["initContainers"] == []
    graph = next(m for m in pod_of(ro)["containers"][0]["volumeMounts"] if m["name"] == "graph")
    assert graph == {"name": "graph", "mountPath": "/graphs", "readOnly": True}


def test_claimed_source_is_mounted_read_only() -> None:
    _, job = rendered(work_of(Purpose.LOAD, sweep="full", inputs=("load/claimed",)))
    pod = pod_of(job)
    command = pod["containers"][0]["command"]
    assert command[command.index("--source") + 1] == "/omnigraph/source/today/*.ndjson"
    [claim] = [v for v in pod["volumes"] if v["name"] == "source"]
    assert claim["persistentVolumeClaim"] == {"claimName": "incoming", "readOnly": True}


def test_object_store_settings_reach_the_container_and_the_secret_by_name_only() -> None:
    storage = {
        "uri": "s3://bucket/people",
        "secretRef": {"name": "keys"},
        "endpoint": "http://minio:9000",
        "pathStyle": True,
        "allowHttp": True,
    }
    _, job = rendered(work_of(Purpose.SWEEP, sweep="full"), spec_of(storage=storage))
    [container] = pod_of(job)["containers"]
    assert container["envFrom"] == [{"secretRef": {"name": "keys"}}]
    assert {e["name"]: e["value"] for e in container["env"]} == {
        "AWS_ENDPOINT": "http://minio:9000",
        "AWS_ALLOW_HTTP": "true",
        "AWS_VIRTUAL_HOSTED_STYLE_REQUEST": "false",
    }
    assert container["command"][4] == "s3://bucket/people"


def test_embedding_settings_reach_servers_and_loads_and_the_key_by_name_only() -> None:
    key = {"name": "openai", "key": "token"}
    embedding = {"provider": "openai-compatible", "model": "m", "baseUrl": "http://ollama/v1", "apiKeySecretRef": key}
    spec = spec_of(server={**SPEC["server"], "embedding": embedding})
    for work in (work_of(Purpose.LOAD, inputs=("load/far",)), work_of(Purpose.SERVE_RO, writes=False, inputs=())):
        [container] = pod_of(rendered(work, spec)[1])["containers"]
        env = {e["name"]: e.get("value") or e["valueFrom"] for e in container["env"]}
        assert env == {
            "OMNIGRAPH_EMBED_PROVIDER": "openai-compatible",
            "OMNIGRAPH_EMBED_MODEL": "m",
            "OMNIGRAPH_EMBED_BASE_URL": "http://ollama/v1",
            "OMNIGRAPH_EMBED_CACHE": "/tmp/embeddings",
            "OMNIGRAPH_EMBED_API_KEY": {"secretKeyRef": key},
        }
    [container] = pod_of(rendered(work_of(Purpose.SERVE_RO, writes=False, inputs=()))[1])["containers"]
    assert not container["env"]


def test_task_template_is_laid_over() -> None:
    template = {
        "metadata": {"labels": {"team": "data"}},
        "spec": {
            "nodeSelector": {"disk": "fast"},
            "containers": [{"name": "task", "env": [{"name": "TZ", "value": "UTC"}]}, {"name": "side", "image": "x"}],
        },
    }
    spec = spec_of(task={"template": template, "resources": {"limits": {"memory": "1Gi"}}})
    _, job = rendered(work_of(Purpose.SWEEP, sweep="full"), spec)
    pod = pod_of(job)
    assert pod["nodeSelector"] == {"disk": "fast"}
    assert job["spec"]["template"]["metadata"]["labels"]["team"] == "data"
    assert job["spec"]["template"]["metadata"]["labels"]["omnigraph.io/graph"] == "people"
    task, side = pod["containers"]
    assert task["env"] == [{"name": "TZ", "value": "UTC"}]
    assert task["command"][0] == "omnigraph"
    assert task["resources"] == {"limits": {"memory": "1Gi"}}
    assert side == {"name": "side", "image": "x"}


def test_spark_application_puts_everything_into_templates() -> None:
    work = work_of(
        Purpose.LOAD, sweep="full", inputs=("load/far",), engine=Engine.SPARK_APPLICATION, deadline_seconds=60
    )
    resource, app = rendered(work, spec_of(spark={"executor": {"instances": 3, "memory": "1g"}}))
    assert resource == "sparkapplications"
    spec = app["spec"]
    assert spec["restartPolicy"] == {"type": "Never"}
    assert spec["mainApplicationFile"] == "local:///opt/omnigraph/driver.py"
    assert spec["arguments"][:2] == ["task", "load"]
    assert spec["arguments"][spec["arguments"].index("--engine") + 1] == "spark"
    assert app["metadata"]["annotations"]["omnigraph.io/deadline-seconds"] == "60"
    driver, executor = spec["driver"]["template"]["spec"], spec["executor"]["template"]["spec"]
    assert [c["name"] for c in driver["containers"]] == ["spark-kubernetes-driver"]
    assert [c["name"] for c in executor["containers"]] == ["spark-kubernetes-executor"]
    assert "command" not in driver["containers"][0]
    assert [c["name"] for c in driver["initContainers"]] == ["sweep"]
    assert "initContainers" not in executor
    assert spec["executor"]["instances"] == 3
    assert "env" not in spec["driver"]  # silently ignored without the Spark operator's webhook
    assert len(app["metadata"]["name"]) + len("-driver") <= 63


def test_service_leads_to_the_pods_of_its_purpose() -> None:
    action = Ensure("service", "people-rw", {"purpose": "serve-rw", "port": "9000"}, "e" * 32)
    resource, service = render.ensured(OBJ, action)
    assert resource == "services"
    _, deployment = rendered(work_of(Purpose.SERVE_RW, sweep="forward", port=9000))
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"].items() <= labels.items()
    [port] = service["spec"]["ports"]
    [open_port] = pod_of(deployment)["containers"][0]["ports"]
    assert (port["port"], port["targetPort"], open_port["containerPort"]) == (9000, open_port["name"], 9000)


def test_claim_for_a_size_outlives_the_object() -> None:
    spec = spec_of(storage={"uri": "file:///graphs/people", "volume": {"size": "5Gi", "storageClassName": "fast"}})
    claim = render.claim(OBJ, spec)
    assert claim is not None
    assert claim["metadata"]["name"] == "people-data"
    assert "ownerReferences" not in claim["metadata"]
    assert claim["spec"]["resources"]["requests"]["storage"] == "5Gi"
    _, job = rendered(work_of(Purpose.SWEEP, sweep="full"), spec)
    assert {"claimName": "people-data"} in [v.get("persistentVolumeClaim") for v in pod_of(job)["volumes"]]
    assert render.claim(OBJ, spec_of()) is None


@pytest.mark.parametrize(
    ("storage", "said"),
    [
        ({"uri": "file:people.omni"}, "is relative"),
        ({"uri": "file:///graphs/people"}, "needs storage.volume"),
    ],
)
def test_storage_that_no_pod_could_keep_is_said_before_anything_starts(storage: dict[str, Any], said: str) -> None:
    spec = spec_of(storage=storage)
    error = read(spec, references(spec)["schema"], lambda _: None).source.error
    assert error is not None
    assert said in error


@pytest.mark.parametrize(
    ("reference", "config", "said"),
    [
        ({"name": "records"}, None, "ConfigMap/records isn't there"),
        ({"name": "records", "key": "x"}, {"data": {"y": ""}}, "has no key x (it has: y)"),
        ({"name": "records"}, {"data": {"a": "", "b": ""}}, "has several keys (a, b): name one"),
        ({"name": "records"}, {"binaryData": {"a": "/w=="}}, "not UTF-8 text"),
    ],
)
def test_config_maps_that_do_not_do_are_named(reference: dict[str, str], config: Any, said: str) -> None:
    spec = spec_of(schema={"configMapRef": reference})
    error = read(spec, references(spec)["schema"], lambda _: config).source.error
    assert error is not None
    assert said in error


def test_queries_of_a_config_map_are_all_its_gq_keys() -> None:
    server = {**SPEC["server"], "queries": [{"configMapRef": {"name": "q"}}]}
    spec = spec_of(server=server)
    config = {"data": {"b.gq": "second", "a.gq": "first", "README": "no"}}
    found = read(spec, references(spec)["queries/0"], lambda _: config)
    assert found.source.text == "first\nsecond"


def test_data_is_removed_on_the_volume_and_never_silently_left_in_a_bucket() -> None:
    _, job = rendered(work_of(Purpose.DELETE))
    assert pod_of(job)["containers"][0]["command"][3:] == ["/graphs/people", "/tmp/result.json"]
    _, job = rendered(work_of(Purpose.DELETE), spec_of(storage={"uri": "s3://bucket/people"}))
    assert "s3://bucket/people must be removed by hand" in pod_of(job)["containers"][0]["command"][-1]
