"""Expressions → Arrow compute. An expression is compiled once into a closure; running it gives an array or a scalar.

Three-valued logic throughout: a comparison with null is null, `and` and `or` are Kleene's, a filter keeps true only.
Comparing numbers of two types widens: integers to I64, anything with a float to F64; U64 beside signed integers is
compared exactly. Text compares by code point. Nulls inside a list equal nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.errors import Internal
from omnigraph.query.ir import Agg, Call, Column, Expr, Lit, Param, Prop, Var
from omnigraph.read.compute import Array, Scalar, pc
from omnigraph.read.types import arrow_of
from omnigraph.schema.catalog import Type

__all__ = [
    "Datum",
    "Env",
    "Evaluate",
    "as_array",
    "as_mask",
    "compile_expr",
    "conjuncts",
    "properties",
    "scalar",
    "variables",
]

Datum: TypeAlias = Array | Scalar


class Env(Protocol):
    """Where an expression finds its values."""

    @property
    def params(self) -> Mapping[str, Any]: ...

    @property
    def now(self) -> datetime: ...

    def prop(self, var: str, name: str) -> Datum:
        """The property in each row."""
        ...

    def computed(self, name: str) -> Datum:
        """A column computed before: an output column or an aggregate."""
        ...


Evaluate: TypeAlias = Callable[[Env], Datum]

_ORDERED = {
    "=": pc.equal, "!=": pc.not_equal, "<": pc.less, "<=": pc.less_equal, ">": pc.greater, ">=": pc.greater_equal,
}  # fmt: skip


def scalar(value: Any, type_: pa.DataType) -> Scalar:
    """A Python value as an Arrow scalar; a datetime without a zone is UTC."""
    if isinstance(value, datetime) and pa.types.is_timestamp(type_):
        value = value.astimezone(UTC) if value.tzinfo is not None else value.replace(tzinfo=UTC)
    elif isinstance(value, date) and not isinstance(value, datetime) and pa.types.is_timestamp(type_):
        value = datetime(value.year, value.month, value.day, tzinfo=UTC)
    elif isinstance(value, (tuple, list)) and pa.types.is_list(type_):
        value = [None if v is None else scalar(v, type_.value_type).as_py() for v in value]
    return pa.scalar(value, type_)


def compile_expr(expr: Expr, aggregates: Mapping[Agg, str] | None = None) -> Evaluate:
    """The closure of an expression. `aggregates` names the computed column that stands for each `Agg`."""
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
            if aggregates is None:
                raise Internal(f"aggregate {expr.fn} outside a projection")
            stands = aggregates[expr]
            return lambda env: env.computed(stands)
        case Call(fn, args, _):
            return _compile_call(fn, args, aggregates)
    raise Internal(f"no plan for expression {expr!r}")


def _compile_call(fn: str, args: tuple[Expr, ...], aggregates: Mapping[Agg, str] | None) -> Evaluate:
    parts = [compile_expr(arg, aggregates) for arg in args]
    if fn == "now":
        return lambda env: scalar(env.now, pa.timestamp("ms", "UTC"))
    if fn in ("and", "or"):
        combine = pc.and_kleene if fn == "and" else pc.or_kleene

        def logic(env: Env) -> Datum:
            out = _boolean(parts[0](env))
            for part in parts[1:]:
                out = combine(out, _boolean(part(env)))
            return out

        return logic
    if fn == "not":
        return lambda env: pc.invert(_boolean(parts[0](env)))
    if fn == "is_null":
        return lambda env: pc.is_null(parts[0](env))
    if fn in _ORDERED:
        return lambda env: _compare(fn, parts[0](env), parts[1](env))
    if fn == "in":
        return lambda env: _member(parts[1](env), parts[0](env))
    if fn == "contains":
        of_list = _type(args[0]).list
        return lambda env: (_member if of_list else _contains)(parts[0](env), parts[1](env))
    if fn == "starts_with":
        return lambda env: _starts_with(parts[0](env), parts[1](env))
    raise Internal(f"no plan for function {fn!r}")


def _type(expr: Expr) -> Type:
    return expr.type


def _boolean(value: Datum) -> Datum:
    return value.cast(pa.bool_()) if pa.types.is_null(value.type) else value


def _compare(fn: str, left: Datum, right: Datum) -> Datum:
    a, b = left.type, right.type
    if pa.types.is_null(a) or pa.types.is_null(b):
        return _all_null(left, right)
    if a != b:
        if pa.types.is_uint64(a) != pa.types.is_uint64(b) and pa.types.is_integer(a) and pa.types.is_integer(b):
            if pa.types.is_uint64(b):
                mirrored = {"<": ">", ">": "<", "<=": ">=", ">=": "<="}.get(fn, fn)
                left, right, fn = right, left, mirrored
            return _compare_u64(fn, left, right)
        if pa.types.is_floating(a) or pa.types.is_floating(b):
            left, right = left.cast(pa.float64(), safe=False), right.cast(pa.float64(), safe=False)
        elif {a, b} == {pa.date32(), pa.timestamp("ms", "UTC")}:
            left, right = left.cast(pa.timestamp("ms", "UTC")), right.cast(pa.timestamp("ms", "UTC"))
    return _ORDERED[fn](left, right)


def _compare_u64(fn: str, unsigned: Datum, signed: Datum) -> Datum:
    """U64 against a signed or narrower integer, exactly: below zero is below everything unsigned."""
    other = signed.cast(pa.int64())
    if isinstance(other, pa.Scalar) and isinstance(unsigned, pa.Scalar):
        return _compare_u64(fn, pa.array([unsigned.as_py()], pa.uint64()), other)[0]
    negative = pc.less(other, 0)
    floor = pc.max_element_wise(other, pa.scalar(0, pa.int64()), skip_nulls=False).cast(pa.uint64())
    plain = _ORDERED[fn](unsigned, floor)
    verdict = pa.scalar(fn in ("!=", ">", ">="))
    out = pc.if_else(negative, verdict, plain)
    valid = pc.and_(pc.is_valid(unsigned), pc.is_valid(other))
    return pc.if_else(valid, out, pa.scalar(None, pa.bool_()))


def _all_null(*values: Datum) -> Datum:
    for value in values:
        if isinstance(value, pa.Array):
            return pa.nulls(len(value), pa.bool_())
    return pa.scalar(None, pa.bool_())


def _contains(text: Datum, part: Datum) -> Datum:
    return _by_pattern(text, part, lambda t, p: pc.match_substring(t, pattern=p))


def _starts_with(text: Datum, part: Datum) -> Datum:
    return _by_pattern(text, part, lambda t, p: pc.starts_with(t, pattern=p))


def _by_pattern(text: Datum, part: Datum, test: Callable[[Datum, str], Datum]) -> Datum:
    """Arrow's text tests take one pattern a call; a column of patterns is done once for each distinct one."""
    if not part.is_valid if isinstance(part, pa.Scalar) else pa.types.is_null(part.type):
        return _all_null(text, part)
    if pa.types.is_null(text.type):
        return _all_null(text, part)
    if isinstance(part, pa.Scalar):
        return test(text, part.as_py())
    n = len(part)
    texts = as_array(text, n)
    encoded = part.dictionary_encode()
    codes = pc.fill_null(encoded.indices, -1).to_numpy(zero_copy_only=False)
    order = np.argsort(codes, kind="stable")
    bounds = np.searchsorted(codes[order], np.arange(len(encoded.dictionary) + 1))
    pieces = [pa.nulls(int(bounds[0]), pa.bool_())]
    for i, pattern in enumerate(encoded.dictionary.to_pylist()):
        pieces.append(test(texts.take(pa.array(order[bounds[i] : bounds[i + 1]])), pattern))
    back = np.empty(n, dtype=np.int64)
    back[order] = np.arange(n)
    together: Array = pa.concat_arrays(pieces)
    return together.take(back)


def _member(collection: Datum, value: Datum) -> Datum:
    """Whether the list holds the value; null where either is null."""
    if pa.types.is_null(collection.type) or pa.types.is_null(value.type):
        return _all_null(collection, value)
    if isinstance(collection, pa.ListScalar):
        if not collection.is_valid:
            return _all_null(value, collection)
        return _in_constant(value, collection.values)
    n = len(collection)
    flat = collection.flatten()
    parents = np.asarray(pc.list_parent_indices(collection).to_numpy(zero_copy_only=False))
    wanted = value if isinstance(value, pa.Scalar) else value.take(parents)
    hit = as_mask(_compare("=", flat, wanted), len(flat))
    found = np.zeros(n, dtype=bool)
    found[parents[hit]] = True
    null = np.asarray(collection.is_null().to_numpy(zero_copy_only=False))
    if isinstance(value, pa.Scalar):
        if not value.is_valid:
            return pa.nulls(n, pa.bool_())
    else:
        null |= np.asarray(value.is_null().to_numpy(zero_copy_only=False))
    return pa.array(found, mask=null)


def _in_constant(value: Datum, values: Array) -> Datum:
    values = values.drop_null()
    a, b = value.type, values.type
    if a != b and pa.types.is_floating(a) != pa.types.is_floating(b):
        value, values = value.cast(pa.float64(), safe=False), values.cast(pa.float64(), safe=False)
    elif pa.types.is_integer(a) and pa.types.is_integer(b) and a != b:
        # What the value's own type can't hold, no value equals.
        low, high = (
            (0, 2**64 - 1)
            if pa.types.is_unsigned_integer(a)
            else (-(2 ** (a.bit_width - 1)), 2 ** (a.bit_width - 1) - 1)
        )
        high = min(high, 2**a.bit_width - 1)
        values = pa.array([v for v in values.to_pylist() if low <= v <= high], a)
    elif a != b:
        values = values.cast(a)
    found = pc.is_in(value, value_set=values)
    return pc.if_else(pc.is_valid(value), found, pa.scalar(None, pa.bool_()))


def as_array(value: Datum, length: int) -> Array:
    """A scalar repeated; an array as it is."""
    return value if isinstance(value, pa.Array) else pa.repeat(value, length)


def as_mask(value: Datum, length: int) -> npt.NDArray[np.bool_]:
    """Where a predicate is true."""
    if isinstance(value, pa.Scalar):
        return np.full(length, value.as_py() is True)
    if pa.types.is_null(value.type):
        return np.zeros(length, dtype=bool)
    filled = value.fill_null(False) if value.null_count else value
    out: npt.NDArray[np.bool_] = filled.to_numpy(zero_copy_only=False)
    return out


def conjuncts(predicate: Expr | None) -> tuple[Expr, ...]:
    """The parts that must all be true."""
    if predicate is None:
        return ()
    if isinstance(predicate, Call) and predicate.fn == "and":
        return tuple(c for arg in predicate.args for c in conjuncts(arg))
    return (predicate,)


def _walk(expr: Expr) -> list[Expr]:
    inner: tuple[Expr, ...] = ()
    if isinstance(expr, Call):
        inner = expr.args
    elif isinstance(expr, Agg) and expr.arg is not None:
        inner = (expr.arg,)
    return [expr, *(e for arg in inner for e in _walk(arg))]


def properties(expr: Expr) -> frozenset[tuple[str, str]]:
    """The (variable, property) pairs an expression reads; an entity inside an expression reads its id."""
    return frozenset(
        (e.var, e.name) if isinstance(e, Prop) else (e.name, "id") for e in _walk(expr) if isinstance(e, (Prop, Var))
    )


def variables(expr: Expr) -> frozenset[str]:
    """The variables an expression touches."""
    return frozenset(var for var, _ in properties(expr))


def aggregates_in(expr: Expr) -> list[Agg]:
    """The aggregates of an expression, left to right."""
    return [e for e in _walk(expr) if isinstance(e, Agg)]
