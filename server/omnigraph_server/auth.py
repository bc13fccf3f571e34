"""Who asks, and what they may do: bearer tokens from a file or a folder, kept only as SHA-256.

A file holds YAML or JSON, one entry an actor::

    ada: a-long-random-token                                  # may read
    ci: {token: another-token, allow: [read, change]}         # may read and write

A folder (a mounted Secret) holds such files (`.yaml`, `.yml`, `.json`); any other file in it is one actor's token under
the actor's name. Names that begin with a dot are skipped. Both are read again when they change.
"""

from __future__ import annotations

import hashlib
import hmac
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import structlog
from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from omnigraph.actors import check_actor
from omnigraph.errors import BadRequest, Forbidden
from omnigraph.yaml_text import NotYaml, read_text, read_yaml
from omnigraph_server.errors import Unauthorized

__all__ = ["ACTIONS", "Caller", "Principal", "TokenStore", "parse_tokens"]

ACTIONS = frozenset(
    {
        "read",
        "export",
        "change",
        "schema_apply",
        "branch_create",
        "branch_delete",
        "branch_merge",
        "admin",
        "invoke_query",
    }
)
_log = structlog.get_logger("omnigraph.auth")


@dataclass(frozen=True, slots=True)
class Principal:
    """The caller: an actor with its grants. Without authentication the actor is None and everything is granted."""

    actor: str | None
    allow: frozenset[str]

    def may(self, *actions: str) -> bool:
        """Whether one of the actions is granted."""
        return any(action in self.allow for action in actions)

    def require(self, action: str) -> None:
        """Raises Forbidden unless the action is granted."""
        if not self.may(action):
            raise Forbidden(
                f"{self.actor} may not {action}: its token grants {', '.join(sorted(self.allow)) or 'nothing'}",
                details={"action": action},
            )


ANYONE = Principal(None, ACTIONS)


class TokenStore:
    """The tokens of a file or folder, read again when it changes; a change that can't be read keeps the old ones."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._signature = _signature(path)
        self._known = _read(path)

    def principal(self, token: str) -> Principal | None:
        """Who has this token, or None. Takes the same time whichever token matches."""
        self._refresh()
        digest = hashlib.sha256(token.encode()).digest()
        found = None
        for known, principal in self._known:
            if hmac.compare_digest(known, digest):
                found = principal
        return found

    def __len__(self) -> int:
        return len(self._known)

    def _refresh(self) -> None:
        with self._lock:
            signature = _signature(self._path)
            if signature == self._signature:
                return
            # Remembered before reading, so that a broken file is reported once and not at every request.
            self._signature = signature
            try:
                self._known = _read(self._path)
            except BadRequest as error:
                _log.error("tokens_not_reloaded", reason=error.message)
            else:
                _log.info("tokens_reloaded", count=len(self._known))


def parse_tokens(text: str, file: str) -> dict[str, tuple[str, frozenset[str]]]:
    """Token and grants by actor, from YAML or JSON. Messages never hold a token.

    Raises:
        BadRequest: naming file and actor of what is wrong.
    """
    try:
        data = read_yaml(text, file)
    except NotYaml as error:  # its words may quote a token
        raise BadRequest(f"{error.place}: the tokens are not valid YAML or JSON that names each key once") from None
    if not isinstance(data, Mapping):
        raise BadRequest(f"{file}: expected entries of the form `actor: token`")
    return {actor: _entry(entry, f"{file}: {actor}") for actor, entry in data.items()}


def _check_actor(actor: str, path: Path) -> None:
    try:
        check_actor(actor)
    except BadRequest as error:
        raise BadRequest(f"{path}: {error.message}", code=error.code) from None


def _entry(entry: Any, place: str) -> tuple[str, frozenset[str]]:
    if not isinstance(entry, Mapping):
        entry = {"token": entry}
    unknown = set(entry) - {"token", "allow"}
    if unknown:
        raise BadRequest(f"{place}: unknown field(s) {', '.join(sorted(unknown))}; known: token, allow")
    token, allow = entry.get("token"), entry.get("allow", ["read"])
    if not isinstance(token, str) or not token.strip():
        raise BadRequest(f"{place}: the token must be a text that isn't empty (quote it if it looks like a number)")
    if not isinstance(allow, list) or not set(map(str, allow)) <= ACTIONS:
        raise BadRequest(f"{place}: allow must be a list out of {', '.join(sorted(ACTIONS))}")
    return token.strip(), frozenset(map(str, allow))


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    return sorted(file for file in path.iterdir() if not file.name.startswith(".") and file.is_file())


def _signature(path: Path) -> tuple[tuple[str, int, int, int], ...]:
    """Changes whenever a file is written, replaced, added or taken away; empty where nothing can be read."""
    try:
        stats = [(str(file), file.stat()) for file in _files(path)]
    except OSError:
        return ()
    return tuple((name, stat.st_ino, stat.st_size, stat.st_mtime_ns) for name, stat in stats)


def _read(path: Path) -> list[tuple[bytes, Principal]]:
    entries: dict[str, tuple[str, frozenset[str]]] = {}
    try:
        for file in _files(path):
            text = read_text(file)
            if file == path or file.suffix in (".yaml", ".yml", ".json"):
                found = parse_tokens(text, str(file))
            else:
                found = {file.name: _entry(text, str(file))}
            for actor in found:
                _check_actor(actor, path)
            repeated = sorted(entries.keys() & found.keys())
            if repeated:
                raise BadRequest(f"{file}: {repeated[0]} has a token in another file already")
            entries |= found
    except NotYaml as error:
        raise BadRequest(f"{error.place}: the tokens {error.problem}") from None
    except OSError as error:
        raise BadRequest(f"{path}: the tokens can't be read: {error.strerror}") from None
    if not entries:
        raise BadRequest(f"{path}: no token in it; add one or serve with --unauthenticated")
    return [
        (hashlib.sha256(token.encode()).digest(), Principal(actor, allow)) for actor, (token, allow) in entries.items()
    ]


_bearer = HTTPBearer(auto_error=False, description="A token from the server's tokens file")


async def _caller(
    request: Request, credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]
) -> Principal:
    """The caller of a request; only the token says who it is."""
    tokens: TokenStore | None = request.app.state.service.tokens
    if tokens is None:
        return ANYONE
    if credentials is None:
        raise Unauthorized("a bearer token is needed: send `Authorization: Bearer TOKEN`")
    principal = tokens.principal(credentials.credentials)
    if principal is None:
        raise Unauthorized("the bearer token isn't known to this server")
    request.state.actor = principal.actor
    return principal


Caller = Annotated[Principal, Depends(_caller)]
