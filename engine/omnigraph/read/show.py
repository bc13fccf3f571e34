"""An expression as text, as a query would write it: for `explain` and for errors."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import date, datetime
from typing import Any

from omnigraph.query.ir import Agg, Call, Column, Expr, Lit, Param, Prop, SubMatch, Var
from omnigraph.records import dataclass

__all__ = ["Later", "Shown", "show"]

_WORDS = frozenset({"+", "-", "*", "/", "=", "!=", "<", "<=", ">", ">=", "and", "or", "in", "contains", "starts_with"})

MOST = 1000
"""Characters of an expression that are shown."""

_DEEPEST = 40  # operations inside one another that are shown


@dataclass(frozen=True, slots=True)
class Later:
    """A text that is made when somebody asks for it: a plan that only runs makes none."""

    make: Callable[[], str]

    def __str__(self) -> str:
        return self.make()


Shown = str | Later
"""What stands in an error or a plan as `f"{text}"`."""


def _literal(value: Any) -> str:
    if isinstance(value, datetime):
        return f'datetime("{value.isoformat()}")'
    if isinstance(value, date):
        return f'date("{value.isoformat()}")'
    if isinstance(value, (tuple, list)):
        return f"[{', '.join(_literal(v) for v in value)}]"
    return json.dumps(value, default=str, ensure_ascii=False)


def show(expr: Expr) -> str:
    """One line of text; an operator's own operands stand in parentheses where they are operators too. What is long or
    deep is cut, with a `…`."""
    text = _show(expr, _DEEPEST)
    return text if len(text) <= MOST else text[: MOST - 1] + "…"


def _show(expr: Expr, deep: int) -> str:
    match expr:
        case Lit(value, _):
            return _literal(value)
        case Param(name, _) | Var(name, _):
            return f"${name}"
        case Prop(var, name, _):
            return f"${var}.{name}" if var else name
        case Column(name, _):
            return name
        case Agg(fn, arg, _, distinct):
            return f"{fn}({'distinct ' if distinct else ''}{_show(arg, deep) if arg is not None else ''})"
        case SubMatch(fn, _, outer, _):
            return f"{fn} {{ {', '.join(f'${v}' for v in outer)} … }}"
        case Call(fn, args, _):
            return _call(fn, args, deep - 1) if deep else "…"


def _operand(expr: Expr, deep: int) -> str:
    text = _show(expr, deep)
    return f"({text})" if deep and _is_word(expr) else text


def _call(fn: str, args: tuple[Expr, ...], deep: int) -> str:
    if fn in _WORDS and len(args) >= 2:
        shown = _show if fn in ("and", "or") else _operand
        joined = f" {fn} ".join(shown(a, deep) for a in args)
        return f"({joined})" if fn == "or" or len(args) > 2 else joined
    if fn == "not":
        return f"not {_operand(args[0], deep)}"
    if fn == "neg":
        return f"-{_operand(args[0], deep)}"
    if fn == "is_null":
        return f"{_operand(args[0], deep)} is null"
    if fn == "case":
        pairs = zip(args[:-1:2], args[1::2], strict=True)
        whens = " ".join(f"when {_show(c, deep)} then {_show(v, deep)}" for c, v in pairs)
        return f"case {whens} else {_show(args[-1], deep)} end"
    if fn == "list":
        return f"[{', '.join(_show(a, deep) for a in args)}]"
    if fn == "to":
        return _show(args[0], deep)
    return f"{fn}({', '.join(_show(a, deep) for a in args)})"


def _is_word(expr: Expr) -> bool:
    return isinstance(expr, Call) and expr.fn in _WORDS
