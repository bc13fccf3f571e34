"""NDJSON through a mapping: a flat object a line, its members are columns; a record's position is its line's offset."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa

from omnigraph.read.compute import Array, pc
from omnigraph.schema.catalog import EdgeType, NodeType, Type
from omnigraph.write.findings import BadRecord
from omnigraph.write.json_values import json_type, json_value, value_of
from omnigraph.write.mapping import SourceMapping, bind_columns
from omnigraph.write.ndjson import Lines, blocks, parse_lines, split_lines
from omnigraph.write.rows import Reading, TypedBatch, key_parts, short
from omnigraph.write.tabular import require_entity, typed_rows

__all__ = ["read_flat"]


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
    """Typed rows of the records whose line starts in [start, end).

    Raises:
        BadRequest: a member of a record is neither mapped nor ignored.
    """
    entity = require_entity(source, reading)
    kinds = _kinds(source, entity, reading)
    needed = {*source.from_, *source.to, *([source.id] if source.id else []), *(_column(source, k) for k in entity.key)}
    for block, offset in blocks(stream, start, end, label):
        lines = split_lines(block, offset)
        if len(lines.text) == 0:
            continue
        table, lines, others = _table(lines, kinds, source, entity, reading, file)
        if table is None:
            continue
        omitted: dict[str, Array] = {}
        for name in table.schema.names:
            column = table.column(name)
            if name in needed or not column.null_count:
                continue
            member = f"{re.escape(json.dumps(name, ensure_ascii=False))}\\s*:"
            absent = pc.invert(pc.match_substring_regex(lines.text.cast(pa.binary()), member))
            if pc.all(absent).as_py():
                table = table.drop_columns([name])
            elif pc.any(absent).as_py():
                omitted[name] = absent
        plan = bind_columns(source, entity, [*table.schema.names, *sorted(others)], file=label)
        batch = table.select(plan.columns).combine_chunks().to_batches()[0]
        yield typed_rows(batch, lines.offsets, reading, source, plan, False, file, label, omitted)


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


def _table(
    lines: Lines,
    kinds: Mapping[str, Type],
    source: SourceMapping,
    entity: NodeType | EdgeType,
    reading: Reading,
    file: int,
) -> tuple[pa.Table | None, Lines, set[str]]:
    """The columns of the lines, the lines they are of, and members that aren't among them.

    Lines that aren't one record of these types are findings.
    """
    schema = pa.schema([(name, json_type(kind)) for name, kind in kinds.items()])
    unexpected: Any = "ignore" if "*" in source.ignore else "infer"
    if lines.plain:
        try:
            table = parse_lines(lines.stream(), schema, unexpected)
            if table.num_rows == len(lines.text):
                return table, lines, set()
        except pa.ArrowInvalid:
            pass  # said line by line
    return _by_value(lines, kinds, schema, source, entity, reading, file)


def _by_value(
    lines: Lines,
    kinds: Mapping[str, Type],
    schema: pa.Schema,
    source: SourceMapping,
    entity: NodeType | EdgeType,
    reading: Reading,
    file: int,
) -> tuple[pa.Table | None, Lines, set[str]]:
    """The same of lines that Arrow refuses together: some may hold 64-bit integers as texts, and some be wrong."""
    good, members, nulls = [], set[str](), frozenset(source.nulls or ())
    columns: dict[str, list[Any]] = {name: [] for name in kinds}
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
    part = lines.take(np.array(good, dtype=np.int64))
    if not good:
        return None, part, set()
    table = pa.table([pa.array(columns[field.name], field.type) for field in schema], schema=schema)
    return table, part, members - set(schema.names)
