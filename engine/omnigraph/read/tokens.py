"""The one tokenizer of text search, and a column's words as arrays.

A word is a longest run of letters and digits (with the marks that belong to a letter, as in Hindi), lower-case, letters
with accents and ligatures as their ASCII form where they have one. No stemming, no stop words. `tokenize` takes a whole
column: all texts are joined, changed and cut as one, so that nothing is done row by row.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.read.compute import Array, pc, py_buffer
from omnigraph.read.datum import Longs, validity

__all__ = ["TextIndex", "tokenize", "words_of"]

_END = "\x00"  # stands between two texts while they are one
_BATCH_BYTES = 64 << 20
_ASCII = {
    "ß": "ss", "æ": "ae", "œ": "oe", "ø": "o", "đ": "d", "ð": "d", "þ": "th", "ł": "l", "ı": "i", "ħ": "h", "ŋ": "n",
    "ŧ": "t", "ĸ": "q", "ə": "a", "ƀ": "b", "ƒ": "f", "ɨ": "i", "ɔ": "o", "ʉ": "u", "ƶ": "z",
}  # fmt: skip


def _folded(character: str) -> str | None:
    """The ASCII form of a lower-case character; None where it has none and stays."""
    if character in _ASCII:
        return _ASCII[character]
    if "\u0300" <= character <= "\u036f":
        return ""  # an accent written after its letter
    plain = "".join(c for c in unicodedata.normalize("NFKD", character) if not "\u0300" <= c <= "\u036f")
    return plain.lower() if plain.isascii() and plain.isalnum() else None


def _in_word(character: str) -> bool:
    return character.isalnum() or unicodedata.category(character) in ("Mn", "Mc")


def _plain(text: str) -> str:
    """Lower-case and ASCII-folded."""
    text = text.lower()
    if text.isascii():
        return text
    table = {ord(c): folded for c in set(text) if not c.isascii() and (folded := _folded(c)) is not None}
    return text.translate(table)


def tokenize(texts: Array) -> tuple[Array, Longs]:
    """(the words of all texts in order, where each text's words begin, and the end); a null has none."""
    words, counts = [], []
    size = max(1, len(texts) * _BATCH_BYTES // max(1, texts.nbytes))
    for begin in range(0, len(texts), size):
        some, many = _cut(texts.slice(begin, size))
        words.append(some)
        counts.append(many)
    starts = np.zeros(len(texts) + 1, dtype=np.int64)
    if counts:
        np.cumsum(np.concatenate(counts), out=starts[1:])
    return (pa.concat_arrays(words) if words else pa.array([], pa.string())), starts


def _cut(texts: Array) -> tuple[Array, Longs]:
    clean = pc.fill_null(texts, "").cast(pa.string())
    joined = pc.binary_join(pa.ListArray.from_arrays(pa.array([0, len(clean)], pa.int32()), clean), _END)[0].as_py()
    if joined.count(_END) != len(clean) - 1:  # a text that holds the sign itself
        clean = pc.replace_substring(clean, pattern=_END, replacement=" ")
        joined = pc.binary_join(pa.ListArray.from_arrays(pa.array([0, len(clean)], pa.int32()), clean), _END)[0].as_py()
    joined = _plain(joined)
    data = np.frombuffer(joined.encode(), dtype=np.uint8)
    if joined.isascii():
        codes, at_byte = data, np.arange(len(data) + 1)
        known = np.frombuffer(bytes(chr(i).isalnum() for i in range(128)), dtype=np.bool_)
        inside = known[codes]
    else:
        codes = np.frombuffer(joined.encode("utf-32-le"), dtype=np.uint32)
        distinct, back = np.unique(codes, return_inverse=True)
        inside = np.array([_in_word(chr(c)) for c in distinct.tolist()])[back]
        at_byte = np.append(np.flatnonzero((data & 0xC0) != 0x80), len(data))
    edge = np.diff(inside.astype(np.int8), prepend=0, append=0)
    begins, ends = np.flatnonzero(edge == 1), np.flatnonzero(edge == -1)
    sizes = at_byte[ends] - at_byte[begins]
    kept = data[np.repeat(inside, np.diff(at_byte))]
    offsets = np.zeros(len(sizes) + 1, dtype=np.int32)
    np.cumsum(sizes, out=offsets[1:])
    buffers = py_buffer(offsets), py_buffer(np.ascontiguousarray(kept))
    words = pa.StringArray.from_buffers(len(sizes), *buffers)
    row = np.searchsorted(np.flatnonzero(codes == 0), begins)
    return words, np.bincount(row, minlength=len(clean)).astype(np.int64)


def words_of(text: str) -> list[str]:
    """The words of one text."""
    return list(tokenize(pa.array([text], pa.string()))[0].to_pylist())


@dataclass(frozen=True, eq=False)
class TextIndex:
    """The words of a column, and where each stands.

    Args:
        words: the distinct ones.
        codes: the word at each place, text after text, as an index into `words`.
        starts: the place where each row's text begins, and the end.
        known: the rows that have a text.
    """

    words: Array
    codes: npt.NDArray[np.int32]
    starts: Longs
    known: npt.NDArray[np.bool_]
    _numbers: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, column: Array) -> TextIndex:
        words, starts = tokenize(column)
        encoded = words.dictionary_encode()
        codes = np.asarray(encoded.indices.to_numpy(zero_copy_only=False), dtype=np.int32)
        return cls(encoded.dictionary, codes, starts, validity(column))

    @property
    def nbytes(self) -> int:
        return int(self.words.nbytes + 4 * self.codes.nbytes + self.starts.nbytes + self.known.nbytes)

    @property
    def rows(self) -> int:
        return len(self.starts) - 1

    @cached_property
    def _by_word(self) -> tuple[Longs, Longs]:
        """(places in order of their word, where each word's begin)."""
        order = np.argsort(self.codes, kind="stable")
        starts = np.zeros(len(self.words) + 1, dtype=np.int64)
        np.cumsum(np.bincount(self.codes, minlength=len(self.words)), out=starts[1:])
        return order, starts

    @cached_property
    def lengths(self) -> Longs:
        """Words in each row's text."""
        return np.diff(self.starts)

    def number(self, word: str) -> int:
        """The word's index, −1 if no text has it."""
        found = self._numbers.get(word)
        if found is None:
            found = self._numbers[word] = int(pc.index(self.words, word).as_py())
        return found

    def places(self, word: int) -> Longs:
        """Where a word stands, ascending."""
        order, starts = self._by_word
        return order[starts[word] : starts[word + 1]]

    def rows_at(self, places: Longs) -> Longs:
        """The row of each place."""
        return np.searchsorted(self.starts, places, side="right") - 1

    def counts(self, word: int) -> tuple[Longs, Longs]:
        """(rows with the word, how often each has it)."""
        return np.unique(self.rows_at(self.places(word)), return_counts=True)
