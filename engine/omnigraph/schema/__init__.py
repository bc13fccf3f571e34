"""The schema language (`.pg`): from a text to the catalog of types it declares. Pure; knows nothing of storage."""

from __future__ import annotations

from typing import TYPE_CHECKING

from omnigraph.deferred import deferred

if TYPE_CHECKING:
    from omnigraph.schema.catalog import Catalog, EdgeType, NodeType, Property, Type
    from omnigraph.schema.compile import compile_schema
    from omnigraph.schema.evolve import apply_plan
    from omnigraph.schema.format import format_schema
    from omnigraph.schema.ir import SchemaIR, ir_of
    from omnigraph.schema.migrate import MigrationPlan, plan_migration

__all__ = [
    "Catalog",
    "EdgeType",
    "MigrationPlan",
    "NodeType",
    "Property",
    "SchemaIR",
    "Type",
    "apply_plan",
    "compile_schema",
    "format_schema",
    "ir_of",
    "plan_migration",
]

__getattr__ = deferred(
    __name__,
    {
        "catalog": (
            "Catalog",
            "EdgeType",
            "NodeType",
            "Property",
            "Type",
        ),
        "compile": ("compile_schema",),
        "evolve": ("apply_plan",),
        "format": ("format_schema",),
        "ir": (
            "SchemaIR",
            "ir_of",
        ),
        "migrate": (
            "MigrationPlan",
            "plan_migration",
        ),
    },
)
