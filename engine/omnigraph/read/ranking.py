"""`nearest`, `bm25` and `rrf`: a number in each row, null where a row isn't ranked.

`nearest` is the cosine distance, 1 − cos; `bm25` scores a text against a query's words with k1 = 1.2 and b = 0.75, over
the statistics of the whole column (Robertson and Zaragoza 2009; the logarithm is of 1 + …, so that no word counts less
than nothing);
`rrf` is Σ 1 / (k + rank) over two rankings (Cormack et al. 2009), rank 1 being the best of the nodes that match.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.errors import Internal
from omnigraph.query.ir import Call, Expr, Lit, Prop
from omnigraph.read.compute import Array
from omnigraph.read.datum import Bools, Datum, Evaluate, Fault, Longs
from omnigraph.read.env import FrameEnv
from omnigraph.read.expand import WAY
from omnigraph.read.expr import compile_expr
from omnigraph.read.frame import Context, Frame
from omnigraph.read.question import question_vector
from omnigraph.read.search import text_index
from omnigraph.read.tables import ROW_ID, Rows, sort_codes
from omnigraph.read.tokens import TextIndex, words_of

__all__ = ["Ranking", "bm25_scores", "is_ranking", "make_ranking"]

Floats = npt.NDArray[np.float64]

K1, B = 1.2, 0.75


def is_ranking(expr: Expr) -> bool:
    return isinstance(expr, Call) and expr.fn in ("nearest", "bm25", "rrf")


def make_ranking(expr: Expr) -> Ranking:
    """The compiled form of a ranking."""
    match expr:
        case Call(fn="nearest", args=(Prop() as prop, query, _)):
            return Nearest(prop, compile_expr(query))
        case Call(fn="bm25", args=(Prop() as prop, query)):
            return Bm25(prop, compile_expr(query))
        case Call(fn="rrf", args=(first, second, Lit(int() as k, _))):
            return Rrf(make_ranking(first), make_ranking(second), k)
    raise Internal(f"no plan for the ranking {expr!r}")


@dataclass(frozen=True, slots=True, eq=False)
class _Ranked:
    """Scores of the distinct rows a variable points to in a frame."""

    rows: Rows
    at: Longs  # the distinct rows
    back: Longs  # of each frame row: its index in `at`
    scores: Floats
    known: Bools

    def ranks(self, *, descending: bool) -> Longs:
        """The rank of each distinct row from 1 on, ties by id; 0 where it isn't ranked."""
        ids = sort_codes(self.rows.column("id").take(pa.array(self.at, mask=self.at < 0)))
        order = np.lexsort((ids, -self.scores if descending else self.scores, ~self.known))
        out = np.zeros(len(self.at), dtype=np.int64)
        out[order] = np.arange(1, len(order) + 1)
        return np.where(self.known, out, 0)

    def column(self) -> Array:
        return pa.array(self.scores[self.back], pa.float64(), mask=~self.known[self.back])


def _distinct(frame: Frame, var: str) -> tuple[Rows, Longs, Longs]:
    bound = frame.bound[var]
    at, back = np.unique(bound.at, return_inverse=True)
    return bound.rows, at.astype(np.int64), back


@dataclass(frozen=True, slots=True, eq=False)
class Nearest:
    prop: Prop
    query: Evaluate
    descending = False

    def ranked(self, ctx: Context, frame: Frame) -> _Ranked:
        rows, at, back = _distinct(frame, self.prop.var)
        query = self._vector(ctx, frame)
        column = rows.column(self.prop.name)
        if query is None:
            return _Ranked(rows, at, back, np.zeros(len(at)), np.zeros(len(at), dtype=bool))
        taken = column.take(pa.array(at, mask=at < 0))
        known = np.asarray(taken.is_valid().to_numpy(zero_copy_only=False))
        matrix = taken.filter(pa.array(known)).flatten().to_numpy(zero_copy_only=False).reshape(-1, len(query))
        # Row by row in one order of summation, so that equal vectors have equal distances whatever stands around them.
        dots = np.einsum("ij,j->i", matrix, query)
        norms = np.sqrt(np.einsum("ij,ij->i", matrix, matrix, dtype=np.float64))
        usable = norms > 0
        scores = np.zeros(len(at))
        scores[known] = 1.0 - dots / np.where(usable, norms * np.sqrt(float(query @ query)), 1.0)
        known[known] = usable
        return _Ranked(rows, at, back, scores, known)

    def _vector(self, ctx: Context, frame: Frame) -> Floats | None:
        value = self.query(FrameEnv(ctx, frame))
        found = value.as_py() if isinstance(value, pa.Scalar) else None
        if found is None:
            return None
        if isinstance(found, str):
            return question_vector(ctx, frame.bound[self.prop.var].rows.table_key, self.prop, found)
        query = np.asarray(found, dtype=np.float64)
        if len(query) != self.prop.type.dim:
            raise Fault(f"nearest: {len(query)} numbers, and the vectors have {self.prop.type.dim}", code="bad_value")
        if not np.isfinite(query).all() or not query.any():
            raise Fault("nearest: a vector that is all zeros, or not finite, is near nothing", code="zero_vector")
        return query

    def value(self, ctx: Context, frame: Frame) -> Datum:
        return self.ranked(ctx, frame).column()


def bm25_scores(index: TextIndex, words: list[str]) -> tuple[Longs, Floats]:
    """(rows that have any of the words, their scores)."""
    scores = np.zeros(index.rows)
    total = int(index.known.sum())
    mean = float(index.lengths.sum()) / total if total else 1.0
    hit = np.zeros(index.rows, dtype=bool)
    for word in dict.fromkeys(words):
        number = index.number(word)
        if number < 0:
            continue
        rows, times = index.counts(number)
        rarity = np.log(1.0 + (total - len(rows) + 0.5) / (len(rows) + 0.5))
        norm = times + K1 * (1 - B + B * index.lengths[rows] / mean)
        scores[rows] += rarity * times * (K1 + 1) / norm
        hit[rows] = True
    rows = np.flatnonzero(hit)
    return rows, scores[rows]


@dataclass(frozen=True, slots=True, eq=False)
class Bm25:
    prop: Prop
    query: Evaluate
    descending = True

    def ranked(self, ctx: Context, frame: Frame) -> _Ranked:
        rows, at, back = _distinct(frame, self.prop.var)
        value = self.query(FrameEnv(ctx, frame))
        text = value.as_py() if isinstance(value, pa.Scalar) else None
        scores, known = np.zeros(len(at)), np.zeros(len(at), dtype=bool)
        if text is not None:
            table, places = self._whole(ctx, rows, at)
            found, score = bm25_scores(text_index(table, self.prop.name), words_of(text))
            if len(found):
                spot = np.minimum(np.searchsorted(found, places), len(found) - 1)
                known = found[spot] == places
                scores = np.where(known, score[spot], 0.0)
        return _Ranked(rows, at, back, scores, known)

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

    def value(self, ctx: Context, frame: Frame) -> Datum:
        return self.ranked(ctx, frame).column()


@dataclass(frozen=True, slots=True, eq=False)
class Rrf:
    first: Ranking
    second: Ranking
    k: int
    descending = True

    def value(self, ctx: Context, frame: Frame) -> Datum:
        score = np.zeros(frame.length)
        known = np.zeros(frame.length, dtype=bool)
        for ranking in (self.first, self.second):
            if isinstance(ranking, Rrf):
                raise Internal("rrf of an rrf")
            ranked = ranking.ranked(ctx, frame)
            rank = ranked.ranks(descending=ranking.descending)[ranked.back]
            score += np.where(rank > 0, 1.0 / (self.k + rank), 0.0)
            known |= rank > 0
        return pa.array(score, pa.float64(), mask=~known)


Ranking: TypeAlias = Nearest | Bm25 | Rrf
