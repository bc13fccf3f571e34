"""What stands in the braces of a declaration: properties and constraints, its interfaces' first."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from omnigraph.records import dataclass
from omnigraph.schema import ast
from omnigraph.schema.annotations import COLUMN_WORDS, Refuser, annotation_values, check_embeds, check_renames
from omnigraph.schema.bodies import Columns, check_defaults, check_of, columns_of, empty_together, range_of
from omnigraph.schema.catalog import Check, Property, Range, Type
from omnigraph.schema.literals import Literal, Mismatch, fit, is_zero
from omnigraph.schema.types import REFUSED, resolve_type

__all__ = ["Key", "Members", "collect_members"]

_RESERVED = {
    "node": frozenset({"id"}),
    "interface": frozenset({"id"}),
    "edge": frozenset({"id", "src", "dst", "from", "to"}),
}
_SYSTEM = frozenset(
    {
        "_rowid",
        "_rowaddr",
        "_rowoffset",
        "_row_created_at_version",
        "_row_last_updated_at_version",
        "_score",
        "_distance",
    }
)


@dataclass(frozen=True)
class Key:
    """A key as declared; `interface` is where it comes from, if not from the type itself."""

    columns: Columns
    place: ast.Place
    interface: str | None = None


@dataclass(frozen=True)
class Members:
    properties: dict[str, Property]
    keys: tuple[Key, ...]
    uniques: tuple[Columns, ...]
    indexes: tuple[Columns, ...]
    ranges: tuple[Range, ...]
    checks: tuple[Check, ...]


Inherited = tuple[str, ast.Place, Members]
"""An interface's name, its place in the `implements` list, and its members."""


def collect_members(
    refuser: Refuser, kind: str, members: tuple[ast.Member, ...], inherited: tuple[Inherited, ...]
) -> Members:
    """The members of one `node`, `edge` or `interface`."""
    properties = _inherit(refuser, inherited)
    keys = [Key(k.columns, place, name) for name, place, m in inherited for k in m.keys]
    uniques = [u for _, _, m in inherited for u in m.uniques]
    indexes = [i for _, _, m in inherited for i in m.indexes]
    ranges = [r for _, _, m in inherited for r in m.ranges]
    checks = [c for _, _, m in inherited for c in m.checks]
    own: set[str] = set()
    constraints: list[ast.Columns] = []
    for member in members:
        if isinstance(member, ast.PropertyNode):
            constraints += _property(refuser, kind, member, properties, own)
    known: dict[str, Type] = {name: p.type for name, p in properties.items()}
    if kind == "edge":
        known |= {"src": Type("String"), "dst": Type("String")}
    constraints += [m for m in members if isinstance(m, ast.Columns)]
    for constraint in sorted(constraints, key=lambda c: c.place):
        columns = columns_of(refuser, constraint, known)
        if constraint.word == "key":
            keys.append(Key(columns, constraint.place))
        else:
            (uniques if constraint.word == "unique" else indexes).append(columns)
    before: ast.Name | None = None
    for member in members:
        if isinstance(member, ast.PropertyNode):
            before = member.name
        elif isinstance(member, ast.Stray):
            _stray(refuser, kind, member)
        elif isinstance(member, (ast.RangeNode, ast.CheckNode)) and kind == "edge":
            word = "range" if isinstance(member, ast.RangeNode) else "check"
            refuser.refuse(
                "S12", f"`@{word}` is for node types; an edge takes `@key`, `@unique` and `@index`", member.place
            )
        elif isinstance(member, ast.RangeNode):
            found = range_of(refuser, member, known, before)
            ranges += found
            empty_together(refuser, member, ranges)
        elif isinstance(member, ast.CheckNode):
            checks += check_of(refuser, member, known, before)
    check_embeds(refuser, members, properties)
    check_defaults(refuser, members, properties, ranges, checks)
    check_renames(refuser, [(m.name.text, m.annotations) for m in members if isinstance(m, ast.PropertyNode)])
    return Members(
        properties,
        tuple({k.columns: k for k in reversed(keys)}[c] for c in dict.fromkeys(k.columns for k in keys)),
        tuple(dict.fromkeys(uniques)),
        tuple(dict.fromkeys(indexes)),
        tuple(dict.fromkeys(ranges)),
        tuple(dict.fromkeys(checks)),
    )


def _stray(refuser: Refuser, kind: str, member: ast.Stray) -> None:
    hint: str | None
    if member.word == "card" and kind == "edge":
        hint = "write it before the braces: `edge Name: From -> To @card(0..1) { … }`"
        refuser.refuse("S12", "`@card` is about the edge type and stands in its head", member.place, hint)
    elif member.word == "card":
        refuser.refuse("S12", "`@card` is for edge types", member.place)
    else:
        hint = None if kind == "edge" else "write it in the braces"
        refuser.refuse("S12", f"`@{member.word}` is a constraint and can't stand here", member.place, hint)


def _inherit(refuser: Refuser, inherited: tuple[Inherited, ...]) -> dict[str, Property]:
    properties: dict[str, Property] = {}
    origin: dict[str, str] = {}
    for interface, place, members in inherited:
        for name, prop in members.properties.items():
            earlier = properties.setdefault(name, prop)
            first = origin.setdefault(name, interface)
            if not _same(earlier.type, prop.type):
                refuser.refuse(
                    "S03", f"`{name}` is {earlier.type} in `{first}` but {prop.type} in `{interface}`", place
                )
            elif earlier.has_default and prop.has_default and earlier.default != prop.default:
                refuser.refuse("S03", f"`{name}` has one default in `{first}` and another in `{interface}`", place)
            elif prop.has_default and not earlier.has_default:
                properties[name] = prop
    return properties


def _property(
    refuser: Refuser, kind: str, node: ast.PropertyNode, properties: dict[str, Property], own: set[str]
) -> list[ast.Columns]:
    """Add one property; return the constraints among its annotations."""
    name = node.name.text
    if name.lower() in _RESERVED[kind] | _SYSTEM:
        refuser.refuse("S08", f"`{name}` is reserved; choose another property name", node.name.place)
    if name in own:
        refuser.refuse("S01", f"property `{name}` is declared twice", node.name.place)
        return []  # the first one counts: what the second says would be judged against it
    type_ = _type(refuser, node.type)
    inherited = properties.get(name)
    if inherited is not None and not _same(inherited.type, type_):
        refuser.refuse("S03", f"`{name}` is {type_} here but {inherited.type} in an interface", node.type.place)
    own.add(name)
    constraints: list[ast.Columns] = []
    rest: list[ast.Annotation] = []
    default: Literal | None = None
    for annotation in node.annotations:
        if annotation.name in COLUMN_WORDS:
            constraints.append(ast.Columns(annotation.name, (node.name,), annotation.place))
        elif annotation.name == "default":
            if default is not None or len(annotation.arguments) != 1 or annotation.keywords:
                refuser.refuse("S13", "`@default` takes one literal, and once", annotation.place)
            else:
                default = annotation.arguments[0]
        else:
            rest.append(annotation)
    annotations = annotation_values(refuser, rest, of_type=False)
    if inherited is not None:
        annotations = tuple({**dict(inherited.annotations), **dict(annotations)}.items())
    if default is not None:
        properties[name] = Property(name, type_, True, _default(refuser, default, type_), annotations)
    elif inherited is not None:
        properties[name] = Property(name, inherited.type, inherited.has_default, inherited.default, annotations)
    else:
        properties[name] = Property(name, type_, annotations=annotations)
    return constraints


def _type(refuser: Refuser, node: ast.TypeNode) -> Type:
    """The type, or one that fits everything where it is refused: one mistake is said once."""
    sound = True

    def refuse(message: str, place: ast.Place, hint: str | None) -> None:
        nonlocal sound
        sound = False
        refuser.refuse("S09", message, place, hint)

    type_ = resolve_type(node, refuse)
    return type_ if sound else Type(REFUSED)


def _same(left: Type, right: Type) -> bool:
    return left == right or REFUSED in (left.base, right.base)


def _default(refuser: Refuser, literal: Literal, type_: Type) -> Any:
    if type_.base == REFUSED:
        return None
    try:
        if type_.base == "Blob":
            raise Mismatch("a Blob has no default")
        value = fit(literal.python(), type_)
        if type_.base == "Vector" and value is not None and is_zero(value):
            raise Mismatch("a vector of zeros points nowhere")
        return value
    except Mismatch as error:
        refuser.refuse("S10", f"default: {error}", _culprit(literal, type_).place)
        return None


def _culprit(literal: Literal, type_: Type) -> Literal:
    """The item of a list that doesn't fit, where it is one."""
    if literal.kind == "list" and type_.list:
        element = replace(type_, list=False, nullable=False)
        for item in literal.value:
            try:
                fit(item.python(), element)
            except Mismatch:
                return item  # type: ignore[no-any-return]
    return literal
