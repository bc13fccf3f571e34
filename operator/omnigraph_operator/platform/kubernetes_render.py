"""From a workload to manifests: Jobs, SparkApplications, Deployments and what they mount. Pure.

Every pod is as tight as the `restricted` Pod Security Standard asks: not root, read-only root file system, no
capabilities, no ServiceAccount token. A write workload carries its sweep twice: as an init container, so that the order
sweep → write holds even when nobody watches, and in its own arguments, since init containers don't run again when a
container restarts in place.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from omnigraph_operator.decide.shapes import Engine, Ensure, Purpose, Work
from omnigraph_operator.model.common import Resources
from omnigraph_operator.model.omnigraph import OmniGraphSpec, SparkDriver, SparkExecutor
from omnigraph_operator.platform.base import Object, command_arguments
from omnigraph_operator.platform.kubernetes_inputs import Placement, graph_path, volume_mount_path
from omnigraph_operator.platform.kubernetes_names import (
    DIGEST,
    WORKLOAD,
    labels,
    metadata,
    work_annotations,
)

__all__ = ["DEADLINE", "SERVER_PORT", "TASK", "RenderSettings", "claim", "ensured", "inputs", "overlay", "workload"]

TASK = "task"  # name of the container that does the work
SERVER_PORT = 8080
DEADLINE = "omnigraph.io/deadline-seconds"  # of SparkApplications, which have none of their own
USER_ID = 185
DRIVER_CONTAINER = "spark-kubernetes-driver"
EXECUTOR_CONTAINER = "spark-kubernetes-executor"
JVM_OPTIONS = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"  # 30 to 44 % less CPU for jobs of minutes (measured)


@dataclass(frozen=True, slots=True)
class RenderSettings:
    """What is the same for every graph.

    Args:
        image: of tasks and servers, unless the spec names one.
        spark_service_account: ServiceAccount of Spark drivers; it may make pods in the graph's namespace.
        spark_version: said in SparkApplications; the image's.
    """

    image: str = "localhost/omnigraph:dev"
    image_pull_policy: str = "IfNotPresent"
    spark_service_account: str = "omnigraph-spark"
    spark_version: str = "4.3.0"
    grace_period_seconds: int = 30


def workload(
    obj: Object, spec: OmniGraphSpec, work: Work, placement: Placement, settings: RenderSettings
) -> tuple[str, dict[str, Any]]:
    """The object that runs a workload.

    Returns:
        The resource (plural) and the manifest.
    """
    if work.purpose.serves:
        return "deployments", _deployment(obj, spec, work, placement, settings)
    if work.engine is Engine.SPARK_APPLICATION:
        return "sparkapplications", _spark_application(obj, spec, work, placement, settings)
    return "jobs", _job(obj, spec, work, placement, settings)


def inputs(obj: Object, work: Work, placement: Placement) -> dict[str, Any]:
    """The workload's own ConfigMap: the very bytes the decision was made on."""
    plain: dict[str, str] = {}
    binary: dict[str, str] = {}
    for name, data in placement.texts.items():
        try:
            plain[name] = data.decode()
        except UnicodeDecodeError:
            binary[name] = base64.b64encode(data).decode()
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata(obj, work.name, purpose=work.purpose.value, workload=work.name),
        "immutable": True,
        "data": plain,
        "binaryData": binary,
    }


def claim(obj: Object, spec: OmniGraphSpec) -> dict[str, Any] | None:
    """The claim for `storage.volume.size`. Not owned by the graph: what it holds outlives the object by default."""
    volume = spec.storage.volume
    if volume is None or volume.size is None:
        return None
    body: dict[str, Any] = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": str(volume.size)}},
    }
    if volume.storage_class_name is not None:
        body["storageClassName"] = volume.storage_class_name
    meta = metadata(obj, _claim_name(obj, spec))
    del meta["ownerReferences"]
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta, "spec": body}


def ensured(obj: Object, action: Ensure) -> tuple[str, dict[str, Any]]:
    """A Service that leads to the workloads of one purpose, or a ConfigMap."""
    graph = obj["metadata"]["name"]
    if action.kind == "config":
        meta = metadata(obj, action.name, annotations={DIGEST: action.digest})
        return "configmaps", {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": dict(action.data)}
    purpose = action.data["purpose"]
    port = int(action.data.get("port") or SERVER_PORT)
    meta = metadata(obj, action.name, purpose=purpose, annotations={DIGEST: action.digest})
    selector = {key: value for key, value in labels(graph, purpose=purpose).items() if key.startswith("omnigraph.io/")}
    return "services", {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": meta,
        "spec": {"selector": selector, "ports": [{"name": "http", "port": port, "targetPort": "http"}]},
    }


def overlay(base: Any, patch: Any) -> Any:
    """Lay a partial manifest over another: mappings merge, lists of named things by name, the rest is replaced."""
    if isinstance(base, Mapping) and isinstance(patch, Mapping):
        out = dict(base)
        for key, value in patch.items():
            out[key] = overlay(base[key], value) if key in base else value
        return out
    if _named(base) and _named(patch):
        known = {item["name"]: item for item in base}
        for item in patch:
            known[item["name"]] = overlay(known[item["name"]], item) if item["name"] in known else item
        return list(known.values())
    return patch


def _named(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, Mapping) and "name" in item for item in value)


# ---- the three forms -------------------------------------------------------------------------------------------------


def _job(
    obj: Object, spec: OmniGraphSpec, work: Work, placement: Placement, settings: RenderSettings
) -> dict[str, Any]:
    arguments = _arguments(spec, work, placement)
    body: dict[str, Any] = {
        "backoffLimit": 0,  # a retry is a new workload, decided on what is seen then
        "podReplacementPolicy": "Failed",
        "template": _pod(obj, spec, work, placement, settings, arguments, spec.task.resources),
    }
    if work.deadline_seconds is not None:
        body["activeDeadlineSeconds"] = work.deadline_seconds
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": _metadata(obj, work), "spec": body}


def _deployment(
    obj: Object, spec: OmniGraphSpec, work: Work, placement: Placement, settings: RenderSettings
) -> dict[str, Any]:
    assert spec.server is not None
    writes = work.purpose is Purpose.SERVE_RW
    resources = spec.server.read_write.resources if writes else spec.server.read_only.resources
    template = _pod(obj, spec, work, placement, settings, _arguments(spec, work, placement), resources)
    container = template["spec"]["containers"][0]
    port = work.port or SERVER_PORT
    container["ports"] = [{"name": "http", "containerPort": port}]
    # A sweep and a big schema take their time at the start; after that a silent server is a broken one.
    container["startupProbe"] = {
        "httpGet": {"path": "/healthz", "port": "http"},
        "periodSeconds": 1,
        "failureThreshold": 600,
    }
    container["readinessProbe"] = {"httpGet": {"path": "/readyz", "port": "http"}, "periodSeconds": 2}
    container["livenessProbe"] = {"httpGet": {"path": "/healthz", "port": "http"}, "periodSeconds": 10}
    template["spec"]["restartPolicy"] = "Always"
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": _metadata(obj, work),
        "spec": {
            "replicas": work.replicas,
            # two writing servers must never overlap
            "strategy": {"type": "Recreate" if writes else "RollingUpdate"},
            "revisionHistoryLimit": 0,
            "selector": {"matchLabels": {WORKLOAD: work.name}},
            "template": template,
        },
    }


def _spark_application(
    obj: Object, spec: OmniGraphSpec, work: Work, placement: Placement, settings: RenderSettings
) -> dict[str, Any]:
    arguments = _arguments(spec, work, placement)
    driver = _pod(obj, spec, work, placement, settings, arguments, None)
    executor = _pod(obj, spec, work, placement, settings, arguments, None)
    for template, name in ((driver, DRIVER_CONTAINER), (executor, EXECUTOR_CONTAINER)):
        container = template["spec"]["containers"][0]
        container["name"] = name
        for field in ("command", "resources", "image", "imagePullPolicy"):  # the application says these itself
            container.pop(field, None)
        del template["spec"]["automountServiceAccountToken"]  # Spark asks the API server for its executors
    del executor["spec"]["initContainers"]
    conf = {
        "spark.ui.enabled": "false",
        "spark.kubernetes.executor.podNamePrefix": work.name,
        "spark.kubernetes.allocation.batch.delay": "1s",
        "spark.driver.extraJavaOptions": JVM_OPTIONS,
        "spark.executor.extraJavaOptions": JVM_OPTIONS,
        # Spark 4.3 makes a NetworkPolicy for every application, which the Spark operator's own role doesn't allow.
        "spark.kubernetes.driver.pod.excludedFeatureSteps": (
            "org.apache.spark.deploy.k8s.features.NetworkPolicyFeatureStep"
        ),
        **spec.spark.conf,
    }
    meta = _metadata(obj, work)
    if work.deadline_seconds is not None:
        meta["annotations"][DEADLINE] = str(work.deadline_seconds)
    account = spec.task.service_account_name or settings.spark_service_account
    return {
        "apiVersion": "sparkoperator.k8s.io/v1beta2",
        "kind": "SparkApplication",
        "metadata": meta,
        "spec": {
            "type": "Python",
            "mode": "cluster",
            "pythonVersion": "3",
            "sparkVersion": settings.spark_version,
            "image": spec.spark.image or spec.task.image or settings.image,
            "imagePullPolicy": settings.image_pull_policy,
            "mainApplicationFile": "local:///opt/omnigraph/driver.py",
            "arguments": arguments,
            "sparkConf": conf,
            "restartPolicy": {"type": "Never"},
            "driver": {
                **_spark_part(spec.spark.driver),
                "serviceAccount": account,
                "template": overlay(driver, spec.spark.driver.template or {}),
            },
            "executor": {
                **_spark_part(spec.spark.executor),
                "instances": spec.spark.executor.instances or 1,
                "deleteOnTermination": True,
                "template": overlay(executor, spec.spark.executor.template or {}),
            },
        },
    }


def _spark_part(part: SparkDriver | SparkExecutor) -> dict[str, Any]:
    out: dict[str, Any] = {"cores": part.cores or 1}
    if part.memory is not None:
        out["memory"] = part.memory
    return out


# ---- parts -----------------------------------------------------------------------------------------------------------


def _metadata(obj: Object, work: Work) -> dict[str, Any]:
    return metadata(obj, work.name, purpose=work.purpose.value, workload=work.name, annotations=work_annotations(work))


def _arguments(spec: OmniGraphSpec, work: Work, placement: Placement) -> list[str]:
    port = work.port or SERVER_PORT
    return command_arguments(work, uri=graph_path(spec), paths=placement.paths, host="0.0.0.0", port=port)


def _pod(
    obj: Object,
    spec: OmniGraphSpec,
    work: Work,
    placement: Placement,
    settings: RenderSettings,
    arguments: Sequence[str],
    resources: Resources | None,
) -> dict[str, Any]:
    graph = obj["metadata"]["name"]
    volumes: list[dict[str, Any]] = [{"name": "tmp", "emptyDir": {}}, *placement.volumes]
    mounts: list[dict[str, Any]] = [{"name": "tmp", "mountPath": "/tmp"}, *placement.mounts]
    if spec.storage.volume is not None:
        read_only = work.purpose is Purpose.SERVE_RO
        volumes.append({"name": "graph", "persistentVolumeClaim": {"claimName": _claim_name(obj, spec)}})
        mounts.append({"name": "graph", "mountPath": volume_mount_path(spec), "readOnly": read_only})
    image = (spec.spark.image if work.engine is not Engine.PROCESS else None) or spec.task.image or settings.image
    base: dict[str, Any] = {
        "image": image,
        "imagePullPolicy": settings.image_pull_policy,
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": mounts,
        "env": _environment(spec),
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    if spec.storage.secret_ref is not None:
        base["envFrom"] = [{"secretRef": {"name": spec.storage.secret_ref.name}}]
    command = _removal(spec) if work.purpose is Purpose.DELETE else ["omnigraph", *arguments]
    container = {"name": TASK, **base, "command": command}
    if resources is not None:
        container["resources"] = resources.model_dump(mode="json", exclude_none=True)
    init: list[dict[str, Any]] = []
    if work.writes and work.sweep != "none" and work.purpose is not Purpose.SWEEP:
        sweep = ["task", "sweep", "--uri", graph_path(spec), "--mode", work.sweep]
        init.append({"name": "sweep", **base, "command": ["omnigraph", *sweep]})
    pod: dict[str, Any] = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": settings.grace_period_seconds,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER_ID,
            "runAsGroup": 0,
            "fsGroup": USER_ID,
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "initContainers": init,
        "containers": [container],
        "volumes": volumes,
    }
    if spec.task.service_account_name is not None:
        pod["serviceAccountName"] = spec.task.service_account_name
    template = {
        "metadata": {"labels": labels(graph, purpose=work.purpose.value, workload=work.name)},
        "spec": pod,
    }
    merged: dict[str, Any] = overlay(template, spec.task.template or {})
    return merged


def _removal(spec: OmniGraphSpec) -> list[str]:
    """What removes the graph's data; its failure is told by the end of its log."""
    if not spec.storage.uri.startswith("file:"):
        said = f"the data at {spec.storage.uri} must be removed by hand; set deletionPolicy to Retain to let go of it"
        return ["python", "-c", "import sys; sys.exit(sys.argv[1])", said]
    return ["python", "-m", "omnigraph_operator.platform.local_delete", graph_path(spec), "/tmp/result.json"]


def _environment(spec: OmniGraphSpec) -> list[dict[str, Any]]:
    storage = spec.storage
    values = {
        "AWS_ENDPOINT": storage.endpoint,
        "AWS_REGION": storage.region,
        "AWS_ALLOW_HTTP": None if storage.allow_http is None else str(storage.allow_http).lower(),
        # Read by the task that starts Spark itself; a SparkApplication says it in its own way.
        "OMNIGRAPH_SPARK_DRIVER_MEMORY": spec.spark.driver.memory,
        "AWS_VIRTUAL_HOSTED_STYLE_REQUEST": None if storage.path_style is None else str(not storage.path_style).lower(),
    }
    embedding = spec.server.embedding if spec.server is not None else None
    if embedding is not None:
        values |= {**embedding.environment, "OMNIGRAPH_EMBED_CACHE": "/tmp/embeddings"}  # nowhere else may it write
    out: list[dict[str, Any]] = [{"name": name, "value": value} for name, value in values.items() if value is not None]
    if embedding is not None and (key := embedding.api_key_secret_ref) is not None:
        source = {"secretKeyRef": {"name": key.name, "key": key.key}}
        out.append({"name": "OMNIGRAPH_EMBED_API_KEY", "valueFrom": source})
    return out


def _claim_name(obj: Object, spec: OmniGraphSpec) -> str:
    volume = spec.storage.volume
    return volume.claim_name if volume and volume.claim_name else f"{obj['metadata']['name']}-data"
