"""From an error to an exit code and a message: the one place.

| code | meaning | raised by |
|---|---|---|
| 0 | done | |
| 1 | failure: refused request, nothing found, inconsistency, missing resource | every other error |
| 2 | usage: the command line itself is wrong | typer, and `UsageError` |
| 3 | conflict: the state moved; a retry may help | `Conflict` |
| 4 | precondition: the head is not the one that was named | `Conflict` with code `head_moved` |
| 5 | recovery pending: an interrupted write must be settled first | `RecoveryPending` |
| 130 | interrupted by Ctrl-C | SIGINT, see `interrupt` |
"""

from __future__ import annotations

from omnigraph.errors import BadRequest, Conflict, OmniGraphError, RecoveryPending
from omnigraph.records import dataclass

__all__ = [
    "CONFLICT",
    "FAILURE",
    "OK",
    "PRECONDITION",
    "RECOVERY_PENDING",
    "USAGE",
    "Exit",
    "UsageError",
    "exit_for",
]

OK = 0
FAILURE = 1
USAGE = 2
CONFLICT = 3
PRECONDITION = 4
RECOVERY_PENDING = 5


class UsageError(BadRequest):
    """The command line contradicts itself or an argument can't be read."""


@dataclass(frozen=True, slots=True)
class Exit:
    """How a command ends: the process's exit code, a stable word for machines, a text for people."""

    status: int
    code: str
    message: str


def exit_for(error: BaseException) -> Exit | None:
    """How the command ends on this error, or None where the error is a bug and deserves its traceback.

    Args:
        error: what a command raised.
    """
    if isinstance(error, OmniGraphError):
        return Exit(_status(error), error.code, _message(error))
    if isinstance(error, OSError):
        place = error.filename if isinstance(error.filename, str) else None
        reason = error.strerror or str(error)
        return Exit(FAILURE, "os_error", f"{place}: {reason}" if place else reason)
    return None


def _status(error: OmniGraphError) -> int:
    if isinstance(error, UsageError):
        return USAGE
    if isinstance(error, RecoveryPending):
        return RECOVERY_PENDING
    if isinstance(error, Conflict):
        return PRECONDITION if error.code == "head_moved" else CONFLICT
    return FAILURE


def _message(error: OmniGraphError) -> str:
    if isinstance(error, RecoveryPending) and "omnigraph recover" not in error.message:
        return f"{error.message}\nrun `omnigraph recover GRAPH` while no other writer lives"
    return error.message
