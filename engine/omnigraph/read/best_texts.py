"""The best rows by `bm25`, without a score for every row.

A word gives no text more than its rarity times K1 + 1. So once the rows with the rarer words are scored, whole, and the
last one wanted of them scores more than the other words could give together, nobody else is among the first: the rows
with the commonest words are the most, and are seldom asked (Turtle and Flood 1995). Scores are those of every row, to
the last bit.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from omnigraph.read.datum import Longs
from omnigraph.read.distinct import once
from omnigraph.read.frame import Indices as Ints
from omnigraph.read.postings import TextIndex
from omnigraph.records import dataclass

__all__ = ["Floats", "Weighed", "best_rows", "weighed"]

Floats = npt.NDArray[np.float64]

K1, B = 1.2, 0.75

_FEW = 32  # of so many rows one at most is looked up among the rows of each word; more are scored with all


@dataclass(frozen=True, slots=True, eq=False)
class Weighed:
    """A word of a question.

    Args:
        rows: those that have it, ascending.
        times: how often each has it.
    """

    index: TextIndex
    rows: Ints
    times: npt.NDArray[np.int32]
    rarity: float
    mean: float

    @property
    def most(self) -> float:
        """What it gives at most."""
        return self.rarity * (K1 + 1)

    def scores(self) -> Floats:
        """What it gives each of its rows."""
        return self._scores(self.rows, self.times)

    def add(self, rows: Ints, scores: Floats) -> None:
        """Add to the scores of some rows what it gives them."""
        if not len(self.rows):
            return
        spot = np.minimum(self.rows.searchsorted(rows), len(self.rows) - 1)
        here = np.flatnonzero(self.rows[spot] == rows)
        scores[here] += self._scores(rows[here], self.times[spot[here]])

    def _scores(self, rows: Ints, times: npt.NDArray[np.int32]) -> Floats:
        norm = times + K1 * (1 - B + B * self.index.lengths[rows] / self.mean)
        found: Floats = self.rarity * times * (K1 + 1) / norm
        return found


def weighed(index: TextIndex, words: Sequence[str], texts: int, length: int) -> list[Weighed]:
    """Each different word that a row has.

    Args:
        texts, length: of the whole column: how many texts, how many words in them.
    """
    mean = length / texts if texts else 1.0
    out = []
    for word in dict.fromkeys(words):
        number = index.number(word)
        if number >= 0:
            rows, times = index.counts(number)
            rarity = float(np.log(1.0 + (texts - len(rows) + 0.5) / (len(rows) + 0.5)))
            out.append(Weighed(index, rows, times, rarity, mean))
    return out


def best_rows(words: Sequence[Weighed], count: int, among: Ints | None) -> tuple[Longs, Floats] | None:
    """(rows that may be among the first `count`, all that tie with the last of them included, ascending; their scores).

    None where it takes so many rows that scoring all is quicker.

    Args:
        among: the rows asked about, ascending, each once; None for all.
    """
    rarest = sorted(words, key=lambda word: len(word.rows))
    others = sum(word.most for word in rarest)
    asked: list[Ints] = []
    for word in rarest:
        asked.append(word.rows)
        others -= word.most
        if count < 1 or sum(map(len, asked)) * _FEW > word.index.rows:
            return None
        rows = asked[0] if len(asked) == 1 else once(np.concatenate(asked))
        if among is not None:
            rows = _both(rows, among)
        scores = np.zeros(len(rows))
        for each in words:
            each.add(rows, scores)
        if len(rows) >= count:
            edge = np.partition(scores, len(scores) - count)[len(scores) - count]
            if edge > others or word is rarest[-1]:
                chosen = np.flatnonzero(scores >= edge)
                return rows[chosen].astype(np.int64), scores[chosen]
        elif word is rarest[-1]:
            return rows.astype(np.int64), scores
    return np.zeros(0, dtype=np.int64), np.zeros(0)


def _both(rows: Ints, among: Ints) -> Ints:
    if not len(among):
        return rows[:0]
    spot = np.minimum(among.searchsorted(rows), len(among) - 1)
    both: Ints = rows[among[spot] == rows]
    return both
