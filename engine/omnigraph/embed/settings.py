"""Which provider makes the vectors, from the environment."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import field
from typing import Literal
from urllib.parse import urlsplit, urlunsplit

from omnigraph.arguments import is_text
from omnigraph.errors import BadRequest
from omnigraph.records import dataclass

__all__ = ["EmbedSettings", "ProviderName", "Secret", "how_to_set_up"]

ProviderName = Literal["openai-compatible", "gemini", "mock"]
_log = logging.getLogger(__name__)

_BASES = {
    "openai-compatible": "https://api.openai.com/v1",
    "gemini": "https://generativelanguage.googleapis.com/v1beta",
    "mock": "",
}
_MODELS = {"openai-compatible": "text-embedding-3-large", "gemini": "gemini-embedding-001", "mock": "mock"}
_KEYS = {
    "openai-compatible": ("OMNIGRAPH_EMBED_API_KEY", "OPENAI_API_KEY"),
    "gemini": ("OMNIGRAPH_EMBED_API_KEY", "GEMINI_API_KEY"),
    "mock": (),
}
_BATCH = {"openai-compatible": 128, "gemini": 100, "mock": 1024}
_YES, _NO = frozenset({"1", "true", "yes", "on"}), frozenset({"", "0", "false", "no", "off"})


class Secret:
    """A text that never shows itself; `reveal` gives it."""

    __slots__ = ("_text",)

    def __init__(self, text: str = "") -> None:
        self._text = text

    def reveal(self) -> str:
        return self._text

    def __bool__(self) -> bool:
        return bool(self._text)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._text == self._text

    def __hash__(self) -> int:
        return hash(self._text)

    def __repr__(self) -> str:
        return "Secret(***)" if self._text else "Secret()"

    def __reduce__(self) -> str:
        raise TypeError("a secret doesn't travel: each process reads its own environment")


@dataclass(frozen=True)
class EmbedSettings:
    """One provider and how patiently it is asked. Each is one environment variable, `OMNIGRAPH_EMBED_` and its name.

    Args:
        provider: `openai-compatible` (`POST {base_url}/embeddings`), `gemini`, or `mock` (deterministic, offline).
        base_url: the API's root, without a slash at its end; default is the provider's own.
        model: the model asked for; None takes the one a schema records, else the provider's default.
        api_key: `OMNIGRAPH_EMBED_API_KEY`, else `OPENAI_API_KEY` or `GEMINI_API_KEY`; empty for servers without keys.
        timeout_ms: of one request.
        deadline_ms: of one batch, all its attempts and waits together; 0 is none.
        retry_attempts: how often a batch is tried, the first time included.
        retry_backoff_ms: wait before the second attempt, doubled each time, with jitter; `Retry-After` goes first.
        batch: texts of one request at most.
        batch_chars: characters of one request at most; a longer text goes alone.
        concurrency: requests at a time.
        cache: folder of the cache on disk; None: there is none (`OMNIGRAPH_EMBED_CACHE=off`).
        cache_bytes: what the cache on disk may take, roughly.
    """

    provider: ProviderName
    base_url: str = ""
    model: str | None = None
    api_key: Secret = field(default_factory=Secret)
    timeout_ms: int = 30_000
    deadline_ms: int = 60_000
    retry_attempts: int = 4
    retry_backoff_ms: int = 200
    batch: int = 128
    batch_chars: int = 200_000
    concurrency: int = 4
    cache: str | None = None
    cache_bytes: int = 1 << 30

    @property
    def default_model(self) -> str:
        return _MODELS[self.provider]

    @property
    def place(self) -> str:
        """The provider as messages name it: no user, password or query of its URL."""
        if not self.base_url:
            return self.provider
        parts = urlsplit(self.base_url)
        host = parts.netloc.rpartition("@")[2]
        return f"{self.provider} at {urlunsplit((parts.scheme, host, parts.path, '', ''))}"

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None) -> EmbedSettings | None:
        """The settings of this process, or None where no provider is set up.

        Without `OMNIGRAPH_EMBED_PROVIDER` a provider is set up by an API key or a base URL; `none` switches it off.

        Raises:
            BadRequest: a variable can't be read, or the provider lacks its key.
        """
        env = os.environ if environ is None else environ
        provider = _provider(env)
        if provider is None:
            return None
        key = _key(env, provider)
        base = _base_url(env, provider)
        if not key and base == _BASES[provider] and provider != "mock":
            raise BadRequest(
                f"the embedding provider {provider} needs a key: set {_KEYS[provider][1]}, or OMNIGRAPH_EMBED_BASE_URL "
                "for a server without keys",
                code="no_embedder",
            )
        return cls(
            provider=provider,
            base_url=base,
            model=_model(env),
            api_key=key,
            timeout_ms=_number(env, "TIMEOUT_MS", cls.timeout_ms, 1),
            deadline_ms=_number(env, "DEADLINE_MS", cls.deadline_ms, 0),
            retry_attempts=_number(env, "RETRY_ATTEMPTS", cls.retry_attempts, 1),
            retry_backoff_ms=_number(env, "RETRY_BACKOFF_MS", cls.retry_backoff_ms, 0),
            batch=_number(env, "BATCH", _BATCH[provider], 1),
            batch_chars=_number(env, "BATCH_CHARS", cls.batch_chars, 1),
            concurrency=_number(env, "CONCURRENCY", cls.concurrency, 1),
            cache=None if provider == "mock" else _cache(env),
            cache_bytes=_number(env, "CACHE_BYTES", cls.cache_bytes, 0),
        )


def how_to_set_up(environ: Mapping[str, str] | None = None) -> str:
    """Why this process has no provider and what would set one up, for the messages of who needs one."""
    env = os.environ if environ is None else environ
    off = env.get("OMNIGRAPH_EMBED_PROVIDER", "").strip().lower() == "none"
    return (
        f"no embedding provider is set up{' (OMNIGRAPH_EMBED_PROVIDER is none)' if off else ''}: set OPENAI_API_KEY; "
        "or OMNIGRAPH_EMBED_PROVIDER=gemini and GEMINI_API_KEY; or OMNIGRAPH_EMBED_BASE_URL, such as "
        "http://localhost:11434/v1, and OMNIGRAPH_EMBED_MODEL for a server of your own; or OMNIGRAPH_EMBEDDINGS_MOCK=1 "
        "for made-up vectors to try things out"
    )


def _provider(env: Mapping[str, str]) -> ProviderName | None:
    given = env.get("OMNIGRAPH_EMBED_PROVIDER", "").strip().lower()
    mock = env.get("OMNIGRAPH_EMBEDDINGS_MOCK", "").strip().lower()
    if mock not in _YES | _NO:
        raise BadRequest(f"OMNIGRAPH_EMBEDDINGS_MOCK is {mock!r}: give 1 or 0", code="bad_setting")
    if mock in _YES:
        if given not in ("", "mock"):
            _log.warning("OMNIGRAPH_EMBEDDINGS_MOCK replaces the embedding provider %s: vectors are made up", given)
        return "mock"
    if given == "none":
        return None
    if given in ("openai-compatible", "openai"):
        return "openai-compatible"
    if given == "gemini":
        return "gemini"
    if given == "mock":
        return "mock"
    if given:
        raise BadRequest(
            f"OMNIGRAPH_EMBED_PROVIDER is {given!r}: give openai-compatible, gemini, mock or none", code="bad_setting"
        )
    named = ("OMNIGRAPH_EMBED_BASE_URL", *_KEYS["openai-compatible"])
    return "openai-compatible" if any(env.get(name, "").strip() for name in named) else None


def _key(env: Mapping[str, str], provider: str) -> Secret:
    name = next((name for name in _KEYS[provider] if env.get(name, "").strip()), None)
    if name is None:
        return Secret()
    key = env[name].strip()
    if not all(" " <= c <= "~" for c in key):
        raise BadRequest(
            f"{name} holds a character that no HTTP header takes (a key is printable ASCII on one line)",
            code="bad_setting",
        )
    return Secret(key)


def _model(env: Mapping[str, str]) -> str | None:
    model = env.get("OMNIGRAPH_EMBED_MODEL", "").strip()
    if not is_text(model):
        raise BadRequest(f"OMNIGRAPH_EMBED_MODEL is {model[:40]!r}: not UTF-8 text", code="bad_setting")
    return model or None


def _base_url(env: Mapping[str, str], provider: str) -> str:
    given = env.get("OMNIGRAPH_EMBED_BASE_URL", "").strip()
    if not given or provider == "mock":
        return _BASES[provider]
    try:
        parts = urlsplit(given)
        usable = is_text(given) and parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        usable = False
    if not usable:
        raise BadRequest(
            "OMNIGRAPH_EMBED_BASE_URL is no http:// or https:// URL such as http://localhost:11434/v1",
            code="bad_setting",
        )
    return given.rstrip("/")


def _number(env: Mapping[str, str], name: str, default: int, least: int) -> int:
    text = env.get(f"OMNIGRAPH_EMBED_{name}", "").strip()
    if not text:
        return default
    if not text.isascii() or not text.isdigit() or len(text) > 18 or int(text) < least:
        raise BadRequest(
            f"OMNIGRAPH_EMBED_{name} is {text[:40]!r}: give a whole number from {least} on", code="bad_setting"
        )
    return int(text)


def _cache(env: Mapping[str, str]) -> str | None:
    from omnigraph.caches import cache_folder

    given = env.get("OMNIGRAPH_EMBED_CACHE", "").strip()
    if given.lower() in ("off", "none", "0"):
        return None
    return given or str(cache_folder() / "embeddings")
