"""What a spec refers to: the platform reads each, the decision looks at what it found."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from omnigraph_operator.model.common import ConfigMapRef, KeyRef
from omnigraph_operator.model.omnigraph import Load, OmniGraphSpec

__all__ = ["Reference", "references"]


@dataclass(frozen=True, slots=True)
class Reference:
    """One thing the spec refers to. Exactly one of inline, config_map, secret, uri, claim is given.

    Args:
        inline: the text itself, in the spec.
        path: on the claim.
        patterns: with a mapping, the globs under `uri` or `path` that are the source; empty: it is itself the source.
        text: the content is wanted in `Source.text`.
        suffix: of the file it becomes where a workload reads it.
    """

    key: str
    inline: str | None = None
    config_map: ConfigMapRef | None = None
    secret: KeyRef | None = None
    uri: str | None = None
    claim: str | None = None
    path: str | None = None
    patterns: tuple[str, ...] = ()
    text: bool = False
    suffix: str = ""


def references(spec: OmniGraphSpec) -> dict[str, Reference]:
    """By key: `schema`, `load/NAME`, `mapping/NAME`, `queries/N`, `tokens`, `storage`, `embedding`."""
    out = [
        Reference("schema", inline=spec.schema_.inline, config_map=spec.schema_.config_map_ref, text=True, suffix=".pg")
    ]
    for load in spec.loads:
        out += _of_load(load)
    if spec.server is not None and spec.server.enabled:
        for i, queries in enumerate(spec.server.queries):
            out.append(
                Reference(
                    f"queries/{i}", inline=queries.inline, config_map=queries.config_map_ref, text=True, suffix=".gq"
                )
            )
        if spec.server.auth.tokens_secret_ref is not None:
            out.append(Reference("tokens", secret=spec.server.auth.tokens_secret_ref, suffix=".yaml"))
    if spec.storage.secret_ref is not None:
        out.append(Reference("storage", secret=KeyRef(name=spec.storage.secret_ref.name)))
    embedding = spec.server.embedding if spec.server is not None else None
    if embedding is not None and embedding.api_key_secret_ref is not None:
        out.append(Reference("embedding", secret=embedding.api_key_secret_ref))
    return {reference.key: reference for reference in out}


def _of_load(load: Load) -> list[Reference]:
    source = load.source
    patterns = tuple(s.path for s in load.mapping.sources if s.path) if load.mapping else ()
    out = [
        Reference(
            f"load/{load.name}",
            config_map=source.config_map_ref,
            uri=source.uri,
            claim=source.claim_name,
            path=source.path,
            patterns=tuple(dict.fromkeys(patterns)),
            suffix=f".{load.format}",
        )
    ]
    if load.mapping is not None:
        plain: Mapping[str, object] = load.mapping.model_dump(mode="json", by_alias=True, exclude_defaults=True)
        out.append(Reference(f"mapping/{load.name}", inline=json.dumps(plain), suffix=".yaml"))
    return out
