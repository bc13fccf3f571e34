"""One table's change as one strict Lance commit (07 §5).

Every user table is moved by one kind of transaction: an `Update` that also names one fragment of the version it was
staged on. Lance refuses the second of two such commits from one version. A table without fragments is overwritten,
which Lance refuses after any other commit when it may not retry.
"""

from __future__ import annotations

import json
import os
import uuid
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from lance.dataset import Transaction
from lance.file import LanceFileReader
from lance.fragment import FragmentMetadata, write_fragments

from omnigraph.errors import BadRequest, Internal
from omnigraph.storage.arrow import TICKET
from omnigraph.storage.blobs import blob_columns, filled, own_errors, placeholders
from omnigraph.storage.formats import refuse_unstable
from omnigraph.storage.layout import MARK
from omnigraph.storage.translate import lance_errors
from omnigraph.storage.types import TableChange

__all__ = ["INDEX_BELOW_ROWS", "apply", "conform", "stage"]

INDEX_BELOW_ROWS = 20_000
"""Upserts of fewer rows look the keys up in the index; for more a scan is faster and needs no pool memory."""

DELETE_CHUNK = 5_000
"""Ids per lookup of rows to delete."""


def conform(table_key: str, rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """The rows with exactly the table's columns, in the table's order and types; tickets stand where it holds Blobs.

    Raises:
        BadRequest: a column is missing, unknown, of another type, or null where it must not be.
    """
    missing = [n for n in schema.names if n not in rows.column_names]
    unknown = [n for n in rows.column_names if n not in schema.names]
    if missing or unknown:
        raise BadRequest(
            f"{table_key}: the rows' columns differ from the table's: missing {missing}, unknown {unknown}",
            details={"table_key": table_key, "missing": missing, "unknown": unknown},
        )
    rows = rows.select(schema.names)
    schema = _moving(schema)
    for field in schema:
        if not field.nullable and rows[field.name].null_count:
            raise BadRequest(f"{table_key}.{field.name} must not be null", details={"table_key": table_key})
    if rows.schema.equals(schema):
        return rows
    try:
        return rows.cast(schema)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError) as error:
        raise BadRequest(f"{table_key}: {error}", details={"table_key": table_key}) from error


def _moving(schema: pa.Schema) -> pa.Schema:
    """The dataset's columns with tickets for Blobs."""
    names = blob_columns(schema)
    return pa.schema([f if f.name not in names else pa.field(f.name, TICKET, f.nullable) for f in schema])


def stage(dataset: lance.LanceDataset, change: TableChange) -> Any:
    """Write the change's data files and return the Lance operation that makes them a version. Nothing is visible.

    Raises:
        BadRequest: the rows don't fit the table; an id stands twice in the upserts.
        Conflict: the table was made without stable row ids.
    """
    key, schema = change.table_key, dataset.schema
    upserts = _rows(key, change.upserts, schema)
    appends = _rows(key, change.appends, schema)
    if upserts is not None and pc.count_distinct(upserts["id"]).as_py() != upserts.num_rows:
        raise BadRequest(f"{key}: an id stands twice among the rows to write", details={"table_key": key})
    refuse_unstable(dataset, key)
    with lance_errors(f"writing {key}"):
        fragments = [FragmentMetadata.from_json(text) for text in change.fragments]
        if change.overwrite or not dataset.get_fragments():
            for rows in (appends, upserts):
                if rows is not None:
                    fragments += _written(dataset, change, rows)
            return lance.LanceOperation.Overwrite(dataset.lance_schema, fragments)
        if appends is not None:
            fragments += _written(dataset, change, appends)
        deletes = change.delete_ids if change.delete_ids is not None and len(change.delete_ids) else None
        if upserts is not None:
            operation = _merge(dataset, change, upserts, deletes)
        elif deletes is not None:
            operation = _delete(dataset, deletes)
        else:
            operation = lance.LanceOperation.Update(update_mode="rewrite_rows")
        operation.new_fragments = [*operation.new_fragments, *fragments]
        _guard(dataset, operation)
        # Lance may count new fragments as indexed where every fragment an update names is. This list takes its fields
        # out of that; with all of them in it, rows are never looked for in an index that hasn't seen them.
        operation.fields_for_preserving_frag_bitmap = _field_ids(dataset.lance_schema.fields())
        return operation


def _rows(key: str, rows: pa.Table | None, schema: pa.Schema) -> pa.Table | None:
    return None if rows is None or not rows.num_rows else conform(key, rows, schema)


def _written(dataset: lance.LanceDataset, change: TableChange, rows: pa.Table) -> list[FragmentMetadata]:
    """The rows as new data files."""
    if not blob_columns(dataset.schema):
        return list(write_fragments(rows, dataset, mode="append"))
    with own_errors(dataset.schema, filled(change.table_key, rows, dataset.schema, change.blobs)) as reader:
        return list(write_fragments(reader, dataset, mode="append"))


def _merge(
    dataset: lance.LanceDataset,
    change: TableChange,
    upserts: pa.Table,
    deletes: pa.Array[Any] | pa.ChunkedArray[Any] | None,
) -> Any:
    blobs = bool(blob_columns(dataset.schema))
    merge = dataset.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
    if deletes is not None:
        merge = merge.when_not_matched_by_source_delete(f"id in ({_literals(deletes)})")
    elif upserts.num_rows >= INDEX_BELOW_ROWS:
        merge = merge.use_index(False)
    transaction, _ = merge.execute_uncommitted(placeholders(upserts, dataset.schema) if blobs else upserts)
    operation = transaction.operation
    if blobs:
        operation.new_fragments = [_with_blobs(dataset, change, upserts, f) for f in operation.new_fragments]
    return operation


def _with_blobs(
    dataset: lance.LanceDataset, change: TableChange, upserts: pa.Table, fragment: FragmentMetadata
) -> FragmentMetadata:
    """A fragment that a merge wrote without the Blobs' bytes, written again with them: same rows, order and row ids.

    Lance's merge holds all its rows in memory, which only rows without Blobs may.
    """
    data = fragment.to_json()
    (file,) = data["files"]
    path = f"{dataset.uri}/data/{file['path']}"
    options = dataset.initial_storage_options or None
    ids = LanceFileReader(path, storage_options=options, columns=["id"]).read_all().to_table().column("id")
    rows = upserts.take(pc.index_in(ids.combine_chunks(), value_set=pa.concat_arrays(upserts["id"].chunks)))
    with own_errors(dataset.schema, filled(change.table_key, rows, dataset.schema, change.blobs)) as reader:
        (whole,) = write_fragments(reader, dataset, mode="append", max_rows_per_file=max(rows.num_rows, 1))
    if whole.physical_rows != fragment.physical_rows:
        raise Internal(f"{change.table_key}: {whole.physical_rows} rows were written for {fragment.physical_rows}")
    if "://" not in path:
        os.unlink(path)
    return FragmentMetadata.from_json(json.dumps({**data, "files": whole.to_json()["files"]}))


def _delete(dataset: lance.LanceDataset, ids: pa.Array[Any] | pa.ChunkedArray[Any]) -> Any:
    """Deletion vectors for the rows with these ids, every row of a repeated id."""
    flat = ids.combine_chunks() if isinstance(ids, pa.ChunkedArray) else ids
    positions: defaultdict[int, list[np.ndarray[Any, Any]]] = defaultdict(list)
    for start in range(0, len(flat), DELETE_CHUNK):
        found = dataset.scanner(
            columns=[], filter=f"id in ({_literals(flat.slice(start, DELETE_CHUNK))})", with_row_address=True
        ).to_table()
        addresses = found["_rowaddr"].to_numpy()
        fragment_ids = addresses >> np.uint64(32)
        for fragment_id in np.unique(fragment_ids):
            positions[int(fragment_id)].append(addresses[fragment_ids == fragment_id] & np.uint64(0xFFFFFFFF))
    updated, removed = [], []
    for fragment_id, offsets in positions.items():
        # One id may stand in two chunks; an offset twice would be counted twice.
        after = dataset.get_fragment(fragment_id).delete_rows(np.unique(np.concatenate(offsets)).tolist())
        if after is None:
            removed.append(fragment_id)
        else:
            updated.append(after)
    return lance.LanceOperation.Update(
        removed_fragment_ids=removed, updated_fragments=updated, update_mode="rewrite_rows"
    )


def _literals(ids: pa.Array[Any] | pa.ChunkedArray[Any]) -> str:
    return ", ".join("'" + str(i).replace("'", "''") + "'" for i in ids.to_pylist() if i is not None)


def _guard(dataset: lance.LanceDataset, operation: Any) -> None:
    """Name the lowest fragment of the staged version in the update, so that two commits from it always collide."""
    lowest = min(dataset.get_fragments(), key=lambda f: f.fragment_id).metadata
    touched = {f.id for f in operation.updated_fragments} | set(operation.removed_fragment_ids)
    if lowest.id not in touched:
        operation.updated_fragments = [*operation.updated_fragments, lowest]


def _field_ids(fields: Iterable[Any]) -> list[int]:
    return [number for field in fields for number in (field.id(), *_field_ids(field.children()))]


def apply(dataset: lance.LanceDataset, operation: Any, mark: str) -> lance.LanceDataset:
    """Commit a staged operation on the version it was staged on; Lance's own error where anyone came first."""
    if isinstance(operation, lance.LanceOperation.Append | lance.LanceOperation.Delete):
        raise Internal("a plain append or delete isn't a strict commit")
    transaction = Transaction(
        read_version=dataset.version,
        operation=operation,
        uuid=str(uuid.uuid4()),
        transaction_properties={MARK: mark},
    )
    return lance.LanceDataset.commit(
        dataset, transaction, max_retries=0, storage_options=dataset.initial_storage_options or None
    )
