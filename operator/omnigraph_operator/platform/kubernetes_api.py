"""The API server as a handful of verbs over plain JSON objects.

Objects stay dictionaries from end to end: what is read is what the API server sent, what is written is what was
rendered. Errors are `PlatformError`s that say which object and what the server answered.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeAlias

from kubernetes import client, config
from urllib3.exceptions import HTTPError

from omnigraph_operator.platform.base import PlatformError

__all__ = ["Api", "Conflict", "Json", "Refused", "connect"]

Json: TypeAlias = dict[str, Any]

MERGE_PATCH = "application/merge-patch+json"


class Refused(PlatformError):
    """The server answered with an error.

    Args:
        status: the HTTP status.
        reason: the machine-readable reason of the answer, such as `AlreadyExists`.
    """

    def __init__(self, what: str, status: int, reason: str, message: str) -> None:
        super().__init__(
            f"{what}: {message}",
            retry_after_seconds=None if status < 500 else 2.0,
            permanent=status in (400, 422),
        )
        self.status = status
        self.reason = reason


class Conflict(Refused):
    """The object is there already, or is no longer as it was read."""


# Resource (plural) -> the path of its API group; the plurals used here are unique.
GROUPS = {
    "pods": "/api/v1",
    "services": "/api/v1",
    "configmaps": "/api/v1",
    "events": "/api/v1",
    "persistentvolumeclaims": "/api/v1",
    "jobs": "/apis/batch/v1",
    "deployments": "/apis/apps/v1",
    "leases": "/apis/coordination.k8s.io/v1",
    "omnigraphs": "/apis/omnigraph.io/v1alpha1",
    "sparkapplications": "/apis/sparkoperator.k8s.io/v1beta2",
}


class Api:
    """Verbs over one API server; safe to use from several threads."""

    def __init__(self, connection: client.ApiClient, *, timeout_seconds: float = 30) -> None:
        self._connection = connection
        self._timeout_seconds = timeout_seconds

    def call(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: object = None,
        content_type: str = "application/json",
    ) -> Json:
        """One request.

        Raises:
            Refused: any answer but 2xx; `Conflict` for 409.
            PlatformError: no answer.
        """
        headers = {"Accept": "application/json", "User-Agent": "omnigraph-operator"}
        if body is not None:
            headers["Content-Type"] = content_type
        request = self._connection.param_serialize(
            method, path, query_params=list((query or {}).items()), header_params=headers, body=body,
            auth_settings=["BearerToken"],
        )  # fmt: skip
        try:
            response = self._connection.call_api(*request, _request_timeout=self._timeout_seconds)
            text = response.read()
        except (HTTPError, OSError) as error:
            raise PlatformError(f"{method} {path}: no answer from the API server: {error}") from error
        except client.exceptions.ApiException as error:
            raise PlatformError(f"{method} {path}: {error.reason}") from error
        if response.status >= 300:
            raise _refused(f"{method} {path}", response.status, text)
        answer: Json = json.loads(text) if text else {}
        return answer

    def get(self, resource: str, namespace: str, name: str) -> Json | None:
        """The object, or None when there is none."""
        try:
            return self.call("GET", _path(resource, namespace, name))
        except Refused as error:
            if error.status == 404:
                return None
            raise

    def list(self, resource: str, namespace: str | None, selector: str = "", *, fields: str = "") -> list[Json]:
        """All objects that match selectors; items carry no apiVersion and kind (the server leaves them out)."""
        query = {"labelSelector": selector} if selector else {}
        if fields:
            query["fieldSelector"] = fields
        answer = self.call("GET", _path(resource, namespace), query=query)
        items: list[Json] = answer.get("items", [])
        return items

    def create(self, resource: str, body: Json) -> Json:
        return self.call("POST", _path(resource, body["metadata"]["namespace"]), body=body)

    def replace(self, resource: str, body: Json, *, subresource: str = "") -> Json:
        """PUT: refused with `Conflict` when the object is no longer the one whose resourceVersion the body carries."""
        metadata = body["metadata"]
        return self.call("PUT", _path(resource, metadata["namespace"], metadata["name"], subresource), body=body)

    def patch(self, resource: str, namespace: str, name: str, body: Json) -> Json:
        """A merge patch; None removes a key, a resourceVersion in the metadata guards it."""
        return self.call("PATCH", _path(resource, namespace, name), body=body, content_type=MERGE_PATCH)

    def delete(self, resource: str, namespace: str, name: str, *, foreground: bool = False) -> None:
        """Delete with dependants; one that is gone already is success."""
        options = {"propagationPolicy": "Foreground" if foreground else "Background"}
        try:
            self.call("DELETE", _path(resource, namespace, name), body=options)
        except Refused as error:
            if error.status != 404:
                raise

    def group(self, path: str) -> Json | None:
        """What discovery says of an API group version, or None when it isn't served."""
        try:
            return self.call("GET", path)
        except Refused as error:
            if error.status == 404:
                return None
            raise


def _path(resource: str, namespace: str | None, name: str = "", subresource: str = "") -> str:
    scope = f"/namespaces/{namespace}" if namespace else ""
    return "/".join(part for part in (f"{GROUPS[resource]}{scope}/{resource}", name, subresource) if part)


def _refused(what: str, status: int, text: str | bytes) -> Refused:
    try:
        answer = json.loads(text)
    except ValueError:  # a type that isn't served is answered in plain text
        answer = {}
    message = answer.get("message") or f"the API server answered {status}"
    kind = Conflict if status == 409 else Refused
    return kind(what, status, answer.get("reason", ""), message)


def connect(*, timeout_seconds: float = 30) -> Api:
    """The cluster this process runs in, or the one KUBECONFIG (`~/.kube/config`) names.

    Raises:
        PlatformError: neither is there.
    """
    configuration = client.Configuration()
    try:
        config.load_incluster_config(client_configuration=configuration)
    except config.ConfigException:
        try:
            config.load_kube_config(client_configuration=configuration)
        except config.ConfigException as error:
            raise PlatformError(f"no cluster to talk to: {error}", permanent=True) from error
    return Api(client.ApiClient(configuration), timeout_seconds=timeout_seconds)
