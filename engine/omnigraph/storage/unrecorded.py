"""Which commits of this process wait for their rows in the history, and which are known to have them.

Both are known of commits only where they were made: a branch's own table is another one than its parent's, so a head
that a branch has inherited is looked for in the branch's table, whoever recorded it elsewhere.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Sequence

from omnigraph.storage.types import CommitInfo

__all__ = ["Unrecorded", "named_by"]

KNOWN = 256
"""Commits of a branch that are remembered to have their rows. Only the newest are asked about."""


def named_by(head: CommitInfo) -> tuple[CommitInfo, ...]:
    """What a head row holds of its lineage's commits: those that it carries, then its own."""
    return (*head.unrecorded, head.alone())


class Unrecorded:
    """Thread-safe; nothing here waits for anything."""

    def __init__(self) -> None:
        self._waiting: dict[str, dict[str, CommitInfo]] = {}
        self._recorded: dict[str, dict[str, None]] = {}
        self._lock = threading.Lock()

    def add(self, commit: CommitInfo) -> int:
        """Remember a commit whose rows aren't written yet. Returns how many wait on its branch."""
        with self._lock:
            waiting = self._waiting.setdefault(commit.branch, {})
            if commit.id not in self._recorded.get(commit.branch, {}):  # another thread may have met it as the head
                waiting[commit.id] = commit.alone()
            return len(waiting)

    def without_rows(self, commits: Sequence[CommitInfo], branch: str) -> tuple[CommitInfo, ...]:
        """Those that aren't known to have their rows in the branch's table."""
        with self._lock:
            recorded = self._recorded.get(branch, {})
            return tuple(c for c in commits if c.branch != branch or c.id not in recorded)

    def all_wait(self, commits: Sequence[CommitInfo], branch: str) -> bool:
        """Whether all of them are this process's own, made on this branch, and wait."""
        with self._lock:
            waiting = self._waiting.get(branch, {})
            return all(c.branch == branch and c.id in waiting for c in commits)

    def branches(self) -> tuple[str, ...]:
        with self._lock:
            return tuple(self._waiting)

    def waiting(self, branch: str) -> tuple[CommitInfo, ...]:
        with self._lock:
            return tuple(self._waiting.get(branch, {}).values())

    def recorded(self, commits: Collection[CommitInfo], branch: str) -> None:
        """They have their rows in the branch's table."""
        with self._lock:
            known = self._recorded.setdefault(branch, {})
            known |= {c.id: None for c in commits if c.branch == branch}
            while len(known) > KNOWN:
                del known[next(iter(known))]
        self.forget(commits, branch)

    def forget(self, commits: Collection[CommitInfo], branch: str) -> None:
        """They wait no longer."""
        with self._lock:
            waiting = self._waiting.get(branch, {})
            for commit in commits:
                waiting.pop(commit.id, None)
            if not waiting:
                self._waiting.pop(branch, None)
