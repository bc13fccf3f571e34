"""A column's words as arrays: which word stands where, and which rows have a word how often.

Made from a whole column (`TextIndex.of`), or from the index of another version of the table (`refreshed`), where only
the texts that differ are cut again. It is cache, kept with the rows it was made of.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.read.builds import built
from omnigraph.read.compute import Array, pc, together
from omnigraph.read.datum import Bools, Longs, validity
from omnigraph.read.hashing import IdMap
from omnigraph.read.tokens import tokenize
from omnigraph.records import dataclass

__all__ = ["TextIndex", "refreshed"]

Ints = npt.NDArray[np.integer[Any]]


@dataclass(frozen=True, eq=False)
class TextIndex:
    """The words of a column, and where each stands.

    Args:
        words: the distinct ones, perhaps with some that no text has any more.
        codes: the word at each place, text after text, as an index into `words`.
        starts: the place where each row's text begins, and the end.
        known: the rows that have a text.
    """

    words: Array
    codes: npt.NDArray[np.int32]
    starts: Longs
    known: Bools

    @classmethod
    def of(cls, column: Array) -> TextIndex:
        words, starts = tokenize(column)
        encoded = words.dictionary_encode()
        codes = np.asarray(encoded.indices.to_numpy(zero_copy_only=False), dtype=np.int32)
        return cls(encoded.dictionary, codes, starts, validity(column))

    @property
    def nbytes(self) -> int:
        """With what is derived below: the order of places, the row of each, and the postings' rows and counts."""
        wide = 4 if len(self.codes) < 2**31 else 8
        derived = len(self.codes) * wide * 4 + len(self.words) * 32
        return int(self.words.nbytes + self.codes.nbytes + self.starts.nbytes + self.known.nbytes + derived)

    @property
    def rows(self) -> int:
        return len(self.starts) - 1

    @built(lambda self: len(self.codes))
    def texts(self) -> int:
        """Rows that have a text."""
        return int(np.count_nonzero(self.known))

    @built(lambda self: len(self.codes))
    def lengths(self) -> Longs:
        """Words in each row's text."""
        return np.diff(self.starts)

    @built(lambda self: len(self.codes))
    def _numbers(self) -> IdMap:
        return IdMap(self.words)

    @built(lambda self: len(self.codes))
    def _owner(self) -> Ints:
        """The row of each place."""
        rows = np.arange(self.rows, dtype=np.int32 if self.rows < 2**31 else np.int64)
        return np.repeat(rows, self.lengths)

    @built(lambda self: len(self.codes))
    def _by_word(self) -> tuple[Ints, Longs]:
        """(places in order of their word, where each word's begin)."""
        small = len(self.words) <= 1 << 16  # numpy sorts 16 bits by radix
        order = np.argsort(self.codes.astype(np.uint16) if small else self.codes, kind="stable")
        return order.astype(np.int32 if len(order) < 2**31 else np.int64), self._word_starts

    @built(lambda self: len(self.codes))
    def _word_starts(self) -> Longs:
        starts = np.zeros(len(self.words) + 1, dtype=np.int64)
        np.cumsum(np.bincount(self.codes, minlength=len(self.words)), out=starts[1:])
        return starts

    @built(lambda self: len(self.codes))
    def _postings(self) -> tuple[Ints, npt.NDArray[np.int32], Longs]:
        """(rows in order of word and row, how often the row has the word, where each word's begin)."""
        order, starts = self._by_word
        rows = self._owner[order]
        fresh = np.ones(len(rows), dtype=bool)
        fresh[1:] = rows[1:] != rows[:-1]
        begins = starts[:-1]
        fresh[begins[begins < len(rows)]] = True
        first = np.flatnonzero(fresh)
        times = np.diff(first, append=len(rows)).astype(np.int32)
        return rows[first], times, np.searchsorted(first, starts)

    def number(self, word: str) -> int:
        """The word's index, −1 if no text has it."""
        return self._numbers.position(word)

    def places(self, word: int) -> Ints:
        """Where a word stands, ascending."""
        order, starts = self._by_word
        return order[starts[word] : starts[word + 1]]

    def rows_at(self, places: Ints) -> Ints:
        """The row of each place."""
        return self._owner[places]

    def rows_of(self, word: int) -> Ints:
        """The rows with the word, ascending."""
        rows, _, starts = self._postings
        return rows[starts[word] : starts[word + 1]]

    def counts(self, word: int) -> tuple[Ints, npt.NDArray[np.int32]]:
        """(rows with the word, ascending; how often each has it)."""
        rows, times, starts = self._postings
        here = slice(starts[word], starts[word + 1])
        return rows[here], times[here]


def refreshed(old: TextIndex, back: Longs, column: Array) -> TextIndex:
    """The index of a column most of whose texts an older one has.

    Args:
        back: of each row, the row of `old` with the same text, or −1.
    """
    stale = np.flatnonzero(back < 0)
    kept = np.flatnonzero(back >= 0)
    fresh, fresh_starts = tokenize(column.take(pa.array(stale)))
    encoded = fresh.dictionary_encode()
    numbers = pc.index_in(encoded.dictionary, value_set=old.words).to_numpy(zero_copy_only=False)
    unknown = np.flatnonzero(np.isnan(numbers)) if numbers.dtype.kind == "f" else np.zeros(0, dtype=np.int64)
    numbers = np.nan_to_num(numbers).astype(np.int32)
    numbers[unknown] = len(old.words) + np.arange(len(unknown), dtype=np.int32)
    words: Array = old.words
    if len(unknown):
        words = together([old.words, encoded.dictionary.take(pa.array(unknown))])
    lengths = np.zeros(len(back), dtype=np.int64)
    lengths[kept] = old.lengths[back[kept]]
    lengths[stale] = np.diff(fresh_starts)
    starts = np.zeros(len(back) + 1, dtype=np.int64)
    np.cumsum(lengths, out=starts[1:])
    codes = np.empty(int(starts[-1]), dtype=np.int32)
    codes[_spans(starts[stale], lengths[stale])] = numbers[encoded.indices.to_numpy(zero_copy_only=False)]
    from_old, to_new = _spans(old.starts[back[kept]], lengths[kept]), _spans(starts[kept], lengths[kept])
    codes[to_new] = old.codes[from_old]
    made = TextIndex(words, codes, starts, validity(column))
    if "_by_word" in old.__dict__ and (len(kept) < 2 or bool((np.diff(back[kept]) > 0).all())):
        made.__dict__["_by_word"] = _merged(old, made, from_old, to_new)
    return made


def _spans(starts: Longs, lengths: Longs) -> Longs:
    """The places of spans, one span after the other."""
    ends = np.cumsum(lengths)
    return np.arange(int(ends[-1]) if len(ends) else 0) + np.repeat(starts - ends + lengths, lengths)


def _merged(old: TextIndex, made: TextIndex, from_old: Longs, to_new: Longs) -> tuple[Ints, Longs]:
    """The new order of places by word, where the texts that stayed are in their order: only the others are sorted."""
    order, _ = old._by_word
    where = np.full(len(old.codes), -1, dtype=order.dtype)
    where[from_old] = to_new
    moved = where[order]
    moved = moved[moved >= 0]
    mask = np.ones(len(made.codes), dtype=bool)
    mask[to_new] = False
    fresh = np.flatnonzero(mask).astype(order.dtype)
    size = len(made.codes)
    keys = np.sort(made.codes[fresh].astype(np.int64) * size + fresh)
    at = np.searchsorted(made.codes[moved].astype(np.int64) * size + moved, keys)
    return np.insert(moved, at, (keys % max(size, 1)).astype(order.dtype)), made._word_starts
