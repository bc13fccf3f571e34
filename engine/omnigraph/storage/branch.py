"""Graph branches: Lance branches of `__manifest` (01 §1.7).

The manifest's record decides whether a branch lives. What else a branch has (its forks of tables, its history table) is
reclaimed when it is deleted, as far as nobody is using it, and at the latest before its name is used again.
"""

from __future__ import annotations

import logging

from omnigraph.errors import BadRequest, Conflict, Internal, NotFound, OmniGraphError
from omnigraph.storage.announce import announced
from omnigraph.storage.engine import Engine
from omnigraph.storage.forks import drop_lineage, fork_lock
from omnigraph.storage.layout import COMMITS, MAIN, MANIFEST, SCHEMA_LOCK, check_branch_name, lance_branch
from omnigraph.storage.lineage import branch_names, delete_recorded, parent_of
from omnigraph.storage.manifest import ManifestState
from omnigraph.storage.steps import Step, reach
from omnigraph.storage.sweep import sweep
from omnigraph.storage.translate import lance_errors
from omnigraph.storage.types import BranchInfo

__all__ = ["create_branch", "delete_branch", "list_branches", "undo_branch"]

log = logging.getLogger(__name__)

WAIT_SECONDS = 5.0
"""How long a deletion waits for the first writes of other branches to be published."""


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


# --- create ---------------------------------------------------------------------------------------------------------


def create_branch(engine: Engine, name: str, base: ManifestState, lineage: str) -> BranchInfo:
    """Create a branch that sees what `base` sees. One atomic step: the branch of `__manifest`.

    Args:
        lineage: the branch whose manifest holds `base.version`.

    Raises:
        BadRequest: the name can't be used.
        Conflict: it is taken, collides with a nested one, or what a deleted branch of this name left can't be removed.
        NotFound: a table version that `base` sees was removed meanwhile.
    """
    check_branch_name(name)
    taken = engine.manifest.names()
    for other in (name, *_nested(name, taken)):
        if other in taken:
            raise _taken(engine, name, other)
    if engine.manifest.exists(SCHEMA_LOCK):
        raise _schema_changing(name)
    _clear_leftovers(engine, name, base)
    engine.history.settle()  # or the branch's first write would add the same rows to a table of its own
    with fork_lock(engine.store, exclusive=False), lance_errors(f"creating branch {name}"):
        source = engine.store.version(MANIFEST, lineage, base.version)
        try:
            source.create_branch(name, source.version)
        except OSError as error:
            if engine.manifest.exists(name):
                raise _taken(engine, name, name) from error
            raise
    reach(Step.BRANCH_CREATED)
    engine.manifest.forget(name)
    try:
        state = engine.manifest.current(name)
        for ref in state.tables.values():  # a cleanup may have run between: then the branch would be broken
            engine.store.check_version(ref)
        wanted = {(ref.location, lance_branch(ref.branch)): {ref.version} for ref in state.tables.values()}
        if announced(engine.store, {**wanted, (MANIFEST, lance_branch(lineage)): {base.version}}):
            raise NotFound(
                f"a cleanup is removing a version that {name!r} would read: begin from a newer commit, or retry; if no "
                "cleanup is running, run `omnigraph cleanup` again",
                code="version_removed",
                details={"branch": name},
            )
        if engine.manifest.exists(SCHEMA_LOCK):
            raise _schema_changing(name)
        if not engine.manifest.exists(lineage):
            raise NotFound(f"branch {lineage!r} was deleted while {name!r} was made from it", details={"branch": name})
    except (NotFound, Conflict):
        delete_recorded(engine.store, MANIFEST, name)
        engine.manifest.forget(name)
        raise
    if state.version == base.version and state.head.id != base.head.id:  # later, another has written there already
        raise Internal(f"branch {name!r} began at commit {state.head.id} instead of {base.head.id}")
    return BranchInfo(name, base.head, lineage, base.version)


def _schema_changing(name: str) -> Conflict:
    error = Conflict(
        f"branch {name!r} can't be made while a schema change is under way, or it would keep the old schema: try "
        "again; if none is running, run `omnigraph recover`",
        code="schema_apply_running",
        details={"branch": name},
    )
    error.retryable = True
    return error


def _nested(name: str, others: set[str]) -> list[str]:
    """Branches that can't live beside this one, as in git: one's name is a folder of the other's."""
    return sorted(o for o in others if o.startswith(f"{name}/") or name.startswith(f"{o}/"))


def _taken(engine: Engine, name: str, other: str) -> Conflict:
    message = (
        f"branch {name!r} exists already"
        if name == other
        else (f"branches {name!r} and {other!r} can't both live: one's name is a folder of the other's")
    )
    return Conflict(f"{message} in {engine.store.root.uri}", code="branch_exists", details={"branch": name})


def _clear_leftovers(engine: Engine, name: str, base: ManifestState) -> None:
    """Remove what a deleted branch of this name, or a creation that was killed, has left."""
    if not _leftovers(engine, name, base):
        return
    sweep(engine, "forward", branch=name)  # writes that died on the deleted branch: they can't be published any more
    with fork_lock(engine.store, exclusive=True, wait=WAIT_SECONDS) as held:
        if not held and engine.sidecars.tells_the_dead:
            raise _busy(name, "left files behind; they are cleared when no branch gets its first write: retry")
        if engine.manifest.exists(name):
            raise _taken(engine, name, name)
        for location, other in _leftovers(engine, name, base):
            if _named(engine, other):
                raise _busy(name, f"left files behind that an interrupted write on {other!r} names: run "
                            f"`omnigraph recover {engine.store.root.uri}` first")  # fmt: skip
            _drop(engine, location, other)


def _leftovers(engine: Engine, name: str, base: ManifestState) -> list[tuple[str, str]]:
    """(location, branch) of everything that stands where the branch, or a fork of it, would go."""
    out = []
    for location in _locations(engine, base):
        # Every name the manifest lists lives; only a killed creation leaves files there and no record.
        names = branch_names(engine.store, location) if location != MANIFEST else set()
        out += [(location, other) for other in _nested(name, names) if not engine.manifest.exists(other)]
        if name in names or engine.store.latest_or_none(location, name) is not None:
            out.append((location, name))
    return out


def _locations(engine: Engine, state: ManifestState) -> list[str]:
    """The datasets that a branch can have a lineage of: `__manifest` last, so that a killed reclaim is taken up."""
    tables = {*state.locations.values(), *engine.manifest.current(MAIN).locations.values()}
    return [*sorted(tables), COMMITS, MANIFEST]


# --- delete ---------------------------------------------------------------------------------------------------------


def delete_branch(engine: Engine, name: str) -> BranchInfo:
    """Delete a branch at once; what it holds in files goes as far as nobody uses it, the rest with its name's next use.

    Returns:
        The branch as it was.

    Raises:
        BadRequest: it is `main`.
        NotFound: there is no such branch.
        Conflict: branches that began from it live, or a write on it is running.
    """
    if lance_branch(name) is None or name.startswith("__"):
        raise BadRequest(f"branch {name!r} can't be deleted", details={"branch": name})
    engine.history.settle()  # rows that are about to be written to what goes
    with fork_lock(engine.store, exclusive=True, wait=WAIT_SECONDS) as held:
        if not held and engine.sidecars.tells_the_dead:
            raise _busy(name, "can't be deleted while branches get their first writes: retry")
        state = engine.manifest.current(name)
        listed = engine.manifest.branches()
        children = sorted(n for n, record in listed.items() if record["parent_branch"] == name)
        if children:
            raise Conflict(
                f"branch {name!r} can't be deleted: {', '.join(children)} began from it; delete those first",
                code="branch_has_descendants",
                details={"branch": name, "descendants": children},
            )
        if _in_use(engine, name):
            raise _busy(name, "can't be deleted while a write on it runs: wait for it, or run "
                        f"`omnigraph recover {engine.store.root.uri}` if none does")  # fmt: skip
        record = listed.get(name) or {}
        delete_recorded(engine.store, MANIFEST, name)
        reach(Step.BRANCH_DELETED)
        engine.manifest.forget(name)
        _reclaim(engine, name, state)
    return BranchInfo(name, state.head, record.get("parent_branch") or MAIN, record.get("parent_version"))


def _in_use(engine: Engine, name: str) -> bool:
    """Whether a write on the branch lives, or may live where nothing tells."""
    for sidecar_name in engine.sidecars.names():
        sidecar = engine.sidecars.read(sidecar_name)
        if sidecar is not None and sidecar.branch == name and engine.sidecars.alive(sidecar_name) is not False:
            return True
    return False


def _named(engine: Engine, branch: str) -> bool:
    """Whether a sidecar names the branch."""
    read = (engine.sidecars.read(n) for n in engine.sidecars.names())
    return any(sidecar is not None and sidecar.branch == branch for sidecar in read)


def _reclaim(engine: Engine, name: str, state: ManifestState) -> None:
    """The branch is gone. A failure here costs space only: the next use of the name tries again."""
    try:
        sweep(engine, "forward", branch=name)
        for location in _locations(engine, state):
            if engine.store.latest_or_none(location, name) is not None:
                _drop(engine, location, name)
    except OmniGraphError as error:
        log.warning("branch %s is deleted; files of it stay until its name is used again: %s", name, error.message)


def _drop(engine: Engine, location: str, branch: str) -> None:
    """Delete a dataset's branch of a dead graph branch; first those that grew from it, which are dead too."""
    for other in sorted(branch_names(engine.store, location)):
        if parent_of(engine.store, location, other)[0] == branch:
            if engine.manifest.exists(other):
                raise Internal(f"the living branch {other!r} reads {location} of the deleted branch {branch!r}")
            _drop(engine, location, other)
    drop_lineage(engine.store, location, branch)
    reach(Step.BRANCH_RECLAIMED)


def _busy(name: str, why: str) -> Conflict:
    error = Conflict(f"branch {name!r} {why}", code="branch_busy", details={"branch": name})
    error.retryable = True
    return error


def undo_branch(engine: Engine, made: BranchInfo) -> bool:
    """Remove a branch that was just created if nothing was written on it. False: it stays.

    The first write to any table of a new branch forks it, and holds the lock of all forks until it has published. So
    under that lock a head that still is the inherited one means that no writer is past its fork. Where there is no such
    lock (object stores), the branch stays: it sees what its base sees and nothing else.
    """
    engine.history.settle()  # rows that are about to be written to what goes
    with fork_lock(engine.store, exclusive=True) as held:
        if not held or engine.manifest.current(made.name).head.id != made.head.id:
            return False
        delete_recorded(engine.store, MANIFEST, made.name)
        engine.manifest.forget(made.name)
        return True
