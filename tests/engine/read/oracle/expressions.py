"""What expressions mean, in plain Python, after the language's reference; nothing here knows arrays, plans or indexes.

An expression is an object with its `text` and its meaning. A row is a dictionary of what is bound: rows of the graph as
dictionaries, None where an optional block found nothing, a path as (node ids, edge ids).
"""

from __future__ import annotations

import calendar
import datetime as dt
import math
import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from tests.engine.read.oracle.graphs import Graph, Row, Schema

__all__ = [
    "Bad",
    "E",
    "Ranking",
    "TooMany",
    "World",
    "arithmetic",
    "at",
    "call",
    "case",
    "coalesce",
    "compare",
    "is_null",
    "lifted",
    "listing",
    "logic",
    "membership",
    "negation",
    "prop",
    "search",
]


class Bad(Exception):
    """An expression has no value in some row."""


class TooMany(Exception):
    """More rows than are worth trying."""


@dataclass
class World:
    """What a query is asked about."""

    schema: Schema
    graph: Graph
    params: dict[str, Any]
    now: dt.datetime


# ---- expressions -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class E:
    """An expression. `kind` is int, unsigned, float, text, enum, bool, date, time or a list (`[int]`); `fails`: it may
    have no value in some row; `names`: the variables it reads."""

    text: str
    kind: str
    of: Callable[[Row, World], Any]
    names: frozenset[str] = frozenset()
    fails: bool = False


def lifted(text: str, kind: str, work: Callable[..., Any], *parts: E, fails: bool = False) -> E:
    """Null where a part is null, else what `work` makes of them."""

    def of(row: Row, world: World) -> Any:
        values = [p.of(row, world) for p in parts]
        return None if any(v is None for v in values) else work(*values)

    return E(text, kind, of, _names(*parts), fails or any(p.fails for p in parts))


def _names(*parts: E) -> frozenset[str]:
    return frozenset().union(*(p.names for p in parts))


def prop(var: str, name: str, kind: str) -> E:
    return E(f"${var}.{name}", kind, lambda r, w: None if r[var] is None else r[var][name], frozenset({var}))


def at(kind: str, value: int | float) -> Any:
    """A number as the kind holds it."""
    if kind == "float":
        value = float(value)
        if not math.isfinite(value):
            raise Bad
        return value
    low, high = (0, 2**64) if kind == "unsigned" else (-(2**63), 2**63)
    if not low <= value < high:
        raise Bad
    return value


def divided(a: float, b: float) -> float:
    if b == 0:
        raise Bad
    return at("float", float(a) / float(b))


def remainder(kind: str, a: Any, b: Any) -> Any:
    if b == 0:
        raise Bad
    return math.fmod(float(a), float(b)) if kind == "float" else abs(a) % abs(b) * (1 if a >= 0 else -1)


def arithmetic(op: str, kind: str, a: E, b: E) -> E:
    """`+ - *` in the kind, `/` in floats, mod."""
    number: Callable[[Any], Any] = float if kind == "float" else int
    work: Callable[..., Any] = {
        "+": lambda x, y: at(kind, number(x) + number(y)),
        "-": lambda x, y: at(kind, number(x) - number(y)),
        "*": lambda x, y: at(kind, number(x) * number(y)),
        "/": divided,
        "mod": lambda x, y: remainder(kind, x, y),
    }[op]
    text = f"mod({a.text}, {b.text})" if op == "mod" else f"({a.text} {op} {b.text})"
    return lifted(text, "float" if op == "/" else kind, work, a, b, fails=True)


COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "=": lambda x, y: x == y, "!=": lambda x, y: x != y, "<": lambda x, y: x < y,
    "<=": lambda x, y: x <= y, ">": lambda x, y: x > y, ">=": lambda x, y: x >= y,
    "contains": lambda x, y: y in x, "starts_with": lambda x, y: x.startswith(y),
}  # fmt: skip


def compare(op: str, a: E, b: E) -> E:
    return lifted(f"({a.text} {op} {b.text})", "bool", COMPARE[op], a, b)


def negation(a: E) -> E:
    return lifted(f"(not {a.text})", "bool", lambda x: not x, a)


def logic(op: str, a: E, b: E) -> E:
    """Three-valued; the right side isn't asked where the left decides."""
    decides = op == "or"

    def of(row: Row, world: World) -> Any:
        left = a.of(row, world)
        if left is decides:
            return decides
        right = b.of(row, world)
        return right if right is decides else None if left is None or right is None else not decides

    return E(f"({a.text} {op} {b.text})", "bool", of, _names(a, b), a.fails or b.fails)


def case(test: E, a: E, b: E | None, kind: str) -> E:
    def of(row: Row, world: World) -> Any:
        if test.of(row, world) is True:
            return _as(kind, a.of(row, world))
        return None if b is None else _as(kind, b.of(row, world))

    otherwise = "" if b is None else f" else {b.text}"
    parts = [p for p in (test, a, b) if p is not None]
    return E(
        f"case when {test.text} then {a.text}{otherwise} end", kind, of, _names(*parts), any(p.fails for p in parts)
    )


def coalesce(parts: list[E], kind: str) -> E:
    def of(row: Row, world: World) -> Any:
        return next((_as(kind, v) for p in parts if (v := p.of(row, world)) is not None), None)

    text = f"coalesce({', '.join(p.text for p in parts)})"
    return E(text, kind, of, _names(*parts), any(p.fails for p in parts))


def _as(kind: str, value: Any) -> Any:
    return float(value) if kind == "float" and value is not None else value


def membership(item: E, items: E, *, negated: bool) -> E:
    """Nulls in the list are passed over."""
    work = lambda x, y: (x in [i for i in y if i is not None]) != negated  # noqa: E731
    return lifted(f"({item.text} {'not in' if negated else 'in'} {items.text})", "bool", work, item, items)


def listing(items: list[E], kind: str) -> E:
    of = lambda r, w: [i.of(r, w) for i in items]  # noqa: E731
    return E(f"[{', '.join(i.text for i in items)}]", f"[{kind}]", of, _names(*items), any(i.fails for i in items))


def is_null(text: str, value: E, *, negated: bool) -> E:
    of = lambda r, w: (value.of(r, w) is None) != negated  # noqa: E731
    return E(f"({text} is {'not ' if negated else ''}null)", "bool", of, value.names, value.fails)


# ---- functions -------------------------------------------------------------------------------------------------------


def _substring(s: str, start: int, count: int) -> str:
    if start < 0 or count < 0:
        raise Bad
    return s[start : start + count]


def _to_int(value: Any) -> int:
    if isinstance(value, str):
        if not re.fullmatch("[+-]?[0-9]+", value):
            raise Bad
        value = int(value)
    return int(at("int", int(value)))


def _to_float(value: Any) -> float:
    if isinstance(value, str) and not re.fullmatch(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?", value):
        raise Bad
    return float(value)


def _to_string(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dt.datetime):
        return value.isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"
    return value.isoformat() if isinstance(value, dt.date) else str(value)


def _trunc(unit: str, value: dt.date) -> dt.date:
    day = dt.date(value.year, value.month, value.day)
    begins = {
        "year": lambda: day.replace(month=1, day=1),
        "quarter": lambda: day.replace(month=(day.month - 1) // 3 * 3 + 1, day=1),
        "month": lambda: day.replace(day=1),
        "week": lambda: day - dt.timedelta(day.weekday()),
        "day": lambda: day,
    }
    if not isinstance(value, dt.datetime):
        return begins[unit]()
    if unit in begins:
        return dt.datetime.combine(begins[unit](), dt.time(), dt.UTC)
    keep = ("hour", "minute", "second").index(unit)
    zero = {"minute": 0, "second": 0, "microsecond": 0}
    return value.replace(**dict(list(zero.items())[keep:]))


def _add_days(value: dt.date, days: int) -> dt.date:
    try:
        return value + dt.timedelta(days)
    except OverflowError:
        raise Bad from None


def _add_months(value: dt.date, months: int) -> dt.date:
    year, month = divmod(value.year * 12 + value.month - 1 + months, 12)
    if not 1 <= year <= 9999:
        raise Bad
    last = calendar.monthrange(year, month + 1)[1]
    return value.replace(year=year, month=month + 1, day=min(value.day, last))


def _days_between(a: Any, b: Any) -> int:
    day = dt.timedelta(1)
    return (b - a) // day if b >= a else -((a - b) // day)


def _rounded(x: float) -> float:
    return math.copysign(math.floor(abs(x) + 0.5), x)


def _cased(fold: Callable[[str], str], alone: dict[str, str]) -> Callable[[str], str]:
    """Character by character: one that Python folds to several is as it is, or as `alone` says."""
    return lambda text: "".join(folded if len(folded := fold(c)) == 1 else alone.get(c, c) for c in text)


FUNCTIONS: dict[str, tuple[Callable[..., Any], bool]] = {
    "lower": (_cased(str.lower, {"İ": "i"}), False), "upper": (_cased(str.upper, {"ß": "ẞ"}), False),
    "trim": (str.strip, False), "length": (len, False),
    "substring": (_substring, True), "replace": (str.replace, False), "split": (str.split, True),
    "starts_with": (str.startswith, False), "ends_with": (str.endswith, False),
    "contains": (lambda x, y: y in x, False), "matches": (lambda s, p: re.fullmatch(p, s) is not None, False),
    "year": (lambda d: d.year, False), "month": (lambda d: d.month, False), "day": (lambda d: d.day, False),
    "date_trunc": (_trunc, False), "add_days": (_add_days, True), "add_months": (_add_months, True),
    "days_between": (_days_between, False), "to_string": (_to_string, False), "to_int": (_to_int, True),
    "to_float": (_to_float, True),
}  # fmt: skip
"""Name → (what it does, whether it may fail)."""
NUMERIC: dict[str, Callable[[Any], Any]] = {
    "abs": abs, "round": _rounded, "floor": math.floor, "ceil": math.ceil
}  # fmt: skip


def call(name: str, kind: str, *args: E) -> E:
    text = f"{name}({', '.join(a.text for a in args)})"
    if name in NUMERIC:
        whole = kind != "float"
        work = (lambda x: at(kind, abs(x) if name == "abs" else x)) if whole else lambda x: float(NUMERIC[name](x))
        return lifted(text, kind, work, *args, fails=whole and name == "abs")
    if name == "neg":
        return lifted(f"(-{args[0].text})", kind, lambda x: at(kind, -x), *args, fails=True)
    work, fails = FUNCTIONS[name]
    return lifted(text, kind, work, *args, fails=fails)


# ---- text ------------------------------------------------------------------------------------------------------------


def words(text: str) -> list[str]:
    plain = "".join(c for c in unicodedata.normalize("NFKD", text.lower()) if not unicodedata.combining(c))
    return "".join(c if c.isalnum() else " " for c in plain.replace("ß", "ss")).split()


def edits(a: str, b: str) -> int:
    last = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        row = [i]
        for j, y in enumerate(b, 1):
            row.append(min(last[j] + 1, row[-1] + 1, last[j - 1] + (x != y)))
        last = row
    return last[-1]


def found(fn: str, most: int, text: str, query: str) -> bool:
    have, asked = words(text), words(query)
    if fn == "match_text":
        return bool(asked) and any(have[i : i + len(asked)] == asked for i in range(len(have)))
    return any(edits(w, q) <= most for w in have for q in asked)


def search(fn: str, text: E, query: E, most: int | None) -> E:
    shown = f"{fn}({text.text}, {query.text}{'' if most is None else f', {most}'})"
    allowed = 0 if fn == "search" else 1 if most is None else most
    return lifted(shown, "bool", lambda t, q: found(fn, allowed, t, q), text, query)


# ---- rankings --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ranking:
    """`nearest` or `bm25` of a variable's property, or `rrf` of two; `table` is where the property lies."""

    fn: str
    text: str
    var: str = ""
    name: str = ""
    table: str = ""
    query: Any = None
    parts: tuple[Ranking, ...] = ()
    k: int = 60

    @property
    def descending(self) -> bool:
        return self.fn != "nearest"

    def values(self, rows: list[Row], world: World) -> list[float | None]:
        """The number of each row, None where it isn't ranked."""
        if self.fn != "rrf":
            known = {r[self.var]["id"]: self._one(r[self.var], world) for r in rows if r[self.var] is not None}
            return [None if r[self.var] is None else known[r[self.var]["id"]] for r in rows]
        out: list[float | None] = [None] * len(rows)
        for part in self.parts:
            ids = [None if r[part.var] is None else r[part.var]["id"] for r in rows]
            scores = {i: v for i, v in zip(ids, part.values(rows, world), strict=True) if v is not None}
            order = sorted(scores, key=lambda i: (-scores[i] if part.descending else scores[i], i))
            rank = {i: n for n, i in enumerate(order, 1)}
            for at, i in enumerate(ids):
                if i in rank:
                    out[at] = (out[at] or 0.0) + 1 / (self.k + rank[i])
        return out

    def _one(self, row: Row, world: World) -> float | None:
        value, query = row[self.name], self.query
        if value is None or query is None:
            return None
        if self.fn == "nearest":
            dot = sum(x * y for x, y in zip(value, query, strict=True))
            squared = Fraction(dot * dot, sum(x * x for x in value) * sum(y * y for y in query))
            return 1 - math.copysign(math.sqrt(squared), dot)
        texts = [words(r[self.name]) for r in world.graph[self.table].values() if r[self.name] is not None]
        mean, have, score = sum(map(len, texts)) / len(texts), words(value), 0.0
        for word in words(query):
            n, f = sum(word in t for t in texts), have.count(word)
            rarity = math.log(1 + (len(texts) - n + 0.5) / (n + 0.5))
            score += rarity * f * 2.2 / (f + 1.2 * (0.25 + 0.75 * len(have) / mean)) if f else 0.0
        return score or None
