"""One stored Blob, read by ranges (03 §3.4)."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator

from omnigraph.arguments import expect_text
from omnigraph.errors import BadRequest, NotFound
from omnigraph.read.entity import named_type, with_id
from omnigraph.schema.catalog import EdgeType, NodeType
from omnigraph.storage import Snapshot
from omnigraph.storage.blobs import StoredBlob

__all__ = ["CHUNK_BYTES", "Blob", "open_blob"]

CHUNK_BYTES = 1 << 20
"""Bytes that iterating a Blob gives at a time."""


class Blob:
    """The bytes of one Blob property as one snapshot sees them; opening it reads none of them.

    Iterating gives all of them, piece by piece. Safe to share between threads.

    Attributes:
        type, id, property: whose it is.
        size: bytes.
        etag: a text that no other bytes have had, here or in another graph. The same bytes may get another one, when
            their row is written again.
        commit: id of the newest commit of the state it was read from.
    """

    def __init__(self, type: str, id: str, property: str, stored: StoredBlob, commit: str) -> None:
        self.type, self.id, self.property = type, id, property
        self.size, self.etag, self.commit = stored.size, stored.identity, commit
        self._ranges = stored.ranges()
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"<Blob {self.type} {self.id!r} {self.property}, {self.size:,} bytes>"

    def read(self, start: int = 0, end: int | None = None) -> bytes:
        """The bytes from `start` up to, but not with, `end`; nothing else is read.

        Args:
            start: from 0 to the size.
            end: not below `start`; None, or more than the size, is the size.

        Raises:
            BadRequest: there is no such range (`bad_range`).
        """
        start, end = self._range(start, end)
        with self._lock:
            return self._ranges(start, end - start)

    def chunks(self, start: int = 0, end: int | None = None, *, size: int = CHUNK_BYTES) -> Iterator[bytes]:
        """The same bytes, at most `size` at a time; each piece is read when it is asked for."""
        start, end = self._range(start, end)
        if size < 1:
            raise BadRequest(f"a chunk has at least one byte, not {size}", code="bad_range")
        return (self.read(at, min(at + size, end)) for at in range(start, end, size))

    def __iter__(self) -> Iterator[bytes]:
        return self.chunks()

    def sha256(self) -> str:
        """The SHA-256 of all bytes, in hexadecimal; reads them all, a piece at a time."""
        sha = hashlib.sha256()
        for piece in self:
            sha.update(piece)
        return sha.hexdigest()

    def _range(self, start: int, end: int | None) -> tuple[int, int]:
        for bound in (start, 0 if end is None else end):
            if isinstance(bound, bool) or not isinstance(bound, int):
                raise BadRequest(f"a range is of whole numbers, not {bound!r}", code="bad_range")
        last = self.size if end is None else min(end, self.size)
        if not 0 <= start <= self.size or last < start:
            raise BadRequest(
                f"{self!r} has no bytes {start} to {'the end' if end is None else end}: a range begins at 0 to "
                f"{self.size:,} and ends no earlier",
                code="bad_range",
                details={"start": start, "end": end, "size": self.size},
            )
        return start, last


def open_blob(snapshot: Snapshot, type: str, id: str, property: str) -> Blob:
    """The Blob of one node or edge.

    Raises:
        NotFound: no such type, property, node or edge; or there is no Blob (`null_blob`).
        BadRequest: the property is no Blob, its bytes lie outside the graph, or the id is stored more than once.
    """
    entity = named_type(snapshot, type)
    if entity is None:
        raise NotFound(f"type {type!r} isn't declared", code="unknown_type", details={"type": type})
    _check(entity, property)
    rows = with_id(snapshot, entity, id, ["_rowid"])
    where = {"type": entity.name, "id": id, "property": property}
    if rows.num_rows > 1:
        raise BadRequest(f"{type} {id!r} is stored {rows.num_rows} times: run verify", code="duplicate_id")
    if not rows.num_rows:
        raise NotFound(f"there is no {entity.name} {id!r}", code="unknown_id", details=where)
    stored = snapshot.blob(entity.table_key, property, rows.column("_rowid")[0].as_py())
    if stored is None:
        raise NotFound(f"{property} of {entity.name} {id!r} is null", code="null_blob", details=where)
    return Blob(entity.name, id, property, stored, snapshot.head.id)


def _check(entity: NodeType | EdgeType, property: str) -> None:
    expect_text("property", property)
    blobs = [p.name for p in entity.properties.values() if p.type.base == "Blob"]
    known = f"its Blobs are {', '.join(blobs)}" if blobs else "it has no Blobs"
    found = entity.properties.get(property)
    if found is None:
        details = {"type": entity.name, "property": property}
        raise NotFound(f"{entity.name} has no property {property!r}; {known}", code="unknown_property", details=details)
    if property not in blobs:
        raise BadRequest(f"{entity.name}.{property} is {found.type}, no Blob; {known}", code="not_a_blob")
