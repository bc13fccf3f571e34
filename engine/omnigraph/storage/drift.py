"""What the versions between a table's pin and its head did: whether they provably changed no row."""

from __future__ import annotations

import copy
from typing import Any

import lance

from omnigraph.storage.layout import MARK
from omnigraph.storage.translate import lance_errors

__all__ = ["mark_of", "neutral", "neutral_upto", "operation_of", "transaction_of"]

_NEUTRAL = frozenset({"CreateIndex", "ReserveFragments", "Rewrite", "UpdateConfig"})


def operation_of(dataset: lance.LanceDataset, version: int) -> tuple[str, Any]:
    """The name of the operation that made a version, and the operation; `unknown` and None where Lance records none.

    Lance's Python can't build the record of a compaction that carried indices over, and says so by this one error.
    """
    try:
        transaction = transaction_of(dataset, version)
    except TypeError as error:
        if "RewrittenIndex" not in str(error):
            raise
        return "Rewrite", None
    if transaction is None:
        return "unknown", None
    return type(transaction.operation).__name__, transaction.operation


def transaction_of(dataset: lance.LanceDataset, version: int) -> Any:
    """The transaction that made a version, or None; raises what Lance does.

    Lance keeps a handle to itself while it reads one, and every reader of that handle fails meanwhile ("Already mutably
    borrowed"), or it fails itself: a copy of the handle, which costs nothing, is asked.
    """
    return copy.copy(dataset).read_transaction(version)


def mark_of(dataset: lance.LanceDataset, version: int) -> str | None:
    """The sidecar that the transaction of a version names; index builds and compactions carry no mark."""
    try:
        transaction = transaction_of(dataset, version)
    except TypeError as error:
        if "RewrittenIndex" not in str(error):
            raise
        return None
    return None if transaction is None else (transaction.transaction_properties or {}).get(MARK)


def neutral(dataset: lance.LanceDataset, after: int, upto: int) -> bool:
    """Whether version `upto` provably holds the rows of `after`: what lies between changed none, or was undone."""
    version: int | None = upto
    with lance_errors("reading a table's transactions"):
        while version is not None and version > after:
            version = _same_as(dataset, version)
    return version == after


def neutral_upto(dataset: lance.LanceDataset, after: int, upto: int) -> int:
    """The newest version of [after, upto] that provably holds the same rows as `after`."""
    same = {after}
    with lance_errors("reading a table's transactions"):
        for version in range(after + 1, upto + 1):
            if _same_as(dataset, version) in same:
                same.add(version)
    return max(same)


def _same_as(dataset: lance.LanceDataset, version: int) -> int | None:
    """An earlier version that provably holds the same rows; None: there may be none."""
    kind, operation = operation_of(dataset, version)
    if kind == "Restore":
        return int(operation.version)
    empty_delete = kind == "Delete" and not operation.updated_fragments and not operation.deleted_fragment_ids
    return version - 1 if kind in _NEUTRAL or empty_delete or _same_files(dataset, kind, version) else None


def _same_files(dataset: lance.LanceDataset, kind: str, version: int) -> bool:
    """Whether an operation that Lance gives no name (such as ReserveFragments) left every file as it was."""
    if kind != "BaseOperation":
        return False
    before, after = (dataset.checkout_version(v) for v in (version - 1, version))
    return before.schema.equals(after.schema) and [f.metadata for f in before.get_fragments()] == [
        f.metadata for f in after.get_fragments()
    ]
