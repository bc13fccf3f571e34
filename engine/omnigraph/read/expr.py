"""Expressions → Arrow compute. An expression is compiled once into a closure; running it gives an array or a scalar.

Three-valued logic throughout: `and` and `or` are Kleene's, a filter keeps true only. What may be an error in a row is
asked about only where its answer matters: the right side of an `and` where the left isn't false, of an `or` where it
isn't true, a branch of `case` in the rows that take it, an argument of `coalesce` where those before are null.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import numpy as np
import pyarrow as pa

from omnigraph.errors import Internal
from omnigraph.query.ir import Agg, Call, Column, Expr, Lit, Param, Prop, SubMatch, Var
from omnigraph.read.compute import pc
from omnigraph.read.datum import Datum, Env, Evaluate, as_array, as_mask, cast_to, is_null_type, scalar
from omnigraph.read.functions import bind, make_list
from omnigraph.read.search import search_predicate
from omnigraph.read.types import arrow_of
from omnigraph.read.walk import may_fail
from omnigraph.records import dataclass

__all__ = ["Compiler", "Datum", "Env", "Evaluate", "as_array", "as_mask", "compile_expr", "scalar"]


class Special(Protocol):
    """Makes what `Env.special` evaluates out of a block or a ranking."""

    def __call__(self, expr: Expr) -> object: ...


@dataclass(frozen=True, slots=True)
class Compiler:
    """How an expression's leaves are found.

    Args:
        aggregates: the computed column that stands for each `Agg`.
        block: plans an `exists { … }` or `count { … }`; None where none may stand.
        ranking: compiles a `nearest`, `bm25` or `rrf`; None where none may stand.
    """

    aggregates: Mapping[Agg, str] | None = None
    block: Special | None = None
    ranking: Special | None = None

    def __call__(self, expr: Expr) -> Evaluate:
        """The closure of an expression."""
        return self._made(expr)

    def _made(self, expr: Expr) -> Evaluate:
        match expr:
            case Lit(value, type_):
                constant = scalar(value, arrow_of(type_))
                return lambda env: constant
            case Param(name, type_):
                kind = arrow_of(type_)
                return lambda env: scalar(env.params.get(name), kind)
            case Prop(var, name, _):
                return lambda env: env.prop(var, name)
            case Var(name, _):  # in an expression an entity stands for its identity
                return lambda env: env.prop(name, "id")
            case Column(name, _):
                return lambda env: env.computed(name)
            case Agg():
                if self.aggregates is None:
                    raise Internal(f"aggregate {expr.fn} outside a projection")
                stands = self.aggregates[expr]
                return lambda env: env.computed(stands)
            case SubMatch():
                return self._special(self.block, expr)
            case Call(fn="nearest" | "bm25" | "rrf"):
                return self._special(self.ranking, expr)
            case Call():
                return self._call(expr)

    def _special(self, make: Special | None, expr: Expr) -> Evaluate:
        if make is None:
            raise Internal(f"no plan for {expr!r} here")
        what = make(expr)
        return lambda env: env.special(what)

    def _call(self, call: Call) -> Evaluate:
        fn, args = call.fn, call.args
        if fn == "now":
            return lambda env: scalar(env.now, pa.timestamp("ms", "UTC"))
        if fn in ("length", "nodes", "edges") and isinstance(args[0], Var):
            path = args[0].name
            return lambda env: env.prop(path, fn)
        if fn in ("search", "match_text", "fuzzy"):
            return search_predicate(call, [self._made(arg) for arg in args[1:]])
        parts = [self._made(arg) for arg in args]
        if fn in ("and", "or"):
            return _logic(fn, parts, [may_fail(arg) for arg in args])
        if fn == "not":
            return lambda env: pc.invert(_boolean(parts[0](env)))
        if fn == "is_null":
            return lambda env: pc.is_null(parts[0](env))
        kind = arrow_of(call.type)
        if fn == "case":
            return _case(parts, kind, failing=any(map(may_fail, args[1:])))
        if fn == "coalesce":
            return _coalesce(parts, kind, failing=any(map(may_fail, args[1:])))
        if fn == "list":
            return lambda env: make_list([part(env) for part in parts], kind)
        work = bind(call)
        if work is None:
            raise Internal(f"no plan for function {fn!r}")
        return lambda env: work([part(env) for part in parts], kind, "")


def compile_expr(expr: Expr, aggregates: Mapping[Agg, str] | None = None) -> Evaluate:
    """The closure of an expression without blocks and rankings."""
    return Compiler(aggregates)(expr)


def _boolean(value: Datum) -> Datum:
    return value.cast(pa.bool_()) if is_null_type(value) else value


def _logic(fn: str, parts: list[Evaluate], failing: list[bool]) -> Evaluate:
    combine = pc.and_kleene if fn == "and" else pc.or_kleene

    def undecided(value: Datum) -> Datum:
        return pc.fill_null(value if fn == "and" else pc.invert(value), True)

    def logic(env: Env) -> Datum:
        out = _boolean(parts[0](env))
        for part, fails in zip(parts[1:], failing[1:], strict=True):
            value = _only_where(env, part, undecided(out), pa.bool_()) if fails else part(env)
            out = combine(out, _boolean(value))
        return out

    return logic


def _only_where(env: Env, part: Evaluate, wanted: Datum, kind: pa.DataType) -> Datum:
    """The value in the rows where `wanted` is true; what stands elsewhere has no meaning."""
    if isinstance(wanted, pa.Scalar):
        return part(env) if wanted.as_py() else pa.scalar(None, kind)
    mask = as_mask(wanted, len(wanted))
    rows = np.flatnonzero(mask)
    if len(rows) == len(mask) and len(mask):
        return part(env)
    if not len(rows):
        return pa.scalar(None, kind)
    value = part(env.some(rows))
    if isinstance(value, pa.Scalar):
        return value
    return value.take(pa.array(np.cumsum(mask) - 1, mask=~mask))


def _always(env: Env, part: Evaluate, wanted: Datum, kind: pa.DataType) -> Datum:
    return part(env)


def _chooser(*, failing: bool) -> Callable[[Env, Evaluate, Datum, pa.DataType], Datum]:
    return _only_where if failing else _always


def _case(parts: list[Evaluate], kind: pa.DataType, *, failing: bool) -> Evaluate:
    ask = _chooser(failing=failing)

    def case(env: Env) -> Datum:
        untaken: Datum = pa.scalar(True)
        chosen = []
        for condition, value in zip(parts[:-1:2], parts[1::2], strict=True):
            test = pc.fill_null(_boolean(ask(env, condition, untaken, pa.bool_())), False)
            taken = pc.and_(untaken, test)
            chosen.append((taken, cast_to(ask(env, value, taken, kind), kind)))
            untaken = pc.and_(untaken, pc.invert(test))
        out = cast_to(ask(env, parts[-1], untaken, kind), kind)
        for taken, value in reversed(chosen):
            out = pc.if_else(taken, value, out)
        return out

    return case


def _coalesce(parts: list[Evaluate], kind: pa.DataType, *, failing: bool) -> Evaluate:
    ask = _chooser(failing=failing)

    def coalesce(env: Env) -> Datum:
        out = cast_to(parts[0](env), kind)
        for part in parts[1:]:
            value = cast_to(ask(env, part, pc.is_null(out), kind), kind)
            out = value if isinstance(out, pa.Scalar) and not out.is_valid else pc.coalesce(out, value)
        return out

    return coalesce
