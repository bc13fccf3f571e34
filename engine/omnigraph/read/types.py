"""How the types of expressions and results look in Arrow while reading."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from omnigraph.errors import Internal
from omnigraph.schema.catalog import Catalog, EdgeType, NodeType, Type

__all__ = ["arrow_of", "column_type", "entity_properties", "entity_type", "property_names"]

_SCALARS: dict[str, pa.DataType] = {
    "String": pa.string(),
    "Enum": pa.string(),
    "Bool": pa.bool_(),
    "I32": pa.int32(),
    "I64": pa.int64(),
    "U32": pa.uint32(),
    "U64": pa.uint64(),
    "F32": pa.float32(),
    "F64": pa.float64(),
    "Date": pa.date32(),
    "DateTime": pa.timestamp("ms", "UTC"),  # date64 in storage
    "Null": pa.null(),
}


def arrow_of(type_: Type) -> pa.DataType:
    """The Arrow type of a value of this type."""
    if type_.base == "Vector":
        return pa.list_(pa.float32(), type_.dim)
    base = _SCALARS.get(type_.base)
    if base is None:
        raise Internal(f"{type_} is no value type")
    return pa.list_(base) if type_.list else base


def entity_properties(entity: NodeType | EdgeType) -> tuple[str, ...]:
    """What a whole entity shows: identity, an edge's ends, and every property but vectors and blobs."""
    identity = ("id",) if isinstance(entity, NodeType) else ("id", "src", "dst")
    shown = (name for name, p in entity.properties.items() if p.type.base not in ("Vector", "Blob"))
    return (*identity, *shown)


def property_names(entity: NodeType | EdgeType) -> frozenset[str]:
    """Every property, identity and an edge's ends included."""
    return frozenset(entity.properties) | (frozenset({"id"}) if isinstance(entity, NodeType) else _IDENTITY)


_IDENTITY = frozenset({"id", "src", "dst"})


def entity_type(catalog: Catalog, type_: Type) -> NodeType | EdgeType:
    """The catalog's node or edge type of a bound variable; of an edge over several types what they have in common."""
    if type_.base == "Node":
        return catalog.nodes[type_.entity]
    first, *others = (catalog.edges[name] for name in type_.entity.split("|"))
    if not others:
        return first
    theirs = [{name: p.type for name, p in other.properties.items()} for other in others]
    shared = {name: p for name, p in first.properties.items() if all(types.get(name) == p.type for types in theirs)}
    return replace(first, name=type_.entity, properties=shared)


def column_type(catalog: Catalog, type_: Type) -> pa.DataType:
    """The Arrow type of a result column; an entity is a struct."""
    if type_.base not in ("Node", "Edge"):
        return arrow_of(type_)
    entity = entity_type(catalog, type_)
    fields = []
    for name in entity_properties(entity):
        found = entity.properties.get(name)
        fields.append(pa.field(name, pa.string() if found is None else arrow_of(found.type)))
    return pa.struct(fields)
