"""What the steps of a plan do to a schema IR."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from omnigraph.errors import BadRequest
from omnigraph.schema.catalog import table_key
from omnigraph.schema.ir import PropertyIR, SchemaIR, TypeIR, constraint_key
from omnigraph.schema.steps import (
    AddConstraint,
    AddProperty,
    AddType,
    AllowNull,
    DropConstraint,
    DropProperty,
    DropType,
    ExtendEnum,
    RenameProperty,
    RenameType,
    Step,
    UnsupportedChange,
    UpdatePropertyMetadata,
    UpdateTypeMetadata,
)

if TYPE_CHECKING:
    from omnigraph.schema.migrate import MigrationPlan

__all__ = ["apply_plan", "rename_property"]


def apply_plan(accepted: SchemaIR, plan: MigrationPlan) -> SchemaIR:
    """The schema after the plan: that of the desired catalog, ids kept.

    Raises:
        BadRequest: the plan holds an unsupported change, or was made on another schema.
    """
    refused = [step for step in plan.steps if isinstance(step, UnsupportedChange)]
    if refused:
        listed = "\n".join(f"  {s.code} {s.entity}: {s.reason}" for s in refused)
        raise BadRequest(
            f"the schema can't be changed so:\n{listed}", code=refused[0].code, details={"plan": plan.as_dict()}
        )
    if plan.accepted != accepted.identity:
        raise BadRequest(
            "the plan was made on another schema than the accepted one: plan again",
            code="plan_outdated",
            details={"planned_on": plan.accepted, "accepted": accepted.identity},
        )
    for step in plan.steps:
        accepted = _step(accepted, step)
    return accepted


def rename_property(type_: TypeIR, old: str, new: str) -> TypeIR:
    """The property and every constraint that names it."""
    constraints = [
        replace(c, properties=_sorted_if(c.kind == "unique", tuple(new if p == old else p for p in c.properties)))
        for c in type_.constraints
    ]
    return _with_properties(
        replace(type_, constraints=tuple(sorted(constraints, key=constraint_key))),
        lambda p: replace(p, name=new) if p.name == old else p,
    )


def _sorted_if(condition: bool, names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(sorted(names)) if condition else names


def _step(schema: SchemaIR, step: Step) -> SchemaIR:
    match step:
        case AddType(type_):
            return _with_types(schema, (*schema.types, type_), type_.id, *(p.id for p in type_.properties))
        case DropType(entity):
            return _with_types(schema, tuple(t for t in schema.types if t.table_key != entity))
        case RenameType(entity, to):
            return _rename_type(schema, entity, to)
    changed = tuple(_in_type(t, step) if t.table_key == step.entity else t for t in schema.types)
    return _with_types(schema, changed, *([step.property.id] if isinstance(step, AddProperty) else []))


def _in_type(t: TypeIR, step: Step) -> TypeIR:
    match step:
        case AddProperty(_, added):
            return replace(t, properties=tuple(sorted((*t.properties, added), key=lambda p: p.name)))
        case DropProperty(_, name):
            return replace(t, properties=tuple(p for p in t.properties if p.name != name))
        case RenameProperty(_, name, to):
            return rename_property(t, name, to)
        case AllowNull(_, name):
            return _with_properties(
                t, lambda p: replace(p, type=replace(p.type, nullable=True)) if p.name == name else p
            )
        case ExtendEnum(_, name, values):
            return _with_properties(
                t,
                lambda p: (
                    replace(p, type=replace(p.type, enum=tuple(sorted({*p.type.enum, *values}))))
                    if p.name == name
                    else p
                ),
            )
        case UpdatePropertyMetadata(_, name, has_default, default, annotations):
            return _with_properties(
                t,
                lambda p: (
                    replace(p, has_default=has_default, default=default, annotations=annotations)
                    if p.name == name
                    else p
                ),
            )
        case AddConstraint(_, constraint):
            return replace(t, constraints=tuple(sorted({*t.constraints, constraint}, key=constraint_key)))
        case DropConstraint(_, constraint):
            return replace(t, constraints=tuple(c for c in t.constraints if c != constraint))
        case UpdateTypeMetadata(_, annotations, interfaces):
            return replace(t, annotations=annotations, interfaces=interfaces)
    raise AssertionError(step)


def _rename_type(schema: SchemaIR, entity: str, to: str) -> SchemaIR:
    kind, _, old = entity.partition(":")

    def renamed(t: TypeIR) -> TypeIR:
        if t.table_key == entity:
            return replace(t, name=to)
        if kind == "node" and t.kind == "edge":
            source, target = (to if end == old else end for end in (t.source, t.target))
            return replace(t, source=source, target=target)
        return t

    assert table_key(kind, to) not in schema.by_table_key, f"{to} is taken"
    return _with_types(schema, tuple(renamed(t) for t in schema.types))


def _with_types(schema: SchemaIR, types: tuple[TypeIR, ...], *ids: int) -> SchemaIR:
    return SchemaIR(tuple(sorted(types, key=lambda t: t.table_key)), max(schema.next_id, *(i + 1 for i in (0, *ids))))


def _with_properties(t: TypeIR, change: Callable[[PropertyIR], PropertyIR]) -> TypeIR:
    return replace(t, properties=tuple(sorted(map(change, t.properties), key=lambda p: p.name)))
