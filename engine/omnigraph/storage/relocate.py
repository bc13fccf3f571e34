"""Branches of a graph that was moved or copied.

Lance writes the absolute path of the dataset into every manifest of a branch (`base_paths`), and reads the inherited
files there: after a copy a branch would go on reading, and failing with, the place it came from. So each branch handle
is checked when it is opened. Manifests that name another place are rewritten; for a reader that may change nothing, a
rewritten one stands in a temporary folder beside links to the real files.

The file is: other sections, a length (u32) and the manifest (protobuf, field 18: base paths {1: id, 2: name, 3: is
root, 4: path}), a footer (u64 where the length stands, two u16, `LANC`). https://lance.org/format/table
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import lance

from omnigraph.errors import Conflict, Internal
from omnigraph.storage.files import Files, LocalFiles
from omnigraph.storage.uri import Root

if TYPE_CHECKING:
    import tempfile

__all__ = ["Moved", "base_at", "is_moved", "rewritten"]

_FOOTER = struct.Struct("<QHH4s")
_BASE_PATHS, _PATH = 18, 4


def is_moved(root: Root, location: str, handle: lance.LanceDataset) -> bool:
    """Whether the branch handle names a place from which its dataset was moved or copied."""
    place = root.join(location)
    return any(base_at(base.path, location, place) != base.path for base in handle.base_paths().values())


class Moved:
    """Sets the branches of one moved root right; for a reader in a temporary folder that goes with this object."""

    def __init__(self, root: Root, files: Files, *, read_only: bool) -> None:
        self.root, self.files, self.read_only = root, files, read_only
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def settle(self, location: str, branch: str, version: int) -> str:
        """Rewrite what a branch of a dataset needs to be opened at this version.

        Returns:
            The path to open it at.

        Raises:
            Conflict: it may not be rewritten, and an object store has no links.
        """
        tree = f"{location}/tree/{branch}"
        place = self.root.join(location)
        if not self.read_only:
            for name in self.files.list(f"{tree}/_versions"):
                if name.endswith(".manifest"):
                    self._rewrite(f"{tree}/_versions/{name}", location, place)
            return self.root.join(tree)
        if not isinstance(self.files, LocalFiles):
            raise Conflict(
                f"this graph was copied to {self.root.uri}, and its branches still name the place it came from: run "
                f"`omnigraph recover {self.root.uri}` once",
                code="graph_moved",
            )
        if self._folder is None:
            import tempfile

            self._folder = tempfile.TemporaryDirectory(prefix="omnigraph-")
        target = os.path.join(self._folder.name, tree)
        os.makedirs(os.path.join(target, "_versions"), exist_ok=True)
        for name in ("data", "_deletions", "_indices", "_transactions"):
            link = os.path.join(target, name)
            if not os.path.lexists(link):
                os.symlink(self.files.path(f"{tree}/{name}"), link)
        file = f"_versions/{2**64 - 1 - version:020}.manifest"
        with open(os.path.join(target, file), "wb") as out:
            out.write(rewritten(self.files.read(f"{tree}/{file}"), lambda base: base_at(base, location, place)))
        return target

    def _rewrite(self, name: str, location: str, place: str) -> None:
        before = self.files.read(name)
        after = rewritten(before, lambda base: base_at(base, location, place))
        if after != before:
            self.files.write(name, after)


def base_at(base: str, location: str, place: str) -> str:
    """Where a base path of the dataset at `location` (relative to the root) lies, now that the dataset is at `place`.

    The same directory under another name (a mount, a link) is left as it is.
    """
    at = base.rfind(f"/{location}")
    if at < 0:
        return base
    moved = place + base[at + len(location) + 1 :]
    if base == moved or (os.path.isdir(base) and os.path.isdir(moved) and os.path.samefile(base, moved)):
        return base
    return moved


def rewritten(manifest: bytes, move: Callable[[str], str]) -> bytes:
    """The manifest file with every base path moved; the same bytes where none is.

    Raises:
        Internal: it isn't a manifest as Lance 14 writes it.
    """
    position, major, minor, magic = _FOOTER.unpack(manifest[-_FOOTER.size :])
    if magic != b"LANC" or position + 4 > len(manifest):
        raise Internal("a Lance manifest has an unknown form: use the version of omnigraph that wrote it")
    (length,) = struct.unpack_from("<I", manifest, position)
    body = manifest[position + 4 : position + 4 + length]
    moved = b"".join(_moved_base(raw, value, move) if n == _BASE_PATHS else raw for n, raw, value in _fields(body))
    if moved == body:
        return manifest
    head, tail = manifest[:position], manifest[position + 4 + length : -_FOOTER.size]
    return head + struct.pack("<I", len(moved)) + moved + tail + _FOOTER.pack(position, major, minor, magic)


def _moved_base(raw: bytes, value: bytes, move: Callable[[str], str]) -> bytes:
    parts = []
    for number, part, text in _fields(value):
        if number == _PATH:
            path = move(text.decode()).encode()
            part = _varint(_PATH << 3 | 2) + _varint(len(path)) + path
        parts.append(part)
    body = b"".join(parts)
    return _varint(_BASE_PATHS << 3 | 2) + _varint(len(body)) + body


def _fields(message: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """(field number, the field as it stands, its value if it is length-delimited) of a protobuf message."""
    at = 0
    while at < len(message):
        start = at
        tag, at = _read_varint(message, at)
        value = b""
        if tag & 7 == 0:
            _, at = _read_varint(message, at)
        elif tag & 7 == 1:
            at += 8
        elif tag & 7 == 5:
            at += 4
        elif tag & 7 == 2:
            size, at = _read_varint(message, at)
            value = message[at : at + size]
            at += size
        else:
            raise Internal("a Lance manifest has an unknown form: use the version of omnigraph that wrote it")
        yield tag >> 3, message[start:at], value


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


def _varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
