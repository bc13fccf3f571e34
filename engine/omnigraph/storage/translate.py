"""Lance's and the file system's errors become ours, once, here."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager

from lance.commit import CommitConflictError

from omnigraph.errors import Conflict, Internal, NotFound, OmniGraphError, Unavailable

__all__ = ["is_commit_race", "is_missing", "lance_errors", "scrub"]

_SOURCE_POSITION = re.compile(r",? ?/[^\s,]*\.rs:\d+:\d+")
_SECRETS = ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_ACCESS_KEY_ID")
# The last two: an object that went between the two requests of a read.
_MISSING = ("not found", "no such file", "not a directory", "resource_not_found", "no_such_key")
_INTERRUPTED = "External error: KeyboardInterrupt"  # what Arrow makes of a Ctrl-C while Lance hands batches over
_NETWORK = ("connection refused", "timed out", "timeout", "dns error", "error sending request", "503", "slowdown")


def scrub(text: str) -> str:
    """The message without Lance's own source positions and without any credential of the environment."""
    text = _SOURCE_POSITION.sub("", text)
    for name in _SECRETS:
        secret = os.environ.get(name)
        if secret and len(secret) > 3:
            text = text.replace(secret, "***")
    return text


def is_commit_race(error: BaseException) -> bool:
    """Another commit came first: nothing of this one took effect."""
    # Compactions and index builds say it in plain errors.
    text = str(error)
    words = ("Too many concurrent writers", "commit conflict", "Incompatible transaction")
    return isinstance(error, CommitConflictError) or any(word in text for word in words)


def is_missing(error: BaseException) -> bool:
    text = str(error).lower()
    return isinstance(error, FileNotFoundError) or any(word in text for word in _MISSING)


@contextmanager
def lance_errors(doing: str) -> Iterator[None]:
    """Translate what Lance raises while `doing` ("reading node:Person at version 4").

    Raises:
        NotFound: a dataset, version or file isn't there.
        Conflict: another commit came first; the same call may succeed now.
        Unavailable: the store can't be reached or has no space; the same call may succeed later.
        Internal: anything else, with Lance's words.
        KeyboardInterrupt: Ctrl-C was pressed meanwhile.
    """
    try:
        yield
    except OmniGraphError:
        raise
    except (OSError, ValueError, RuntimeError, NotImplementedError, KeyError) as error:
        text = scrub(str(error))
        if _INTERRUPTED in text:
            raise KeyboardInterrupt from error
        if is_commit_race(error):
            race = Conflict(f"{doing}: another write came first: try again ({text})", code="commit_race")
            race.retryable = True
            raise race from error
        if is_missing(error):
            raise NotFound(
                f"{doing}: it isn't there any more (cleanup removes old versions) or never was ({text})",
                code="storage_not_found",
            ) from error
        if isinstance(error, PermissionError) or "permission denied" in text.lower():
            raise Unavailable(f"{doing}: no permission ({text})", code="storage_permission") from error
        if any(word in text.lower() for word in (*_NETWORK, "no space left")):
            raise Unavailable(
                f"{doing}: the store doesn't answer ({text}); try again", code="storage_unavailable"
            ) from error
        raise Internal(f"{doing}: {text}", code="storage_error") from error
