"""What stands in the braces of a declaration: properties, constraints and their annotations."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from omnigraph.schema import ast
from omnigraph.schema.catalog import NUMBERS, Check, Property, Range, Type
from omnigraph.schema.grammar import nearest_name
from omnigraph.schema.literals import Literal, Mismatch, fit
from omnigraph.schema.regex import refuse_regex
from omnigraph.schema.types import resolve_type

__all__ = ["Members", "annotation_values", "collect_members"]

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
_COLUMN_WORDS = ("key", "unique", "index")
_BODY_ONLY = ("range", "check", "card")

Columns = tuple[str, ...]


class Refuser(Protocol):
    def refuse(self, code: str, message: str, place: ast.Place, hint: str | None = None) -> None: ...


@dataclass(frozen=True)
class Members:
    properties: dict[str, Property]
    keys: tuple[tuple[Columns, ast.Place], ...]
    uniques: tuple[Columns, ...]
    indexes: tuple[Columns, ...]
    ranges: tuple[Range, ...]
    checks: tuple[Check, ...]


def collect_members(
    refuser: Refuser, kind: str, members: Iterable[ast.Member], inherited: Iterable[tuple[str, ast.Place, Members]]
) -> Members:
    """The members of one `node`, `edge` or `interface`, its interfaces' first.

    Args:
        inherited: name, place in the `implements` list and members of each interface.
    """
    members = tuple(members)
    inherited = tuple(inherited)
    properties = _inherit(refuser, inherited)
    keys = [k for _, place, m in inherited for k in ((columns, place) for columns, _ in m.keys)]
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
        columns = _columns(refuser, constraint, known)
        if constraint.word == "key":
            keys.append((columns, constraint.place))
        else:
            (uniques if constraint.word == "unique" else indexes).append(columns)
    for member in members:
        if isinstance(member, (ast.RangeNode, ast.CheckNode)) and kind == "edge":
            word = "range" if isinstance(member, ast.RangeNode) else "check"
            refuser.refuse(
                "S14", f"`@{word}` is for node types; an edge takes `@key`, `@unique` and `@index`", member.place
            )
        elif isinstance(member, ast.RangeNode):
            ranges += _range(refuser, member, known)
        elif isinstance(member, ast.CheckNode):
            checks += _check(refuser, member, known)
    return Members(
        properties,
        tuple(dict.fromkeys(keys)),
        tuple(dict.fromkeys(uniques)),
        tuple(dict.fromkeys(indexes)),
        tuple(dict.fromkeys(ranges)),
        tuple(dict.fromkeys(checks)),
    )


def _inherit(refuser: Refuser, inherited: Iterable[tuple[str, ast.Place, Members]]) -> dict[str, Property]:
    properties: dict[str, Property] = {}
    origin: dict[str, str] = {}
    for interface, place, members in inherited:
        for name, prop in members.properties.items():
            if name in properties and properties[name].type != prop.type:
                refuser.refuse(
                    "S06",
                    f"`{name}` is {properties[name].type} in `{origin[name]}` but {prop.type} in `{interface}`",
                    place,
                )
            properties.setdefault(name, prop)
            origin.setdefault(name, interface)
    return properties


def _property(
    refuser: Refuser, kind: str, node: ast.PropertyNode, properties: dict[str, Property], own: set[str]
) -> list[ast.Columns]:
    """Add one property; return the constraints among its annotations."""
    name = node.name.text
    if name in _RESERVED[kind] or name in _SYSTEM:
        refuser.refuse("S11", f"`{name}` is reserved; choose another property name", node.name.place)
    if name in own:
        refuser.refuse("S02", f"property `{name}` is declared twice", node.name.place)
    type_ = resolve_type(node.type, lambda message, place, hint: refuser.refuse("S03", message, place, hint))
    inherited = properties.get(name) if name not in own else None
    if inherited is not None and inherited.type != type_:
        refuser.refuse("S06", f"`{name}` is {type_} here but {inherited.type} in an interface", node.type.place)
    own.add(name)
    constraints: list[ast.Columns] = []
    rest: list[ast.Annotation] = []
    default: Literal | None = None
    for annotation in node.annotations:
        if annotation.name in _COLUMN_WORDS:
            constraints.append(ast.Columns(annotation.name, (node.name,), annotation.place))
        elif annotation.name == "default":
            if default is not None or len(annotation.arguments) != 1 or annotation.keywords:
                refuser.refuse("S15", "`@default` takes one literal, and once", annotation.place)
            else:
                default = annotation.arguments[0]
        else:
            rest.append(annotation)
    annotations = annotation_values(refuser, rest)
    _embed(refuser, rest, type_)
    if inherited is not None:
        annotations = tuple({**dict(inherited.annotations), **dict(annotations)}.items())
    if default is not None:
        properties[name] = Property(name, type_, True, _default(refuser, default, type_), annotations)
    elif inherited is not None:
        properties[name] = Property(name, inherited.type, inherited.has_default, inherited.default, annotations)
    else:
        properties[name] = Property(name, type_, annotations=annotations)
    return constraints


def _default(refuser: Refuser, literal: Literal, type_: Type) -> Any:
    try:
        if type_.base == "Blob":
            raise Mismatch("a Blob has no default")
        return fit(literal.python(), type_)
    except Mismatch as error:
        refuser.refuse("S12", f"default: {error}", literal.place)
        return None


def _embed(refuser: Refuser, annotations: Iterable[ast.Annotation], type_: Type) -> None:
    for annotation in annotations:
        if annotation.name == "embed" and type_.base != "Vector":
            refuser.refuse("S15", f"`@embed` fills a Vector, and this is {type_}", annotation.place)


def annotation_values(refuser: Refuser, annotations: Iterable[ast.Annotation]) -> tuple[tuple[str, Any], ...]:
    """As the catalog keeps them: None without arguments, the value of a single one, else a tuple of the positional
    values followed by (name, value) pairs. Dates stay texts. The last of one name wins."""
    out: dict[str, Any] = {}
    for annotation in annotations:
        values = tuple(_plain(a) for a in annotation.arguments)
        keywords = tuple((name, _plain(value)) for name, value in annotation.keywords)
        if annotation.name in ("description", "instruction", "rename_from"):
            if len(values) != 1 or keywords or not isinstance(values[0], str):
                refuser.refuse("S15", f"`@{annotation.name}` takes one string", annotation.place)
        elif annotation.name == "embed" and (not values or not isinstance(values[0], str)):
            refuser.refuse("S15", "`@embed` takes the name of the property it embeds, as a string", annotation.place)
        elif annotation.name in (*_COLUMN_WORDS, *_BODY_ONLY):
            refuser.refuse("S14", f"`@{annotation.name}` is a constraint and can't stand here", annotation.place)
        if not keywords and len(values) <= 1:
            out[annotation.name] = values[0] if values else None
        else:
            out[annotation.name] = values + keywords
    return tuple(out.items())


def _plain(literal: Literal) -> Any:
    return tuple(_plain(item) for item in literal.value) if literal.kind == "list" else literal.value


def _find(refuser: Refuser, name: ast.Name, known: dict[str, Type]) -> Type | None:
    found = known.get(name.text)
    if found is None:
        near = nearest_name(name.text, known)
        refuser.refuse("S08", f"no property `{name.text}` here", name.place, near and f"did you mean `{near}`?")
    return found


def _columns(refuser: Refuser, node: ast.Columns, known: dict[str, Type]) -> Columns:
    seen: set[str] = set()
    for name in node.columns:
        type_ = _find(refuser, name, known)
        if name.text in seen:
            refuser.refuse("S08", f"`{name.text}` is named twice", name.place)
        seen.add(name.text)
        if type_ is None or node.word == "index":
            continue
        if type_.list or type_.base in ("Blob", "Vector"):
            refuser.refuse("S07", f"`{name.text}` is {type_}, which can't be in `@{node.word}`", node.place)
        elif node.word == "key" and type_.base in ("F32", "F64"):
            refuser.refuse("S07", f"`{name.text}` is {type_}; a number with fractions can't be a key", node.place)
        elif node.word == "key" and type_.nullable:
            refuser.refuse("S07", f"`{name.text}` may be null and so can't be a key; drop its `?`", node.place)
    return tuple(name.text for name in node.columns)


def _range(refuser: Refuser, node: ast.RangeNode, known: dict[str, Type]) -> list[Range]:
    type_ = _find(refuser, node.column, known)
    low = node.low.value if node.low else None
    high = node.high.value if node.high else None
    if type_ is not None and (type_.base not in NUMBERS or type_.list):
        refuser.refuse("S10", f"`@range` is for numbers; `{node.column.text}` is {type_}", node.column.place)
    if low is not None and high is not None and low > high:
        refuser.refuse("S10", f"the range {low}..{high} is empty", node.low.place if node.low else node.place)
    return [Range(node.column.text, low, high)]


def _check(refuser: Refuser, node: ast.CheckNode, known: dict[str, Type]) -> list[Check]:
    type_ = _find(refuser, node.column, known)
    if type_ is not None and (type_.base != "String" or type_.list):
        refuser.refuse("S09", f"`@check` is for String; `{node.column.text}` is {type_}", node.column.place)
    problem = refuse_regex(node.pattern.value)
    if problem:
        refuser.refuse("S09", f"this regular expression is refused: {problem}", node.pattern.place)
    return [Check(node.column.text, node.pattern.value)]
