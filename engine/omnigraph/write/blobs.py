"""Blobs on their way in: their bytes wait in a file, the rows hold tickets (`storage.blobs`).

A ticket >= 0 is a place in a spool, one below 0 a stored row whose Blob stays: -1 - row id.
"""

from __future__ import annotations

import binascii
import contextlib
import os
import struct
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any
from uuid import uuid4

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.errors import Internal, Unavailable
from omnigraph.read.compute import Array, Chunked, pc
from omnigraph.schema.catalog import EdgeType, NodeType
from omnigraph.storage import Snapshot
from omnigraph.storage.arrow import TICKET
from omnigraph.storage.blobs import blob_max_bytes, portions
from omnigraph.write.columns import Cast, one_chunk

__all__ = [
    "PREFIX",
    "BlobSpool",
    "Tickets",
    "Waiting",
    "blob_names",
    "blob_of",
    "blob_problem",
    "same_bytes",
    "ticketed",
]

PREFIX = "base64:"
"""What a text that holds a Blob's bytes begins with; any other text would be an address."""

_PART = 44  # bits of a ticket for the place in a part
_BUFFER_BYTES = 1 << 20
_SIZE = struct.Struct("<q")


def blob_names(entity: NodeType | EdgeType) -> list[str]:
    """The type's Blob properties."""
    return [p.name for p in entity.properties.values() if p.type.base == "Blob"]


def blob_of(value: Any) -> bytes | memoryview:
    """The bytes that a value stands for: bytes as they are, a text as base64 behind its prefix.

    Raises:
        ValueError: it is no Blob; says why in words that follow the value.
    """
    if isinstance(value, (bytes, bytearray, memoryview)):
        data: bytes | memoryview = memoryview(value).cast("B")
    elif isinstance(value, str):
        return _decoded(memoryview(value.encode()))
    else:
        raise ValueError("is neither bytes nor a text")
    if len(data) > blob_max_bytes():
        raise ValueError(_too_large(f"{len(data):,}"))
    return data


def _decoded(text: memoryview) -> bytes:
    """The bytes of a text, which comes as UTF-8 and isn't copied: it may be large."""
    if bytes(text[: len(PREFIX)]) != PREFIX.encode():
        raise ValueError(
            f"isn't written as {PREFIX}…; files and addresses aren't read, so give the bytes themselves in base64"
        )
    encoded = text[len(PREFIX) :]
    least = len(encoded) // 4 * 3 - 2
    if least > blob_max_bytes():
        raise ValueError(_too_large(f"at least {least:,}"))
    try:
        data = binascii.a2b_base64(encoded, strict_mode=True)
    except ValueError as error:
        raise ValueError(f"is no base64 ({str(error).lower()}): standard alphabet, padded, on one line") from None
    if len(data) > blob_max_bytes():
        raise ValueError(_too_large(f"{len(data):,}"))
    return data


def _too_large(size: str) -> str:
    return f"has {size} bytes, and a Blob at most {blob_max_bytes():,} (OMNIGRAPH_BLOB_MAX_BYTES)"


def blob_problem(value: Any) -> str:
    """What a value is that is no Blob, and why it is none."""
    shown = repr(value[:60] if isinstance(value, (str, bytes)) else value)
    try:
        blob_of(value)
    except ValueError as error:
        return f"{shown} {error}"
    return f"{shown} can't be taken"


class BlobSpool:
    """Bytes that wait for their rows to be written, one file a part. A context manager: removes what it made.

    Args:
        folder: where the files go; None: a folder of its own, made when the first Blob comes. One that is given is
            shared by the parts of a load, stays when this object goes, and any part's tickets can be read from it once
            that part is closed: a part that is written twice, as tried again elsewhere, never shows half of itself.
        part: this writer's number.
    """

    def __init__(self, folder: str | None = None, part: int = 0) -> None:
        self._folder, self._part, self._shared = folder, part, folder is not None
        self._own: tempfile.TemporaryDirectory[str] | None = None
        self._end = self._written = 0
        self._writing: Any = None
        self._reading: dict[int, int] = {}

    def __enter__(self) -> BlobSpool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._writing is not None:
            self._closed(whole=kind is None)
        for handle in self._reading.values():
            os.close(handle)
        self._reading.clear()
        if self._own is not None:
            self._own.cleanup()

    def _closed(self, *, whole: bool) -> None:
        if self._shared and whole:
            with self._room():
                self._writing.close()
                os.replace(self._writing.name, self._path(self._part))
            return
        with contextlib.suppress(OSError):  # nobody wants the rest of it any more
            self._writing.close()
        if self._shared:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._writing.name)

    def _path(self, part: int) -> str:
        if self._folder is None:
            self._own = tempfile.TemporaryDirectory(prefix="omnigraph-blobs-", ignore_cleanup_errors=True)
            self._folder = self._own.name
        return os.path.join(self._folder, f"{part:06d}.blobs")

    def put(self, data: bytes | memoryview) -> int:
        """Keep bytes; returns their ticket."""
        at = self._end
        with self._room():
            if self._writing is None:
                path = self._path(self._part)
                os.makedirs(os.path.dirname(path), exist_ok=True)
                if self._shared:
                    path += f".{uuid4().hex}"
                self._writing = open(path, "wb", buffering=_BUFFER_BYTES)  # noqa: SIM115  (closed with this object)
            self._writing.write(_SIZE.pack(len(data)))
            self._writing.write(data)
        self._end += _SIZE.size + len(data)
        return self._part << _PART | at

    @contextmanager
    def _room(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            place = self._folder or tempfile.gettempdir()
            raise Unavailable(
                f"the bytes of Blobs can't wait in {place}: {error.strerror}. Make room there, or set "
                "TMPDIR to another folder",
                code="no_room_for_blobs",
            ) from error

    def cast(self, column: Array | Chunked) -> Cast:
        """Tickets of a source's column of bytes or texts, and which of its values are no Blobs."""
        source = one_chunk(column)
        if pa.types.is_dictionary(source.type):
            source = source.dictionary_decode()
        n = len(source)
        if pa.types.is_null(source.type):
            return Cast(pa.array([None] * n, TICKET))
        kind = source.type
        binary = pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind)
        text = pa.types.is_string(kind) or pa.types.is_large_string(kind) or kind == pa.string_view()
        if not (binary or text or kind == pa.binary_view()):
            return Cast(pa.array([None] * n, TICKET), pc.is_valid(source))
        tickets: list[int | None] = []
        bad = np.zeros(n, dtype=bool)
        for at, value in enumerate(source):
            tickets.append(None)
            if value.is_valid:
                try:
                    held = memoryview(value.as_buffer())
                    tickets[-1] = self.put(_decoded(held) if text else blob_of(held))
                except ValueError:
                    bad[at] = True
        return Cast(pa.array(tickets, TICKET), pa.array(bad) if bad.any() else None)

    def _handle(self, part: int) -> int:
        if part == self._part and self._writing is not None and self._written < self._end:
            with self._room():
                self._writing.flush()
            self._written = self._end
        if part not in self._reading:
            mine = part == self._part and self._writing is not None
            self._reading[part] = os.open(self._writing.name if mine else self._path(part), os.O_RDONLY)
        return self._reading[part]

    def size(self, ticket: int) -> int:
        part, at = ticket >> _PART, ticket & ((1 << _PART) - 1)
        return int(_SIZE.unpack(os.pread(self._handle(part), _SIZE.size, at))[0])

    def read(self, ticket: int) -> bytes:
        part, at = ticket >> _PART, ticket & ((1 << _PART) - 1)
        left, pieces = self.size(ticket), []
        at += _SIZE.size
        while left:  # one call reads at most 2 GiB
            piece = os.pread(self._handle(part), left, at)
            if not piece:
                raise Internal("the file of waiting Blobs was cut short while it was read")
            pieces.append(piece)
            at, left = at + len(piece), left - len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)


class Waiting:
    """A `BlobSource` of what waits in a spool, for rows that are all new."""

    def __init__(self, spool: BlobSpool | None) -> None:
        self._spool = spool

    def sizes(self, column: str, tickets: Array) -> npt.NDArray[np.int64]:
        """Bytes of each, 0 for null."""
        return np.array([0 if t is None else self._waiting(t).size(t) for t in tickets.to_pylist()], dtype=np.int64)

    def read(self, column: str, tickets: Array) -> list[bytes | None]:
        """The bytes of each, None for null. Bounding them is the caller's work."""
        return [None if t is None else self._waiting(t).read(t) for t in tickets.to_pylist()]

    def _waiting(self, ticket: int) -> BlobSpool:
        if self._spool is None or ticket < 0:
            raise Internal("a row names bytes that nobody has")
        return self._spool


class Tickets(Waiting):
    """A `BlobSource` of what waits in a spool, and of what a snapshot's rows hold."""

    def __init__(self, spool: BlobSpool | None, snapshot: Snapshot, table_key: str) -> None:
        super().__init__(spool)
        self._snapshot, self._key = snapshot, table_key

    def sizes(self, column: str, tickets: Array) -> npt.NDArray[np.int64]:
        """Bytes of each, 0 for null."""
        where, ids = _stored(tickets)
        out = super().sizes(column, _without(tickets, where))
        if len(where):
            out[where] = np.asarray(pc.fill_null(self._snapshot.blob_sizes(self._key, column, ids), 0))
        return out

    def read(self, column: str, tickets: Array) -> list[bytes | None]:
        """The bytes of each, None for null. Bounding them is the caller's work."""
        where, ids = _stored(tickets)
        out = super().read(column, _without(tickets, where))
        if len(where):
            for at, data in zip(where, self._snapshot.blobs(self._key, column, ids), strict=True):
                out[int(at)] = data.as_py()
        return out


def _stored(tickets: Array) -> tuple[npt.NDArray[np.intp], Array]:
    """Where tickets of stored rows are, and the row ids."""
    numbers = np.asarray(pc.fill_null(tickets, 0))
    where = np.flatnonzero(numbers < 0)
    return where, pa.array((-1 - numbers[where]).astype(np.uint64))


def _without(tickets: Array, where: npt.NDArray[np.intp]) -> Array:
    if not len(where):
        return tickets
    mask = np.asarray(pc.is_null(tickets)).copy()
    mask[where] = True
    return pa.array(np.asarray(pc.fill_null(tickets, 0)), TICKET, mask=mask)


def ticketed(snapshot: Snapshot, table_key: str, names: Iterable[str], rows: pa.Table) -> pa.Table:
    """Scanned rows with tickets of stored Blobs in place of their descriptors.

    Args:
        names: the Blob columns.
        rows: with `_rowid`, which is kept.
    """
    row_ids = one_chunk(rows.column("_rowid")).cast(pa.int64())
    tickets = pc.subtract(pa.scalar(-1, TICKET), row_ids)
    for name in names:
        null = snapshot.blob_nulls(table_key, rows, name)
        column = pc.if_else(null, pa.scalar(None, TICKET), tickets)
        rows = rows.set_column(rows.schema.get_field_index(name), pa.field(name, TICKET), column)
    return rows


def same_bytes(source: Tickets, column: str, new: Array, old: Array) -> npt.NDArray[np.bool_]:
    """Which tickets of two columns lead to equal bytes; a bounded amount of them is read at a time."""
    nulls = np.asarray(pc.is_null(new)), np.asarray(pc.is_null(old))
    out: npt.NDArray[np.bool_] = (nulls[0] & nulls[1]) | np.asarray(pc.fill_null(pc.equal(new, old), False))
    both = np.flatnonzero(~nulls[0] & ~nulls[1] & ~out)
    some = pa.array(both)
    sizes = source.sizes(column, new.take(some))
    alike = sizes == source.sizes(column, old.take(some))
    both, sizes = both[alike], sizes[alike]
    for start, end in portions(sizes):
        some = pa.array(both[start:end])
        ours, theirs = (source.read(column, side.take(some)) for side in (new, old))
        out[both[start:end]] = [one == other for one, other in zip(ours, theirs, strict=True)]
    return out
