"""Rows that a word search may find, through the table's index of words, while its texts aren't in memory.

The index cuts texts as we do but for some characters (accents written behind their letter, a capital sigma, rare
letters): texts with any but the characters below are candidates of every search. What the index and that leave is
tested again, so the answer is that of reading everything.
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import numpy.typing as npt

from omnigraph.query.ir import Call, Expr, Lit, Param, Prop
from omnigraph.read.compute import Array, pc
from omnigraph.read.frame import Context
from omnigraph.read.tables import ROW_ID
from omnigraph.read.tokens import count_words, words_of
from omnigraph.read.walk import conjuncts
from omnigraph.records import dataclass

__all__ = ["COMMON", "TextFacts", "WordSearch", "text_facts", "words_asked"]

COMMON = (
    "\\x00-\\x{12f}\\x{131}-\\x{137}\\x{139}-\\x{17f}"  # Latin
    "\\x{391}-\\x{3a1}\\x{3a4}-\\x{3a9}\\x{3ac}-\\x{3ce}\\x{400}-\\x{45f}"  # Greek, Cyrillic
    "\\x{5d0}-\\x{5ea}\\x{621}-\\x{64a}"  # Hebrew and Arabic letters
    "\\x{2010}-\\x{2027}\\x{2030}-\\x{205e}\\x{20a0}-\\x{20a7}\\x{20a9}-\\x{20bf}\\x{2190}-\\x{23ff}"  # signs
    "\\x{3000}-\\x{3029}\\x{3041}-\\x{3096}\\x{309b}-\\x{30ff}\\x{4e00}-\\x{9ffc}\\x{ac00}-\\x{d7a3}"  # CJK
    "\\x{ff01}-\\x{ff5e}\\x{1f300}-\\x{1f5ff}\\x{1f600}-\\x{1f64f}"
)
"""Characters that index and tokenizer take alike, as a class of a regular expression; a test asks the index itself."""

RowIds = npt.NDArray[np.uint64]

_SHARE = 10  # more candidates than one in so many rows are no job for an index


@dataclass(frozen=True, slots=True)
class WordSearch:
    """A condition `search` or `match_text` with a constant query.

    Args:
        every: all of the words must be there.
    """

    column: str
    words: tuple[str, ...]
    every: bool

    def row_ids(self, ctx: Context, table_key: str, filter: str | None, *, counted: bool = False) -> RowIds | None:
        """Candidates among the rows of a filter, and some that it wouldn't let pass; None where they are too many.

        Args:
            counted: the column's words will be asked for too (see `text_facts`).
        """
        if not self.words:
            return np.zeros(0, dtype=np.uint64)
        most = ctx.snapshot.tables[table_key].row_count // _SHARE
        found = ctx.snapshot.find_words(
            table_key, self.column, list(self.words), every=self.every, most=most + 1, filter=filter
        )
        if len(found) > most:
            return None
        strange = text_facts(ctx, table_key, self.column, counted=counted).strange
        return None if len(strange) > most else np.union1d(found, strange)


@dataclass(frozen=True, slots=True, eq=False)
class TextFacts:
    """What one pass over a column of texts tells.

    Args:
        strange: rows with other characters than `COMMON`.
        texts: rows that have a text.
        words: words of all of them; None where they weren't counted.
    """

    strange: RowIds
    texts: int
    words: int | None

    @property
    def nbytes(self) -> int:
        return int(self.strange.nbytes)


def text_facts(ctx: Context, table_key: str, column: str, *, counted: bool) -> TextFacts:
    """The facts of a column, kept for the table's version.

    Args:
        counted: whether the words must be counted.
    """
    key = ("texts", ctx.snapshot.fingerprint(table_key), column)
    kept: Any = ctx.tables.kept.get(key)
    if kept is not None and (kept.words is not None or not counted):
        return cast("TextFacts", kept)
    strange, present, words = [np.zeros(0, dtype=np.uint64)], 0, 0
    for batch in ctx.snapshot.scan_batches(table_key, [column, ROW_ID]):
        ctx.check()
        texts: Array = batch.column(column)
        present += len(texts) - texts.null_count
        words += count_words(texts) if counted else 0
        beyond = batch.filter(pc.fill_null(pc.invert(pc.string_is_ascii(texts)), False))
        other = pc.match_substring_regex(beyond.column(column), pattern=f"[^{COMMON}]")
        strange.append(beyond.filter(other).column(ROW_ID).to_numpy())
    facts = TextFacts(np.concatenate(strange), present, words if counted else None)
    if kept is not None:
        ctx.tables.kept.drop(key)
    ctx.tables.kept.add(key, facts)
    ctx.tables.settle()
    return facts


def words_asked(ctx: Context, table_key: str, where: Expr | None) -> WordSearch | None:
    """The condition of a scan that an index of words can answer; of several the one that likely leaves the fewest."""
    found = []
    for condition in conjuncts(where):
        match condition:
            case Call(fn="search" | "match_text" as fn, args=(Prop(name=column), (Lit() | Param()) as query)):
                text = query.value if isinstance(query, Lit) else ctx.params.get(query.name)
                if isinstance(text, str) and ctx.snapshot.words_index(table_key, column) is not None:
                    found.append(WordSearch(column, tuple(dict.fromkeys(words_of(text))), every=fn == "match_text"))
    return max(found, key=lambda s: (not s.words, s.every, len(s.words) if s.every else -len(s.words)), default=None)
