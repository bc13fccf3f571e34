"""One table's change as one strict Lance commit (07 §5).

Every user table is moved by one kind of transaction: an `Update` that also names one fragment of the version it was
staged on. Lance refuses the second of two such commits from one version. A table without fragments is overwritten,
which Lance refuses after any other commit when it may not retry.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias

import lance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from lance.dataset import Transaction
from lance.fragment import FragmentMetadata, RowIdSequence, write_fragments

from omnigraph.errors import BadRequest, Conflict, Internal
from omnigraph.storage.arrow import TICKET
from omnigraph.storage.blobs import blob_columns, filled, own_errors
from omnigraph.storage.conditions import one_of
from omnigraph.storage.formats import refuse_unstable
from omnigraph.storage.layout import MARK, rows_per_file
from omnigraph.storage.translate import lance_errors
from omnigraph.storage.types import TableChange
from omnigraph.storage.whole import alike, among, joined

__all__ = ["INDEX_BELOW_ROWS", "apply", "conform", "every_field", "rows_foreseen", "stage", "without"]

INDEX_BELOW_ROWS = 20_000
"""Fewer ids are looked up in the index; for more a scan of all ids is faster."""

LOOKUP_CHUNK = 5_000
"""Ids per lookup in the index."""

SCAN_ROWS = 1 << 20
"""Rows at once where the ids of a whole table are looked through."""

WRITE_ROWS, WRITE_BYTES = 1 << 16, 256 << 20
"""Rows at once, and about so many bytes, where rows are written in another order than they stand in."""

_Order: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]

_NONE: pa.Array[Any] = pa.array([], pa.uint64())
_NO_IDS: pa.Array[Any] = pa.array([], pa.string())
_NOWHERE = pa.table({"id": _NO_IDS, "_rowaddr": _NONE, "_rowid": _NONE})


def conform(table_key: str, rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """The rows with exactly the table's columns, in the table's order and types; tickets stand where it holds Blobs.

    Raises:
        BadRequest: a column is missing, unknown, of another type, or null where it must not be.
    """
    wanted, given = schema.names, rows.column_names
    missing = [n for n in wanted if n not in given]
    unknown = [n for n in given if n not in wanted]
    if missing or unknown:
        raise BadRequest(
            f"{table_key}: the rows' columns differ from the table's: missing {missing}, unknown {unknown}",
            details={"table_key": table_key, "missing": missing, "unknown": unknown},
        )
    rows = rows.select(wanted)
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
    if not names:
        return schema.remove_metadata()
    return pa.schema([f if f.name not in names else pa.field(f.name, TICKET, f.nullable) for f in schema])


def rows_foreseen(dataset: lance.LanceDataset, change: TableChange) -> int | None:
    """How many rows the table will have after the change; None where that isn't known before it is staged."""
    if change.overwrite or change.fragments or change.delete_ids is not None:
        return None
    rows = int(dataset.count_rows()) + (0 if change.appends is None else change.appends.num_rows)
    if change.upserts is None:
        return rows
    if change.places is None:
        return None
    known = int(among(joined(change.places.rows["id"]), change.upserts["id"]).true_count)
    return rows + change.upserts.num_rows - known


def stage(dataset: lance.LanceDataset, change: TableChange, schema: pa.Schema | None = None) -> Any:
    """Write the change's data files and return the Lance operation that makes them a version. Nothing is visible.

    Args:
        schema: the dataset's, where it is known.

    Raises:
        BadRequest: the rows don't fit the table; an id stands twice in the upserts.
        Conflict: the table was made without stable row ids.
    """
    key, schema = change.table_key, schema or dataset.schema
    upserts = _rows(key, change.upserts, schema)
    appends = _rows(key, change.appends, schema)
    many = upserts is not None and upserts.num_rows > 1
    if upserts is not None and many and pc.count_distinct(joined(upserts["id"])).as_py() != upserts.num_rows:
        raise BadRequest(f"{key}: an id stands twice among the rows to write", details={"table_key": key})
    refuse_unstable(dataset, key)
    with lance_errors(f"writing {key}"):
        fragments = [FragmentMetadata.from_json(text) for text in change.fragments]
        if change.overwrite or not len(dataset.fragment_ids()):
            for rows in (appends, upserts):
                if rows is not None:
                    fragments += _written(dataset, schema, change, rows)
            return lance.LanceOperation.Overwrite(dataset.lance_schema, fragments)
        if appends is not None:
            fragments += _written(dataset, schema, change, appends)
        operation = _replace(dataset, schema, change, upserts)
        operation.new_fragments = [*operation.new_fragments, *fragments]
        _guard(dataset, operation)
        every_field(dataset, operation)
        return operation


def _rows(key: str, rows: pa.Table | None, schema: pa.Schema) -> pa.Table | None:
    return None if rows is None or not rows.num_rows else conform(key, rows, schema)


def _written(
    dataset: lance.LanceDataset, schema: pa.Schema, change: TableChange, rows: pa.Table, order: _Order | None = None
) -> list[FragmentMetadata]:
    """The rows as new data files, in another order if one is given."""
    how: dict[str, Any] = {"mode": "append", "max_rows_per_file": rows_per_file(change.table_key)}
    blobs = bool(blob_columns(schema))
    if order is None and not blobs:
        return list(write_fragments(rows, dataset, **how))
    parts = [rows] if order is None else _portions(rows, order)
    if not blobs:
        plain = (batch for part in parts for batch in part.to_batches())
        return list(write_fragments(pa.RecordBatchReader.from_batches(rows.schema, plain), dataset, **how))
    whole = (batch for part in parts for batch in filled(change.table_key, part, schema, change.blobs))
    with own_errors(schema, whole) as reader:
        return list(write_fragments(reader, dataset, **how))


def _portions(rows: pa.Table, order: _Order) -> Iterator[pa.Table]:
    """The rows in this order, some at a time."""
    step = max(1, min(WRITE_ROWS, WRITE_BYTES * rows.num_rows // max(rows.nbytes, 1)))
    batches = rows.to_batches()
    for at in range(0, len(order), step):
        some = order[at : at + step]
        yield (rows.take(some) if len(batches) < 2 else _picked(batches, some)).combine_chunks()


def _picked(batches: list[pa.RecordBatch], some: _Order) -> pa.Table:
    """Some rows of many batches, in this order: to take rows from a table, Arrow joins all of its batches first."""
    ascending = np.argsort(some, kind="stable")
    places, begins = some[ascending], np.cumsum([0, *(batch.num_rows for batch in batches)])
    cuts = np.searchsorted(places, begins)
    found = [
        batch.take(pa.array(places[low:high] - begin))
        for batch, begin, low, high in zip(batches, begins[:-1], cuts[:-1], cuts[1:], strict=True)
        if high > low
    ]
    back = np.empty(len(some), dtype=np.int64)
    back[ascending] = np.arange(len(some))
    return pa.Table.from_batches(found).combine_chunks().take(back)


def _replace(dataset: lance.LanceDataset, schema: pa.Schema, change: TableChange, upserts: pa.Table | None) -> Any:
    """Rows that go or change leave by deletion vectors; upserts come in new files, known rows under their old row ids.

    Lance's own merge does the same, but reads the row id of every row of the table first, anew for each version.
    """
    columns = (change.delete_ids, None if upserts is None else upserts["id"])
    wanted = joined(_NO_IDS, *(column for column in columns if column is not None))
    if not len(wanted):
        found = _NOWHERE
    elif change.places is not None and change.delete_ids is None:
        found = change.places.rows.filter(among(change.places.rows["id"], wanted)).combine_chunks()
    else:
        found = _find(dataset, wanted)
    updated, removed = without(dataset, found["_rowaddr"].to_numpy())
    new: list[FragmentMetadata] = []
    if upserts is not None:
        row_ids, order = _known_first(change.table_key, upserts, found)
        new = _written(dataset, schema, change, upserts, order)
        begin = 0
        for fragment in new:  # rows without a row id are new ones: Lance numbers them
            mine = row_ids.slice(begin, fragment.physical_rows)
            if len(mine):
                fragment.row_id_meta = RowIdSequence(mine).to_inline_metadata()
            begin += fragment.physical_rows
    return lance.LanceOperation.Update(
        removed_fragment_ids=removed, updated_fragments=updated, new_fragments=new, update_mode="rewrite_rows"
    )


def _find(dataset: lance.LanceDataset, ids: pa.Array[Any]) -> pa.Table:
    """`id`, `_rowaddr` and `_rowid` of every row with one of these ids, all rows of a repeated id; null is no id."""
    ids = ids.unique().drop_null()
    wanted: dict[str, Any] = {"columns": ["id"], "with_row_address": True, "with_row_id": True}
    if len(ids) < INDEX_BELOW_ROWS:
        parts = [
            dataset.scanner(filter=one_of("id", ids.slice(start, LOOKUP_CHUNK)), **wanted).to_table()
            for start in range(0, len(ids), LOOKUP_CHUNK)
        ]
    else:
        scan = dataset.scanner(batch_size=SCAN_ROWS, **wanted).to_batches()
        parts = [pa.Table.from_batches([b.filter(among(b.column("id"), ids))]) for b in scan]
    return pa.concat_tables(parts).combine_chunks() if parts else _NOWHERE


def without(
    dataset: lance.LanceDataset, addresses: np.ndarray[Any, np.dtype[np.uint64]]
) -> tuple[list[FragmentMetadata], list[int]]:
    """(fragments with deletion vectors for the rows at these addresses, numbers of fragments that are left empty)."""
    updated: list[FragmentMetadata] = []
    removed: list[int] = []
    if not len(addresses):
        return updated, removed
    fragment_ids = addresses >> np.uint64(32)
    for fragment_id in np.unique(fragment_ids):
        offsets = addresses[fragment_ids == fragment_id] & np.uint64(0xFFFFFFFF)
        after = dataset.get_fragment(int(fragment_id)).delete_rows(offsets.tolist())
        if after is None:
            removed.append(int(fragment_id))
        else:
            updated.append(after)
    return updated, removed


def _known_first(table_key: str, upserts: pa.Table, found: pa.Table) -> tuple[pa.Array[Any], _Order]:
    """(row ids of the upserts that are in the table, ascending, and the places of the upserts with those first, so).

    Lance keeps a file's row ids in the manifest of every later version, and ascending ones take a fifteenth.
    """
    here = found.filter(among(found["id"], upserts["id"]))
    ids, stored = alike(joined(upserts["id"]), joined(here["id"]))
    spot: Any = pc.index_in(ids, value_set=stored)
    known = np.asarray(pc.is_valid(spot).to_numpy(zero_copy_only=False))
    if here.num_rows != int(known.sum()):
        raise Conflict(
            f"{table_key}: an id to write is stored several times; `omnigraph verify` lists such ids. Export the "
            "graph, give each row an id of its own, and load it anew",
            code="repeated_id",
            details={"table_key": table_key},
        )
    row_ids = joined(here["_rowid"]).take(spot.drop_null())
    ascending = np.argsort(row_ids.to_numpy(), kind="stable")
    order = np.concatenate([np.flatnonzero(known)[ascending], np.flatnonzero(~known)])
    return row_ids.take(ascending), order


def _guard(dataset: lance.LanceDataset, operation: Any) -> None:
    """Name the lowest fragment of the staged version in the update, so that two commits from it always collide."""
    lowest = min(dataset.fragment_ids())
    touched = {f.id for f in operation.updated_fragments} | set(operation.removed_fragment_ids)
    if lowest not in touched:
        operation.updated_fragments = [*operation.updated_fragments, dataset.get_fragment(lowest).metadata]


def every_field(dataset: lance.LanceDataset, operation: Any) -> None:
    """Say that each field may have changed, so that rows are never looked for in an index that hasn't seen them.

    Lance may count new fragments as indexed where every fragment an update names is; this list's fields it doesn't.
    """
    operation.fields_for_preserving_frag_bitmap = _field_ids(dataset.lance_schema.fields())


def _field_ids(fields: Iterable[Any]) -> list[int]:
    return [number for field in fields for number in (field.id(), *_field_ids(field.children()))]


def apply(dataset: lance.LanceDataset, operation: Any, mark: str | None = None) -> lance.LanceDataset:
    """Commit a staged operation on the version it was staged on; Lance's own error where anyone came first.

    Args:
        mark: the name of the sidecar that announces it.
    """
    if isinstance(operation, lance.LanceOperation.Append | lance.LanceOperation.Delete):
        raise Internal("a plain append or delete isn't a strict commit")
    transaction = Transaction(
        read_version=dataset.version,
        operation=operation,
        uuid=str(uuid.uuid4()),
        transaction_properties={MARK: mark} if mark else None,
    )
    return lance.LanceDataset.commit(
        dataset, transaction, max_retries=0, storage_options=dataset.initial_storage_options or None
    )
