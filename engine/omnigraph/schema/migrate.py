"""Migration planning: from the accepted schema to a desired one, as steps that say what happens to the data.

Pure and deterministic: the same schemas and the same populated types give the same steps in the same order, and the
same digest. The order is such that each step finds what it needs: renames; new types, nodes first; then type by type
properties, constraints, metadata and dropped properties; dropped types, edges first. What can't be done stands in its
place as an `UnsupportedChange`, beside everything that can.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, TypeAlias

from omnigraph.records import dataclass
from omnigraph.schema.catalog import Catalog, Type
from omnigraph.schema.evolve import rename_property
from omnigraph.schema.ir import Constraint, PropertyIR, SchemaIR, TypeIR, ir_of
from omnigraph.schema.ir_json import annotations_json, canonical_json
from omnigraph.schema.steps import (
    AddConstraint,
    AddProperty,
    AddType,
    AllowNull,
    DropConstraint,
    DropProperty,
    DropType,
    ExtendEnum,
    Mode,
    RenameProperty,
    RenameType,
    Step,
    UnsupportedChange,
    UpdatePropertyMetadata,
    UpdateTypeMetadata,
    step_json,
)

__all__ = ["MigrationPlan", "Populated", "plan_migration"]

Populated: TypeAlias = Callable[[str], bool] | Collection[str] | None
"""Which types have rows, by their table key in the accepted schema; None: unknown, so any may."""


@dataclass(frozen=True)
class MigrationPlan:
    """`accepted` and `desired` are the identities of the schemas the plan leads from and to."""

    accepted: str
    desired: str
    steps: tuple[Step, ...]

    @property
    def supported(self) -> bool:
        return not any(isinstance(step, UnsupportedChange) for step in self.steps)

    @cached_property
    def digest(self) -> str:
        """Hex sha256 of the plan's canonical JSON."""
        return hashlib.sha256(canonical_json(self._body()).encode()).hexdigest()

    def as_dict(self) -> dict[str, Any]:
        """The plan as plain JSON, the digest beside it."""
        return {**self._body(), "digest": self.digest}

    def _body(self) -> dict[str, Any]:
        return {
            "accepted": self.accepted,
            "desired": self.desired,
            "supported": self.supported,
            "steps": [step_json(step) for step in self.steps],
        }


def plan_migration(
    accepted: SchemaIR, desired: Catalog, *, allow_data_loss: bool = False, populated: Populated = None
) -> MigrationPlan:
    """The steps from the accepted schema to the desired one.

    Args:
        accepted: the schema that is there.
        desired: the schema that is wanted; its `@rename_from` annotations say what goes on under a new name.
        allow_data_loss: drop for good instead of softly.
        populated: which types have rows.
    """
    target = ir_of(desired, accepted)
    if target.identity == accepted.identity:
        return MigrationPlan(accepted.identity, target.identity, ())
    planner = _Planner(accepted, target, "hard" if allow_data_loss else "soft", populated)
    return MigrationPlan(accepted.identity, target.identity, tuple(planner.steps()))


class _Planner:
    """One comparison."""

    def __init__(self, accepted: SchemaIR, target: SchemaIR, mode: Mode, populated: Populated) -> None:
        self.accepted, self.target, self.mode, self._populated = accepted, target, mode, populated

    def populated(self, table_key: str) -> bool:
        if self._populated is None:
            return True
        return self._populated(table_key) if callable(self._populated) else table_key in self._populated

    def steps(self) -> Iterator[Step]:
        old, new = self.accepted.by_id, self.target.by_id
        both = [(old[i], new[i]) for i in old if i in new]
        both.sort(key=lambda pair: (pair[1].kind == "edge", pair[1].name))
        renamed = {a.table_key: b.table_key for a, b in both if a.name != b.name}
        for before, after in _in_order(renamed):
            yield RenameType(before, after.partition(":")[2])
        added = [t for i, t in new.items() if i not in old]
        for type_ in sorted(added, key=lambda t: (t.kind == "edge", t.name)):
            yield AddType(type_)
        for before_type, after_type in both:
            yield from self._changed(before_type, after_type)
        dropped = [t for i, t in old.items() if i not in new]
        for type_ in sorted(dropped, key=lambda t: (t.kind == "node", t.name)):
            code = "OG-DS-102" if type_.kind == "node" else "OG-DS-103"
            yield DropType(type_.table_key, self.mode, code if self.populated(type_.table_key) else "")

    def _changed(self, old: TypeIR, new: TypeIR) -> Iterator[Step]:
        entity, populated = new.table_key, self.populated(old.table_key)
        if new.kind == "edge":
            yield from self._ends(old, new)
        before, after = {p.id: p for p in old.properties}, {p.id: p for p in new.properties}
        working = old
        renamed = {p.name: after[i].name for i, p in before.items() if i in after and after[i].name != p.name}
        for was, becomes in _in_order(renamed):
            yield RenameProperty(entity, was, becomes)
            working = rename_property(working, was, becomes)
        for prop in new.properties:
            if prop.id in before:
                yield from _property_changed(entity, before[prop.id], prop)
            elif populated and not prop.type.nullable and not prop.has_default:
                yield UnsupportedChange(
                    f"{entity}.{prop.name}",
                    "the rows there are have no value for it: give it a @default, or a ? after its type",
                    "OG-MF-103",
                )
            else:
                yield AddProperty(entity, prop)
        yield from _constraints(entity, working, new, populated)
        if _differ(old.annotations, new.annotations) or old.interfaces != new.interfaces:
            yield UpdateTypeMetadata(entity, new.annotations, new.interfaces)
        for prop in old.properties:
            if prop.id not in after:
                yield DropProperty(entity, prop.name, self.mode, "OG-DS-104" if populated else "")

    def _ends(self, old: TypeIR, new: TypeIR) -> Iterator[Step]:
        ends = (("source", old.source, new.source), ("target", old.target, new.target))
        for end, before, after in ends:
            was = self.accepted.by_table_key[f"node:{before}"].id
            if was != self.target.by_table_key[f"node:{after}"].id:
                now = self.target.by_id[was].name if was in self.target.by_id else before
                known = before if now == before else f"{before} (now {now})"
                yield UnsupportedChange(
                    new.table_key,
                    f"its {end} was {known} and can't become {after}: declare another edge type, and drop this one",
                    "OG-MF-107",
                )


def _in_order(renamed: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Renames such that each new name is free by its turn."""
    left = dict(sorted(renamed.items()))
    while left:
        before = next(b for b, after in left.items() if after not in left)
        yield before, left.pop(before)


def _property_changed(entity: str, old: PropertyIR, new: PropertyIR) -> Iterator[Step]:
    where = f"{entity}.{new.name}"
    if reason := _type_refusal(old.type, new.type):
        yield UnsupportedChange(where, f"{reason}: add another property, move the values, drop this one", "OG-MF-106")
    else:
        if extra := tuple(v for v in new.type.enum if v not in old.type.enum):
            yield ExtendEnum(entity, new.name, extra)
        if new.type.nullable and not old.type.nullable:
            yield AllowNull(entity, new.name)
        elif old.type.nullable and not new.type.nullable:
            yield UnsupportedChange(
                where,
                "rows may hold null, so it can't become required: keep the ?, "
                "or add a required property with a @default, move the values, drop this one",
                "OG-MF-104",
            )
    if (old.has_default, old.default) != (new.has_default, new.default) or _differ(old.annotations, new.annotations):
        yield UpdatePropertyMetadata(entity, new.name, new.has_default, new.default, new.annotations)


def _type_refusal(old: Type, new: Type) -> str | None:
    if old.base == new.base == "Enum" and old.list == new.list:
        lost = [v for v in old.enum if v not in new.enum]
        return f"the enum can't lose {', '.join(lost)}, which rows may hold" if lost else None
    same = replace(old, nullable=False) == replace(new, nullable=False)
    return None if same else f"{old} can't become {new}"


def _differ(a: tuple[tuple[str, Any], ...], b: tuple[tuple[str, Any], ...]) -> bool:
    # As JSON, in which 1, 1.0 and true are different things.
    return a is not b and canonical_json(annotations_json(a)) != canonical_json(annotations_json(b))


# ---- constraints -----------------------------------------------------------------------------------------------------


def _constraints(entity: str, old: TypeIR, new: TypeIR, populated: bool) -> Iterator[Step]:
    before, after = set(old.constraints), set(new.constraints)
    frozen = populated and old.key != new.key
    if frozen:
        was, wanted = (f"@key({', '.join(t.key)})" if t.key else "none" for t in (old, new))
        yield UnsupportedChange(
            entity,
            f"the rows' ids are made of the key, which can't change from {was} to {wanted}: "
            f"declare another type, move the rows, drop this one",
            "OG-MF-105",
        )
    for constraint in old.constraints:
        if constraint not in after and not (frozen and constraint.kind == "key"):
            yield DropConstraint(entity, constraint)
    for constraint in new.constraints:
        if constraint not in before and not (frozen and constraint.kind == "key"):
            yield AddConstraint(entity, constraint, not _implied(constraint, old.constraints))


def _implied(new: Constraint, held: Sequence[Constraint]) -> bool:
    """Whether rows that keep the old constraints keep this one too."""
    if new.kind == "index":
        return True
    if new.kind == "unique":
        return any(c.kind in ("key", "unique") and set(c.properties) <= set(new.properties) for c in held)
    if new.kind in ("range", "card"):
        same = [c for c in held if c.kind == new.kind and c.properties == new.properties]
        least = 0.0 if new.kind == "card" else -math.inf
        low = max((c.low for c in same if c.low is not None), default=least)
        high = min((c.high for c in same if c.high is not None), default=math.inf)
        return (new.low is None or low >= new.low) and (new.high is None or high <= new.high)
    return False
