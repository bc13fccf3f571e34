"""The catalog's types as Arrow types: the one mapping (01 §1.2)."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import pyarrow as pa

from omnigraph.errors import Internal
from omnigraph.schema.catalog import EdgeType, NodeType, Type

__all__ = ["TICKET", "arrow_type", "kept", "loose_schema", "moving_schema", "table_schema"]

_Made = TypeVar("_Made")

TICKET = pa.int64()
"""What stands for a Blob in rows on their way in (`storage.blobs`); null is null."""

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
    "DateTime": pa.date64(),
}


def arrow_type(type_: Type) -> pa.DataType:
    """The Arrow type of a property: scalars as in `_SCALARS`, lists of them, `Vector(n)` a fixed list of n float32.

    Of a Blob it is that of rows on their way in: a ticket.
    """
    if type_.base == "Vector":
        return pa.list_(pa.float32(), type_.dim)
    if type_.base == "Blob":
        return TICKET
    scalar = _SCALARS.get(type_.base)
    if scalar is None:
        raise Internal(f"{type_} has no column type")
    return pa.list_(scalar) if type_.list else scalar


def _field(name: str, type_: Type) -> pa.Field[Any]:
    if type_.base == "Blob":
        from lance.blob import blob_field  # only graphs with blobs need it

        blob: pa.Field[Any] = blob_field(name, nullable=type_.nullable)
        return blob
    return pa.field(name, arrow_type(type_), nullable=type_.nullable)


def kept(make: Callable[[NodeType | EdgeType], _Made]) -> Callable[[NodeType | EdgeType], _Made]:
    """What a function makes of a type, made once and kept with it: types never change, and every write asks."""
    name = f"_{make.__module__}.{make.__qualname__}"

    @wraps(make)
    def found(entity: NodeType | EdgeType) -> _Made:
        beside = entity.__dict__
        if name not in beside:
            beside[name] = make(entity)
        made: _Made = beside[name]
        return made

    return found


@kept
def table_schema(entity: NodeType | EdgeType) -> pa.Schema:
    """Columns of the type's table: `id` (edges also `src`, `dst`), all utf8 not null, then the declared properties."""
    fixed = ("id",) if isinstance(entity, NodeType) else ("id", "src", "dst")
    return pa.schema(
        [
            *(pa.field(name, pa.string(), nullable=False) for name in fixed),
            *(_field(p.name, p.type) for p in entity.properties.values()),
        ]
    )


@kept
def moving_schema(entity: NodeType | EdgeType) -> pa.Schema:
    """The columns of `table_schema` as rows on their way in have them: a Blob as its ticket."""
    return pa.schema(
        [
            pa.field(f.name, TICKET, nullable=f.nullable) if isinstance(f.type, pa.BaseExtensionType) else f
            for f in table_schema(entity)
        ]
    )


@kept
def loose_schema(entity: NodeType | EdgeType) -> pa.Schema:
    """`moving_schema` with every column nullable: a pending row may lack what validation will ask for."""
    return pa.schema([f.with_nullable(True) for f in moving_schema(entity)])
