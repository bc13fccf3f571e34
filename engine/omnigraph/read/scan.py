"""Binding a variable to the rows of a table that satisfy its conditions.

Warm, conditions run over cached columns, and an equality on the key goes through the id map. Cold, the first selective
question to a big table reads just its rows through a Lance scan with the conditions as its filter (indexes answer);
asked again, the needed columns are cached.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime
from typing import Any, TypeVar, cast

import numpy as np
import numpy.typing as npt

from omnigraph.query.ir import Call, Expr, Lit, Param, Prop
from omnigraph.read.datum import Evaluate
from omnigraph.read.env import rows_where
from omnigraph.read.frame import Binding, Context, Frame, Indices
from omnigraph.read.hops import REFRESHED
from omnigraph.read.memory import Memory, Run
from omnigraph.read.show import Shown
from omnigraph.read.tables import TableData
from omnigraph.read.value_positions import ByValue, rows_by_value
from omnigraph.read.walk import conjuncts
from omnigraph.read.word_lookup import WordSearch, words_asked
from omnigraph.records import dataclass
from omnigraph.schema.literals import BOUNDS
from omnigraph.storage.conditions import literal

__all__ = ["ScanStep", "pushed_filter"]

_SQL = {"=": "=", "!=": "!=", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_MIRRORED = {"<": ">", ">": "<", "<=": ">=", ">=": "<="}


_LITERALS = 10_000  # above this many values reading the column is quicker than looking each one up
Numbers = TypeVar("Numbers", bound=npt.NDArray[np.integer[Any]])
_AT_ONCE = 1 << 20  # combinations between two looks at the query's limits


def _literal(value: Any, base: str) -> str | None:
    """A value in Lance's SQL, or None where it has no form that is surely right, or the column could never hold it."""
    low, high = BOUNDS.get(base, (0, 0))
    if isinstance(value, date) and isinstance(value, datetime) != (base == "DateTime"):
        return None  # Lance would cut the time of day off one of the two
    return None if isinstance(value, int) and base in BOUNDS and not low <= value <= high else literal(value)


def _pushed(condition: Expr, params: Any) -> str | None:
    """One condition in SQL; None where it stays behind. Every pushed condition is tested again on what came back."""
    if not isinstance(condition, Call) or len(condition.args) != 2:
        return None
    left, right = condition.args
    fn = condition.fn
    if fn in _SQL and isinstance(right, Prop) and not isinstance(left, Prop):
        left, right, fn = right, left, _MIRRORED.get(fn, fn)
    if not isinstance(left, Prop) or not isinstance(right, (Lit, Param)):
        return None
    if left.type.list or left.type.base in ("F32", "F64"):
        return None  # Lance rounds a literal to the type of its column, the language widens the column
    value = right.value if isinstance(right, Lit) else params.get(right.name)
    if fn == "starts_with" and isinstance(value, str):
        return _prefixed(left.name, value)
    if fn == "in" and isinstance(value, (list, tuple)):
        if len(value) > _LITERALS:
            return None
        texts = [_literal(v, left.type.base) for v in value if v is not None]
        known = [t for t in texts if t is not None]
        return f"`{left.name}` IN ({', '.join(known)})" if known and len(known) == len(texts) else None
    if fn not in _SQL or right.type.base in ("F32", "F64"):
        return None
    text = _literal(value, left.type.base)
    return None if text is None else f"`{left.name}` {_SQL[fn]} {text}"


def _prefixed(name: str, prefix: str) -> str | None:
    """The texts from the prefix on to before the next one that doesn't begin with it; texts are ordered by their bytes,
    which is the order of their code points."""
    if not prefix:
        return None
    least, rest = f"`{name}` >= {literal(prefix)}", prefix.rstrip("\U0010ffff")
    if not rest:
        return least  # nothing comes after the last code point
    after = ord(rest[-1]) + 1
    end = rest[:-1] + chr(0xE000 if after == 0xD800 else after)  # surrogates are no code points of a text
    return f"{least} AND `{name}` < {literal(end)}"


def pushed_filter(where: Expr | None, params: Any) -> str | None:
    """The conditions a Lance scan can take, as its SQL; None if there is none."""
    parts = [text for c in conjuncts(where) if (text := _pushed(c, params)) is not None]
    return " AND ".join(parts) if parts else None


_SCAN, _CELL, _ID, _WORDS = 1500.0, 0.05, 0.2, 5.0
"""Microseconds: of a selective scan, of a value read, of an id hashed, of a text cut into words."""


def _combined(ctx: Context, values: Numbers, rows: int, found: int) -> Numbers:
    """A column or a row of numbers over all combinations of rows and what was found, one after the other."""
    out = np.empty((rows, found), dtype=values.dtype)
    size = max(1, _AT_ONCE // max(1, found))
    for at in range(0, rows, size):
        ctx.check()
        out[at : at + size] = values if len(values) == 1 else values[at : at + size]
    return cast("Numbers", out.reshape(-1))


@dataclass(frozen=True, slots=True, eq=False)
class ScanStep:
    """Bind `var` to the rows of a table; with something bound already, every combination.

    Args:
        where: all conditions as an expression; `test` is the same compiled.
        key: what gives the id, where an equality pins it; `rest` are the other conditions, compiled.
        by_value: the conditions that positions by value can answer.
        columns: properties the query reads of the variable; `needed` has `id` too.
    """

    var: str
    table_key: str
    where: Expr | None
    test: Evaluate | None
    key: Lit | Param | None
    rest: Evaluate | None
    by_value: tuple[ByValue, ...]
    columns: tuple[str, ...]
    needed: tuple[str, ...]
    text: Shown
    estimate: float

    def run(self, ctx: Context, frame: Frame) -> Frame:
        return self._beside(ctx, frame, self._find(ctx))

    def bind(self, memory: Memory) -> Run:
        table = memory.table(self.table_key, self.needed)
        memory.once = None if memory.begun else self.var
        memory.bind(self.var, table)
        found = self._finder(table)
        return lambda ctx, frame: self._beside(ctx, frame, Binding(table, found(ctx)))

    def _beside(self, ctx: Context, frame: Frame, binding: Binding) -> Frame:
        """Every combination of the rows found and those that are bound already."""
        found = len(binding.at)
        if not frame.bound and frame.length == 1 and frame.weight is None:
            return Frame(found, {self.var: binding})
        ctx.check_rows(frame.length * found, f"combining {self.text} with what is bound")
        bound = {
            var: Binding(b.rows, _combined(ctx, b.at[:, None], frame.length, found), b.nullable)
            for var, b in frame.bound.items()
        }
        bound[self.var] = Binding(binding.rows, _combined(ctx, binding.at[None, :], frame.length, found))
        weight = None if frame.weight is None else _combined(ctx, frame.weight[:, None], frame.length, found)
        return Frame(frame.length * found, bound, weight)

    def _find(self, ctx: Context) -> Binding:
        if ctx.settings.traversal_mode == "scan":
            rows = ctx.partial(self.table_key)
            at, _ = rows.read(self.needed, None)
            return Binding(rows, at if self.test is None else at[rows_where(ctx, rows, self.var, self.test, at)])
        table = ctx.tables.get(ctx.snapshot, self.table_key)
        if self._alone(ctx, table, count=True):
            pushed, rows = self._pushed(ctx), ctx.partial(self.table_key)
            asked = self._words(ctx)
            row_ids = None if asked is None else asked.row_ids(ctx, self.table_key, pushed)
            if row_ids is not None or pushed is not None:
                if ctx.trace is not None:
                    ctx.trace.modes[id(self)] = self._how(ctx, pushed, asked if row_ids is not None else None)
                if row_ids is not None:
                    at = rows.take(row_ids, self.needed)
                else:
                    at, _ = rows.read(self.needed, pushed)
                if self.test is not None:
                    at = at[rows_where(ctx, rows, self.var, self.test, at)]
                return Binding(rows, at)
        table.load(ctx.snapshot, self.needed)
        return Binding(table, self._finder(table)(ctx))

    def _finder(self, table: TableData) -> Callable[[Context], Indices]:
        """What finds the rows in a table whose columns are in memory."""
        if self.key is None:
            return lambda ctx: self._matching(ctx, table)
        positions = table.id_map().all_positions

        def by_key(ctx: Context) -> Indices:
            value = self._id(ctx)
            at = positions(value) if value is not None else np.zeros(0, dtype=np.int64)
            test = self.rest if len(at) == 1 else self.test
            if test is not None and len(at):
                at = at[rows_where(ctx, table, self.var, test, at)]
            return at

        return by_key

    def _id(self, ctx: Context) -> str | None:
        value = ctx.params.get(self.key.name) if isinstance(self.key, Param) else self.key and self.key.value
        return None if value is None else str(value)

    def _matching(self, ctx: Context, rows: TableData) -> Indices:
        if self.test is None:
            return rows.all_rows()
        found = rows_by_value(rows, self.by_value, ctx.params)
        if found is None:
            return np.flatnonzero(rows_where(ctx, rows, self.var, self.test, None))
        at, rest = found
        return at if rest is None or not len(at) else at[rows_where(ctx, rows, self.var, rest, at)]

    def _alone(self, ctx: Context, table: TableData, *, count: bool) -> bool:
        """Whether to read the few rows alone instead of caching columns of the whole table."""
        if table.rows <= ctx.settings.small_table_rows or table.has(self.needed):
            return False
        if self.estimate * 19 > table.rows:  # more than a twentieth, which rounding may miss by a little
            return False
        words = sum(isinstance(c, Call) and c.fn in ("search", "match_text", "fuzzy") for c in conjuncts(self.where))
        each = _CELL * len(self.needed) + _ID + _WORDS * words
        whole = table.rows * each * (REFRESHED if table.refreshes else 1)
        key = ("rows", ctx.snapshot.fingerprint(self.table_key))
        return ctx.rather_alone(key, _SCAN, max(whole, 2 * _SCAN), count=count)

    def _pushed(self, ctx: Context) -> str | None:
        if self.key is not None:
            text = literal(self._id(ctx))
            if text is not None:
                return f"`id` = {text}"
        return pushed_filter(self.where, ctx.params)

    def _words(self, ctx: Context) -> WordSearch | None:
        return None if self.key is not None else words_asked(ctx, self.table_key, self.where)

    def _how(self, ctx: Context, pushed: str | None, asked: WordSearch | None) -> str:
        where = "" if pushed is None else f" where {pushed}"
        if asked is None:
            return f"lance scan{where}"
        return f"words through {ctx.snapshot.words_index(self.table_key, asked.column)}{where}"

    def expected(self, rows: float) -> float:
        return rows * self.estimate

    def describe(self, ctx: Context, rows: float) -> str:
        if ctx.settings.traversal_mode == "scan":
            return f"scan    {self.text}  whole table, not cached, columns {', '.join(self.needed)}"
        table = ctx.tables.get(ctx.snapshot, self.table_key)
        alone = ctx.trace is None and self._alone(ctx, table, count=False)
        pushed, asked = (self._pushed(ctx), self._words(ctx)) if alone else (None, None)
        if ctx.trace is not None and (noted := ctx.trace.modes.get(id(self))):
            how = noted
        elif pushed is not None or asked is not None:
            how = self._how(ctx, pushed, asked)
        elif self.key is not None:
            how = "by key"
        else:
            how = "filter" if self.where is not None else "all"
        cached = "cached" if table.has(self.needed) else "not cached"
        return f"scan    {self.text}  {how}, {cached}, columns {', '.join(self.needed)}"
