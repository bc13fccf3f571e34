"""Manifests from files, folders, standard input and kustomizations, each value with the line it stands on."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from omnigraph.yaml_text import NotYaml, Place, read_documents, read_text, read_yaml
from omnigraph_operator.model.common import GROUP, VERSION
from omnigraph_operator.model.crd import KINDS
from omnigraph_operator.platform.local_sources import secret_data
from omnigraph_operator.platform.local_validate import Finding, not_texts, short, validate

__all__ = ["Manifest", "ManifestError", "Manifests", "read_manifests"]

KUSTOMIZATIONS = ("kustomization.yaml", "kustomization.yml", "Kustomization")
# What a manifest for a cluster may well hold beside ours, and that means nothing without one.
IGNORED = frozenset({"Namespace", "PersistentVolumeClaim", "ServiceAccount", "Role", "RoleBinding"})

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_NAME = re.compile(rf"{_LABEL}(\.{_LABEL})*")


class ManifestError(Exception):
    """Manifests that can't be accepted. `problems` are lines `file:line: what`."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = list(problems)
        super().__init__("\n".join(self.problems))


@dataclass(frozen=True, slots=True)
class Manifest:
    """One document: the object, with defaults filled in, and where it was read."""

    obj: dict[str, Any]
    file: str
    folder: Path
    lines: Mapping[Place, int] = field(repr=False, default_factory=dict)

    def line(self, place: Place) -> int:
        """The line of a value, or of the nearest thing around it."""
        while place and place not in self.lines:
            place = place[:-1]
        return self.lines.get(place, 1)

    def at(self, place: Place, text: str) -> str:
        return f"{self.file}:{self.line(place)}: {text}"


@dataclass(slots=True)
class Manifests:
    """Everything that was read."""

    objects: list[Manifest] = field(default_factory=list)
    config_maps: dict[tuple[str, str], Mapping[str, str]] = field(default_factory=dict)
    secrets: dict[tuple[str, str], Mapping[str, str]] = field(default_factory=dict)
    files: list[Path] = field(default_factory=list)  # to watch


def read_manifests(paths: Iterable[str]) -> Manifests:
    """Read, check and complete manifests.

    Args:
        paths: files, folders, or `-` for standard input.

    Raises:
        ManifestError: with every problem that was found.
    """
    out = Manifests()
    problems: list[str] = []
    seen: dict[tuple[str, str, str], str] = {}
    try:
        for manifest in _documents(paths, out, problems):
            problems += _accept(manifest, out, seen)
    except OSError as error:  # a folder that may not be listed, a name too long for a file
        problems.append(f"{error.filename}: can't be read: {error.strerror}")
    if not out.objects and not problems:
        problems.append(f"{', '.join(paths)}: no {', '.join(KINDS)} is declared here")
    if problems:
        raise ManifestError(problems)
    return out


def _documents(paths: Iterable[str], out: Manifests, problems: list[str]) -> Iterator[Manifest]:
    for given in paths:
        if given == "-":
            try:
                text = sys.stdin.read()
            except UnicodeDecodeError as error:
                problems.append(f"<stdin>: can't be read: not UTF-8 text (byte {error.start})")
                continue
            yield from _parse(text, "<stdin>", Path.cwd(), problems)
            continue
        path = Path(given)
        if not path.exists():
            problems.append(f"{given}: there is no such file or folder")
            continue
        for file in _files(path, problems, frozenset()):
            out.files.append(file.resolve())
            try:
                text = read_text(file)
            except NotYaml as error:
                problems.append(error.message)
                continue
            yield from _parse(text, str(file), file.resolve().parent, problems)


def _files(path: Path, problems: list[str], above: frozenset[Path]) -> Iterator[Path]:
    """The manifest files that a path stands for; a folder with a kustomization is what that one lists."""
    if path.is_file():
        yield path
        return
    kustomization = next((path / name for name in KUSTOMIZATIONS if (path / name).is_file()), None)
    if kustomization is None:
        yield from sorted(p for p in path.iterdir() if p.suffix in (".yaml", ".yml", ".json") and p.is_file())
        return
    if path.resolve() in above:
        problems.append(f"{kustomization}: includes itself")
        return
    try:
        content = read_yaml(read_text(kustomization), str(kustomization))
    except NotYaml as error:
        problems.append(error.message)
        return
    content = {} if content is None else content
    if not isinstance(content, dict):
        problems.append(f"{kustomization}: a kustomization is a mapping, not {short(content)}")
        return
    resources = content.get("resources")
    resources = [] if resources is None else resources
    if not isinstance(resources, list) or not all(isinstance(r, str) for r in resources):
        problems.append(f"{kustomization}: resources: a list of paths is needed, not {short(resources)}")
        return
    unknown = sorted(set(content) - {"apiVersion", "kind", "resources", "metadata"})
    if unknown:
        problems.append(f"{kustomization}: only resources are understood without a cluster, not {', '.join(unknown)}")
    for resource in resources:
        target = path / resource
        if not target.exists():
            problems.append(f"{kustomization}: resources: {resource}: there is no such file or folder")
            continue
        yield from _files(target, problems, above | {path.resolve()})


def _parse(text: str, file: str, folder: Path, problems: list[str]) -> Iterator[Manifest]:
    try:
        for document in read_documents(text, file):
            value, lines = document.value, document.lines
            if value is None:
                continue
            if not isinstance(value, dict):
                problems.append(f"{file}:{lines[()]}: a manifest is a mapping, not {short(value)}")
                continue
            if value.get("kind") == "List" and isinstance(value.get("items"), list):
                for i, item in enumerate(value["items"]):
                    inner = {p[2:]: n for p, n in lines.items() if p[:2] == ("items", i)}
                    if isinstance(item, dict):
                        yield Manifest(item, file, folder, inner)
                    else:
                        problems.append(f"{file}:{inner[()]}: items[{i}]: a manifest is a mapping, not {short(item)}")
                continue
            yield Manifest(value, file, folder, lines)
    except NotYaml as error:
        problems.append(error.message)


def _accept(manifest: Manifest, out: Manifests, seen: dict[tuple[str, str, str], str]) -> list[str]:
    """Put one document where it belongs, or say what is wrong with it."""
    obj = manifest.obj
    api, kind = obj.get("apiVersion"), obj.get("kind")
    if not isinstance(api, str) or not isinstance(kind, str):
        return [manifest.at((), "apiVersion and kind are needed")]
    meta = obj.get("metadata")
    name = meta.get("name") if isinstance(meta, dict) else None
    if not isinstance(meta, dict) or not isinstance(name, str):
        return [manifest.at(("metadata",), "metadata.name is needed")]
    namespace = meta["namespace"] = "default" if meta.get("namespace") is None else meta["namespace"]
    if not isinstance(namespace, str):
        return [manifest.at(("metadata", "namespace"), f"metadata.namespace: a text is needed, not {short(namespace)}")]
    identity = (namespace, kind, name)
    if identity in seen:
        return [
            manifest.at(("metadata", "name"), f"{kind} {name} is declared a second time, first in {seen[identity]}")
        ]
    seen[identity] = f"{manifest.file}:{manifest.line(())}"
    if kind in IGNORED and not api.startswith(f"{GROUP}/"):
        return []
    findings = [*_names(namespace, name), *not_texts(meta, "labels", "annotations", above=("metadata",))]
    if api == "v1" and kind in ("ConfigMap", "Secret"):
        findings += not_texts(obj, "data", "stringData")
        try:
            if not findings and kind == "ConfigMap":
                out.config_maps[namespace, name] = dict(obj.get("data") or {})
            elif not findings:
                out.secrets[namespace, name] = secret_data(obj)
        except ValueError as error:
            return [manifest.at(("data",), str(error))]
        return _told(manifest, findings)
    if api != f"{GROUP}/{VERSION}" or kind not in KINDS:
        known = ", ".join(f"{GROUP}/{VERSION} {k}" for k in KINDS)
        return [manifest.at(("kind",), f"{api} {kind} isn't understood here; known: {known}, v1 ConfigMap, v1 Secret")]
    findings += validate(KINDS[kind], obj)
    out.objects.append(manifest)
    return _told(manifest, findings)


def _names(namespace: str, name: str) -> Iterator[Finding]:
    """What is wrong with them: they become folders, and on a cluster they are checked as well."""
    for field_, text, longest in (("namespace", namespace, 63), ("name", name, 253)):
        if len(text) > longest or not _NAME.fullmatch(text):
            yield Finding(
                ("metadata", field_), f"{short(text)}: use lower-case letters, digits, '-' and '.', at most {longest}"
            )


def _told(manifest: Manifest, findings: Iterable[Finding]) -> list[str]:
    return [manifest.at(f.place, f"{_dotted(f.place)}{f.message}") for f in findings]


def _dotted(place: Place) -> str:
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place).lstrip(".")
    return f"{text}: " if text else ""
