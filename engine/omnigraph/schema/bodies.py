"""Constraints in the braces of a declaration, judged against the properties they name."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from omnigraph.schema import ast
from omnigraph.schema.annotations import Refuser
from omnigraph.schema.catalog import INTEGERS, NUMBERS, Check, Property, Range, Type
from omnigraph.schema.grammar import nearest_name
from omnigraph.schema.literals import BOUNDS
from omnigraph.schema.types import REFUSED

__all__ = ["Columns", "check_defaults", "check_of", "columns_of", "empty_together", "range_of"]

Columns = tuple[str, ...]
"""The properties of one `@key`, `@unique` or `@index`."""


def _find(refuser: Refuser, name: ast.Name, known: Mapping[str, Type]) -> Type | None:
    found = known.get(name.text)
    if found is None:
        near = nearest_name(name.text, known)
        refuser.refuse("S05", f"no property `{name.text}` here", name.place, near and f"did you mean `{near}`?")
    return found


def columns_of(refuser: Refuser, node: ast.Columns, known: Mapping[str, Type]) -> Columns:
    """The properties that a constraint of columns names."""
    seen: set[str] = set()
    for name in node.columns:
        type_ = _find(refuser, name, known)
        if name.text in seen:
            refuser.refuse("S05", f"`{name.text}` is named twice", name.place)
        seen.add(name.text)
        if type_ is None or type_.base == REFUSED or node.word == "index":
            continue
        # `p: T @key` is about the annotation, `@key(p)` about the name in it.
        place = name.place if name.place[0] > node.place[0] else node.place
        if type_.list or type_.base in ("Blob", "Vector"):
            refuser.refuse("S04", f"`{name.text}` is {type_}, which can't be in `@{node.word}`", place)
        elif node.word == "key" and type_.base in ("F32", "F64"):
            refuser.refuse("S04", f"`{name.text}` is {type_}; a number with fractions can't be a key", place)
        elif node.word == "key" and type_.nullable:
            refuser.refuse("S04", f"`{name.text}` may be null and so can't be a key; drop its `?`", place)
    return tuple(name.text for name in node.columns)


def range_of(refuser: Refuser, node: ast.RangeNode, known: Mapping[str, Type], before: ast.Name | None) -> list[Range]:
    """One `@range`; `before` is the property written before it."""
    low = node.low.value if node.low else None
    high = node.high.value if node.high else None
    if node.column is None:
        ends = f"{'' if low is None else low}..{'' if high is None else high}"
        _body_only(refuser, "range", node.place, before, ends)
        return []
    type_ = _find(refuser, node.column, known)
    if type_ is not None and type_.base != REFUSED and (type_.base not in NUMBERS or type_.list):
        refuser.refuse("S07", f"`@range` is for numbers; `{node.column.text}` is {type_}", node.column.place)
        return []
    if type_ is None or type_.base == REFUSED:
        return []
    place = (node.low or node.high or node.column).place
    if low is not None and high is not None and low > high:
        refuser.refuse("S07", f"the range {low}..{high} is empty", place, f"write {high}..{low}?")
        return []
    least, most = BOUNDS.get(type_.base, (-math.inf, math.inf))
    if high is not None and high < least:
        refuser.refuse("S07", f"no {type_.base} is below {least}: the range ..{high} is empty", place)
        return []
    if low is not None and low > most:
        refuser.refuse("S07", f"no {type_.base} is above {most}: the range {low}.. is empty", place)
        return []
    if type_.base in INTEGERS and low is not None and high is not None and math.ceil(low) > math.floor(high):
        refuser.refuse("S07", f"no whole number lies in {low}..{high}", place)
        return []
    return [Range(node.column.text, low, high)]


def empty_together(refuser: Refuser, node: ast.RangeNode, ranges: Sequence[Range]) -> None:
    """Several ranges of one property, an interface's among them, all hold: they must have something in common."""
    if not ranges or node.column is None or ranges[-1].property != node.column.text:
        return
    same = [r for r in ranges if r.property == node.column.text]
    low = max((r.low for r in same if r.low is not None), default=-math.inf)
    high = min((r.high for r in same if r.high is not None), default=math.inf)
    if len(same) > 1 and low > high:
        others = ", ".join(_ends(r) for r in same[:-1])
        refuser.refuse(
            "S07", f"nothing lies in this range of `{node.column.text}` and in {others} as well", node.column.place
        )


def check_of(refuser: Refuser, node: ast.CheckNode, known: Mapping[str, Type], before: ast.Name | None) -> list[Check]:
    """One `@check`; `before` is the property written before it."""
    if node.column is None:
        _body_only(refuser, "check", node.place, before, '"…"')
        return []
    type_ = _find(refuser, node.column, known)
    if type_ is not None and type_.base != REFUSED and (type_.base != "String" or type_.list):
        refuser.refuse("S06", f"`@check` is for String; `{node.column.text}` is {type_}", node.column.place)
    from omnigraph.schema.regex import refuse_regex  # few schemas have one

    problem = refuse_regex(node.pattern.value)
    if problem:
        refuser.refuse("S06", f"this regular expression is refused: {problem}", node.pattern.place)
    return [Check(node.column.text, node.pattern.value)]


def check_defaults(
    refuser: Refuser,
    members: Iterable[ast.Member],
    properties: Mapping[str, Property],
    ranges: Iterable[Range],
    checks: Iterable[Check],
) -> None:
    """A default keeps the constraints, or no row could ever be made with it."""
    places = {
        m.name.text: a.arguments[0].place
        for m in members
        if isinstance(m, ast.PropertyNode)
        for a in m.annotations
        if a.name == "default" and len(a.arguments) == 1
    }
    for name, place in places.items():
        value = properties[name].default
        for r in ranges:
            out = isinstance(value, (int, float)) and r.property == name and not _within(value, r)
            if out:
                refuser.refuse("S10", f"default: {value} is out of the range {_ends(r)}", place)
        for c in checks:
            if isinstance(value, str) and c.property == name and _fails(c.pattern, value):
                refuser.refuse("S10", f"default: {value[:60]!r} doesn't match {c.pattern!r}", place)


def _within(value: float, r: Range) -> bool:
    return (r.low is None or value >= r.low) and (r.high is None or value <= r.high)


def _ends(r: Range) -> str:
    return f"{'' if r.low is None else r.low}..{'' if r.high is None else r.high}"


def _body_only(refuser: Refuser, word: str, place: ast.Place, before: ast.Name | None, rest: str) -> None:
    refuser.refuse(
        "S12",
        f"`@{word}` names its property",
        place,
        f"write `@{word}({before.text if before else 'property'}, {rest})`",
    )


def _fails(pattern: str, value: str) -> bool:
    from omnigraph.schema.regex import fits, refuse_regex

    return refuse_regex(pattern) is None and fits(pattern, value) is False
