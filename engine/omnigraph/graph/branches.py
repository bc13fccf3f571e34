"""`graph.branches`: made, listed, merged and deleted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from omnigraph import write
from omnigraph.actors import check_actor
from omnigraph.storage import At, Repository

if TYPE_CHECKING:
    from omnigraph.storage import BranchInfo
    from omnigraph.write import MergeResult

__all__ = ["Branches"]


class Branches:
    """The branches of a graph, as `graph.branches`."""

    def __init__(self, repository: Repository, actor: str | None) -> None:
        self._repository = repository
        self._actor = actor

    def list(self) -> list[BranchInfo]:
        """Every branch with its head, `main` first."""
        return self._repository.branches()

    def create(self, name: str, *, from_: str = "main", at: At = None, actor: str | None = None) -> BranchInfo:
        """A new branch that begins where `from_` stands, or stood `at` a moment. No data is copied.

        Args:
            name: letters, digits, `.`, `-`, `_` and `/`.
            from_: a branch, a commit id, or a branch at a moment (`main@12`, `main@2026-01-31`).
            at: the moment, where `from_` is a branch.

        Raises:
            Conflict: the name is taken.
            BadRequest: the name isn't allowed.
            NotFound: there is no such base.
        """
        return self._repository.create_branch(name, from_=from_, at=at, actor=check_actor(actor) or self._actor)

    def delete(self, name: str) -> BranchInfo:
        """Delete a branch; its data goes with it, as far as no other branch has merged it.

        Returns:
            The branch as it was.

        Raises:
            BadRequest: it is `main`.
            NotFound: there is no such branch.
            Conflict: branches that began from it live, or a write on it is running.
        """
        return self._repository.delete_branch(name)

    def merge(
        self,
        source: str,
        into: str = "main",
        *,
        delete_source: bool = False,
        expect_head: str | None = None,
        actor: str | None = None,
        operation_id: str | None = None,
    ) -> MergeResult:
        """Bring a branch's changes into another, row by row against their common ancestor, as one commit.

        The source may be deleted at once: nothing of the target depends on it.

        Args:
            source: a branch, `branch@moment` or a commit id.
            into: the branch that gets the changes.
            delete_source: delete the source, a branch, afterwards.
            expect_head: the target's head commit the caller saw; anything newer refuses the merge.
            actor: who asks; default is the graph's.
            operation_id: a ULID; the same one again changes nothing.

        Raises:
            MergeConflicts: with each row both sides changed, or that breaks a constraint; nothing was published.
            NotFound: no such branch.
            Conflict: the target moved meanwhile; `retryable` says whether to try again.
        """
        if delete_source:
            self._repository.head(source)  # a moment or a commit can't be deleted: say so before anything is merged
        result = write.merge(
            self._repository,
            source,
            into,
            actor=check_actor(actor) or self._actor,
            operation_id=operation_id,
            expect_head=expect_head,
        )
        if delete_source:
            self.delete(source)
        return result
