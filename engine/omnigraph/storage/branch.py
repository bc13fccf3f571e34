"""Graph branches: Lance branches of `__manifest` (01 §1.7)."""

from __future__ import annotations

from omnigraph.errors import Conflict, Internal, NotFound
from omnigraph.storage.engine import Engine
from omnigraph.storage.forks import drop_lineage, fork_lock
from omnigraph.storage.layout import COMMITS, MAIN, MANIFEST, check_branch_name
from omnigraph.storage.manifest import ManifestState
from omnigraph.storage.steps import Step, reach
from omnigraph.storage.translate import lance_errors
from omnigraph.storage.types import BranchInfo

__all__ = ["create_branch", "list_branches", "undo_branch"]


def list_branches(engine: Engine) -> list[BranchInfo]:
    """`main` first, then by name. Branches whose name begins with `__` are the engine's own and left out."""
    listed = engine.manifest.branches()
    out = [BranchInfo(MAIN, engine.manifest.current(MAIN).head)]
    for name in sorted(n for n in listed if not n.startswith("__")):
        try:
            head = engine.manifest.current(name).head
        except NotFound:
            continue  # deleted since it was listed
        out.append(BranchInfo(name, head, listed[name]["parent_branch"] or MAIN, listed[name]["parent_version"]))
    return out


def create_branch(engine: Engine, name: str, base: ManifestState, lineage: str) -> BranchInfo:
    """Create a branch that sees what `base` sees. One atomic step: the branch of `__manifest`.

    Args:
        lineage: the branch whose manifest holds `base.version`.

    Raises:
        BadRequest: the name can't be used. Conflict: it is taken, or collides with a nested one.
        NotFound: a table version that `base` sees was removed meanwhile.
    """
    check_branch_name(name)
    listed = engine.manifest.branches()
    if name in listed:
        raise _taken(engine, name, name)
    for other in listed:
        if other.startswith(f"{name}/") or name.startswith(f"{other}/"):
            raise _taken(engine, name, other)
    _clear_leftovers(engine, name)
    with fork_lock(engine.store, exclusive=False), lance_errors(f"creating branch {name}"):
        source = engine.store.version(MANIFEST, lineage, base.version)
        try:
            source.create_branch(name, source.version)
        except OSError as error:
            if name in engine.manifest.branches():
                raise _taken(engine, name, name) from error
            raise
    reach(Step.BRANCH_CREATED)
    engine.manifest.forget(name)
    try:
        state = engine.manifest.current(name)
        for ref in state.tables.values():  # a cleanup may have run between: then the branch would be broken
            engine.store.version(ref.location, ref.branch, ref.version)
    except NotFound:
        engine.store.latest(MANIFEST).branches.delete(name)
        engine.manifest.forget(name)
        raise
    if state.head.id != base.head.id:
        raise Internal(f"branch {name!r} began at commit {state.head.id} instead of {base.head.id}")
    return BranchInfo(name, state.head, lineage, base.version)


def _clear_leftovers(engine: Engine, name: str) -> None:
    """Remove what a deleted branch of this name, or a creation that was killed, has left."""
    left = [location for location in (COMMITS, MANIFEST) if engine.store.latest_or_none(location, name) is not None]
    if not left:
        return
    with fork_lock(engine.store, exclusive=True) as held:
        if not held and engine.sidecars.tells_the_dead:
            error = Conflict(
                f"branch {name!r} left files behind; they are cleared when no branch gets its first write: retry",
                code="branch_busy",
                details={"branch": name},
            )
            error.retryable = True
            raise error
        if name in engine.manifest.branches():
            raise _taken(engine, name, name)
        for location in left:
            drop_lineage(engine.store, location, name)


def undo_branch(engine: Engine, made: BranchInfo) -> bool:
    """Remove a branch that was just created if nothing was written on it. False: it stays.

    The first write to any table of a new branch forks it, and holds the lock of all forks until it has published. So
    under that lock a head that still is the inherited one means that no writer is past its fork. Where there is no such
    lock (object stores), the branch stays: it sees what its base sees and nothing else.
    """
    with fork_lock(engine.store, exclusive=True) as held:
        if not held or engine.manifest.current(made.name).head.id != made.head.id:
            return False
        with lance_errors(f"removing the unused branch {made.name}"):
            engine.store.latest(MANIFEST).branches.delete(made.name)
        engine.manifest.forget(made.name)
        return True


def _taken(engine: Engine, name: str, other: str) -> Conflict:
    message = (
        f"branch {name!r} exists already"
        if name == other
        else (f"branches {name!r} and {other!r} can't both live: one's name is a folder of the other's")
    )
    return Conflict(f"{message} in {engine.store.root.uri}", code="branch_exists", details={"branch": name})
