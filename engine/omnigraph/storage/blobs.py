"""Blob columns: what their descriptors say, reading bytes by row, and filling rows with bytes as they are written.

A row on its way in holds a *ticket* (int64) where the table holds a Blob. A `BlobSource` turns tickets into bytes,
some at a time, when the row is written. So no write holds all its Blobs in memory, and rows can be judged, merged and
compared without them.

Null or empty? Lance 14 marks a null by the column's validity, and an empty Blob that is the first of its file has a
descriptor of zeros. The origin (Lance 7) marked nothing: a null is a descriptor of zeros there. The columns of a table
tell who made it: `data, uri` the origin, `data, uri, position, size` Lance 14. See ADR 0013.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cache, partial
from typing import Any, Protocol, TypeAlias

import lance
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute

from omnigraph.errors import BadRequest, Internal, NotFound, OmniGraphError
from omnigraph.records import dataclass
from omnigraph.storage.translate import lance_errors

__all__ = [
    "PIECE_BYTES",
    "BlobSource",
    "StoredBlob",
    "blob_columns",
    "blob_max_bytes",
    "check_ends",
    "digests",
    "filled",
    "marks_nulls",
    "null_mask",
    "own_errors",
    "portions",
    "read_bytes",
    "stored_blob",
    "stored_sizes",
]

Array: TypeAlias = "pa.Array[Any]"
pc: Any = pyarrow.compute  # its stubs know no descriptors

PIECE_BYTES = 32 << 20
"""Bytes of Blobs that a read, a write or a comparison holds at a time; a single larger Blob is held whole."""

_PIECE_ROWS = 8192

_EXTERNAL = 3  # the kind of a descriptor that names a file outside the graph


@cache
def blob_max_bytes() -> int:
    """Most bytes of one Blob: `OMNIGRAPH_BLOB_MAX_BYTES`, by default 512 MiB. A larger one is refused when written.

    Raises:
        BadRequest: the variable is no number above 0.
    """
    text = os.environ.get("OMNIGRAPH_BLOB_MAX_BYTES", str(512 << 20))
    if not text.isascii() or not text.isdecimal() or len(text) > 18 or int(text) < 1:
        raise BadRequest(f"OMNIGRAPH_BLOB_MAX_BYTES: {text[:40]!r} is no number of bytes above 0")
    return int(text)


class BlobSource(Protocol):
    """Where the tickets of one table's rows lead."""

    def sizes(self, column: str, tickets: Array) -> npt.NDArray[np.int64]:
        """Bytes of each, 0 for null."""

    def read(self, column: str, tickets: Array) -> list[bytes | None]:
        """The bytes of each, None for null."""


# ---- columns and descriptors ----------------------------------------------------------------------------------------


def is_blob(field: pa.Field[Any]) -> bool:
    return getattr(field.type, "extension_name", "") == "lance.blob.v2"


def blob_columns(schema: pa.Schema) -> list[str]:
    """Names of a dataset's Blob columns."""
    return [field.name for field in schema if is_blob(field)]


def marks_nulls(field: pa.Field[Any]) -> bool:
    """Whether nulls of this column are marked as such; in the origin's tables they aren't."""
    kind: Any = field.type
    return int(kind.storage_type.num_fields) == 4


def null_mask(field: pa.Field[Any], descriptors: Array) -> Array:
    """Which of the descriptors (as a scan gives them) stand for null."""
    null: Array = pc.is_null(descriptors)
    if marks_nulls(field) or not len(descriptors):
        return null
    zero: Array = pc.equal(pc.struct_field(descriptors, "blob_uri"), "")
    for name in ("kind", "position", "size", "blob_id"):
        zero = pc.and_(zero, pc.equal(pc.struct_field(descriptors, name), 0))
    either: Array = pc.or_(null, pc.fill_null(zero, True))
    return either


# ---- stored bytes ---------------------------------------------------------------------------------------------------


def _taken(dataset: lance.LanceDataset, column: str, row_ids: Array) -> Array:
    """The descriptors of rows, in their order. Raises NotFound where a row isn't in this version."""
    rows = dataset._take_rows(row_ids.to_pylist(), columns=[column])
    if rows.num_rows != len(row_ids):
        raise NotFound(f"{len(row_ids) - rows.num_rows} of the {len(row_ids)} row ids asked for are gone")
    return _chunk(rows.column(column))


def _descriptors(dataset: lance.LanceDataset, column: str, row_ids: Array) -> tuple[Array, Array]:
    """Descriptors and which are null, of rows by id; refuses what lies outside the graph."""
    if not len(row_ids):
        none = dataset.scanner(columns=[column], limit=0).to_table()
        return _chunk(none.column(column)), pa.array([], pa.bool_())
    found = _taken(dataset, column, row_ids)
    outside = pc.fill_null(pc.equal(pc.struct_field(found, "kind"), _EXTERNAL), False)
    if pc.any(outside).as_py():
        uri = pc.struct_field(found, "blob_uri").filter(outside)[0].as_py()
        raise BadRequest(
            f"a Blob of {column!r} is not in the graph but at {uri!r}, and files outside the graph aren't read: "
            "load its bytes into the graph",
            code="external_blob",
            details={"property": column, "uri": uri},
        )
    return found, null_mask(dataset.schema.field(column), found)


def stored_sizes(dataset: lance.LanceDataset, column: str, row_ids: Array) -> Array:
    """Bytes of the Blobs of rows (int64), null where there is none; reads descriptors only."""
    with lance_errors(f"reading the sizes of {column}"):
        found, null = _descriptors(dataset, column, row_ids)
        sizes: Array = pc.if_else(null, pa.scalar(None, pa.int64()), pc.struct_field(found, "size").cast(pa.int64()))
        return sizes


def read_bytes(dataset: lance.LanceDataset, column: str, row_ids: Array) -> list[bytes | None]:
    """The bytes of rows by id, in their order, None where there is none. Bounding them is the caller's work."""
    with lance_errors(f"reading {column}"):
        _, null = _descriptors(dataset, column, row_ids)
        out: list[bytes | None] = [None] * len(row_ids)
        wanted = np.flatnonzero(~np.asarray(null, dtype=bool))
        if len(wanted):
            chosen = pc.take(row_ids, pa.array(wanted)).to_pylist()
            # Lance gives each row once, so repeats are asked for once.
            first = {row: data for (_, data), row in zip(
                dataset.read_blobs(column, ids=list(dict.fromkeys(chosen)), preserve_order=True),
                dict.fromkeys(chosen), strict=True)}  # fmt: skip
            for at, row in zip(wanted, chosen, strict=True):
                out[int(at)] = first[row]
        return out


def check_ends(dataset: lance.LanceDataset, column: str, row_ids: Array) -> int:
    """Read the last byte of each Blob, and say how many there are; an error of Lance's where one isn't there."""
    sizes = stored_sizes(dataset, column, row_ids)
    pairs = zip(row_ids.to_pylist(), sizes.to_pylist(), strict=True)
    asked = [(row, size - 1, 1) for row, size in pairs if size]
    with lance_errors(f"reading {column}"):
        for start in range(0, len(asked), _PIECE_ROWS):
            found = dataset.read_blob_ranges(column, asked[start : start + _PIECE_ROWS], selector="ids")
            if any(data is None or len(data) != 1 for _, _, data in found):
                raise Internal(f"a Blob of {column!r} has a size and no bytes")
    return len(sizes) - sizes.null_count


def portions(sizes: npt.NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Stretches [start, end) of rows with at most `PIECE_BYTES` each, but at least one row."""
    limit = PIECE_BYTES
    start, held = 0, 0
    for at, size in enumerate(sizes.tolist()):
        if at > start and (held + size > limit or at - start >= _PIECE_ROWS):
            yield start, at
            start, held = at, 0
        held += size
    if start < len(sizes):
        yield start, len(sizes)


@dataclass(frozen=True, slots=True)
class StoredBlob:
    """One stored Blob.

    Args:
        size: bytes.
        identity: of the place in a data file that holds it. Files never change, so equal identities are equal bytes;
            the reverse isn't so.
    """

    size: int
    identity: str
    _dataset: lance.LanceDataset
    _column: str
    _row_id: int
    _reading: Callable[[], AbstractContextManager[None]]

    def ranges(self) -> Callable[[int, int], bytes]:
        """A function (offset, length) → bytes that reads nothing else."""
        with self._reading():
            (file,) = self._dataset.take_blobs(self._column, ids=[self._row_id], buffer_size=0)
        if file is None:
            raise Internal(f"the Blob {self._column!r} has a size and no bytes")
        found = file

        def read(offset: int, length: int) -> bytes:
            if not length:
                return b""
            with self._reading():
                return bytes(found.read_range(offset, length))

        return read


def stored_blob(
    dataset: lance.LanceDataset, column: str, row_id: int, reading: Callable[[], AbstractContextManager[None]]
) -> StoredBlob | None:
    """The Blob of one row, None where it is null. Reads its descriptor only.

    Args:
        reading: translates the errors of its later reads.
    """
    with lance_errors(f"reading {column}"):
        found, null = _descriptors(dataset, column, pa.array([row_id], pa.uint64()))
        if null[0].as_py():
            return None
        address = int(dataset._take_rows([row_id], columns=["_rowaddr"]).column("_rowaddr")[0].as_py())
        size = int(found[0].as_py()["size"])
        return StoredBlob(size, _identity(dataset, column, address), dataset, column, row_id, reading)


def _identity(dataset: lance.LanceDataset, column: str, address: int) -> str:
    number, offset = address >> 32, address & 0xFFFFFFFF
    fragment = dataset.get_fragment(number)
    if fragment is None:
        raise Internal(f"there is no fragment {number}")
    data = fragment.metadata.to_json()
    field = next(f.id() for f in dataset.lance_schema.fields() if f.name() == column)
    files = [file["path"] for file in data["files"] if field in file["fields"]]
    text = "\0".join([*files, str(data["overlays"] or ""), str(field), str(offset)])
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def digests(dataset: lance.LanceDataset, column: str, row_ids: Array) -> Array:
    """SHA-256 of the bytes of each row (binary), null where there is none; a piece of the bytes in memory at a time."""
    sizes = stored_sizes(dataset, column, row_ids)
    out: list[bytes | None] = []
    for start, end in portions(np.asarray(pc.fill_null(sizes, 0))):
        ids = row_ids.slice(start, end - start)
        if end - start == 1 and (sizes[start].as_py() or 0) > PIECE_BYTES:
            out.append(_digest_of_large(dataset, column, ids[0].as_py()))
            continue
        out += [None if b is None else hashlib.sha256(b).digest() for b in read_bytes(dataset, column, ids)]
    return pa.array(out, pa.binary())


def _digest_of_large(dataset: lance.LanceDataset, column: str, row_id: int) -> bytes:
    blob = stored_blob(dataset, column, row_id, partial(lance_errors, f"reading {column}"))
    if blob is None:
        raise Internal(f"the Blob {column!r} has a size and no bytes")
    read, sha = blob.ranges(), hashlib.sha256()
    for start in range(0, blob.size, PIECE_BYTES):
        sha.update(read(start, min(PIECE_BYTES, blob.size - start)))
    return sha.digest()


# ---- rows on their way in -------------------------------------------------------------------------------------------


def filled(table_key: str, rows: pa.Table, schema: pa.Schema, source: BlobSource | None) -> Iterator[pa.RecordBatch]:
    """The rows with bytes for tickets, in batches that hold a bounded amount of them.

    Args:
        schema: the dataset's.

    Raises:
        BadRequest: an empty Blob goes to a table of the origin, where it could not be told from null.
    """
    names = blob_columns(schema)
    if source is None:
        raise Internal(f"{table_key}: rows with Blobs come without their bytes")
    tickets = {name: _chunk(rows.column(name)) for name in names}
    sizes: Any = np.sum([source.sizes(name, tickets[name]) for name in names], axis=0, dtype=np.int64)
    for start, end in portions(sizes):
        piece = rows.slice(start, end - start)
        for name in names:
            field = schema.field(name)
            data = source.read(name, tickets[name].slice(start, end - start))
            if not marks_nulls(field) and b"" in data:
                raise BadRequest(
                    f"{table_key}.{name}: this table was made by omnigraph 0.7, where an empty Blob can't be told from "
                    "null: write null, or export the graph and load it into a new one",
                    code="empty_blob",
                    details={"table_key": table_key, "property": name},
                )
            piece = piece.set_column(piece.schema.get_field_index(name), field, _blobs(field, data))
        yield from piece.cast(schema).combine_chunks().to_batches()


@contextmanager
def own_errors(schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatchReader]:
    """A reader for Lance to write from; what making its batches raises comes out as it is, not as Lance's own."""
    raised: list[OmniGraphError] = []

    def carried() -> Iterator[pa.RecordBatch]:
        try:
            yield from batches
        except OmniGraphError as error:
            raised.append(error)
            raise

    try:
        yield pa.RecordBatchReader.from_batches(schema, carried())
    except Exception:
        if raised:
            raise raised[0] from None
        raise


def _chunk(column: Array | pa.ChunkedArray[Any]) -> Array:
    if isinstance(column, pa.Array):
        return column
    nulls: Any = pa.nulls
    return pa.concat_arrays(column.chunks or [nulls(0, column.type)])


def _blobs(field: pa.Field[Any], data: Sequence[bytes | None]) -> Array:
    """Bytes as a column of the field's type."""
    kind: Any = field.type
    parts: list[Array] = [pa.array(data, pa.large_binary())]
    nulls: Any = pa.nulls
    parts += [nulls(len(data), kind.storage_type.field(i).type) for i in range(1, kind.storage_type.num_fields)]
    fields = [kind.storage_type.field(i) for i in range(kind.storage_type.num_fields)]
    storage = pa.StructArray.from_arrays(parts, fields=fields, mask=pc.is_null(parts[0]))
    return pa.ExtensionArray.from_storage(kind, storage)
