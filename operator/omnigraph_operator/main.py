"""Where kopf calls: every handler, each one line long, and the settings they run under."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import kopf
from prometheus_client import start_http_server

from omnigraph_operator.platform.base import PlatformError
from omnigraph_operator.platform.kubernetes_api import connect
from omnigraph_operator.platform.kubernetes_names import GRAPH, MANAGED_BY
from omnigraph_operator.platform.kubernetes_render import RenderSettings
from omnigraph_operator.process import Operator, OperatorSettings

__all__ = ["run", "settings_from"]

Number = TypeVar("Number", int, float)

DOMAIN = "operator.omnigraph.io"
NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
CHILDREN = (("batch", "v1", "jobs"), ("apps", "v1", "deployments"), ("", "v1", "pods"))
SPARK = ("sparkoperator.k8s.io", "v1beta2", "sparkapplications")

# ---- handlers --------------------------------------------------------------------------------------------------------


async def on_startup(memo: Any, **_: Any) -> None:
    await memo.operator.start(memo.ended)


async def on_cleanup(memo: Any, **_: Any) -> None:
    await memo.operator.stop()


async def on_graph(body: kopf.Body, memo: Any, **_: Any) -> None:
    memo.operator.object_event(body)


async def on_child(body: kopf.Body, memo: Any, **_: Any) -> None:
    memo.operator.child_event(body)


async def on_config_map(body: kopf.Body, memo: Any, **_: Any) -> None:
    memo.operator.config_event(body)


async def on_lease(memo: Any, **_: Any) -> None:
    memo.operator.lease_event()


def login(**arguments: Any) -> kopf.ConnectionInfo | None:
    return kopf.login_with_service_account(**arguments) or kopf.login_with_kubeconfig(**arguments)


async def seconds_since_event(memo: Any, **_: Any) -> float:
    return _alive(memo.operator)


def _alive(operator: Operator) -> float:
    """For the liveness probe: a watch that has died without a word is noticed by its silence."""
    if (silence := operator.silence()) > operator.settings.silence_seconds:
        raise kopf.PermanentError(f"no event for {silence:.0f} seconds")
    return round(silence, 1)


def handlers() -> kopf.OperatorRegistry:
    """All handlers. `on.event` alone: it writes nothing into the objects and adds no finalizer."""
    registry = kopf.OperatorRegistry()
    kopf.on.event("omnigraph.io", "v1alpha1", "omnigraphs", registry=registry)(on_graph)
    for group, version, plural in (*CHILDREN, SPARK):
        kopf.on.event(group, version, plural, labels={GRAPH: kopf.PRESENT}, registry=registry)(on_child)
    kopf.on.event("", "v1", "configmaps", registry=registry)(on_config_map)
    kopf.on.event("coordination.k8s.io", "v1", "leases", registry=registry)(on_lease)
    kopf.on.startup(registry=registry, errors=kopf.ErrorsMode.PERMANENT)(on_startup)
    kopf.on.cleanup(registry=registry, errors=kopf.ErrorsMode.PERMANENT)(on_cleanup)
    kopf.on.login(registry=registry)(login)
    kopf.on.probe(id="seconds_since_event", registry=registry)(seconds_since_event)
    return registry


def kopf_settings(settings: OperatorSettings) -> kopf.OperatorSettings:
    """kopf's own settings; names in objects are under our domain, though nothing is written with these handlers."""
    out = kopf.OperatorSettings()
    out.persistence.finalizer = f"{DOMAIN}/finalizer"
    out.persistence.progress_storage = kopf.AnnotationsProgressStorage(prefix=DOMAIN, v1=False)
    out.persistence.diffbase_storage = kopf.AnnotationsDiffBaseStorage(prefix=DOMAIN, v1=False)
    out.posting.enabled = False
    out.peering.standalone = True
    out.scanning.disabled = bool(settings.namespaces)  # rights in namespaces only can't list namespaces and CRDs
    out.watching.server_timeout = 300
    out.watching.client_timeout = 310
    out.watching.connect_timeout = 30
    out.networking.request_timeout = settings.request_timeout_seconds
    out.networking.connect_timeout = 10
    out.process.ultimate_exiting_timeout = 20
    for _, _, plural in (*CHILDREN, SPARK):
        out.watching.label_selectors[plural] = f"app.kubernetes.io/managed-by={MANAGED_BY}"
    out.watching.label_selectors["leases"] = f"app.kubernetes.io/managed-by={MANAGED_BY}"
    return out


# ---- the process -----------------------------------------------------------------------------------------------------


def settings_from(namespaces: Sequence[str], *, environment: dict[str, str] | None = None) -> OperatorSettings:
    """Settings from the command line and the environment (`OMNIGRAPH_…`).

    Args:
        namespaces: to look after; empty for all.

    Raises:
        PlatformError: a variable is no number.
    """
    env = dict(os.environ) if environment is None else environment
    defaults = RenderSettings()
    own = env.get("POD_NAMESPACE") or (NAMESPACE_FILE.read_text().strip() if NAMESPACE_FILE.exists() else "default")
    return OperatorSettings(
        namespaces=tuple(sorted(set(namespaces))),
        # Where its events are watched too: the first namespace it looks after, or its own when it looks after all.
        lease_namespace=min(namespaces) if namespaces else own,
        identity=f"{socket.gethostname()}-{uuid.uuid4().hex[:8]}",
        metrics_port=_number(int, env, "OMNIGRAPH_METRICS_PORT", "8081"),
        health_port=_number(int, env, "OMNIGRAPH_HEALTH_PORT", "8082"),
        lease_seconds=_number(float, env, "OMNIGRAPH_LEASE_SECONDS", "15"),
        spark_min_bytes=_number(int, env, "OMNIGRAPH_SPARK_MIN_BYTES", str(256 * 1024 * 1024)),
        render=RenderSettings(
            image=env.get("OMNIGRAPH_IMAGE", defaults.image),
            image_pull_policy=env.get("OMNIGRAPH_IMAGE_PULL_POLICY", defaults.image_pull_policy),
            spark_service_account=env.get("OMNIGRAPH_SPARK_SERVICE_ACCOUNT", defaults.spark_service_account),
        ),
    )


def _number(kind: Callable[[str], Number], env: Mapping[str, str], name: str, default: str) -> Number:
    text = env.get(name, default)
    try:
        return kind(text)
    except ValueError:
        raise PlatformError(f"{name} is {text!r}, and has to be a number") from None


def run(namespaces: Sequence[str]) -> int:
    """Run until stopped.

    Args:
        namespaces: to look after; empty for all.

    Returns:
        The process's exit code; 1 when a setting is wrong, there is no cluster, or the lease was lost.
    """
    _log(os.environ.get("OMNIGRAPH_LOG_FORMAT", "json") == "json")
    try:
        settings = settings_from(namespaces)
        asyncio.run(_serve(settings))
    except PlatformError as error:
        logging.getLogger("omnigraph.operator").error("%s", error)
        return 1
    return 0


async def _serve(settings: OperatorSettings) -> None:
    operator = Operator(connect(timeout_seconds=settings.request_timeout_seconds), settings)
    if settings.metrics_port:
        start_http_server(settings.metrics_port)
    ended = asyncio.Event()
    await kopf.operator(
        registry=handlers(),
        settings=kopf_settings(settings),
        standalone=True,
        clusterwide=not settings.namespaces,
        namespaces=settings.namespaces,
        liveness_endpoint=f"http://0.0.0.0:{settings.health_port}/healthz" if settings.health_port else None,
        stop_flag=ended,
        memo=kopf.Memo(operator=operator, ended=ended),
    )
    if operator.problem is not None:
        raise operator.problem


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        for name in ("kind", "namespace", "object", "generation"):
            if (value := getattr(record, name, None)) is not None:
                line[name] = value
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line)


def _log(as_json: bool) -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(_JsonFormatter() if as_json else logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    for name in ("kopf", "aiohttp.access"):
        logging.getLogger(name).setLevel(logging.WARNING)
