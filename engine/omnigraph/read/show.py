"""An expression as text, as a query would write it: for `explain` and for errors."""

from __future__ import annotations

import json
from datetime import date, datetime
from typing import Any

from omnigraph.query.ir import Agg, Call, Column, Expr, Lit, Param, Prop, SubMatch, Var

__all__ = ["show"]

_WORDS = frozenset({"+", "-", "*", "/", "=", "!=", "<", "<=", ">", ">=", "and", "or", "in", "contains", "starts_with"})


def _literal(value: Any) -> str:
    if isinstance(value, datetime):
        return f'datetime("{value.isoformat()}")'
    if isinstance(value, date):
        return f'date("{value.isoformat()}")'
    if isinstance(value, (tuple, list)):
        return f"[{', '.join(_literal(v) for v in value)}]"
    return json.dumps(value, default=str, ensure_ascii=False)


def show(expr: Expr) -> str:
    """One line of text; an operator's own operands stand in parentheses where they are operators too."""
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
            return f"{fn}({'distinct ' if distinct else ''}{show(arg) if arg is not None else ''})"
        case SubMatch(fn, _, outer, _):
            return f"{fn} {{ {', '.join(f'${v}' for v in outer)} … }}"
        case Call(fn, args, _):
            return _call(fn, args)


def _operand(expr: Expr) -> str:
    text = show(expr)
    return f"({text})" if isinstance(expr, Call) and expr.fn in _WORDS else text


def _call(fn: str, args: tuple[Expr, ...]) -> str:
    if fn in _WORDS and len(args) >= 2:
        joined = f" {fn} ".join(show(a) if fn in ("and", "or") or not _mixed(a) else _operand(a) for a in args)
        return f"({joined})" if fn == "or" or len(args) > 2 else joined
    if fn == "not":
        return f"not {_operand(args[0])}"
    if fn == "neg":
        return f"-{_operand(args[0])}"
    if fn == "is_null":
        return f"{_operand(args[0])} is null"
    if fn == "case":
        whens = " ".join(f"when {show(c)} then {show(v)}" for c, v in zip(args[:-1:2], args[1::2], strict=True))
        return f"case {whens} else {show(args[-1])} end"
    if fn == "list":
        return f"[{', '.join(show(a) for a in args)}]"
    if fn == "to":
        return show(args[0])
    return f"{fn}({', '.join(show(a) for a in args)})"


def _mixed(expr: Expr) -> bool:
    return isinstance(expr, Call) and expr.fn in _WORDS
