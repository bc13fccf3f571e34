"""Data files of one lineage of a table become another's by copying, not by writing their rows again.

A copied file is right where it is only if it was written with the field ids of the table it goes to, and all its rows
are to be taken: `whole_fragments` sees to the last. Larger Blobs lie in a folder named like the file and go along.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import lance

from omnigraph.storage.blobs import blob_columns
from omnigraph.storage.layout import lance_branch
from omnigraph.storage.steps import Step, reach
from omnigraph.storage.store import Store
from omnigraph.storage.types import TableRef

__all__ = ["copy_fragments", "copyable"]


def copyable(store: Store, source: TableRef, target: TableRef) -> bool:
    """Whether a data file of one lineage can stand in the other."""
    one, other = store.pinned(source), store.pinned(target)
    return source.location == target.location and _fields(one) == _fields(other)


def _fields(dataset: lance.LanceDataset) -> list[tuple[Any, ...]]:
    def of(fields: Iterable[Any]) -> list[tuple[Any, ...]]:
        return [(f.id(), f.name(), str(f.to_arrow().type), f.to_arrow().nullable, of(f.children())) for f in fields]

    return of(dataset.lance_schema.fields())


def copy_fragments(
    store: Store, source: TableRef, target: TableRef, fragments: Iterable[Mapping[str, Any]]
) -> tuple[str, ...]:
    """Copy the files of whole fragments to the target's lineage; nothing is visible until a commit names them.

    Args:
        fragments: from `whole_fragments` of the source.

    Returns:
        One JSON text per fragment, for `TableChange.fragments`.
    """
    out = []
    blobs = bool(blob_columns(store.pinned(source).schema))
    for data in fragments:
        for file in data["files"]:
            beside = file["path"].removesuffix(".lance")
            for name in store.files.list(_place(source, beside)) if blobs else ():
                store.files.copy(_place(source, f"{beside}/{name}"), _place(target, f"{beside}/{name}"))
                reach(Step.MERGE_FILE_COPIED)
            store.files.copy(_place(source, file["path"]), _place(target, file["path"]))
            reach(Step.MERGE_FILE_COPIED)
        fresh = dict.fromkeys(("row_id_meta", "created_at_version_meta", "last_updated_at_version_meta"))
        out.append(json.dumps({**data, **fresh, "id": 0}))
    return tuple(out)


def _place(ref: TableRef, path: str) -> str:
    branch = lance_branch(ref.branch)
    return f"{ref.location}/data/{path}" if branch is None else f"{ref.location}/tree/{branch}/data/{path}"
