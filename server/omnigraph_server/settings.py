"""What can be set, in one frozen object: name with its unit, default, environment variable."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields

from omnigraph.errors import BadRequest

__all__ = ["Settings"]

_DIGITS = 18  # more of them is no limit of anything


@dataclass(frozen=True, slots=True)
class Settings:
    """Limits of one server. Each is read from `OMNIGRAPH_SERVER_<NAME>`, all are whole numbers above zero.

    Args:
        body_max_bytes: largest request body.
        query_max_seconds: how long a caller waits for a query at most; a request may ask for less.
        threads: how many queries run at the same time, and as many other operations beside them; more wait.
        shutdown_seconds: how long running requests may go on after SIGTERM.
    """

    body_max_bytes: int = 1_000_000
    query_max_seconds: int = 60
    threads: int = 16
    shutdown_seconds: int = 25

    @classmethod
    def from_env(cls, env: Mapping[str, str] | None = None) -> Settings:
        """The defaults, overridden from the environment.

        Raises:
            BadRequest: a variable isn't a whole number above zero.
        """
        env = os.environ if env is None else env
        given: dict[str, int] = {}
        for field in fields(cls):
            name = f"OMNIGRAPH_SERVER_{field.name.upper()}"
            if name not in env:
                continue
            if not env[name].isdecimal() or len(env[name]) > _DIGITS or int(env[name]) < 1:
                raise BadRequest(f"{name}={env[name]!r}: expected a whole number above zero")
            given[field.name] = int(env[name])
        return cls(**given)
