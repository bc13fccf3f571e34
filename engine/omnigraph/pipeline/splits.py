"""Cutting the sources of a load into pieces of work. Pure but for reading Parquet footers."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq

from omnigraph.errors import BadRequest
from omnigraph.write.sources import PACKED, SourceFile, Split, open_source

__all__ = ["split_file"]


def split_file(file: SourceFile, split_bytes: int) -> Iterator[Split | None]:
    """The file's splits in order; a single None where it is read as a whole.

    NDJSON is cut by bytes (a line belongs to the split it begins in), Parquet by row groups, anything else and
    compressed files not at all.

    Raises:
        BadRequest: a Parquet file is missing or unreadable.
    """
    if file.format == "ndjson" and file.size > split_bytes and not file.path.endswith(PACKED):
        for start in range(0, file.size, split_bytes):
            yield Split(start, min(start + split_bytes, file.size))
        return
    if file.format == "parquet" and not file.path.endswith(PACKED):
        with open_source(file.path) as stream:
            try:
                groups = pq.ParquetFile(stream).metadata
            except (pa.ArrowInvalid, OSError) as error:
                reason = str(error).splitlines()[0]
                raise BadRequest(
                    f"{file.label}: not readable as parquet: {reason}",
                    code="unreadable_source",
                    details={"file": file.label},
                ) from error
            if groups.num_row_groups > 1:
                yield from _row_groups(groups, split_bytes)
                return
    yield None


def _row_groups(metadata: pq.FileMetaData, split_bytes: int) -> Iterator[Split]:
    """Neighbouring row groups together, as long as they stay below the limit."""
    start, size = 0, 0
    for i in range(metadata.num_row_groups):
        group = metadata.row_group(i).total_byte_size
        if i > start and size + group > split_bytes:
            yield Split(start, i)
            start, size = i, 0
        size += group
    yield Split(start, metadata.num_row_groups)
