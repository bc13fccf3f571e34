"""The syntax tree of a schema text: what was written and where, nothing judged yet."""

from __future__ import annotations

from typing import TypeAlias

from omnigraph.records import dataclass
from omnigraph.schema.literals import Literal

__all__ = [
    "Annotation",
    "CardinalityNode",
    "CheckNode",
    "Columns",
    "Declaration",
    "EdgeNode",
    "InterfaceNode",
    "Member",
    "Name",
    "NodeNode",
    "PropertyNode",
    "RangeNode",
    "SchemaText",
    "Stray",
    "TypeNode",
]

Place: TypeAlias = tuple[int, int]
"""Start and end offset (exclusive) in the text; a `SourceText` makes a `Span` of it when one is needed."""


@dataclass(frozen=True, slots=True)
class Name:
    text: str
    place: Place


@dataclass(frozen=True, slots=True)
class TypeNode:
    """`kind`: scalar (`name` as written), vector (`dim`), enum (`values`), list (`element`)."""

    kind: str
    place: Place
    name: str = ""
    dim: int = 0
    values: tuple[Name, ...] = ()
    element: TypeNode | None = None
    nullable: bool = False


@dataclass(frozen=True, slots=True)
class Annotation:
    name: str
    arguments: tuple[Literal, ...]
    keywords: tuple[tuple[str, Literal], ...]
    place: Place


@dataclass(frozen=True, slots=True)
class PropertyNode:
    name: Name
    type: TypeNode
    annotations: tuple[Annotation, ...]
    place: Place


@dataclass(frozen=True, slots=True)
class Columns:
    """`@key(…)`, `@unique(…)`, `@index(…)`; `word` is without the `@`."""

    word: str
    columns: tuple[Name, ...]
    place: Place


@dataclass(frozen=True, slots=True)
class RangeNode:
    """`column` is None where it was written like an annotation, `@range(0..9)`, which is refused later."""

    column: Name | None
    low: Literal | None
    high: Literal | None
    place: Place


@dataclass(frozen=True, slots=True)
class CheckNode:
    column: Name | None
    pattern: Literal
    place: Place


@dataclass(frozen=True, slots=True)
class CardinalityNode:
    min: int
    max: int | None
    place: Place


@dataclass(frozen=True, slots=True)
class Stray:
    """A `@card`, `@range` or `@check` (`word`) where none can stand, which is refused later."""

    word: str
    place: Place


Member: TypeAlias = PropertyNode | Columns | RangeNode | CheckNode | Stray


@dataclass(frozen=True, slots=True)
class InterfaceNode:
    name: Name
    annotations: tuple[Annotation, ...]
    members: tuple[Member, ...]
    place: Place


@dataclass(frozen=True, slots=True)
class NodeNode:
    name: Name
    interfaces: tuple[Name, ...]
    annotations: tuple[Annotation, ...]
    members: tuple[Member, ...]
    place: Place


@dataclass(frozen=True, slots=True)
class EdgeNode:
    name: Name
    source: Name
    target: Name
    annotations: tuple[Annotation, ...]
    cardinalities: tuple[CardinalityNode, ...]
    members: tuple[Member, ...]
    place: Place


Declaration: TypeAlias = InterfaceNode | NodeNode | EdgeNode


@dataclass(frozen=True, slots=True)
class SchemaText:
    declarations: tuple[Declaration, ...]
