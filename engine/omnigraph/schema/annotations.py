"""Annotations: which there are, what they take, and how the catalog keeps them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from omnigraph.schema import ast
from omnigraph.schema.catalog import Property, Type
from omnigraph.schema.grammar import nearest_name
from omnigraph.schema.literals import Literal
from omnigraph.schema.types import REFUSED

__all__ = ["COLUMN_WORDS", "Refuser", "annotation_values", "check_embeds", "check_renames"]

COLUMN_WORDS = ("key", "unique", "index")
_WRITTEN = {
    "range": "write `@range(property, low..high)` in the braces",
    "check": 'write `@check(property, "…")` in the braces',
    "card": "write `@card(min..max)` in the head of an edge type",
}
_ONE_STRING = ("description", "instruction", "rename_from")
_ONCE = (*_ONE_STRING, "embed")
_TYPE_NAME = re.compile(r"[A-Z][A-Za-z0-9_]*", re.ASCII)
_PROPERTY_NAME = re.compile(r"[a-z_][A-Za-z0-9_]*", re.ASCII)


class Refuser(Protocol):
    def refuse(self, code: str, message: str, place: ast.Place, hint: str | None = None) -> None: ...


def annotation_values(
    refuser: Refuser, annotations: Iterable[ast.Annotation], *, of_type: bool
) -> tuple[tuple[str, Any], ...]:
    """As the catalog keeps them: None without arguments, the value of a single one, else a tuple of the positional
    values followed by (name, value) pairs. Dates stay texts. The last of one name wins.

    Args:
        of_type: whether they annotate a type, not a property.
    """
    out: dict[str, Any] = {}
    for annotation in annotations:
        _judge(refuser, annotation, of_type)
        if annotation.name in _ONCE and annotation.name in out:
            refuser.refuse("S13", f"`@{annotation.name}` is given twice", annotation.place)
        values = tuple(_plain(a) for a in annotation.arguments)
        keywords = tuple((name, _plain(value)) for name, value in annotation.keywords)
        if not values and not keywords:
            out[annotation.name] = None
        elif len(values) == 1 and not keywords:
            out[annotation.name] = values[0]
        else:
            out[annotation.name] = values + keywords
    return tuple(out.items())


def _plain(literal: Literal) -> Any:
    return tuple(_plain(item) for item in literal.value) if literal.kind == "list" else literal.value


def _judge(refuser: Refuser, annotation: ast.Annotation, of_type: bool) -> None:
    name, place = annotation.name, annotation.place
    arguments, keywords = annotation.arguments, dict(annotation.keywords)
    if name in (*COLUMN_WORDS, *_WRITTEN):
        hint = _WRITTEN.get(name) or (f"write it in the braces: `@{name}(property)`" if of_type else None)
        refuser.refuse("S12", f"`@{name}` is a constraint and can't stand here", place, hint)
    elif name in _ONE_STRING:
        if len(arguments) != 1 or keywords or arguments[0].kind != "string":
            at = arguments[0].place if len(arguments) == 1 and not keywords else place
            refuser.refuse("S13", f'`@{name}` takes one string: `@{name}("…")`', at)
        elif name == "rename_from":
            form = _TYPE_NAME if of_type else _PROPERTY_NAME
            if not form.fullmatch(arguments[0].value):
                what = "a type's name (upper-case first)" if of_type else "a property's name (lower-case first)"
                refuser.refuse("S13", f"{arguments[0].value[:60]!r} can't have been {what}", arguments[0].place)
    elif name == "default" and of_type:
        refuser.refuse("S13", "a default is for a property; a type has none", place)
    elif name == "embed":
        if of_type:
            refuser.refuse("S13", "`@embed` stands after a Vector property", place)
        elif len(arguments) != 1 or arguments[0].kind != "string":
            at = arguments[0].place if len(arguments) == 1 else place
            refuser.refuse("S13", '`@embed` takes the property it embeds: `@embed("body", model="…")`', at)
        for keyword, value in annotation.keywords:
            if keyword != "model":
                near = nearest_name(keyword, ["model"])
                hint = f"did you mean `{near}=`?" if near else "`@embed` takes `model=` only"
                refuser.refuse("S13", f"`@embed` has no `{keyword}=`", value.place, hint)
            elif value.kind != "string":
                refuser.refuse("S13", "a model is named by a string", value.place)


def check_embeds(
    refuser: Refuser,
    members: Iterable[ast.Member],
    properties: Mapping[str, Property],
) -> None:
    """`@embed("p")` stands after a Vector and names a String property of the same type."""
    for member in members:
        if not isinstance(member, ast.PropertyNode):
            continue
        for annotation in member.annotations:
            if annotation.name != "embed":
                continue
            type_ = properties[member.name.text].type
            if type_.base == REFUSED:
                continue
            if type_.base != "Vector":
                refuser.refuse("S13", f"`@embed` fills a Vector, and this is {type_}", annotation.place)
            elif len(annotation.arguments) == 1 and annotation.arguments[0].kind == "string":
                _embedded(refuser, annotation.arguments[0], {n: p.type for n, p in properties.items()})


def _embedded(refuser: Refuser, argument: Literal, known: Mapping[str, Type]) -> None:
    source = known.get(argument.value)
    if source is None:
        near = nearest_name(argument.value, known)
        refuser.refuse(
            "S13",
            f"`@embed` names no property of this type: {argument.value[:60]!r}",
            argument.place,
            near and f"did you mean `{near}`?",
        )
    elif source.base != REFUSED and (source.base != "String" or source.list):
        refuser.refuse("S13", f"`@embed` reads a String; `{argument.value}` is {source}", argument.place)


def check_renames(refuser: Refuser, annotated: Iterable[tuple[str, Iterable[ast.Annotation]]]) -> None:
    """No two of one kind come from the same old name, and none in a circle: which name is whose would be a guess, since
    an annotation may be left standing after its rename.

    Args:
        annotated: name and annotations of each type of a kind, or of each property of a type.
    """
    taken: dict[str, str] = {}
    places: dict[str, ast.Place] = {}
    for name, written in annotated:
        for annotation in written:
            if annotation.name != "rename_from" or len(annotation.arguments) != 1:
                continue
            old = annotation.arguments[0]
            if old.kind == "string" and taken.setdefault(old.value, name) != name:
                refuser.refuse("S13", f"`{taken[old.value]}` is renamed from `{old.value}` already", old.place)
            elif old.kind == "string":
                places[old.value] = old.place
    for circle in _circles(taken):
        said = " and ".join(f"`{name}`" for name in circle)
        hint = "rename one to a name of its own, apply that, then give the other names in a second change"
        refuser.refuse("S13", f"{said} are renamed from each other", places[circle[-1]], hint)


def _circles(renamed: Mapping[str, str]) -> Iterable[list[str]]:
    """Each circle of `old name → new name` once, a name renamed from itself left out."""
    seen: set[str] = set()
    for start in renamed:
        path = [start]
        while path[-1] not in seen and (after := renamed.get(path[-1])) is not None and after not in path:
            path.append(after)
        if len(path) > 1 and path[-1] not in seen and renamed.get(path[-1]) == start:
            yield path
        seen.update(path)
