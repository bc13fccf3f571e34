"""The schema IR: a catalog as plain, canonical data in which types and properties have ids that survive renames.

It is what a graph keeps of its schema beside the text (`_schema.ir.json`) and what migrations are planned on. The order
of declarations, members and annotations, comments and white space leave no trace in it, so two texts with the same
*identity* (sha256 of the canonical JSON) mean the same schema. Interfaces are expanded; `@rename_from` is gone: it says
what to do once, not what the schema is.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import cached_property
from typing import Any

from omnigraph.records import dataclass
from omnigraph.schema.catalog import Catalog, EdgeType, NodeType, Property, Type, table_key

__all__ = ["IR_VERSION", "Constraint", "PropertyIR", "SchemaIR", "TypeIR", "constraint_key", "ir_of"]

IR_VERSION = 2
"""Version 1 was the catalog as JSON, without ids."""


@dataclass(frozen=True, slots=True)
class PropertyIR:
    """`default` is the Python value of `@default`, None without one (`has_default` tells); `annotations` are sorted."""

    id: int
    name: str
    type: Type
    has_default: bool = False
    default: Any = None
    annotations: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class Constraint:
    """`kind`: key, unique, index, range, check or card.

    The order of `properties` matters in a key and an index; in a unique they are sorted. `low` and `high` are the ends
    of a range or a cardinality, None is open.
    """

    kind: str
    properties: tuple[str, ...] = ()
    low: int | float | None = None
    high: int | float | None = None
    pattern: str = ""

    def __str__(self) -> str:
        if self.kind == "card":
            return f"@card({self._ends()})"
        named = ", ".join(self.properties)
        if self.kind == "range":
            return f"@range({named}, {self._ends()})"
        if self.kind == "check":
            return f"@check({named}, {json.dumps(self.pattern, ensure_ascii=False)})"
        return f"@{self.kind}({named})"

    def _ends(self) -> str:
        return f"{'' if self.low is None else self.low}..{'' if self.high is None else self.high}"


def constraint_key(c: Constraint) -> tuple[Any, ...]:
    """By which constraints are sorted."""
    return c.kind, c.properties, c.low is not None, c.low or 0, c.high is not None, c.high or 0, c.pattern


@dataclass(frozen=True, slots=True)
class TypeIR:
    """A node or edge type (`kind`). Properties are sorted by name, constraints by `constraint_key`, the rest by name.

    The index that a key implies isn't among the constraints, nor is a cardinality without bounds.
    """

    id: int
    kind: str
    name: str
    properties: tuple[PropertyIR, ...] = ()
    constraints: tuple[Constraint, ...] = ()
    source: str = ""
    target: str = ""
    interfaces: tuple[str, ...] = ()
    annotations: tuple[tuple[str, Any], ...] = ()

    @property
    def table_key(self) -> str:
        return table_key(self.kind, self.name)

    @property
    def key(self) -> tuple[str, ...]:
        return next((c.properties for c in self.constraints if c.kind == "key"), ())

    def property(self, name: str) -> PropertyIR | None:
        return next((p for p in self.properties if p.name == name), None)


@dataclass(frozen=True)
class SchemaIR:
    """`types` are sorted by table key. Every id is below `next_id`, and none is ever given twice."""

    types: tuple[TypeIR, ...] = ()
    next_id: int = 1
    version: int = field(default=IR_VERSION)

    @cached_property
    def by_table_key(self) -> Mapping[str, TypeIR]:
        return {t.table_key: t for t in self.types}

    @cached_property
    def by_id(self) -> Mapping[int, TypeIR]:
        return {t.id: t for t in self.types}

    def canonical(self) -> str:
        """The one JSON text of this schema: keys sorted, nothing between the tokens."""
        from omnigraph.schema.ir_json import canonical_json, schema_json

        return canonical_json(schema_json(self))

    @cached_property
    def identity(self) -> str:
        """Hex sha256 of the canonical JSON."""
        return hashlib.sha256(self.canonical().encode()).hexdigest()

    def to_json(self) -> str:
        """The canonical JSON, as `_schema.ir.json` holds it."""
        return self.canonical()

    @staticmethod
    def from_json(text: str | bytes) -> SchemaIR:
        """Read `to_json` back.

        Raises:
            MalformedIR: the text isn't one; the message names the place in it.
        """
        from omnigraph.schema.ir_json import read_schema

        return read_schema(text)


# ---- from a catalog --------------------------------------------------------------------------------------------------


def ir_of(catalog: Catalog, previous: SchemaIR | None = None) -> SchemaIR:
    """The IR of a catalog.

    Args:
        catalog: what to describe.
        previous: the schema before it. What is still there keeps its ids, what says `@rename_from` takes over the old
            one's, everything else gets fresh ones.
    """
    previous = previous or SchemaIR()
    fresh = iter(range(previous.next_id, 2**62))
    types: list[TypeIR] = []
    last = previous.next_id
    for kind, declared in (("edge", catalog.edges), ("node", catalog.nodes)):
        old = {t.name: t for t in previous.types if t.kind == kind}
        origins = _origins({n: _renamed_from(t.annotations) for n, t in declared.items()}, old)
        for name in sorted(declared):
            before = old[origins[name]] if name in origins else None
            made = _type(kind, declared[name], before, fresh)
            last = max(last, made.id + 1, *(p.id + 1 for p in made.properties))
            types.append(made)
    return SchemaIR(tuple(sorted(types, key=lambda t: t.table_key)), last)


def _type(kind: str, declared: NodeType | EdgeType, before: TypeIR | None, fresh: Iterator[int]) -> TypeIR:
    type_id = before.id if before else next(fresh)
    old = {p.name: p for p in before.properties} if before else {}
    origins = _origins({n: _renamed_from(p.annotations) for n, p in declared.properties.items()}, old)
    properties = []
    for name in sorted(declared.properties):
        known = old.get(origins.get(name, ""))
        properties.append(_property(declared.properties[name], known.id if known else next(fresh)))
    return TypeIR(
        type_id,
        kind,
        declared.name,
        tuple(properties),
        tuple(sorted(set(_constraints(declared)), key=constraint_key)),
        declared.source if isinstance(declared, EdgeType) else "",
        declared.target if isinstance(declared, EdgeType) else "",
        tuple(sorted(declared.interfaces)) if isinstance(declared, NodeType) else (),
        _kept(declared.annotations),
    )


def _property(declared: Property, id: int) -> PropertyIR:
    annotations = _kept(declared.annotations)
    return PropertyIR(id, declared.name, declared.type, declared.has_default, declared.default, annotations)


def _constraints(declared: NodeType | EdgeType) -> Iterator[Constraint]:
    if declared.key:
        yield Constraint("key", declared.key)
    for columns in declared.uniques:
        yield Constraint("unique", tuple(sorted(columns)))
    for columns in declared.indexes:
        if columns != declared.key:
            yield Constraint("index", columns)
    if isinstance(declared, EdgeType):
        card = declared.cardinality
        if card.min or card.max is not None:
            yield Constraint("card", low=card.min, high=card.max)
        return
    for r in declared.ranges:
        if r.low is not None or r.high is not None:
            yield Constraint("range", (r.property,), _number(r.low), _number(r.high))
    for c in declared.checks:
        yield Constraint("check", (c.property,), pattern=c.pattern)


def _number(end: int | float | None) -> int | float | None:
    # 1.0 and 1 are one end and have one text.
    return int(end) if isinstance(end, float) and end.is_integer() else end


def _kept(annotations: Iterable[tuple[str, Any]]) -> tuple[tuple[str, Any], ...]:
    return tuple(sorted(((n, v) for n, v in annotations if n != "rename_from"), key=lambda a: a[0]))


def _renamed_from(annotations: Sequence[tuple[str, Any]]) -> str | None:
    return next((value for name, value in annotations if name == "rename_from"), None)


def _origins(declared: Mapping[str, str | None], old: Mapping[str, Any]) -> dict[str, str]:
    """Which old name each declared name goes on from.

    A name that was there goes on from itself, whatever its `@rename_from` says, so that an annotation left standing is
    harmless. Unless another, new name takes it over: then it is free for a rename of its own, or new.
    """
    origins: dict[str, str] = {}
    taken: set[str] = set()
    open_ = dict(declared)
    while True:
        for name, before in sorted(open_.items()):
            there = name in old and name not in taken
            if before is not None and before != name and not there and before in old and before not in taken:
                origins[name] = before
                taken.add(before)
                del open_[name]
                break
        else:
            break
    return origins | {name: name for name in open_ if name in old and name not in taken}
