"""From an id to its row, without a Python object per row: sorted 64-bit hashes and a binary search.

The hash eats a string eight bytes at a time (little endian, the last word padded with zeros) and mixes each word with
the multiplication of FNV-1a and a shift; the length goes in first, so that padding can't make two strings equal.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.read.compute import Array, flags, pc
from omnigraph.read.numbering import Splice

__all__ = ["IdIndex", "IdMap", "hash_one", "hash_strings", "words_at"]

Ints = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]

_MASK = (1 << 64) - 1
_PRIME = 0x9E3779B97F4A7C15
_BASIS = 0xCBF29CE484222325
_BLOCK = 16384  # strings at a time, so that what is made of a block stays in the processor's cache
_NUMBERS = 1 << 18  # buckets counted at a time
_KEEP = np.array([(1 << 8 * count) - 1 for count in range(9)], dtype=np.uint64)


def hash_one(text: str) -> int:
    """The hash of one string; equal to `hash_strings` on it."""
    data = text.encode()
    h = ((_BASIS ^ len(data)) * _PRIME) & _MASK
    for at in range(0, len(data), 8):
        h = ((h ^ int.from_bytes(data[at : at + 8], "little")) * _PRIME) & _MASK
        h ^= h >> 29
    return h


def hash_strings(column: Array) -> npt.NDArray[np.uint64]:
    """The hash of each string; the value under a null is unspecified.

    Args:
        column: string or large_string, any offset.
    """
    texts = _Texts(column)
    out = np.empty(len(column), dtype=np.uint64)
    for at in range(0, len(column), _BLOCK):
        out[at : at + _BLOCK] = texts.part(at, _BLOCK).hashes()
    return out


def words_at(column: Array, at: int) -> tuple[Words, bool]:
    """The eight bytes of each string from byte `at` on, little endian, filled up with zeros.

    Args:
        column: string or large_string, all beginning with the same `at` bytes; the value under a null is unspecified.

    Returns:
        The words, and whether unlike strings surely have unlike ones.
    """
    texts = _Texts(column).part(0, len(column))
    out = np.zeros(len(column), dtype=np.uint64)
    rows = np.flatnonzero(texts.lengths > at)
    left = texts.lengths[rows] - at
    out[rows] = found = texts.words[texts.starts[rows] + at] & _keep(left)
    if int(left.max(initial=0)) > 8:
        return out, False
    last = found >> ((left - 1) * 8).astype(np.uint64) & np.uint64(255)
    return out, bool(last.all())  # else a string ends in zeros, as the filling does


class _Texts:
    """The strings of a column as numpy sees them."""

    def __init__(self, column: Array) -> None:
        width = np.dtype(np.int64 if pa.types.is_large_string(column.type) else np.int32)
        _, raw_offsets, raw_data = column.buffers()
        self.offsets = np.frombuffer(raw_offsets, dtype=width)[column.offset : column.offset + len(column) + 1]
        end = int(self.offsets[-1]) if len(self.offsets) else 0
        self.data = np.frombuffer(raw_data or b"", dtype=np.uint8)
        # A word may be read at any byte, so eight bytes behind the last one must be there; they are masked out.
        if len(self.data) < end + 8:
            self.data = np.concatenate([self.data[:end], np.zeros(8, dtype=np.uint8)])

    def part(self, at: int, count: int) -> _Part:
        offsets = self.offsets[at : at + count + 1].astype(np.int64)
        return _Part(self.data, offsets[:-1], np.diff(offsets))


class _Part:
    """Some strings. `words`: the eight bytes from every byte on. `even`: the length of all where they have one."""

    def __init__(self, data: npt.NDArray[np.uint8], starts: Ints, lengths: Ints) -> None:
        self.starts, self.lengths = starts, lengths
        self.words: Words = np.ndarray((len(data) - 7,), "<u8", data, strides=(1,))
        self.shortest, self.longest = (int(lengths.min()), int(lengths.max())) if len(lengths) else (0, 0)
        self.even = self.longest if self.shortest == self.longest else 0
        if self.even:
            self.fixed = np.ndarray((len(starts),), f"S{self.even}", data, int(starts[0]), (self.even,))

    def hashes(self) -> Words:
        words, starts, lengths = self.words, self.starts, self.lengths
        h = (np.uint64(_BASIS) ^ lengths.astype(np.uint64)) * np.uint64(_PRIME)
        for at in range(0, self.longest, 8):
            if self.even:
                word = words[starts[0] + at : starts[-1] + at + 1 : self.even]
                if self.even < at + 8:
                    word = word & _KEEP[self.even - at]
                h = (h ^ word) * np.uint64(_PRIME)
                h ^= h >> np.uint64(29)
                continue
            rows = slice(None) if at < self.shortest else np.flatnonzero(lengths > at)
            word = words[starts[rows] + at]
            if self.shortest < at + 8:
                word &= _keep(lengths[rows] - at)
            mixed = (h[rows] ^ word) * np.uint64(_PRIME)
            h[rows] = mixed ^ (mixed >> np.uint64(29))
        return h

    def equal(self, rows: Any, other: _Part, at: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
        """Whether strings of this part are those of another.

        Args:
            rows: which ones: their positions, or a slice of all.
            at: the position of each one's counterpart.
        """
        if self.even and self.even == other.even:
            found: npt.NDArray[np.bool_] = other.fixed.take(at) == self.fixed[rows]
            return found
        starts, lengths = self.starts[rows], self.lengths[rows]
        same: npt.NDArray[np.bool_] = other.lengths[at] == lengths
        own = np.where(same, other.starts[at], 0)
        lengths = np.where(same, lengths, 0)
        for byte in range(0, int(lengths.max(initial=0)), 8):
            long = np.flatnonzero(lengths > byte)
            differs = self.words[starts[long] + byte] ^ other.words[own[long] + byte]
            same[long] &= differs & _keep(lengths[long] - byte) == 0
        return same


def _keep(left: Ints) -> Words:
    """What masks the bytes of a word behind the first so many."""
    return _KEEP[np.minimum(left, 8)]


class IdIndex:
    """Finds many strings among many, exactly: the highest bits of a hash say where its like begin in their order.

    A block of rows goes through all steps at once, so that what one step has read is still in the processor's cache
    for the next. Arrow's hash join is as quick among 200,000 strings, and takes five times as long among 2,000,000.

    Args:
        ids: string or large_string, without nulls; they may repeat.
    """

    def __init__(self, ids: Array) -> None:
        hashes = hash_strings(ids)
        order = np.argsort(hashes).astype(np.int32 if len(ids) < 2**31 else np.int64)
        bits = len(ids).bit_length() + 2
        self._shift = np.uint64(64 - bits)
        self._first = _beginnings((hashes[order] >> self._shift).view(np.int64), 1 << bits, order.dtype)
        self._order = np.append(order, order[:1])  # the last buckets may begin behind the last id
        self._ids = _Texts(ids).part(0, len(ids))

    def __len__(self) -> int:
        return len(self._ids.starts)

    def positions(self, column: Array) -> Ints:
        """The position of each string, of a repeated one any; −1 where it isn't there or is null.

        Args:
            column: string or large_string, whichever the ids are.
        """
        out = np.full(len(column), -1, dtype=np.int64)
        if not len(self):
            return out
        texts = _Texts(column)
        for at in range(0, len(column), _BLOCK):
            self._find(texts.part(at, _BLOCK), out[at : at + _BLOCK])
        if column.null_count:
            out[~flags(column.is_valid())] = -1
        return out

    def _find(self, texts: _Part, out: Ints) -> None:
        bucket = (texts.hashes() >> self._shift).view(np.int64)
        spot = self._first[bucket]
        at = self._order[spot]
        same = texts.equal(slice(None), self._ids, at)
        np.copyto(out, at, where=same)
        rows = np.flatnonzero(~same)
        spot, end = spot[rows] + 1, self._first[bucket[rows] + 1]
        while len(rows):  # those that aren't the first of their bucket
            on = np.flatnonzero(spot < end)
            rows, spot, end = rows[on], spot[on], end[on]
            at = self._order[spot]
            same = texts.equal(rows, self._ids, at)
            out[rows[same]] = at[same]
            on = np.flatnonzero(~same)
            rows, spot, end = rows[on], spot[on] + 1, end[on]


def _beginnings(ascending: Ints, count: int, kind: np.dtype[Any]) -> npt.NDArray[Any]:
    """Where each number from 0 on begins among numbers below `count`, and where the last one ends.

    Some at a time: numpy counts in 64 bits, and for all at once that is more memory than the strings take.
    """
    out = np.zeros(count + 1, dtype=kind)
    for low in range(0, count, _NUMBERS):
        high = min(low + _NUMBERS, count)
        begin, end = np.searchsorted(ascending, (low, high))
        counts = np.bincount(ascending[begin:end] - low, minlength=high - low)
        out[low + 1 : high + 1] = begin + np.cumsum(counts)
    return out


class IdMap:
    """Strings → their positions. Read-only once built.

    Args:
        ids: string or large_string, without nulls. They are unique, but for graphs that another maker damaged.
    """

    def __init__(self, ids: Array) -> None:
        self._ids = ids
        hashes = hash_strings(ids)
        self._order = np.argsort(hashes).astype(np.int32 if len(ids) < 2**31 else np.int64)
        self._sorted = hashes[self._order]
        # Two ids of one hash are all but impossible (10^7 ids: 3 in a million); then a dictionary takes over.
        self._exact: dict[str, int] | None = None
        self.repeated: dict[str, Ints] = {}  # every position of an id that stands more than once
        if len(ids) > 1 and bool((self._sorted[1:] == self._sorted[:-1]).any()):
            texts = ids.to_pylist()
            self._exact = {text: at for at, text in reversed(list(enumerate(texts)))}
            if len(self._exact) < len(texts):
                again = {text for at, text in enumerate(texts) if self._exact[text] != at}
                self.repeated = {
                    text: np.array([at for at, other in enumerate(texts) if other == text]) for text in again
                }

    @property
    def nbytes(self) -> int:
        return int(self._order.nbytes + self._sorted.nbytes)

    def spliced(self, ids: Array, step: Splice) -> IdMap | None:
        """The map of the same ids after a change of positions; None where it has to be made anew.

        Args:
            ids: all ids afterwards. Those of updated rows are as before.
        """
        if self._exact is not None:
            return None
        order, known = self._order, self._sorted
        if len(step.removed):
            gone = np.zeros(step.size, dtype=bool)
            gone[step.removed] = True
            stays = ~gone[order]
            known = known[stays]
            order = step.moved(order[stays].astype(np.int64)).astype(order.dtype)
        if step.appended:
            hashes = hash_strings(ids.slice(step.kept))
            by_hash = np.argsort(hashes)
            spot = np.searchsorted(known, hashes[by_hash])
            known = np.insert(known, spot, hashes[by_hash])
            order = np.insert(order, spot, (by_hash + step.kept).astype(order.dtype))
            if bool((known[1:] == known[:-1]).any()):
                return None
        out = object.__new__(IdMap)
        out._ids, out._order, out._sorted, out._exact, out.repeated = ids, order, known, None, {}
        return out

    def position(self, text: str) -> int:
        """The position of one id, −1 if it isn't there."""
        if self._exact is not None:
            return self._exact.get(text, -1)
        h = np.uint64(hash_one(text))
        at = int(self._sorted.searchsorted(h))
        if at >= len(self._sorted) or self._sorted[at] != h:
            return -1
        found = int(self._order[at])
        return found if self._ids[found].as_py() == text else -1

    def all_positions(self, text: str) -> Ints:
        """Every position of one id."""
        if text in self.repeated:
            return self.repeated[text]
        at = self.position(text)
        return np.array([at] if at >= 0 else [], dtype=np.int64)

    def matches(self, texts: Array) -> tuple[Ints, Ints]:
        """(index into `texts`, position) of every row that has one of these ids."""
        at = self.positions(texts)
        which = np.flatnonzero(at >= 0)
        pairs = [(which, at[which])]
        for first, *twins in self.repeated.values():
            here = np.flatnonzero(at == first)
            pairs += [(here, np.full(len(here), twin, dtype=np.int64)) for twin in twins]
        if len(pairs) == 1:
            return pairs[0]
        return np.concatenate([w for w, _ in pairs]), np.concatenate([p for _, p in pairs])

    def positions(self, texts: Array) -> Ints:
        """The position of each id (the first of a repeated one), −1 where it isn't there or is null."""
        if not len(self._ids) or not len(texts):
            return np.full(len(texts), -1, dtype=np.int64)
        if self._exact is not None:
            return np.array([self._exact.get(t, -1) for t in texts.to_pylist()], dtype=np.int64)
        if texts.type != self._ids.type:
            texts = texts.cast(self._ids.type)
        if len(texts) * 4 > len(self._ids):  # many: Arrow's hash join, built anew each time, is quicker
            return np.asarray(pc.fill_null(pc.index_in(texts, value_set=self._ids), -1).to_numpy(), dtype=np.int64)
        h = hash_strings(texts)
        at = np.minimum(np.searchsorted(self._sorted, h), len(self._sorted) - 1)
        found = self._order[at].astype(np.int64)
        same = (self._sorted[at] == h) & _equal(self._ids.take(pa.array(found)), texts)
        found[~same] = -1
        return found


def _equal(left: Array, right: Array) -> npt.NDArray[np.bool_]:
    return flags(pc.fill_null(pc.equal(left, right), False))
