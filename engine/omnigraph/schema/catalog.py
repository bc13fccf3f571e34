"""The catalog: what a schema declares, checked and resolved. Pure data; nothing of Lance or Arrow.

A `Catalog` is what every other room knows of a schema. Interfaces are expanded into the node types that implement them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from functools import cached_property
from typing import Any

from omnigraph.records import dataclass

__all__ = [
    "INTEGERS",
    "NUMBERS",
    "SCALARS",
    "Cardinality",
    "Catalog",
    "Check",
    "EdgeType",
    "Embed",
    "InterfaceType",
    "NodeType",
    "Property",
    "Range",
    "Type",
    "table_key",
]

INTEGERS = frozenset({"I32", "I64", "U32", "U64"})
NUMBERS = INTEGERS | {"F32", "F64"}
SCALARS = NUMBERS | {"String", "Bool", "Date", "DateTime", "Enum"}


@dataclass(frozen=True, slots=True)
class Type:
    """The type of a property, a parameter or an expression.

    `base` is one of `SCALARS`, `Blob`, `Vector`, and in expressions also `Null`, `Node` and `Edge` (a bound entity).
    With `list`, `base` is the element's type. `enum` holds an Enum's sorted values, `dim` a Vector's length,
    `entity` the type name of a Node or Edge.
    """

    base: str
    nullable: bool = False
    list: bool = False
    enum: tuple[str, ...] = ()
    dim: int = 0
    entity: str = ""

    def __str__(self) -> str:
        name = self.base
        if name == "Enum":
            name = f"enum({', '.join(self.enum)})"
        elif name == "Vector":
            name = f"Vector({self.dim})"
        elif self.entity:
            name = self.entity
        if self.list:
            name = f"[{name}]"
        return f"{name}?" if self.nullable else name


@dataclass(frozen=True, slots=True)
class Embed:
    """`@embed("source", model="…")`: the vector is made from that text property, with that model."""

    source: str
    model: str | None = None


@dataclass(frozen=True, slots=True)
class Property:
    name: str
    type: Type
    has_default: bool = False
    default: Any = None  # the literal of @default as its Python value
    annotations: tuple[tuple[str, Any], ...] = ()

    @property
    def embed(self) -> Embed | None:
        """How the vector is made, where the schema says so."""
        given = dict(self.annotations).get("embed")
        if given is None:
            return None
        source, *more = given if isinstance(given, tuple) else (given,)
        return Embed(source, dict(more).get("model"))


@dataclass(frozen=True, slots=True)
class Range:
    """`@range(property, low..high)`: both ends inclusive; None is open."""

    property: str
    low: int | float | None
    high: int | float | None


@dataclass(frozen=True, slots=True)
class Check:
    """`@check(property, "regex")`: the whole string must match."""

    property: str
    pattern: str


@dataclass(frozen=True, slots=True)
class Cardinality:
    """`@card(min..max)`: out-degree per source node; None is unbounded."""

    min: int = 0
    max: int | None = None


@dataclass(frozen=True)
class NodeType:
    name: str
    properties: Mapping[str, Property]  # in declaration order, interfaces expanded
    key: tuple[str, ...] = ()  # empty: the id is a fresh ULID
    uniques: tuple[tuple[str, ...], ...] = ()
    indexes: tuple[tuple[str, ...], ...] = ()
    ranges: tuple[Range, ...] = ()
    checks: tuple[Check, ...] = ()
    interfaces: tuple[str, ...] = ()
    annotations: tuple[tuple[str, Any], ...] = ()

    @cached_property
    def table_key(self) -> str:
        return table_key("node", self.name)


@dataclass(frozen=True)
class EdgeType:
    name: str
    source: str  # node type name
    target: str
    properties: Mapping[str, Property]
    key: tuple[str, ...] = ()  # ("src", "dst", property…) or empty
    uniques: tuple[tuple[str, ...], ...] = ()
    indexes: tuple[tuple[str, ...], ...] = ()
    cardinality: Cardinality = field(default_factory=Cardinality)
    annotations: tuple[tuple[str, Any], ...] = ()

    @cached_property
    def table_key(self) -> str:
        return table_key("edge", self.name)


@dataclass(frozen=True)
class InterfaceType:
    """What an interface declares; its constraints stand in the node types that implement it."""

    name: str
    properties: Mapping[str, Property]
    annotations: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True)
class Catalog:
    """Every type of one accepted schema.

    `source` is the `.pg` text; `hash` is the hex sha256 of its UTF-8 bytes (the `schema_hash` of commits).
    """

    source: str
    hash: str
    nodes: Mapping[str, NodeType]
    edges: Mapping[str, EdgeType]
    interfaces: Mapping[str, InterfaceType] = field(default_factory=dict)

    @cached_property
    def _edges_folded(self) -> dict[str, EdgeType]:
        return {name.lower(): edge for name, edge in self.edges.items()}

    def edge(self, name: str) -> EdgeType | None:
        """The edge type of this name, case ignored."""
        return self._edges_folded.get(str(name).lower())  # a caller of the library may ask for anything

    @cached_property
    def by_table_key(self) -> dict[str, NodeType | EdgeType]:
        types: list[NodeType | EdgeType] = [*self.nodes.values(), *self.edges.values()]
        return {t.table_key: t for t in types}

    def edges_at(self, node: str) -> tuple[EdgeType, ...]:
        """Edge types with this node type as source or target."""
        return tuple(e for e in self.edges.values() if node in (e.source, e.target))


def table_key(kind: str, name: str) -> str:
    """`node:Person`, `edge:Knows`."""
    return f"{kind}:{name}"
