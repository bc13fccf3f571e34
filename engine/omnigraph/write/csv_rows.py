"""CSV as columns of texts. Rows count from 1, the header aside; rows that are no record are told with their place."""

from __future__ import annotations

import codecs
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, BinaryIO, Literal, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv as pcsv

from omnigraph.records import dataclass
from omnigraph.write.columns import kept_rows, not_text
from omnigraph.write.mapping import SourceMapping

__all__ = ["BLOB_BLOCK_BYTES", "BLOCK_BYTES", "CsvRows", "NoRecord", "csv_columns", "csv_rows"]

BLOCK_BYTES = 4 << 20
BLOB_BLOCK_BYTES = 256 << 20
"""Of a file with Blobs: no line may be longer."""


@dataclass(frozen=True, slots=True)
class NoRecord:
    """A row that is no record.

    Args:
        row: its number.
        raw: its text as the file has it, or its cells by column.
    """

    row: int
    message: str
    raw: str | Mapping[str, bytes | None]


@dataclass(frozen=True, slots=True)
class CsvRows:
    """Rows of a stretch of a file.

    Args:
        batch: the cells (utf8) of the records.
        numbers: the rows' numbers.
        others: the rows that are no records, as far as they were met.
    """

    batch: pa.RecordBatch
    numbers: npt.NDArray[np.int64]
    others: Sequence[NoRecord] = field(default_factory=tuple)


def csv_columns(stream: BinaryIO, source: SourceMapping) -> list[str]:
    """The columns' names, from the file's beginning."""
    read, parse = _options(source)
    parse.invalid_row_handler = lambda _: "skip"
    return list(_opened(stream, read, parse).schema.names)


def csv_rows(
    stream: BinaryIO, source: SourceMapping, names: Sequence[str], wanted: Sequence[str], *, blobs: bool = False
) -> Iterator[CsvRows]:
    """All rows of a file.

    Args:
        stream: the file's bytes, seekable.
        names: the columns' names, as `csv_columns` tells them.
        wanted: those to read.
        blobs: lines may be as long as Blobs are.
    """
    read, parse = _options(source)
    if blobs:
        read.block_size = BLOB_BLOCK_BYTES
    header = 0 if read.autogenerate_column_names else 1
    skipped: list[NoRecord] = []

    def skip(row: pcsv.InvalidRow) -> Literal["skip"]:
        cells = f"{row.actual_columns} cell{'' if row.actual_columns == 1 else 's'}"
        whose = "the header" if header else "the first row"
        number = cast("int", row.number)  # told where one thread parses
        skipped.append(NoRecord(number - header, f"{cells}, and {whose} has {row.expected_columns}", row.text))
        return "skip"

    parse.invalid_row_handler = skip
    convert = pcsv.ConvertOptions(
        column_types=dict.fromkeys(names, pa.binary()),  # what is no UTF-8 would end the reading as texts
        include_columns=list(wanted),
        null_values=source.nulls if source.nulls is not None else [""],
        strings_can_be_null=True,
        quoted_strings_can_be_null=source.nulls is not None,
    )
    before, missed = 0, list[NoRecord]()  # rows so far; those skipped that the parser met ahead of what it has given
    reader = _opened(stream, read, parse, convert)
    for raw in reader:
        missed += skipped
        skipped.clear()
        numbers, passed = _numbers(before, raw.num_rows, [one.row for one in missed])
        others, missed = missed[:passed], missed[passed:]
        before += raw.num_rows + passed
        yield _texts(raw, numbers, others)
    if missed or skipped:
        nothing = pa.RecordBatch.from_pylist([], pa.schema([(name, pa.string()) for name in reader.schema.names]))
        yield CsvRows(nothing, np.array([], dtype=np.int64), [*missed, *skipped])


def _opened(
    stream: BinaryIO, read: pcsv.ReadOptions, parse: pcsv.ParseOptions, convert: pcsv.ConvertOptions | None = None
) -> pcsv.CSVStreamingReader:
    stream.seek(0)
    whole = b""
    while len(whole) <= BLOCK_BYTES and (more := stream.read(BLOCK_BYTES + 1 - len(whole))):
        whole += more
    if len(whole) > BLOCK_BYTES:
        stream.seek(0)
        return pcsv.open_csv(stream, read_options=read, parse_options=parse, convert_options=convert)
    # A short file is read from memory: where Arrow refuses a stream, its thread may go on reading it.
    try:
        return pcsv.open_csv(io.BytesIO(whole), read_options=read, parse_options=parse, convert_options=convert)
    except pa.ArrowInvalid as error:
        if "cannot infer number of columns" not in str(error):
            raise
        # One line without an end, in which Arrow finds no columns.
        if codecs.lookup(read.encoding).name != "utf-8":
            whole, read.encoding = codecs.decode(whole, read.encoding).encode(), "utf8"
        ended = io.BytesIO(whole + b"\n")
        return pcsv.open_csv(ended, read_options=read, parse_options=parse, convert_options=convert)


def _numbers(before: int, count: int, skipped: list[int]) -> tuple[npt.NDArray[np.int64], int]:
    """The numbers of the next rows, and how many of the skipped ones stand among or right behind them."""
    end = before + count
    passed = 0
    while passed < len(skipped) and skipped[passed] <= end + 1:
        passed, end = passed + 1, end + 1
    every = np.arange(before + 1, end + 1, dtype=np.int64)
    return every[~np.isin(every, skipped[:passed])], passed


def _texts(raw: pa.RecordBatch, numbers: npt.NDArray[np.int64], others: list[NoRecord]) -> CsvRows:
    batch = pa.RecordBatch.from_arrays([column.view(pa.string()) for column in raw.columns], names=raw.schema.names)
    bad = not_text(batch)
    if not bad:
        return CsvRows(batch, numbers, others)
    good: Any = np.ones(raw.num_rows, dtype=bool)
    for at, name in bad.items():
        good[at] = False
        message = f"{name}: not UTF-8; if the file has another encoding, set it: options: {{encoding: …}}"
        cells = {name: column[at].as_py() for name, column in zip(raw.schema.names, raw.columns, strict=True)}
        others.append(NoRecord(int(numbers[at]), message, cells))
    return CsvRows(kept_rows(batch, good), numbers[good], sorted(others, key=lambda one: one.row))


def _options(source: SourceMapping) -> tuple[pcsv.ReadOptions, pcsv.ParseOptions]:
    given = source.options
    read = pcsv.ReadOptions(
        encoding=given.encoding,
        block_size=BLOCK_BYTES,
        use_threads=False,
        autogenerate_column_names=not given.header,
    )
    parse = pcsv.ParseOptions(
        delimiter=given.delimiter or ",",
        quote_char=given.quote or '"',
        escape_char=given.escape or False,
        newlines_in_values=True,
    )
    return read, parse
