"""The steps of a migration plan. Each is data: what it is called, what it touches, and how it reads on one line.

`entity` is the table key (`node:Person`) that the type has when the step's turn comes: a `RenameType` earlier in the
plan has happened by then. Which step may follow which is `migrate`'s business; what a step does to an IR, `evolve`'s.
"""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any, Literal, TypeAlias

from omnigraph.records import dataclass
from omnigraph.schema.ir import Constraint, PropertyIR, TypeIR
from omnigraph.schema.ir_json import annotations_json, constraint_json, plain_json, property_json, type_json

__all__ = [
    "AddConstraint",
    "AddProperty",
    "AddType",
    "AllowNull",
    "DropConstraint",
    "DropProperty",
    "DropType",
    "ExtendEnum",
    "Mode",
    "RenameProperty",
    "RenameType",
    "Step",
    "UnsupportedChange",
    "UpdatePropertyMetadata",
    "UpdateTypeMetadata",
    "step_json",
]

Mode: TypeAlias = Literal["soft", "hard"]
"""soft: forgotten, and reachable in old versions until cleanup; hard: old versions go right after the publish."""


@dataclass(frozen=True, slots=True)
class AddType:
    """A new type with everything it has; its table is empty."""

    type: TypeIR

    @property
    def entity(self) -> str:
        return self.type.table_key

    def __str__(self) -> str:
        names = ", ".join(f"{p.name}: {p.type}" for p in self.type.properties)
        constraints = "".join(f" {c}" for c in self.type.constraints)
        ends = f" {self.type.source} -> {self.type.target}" if self.type.kind == "edge" else ""
        return f"AddType {self.entity}{ends} {{ {names} }}{constraints}".replace("{  }", "{ }")


@dataclass(frozen=True, slots=True)
class RenameType:
    """Identity, rows and history stay; edge types that end there follow by themselves."""

    entity: str
    to: str

    def __str__(self) -> str:
        return f"RenameType {self.entity} to {self.to}"


@dataclass(frozen=True, slots=True)
class AddProperty:
    """Rows that are there get the default, or null."""

    entity: str
    property: PropertyIR

    def __str__(self) -> str:
        default = f" @default({_shown(self.property.default)})" if self.property.has_default else ""
        return f"AddProperty {self.entity}.{self.property.name}: {self.property.type}{default}"


@dataclass(frozen=True, slots=True)
class RenameProperty:
    """Identity and values stay; constraints that name it follow by themselves."""

    entity: str
    property: str
    to: str

    def __str__(self) -> str:
        return f"RenameProperty {self.entity}.{self.property} to {self.to}"


@dataclass(frozen=True, slots=True)
class AllowNull:
    """A required property may be null from here on."""

    entity: str
    property: str

    def __str__(self) -> str:
        return f"AllowNull {self.entity}.{self.property}"


@dataclass(frozen=True, slots=True)
class ExtendEnum:
    """More words in an enum, or in a list of one."""

    entity: str
    property: str
    values: tuple[str, ...]

    def __str__(self) -> str:
        return f"ExtendEnum {self.entity}.{self.property} by {', '.join(self.values)}"


@dataclass(frozen=True, slots=True)
class DropConstraint:
    entity: str
    constraint: Constraint

    def __str__(self) -> str:
        return f"DropConstraint {self.entity} {self.constraint}"


@dataclass(frozen=True, slots=True)
class AddConstraint:
    """`validate`: whether rows that are there might break it; without, the constraints before imply it."""

    entity: str
    constraint: Constraint
    validate: bool = True

    def __str__(self) -> str:
        return f"AddConstraint {self.entity} {self.constraint}{', checked on the rows' if self.validate else ''}"


@dataclass(frozen=True, slots=True)
class UpdateTypeMetadata:
    """The new annotations and interfaces, whole."""

    entity: str
    annotations: tuple[tuple[str, Any], ...] = ()
    interfaces: tuple[str, ...] = ()

    def __str__(self) -> str:
        implements = f" implements {', '.join(self.interfaces)}" if self.interfaces else ""
        return f"UpdateTypeMetadata {self.entity}{implements}{_annotated(self.annotations)}"


@dataclass(frozen=True, slots=True)
class UpdatePropertyMetadata:
    """The new default and annotations, whole; rows that are there stay as they are."""

    entity: str
    property: str
    has_default: bool = False
    default: Any = None
    annotations: tuple[tuple[str, Any], ...] = ()

    def __str__(self) -> str:
        default = f" @default({_shown(self.default)})" if self.has_default else ""
        return f"UpdatePropertyMetadata {self.entity}.{self.property}{default}{_annotated(self.annotations)}"


@dataclass(frozen=True, slots=True)
class DropProperty:
    """`code` is empty where the type has no rows."""

    entity: str
    property: str
    mode: Mode
    code: str = ""

    def __str__(self) -> str:
        return f"DropProperty {self.entity}.{self.property} {self.mode} {self.code}".rstrip()


@dataclass(frozen=True, slots=True)
class DropType:
    """`code` is empty where the type has no rows."""

    entity: str
    mode: Mode
    code: str = ""

    def __str__(self) -> str:
        return f"DropType {self.entity} {self.mode} {self.code}".rstrip()


@dataclass(frozen=True, slots=True)
class UnsupportedChange:
    """Why the plan can't be carried out, and what to do instead. `entity` may name a property: `node:Person.age`."""

    entity: str
    reason: str
    code: str

    def __str__(self) -> str:
        return f"UnsupportedChange {self.entity} {self.code} {self.reason}"


Step: TypeAlias = (
    AddType
    | RenameType
    | AddProperty
    | RenameProperty
    | AllowNull
    | ExtendEnum
    | DropConstraint
    | AddConstraint
    | UpdateTypeMetadata
    | UpdatePropertyMetadata
    | DropProperty
    | DropType
    | UnsupportedChange
)


def step_json(step: Step) -> dict[str, Any]:
    """The step as plain JSON, its kind under `step`."""
    out: dict[str, Any] = {"step": type(step).__name__, "entity": step.entity}
    for f in fields(step):
        value = getattr(step, f.name)
        if isinstance(value, TypeIR):
            value = type_json(value)
        elif isinstance(value, PropertyIR):
            value = property_json(value)
        elif isinstance(value, Constraint):
            value = constraint_json(value)
        elif f.name == "annotations":
            value = annotations_json(value)
        out[f.name] = plain_json(value)
    return out


def _shown(value: Any) -> str:
    return json.dumps(plain_json(value), ensure_ascii=False)


def _annotated(annotations: tuple[tuple[str, Any], ...]) -> str:
    return "".join(f" @{name}" if value is None else f" @{name}({_shown(value)})" for name, value in annotations)
