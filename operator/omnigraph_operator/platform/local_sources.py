"""What a spec refers to, without a cluster: files beside the manifest, ConfigMaps and Secrets among the manifests."""

from __future__ import annotations

import base64
import glob
import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from omnigraph_operator.decide import Reference
from omnigraph_operator.decide.shapes import Source
from omnigraph_operator.platform.local_state import write_atomically

__all__ = ["Sources", "local_path", "resolve_uri"]


def resolve_uri(uri: str, folder: Path) -> str:
    """A graph's or a source's address; relative file: paths start at the manifest's folder."""
    path = local_path(uri, folder)
    return uri if path is None else str(path)


def local_path(uri: str, folder: Path) -> Path | None:
    """The path that a file: URI or a bare path means, None for object stores."""
    if uri.startswith("file:"):
        uri = unquote(uri.removeprefix("file:"))
        uri = uri.removeprefix("//") if uri.startswith("///") else uri
    elif "://" in uri:
        return None
    return Path(os.path.normpath(folder / uri))


class Sources:
    """Reads references. Digests of files are kept by size and time of change, so that a pass costs no reading.

    Args:
        config_maps, secrets: their data by (namespace, name); values of Secrets are decoded.
    """

    def __init__(
        self,
        config_maps: Mapping[tuple[str, str], Mapping[str, str]],
        secrets: Mapping[tuple[str, str], Mapping[str, str]],
    ) -> None:
        self.config_maps = config_maps
        self.secrets = secrets
        self._digests: dict[tuple[str, int, int], str] = {}

    def look(self, reference: Reference, namespace: str, folder: Path) -> Source:
        """What a reference leads to just now."""
        if reference.uri is not None:
            return self._files(reference, folder)
        if reference.claim is not None:
            return Source(error=f"{reference.key}: claimName {reference.claim}: there are no claims without a cluster")
        content, file = self._content(reference, namespace)
        if isinstance(content, str):
            return Source(error=content)
        text = "\n".join(content.values())
        digest = hashlib.sha256(repr(sorted(content.items())).encode()).hexdigest()[:32]
        return Source(digest, len(text.encode()), text if reference.text else None, file)

    def place(self, reference: Reference, namespace: str, folder: Path, into: Path) -> str:
        """The path under which a workload finds what a reference leads to; texts become files in `into`."""
        if reference.uri is not None:
            path = local_path(reference.uri, folder)
            return reference.uri if path is None else str(path)
        content, _ = self._content(reference, namespace)
        if isinstance(content, str):
            raise ValueError(content)
        stem = reference.key.replace("/", "-")
        if reference.secret is not None and len(content) > 1:
            for key, value in content.items():
                write_atomically(into / stem / key, value, mode=0o600)
            return str(into / stem)
        path = into / f"{stem}{reference.suffix}"
        write_atomically(path, "\n".join(content.values()), mode=0o600 if reference.secret is not None else 0o644)
        return str(path)

    def environment(self, reference: Reference, namespace: str) -> dict[str, str]:
        """A Secret as environment variables."""
        content, _ = self._content(reference, namespace)
        return {} if isinstance(content, str) else dict(content)

    def _content(self, reference: Reference, namespace: str) -> tuple[Mapping[str, str] | str, str]:
        """The texts by key, or why they can't be had; and how messages call it."""
        if reference.inline is not None:
            return {"": reference.inline}, f"{reference.key} (inline)"
        given = reference.config_map or reference.secret
        assert given is not None
        kind = "ConfigMap" if reference.config_map is not None else "Secret"
        known = self.config_maps if reference.config_map is not None else self.secrets
        data = known.get((namespace, given.name))
        what = f"{kind}/{given.name}"
        if data is None:
            return f"{reference.key}: {what} isn't among the manifests of namespace {namespace}", what
        if given.key is not None:
            if given.key not in data:
                return f"{reference.key}: {what} has no key {given.key}; it has {', '.join(data) or 'none'}", what
            return {given.key: data[given.key]}, f"{what}/{given.key}"
        chosen = dict(data)
        if reference.suffix == ".gq":
            chosen = {k: v for k, v in data.items() if k.endswith(".gq")}
        elif reference.secret is None and len(data) > 1:
            return f"{reference.key}: {what} has the keys {', '.join(data)}: say which with key", what
        if not chosen:
            return f"{reference.key}: {what} is empty", what
        only = next(iter(chosen)) if len(chosen) == 1 else None
        return chosen, f"{what}/{only}" if only else what

    def _files(self, reference: Reference, folder: Path) -> Source:
        uri = reference.uri or ""
        base = local_path(uri, folder)
        if base is None:
            digest = hashlib.sha256(repr((uri, reference.patterns)).encode()).hexdigest()[:32]
            return Source(digest, None, None, uri)
        hasher = hashlib.sha256()
        size = 0
        path = str(base)
        try:
            for pattern in [base / p for p in reference.patterns] or [base]:
                path = str(pattern)
                paths = sorted(p for p in glob.glob(path, recursive=True) if os.path.isfile(p))
                if not paths and pattern.is_dir():
                    paths = sorted(str(p) for p in pattern.iterdir() if p.is_file())
                if not paths:
                    return Source(error=f"{reference.key}: {pattern}: there is no such file")
                for path in paths:
                    stat = os.stat(path)
                    hasher.update(os.fsencode(f"{os.path.relpath(path, base)}\0{self._digest(path, stat)}\0"))
                    size += stat.st_size
        except OSError as error:
            return Source(error=f"{reference.key}: {path}: {error.strerror}")
        return Source(hasher.hexdigest()[:32], size, None, uri)

    def _digest(self, path: str, stat: os.stat_result) -> str:
        key = (path, stat.st_size, stat.st_mtime_ns)
        if key not in self._digests:
            with open(path, "rb") as file:
                self._digests[key] = hashlib.file_digest(file, "sha256").hexdigest()
        return self._digests[key]


def secret_data(obj: Mapping[str, Any]) -> dict[str, str]:
    """The decoded values of a Secret whose values are texts; `stringData` goes before `data`.

    Raises:
        ValueError: a value of `data` isn't base64 text.
    """
    out = {}
    for key, value in (obj.get("data") or {}).items():
        try:
            out[key] = base64.b64decode(value, validate=True).decode()
        except ValueError:
            raise ValueError(f"data.{key} isn't base64 of a text; put plain texts into stringData") from None
    return out | dict(obj.get("stringData") or {})
