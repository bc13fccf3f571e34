"""Data files written ahead of a commit, by this process or by Spark executors; nothing of them is visible."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

import lance
import pyarrow as pa
from lance.fragment import write_fragments as lance_write_fragments

from omnigraph.storage.change import conform
from omnigraph.storage.files import LocalFiles
from omnigraph.storage.layout import lance_branch
from omnigraph.storage.store import Store
from omnigraph.storage.translate import lance_errors
from omnigraph.storage.types import TableRef
from omnigraph.storage.uri import parse_root

__all__ = ["missing_files", "write_fragments"]


def write_fragments(uri: str, ref: TableRef, data: pa.RecordBatchReader | pa.Table) -> tuple[str, ...]:
    """Write rows as data files of a table.

    Works in any process that can reach the graph: it opens the table by itself and makes no version.

    Args:
        uri: the graph's root; credentials come from this process's environment.
        ref: where to write, from `Repository.write_target`.
        data: rows with the table's columns, in any order.

    Returns:
        One JSON text per fragment, for `TableChange.fragments`. Empty for no rows.
    """
    root = parse_root(uri)
    path = root.join(ref.location) if ref.branch is None else root.join(ref.location, "tree", ref.branch)
    options = dict(root.options) or None
    with lance_errors(f"writing data files of {ref.table_key}"):
        dataset = lance.dataset(path, storage_options=options)
        schema = dataset.schema
        if isinstance(data, pa.Table):
            if not data.num_rows:
                return ()
            rows: pa.Table | pa.RecordBatchReader = conform(ref.table_key, data, schema)
        else:
            rows = pa.RecordBatchReader.from_batches(schema, _conformed(ref.table_key, data, schema))
        fragments = lance_write_fragments(rows, dataset, mode="append", storage_options=options)
    return tuple(json.dumps(f.to_json()) for f in fragments if f.physical_rows)


def _conformed(table_key: str, batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield from conform(table_key, pa.Table.from_batches([batch]), schema).to_batches()


def missing_files(store: Store, location: str, branch: str | None, fragments: Iterable[str]) -> list[str]:
    """Data files named by the fragments that aren't there. Only directories are looked at: stores delete no fork."""
    if not isinstance(store.files, LocalFiles):
        return []
    name = lance_branch(branch)
    folder = f"{location}/data" if name is None else f"{location}/tree/{name}/data"
    paths = [f"{folder}/{file['path']}" for text in fragments for file in json.loads(text)["files"]]
    return [path for path in paths if not store.files.exists(path)]
