"""The commit graph: ancestors and merge bases. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from omnigraph.storage.types import CommitInfo

__all__ = ["ancestors", "merge_base"]


def ancestors(commits: Mapping[str, CommitInfo], head: str) -> set[str]:
    """The commit itself and all before it, through both kinds of parents, as far as they are known."""
    seen: set[str] = set()
    queue = [head]
    while queue:
        commit = commits.get(queue.pop())
        if commit is not None and commit.id not in seen:
            seen.add(commit.id)
            queue.extend(commit.parents)
    return seen


def merge_base(commits: Mapping[str, CommitInfo], one: str, other: str) -> CommitInfo | None:
    """The nearest common ancestor: a common one that no other common one descends from; the newest of several."""
    common = ancestors(commits, one) & ancestors(commits, other)
    passed = {parent for commit_id in common for parent in commits[commit_id].parents}
    best = [commits[commit_id] for commit_id in common - passed]
    return max(best, key=lambda c: (c.created_at, c.id)) if best else None
