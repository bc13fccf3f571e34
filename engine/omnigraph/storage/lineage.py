"""Lance's own record of a dataset's branches, one small file a branch: names and parents without opening anything."""

from __future__ import annotations

import json
from urllib.parse import quote, unquote

from omnigraph.errors import Internal
from omnigraph.storage.layout import MAIN, lance_branch
from omnigraph.storage.store import Store
from omnigraph.storage.types import TableRef

__all__ = ["branch_names", "common_version", "parent_of", "ref_file"]

_FOLDER = "_refs/branches"


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
    record = json.loads(store.files.read(ref_file(location, branch)))
    try:
        return record["parentBranch"] or MAIN, int(record["parentVersion"])
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
