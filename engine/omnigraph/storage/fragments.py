"""Data files written ahead of a commit, by this process or by Spark executors; nothing of them is visible."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

import lance
import pyarrow as pa
from lance.fragment import write_fragments as lance_write_fragments

from omnigraph.storage.blobs import BlobSource, blob_columns, filled, own_errors
from omnigraph.storage.change import conform
from omnigraph.storage.files import LocalFiles
from omnigraph.storage.layout import lance_branch, rows_per_file
from omnigraph.storage.store import Store
from omnigraph.storage.translate import lance_errors
from omnigraph.storage.types import TableRef
from omnigraph.storage.uri import parse_root

__all__ = ["drop_fragments", "missing_files", "write_fragments"]


def write_fragments(
    uri: str, ref: TableRef, data: pa.RecordBatchReader | pa.Table, *, blobs: BlobSource | None = None
) -> tuple[str, ...]:
    """Write rows as data files of a table.

    Works in any process that can reach the graph: it opens the table by itself and makes no version.

    Args:
        uri: the graph's root; credentials come from this process's environment.
        ref: where to write, from `Repository.write_target`.
        data: rows with the table's columns, in any order, with tickets where it holds Blobs.
        blobs: where the tickets lead.

    Returns:
        One JSON text per fragment, for `TableChange.fragments`. Empty for no rows.
    """
    root = parse_root(uri)
    path = root.join(ref.location) if ref.branch is None else root.join(ref.location, "tree", ref.branch)
    options = dict(root.options) or None
    how: dict[str, Any] = {"max_rows_per_file": rows_per_file(ref.table_key), "storage_options": options}
    with lance_errors(f"writing data files of {ref.table_key}"):
        dataset = lance.dataset(path, storage_options=options)
        schema = dataset.schema
        if isinstance(data, pa.Table) and not data.num_rows:
            return ()
        if isinstance(data, pa.Table) and not blob_columns(schema):
            rows = conform(ref.table_key, data, schema)
            fragments = lance_write_fragments(rows, dataset, mode="append", **how)
        else:
            with own_errors(schema, _conformed(ref.table_key, data, schema, blobs)) as reader:
                fragments = lance_write_fragments(reader, dataset, mode="append", **how)
    return tuple(json.dumps(f.to_json()) for f in fragments if f.physical_rows)


def _conformed(
    table_key: str, data: pa.RecordBatchReader | pa.Table, schema: pa.Schema, blobs: BlobSource | None
) -> Iterator[pa.RecordBatch]:
    for batch in data.to_batches() if isinstance(data, pa.Table) else data:
        rows = conform(table_key, pa.Table.from_batches([batch]), schema)
        yield from filled(table_key, rows, schema, blobs) if blob_columns(schema) else rows.to_batches()


def missing_files(
    store: Store, location: str, branch: str | None, fragments: Iterable[str], *, forked: bool
) -> list[str]:
    """Data files named by the fragments that aren't there.

    Args:
        forked: whether this is a branch's first write to the table: on an object store only such a one can lose files.
    """
    folder, paths = _paths(location, branch, fragments)
    if isinstance(store.files, LocalFiles):
        return [f"{folder}/{path}" for path in paths if not store.files.exists(f"{folder}/{path}")]
    there = set(store.files.list(folder)) if forked and paths else set(paths)
    return [f"{folder}/{path}" for path in paths if path not in there]


def drop_fragments(store: Store, location: str, branch: str | None, fragments: Iterable[str]) -> None:
    """Delete data files that no commit has named or will."""
    folder, paths = _paths(location, branch, fragments)
    for path in paths:
        store.files.delete(f"{folder}/{path}")


def _paths(location: str, branch: str | None, fragments: Iterable[str]) -> tuple[str, list[str]]:
    """(folder of a table's data files, the files that the fragments name)."""
    name = lance_branch(branch)
    folder = f"{location}/data" if name is None else f"{location}/tree/{name}/data"
    return folder, [file["path"] for text in fragments for file in json.loads(text)["files"]]
