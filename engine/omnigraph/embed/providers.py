"""What each provider is asked and how its answer reads. Pure: nothing here touches the network."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal
from urllib.parse import quote

from omnigraph.embed.settings import EmbedSettings
from omnigraph.embed.vectors import BadVector, Matrix, unit_vectors
from omnigraph.records import dataclass

__all__ = ["Ask", "Role", "parse", "refuses_key", "said", "tells_roles"]

Role = Literal["document", "query"]
_TASKS = {"document": "RETRIEVAL_DOCUMENT", "query": "RETRIEVAL_QUERY"}


@dataclass(frozen=True, slots=True)
class Ask:
    """One request for the vectors of some texts.

    Args:
        sized: name the dimension; servers of models with one fixed dimension refuse that.
    """

    texts: Sequence[str]
    dim: int
    model: str
    role: Role
    sized: bool = True

    def url(self, settings: EmbedSettings) -> str:
        if settings.provider == "gemini":
            return f"{settings.base_url}/models/{quote(self.model.removeprefix('models/'), safe='')}:batchEmbedContents"
        return f"{settings.base_url}/embeddings"

    def headers(self, settings: EmbedSettings) -> Mapping[str, str]:
        out = {"content-type": "application/json", "accept": "application/json"}
        if settings.api_key:
            key = settings.api_key.reveal()
            out |= {"x-goog-api-key": key} if settings.provider == "gemini" else {"authorization": f"Bearer {key}"}
        return out

    def body(self, settings: EmbedSettings) -> bytes:
        if settings.provider == "gemini":
            model = f"models/{self.model.removeprefix('models/')}"
            size = {"outputDimensionality": self.dim} if self.sized else {}
            requests = [
                {"model": model, "content": {"parts": [{"text": t}]}, "taskType": _TASKS[self.role], **size}
                for t in self.texts
            ]
            return json.dumps({"requests": requests}).encode()
        size = {"dimensions": self.dim} if self.sized else {}
        return json.dumps({"model": self.model, "input": list(self.texts), **size}).encode()


def tells_roles(settings: EmbedSettings) -> bool:
    """Whether a stored text and a question have different vectors."""
    return settings.provider == "gemini"


def refuses_key(settings: EmbedSettings, body: bytes) -> bool:
    """Whether a refusal is about the key; Gemini gives it the status that it gives a bad text."""
    return settings.provider == "gemini" and b'"API_KEY_INVALID"' in body


def parse(settings: EmbedSettings, ask: Ask, body: bytes) -> Matrix:
    """The vectors of an answer, in the order of the texts.

    Raises:
        BadVector: it isn't one vector for each text.
    """
    try:
        answer: Any = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise BadVector(f"it is no JSON ({len(body):,} bytes)") from error
    name = "embeddings" if settings.provider == "gemini" else "data"
    entries = answer.get(name) if isinstance(answer, dict) else None
    if not isinstance(entries, list) or not all(isinstance(e, dict) for e in entries):
        raise BadVector(f"it has no list {name!r}")
    if len(entries) != len(ask.texts):
        raise BadVector(f"it has {len(entries)} vectors for {len(ask.texts)} texts")
    if settings.provider == "gemini":
        return unit_vectors([e.get("values") for e in entries], ask.dim)
    if all("index" not in e for e in entries):
        return unit_vectors([e.get("embedding") for e in entries], ask.dim)
    order = [e.get("index") for e in entries]
    if any(type(i) is not int for i in order) or sorted(order) != list(range(len(entries))):
        raise BadVector("its indexes aren't those of the texts, each once")
    return unit_vectors([e.get("embedding") for e in sorted(entries, key=lambda e: e["index"])], ask.dim)


def said(settings: EmbedSettings, body: bytes) -> str:
    """What a refusal says, short, printable and without the key it may repeat."""
    text = body[:20_000].decode("utf-8", "replace")
    try:
        answer: Any = json.loads(body)
        for name in ("error", "message", "detail"):
            if isinstance(answer, dict) and answer.get(name):
                answer = answer[name]
        text = answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False)
    except (ValueError, RecursionError):
        pass
    if settings.api_key:
        text = text.replace(settings.api_key.reveal(), "***")
    text = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return text if len(text) <= 300 else text[:299] + "…"
