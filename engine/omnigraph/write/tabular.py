"""Parquet, ORC, CSV and Arrow files, and tables in memory, through a mapping. Rows count from 1, headers aside."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from omnigraph.errors import BadRequest
from omnigraph.read.compute import Array, pc
from omnigraph.schema.catalog import EdgeType, NodeType, Type
from omnigraph.storage.blobs import PIECE_BYTES
from omnigraph.write.blobs import blob_names
from omnigraph.write.columns import Cast, cast_column, kept_rows, not_text, plain_texts, values_column
from omnigraph.write.csv_rows import BLOB_BLOCK_BYTES, BLOCK_BYTES, CsvRows, csv_columns, csv_rows
from omnigraph.write.findings import BadRecord
from omnigraph.write.mapping import ColumnPlan, SourceMapping, bind_columns, entity_of
from omnigraph.write.rows import Given, Reading, TypedBatch, assemble, endpoint, value_text

__all__ = ["BATCH_ROWS", "mapped_batches", "mapped_csv", "read_table", "read_tabular", "typed_rows"]

BATCH_ROWS = 64 * 1024  # columns of so many rows are small enough that their memory is used again
_BUFFER_BYTES = 1 << 20


def _open_orc(stream: BinaryIO) -> Any:
    from pyarrow import orc  # few need it

    return orc.ORCFile(stream)


def _open_arrow(stream: BinaryIO) -> pa.ipc.RecordBatchFileReader | pa.ipc.RecordBatchStreamReader:
    magic = stream.read(6)
    stream.seek(0)
    file: Any = stream
    return pa.ipc.open_file(file) if magic == b"ARROW1" else pa.ipc.open_stream(file)


def read_tabular(
    stream: BinaryIO,
    reading: Reading,
    source: SourceMapping,
    format: str,
    *,
    file: int,
    label: str,
    row_groups: tuple[int, int] | None = None,
    local: bool = False,
) -> Iterator[TypedBatch]:
    """Typed rows of one file.

    Args:
        stream: the file's bytes, seekable.
        row_groups: of Parquet, the half-open range of row groups to read; None for all.
        local: the bytes are near, so that reading them ahead only takes memory.

    Raises:
        BadRequest: the file isn't what its format says, or its columns don't fit the mapping.
    """
    try:
        if format == "csv":
            yield from _read_csv(stream, reading, source, file, label)
            return
        for plan, batch, start in mapped_batches(stream, source, format, row_groups, reading, label, local=local):
            rows, numbers = _records(batch, start, reading, source, file)
            yield typed_rows(rows, numbers, reading, source, plan, False, file, label)
    except (OSError, pa.ArrowInvalid, pa.ArrowNotImplementedError, UnicodeError) as error:
        raise unreadable(label, format, error) from error


def _read_csv(stream: BinaryIO, reading: Reading, source: SourceMapping, file: int, label: str) -> Iterator[TypedBatch]:
    entity = require_entity(source, reading)
    for plan, rows in mapped_csv(stream, source, reading, label):
        for other in rows.others:
            reading.findings.add(BadRecord("syntax", other.message, entity.table_key, file=file, row=other.row))
        yield typed_rows(rows.batch, rows.numbers, reading, source, plan, True, file, label)


def mapped_csv(
    stream: BinaryIO, source: SourceMapping, reading: Reading, label: str
) -> Iterator[tuple[ColumnPlan, CsvRows]]:
    """The mapped columns of a CSV file, each piece with what they are for."""
    entity = require_entity(source, reading)
    names = csv_columns(stream, source)
    plan = bind_columns(source, entity, names, file=label)
    for rows in csv_rows(stream, source, names, plan.columns, blobs=bool(blob_names(entity))):
        yield plan, rows


def unreadable(label: str, format: str, error: BaseException) -> BadRequest:
    first = str(error).splitlines()[0] if str(error) else type(error).__name__
    if "straddling" in first:  # what Arrow says of a line that doesn't end within its block
        most, blobs = BLOCK_BYTES >> 20, BLOB_BLOCK_BYTES >> 20
        first = f"a line is longer than {most} MiB (of a type with Blobs {blobs} MiB), or a quote isn't closed"
    # A bad row that is text is told by its number; of one that isn't, Arrow can't hand the bytes over.
    if isinstance(error, UnicodeError) and format != "csv":
        first = "the name of a column is no UTF-8"
    elif isinstance(error, UnicodeError) or (format == "csv" and "columns, got" in first):
        first = "it holds bytes that are no text in its encoding (UTF-8 unless the mapping says options: {encoding: …})"
    return BadRequest(
        f"{label}: can't be read as {format}: {first}. Write the file anew, or name its format in the mapping",
        code="unreadable_source",
        details={"file": label, "format": format},
    )


def mapped_batches(
    stream: BinaryIO,
    source: SourceMapping,
    format: str,
    row_groups: tuple[int, int] | None,
    reading: Reading,
    label: str,
    *,
    local: bool = False,
) -> Iterator[tuple[ColumnPlan, pa.RecordBatch, int]]:
    """Record batches of the mapped columns, each with what they are for and the number of rows before. Not of CSV."""
    entity = require_entity(source, reading)
    if format == "parquet":
        blobs = bool(blob_names(entity))
        # Read ahead, whole row groups wait in memory: of Blobs they may be gigabytes.
        parquet = pq.ParquetFile(stream, pre_buffer=not (blobs or local), buffer_size=_BUFFER_BYTES if blobs else 0)
        plan = bind_columns(source, entity, parquet.schema_arrow.names, file=label)
        first, last = row_groups or (0, parquet.num_row_groups)
        start = sum(parquet.metadata.row_group(i).num_rows for i in range(first))
        size = _blob_rows(parquet.metadata) if blobs else BATCH_ROWS
        for batch in parquet.iter_batches(size, row_groups=list(range(first, last)), columns=plan.columns):
            yield plan, batch, start
            start += batch.num_rows
        return
    start = 0
    if format == "orc":
        file = _open_orc(stream)
        plan = bind_columns(source, entity, file.schema.names, file=label)
        for stripe in range(file.nstripes):
            # One by one: what a stripe gives for a list of columns comes in the file's order; of no column, no rows.
            asked = plan.columns or file.schema.names[:1]
            whole: pa.RecordBatch = file.read_stripe(stripe, asked).select(plan.columns)
            for at in range(0, whole.num_rows, BATCH_ROWS):
                part = whole.slice(at, BATCH_ROWS)
                yield plan, part, start
                start += part.num_rows
        return
    reader = _open_arrow(stream)
    plan = bind_columns(source, entity, reader.schema.names, file=label)
    if isinstance(reader, pa.ipc.RecordBatchFileReader):
        batches: Iterator[pa.RecordBatch] = (reader.get_batch(i) for i in range(reader.num_record_batches))
    else:
        batches = iter(reader)
    for batch in batches:
        yield plan, batch.select(plan.columns), start
        start += batch.num_rows


def _blob_rows(metadata: pq.FileMetaData) -> int:
    """Rows of which a batch has about as many bytes as is good."""
    size = sum(metadata.row_group(i).total_byte_size for i in range(metadata.num_row_groups))
    return max(1, min(BATCH_ROWS, PIECE_BYTES * max(metadata.num_rows, 1) // max(size, 1)))


def read_table(
    table: pa.Table,
    reading: Reading,
    source: SourceMapping,
    *,
    file: int,
    label: str,
    omitted: Mapping[str, Array],
) -> Iterator[TypedBatch]:
    """Typed rows of a table in memory.

    Args:
        omitted: by column, the rows (bool) that don't mention it; without an entry all do.

    Raises:
        BadRequest: its columns don't fit the mapping, or aren't what their types say.
    """
    start = 0
    try:
        plan = bind_columns(source, require_entity(source, reading), table.schema.names, file=label)
        for batch in table.select(plan.columns).to_batches(max_chunksize=BATCH_ROWS):
            rows, numbers = _records(batch, start, reading, source, file)
            left_out = {name: mask.take(pa.array(numbers - 1)) for name, mask in omitted.items()}
            yield typed_rows(rows, numbers, reading, source, plan, False, file, label, left_out)
            start += batch.num_rows
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, UnicodeDecodeError) as error:
        raise BadRequest(f"table {label!r} can't be read: {error}", code="bad_source") from error


def require_entity(source: SourceMapping, reading: Reading) -> NodeType | EdgeType:
    entity = entity_of(source, reading.catalog)
    if entity is None:
        raise BadRequest(f"{source.label}: {source.node or source.edge} isn't declared", code="bad_mapping")
    return entity


def _records(
    batch: pa.RecordBatch, start: int, reading: Reading, source: SourceMapping, file: int
) -> tuple[pa.RecordBatch, npt.NDArray[np.int64]]:
    """The rows that are records, with their numbers; those whose text is no UTF-8 are findings."""
    numbers = np.arange(start + 1, start + 1 + batch.num_rows, dtype=np.int64)
    bad = not_text(batch)
    if not bad:
        return batch, numbers
    key, good = require_entity(source, reading).table_key, np.ones(batch.num_rows, dtype=bool)
    for at, name in bad.items():
        good[at] = False
        reading.findings.add(BadRecord("syntax", f"{name}: not UTF-8", key, file=file, row=int(numbers[at])))
    return kept_rows(batch, good), numbers[good]


def typed_rows(
    batch: pa.RecordBatch,
    positions: npt.NDArray[np.int64],
    reading: Reading,
    source: SourceMapping,
    plan: ColumnPlan,
    text: bool,
    file: int,
    label: str,
    omitted: Mapping[str, Array] | None = None,
) -> TypedBatch:
    """Rows of the mapped type from columns.

    Args:
        positions: where each row stands in its source.
        plan: what the columns are for.
        text: the source knows text only.
        omitted: by column, the rows (bool) that don't mention it; without an entry all do.
    """
    entity = require_entity(source, reading)
    n = batch.num_rows
    nulls = pa.array(source.nulls, pa.string()) if source.nulls is not None and not text else None

    def column(name: str) -> Array:
        values = batch.column(name) if nulls is None else plain_texts(batch.column(name))
        if nulls is not None and pa.types.is_string(values.type):
            values = pc.if_else(pc.is_in(values, value_set=nulls), pa.scalar(None, pa.string()), values)
        return values

    given: dict[str, Given] = {}
    for name, at in plan.properties.items():
        given[name] = Given(column(at), (omitted or {}).get(at), text=text, form=source.date_format(name))
    for name, value in plan.constants.items():
        one = values_column([value]).take(pa.array(np.zeros(n, dtype=np.int64)))
        given[name] = Given(one, form=source.date_format(name))
    ends: list[tuple[Cast, Callable[[int], str]]] = []
    if isinstance(entity, EdgeType):
        for columns, node in ((plan.from_, entity.source), (plan.to, entity.target)):
            parts = [column(c) for c in columns]
            ends.append((endpoint(reading.catalog.nodes[node], parts, text=text), partial(_shown, parts)))
    ids = None
    if plan.id is not None:
        cast = cast_column(column(plan.id), Type("String"))
        ids = cast.column
        if cast.bad is not None:
            raise BadRequest(
                f"{label}: column {plan.id!r} holds ids, which are String, not {batch.column(plan.id).type}"
            )
    return assemble(
        reading,
        entity,
        file=file,
        file_label=label,
        positions=positions,
        given=given,
        ends=ends,
        ids=ids,
    )


def _shown(parts: Sequence[Array], at: int) -> str:
    texts = [value_text(part[at]) for part in parts]
    return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
