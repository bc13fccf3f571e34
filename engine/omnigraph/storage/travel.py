"""Time travel: from a moment to the commit, from a commit to its state (03 §3.4)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime

from omnigraph.errors import NotFound
from omnigraph.storage.engine import Engine
from omnigraph.storage.layout import COMMITS, MAIN
from omnigraph.storage.lineage import branch_names
from omnigraph.storage.manifest import ManifestState
from omnigraph.storage.types import CommitInfo

__all__ = ["commit_at", "find_commit", "state_of"]


def commit_at(engine: Engine, branch: str, at: str | datetime) -> CommitInfo:
    """The branch's commit of this id, or its newest one at a time.

    Raises:
        NotFound: there is none.
    """
    head = engine.manifest.current(branch).head
    if isinstance(at, str):
        return head if at == head.id else engine.history.find(branch, at, head)
    when = at if at.tzinfo else at.replace(tzinfo=UTC)
    known = {c.id: c for c in engine.history.commits(branch, head)}
    for commit in _own_line(known, head):
        if commit.created_at <= when:
            return commit
    raise NotFound(f"branch {branch!r} has no commit as old as {when.isoformat()}", details={"branch": branch})


def _own_line(known: Mapping[str, CommitInfo], head: CommitInfo) -> Iterator[CommitInfo]:
    """What the branch itself stood at, newest first: what was merged in was made elsewhere."""
    commit: CommitInfo | None = head
    while commit is not None:
        yield commit
        commit = known.get(commit.parents[0]) if commit.parents else None


def state_of(engine: Engine, branch: str, commit: CommitInfo) -> ManifestState:
    """The state that a commit made, as a state of `branch` where it lies on the branch's own line.

    Raises:
        NotFound: it was made on a branch that has been deleted, and its state with it.
    """
    manifest = engine.manifest
    lineage = commit.branch
    if manifest.exists(branch) and manifest.began(branch, commit.manifest_version) == commit.branch:
        lineage = branch
    try:
        state = manifest.at(lineage, commit.manifest_version) if manifest.exists(lineage) else None
    except NotFound:
        head = manifest.current(lineage).head
        if commit.id in {c.id for c in _own_line({c.id: c for c in engine.history.commits(lineage, head)}, head)}:
            raise  # the version was cleaned away; else the branch is a younger one of the same name
        state = None
    if state is not None:
        # The origin has several commits of one manifest version.
        origin = commit.schema_hash is None and state.head.manifest_version == commit.manifest_version
        if state.head.id == commit.id or origin:
            return state
    raise NotFound(
        f"commit {commit.id} was made on branch {commit.branch!r}, which has been deleted, and its state with it: read "
        "the commit that merged it",
        code="commit_state_gone",
        details={"commit": commit.id, "branch": commit.branch},
    )


def find_commit(engine: Engine, commit_id: str) -> CommitInfo:
    """A commit of any branch.

    Raises:
        NotFound: there is none.
    """
    own = branch_names(engine.store, COMMITS)
    for branch in (MAIN, *sorted(engine.manifest.names(), key=lambda name: (name not in own, name))):
        try:
            return engine.history.find(branch, commit_id, engine.manifest.current(branch).head)
        except NotFound:
            continue  # not of this branch, or the branch has just gone
    raise NotFound(f"there is no branch and no commit {commit_id!r}", details={"commit": commit_id})
