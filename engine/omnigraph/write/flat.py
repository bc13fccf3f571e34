"""NDJSON through a mapping: a flat object a line, its members are columns; a record's position is its line's offset."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa

from omnigraph.read.compute import Array
from omnigraph.records import dataclass
from omnigraph.schema.catalog import EdgeType, NodeType, Type
from omnigraph.write.findings import BadRecord
from omnigraph.write.json_values import json_type, json_value, value_of
from omnigraph.write.mapping import SourceMapping, bind_columns
from omnigraph.write.mentions import omitted_rows
from omnigraph.write.ndjson import Lines, blocks, parse_lines, split_lines
from omnigraph.write.rows import Reading, TypedBatch, key_parts, short, tells_omitted
from omnigraph.write.tabular import require_entity, typed_rows

__all__ = ["read_flat"]


@dataclass(frozen=True, slots=True)
class _Columns:
    """Lines as columns.

    Args:
        table: a column per member that the mapping wants, all null where no line has it.
        lines: the lines that the rows are of.
        others: members that aren't among the columns.
        omitted: by column, the rows (bool) that don't mention it; without an entry all do.
    """

    table: pa.Table
    lines: Lines
    others: Collection[str]
    omitted: Mapping[str, Array]


def read_flat(
    stream: BinaryIO,
    reading: Reading,
    source: SourceMapping,
    *,
    file: int,
    label: str,
    start: int = 0,
    end: int | None = None,
) -> Iterator[TypedBatch]:
    """Typed rows of the records whose line starts in [start, end). A member that a line leaves out is omitted.

    Raises:
        BadRequest: a member of a record is neither mapped nor ignored.
    """
    entity = require_entity(source, reading)
    kinds = _kinds(source, entity, reading)
    asked = {_column(source, n) for n, p in entity.properties.items() if tells_omitted(reading, entity, p)}
    asked &= kinds.keys()
    for block, offset in blocks(stream, start, end, label):
        lines = split_lines(block, offset)
        if len(lines.text) == 0:
            continue
        found = _parsed(lines, kinds, asked, source) or _by_value(lines, kinds, asked, source, entity, reading, file)
        if found is None:
            continue
        plan = bind_columns(source, entity, [*found.table.schema.names, *sorted(found.others)], file=label)
        batch = found.table.select(plan.columns).combine_chunks().to_batches()[0]
        yield typed_rows(batch, found.lines.offsets, reading, source, plan, False, file, label, found.omitted)


def _column(source: SourceMapping, name: str) -> str:
    return source.columns.get(name, name)


def _kinds(source: SourceMapping, entity: NodeType | EdgeType, reading: Reading) -> dict[str, Type]:
    """The columns that the mapping wants, with the types of what they are for."""
    kinds: dict[str, Type] = {}
    for prop in entity.properties.values():
        name = _column(source, prop.name)
        if prop.name not in source.constants and (prop.name in source.columns or name not in source.ignore):
            kinds[name] = prop.type
    if isinstance(entity, EdgeType):
        for columns, node in ((source.from_, entity.source), (source.to, entity.target)):
            for name, kind in zip(columns, key_parts(reading.catalog.nodes[node]), strict=True):
                kinds.setdefault(name, kind)
    if source.id is not None:
        kinds.setdefault(source.id, Type("String"))
    return kinds


def _schema(kinds: Mapping[str, Type]) -> pa.Schema:
    return pa.schema([(name, json_type(kind)) for name, kind in kinds.items()])


def _parsed(lines: Lines, kinds: Mapping[str, Type], asked: Collection[str], source: SourceMapping) -> _Columns | None:
    """The columns as Arrow parses them, or None where a line isn't one record of these types."""
    unexpected: Any = "ignore" if "*" in source.ignore else "infer"
    if not lines.plain:
        return None
    try:
        table = parse_lines(lines.stream(), _schema(kinds), unexpected)
        if table.num_rows != len(lines.text):
            return None
        return _Columns(table, lines, (), omitted_rows(lines.text, {name: table.column(name) for name in asked}))
    except ValueError:  # Arrow's refusals are some too; said line by line
        return None


def _by_value(
    lines: Lines,
    kinds: Mapping[str, Type],
    asked: Collection[str],
    source: SourceMapping,
    entity: NodeType | EdgeType,
    reading: Reading,
    file: int,
) -> _Columns | None:
    """The same of lines that Arrow refuses together: some may hold 64-bit integers as texts, and some be wrong.

    Lines that aren't one record of these types are findings; None where there is no other.
    """
    good, members, nulls = [], set[str](), frozenset(source.nulls or ())
    columns: dict[str, list[Any]] = {name: [] for name in kinds}
    omitted: dict[str, list[bool]] = {name: [] for name in asked}
    for i, line in enumerate(lines.text.to_pylist()):

        def refuse(kind: str, message: str, at: int = int(lines.offsets[i])) -> None:
            reading.findings.add(BadRecord(kind, message, entity.table_key, file=file, row=at))

        try:
            record = json_value(line)
        except ValueError as error:
            refuse("syntax", str(error))
            continue
        if not isinstance(record, dict):
            refuse("syntax", "a record is one object, its members are columns")
            continue
        members |= record.keys()
        row: dict[str, Any] = {}
        for name, kind in kinds.items():
            value = record.get(name)
            try:
                row[name] = None if value is None or (type(value) is str and value in nulls) else value_of(value, kind)
            except ValueError:
                shown = short(json.dumps(value, ensure_ascii=False))
                refuse("type", f"{name}: {shown} is not {replace(kind, nullable=False)}")
        if len(row) == len(kinds):
            good.append(i)
            for name, value in row.items():
                columns[name].append(value)
            for name, left_out in omitted.items():
                left_out.append(name not in record)
    if not good:
        return None
    schema = _schema(kinds)
    return _Columns(
        pa.table([pa.array(columns[field.name], field.type) for field in schema], schema=schema),
        lines.take(np.array(good, dtype=np.int64)),
        members - kinds.keys(),
        {name: pa.array(left_out) for name, left_out in omitted.items()},
    )
