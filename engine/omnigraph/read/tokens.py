"""The one tokenizer of text search.

A word is a longest run of letters and digits (with the marks that belong to a letter, as in Hindi), lower-case, letters
with accents and ligatures as their ASCII form where they have one. No stemming, no stop words. `tokenize` takes a whole
column: all texts are joined, changed and cut as one, so that nothing is done row by row.
"""

from __future__ import annotations

import unicodedata

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.read.compute import Array, pc, py_buffer, together
from omnigraph.read.datum import Longs

__all__ = ["count_words", "tokenize", "words_of"]

_END = "\x00"  # stands between two texts while they are one
_BATCH_BYTES = 4 << 20  # small enough for memory to be used again from batch to batch
_ASCII_WORD = np.frombuffer(bytes(chr(i).isascii() and chr(i).isalnum() for i in range(256)), dtype=np.bool_)
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
    return (together(words) if words else pa.array([], pa.string())), starts


def count_words(texts: Array) -> int:
    """How many words `tokenize` cuts all texts into. Plain ASCII, as most is, isn't cut for that."""
    texts = texts.drop_null().cast(pa.large_string())
    plain = pc.string_is_ascii(texts)
    other = texts.filter(pc.invert(plain))
    if len(other):
        return int(tokenize(other)[1][-1]) + count_words(texts.filter(plain))
    _, raw_offsets, raw_data = texts.buffers()
    if not len(texts) or raw_data is None:
        return 0
    offsets = np.frombuffer(raw_offsets, dtype=np.int64)[texts.offset : texts.offset + len(texts) + 1]
    inside = _ASCII_WORD[np.frombuffer(raw_data, dtype=np.uint8)[offsets[0] : offsets[-1]]]
    if not len(inside):
        return 0
    borders = np.unique(offsets[1:-1] - offsets[0])
    borders = borders[(borders > 0) & (borders < len(inside))]
    met = int(np.count_nonzero(inside[borders] & inside[borders - 1]))  # two words where two texts meet
    return int(inside[0]) + int(np.count_nonzero(inside[1:] > inside[:-1])) + met


def _cut(texts: Array) -> tuple[Array, Longs]:
    clean = pc.fill_null(texts, "").cast(pa.string())
    joined = pc.binary_join(pa.ListArray.from_arrays(pa.array([0, len(clean)], pa.int32()), clean), _END)[0].as_py()
    if joined.count(_END) != len(clean) - 1:  # a text that holds the sign itself
        clean = pc.replace_substring(clean, pattern=_END, replacement=" ")
        joined = pc.binary_join(pa.ListArray.from_arrays(pa.array([0, len(clean)], pa.int32()), clean), _END)[0].as_py()
    joined = _plain(joined)
    data = np.frombuffer(joined.encode(), dtype=np.uint8)
    if joined.isascii():
        inside = _ASCII_WORD[data]
        begins, ends = _runs(inside)
        sizes, kept, ends_of_texts = ends - begins, data[inside], np.flatnonzero(data == 0)
    else:
        codes = np.frombuffer(joined.encode("utf-32-le"), dtype=np.uint32)
        table = np.zeros(int(codes.max()) + 1, dtype=bool)
        distinct = np.flatnonzero(np.bincount(codes))
        table[distinct] = [_in_word(chr(c)) for c in distinct.tolist()]
        inside = table[codes]
        begins, ends = _runs(inside)
        at_byte = np.append(np.flatnonzero((data & 0xC0) != 0x80), len(data))
        sizes = at_byte[ends] - at_byte[begins]
        kept = data[np.repeat(inside, np.diff(at_byte))]
        ends_of_texts = np.flatnonzero(codes == 0)
    offsets = np.zeros(len(sizes) + 1, dtype=np.int32)
    np.cumsum(sizes, out=offsets[1:])
    words = pa.StringArray.from_buffers(len(sizes), py_buffer(offsets), py_buffer(np.ascontiguousarray(kept)))
    last = np.append(np.searchsorted(begins, ends_of_texts), len(begins))
    return words, np.diff(last, prepend=0).astype(np.int64)


def _runs(inside: npt.NDArray[np.bool_]) -> tuple[Longs, Longs]:
    """Where each run of true values begins, and the place behind its end."""
    padded = np.zeros(len(inside) + 2, dtype=bool)
    padded[1:-1] = inside
    flips = np.flatnonzero(padded[1:] != padded[:-1])
    return flips[::2], flips[1::2]


def words_of(text: str) -> list[str]:
    """The words of one text; `tokenize` says the same of a column of it alone."""
    return "".join(c if _in_word(c) else " " for c in _plain(text)).split()
