"""Lance's own record of a dataset's branches, one small file a branch: names and parents without opening anything."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar
from urllib.parse import quote, unquote

from omnigraph.errors import Internal, NotFound
from omnigraph.storage.files import LocalFiles
from omnigraph.storage.layout import MAIN, lance_branch
from omnigraph.storage.store import Store
from omnigraph.storage.translate import is_missing, lance_errors
from omnigraph.storage.types import TableRef

__all__ = [
    "LISTINGS",
    "branch_names",
    "common_version",
    "created_at",
    "delete_recorded",
    "parent_of",
    "ref_file",
    "remove_tree",
    "while_branches_go",
]

T = TypeVar("T")

LISTINGS = 20
"""How often branches are listed before it counts as an error that one of them went in between."""

_FOLDER = "_refs/branches"


def while_branches_go(action: Callable[[], T]) -> T:
    """What Lance does with all branches of a dataset, again where one goes between its being listed and its being read.

    Raises:
        OSError, ValueError, RuntimeError: anything else, or branches go all the time.
    """
    for left in reversed(range(LISTINGS)):
        try:
            return action()
        except (OSError, ValueError, RuntimeError) as error:
            if not left or _FOLDER not in str(error) or not is_missing(error):
                raise
    raise AssertionError("the last listing returns or raises")


def ref_file(location: str, branch: str) -> str:
    """Where Lance records a branch of a dataset. The branch exists from the moment this file does."""
    return f"{location}/{_FOLDER}/{quote(branch, safe='')}.json"


def branch_names(store: Store, location: str) -> set[str]:
    """The names of a dataset's branches, `main` not among them."""
    listed = store.files.list(f"{location}/{_FOLDER}")
    names = [name[: -len(".json")] for name in listed if name.endswith(".json")]
    return {unquote(name) if "%" in name else name for name in names}


def parent_of(store: Store, location: str, branch: str) -> tuple[str, int]:
    """The branch and version that a branch began from.

    Raises:
        NotFound: there is no such branch.
    """
    parent, version, _ = _record(store, location, branch)
    return parent, version


def created_at(store: Store, location: str, branch: str) -> int:
    """When a branch was made, in seconds since 1970. Raises NotFound."""
    return _record(store, location, branch)[2]


def _record(store: Store, location: str, branch: str) -> tuple[str, int, int]:
    record = json.loads(store.files.read(ref_file(location, branch)))
    try:
        return record["parentBranch"] or MAIN, int(record["parentVersion"]), int(record["createAt"])
    except (KeyError, TypeError, ValueError) as error:
        raise Internal(f"{ref_file(location, branch)} has an unknown form") from error


def common_version(store: Store, one: TableRef, other: TableRef) -> TableRef | None:
    """The newest version of a table that both pins have grown from; None where nothing tells (another location).

    Raises:
        NotFound: a lineage is gone.
    """
    if one.location != other.location:
        return None
    chain = _chain(store, one)
    for branch, version in _chain(store, other).items():
        if branch in chain:
            return TableRef(one.table_key, one.location, branch, min(version, chain[branch]), 0)
    return None


def _chain(store: Store, ref: TableRef) -> dict[str | None, int]:
    """The lineages a pin has come through, youngest first, with the last version of each that it contains."""
    out: dict[str | None, int] = {}
    branch, version = ref.branch, ref.version
    while True:
        out[branch] = version
        if branch is None:
            return out
        parent, at = parent_of(store, ref.location, branch)
        branch, version = lance_branch(parent), min(version, at)


# --- deleting -------------------------------------------------------------------------------------------------------


def delete_recorded(store: Store, location: str, branch: str) -> bool:
    """Delete a branch of a dataset, its record first. False: there is no record of it.

    Lance lists all branches before it removes the record, and once more before it removes the files; it reads each
    record it has listed, and fails where another branch's goes in between.
    """
    record = ref_file(location, branch)
    if not store.files.exists(record):
        return False
    with lance_errors(f"deleting branch {branch} of {location}"):
        for left in reversed(range(LISTINGS)):
            try:
                store.latest(location).branches.delete(branch)
                return True
            except (OSError, ValueError) as error:
                if not is_missing(error):
                    raise
                if not store.files.exists(record):
                    remove_tree(store, location, branch)
                    return True
                if not left:
                    raise
    return True


def remove_tree(store: Store, location: str, branch: str) -> None:
    """Remove a branch's folder, but not the branches nested in it (the origin lets `a` and `a/b` live together)."""
    names = branch_names(store, location)
    nested = {name[len(branch) + 1 :].split("/")[0] for name in names if name.startswith(f"{branch}/")}
    folder = f"{location}/tree/{branch}"
    if not isinstance(store.files, LocalFiles):
        if not nested:
            with suppress(NotFound):
                store.files.delete_folder(folder)
        return
    path = store.files.path(folder)
    if not os.path.isdir(path):
        return
    for entry in os.listdir(path):
        if entry in nested:
            continue
        full = os.path.join(path, entry)
        if os.path.isdir(full):
            import shutil

            shutil.rmtree(full)
        else:
            os.unlink(full)
    if not nested:
        os.rmdir(path)
