"""The commit graph: ancestors and merge bases. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from omnigraph.storage.types import CommitInfo

__all__ = ["ancestors", "bases_and_roots", "merge_bases"]


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


def merge_bases(commits: Mapping[str, CommitInfo], one: str, other: str) -> list[CommitInfo]:
    """The nearest common ancestors, the newest first: common ones that no other common one descends from.

    There are several where two branches were merged into each other crosswise.
    """
    common = ancestors(commits, one) & ancestors(commits, other)
    passed = {parent for commit_id in common for parent in commits[commit_id].parents}
    return sorted((commits[i] for i in common - passed), key=lambda c: (c.created_at, c.id), reverse=True)


def bases_and_roots(commits: Mapping[str, CommitInfo], one: str, other: str) -> list[tuple[CommitInfo, CommitInfo]]:
    """The merge bases, newest first, each with its own common ancestor with the first: that one's is itself."""
    bases = merge_bases(commits, one, other)
    roots = [merge_bases(commits, bases[0].id, base.id) for base in bases]
    return [(base, found[0]) for base, found in zip(bases, roots, strict=True) if found]
