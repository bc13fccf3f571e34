"""The one exception of the platforms. Imports nothing, since a workload's runner does too."""

from __future__ import annotations

__all__ = ["PlatformError"]


class PlatformError(Exception):
    """Something around the decision failed (API, disk, process table); the pass is made again.

    Args:
        message: what failed, naming the thing.
        retry_after_seconds: when to try again; None leaves it to the caller's back-off.
        permanent: trying again can't help until somebody changes something.
    """

    def __init__(self, message: str, *, retry_after_seconds: float | None = None, permanent: bool = False) -> None:
        super().__init__(message)
        self.message = message
        self.retry_after_seconds = retry_after_seconds
        self.permanent = permanent
