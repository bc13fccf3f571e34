"""Random expressions over what a query binds, always well typed."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.engine.read.oracle import expressions as m
from tests.engine.read.oracle.expressions import E
from tests.engine.read.oracle.graphs import DAY, FIRST, LAST, MOMENT, Prop, Schema
from tests.engine.read.oracle.meaning import Block, counted, exists

__all__ = ["KIND", "PARAM", "SCALARS", "SEARCHES", "Expressions", "kind_of", "shown"]

KIND = {
    "I32": "int", "I64": "int", "U32": "int", "U64": "unsigned", "F32": "float", "F64": "float", "Bool": "bool",
    "Date": "date", "DateTime": "time", "String": "text", "enum(x, y, z-1)": "enum",
}  # fmt: skip
PARAM = {
    "int": "I64", "unsigned": "U64", "float": "F64", "bool": "Bool", "date": "Date", "time": "DateTime",
    "text": "String",
}  # fmt: skip
LITERALS: dict[str, list[Any]] = {
    "int": [0, 1, 2, 3, 7, -1, -2, 2**53 + 1, 2**62], "unsigned": [0, 1, 5, 2**63 + 1],
    "float": [0.0, 0.25, -1.5, 2.0, 9007199254740992.0], "bool": [True, False], "enum": ["x", "y", "z-1"],
    "date": [DAY, DAY + dt.timedelta(1), dt.date(1969, 12, 31), dt.date.max],
    "time": [MOMENT, MOMENT + dt.timedelta(milliseconds=1), MOMENT + dt.timedelta(days=3), FIRST, LAST],
    "text": ["", "a", "b", "ab", "é", "A%", "o'x", " ", "12", "zebra", "😀"],
}  # fmt: skip
SEARCHES = [
    "fox red", "RED fox", "fux", "blue", "red fóx", "strasse", "狐 红", "a fox", "wolf", "red", "café wolf", "",
]  # fmt: skip
SCALARS = ["int", "int", "text", "float", "bool", "date", "time", "unsigned", "enum"]


def kind_of(prop: Prop) -> str:
    if prop.type.startswith("Vector"):
        return "vector"
    return f"[{KIND[prop.type[1:-1]]}]" if prop.type.startswith("[") else KIND[prop.type]


def shown(value: Any) -> str:
    if isinstance(value, dt.datetime):
        return f'datetime("{value.isoformat(timespec="milliseconds").removesuffix("+00:00")}Z")'
    if isinstance(value, dt.date):
        return f'date("{value.isoformat()}")'
    if isinstance(value, list):
        return f"[{', '.join(map(shown, value))}]"
    return json.dumps(value, ensure_ascii=False)


@dataclass
class Expressions:
    """One query while it is drawn."""

    number: Callable[[int, int], int]  # between two numbers, both included
    schema: Schema
    params: dict[str, tuple[str, Any]] = field(default_factory=dict)
    types: dict[str, str] = field(default_factory=dict)  # variable → table key
    serial: int = 0

    def pick(self, items: Any) -> Any:
        items = list(items)
        return items[self.number(0, len(items) - 1)]

    def often(self, one_in: int) -> bool:
        """True once in so many times; shrinks to False."""
        return self.number(0, one_in - 1) == one_in - 1

    def fresh(self, letter: str) -> str:
        self.serial += 1
        return f"{letter}{self.serial}"

    # ---- expressions ----

    def literal(self, kind: str, *, plain: bool = False) -> E:
        value = self.pick(LITERALS[kind])
        if kind in PARAM and not plain and self.often(4):
            return self.given(kind, value)
        text = shown(value)
        return E(f"({text})" if text.startswith("-") else text, kind, lambda r, w: value)

    def given(self, kind: str, value: Any) -> E:
        """A parameter, which may be left out."""
        name = self.fresh("k")
        nullable = self.often(3)
        given = None if nullable and self.often(2) else value
        self.params[name] = (PARAM[kind] + ("?" if nullable else ""), given)
        return E(f"${name}", kind, lambda r, w: given)

    def list_value(self, kind: str) -> E:
        values = [self.pick(LITERALS[kind]) for _ in range(self.number(0, 3))]
        if kind in PARAM and self.often(3):
            name = self.fresh("k")
            given = None if self.often(4) else values
            self.params[name] = (f"[{PARAM[kind]}]?", given)
            return E(f"${name}", f"[{kind}]", lambda r, w: given)
        return E(shown(values), f"[{kind}]", lambda r, w: values)

    def props(self, names: list[str], kind: str) -> list[tuple[str, Prop]]:
        out = []
        for var in names:
            key = self.types.get(var, "")
            entity = self.schema.nodes.get(key[5:]) if key.startswith("node:") else self.schema.edges.get(key[5:])
            out += [(var, p) for p in (entity.props.values() if entity else ()) if kind_of(p) == kind]
        return out

    def value(self, names: list[str], kind: str, depth: int) -> E:
        """An expression of a kind over some variables."""
        leaves = self.props(names, kind)
        how = self.number(0, 5 if depth > 0 else 1)
        if kind == "unsigned":
            if not leaves:
                return self.given("unsigned", self.pick(LITERALS["unsigned"]))
            var, p = self.pick(leaves)
            whole = m.prop(var, p.name, kind)
            return whole if how < 4 else m.arithmetic(self.pick("+-*"), kind, whole, self.literal(kind))
        if kind == "bool" and how > 1:
            return self.condition(names, depth - 1, search=False)
        if how == 0 or (not leaves and depth <= 0):
            if kind == "text" and names and self.often(4):
                var = self.pick(names)
                return m.prop(
                    var, "id" if self.types[var].startswith("node:") else self.pick(["id", "src", "dst"]), "text"
                )
            return self.literal(kind)
        if how <= 2 and leaves:
            var, p = self.pick(leaves)
            return m.prop(var, p.name, kind)
        sub = lambda k: self.value(names, k, depth - 1)  # noqa: E731
        if how == 3:
            if self.often(2):
                otherwise = sub(kind) if self.often(2) else None
                return m.case(self.condition(names, depth - 1, search=False), sub(kind), otherwise, kind)
            return m.coalesce([sub(kind), sub(kind)], kind)
        return self.computed(names, kind, depth)

    def computed(self, names: list[str], kind: str, depth: int) -> E:
        sub = lambda k: self.value(names, k, depth - 1)  # noqa: E731
        if kind == "int":
            how = self.pick(
                ["+", "-", "*", "mod", "abs", "neg", "length", "size", "part", "to_int", "days", "count", "round"]
            )
            if how in ("+", "-", "*", "mod"):
                return m.arithmetic(how, "int", sub("int"), sub("int"))
            if how in ("abs", "neg"):
                return m.call(how, "int", sub("int"))
            if how == "length":
                return m.call("length", "int", sub("text"))
            if how == "size":
                return m.call("length", "int", self.a_list(names))
            if how == "part":
                return m.call(self.pick(["year", "month", "day"]), "int", sub(self.pick(["date", "time"])))
            if how == "to_int":
                return m.call("to_int", "int", sub(self.pick(["float", "bool", "text"])))
            if how == "days":
                of = self.pick(["date", "time"])
                return m.call("days_between", "int", sub(of), sub(of))
            if how == "count":
                return counted(self.block(names, depth - 1))
            return m.call(self.pick(["round", "floor", "ceil"]), "int", sub("int"))
        if kind == "float":
            how = self.pick(["+", "-", "*", "/", "mod", "round", "to_float"])
            if how == "round":
                return m.call(self.pick(["round", "floor", "ceil", "abs"]), "float", sub("float"))
            if how == "to_float":
                return m.call("to_float", "float", sub(self.pick(["int", "text"])))
            return m.arithmetic(how, "float", sub("float"), sub("float" if how != "/" else self.pick(["int", "float"])))
        if kind == "text":
            how = self.pick(["lower", "upper", "trim", "substring", "replace", "to_string"])
            if how == "substring":
                return m.call(how, "text", sub("text"), sub("int") if self.often(3) else self.small(), self.small())
            if how == "replace":
                old = E('"a"', "text", lambda r, w: "a")
                return m.call(how, "text", sub("text"), old, sub("text"))
            if how == "to_string":
                return m.call(how, "text", sub(self.pick(["int", "bool", "date", "time"])))
            return m.call(how, "text", sub("text"))
        if kind in ("date", "time"):
            how = self.pick(["date_trunc", "add_days", "add_months"])
            if how == "date_trunc":
                units = ["year", "quarter", "month", "week", "day"] + (
                    ["hour", "minute", "second"] if kind == "time" else []
                )
                unit = self.pick(units)
                return m.call(how, kind, E(f'"{unit}"', "text", lambda r, w: unit), sub(kind))
            return m.call(how, kind, sub(kind), self.small(-3))
        return self.literal(kind)

    def small(self, least: int = 0) -> E:
        value = self.number(least, 4)
        return E(str(value) if value >= 0 else f"({value})", "int", lambda r, w: value)

    def a_list(self, names: list[str]) -> E:
        leaves = [(v, p) for k in ("[text]", "[int]", "[date]") for v, p in self.props(names, k)]
        if leaves and not self.often(4):
            var, p = self.pick(leaves)
            return m.prop(var, p.name, kind_of(p))
        separator = E('","', "text", lambda r, w: ",")
        return m.call("split", "[text]", self.value(names, "text", 0), separator)

    def condition(self, names: list[str], depth: int, *, search: bool = True) -> E:
        kinds = ["compare"] * 4 + ["null", "in", "text", "list", "same", "flag"]
        if depth > 0:
            kinds += ["and", "or", "not", "exists", "count", "matches"]
        how = self.pick([*kinds, "search", "search"] if search else kinds)
        sub = lambda k: self.value(names, k, depth - 1)  # noqa: E731
        if how in ("and", "or"):
            a, b = (self.condition(names, depth - 1, search=search) for _ in range(2))
            return m.logic(how, a, b)
        if how == "not":
            return m.negation(self.condition(names, depth - 1, search=search))
        if how == "exists":
            return exists(self.block(names, depth - 1))
        if how == "count":
            return m.compare(self.pick(["=", ">", "<="]), counted(self.block(names, depth - 1)), self.small())
        if how == "matches":
            pattern = self.pick(["a.*", "[a-z]+", "", ".*x.*"])
            return m.call("matches", "bool", sub("text"), E(f'"{pattern}"', "text", lambda r, w: pattern))
        if how == "null":
            if names and self.often(3):
                var = self.pick(names)
                whole = E(f"${var}", "entity", lambda r, w: r[var], frozenset({var}))
                return m.is_null(f"${var}", whole, negated=self.often(2))
            value = sub(self.pick(SCALARS))
            return m.is_null(value.text, value, negated=self.often(2))
        if how == "in":
            kind = self.pick(SCALARS)
            items = self.list_value(kind)
            if self.often(4) and kind != "enum":
                items = m.listing([sub(kind), self.literal(kind, plain=True)], kind)
            return m.membership(self.column(names, kind), items, negated=self.often(3))
        if how == "text":
            if self.often(3):
                return m.call(self.pick(["starts_with", "ends_with", "contains"]), "bool", sub("text"), sub("text"))
            return m.compare(self.pick(["contains", "starts_with"]), self.column(names, "text"), self.literal("text"))
        if how == "list":
            items = self.a_list(names)
            if items.kind == "[text]" and self.often(2):
                return m.call("contains", "bool", items, sub("text"))
            return m.compare("contains", items, self.literal(items.kind[1:-1]))
        if how == "search":
            texts = [(v, p) for v, p in self.props(names, "text") if p.text]
            if texts:
                var, p = self.pick(texts)
                fn = self.pick(["search", "match_text", "fuzzy", "fuzzy"])
                most = self.pick([None, 0, 1, 2]) if fn == "fuzzy" else None
                return m.search(fn, m.prop(var, p.name, "text"), self.question(), most)
        nodes = [n for n in names if self.types[n].startswith("node:")]
        if how == "same" and nodes:
            a = self.pick(nodes)
            b = self.pick([n for n in nodes if self.types[n] == self.types[a]])
            one, other = (E(f"${v}", "entity", lambda r, w, v=v: r[v] and r[v]["id"], frozenset({v})) for v in (a, b))
            return m.compare(self.pick(["=", "!="]), one, other)
        if how == "flag":
            return self.column(names, "bool")
        kind = self.pick([*SCALARS, "now"])
        if kind == "now":
            now = E("now()", "time", lambda r, w: w.now)
            return m.compare(self.pick(["<", ">="]), self.column(names, "time"), now)
        ops = ["=", "!=", "<", "<=", ">", ">="] if kind != "bool" else ["=", "!="]
        left = self.column(names, kind) if self.often(2) else sub(kind)
        if kind in ("int", "float", "unsigned") and self.often(3):  # numbers of two types
            return m.compare(self.pick(ops), left, self.column(names, self.pick(["int", "float", "unsigned"])))
        right = self.literal(kind) if kind == "enum" or self.often(2) else sub(kind)
        return m.compare(self.pick(ops), *((left, right) if kind == "enum" or not self.often(5) else (right, left)))

    def column(self, names: list[str], kind: str) -> E:
        """A property where there is one."""
        leaves = self.props(names, kind)
        if not leaves:
            return self.literal(kind, plain=True)
        var, p = self.pick(leaves)
        return m.prop(var, p.name, kind)

    def question(self) -> E:
        text = self.pick(SEARCHES)
        if self.often(4):
            name = self.fresh("k")
            given = None if self.often(4) else text
            self.params[name] = ("String?", given)
            return E(f"${name}", "text", lambda r, w: given)
        return E(shown(text), "text", lambda r, w: text)

    # ---- clauses ----

    def block(self, outer: list[str], depth: int, *, optional: bool = False, alone: bool = False) -> Block:
        """A block inside a match."""
        raise NotImplementedError
