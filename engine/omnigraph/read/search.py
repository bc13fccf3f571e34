"""`search`, `match_text` and `fuzzy`: tests on a column's words (see `tokens`).

`search` is true where any word of the query stands, `match_text` where all stand one after another, `fuzzy` where any
stands within a number of edits (insert, delete or replace one character). A query without a word is true nowhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.errors import Internal
from omnigraph.query.ir import Call, Prop
from omnigraph.read.compute import Array, flags, nulls, pc
from omnigraph.read.datum import Datum, Env, Evaluate, Longs
from omnigraph.read.postings import TextIndex, refreshed
from omnigraph.read.tables import Rows, TableData
from omnigraph.read.tokens import words_of

__all__ = ["near_words", "phrase_rows", "search_predicate", "text_index"]


def text_index(rows: Rows, name: str) -> TextIndex:
    """The words of a column; kept with the rows, and made from those of another version where there is one."""
    return rows.derived("words", name, lambda: _made(rows, name))


def _made(rows: Rows, name: str) -> TextIndex:
    column = rows.column(name)
    if not isinstance(rows, TableData) or not rows.has(["id"]):
        return TextIndex.of(column)
    for other in rows.versions():
        old = other.kept("words", name)
        if isinstance(old, TextIndex) and other.has(["id", name]):
            back = _same_texts(other, rows, name)
            if np.count_nonzero(back < 0) * 2 < len(back):
                return refreshed(old, back, column)
    return TextIndex.of(column)


def _same_texts(old: TableData, new: Rows, name: str) -> Longs:
    """Of each row, the row of another version with the same id and the same text; −1 where there is none."""
    most = min(old.rows, new.rows)
    same = pc.equal(old.column("id").slice(0, most), new.column("id").slice(0, most))
    unlike = np.flatnonzero(~flags(same))
    begin = int(unlike[0]) if len(unlike) else most
    back = np.concatenate([np.arange(begin), old.id_map().positions(new.column("id").slice(begin))])
    texts, before = new.column(name), old.column(name).take(pa.array(back, mask=back < 0))
    alike = pc.or_(pc.fill_null(pc.equal(texts, before), False), pc.and_(pc.is_null(texts), pc.is_null(before)))
    back[~flags(alike)] = -1
    return back


def search_predicate(call: Call, arguments: Sequence[Evaluate]) -> Evaluate:
    """The closure of a search predicate over a property."""
    prop = call.args[0]
    if not isinstance(prop, Prop):
        raise Internal(f"{call.fn} searches a property")
    find = {"search": _any_word, "match_text": _phrase, "fuzzy": _near}[call.fn]

    def predicate(env: Env) -> Datum:
        rows, at = env.entity(prop.var)
        given = [argument(env) for argument in arguments]
        query = _constant(given[0])
        edits = _constant(given[1]) if len(given) > 1 else 1
        length = rows.rows if at is None else len(at)
        if query is None or edits is None:
            return nulls(length, pa.bool_())
        index = text_index(rows, prop.name)
        if not index.rows:  # whatever is bound is null
            return nulls(length, pa.bool_())
        hit = np.zeros(index.rows, dtype=bool)
        hit[find(index, words_of(query), edits)] = True
        known = index.known
        if at is not None:
            there = at >= 0
            hit, known = hit[at], known[at] & there
        return pa.array(hit, mask=~known)

    return predicate


def _constant(value: Datum) -> Any:
    if isinstance(value, pa.Scalar):
        return value.as_py()
    distinct = value.unique()
    if len(distinct) > 1:
        raise Internal("a search text that differs by row")
    return distinct[0].as_py() if len(distinct) else None


def _any_word(index: TextIndex, words: list[str], edits: int) -> Longs:
    numbers = [n for w in dict.fromkeys(words) if (n := index.number(w)) >= 0]
    return _rows(index, numbers)


def _rows(index: TextIndex, numbers: Sequence[int]) -> Longs:
    found = [index.rows_of(n) for n in numbers]
    return np.concatenate(found) if found else np.zeros(0, dtype=np.int64)


def _phrase(index: TextIndex, words: list[str], edits: int) -> Longs:
    return phrase_rows(index, words)


def phrase_rows(index: TextIndex, words: list[str]) -> Longs:
    """The rows whose text has the words one after another."""
    numbers = [index.number(w) for w in words]
    if not numbers or min(numbers) < 0:
        return np.zeros(0, dtype=np.int64)
    rarest = min(range(len(numbers)), key=lambda i: len(index.places(numbers[i])))
    begins = index.places(numbers[rarest]) - rarest
    begins = begins[(begins >= 0) & (begins + len(numbers) <= len(index.codes))]
    for i, number in enumerate(numbers):
        begins = begins[index.codes[begins + i] == number]
    rows = index.rows_at(begins)
    return np.asarray(rows[index.rows_at(begins + len(numbers) - 1) == rows], dtype=np.int64)


def _near(index: TextIndex, words: list[str], edits: int) -> Longs:
    numbers = [near_words(index.words, word, edits) for word in dict.fromkeys(words)]
    return _rows(index, np.unique(np.concatenate(numbers)).tolist() if numbers else [])


def near_words(words: Array, word: str, edits: int) -> Longs:
    """Indices of the words within `edits` of one: Levenshtein's table, one column for all words at a time."""
    sizes = pc.utf8_length(words).to_numpy(zero_copy_only=False)
    candidates = np.flatnonzero(np.abs(sizes - len(word)) <= edits)
    if not len(candidates):
        return candidates.astype(np.int64)
    table = _characters(words.take(pa.array(candidates)), len(word) + edits)
    lengths = sizes[candidates]
    row = np.tile(np.arange(table.shape[1] + 1), (len(candidates), 1))  # distances to the empty beginning
    for i, character in enumerate(word):
        above = row
        row = np.empty_like(above)
        row[:, 0] = i + 1
        change = above[:, :-1] + (table != ord(character))
        for j in range(table.shape[1]):
            best = np.minimum(change[:, j], above[:, j + 1] + 1)
            row[:, j + 1] = np.minimum(best, row[:, j] + 1)
    return np.asarray(candidates[row[np.arange(len(candidates)), lengths] <= edits], dtype=np.int64)


def _characters(words: Array, width: int) -> npt.NDArray[np.uint32]:
    """One row of code points a word, filled up with zeros."""
    padded = pc.utf8_rpad(words, width=width, padding="\x00")
    text = "".join(padded.to_pylist()).encode("utf-32-le")
    return np.frombuffer(text, dtype=np.uint32).reshape(len(words), width)
