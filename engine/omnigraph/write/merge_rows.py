"""Upserts by column: the last value given per property wins, what no record mentions keeps its stored value.

A portion of the rows at a time, so that memory holds a portion, whatever the records are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.read.compute import Array, Chunked, pc
from omnigraph.read.hashing import hash_strings
from omnigraph.schema.catalog import EdgeType, NodeType, Property
from omnigraph.storage.whole import joined
from omnigraph.write.columns import one_chunk
from omnigraph.write.embedding import made_vectors
from omnigraph.write.findings import OMITTED
from omnigraph.write.rows import default_column
from omnigraph.write.spool import Spool

__all__ = ["MOST_BYTES", "folded", "keeps_value", "merge_rows", "with_kept"]

MOST_BYTES = 1 << 30
"""A portion of so many bytes is large enough, however few its rows are."""

_MOST_PARTS = 256  # files that the rows of repeated ids are dealt out to


def folded(
    entity: NodeType | EdgeType, rows: pa.Table, again: Array | None, spool: Spool, *, least: int, size: int
) -> Iterator[pa.Table]:
    """One row an id, in portions: each property from the last row that mentions it, the rest from the id's last row.

    Args:
        again: a mask (bool) of the rows whose id another row has too; None where none has.
        spool: where those wait that are more than a portion.
        least, size: so many rows, and so many bytes, are a portion.
    """
    if again is None:
        yield from _portions(rows.to_batches(max_chunksize=least), least, size)
        return
    yield from _portions(_where(rows, pc.invert(again), least), least, size)
    parts = min(1 + rows.nbytes * again.true_count // (rows.num_rows * size), _MOST_PARTS)
    if parts == 1:
        yield _fold(entity, pa.Table.from_batches(list(_where(rows, again, least))))
        return
    names = [f"{entity.table_key} repeats {number}" for number in range(parts)]
    for batch in _where(rows, again, least):  # all rows of an id into one part
        number = hash_strings(batch.column("id")) % np.uint64(parts)
        for part in np.unique(number).tolist():
            spool.append(names[part], batch.filter(pa.array(number == part)))
    yield from (_fold(entity, spool.table(name)) for name in names if name in spool)


def _where(rows: pa.Table, mask: Array, most: int) -> Iterator[pa.RecordBatch]:
    """The rows where a mask (bool) is true, of so many at most at a time."""
    at = 0
    for batch in rows.to_batches(max_chunksize=most):
        kept = batch.filter(mask.slice(at, batch.num_rows))
        at += batch.num_rows
        if kept.num_rows:
            yield kept


def _portions(batches: Iterable[pa.RecordBatch], least: int, size: int) -> Iterator[pa.Table]:
    waiting: list[pa.RecordBatch] = []
    rows = held = 0
    for batch in batches:
        if waiting and ((rows >= least and held >= size) or held + batch.nbytes > MOST_BYTES):
            yield pa.Table.from_batches(waiting)
            waiting, rows, held = [], 0, 0
        waiting.append(batch)
        rows, held = rows + batch.num_rows, held + batch.nbytes
    if waiting:
        yield pa.Table.from_batches(waiting)


def _fold(entity: NodeType | EdgeType, rows: pa.Table) -> pa.Table:
    codes = np.asarray(joined(rows.column("id")).dictionary_encode().indices)
    position = np.arange(len(codes))
    count = int(codes.max()) + 1
    last = np.full(count, -1)
    np.maximum.at(last, codes, position)
    columns: dict[str, Array | Chunked] = {}
    picks: dict[str, npt.NDArray[np.int64]] = {}
    for name in rows.schema.names:
        mask = OMITTED + name
        if mask in rows.schema.names:
            given = ~np.asarray(one_chunk(rows.column(mask)))
            pick = np.full(count, -1)
            np.maximum.at(pick, codes[given], position[given])
            columns[mask] = pa.array(pick < 0)
            columns[name] = rows.column(name).take(np.where(pick < 0, last, pick))
            picks[name] = pick
        elif not name.startswith(OMITTED):
            columns[name] = rows.column(name).take(pa.array(last))
    for prop in made_vectors(entity):
        _forget_outdated(prop, rows, picks, columns)
    return pa.table([columns[name] for name in rows.schema.names], schema=rows.schema)


def _forget_outdated(
    prop: Property,
    rows: pa.Table,
    picks: Mapping[str, npt.NDArray[np.int64]],
    columns: dict[str, Array | Chunked],
) -> None:
    """A vector whose text a later record of the id changed counts as omitted."""
    assert prop.embed is not None
    source, vector = prop.embed.source, picks.get(prop.name)
    text = picks.get(source)
    if vector is None or text is None:
        return
    later = np.flatnonzero((vector >= 0) & (text > vector))
    if len(later) == 0:
        return
    texts: Chunked = rows.column(source)
    then, now = texts.take(pa.array(vector[later])), texts.take(pa.array(text[later]))
    outdated = later[~np.asarray(pc.fill_null(pc.equal(then, now), False))]
    omitted = np.asarray(columns[OMITTED + prop.name]).copy()
    omitted[outdated] = True
    columns[OMITTED + prop.name] = pa.array(omitted)


def merge_rows(entity: NodeType | EdgeType, rows: pa.Table, old: pa.Table | None) -> pa.Table:
    """Whole rows: omitted properties from the stored row of the same id, of a new row the default or null.

    Args:
        rows: one row an id, with the `OMITTED` columns, which are gone from the result.
        old: committed rows of the ids that exist; None for none.
    """
    n = rows.num_rows
    where = pa.nulls(n, pa.int32())
    if old is not None and old.num_rows:
        where = pc.index_in(one_chunk(rows.column("id")), value_set=one_chunk(old.column("id")))
    fresh = pc.is_null(where)
    for prop in entity.properties.values():
        mask = OMITTED + prop.name
        if mask not in rows.schema.names:
            continue
        omitted = one_chunk(rows.column(mask))
        if pc.any(omitted).as_py():
            column = one_chunk(rows.column(prop.name))
            if prop.has_default and prop.default is not None:
                column = pc.if_else(pc.and_(omitted, fresh), default_column(prop, n), column)
            if old is not None and old.num_rows:
                stored = one_chunk(old.column(prop.name)).take(where)
                column = pc.if_else(pc.and_(omitted, pc.invert(fresh)), stored, column)
            index = rows.schema.get_field_index(prop.name)
            rows = rows.set_column(index, rows.schema.field(index), column)
    return rows.drop_columns([name for name in rows.schema.names if name.startswith(OMITTED)])


def keeps_value(parts: Sequence[str]) -> str:
    """The column (bool) of merged rows that says which of them keep their stored value of a `@unique`."""
    return f"{OMITTED}@unique({', '.join(parts)})"


def with_kept(entity: NodeType | EdgeType, rows: pa.Table, given: pa.Table, old: pa.Table | None) -> pa.Table:
    """Merged rows with a column per `@unique` that a record may leave as it is.

    Args:
        given: the same rows as their records give them, with the `OMITTED` columns.
        old: committed rows of the ids that exist, or None.
    """
    for parts in entity.uniques:
        masks = [OMITTED + part for part in parts if part not in entity.key]
        if not set(masks) <= set(given.schema.names):
            continue  # the ends of an edge are given by each record
        ids = one_chunk(rows.column("id"))
        kept = pc.is_in(ids, value_set=one_chunk(old.column("id")) if old is not None else ids.slice(0, 0))
        for mask in masks:
            kept = pc.and_(kept, one_chunk(given.column(mask)))
        rows = rows.append_column(keeps_value(parts), kept)
    return rows
