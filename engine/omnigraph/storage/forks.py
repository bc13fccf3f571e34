"""Forks: a table's own lineage on a graph branch, made at the first write there (07 §6).

On a directory, whoever makes a branch, or makes a fork and publishes it, holds a shared lock; whoever deletes one, an
exclusive one. So a fork is never deleted between a writer's commit on it and its publish. On an object store forks are
deleted by `cleanup` alone, which says so before.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from io import FileIO

import lance

from omnigraph.errors import Conflict, NotFound
from omnigraph.storage.announce import announced
from omnigraph.storage.files import LocalFiles, opened, unlock
from omnigraph.storage.layout import MAIN, RECOVERY, lance_branch
from omnigraph.storage.lineage import delete_recorded, parent_of, remove_tree
from omnigraph.storage.manifest import Manifest
from omnigraph.storage.sidecar import Sidecars
from omnigraph.storage.steps import Step, reach
from omnigraph.storage.store import Store
from omnigraph.storage.translate import lance_errors
from omnigraph.storage.types import TableRef

__all__ = ["clear_orphan", "delete_fork", "drop_lineage", "ensure_fork", "fork_lock"]


@contextmanager
def fork_lock(store: Store, *, exclusive: bool, wait: float = 0) -> Iterator[bool]:
    """Hold the lock of all forks. Yields False where it can't be had: while writers hold it, or on a store.

    Args:
        wait: seconds to try again for, if it is exclusive.
    """
    if not isinstance(store.files, LocalFiles):
        yield not exclusive
        return
    folder = store.files.path(RECOVERY)
    with lance_errors(f"opening {folder}/.forks.lock"):
        os.makedirs(folder, exist_ok=True)
        handle = opened(os.path.join(folder, ".forks.lock"), os.O_CREAT | os.O_RDWR)
    try:
        until = time.monotonic() + wait
        held = _lock(handle, exclusive)
        while not held and time.monotonic() < until:
            time.sleep(0.02)
            held = _lock(handle, exclusive)
        yield held
    finally:
        unlock(handle)


def _lock(handle: FileIO, exclusive: bool) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB if exclusive else fcntl.LOCK_SH)
    except BlockingIOError:
        return False
    return True


def drop_lineage(store: Store, location: str, branch: str) -> None:
    """Delete a branch of a dataset, one too that a kill left half made: its files are there, but no record of it.

    Call it under the exclusive lock of all forks, so that nobody is making it.

    Raises:
        Conflict: it is half made on an object store, where nothing tells that nobody is making it.
    """
    if delete_recorded(store, location, branch):
        return
    if not isinstance(store.files, LocalFiles):
        raise Conflict(
            f"{location}/tree/{branch} was left half made by a killed write: remove that prefix and retry",
            code="branch_half_made",
            details={"location": location, "branch": branch},
        )
    with lance_errors(f"deleting the unused branch {branch} of {location}"):
        remove_tree(store, location, branch)


def ensure_fork(store: Store, ref: TableRef, branch: str) -> lance.LanceDataset:
    """The table's fork for the branch at the inherited version `ref`; made where there is none.

    Args:
        ref: the pin the branch inherited.

    Raises:
        Conflict: a fork stands there that another write is using.
    """
    if announced(store, {(ref.location, branch): ()}):
        raise _busy(ref, branch)  # a cleanup is removing a fork of this name that nobody used
    existing = store.latest_or_none(ref.location, branch)
    if existing is not None:
        if int(existing.version) == ref.version and _grew_from(store, ref, branch):
            return existing
        raise _busy(ref, branch)
    with lance_errors(f"forking {ref.table_key} for branch {branch}"):
        source = store.version(ref.location, ref.branch, ref.version)
        try:
            fork = source.create_branch(branch, source.version)
        except OSError as error:
            # Another writer made it at the same moment: take it, if it stands where ours would.
            taken = store.latest_or_none(ref.location, branch)
            if taken is None or int(taken.version) != ref.version:
                raise _busy(ref, branch) from error
            return taken
    reach(Step.TABLE_FORKED)
    return fork


def _grew_from(store: Store, ref: TableRef, branch: str) -> bool:
    try:
        return parent_of(store, ref.location, branch) == (ref.branch or MAIN, ref.version)
    except NotFound:
        return False


def clear_orphan(
    store: Store, manifest: Manifest, sidecars: Sidecars, ref: TableRef, branch: str, own: str | None
) -> None:
    """Before the fork lock is taken: delete a fork that a failed write or a deleted branch left.

    Args:
        own: the name of this write's sidecar; None for a writer that only stages data files.

    Raises:
        Conflict: a sidecar or the manifest names the fork, so another write is using it.
    """
    existing = store.latest_or_none(ref.location, branch)
    if existing is None or (int(existing.version) == ref.version and _grew_from(store, ref, branch)):
        return
    if not delete_fork(store, manifest, sidecars, ref.table_key, ref.location, branch, own):
        raise _busy(ref, branch)


def delete_fork(
    store: Store,
    manifest: Manifest,
    sidecars: Sidecars,
    table_key: str,
    location: str,
    branch: str,
    own: str | None,
) -> bool:
    """Delete a table's fork if nothing names it. False: something does, or a writer is about to use one."""
    with fork_lock(store, exclusive=True) as held:
        if not held:
            return False
        for name in sidecars.names():
            sidecar = sidecars.read(name) if name != own else None
            if sidecar is not None and any(
                t.table_key == table_key and t.table_branch == lance_branch(branch) for t in sidecar.tables
            ):
                return False
        pinned = manifest.current(branch).tables.get(table_key)
        if pinned is not None and pinned.branch == lance_branch(branch):
            return False
        drop_lineage(store, location, branch)
        reach(Step.RECOVERY_FORK_DELETED)
        return True


def _busy(ref: TableRef, branch: str) -> Conflict:
    error = Conflict(
        f"another write is making the first change to {ref.table_key} on branch {branch!r}: retry; if none is running, "
        "run `omnigraph recover`",
        code="fork_in_use",
        details={"table_key": ref.table_key, "branch": branch},
    )
    error.retryable = True
    return error
