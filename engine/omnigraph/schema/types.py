"""Types as written in either language, resolved to catalog types."""

from __future__ import annotations

from collections.abc import Callable

from omnigraph.schema import ast
from omnigraph.schema.catalog import SCALARS, Type
from omnigraph.schema.grammar import nearest_name

__all__ = ["BASES", "REFUSED", "resolve_type"]

REFUSED = "Refused"
"""Base of a property's type that is refused: nothing more is asked of it."""

BASES = (SCALARS - {"Enum"}) | {"Blob", "Vector"}
_MOST_DIMENSIONS = 65_535

# What other languages call them, lower-case.
_ALSO_KNOWN_AS = {
    "text": "String",
    "str": "String",
    "varchar": "String",
    "uuid": "String",
    "url": "String",
    "json": "String",
    "int": "I64",
    "integer": "I64",
    "long": "I64",
    "bigint": "I64",
    "uint": "U64",
    "float": "F64",
    "double": "F64",
    "number": "F64",
    "decimal": "F64",
    "boolean": "Bool",
    "timestamp": "DateTime",
    "time": "DateTime",
    "bytes": "Blob",
    "binary": "Blob",
    "file": "Blob",
    "image": "Blob",
}

Refuse = Callable[[str, ast.Place, str | None], None]


def resolve_type(node: ast.TypeNode, refuse: Refuse) -> Type:
    """The catalog type; what is wrong goes to `refuse(message, place, hint)`, and a String stands in for it."""
    if node.kind == "list":
        assert node.element is not None
        element = resolve_type(node.element, refuse)
        if element.list or element.base in ("Blob", "Vector"):
            refuse(f"a list holds scalars, not {'lists' if element.list else element.base}", node.element.place, None)
        elif element.nullable:
            refuse("a list's elements can't be null", node.element.place, "write `[T]?` for a list that may be missing")
        return Type(element.base, node.nullable, True, element.enum)
    if node.kind == "enum":
        if not node.values:
            refuse("an enum needs at least one value", node.place, None)
        return Type("Enum", node.nullable, enum=tuple(sorted({v.text for v in node.values})))
    if node.kind == "vector":
        if node.name != "Vector":
            refuse(f"`{node.name}` takes no length; only `Vector(n)` does", node.place, None)
        elif not 1 <= node.dim <= _MOST_DIMENSIONS:
            refuse(f"a vector has 1 to {_MOST_DIMENSIONS} dimensions", node.place, None)
        return Type("Vector", node.nullable, dim=node.dim)
    if node.name == "Vector":
        refuse("a Vector needs its length", node.place, "write `Vector(384)`")
        return Type("Vector", node.nullable, dim=1)
    if node.name not in BASES:
        near = _ALSO_KNOWN_AS.get(node.name.lower()) or nearest_name(node.name, BASES)
        refuse(
            f"unknown type `{node.name}`",
            node.place,
            f"did you mean `{near}`?" if near else f"the types are {', '.join(sorted(BASES))}, enum(…) and [T]",
        )
        return Type("String", node.nullable)
    return Type(node.name, node.nullable)
