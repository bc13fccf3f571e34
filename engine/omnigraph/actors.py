"""Actors: the names that commits keep of who asked for them."""

from __future__ import annotations

from typing import Any

from omnigraph.arguments import expect_text, is_text
from omnigraph.errors import BadRequest

__all__ = ["check_actor", "stored_actor"]


def check_actor(actor: str | None) -> str | None:
    """The actor as given; None is nobody.

    Raises:
        BadRequest: it can't be kept in a commit: no text, an empty one, or one that isn't Unicode (bytes of an argument
            that aren't UTF-8 arrive as halves of surrogate pairs).
    """
    if actor is None:
        return None
    expect_text("actor", actor)
    if not actor or not is_text(actor):
        raise BadRequest(f"actor {actor!r}: {'not UTF-8 text' if actor else 'empty'}", code="bad_actor")
    return actor


def stored_actor(actor: Any) -> str | None:
    """An actor as a graph holds it, always a text that can be shown and stored; not every one was checked once."""
    return None if actor in (None, "") else str(actor).encode("utf-8", "backslashreplace").decode()
