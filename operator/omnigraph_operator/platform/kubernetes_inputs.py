"""What a graph refers to: read from the API server for the decision, placed into pods for the work.

Small texts (schema, mappings, queries, records from a ConfigMap) reach a workload through a ConfigMap of its own,
written with the very bytes the decision was made on. Volumes and Secrets are mounted; their content is never read
here, so the operator needs no right to read Secrets.
"""

from __future__ import annotations

import base64
import hashlib
import posixpath
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from omnigraph_operator.decide.shapes import Source
from omnigraph_operator.decide.sources import Reference
from omnigraph_operator.model.common import ConfigMapRef
from omnigraph_operator.model.omnigraph import OmniGraphSpec

__all__ = ["GetConfigMap", "Input", "Placement", "graph_path", "place", "read", "volume_mount_path"]

GetConfigMap = Callable[[str], dict[str, Any] | None]

TEXTS_DIR = "/omnigraph/inputs"
SOURCE_DIR = "/omnigraph/source"
SECRETS_DIR = "/omnigraph/secrets"


@dataclass(frozen=True, slots=True)
class Input:
    """One thing the spec refers to.

    Args:
        source: as `decide` sees it.
        data: the bytes to place into the workload's ConfigMap; None for what is mounted or fetched.
    """

    source: Source
    data: bytes | None = None


@dataclass(frozen=True, slots=True)
class Placement:
    """How a workload gets its inputs.

    Args:
        paths: by input key, the path or URI the workload finds it under.
        texts: file name to bytes of the workload's own ConfigMap.
        volumes, mounts: of the pod and of its containers.
    """

    paths: dict[str, str] = field(default_factory=dict)
    texts: dict[str, bytes] = field(default_factory=dict)
    volumes: list[dict[str, Any]] = field(default_factory=list)
    mounts: list[dict[str, Any]] = field(default_factory=list)


# ---- reading ---------------------------------------------------------------------------------------------------------


def read(spec: OmniGraphSpec, reference: Reference, config_map: GetConfigMap) -> Input:
    """One input as it is now."""
    if reference.key == "schema" and (problem := _storage_problem(spec)):
        return Input(Source(error=problem, file="storage.uri"))
    if reference.inline is not None:
        return _text(reference.inline.encode(), f"{reference.key.replace('/', '-')}{reference.suffix}")
    if reference.config_map is not None:
        suffix = reference.suffix if reference.key.startswith("queries/") else ""
        return _config_map_text(reference.config_map, config_map, reference.key, suffix)
    if reference.secret is not None:
        name = reference.secret.name
        return _by_reference("secret", name, reference.secret.key or "", file=f"Secret/{name}")
    if reference.uri is not None:
        if not reference.uri.startswith("s3://") and not _local_path(reference.uri).startswith("/"):
            problem = f"{reference.uri} is relative: on a cluster give the absolute path on a volume, or s3://…"
            return Input(Source(error=problem, file=reference.uri))
        return _by_reference("uri", reference.uri, *reference.patterns, file=reference.uri)
    assert reference.claim is not None
    place = f"{reference.claim}:{reference.path or ''}"
    return _by_reference("claim", place, *reference.patterns, file=place)


def _text(data: bytes, file: str) -> Input:
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        return Input(Source(error=f"{file}: not UTF-8 text (byte {error.start})", file=file))
    return Input(Source(digest=_digest(data), size_bytes=len(data), text=text, file=file), data)


def _by_reference(*parts: str, file: str) -> Input:
    return Input(Source(digest=_digest("\0".join(parts).encode()), file=file))


def _config_map_text(reference: ConfigMapRef, config_map: GetConfigMap, where: str, suffix: str) -> Input:
    """One key of a ConfigMap; without a key its only one, or all that end in the suffix, one after another."""
    name = f"ConfigMap/{reference.name}"
    found = config_map(reference.name)
    if found is None:
        return Input(Source(error=f"{where}: {name} isn't there", file=name))
    data: dict[str, bytes] = {key: text.encode() for key, text in (found.get("data") or {}).items()}
    data |= {key: base64.b64decode(text) for key, text in (found.get("binaryData") or {}).items()}
    if reference.key is not None:
        if reference.key not in data:
            keys = ", ".join(sorted(data)) or "none"
            return Input(Source(error=f"{where}: {name} has no key {reference.key} (it has: {keys})", file=name))
        return _text(data[reference.key], f"{name} key {reference.key}")
    chosen = sorted(key for key in data if key.endswith(suffix)) if suffix else sorted(data)
    if not chosen:
        return Input(Source(error=f"{where}: {name} has no key{f' ending in {suffix}' if suffix else ''}", file=name))
    if len(chosen) > 1 and not suffix:
        problem = f"{where}: {name} has several keys ({', '.join(chosen)}): name one"
        return Input(Source(error=problem, file=name))
    return _text(b"\n".join(data[key] for key in chosen), f"{name} key {', '.join(chosen)}")


def _storage_problem(spec: OmniGraphSpec) -> str | None:
    if spec.storage.uri.startswith("s3://"):
        return None
    if not spec.storage.uri.startswith("file:///"):
        return f"storage.uri {spec.storage.uri} is relative: on a cluster give file:///FOLDER on a volume, or s3://…"
    if spec.storage.volume is None and spec.task.template is None:
        return f"storage.uri {spec.storage.uri} needs storage.volume on a cluster: pods have no disk that lasts"
    return None


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:32]


# ---- placing ---------------------------------------------------------------------------------------------------------


def graph_path(spec: OmniGraphSpec) -> str:
    """The graph's address inside a pod: a path for `file:` URIs, else the URI."""
    return _local_path(spec.storage.uri) if spec.storage.uri.startswith("file:") else spec.storage.uri


def volume_mount_path(spec: OmniGraphSpec) -> str:
    """Where the graph's volume is mounted: the folder above the graph, so that several graphs may share a volume."""
    path = graph_path(spec)
    parent = posixpath.dirname(path.rstrip("/"))
    return path if parent == "/" else parent


def place(given: Mapping[str, tuple[Reference, Input]], *, config_map: str) -> Placement:
    """Where a workload finds its inputs.

    Args:
        given: each input with what it refers to.
        config_map: the name of the workload's own ConfigMap.
    """
    out = Placement()
    for key, (reference, found) in given.items():
        if found.data is not None:
            file = f"{key.replace('/', '-')}{reference.suffix}"
            out.texts[file] = found.data
            out.paths[key] = f"{TEXTS_DIR}/{file}"
        elif reference.secret is not None:
            _mount(out, key, f"{SECRETS_DIR}/{key}", {"secret": {"secretName": reference.secret.name}})
            out.paths[key] = posixpath.join(SECRETS_DIR, key, reference.secret.key or "").rstrip("/")
        elif reference.uri is not None:
            out.paths[key] = _local_path(reference.uri)
        else:
            claim = {"claimName": reference.claim, "readOnly": True}
            _mount(out, "source", SOURCE_DIR, {"persistentVolumeClaim": claim})
            out.paths[key] = posixpath.join(SOURCE_DIR, (reference.path or "").lstrip("/"))
    if out.texts:
        _mount(out, "inputs", TEXTS_DIR, {"configMap": {"name": config_map}})
    return out


def _mount(placement: Placement, name: str, path: str, volume: dict[str, Any]) -> None:
    placement.volumes.append({"name": name, **volume})
    placement.mounts.append({"name": name, "mountPath": path, "readOnly": True})


def _local_path(uri: str) -> str:
    return urlsplit(uri).path if uri.startswith("file:") else uri
