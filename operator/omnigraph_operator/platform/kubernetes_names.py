"""Labels, annotations and ownership of everything the operator makes on a cluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from omnigraph_operator.decide.shapes import Work
from omnigraph_operator.platform.base import Object

__all__ = [
    "ATTEMPT",
    "DIGEST",
    "ENGINE",
    "FINALIZER",
    "GRAPH",
    "MANAGED_BY",
    "OPERATION",
    "OWNER_UID",
    "PURPOSE",
    "SPARK_APP_NAME",
    "STOPPED",
    "WORKLOAD",
    "WRITES",
    "labels",
    "metadata",
    "owned_by",
    "owner_reference",
    "work_annotations",
]

FINALIZER = "omnigraph.io/work-ends-first"

# labels
MANAGED_BY = "omnigraph-operator"
GRAPH = "omnigraph.io/graph"
WORKLOAD = "omnigraph.io/workload"
PURPOSE = "omnigraph.io/purpose"
SPARK_APP_NAME = "sparkoperator.k8s.io/app-name"  # set by the Spark operator on driver and executors

# annotations
DIGEST = "omnigraph.io/digest"
ATTEMPT = "omnigraph.io/attempt"
WRITES = "omnigraph.io/writes"
ENGINE = "omnigraph.io/engine"
OPERATION = "omnigraph.io/operation-id"
STOPPED = "omnigraph.io/stopped"
OWNER_UID = "omnigraph.io/owner-uid"


def labels(graph: str, *, purpose: str | None = None, workload: str | None = None) -> dict[str, str]:
    """Labels of a child; those of the parent are never copied, since GitOps tools track by them."""
    out = {
        "app.kubernetes.io/name": "omnigraph",
        "app.kubernetes.io/instance": graph,
        "app.kubernetes.io/managed-by": MANAGED_BY,
        GRAPH: graph,
    }
    if purpose:
        out["app.kubernetes.io/component"] = purpose
        out[PURPOSE] = purpose
    if workload:
        out[WORKLOAD] = workload
    return out


def work_annotations(work: Work) -> dict[str, str]:
    """What a later pass reads back as the workload's identity."""
    return {
        DIGEST: work.digest,
        ATTEMPT: str(work.attempt),
        WRITES: "true" if work.writes else "false",
        ENGINE: work.engine.value,
        OPERATION: work.operation_id,
    }


def owner_reference(obj: Object) -> dict[str, Any]:
    """The graph as the controller of a child."""
    meta = obj["metadata"]
    return {
        "apiVersion": obj["apiVersion"],
        "kind": obj["kind"],
        "name": meta["name"],
        "uid": meta["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def owned_by(child: Mapping[str, Any], obj: Object) -> bool:
    """Whether this very object (not an earlier one of its name) controls the child."""
    references = child["metadata"].get("ownerReferences", [])
    return any(ref.get("controller") and ref["uid"] == obj["metadata"]["uid"] for ref in references)


def metadata(
    obj: Object,
    name: str,
    *,
    purpose: str | None = None,
    workload: str | None = None,
    annotations: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Metadata of a child of this object."""
    meta = obj["metadata"]
    return {
        "name": name,
        "namespace": meta["namespace"],
        "labels": labels(meta["name"], purpose=purpose, workload=workload),
        "annotations": dict(annotations or {}),
        "ownerReferences": [owner_reference(obj)],
    }
