"""A schema or query, given as its text or as the path of a file with it."""

from __future__ import annotations

import os
from pathlib import Path

from omnigraph.arguments import expect_path
from omnigraph.errors import BadRequest

__all__ = ["text_and_name"]


def text_and_name(source: str | Path, default: str) -> tuple[str, str]:
    """The text of a source and the file name for messages about it.

    Raises:
        BadRequest: it is neither, or the file isn't there, can't be read or isn't UTF-8.
    """
    if isinstance(source, str):
        if source.endswith((".pg", ".gq")) and len(source.split()) == 1:
            raise BadRequest(f"{source!r} is a file's name, and a str is the text itself: give Path({source!r})")
        return source, default
    if not isinstance(source, Path):
        raise BadRequest(f"expected a text or a pathlib.Path, got {type(source).__name__}")
    expect_path("a source", source)
    try:
        return source.read_text(encoding="utf-8"), str(source)
    except UnicodeDecodeError as error:
        raise BadRequest(f"{source}: not UTF-8 text (byte {error.start})") from None
    except FileNotFoundError:
        raise BadRequest(f"{source}: there is no such file", code="missing_source") from None
    except OSError as error:
        message = f"{source}: can't be read ({os.strerror(error.errno or 0)})"
        raise BadRequest(message, code="unreadable_source") from None
