"""How the distinct rows of a variable stand in a ranking: who may be among the first, and who has which rank.

A ranking gives every row a likely value, as quickly as it can, and the value itself for the few rows that matter. The
likely ones are within `slack` of the truth, so what is chosen by them is exact once the rows near the edge are judged
by their true values, ties by id.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.read.compute import Array
from omnigraph.read.datum import Bools, Longs
from omnigraph.read.distinct import once
from omnigraph.read.frame import Binding
from omnigraph.read.tables import Rows, sort_codes
from omnigraph.records import dataclass

__all__ = ["Floats", "Standing", "distinct_rows"]

Floats = npt.NDArray[np.float64]


def distinct_rows(bound: Binding) -> tuple[Longs, Longs | None]:
    """(the distinct rows a variable points to, the index among them of each frame row; None where each is its own)."""
    at = np.asarray(bound.at)
    if len(at) < 2 or bound.whole or bool((at[1:] > at[:-1]).all()):
        return at.astype(np.int64, copy=False), None
    distinct, back = np.unique(at, return_inverse=True)
    return distinct.astype(np.int64), back


@dataclass(frozen=True, slots=True, eq=False)
class Standing:
    """Rows by index, from 0 on.

    Args:
        rows, at: the rows themselves; a negative position is null and isn't ranked.
        back: of each frame row, which of them it is; None where each frame row is its own.
        likely: about how good each is, more is better.
        slack: how far that may be from the truth.
        known: which are ranked.
        value: the value of some ranked rows, exactly.
        less: whether a lesser value is better.
    """

    rows: Rows
    at: Longs
    back: Longs | None
    likely: npt.NDArray[np.floating]
    slack: float
    known: Bools
    value: Callable[[Longs], Floats]
    less: bool

    def column(self) -> Array:
        """The value in each frame row, null where it isn't ranked."""
        ranked = np.flatnonzero(self.known)
        values = np.zeros(len(self.at))
        values[ranked] = self.value(ranked)
        if self.back is None:
            return pa.array(values, pa.float64(), mask=~self.known)
        return pa.array(values[self.back], pa.float64(), mask=~self.known[self.back])

    def first(self, count: int, *, worst: bool = False) -> Longs:
        """All rows that may be among the first `count` (or the last), those tied with the last of them included."""
        ranked = np.flatnonzero(self.known)
        if count >= len(ranked):
            return ranked
        if count <= 0:
            return ranked[:0]
        likely = self.likely if len(ranked) == len(self.known) else self.likely[ranked]
        likely = likely if worst else -likely
        edge = np.partition(likely, count - 1)[count - 1]
        chosen: Longs = ranked[likely <= edge + 2 * self.slack]
        return chosen

    def frame_rows(self, chosen: Longs) -> Longs:
        """The frame rows that are one of these."""
        if self.back is None:
            return chosen
        mask = np.zeros(len(self.at), dtype=bool)
        mask[chosen] = True
        return np.flatnonzero(mask[self.back])

    def ranks(self, asked: Longs) -> Longs:
        """The rank of each row from 1 on, among all; 0 where it isn't ranked."""
        out = np.zeros(len(asked), dtype=np.int64)
        ranked = np.flatnonzero(self.known)
        if not len(ranked) or not len(asked):
            return out
        order = ranked[np.argsort(-self.likely[ranked])]
        if len(asked) * 8 > len(ranked):
            rank = np.zeros(len(self.at), dtype=np.int64)
            rank[order[np.lexsort((self._ids(order), -self._good(order)))]] = np.arange(1, len(order) + 1)
            return rank[asked]
        here = np.flatnonzero(self.known[asked])
        mine = asked[here]
        good, ids = self._good(mine), self._ids(mine)
        # Between these two ends stand the rows that the likely values can't tell from a row.
        falling = -self.likely[order].astype(np.float64)
        about = -self.likely[mine].astype(np.float64)
        low = np.searchsorted(falling, about - 2 * self.slack, side="left")
        high = np.searchsorted(falling, about + 2 * self.slack, side="right")
        spots = once(np.concatenate([np.arange(a, b) for a, b in zip(low, high, strict=True)]))
        near_good, near_ids = self._good(order[spots]), self._ids(order[spots])
        for i, (a, b) in enumerate(zip(np.searchsorted(spots, low), np.searchsorted(spots, high), strict=True)):
            others = near_good[a:b]
            ahead = (others > good[i]) | ((others == good[i]) & (near_ids[a:b] < ids[i]))
            out[here[i]] = low[i] + 1 + np.count_nonzero(ahead)
        return out

    def _good(self, chosen: Longs) -> Floats:
        value = self.value(chosen)
        return -value if self.less else value

    def _ids(self, chosen: Longs) -> Longs:
        """Integers that sort as the ids do; comparable within the table where it is whole."""
        at = self.at[chosen]
        if self.rows.whole:
            return self.rows.id_rank()[at]
        ranks = self.rows.derived(
            "rank", "id of some", lambda: np.asarray(sort_codes(self.rows.column("id")), np.int64)
        )
        return ranks[at]
