"""NDJSON through a mapping: a flat object a line, its members are columns; a record's position is its line's offset."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa

from omnigraph.read.compute import Array, pc
from omnigraph.schema.catalog import EdgeType, NodeType, Type
from omnigraph.write.findings import BadRecord
from omnigraph.write.mapping import SourceMapping, bind_columns
from omnigraph.write.ndjson import Lines, blocks, json_type, parse_lines, split_lines
from omnigraph.write.rows import Reading, TypedBatch, key_parts
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
    schema = _schema(source, entity, reading)
    needed = {*source.from_, *source.to, *([source.id] if source.id else []), *(_column(source, k) for k in entity.key)}
    for block, offset in blocks(stream, start, end, label):
        lines = split_lines(block, offset)
        if len(lines.text) == 0:
            continue
        table, lines, others = _table(lines, schema, source, entity, reading, file)
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
        yield typed_rows(batch, lines.offsets, reading, source, False, file, label, omitted)


def _column(source: SourceMapping, name: str) -> str:
    return source.columns.get(name, name)


def _schema(source: SourceMapping, entity: NodeType | EdgeType, reading: Reading) -> pa.Schema:
    """The columns that the mapping wants, as JSON writes their types."""
    fields: dict[str, pa.DataType] = {}
    for prop in entity.properties.values():
        name = _column(source, prop.name)
        if prop.name not in source.constants and (prop.name in source.columns or name not in source.ignore):
            fields[name] = json_type(prop.type)
    if isinstance(entity, EdgeType):
        for columns, node in ((source.from_, entity.source), (source.to, entity.target)):
            for name, kind in zip(columns, key_parts(reading.catalog.nodes[node]), strict=True):
                fields.setdefault(name, json_type(kind))
    if source.id is not None:
        fields.setdefault(source.id, json_type(Type("String")))
    return pa.schema(list(fields.items()))


def _table(
    lines: Lines, schema: pa.Schema, source: SourceMapping, entity: NodeType | EdgeType, reading: Reading, file: int
) -> tuple[pa.Table | None, Lines, set[str]]:
    """The columns of the lines, the lines they are of, and members that aren't among them.

    Lines that aren't one record of these types are findings.
    """
    unexpected: Any = "ignore" if "*" in source.ignore else "infer"
    if lines.plain:
        try:
            table = parse_lines(lines.stream(), schema, unexpected)
            if table.num_rows == len(lines.text):
                return table, lines, set()
        except pa.ArrowInvalid:
            pass  # said line by line
    good, members = _good_lines(lines, schema, entity, reading, file)
    if len(good.text) == 0:
        return None, good, set()
    return parse_lines(good.stream(), schema, "ignore"), good, members - set(schema.names)


def _good_lines(
    lines: Lines, schema: pa.Schema, entity: NodeType | EdgeType, reading: Reading, file: int
) -> tuple[Lines, set[str]]:
    """The lines that are one record each, and the names of all their members."""
    good, members = [], set[str]()
    for i, line in enumerate(lines.text.to_pylist()):
        kind, message = "syntax", None
        try:
            value = json.loads(line.decode("utf-8").removeprefix("\ufeff"))
            if isinstance(value, dict):
                kind = "type"
                members |= value.keys()
                parse_lines(line.removeprefix(b"\xef\xbb\xbf"), schema, "ignore")
            else:
                message = "a record is one object, its members are columns"
        except pa.ArrowInvalid as error:
            message = str(error).removeprefix("JSON parse error: ").removesuffix(" in row 0")
        except (ValueError, RecursionError) as error:
            message = f"not one JSON record: {error}"
        if message is None:
            good.append(i)
        else:
            at = int(lines.offsets[i])
            reading.findings.add(BadRecord(kind, message, entity.table_key, file=file, row=at))
    return lines.take(np.array(good, dtype=np.int64)), members
