"""`nearest`, `bm25` and `rrf`: a number in each row, null where a row isn't ranked.

`nearest` is the cosine distance, 1 − cos (see `nearness`); `bm25` scores a text against a query's words with k1 = 1.2
and b = 0.75, over the statistics of the whole column (Robertson and Zaragoza 2009; the logarithm is of 1 + …, so that
no word counts less than nothing);
`rrf` is Σ 1 / (k + rank) over two rankings (Cormack et al. 2009), rank 1 being the best of the nodes that match.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import pyarrow as pa

from omnigraph.errors import Internal
from omnigraph.query.ir import Call, Expr, Lit, Param, Prop
from omnigraph.read.best_texts import best_rows, weighed
from omnigraph.read.compute import Array
from omnigraph.read.datum import Datum, Evaluate, Fault, Longs
from omnigraph.read.distinct import once
from omnigraph.read.env import FrameEnv
from omnigraph.read.expand import WAY
from omnigraph.read.expr import compile_expr
from omnigraph.read.frame import Context, Counted, Frame
from omnigraph.read.nearness import nearness
from omnigraph.read.postings import TextIndex
from omnigraph.read.question import question_vector
from omnigraph.read.search import text_index
from omnigraph.read.standing import Floats, Standing, distinct_rows
from omnigraph.read.tables import ROW_ID, Rows
from omnigraph.read.tokens import words_of
from omnigraph.records import dataclass

__all__ = ["Ranking", "bm25_scores", "is_ranking", "make_ranking"]


def is_ranking(expr: Expr) -> bool:
    return isinstance(expr, Call) and expr.fn in ("nearest", "bm25", "rrf")


def make_ranking(expr: Expr) -> Ranking:
    """The compiled form of a ranking."""
    match expr:
        case Call(fn="nearest", args=(Prop() as prop, query, _)):
            return Nearest(prop, compile_expr(query), query if isinstance(query, Param) else None)
        case Call(fn="bm25", args=(Prop() as prop, query)):
            return Bm25(prop, compile_expr(query))
        case Call(fn="rrf", args=(first, second, Lit(int() as k, _))):
            return Rrf(make_ranking(first), make_ranking(second), k)
    raise Internal(f"no plan for the ranking {expr!r}")


def _nobody(rows: Rows, at: Longs, back: Longs | None) -> Standing:
    none = np.zeros(len(at), dtype=bool)
    return Standing(rows, at, back, np.zeros(len(at)), 0.0, none, lambda some: np.zeros(len(some)), less=False)


def _first(standing: Standing, count: int, *, worst: bool) -> tuple[Longs, Array]:
    rows = standing.frame_rows(standing.first(count, worst=worst))
    values = standing.value(rows if standing.back is None else standing.back[rows])
    return rows, pa.array(values, pa.float64())


@dataclass(frozen=True, slots=True, eq=False)
class Nearest:
    prop: Prop
    query: Evaluate
    param: Param | None  # what the query is, where it is no more than that
    descending = False

    def standing(self, ctx: Context, frame: Frame) -> Standing:
        bound = frame.bound[self.prop.var]
        at, back = distinct_rows(bound)
        query = self.vector(ctx, frame)
        if query is None:
            return _nobody(bound.rows, at, back)
        return nearness(bound.rows, self.prop.name, at, back, query)

    def vector(self, ctx: Context, frame: Frame) -> Floats | None:
        """What is asked about; None where that is null."""
        if self.param is not None:
            found = ctx.params.get(self.param.name)
        else:
            value = self.query(FrameEnv(ctx, frame))
            found = value.as_py() if isinstance(value, pa.Scalar) else None
        if found is None:
            return None
        if isinstance(found, str):
            return question_vector(ctx, frame.bound[self.prop.var].rows.table_key, self.prop, found)
        query = np.asarray(found, dtype=np.float32).astype(np.float64)
        if len(query) != self.prop.type.dim:
            raise Fault(f"nearest: {len(query)} numbers, and the vectors have {self.prop.type.dim}", code="bad_value")
        if not np.isfinite(query).all() or not query.any():
            raise Fault("nearest: a vector that is all zeros, or not finite, is near nothing", code="zero_vector")
        return query

    def first(self, ctx: Context, frame: Frame, count: int, *, descending: bool) -> tuple[Longs, Array]:
        """See `Ranking`."""
        return _first(self.standing(ctx, frame), count, worst=descending != self.descending)

    def value(self, ctx: Context, frame: Frame) -> Datum:
        return self.standing(ctx, frame).column()


def bm25_scores(index: TextIndex, words: list[str], counted: Counted | None = None) -> Floats:
    """The score of every row; 0 where it has none of the words.

    Args:
        counted: the statistics of the whole column, where the index has only the rows with one of the words.
    """
    scores = np.zeros(index.rows)
    texts, length = (index.texts, len(index.codes)) if counted is None else (counted.texts, counted.length)
    for word in weighed(index, words, texts, length):
        scores[word.rows] += word.scores()
    return scores


@dataclass(frozen=True, slots=True, eq=False)
class Bm25:
    prop: Prop
    query: Evaluate
    descending = True

    def standing(self, ctx: Context, frame: Frame) -> Standing:
        bound = frame.bound[self.prop.var]
        at, back = distinct_rows(bound)
        words = self._words(ctx, frame)
        if words is None:
            return _nobody(bound.rows, at, back)
        counted = ctx.counted.get((bound.rows.table_key, self.prop.name))
        if counted is not None and not bound.rows.whole and counted.words.issuperset(words):
            table, places = bound.rows, at
        else:
            counted = None
            table, places = self._whole(ctx, bound.rows, at)
        if not table.rows:
            return _nobody(bound.rows, at, back)
        scores = bm25_scores(text_index(table, self.prop.name), words, counted)
        if bound.whole and table is bound.rows:
            known = scores > 0
        else:
            scores = scores[places]
            known = (scores > 0) & (places >= 0)
        return Standing(bound.rows, at, back, scores, 0.0, known, lambda some: scores[some], less=False)

    def _words(self, ctx: Context, frame: Frame) -> list[str] | None:
        """Those of the text that is asked about; None where that is null."""
        value = self.query(FrameEnv(ctx, frame))
        text = value.as_py() if isinstance(value, pa.Scalar) else None
        return None if text is None else words_of(text)

    def _best(self, ctx: Context, frame: Frame, count: int) -> tuple[Longs, Floats] | None:
        """The frame rows that may be among the best, and their scores; None where all rows have to be scored."""
        bound = frame.bound[self.prop.var]
        at = bound.at
        if not bound.rows.whole or not bound.rows.rows:
            return None
        if not bound.whole and len(at) and (int(at[0]) < 0 or not bool((at[1:] > at[:-1]).all())):
            return None
        words = self._words(ctx, frame)
        if words is None:
            return None
        index = text_index(bound.rows, self.prop.name)
        known = weighed(index, words, index.texts, len(index.codes))
        found = best_rows(known, count, None if bound.whole else at)
        if found is None or bound.whole:
            return found
        return at.searchsorted(found[0]), found[1]

    def _whole(self, ctx: Context, rows: Rows, at: Longs) -> tuple[Rows, Longs]:
        """The whole table: the statistics are those of all rows, however few were read."""
        if rows.whole:
            return rows, at
        names = ["id", self.prop.name]
        tables = [ctx.tables.get(ctx.snapshot, key).load(ctx.snapshot, names) for key in rows.table_key.split("|")]
        if len(tables) == 1:
            there = at >= 0
            places = np.full(len(at), -1, dtype=np.int64)
            places[there] = tables[0].places(rows.row_ids()[at[there]])
            return tables[0], places
        whole = pa.concat_arrays([table.column(self.prop.name) for table in tables])
        begin = np.cumsum([0, *(table.rows for table in tables[:-1])])
        way, row_ids = (rows.column(name).to_numpy(zero_copy_only=False) for name in (WAY, ROW_ID))
        places = np.empty(rows.rows, dtype=np.int64)
        for number, table in enumerate(tables):
            places[way == number] = begin[number] + table.places(row_ids[way == number])
        return Rows(rows.table_key, len(whole), {self.prop.name: whole}), np.where(at < 0, -1, places[at])

    def first(self, ctx: Context, frame: Frame, count: int, *, descending: bool) -> tuple[Longs, Array]:
        """See `Ranking`."""
        found = self._best(ctx, frame, count) if descending else None
        if found is not None:
            return found[0], pa.array(found[1], pa.float64())
        return _first(self.standing(ctx, frame), count, worst=descending != self.descending)

    def value(self, ctx: Context, frame: Frame) -> Datum:
        return self.standing(ctx, frame).column()


@dataclass(frozen=True, slots=True, eq=False)
class Rrf:
    one: Ranking
    other: Ranking
    k: int
    descending = True

    def _standings(self, ctx: Context, frame: Frame) -> list[Standing]:
        if isinstance(self.one, Rrf) or isinstance(self.other, Rrf):
            raise Internal("rrf of an rrf")
        return [self.one.standing(ctx, frame), self.other.standing(ctx, frame)]

    def _scores(self, standings: list[Standing], rows: Longs) -> Array:
        """The score of some frame rows."""
        score, known = np.zeros(len(rows)), np.zeros(len(rows), dtype=bool)
        for standing in standings:
            asked, back = np.unique(rows if standing.back is None else standing.back[rows], return_inverse=True)
            rank = standing.ranks(asked)[back]
            score += np.where(rank > 0, 1.0 / (self.k + rank), 0.0)
            known |= rank > 0
        return pa.array(score, pa.float64(), mask=~known)

    def first(self, ctx: Context, frame: Frame, count: int, *, descending: bool) -> tuple[Longs, Array]:
        """See `Ranking`.

        The first `count` of one ranking score at least 1 / (k + count) each. Whoever stands behind place k + 2 count in
        both scores less, and can't be among the first.
        """
        standings = self._standings(ctx, frame)
        far = self.k + 2 * count
        if not descending or max(int(np.count_nonzero(s.known)) for s in standings) < count:
            rows: Longs = np.arange(frame.length)
        else:
            rows = once(np.concatenate([s.frame_rows(s.first(far)) for s in standings]))
        return rows, self._scores(standings, rows)

    def value(self, ctx: Context, frame: Frame) -> Datum:
        return self._scores(self._standings(ctx, frame), np.arange(frame.length))


Ranking: TypeAlias = Nearest | Bm25 | Rrf
"""`value` is the number in each row of a frame. `first` are the frame rows that may be among the first `count` when the
ranking orders them, all that tie with the last of them included and none that isn't ranked, and their values."""
