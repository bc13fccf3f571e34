"""NDJSON (03 §3.2): one record a line, nodes and edges mixed, `//` lines are comments.

A block of lines is split with numpy and parsed by Arrow with the schema of its type, so values never become Python
objects. Only a group of lines that Arrow refuses is read record by record, to name what is wrong in it and to take
forms that one Arrow column can't (64-bit integers as strings, composite keys of mixed types, dates as day numbers).
A record's position is the byte offset of its line, so a file may be read in splits without counting lines.
"""

from __future__ import annotations

import io
import json
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any, BinaryIO, Literal, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.json as pj

from omnigraph.errors import BadRequest
from omnigraph.read.compute import Array, pc
from omnigraph.records import dataclass
from omnigraph.schema.catalog import EdgeType, NodeType, Type
from omnigraph.write.columns import Cast
from omnigraph.write.findings import BadRecord, Findings
from omnigraph.write.json_values import json_type, json_value, kind_name, layout_hint, value_of
from omnigraph.write.mentions import omitted_rows
from omnigraph.write.rows import Given, Reading, TypedBatch, assemble, endpoint, key_parts, tells_omitted

__all__ = [
    "BLOCK_BYTES",
    "Lines",
    "blocks",
    "parse_lines",
    "read_ndjson",
    "split_lines",
]

BLOCK_BYTES = 8 << 20
LINE_MAX_BYTES = 1 << 30
T = TypeVar("T")
_NEWLINE, _BRACE, _CLOSE = 10, ord("{"), ord("}")
_HEAD = pa.schema([("type", pa.string()), ("edge", pa.string())])
_TOP = frozenset({"type", "edge", "from", "to", "id", "data"})


@dataclass(frozen=True, slots=True)
class Lines:
    """Records of a block: `text` (binary, one a line), `offsets` their places in the file (int64).

    `plain`: every line is UTF-8 from `{` to `}`. Then no value spans two lines, since `}` and `{` never meet inside
    one, and Arrow, which looks for neither, can be trusted with them.
    """

    text: Array
    offsets: npt.NDArray[Any]
    plain: bool

    def take(self, where: npt.NDArray[Any]) -> Lines:
        return Lines(self.text.take(pa.array(where)), self.offsets[where], self.plain)

    def stream(self) -> bytes:
        return b"\n".join(self.text.to_pylist()) if self.text.offset or self.text.null_count else self._buffer()

    def _buffer(self) -> bytes:
        # The lines keep their line ends and lie one after the other: the data buffer is the stream.
        ends = np.frombuffer(self.text.buffers()[1], dtype=np.int64)[: len(self.text) + 1]
        return memoryview(self.text.buffers()[2])[int(ends[0]) : int(ends[-1])].tobytes()


def read_ndjson(
    stream: BinaryIO,
    reading: Reading,
    *,
    file: int,
    label: str,
    start: int = 0,
    end: int | None = None,
    threads: int = 1,
) -> Iterator[TypedBatch]:
    """Typed rows of every record whose line starts in [start, end).

    Args:
        stream: the file's bytes, UTF-8; seekable when start > 0.
        file: the source's number in the load.
        label: the source's name; seeds ids.
        start: first byte of the split; a line that began before it belongs to the split before.
        end: end of the split, None for the file's.
        threads: blocks parsed at a time; the rows come in the order of the lines all the same.
    """
    hint: list[str | None] = [None]  # the type of the last block read: only a guess, whichever thread left it

    def parsed(block: bytes, offset: int) -> tuple[list[TypedBatch], Findings]:
        mine = replace(reading, findings=reading.findings.like())
        lines = split_lines(block, offset)
        if len(lines.text) == 0:
            return [], mine.findings
        groups, hint[0] = _by_type(lines, mine, hint[0])
        return [batch for group in groups for batch in _read_group(*group, mine, file, label)], mine.findings

    for batches, findings in _in_order(parsed, blocks(stream, start, end, label), threads):
        reading.findings.merge(findings)
        yield from batches


def _in_order(work: Callable[..., T], pieces: Iterator[tuple[bytes, int]], threads: int) -> Iterator[T]:
    """The results of the blocks one after the other, a few of them worked on at a time."""
    first, second = next(pieces, None), next(pieces, None) if threads > 1 else None
    if first is None:
        return
    if second is None:
        yield work(*first)
        for block in pieces:
            yield work(*block)
        return
    waiting = deque[Future[T]]()
    pool = ThreadPoolExecutor(threads, thread_name_prefix="omnigraph-ndjson")
    try:
        for block in chain((first, second), pieces):
            waiting.append(pool.submit(work, *block))
            if len(waiting) > threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def blocks(stream: BinaryIO, start: int, end: int | None, label: str) -> Iterator[tuple[bytes, int]]:
    """Pieces of whole lines, each with its offset."""
    offset = start
    if start > 0:
        offset = _next_line(stream, start - 1)
        stream.seek(offset)
    rest = b""
    while end is None or offset < end:
        pieces = [rest]
        while piece := stream.read(BLOCK_BYTES):  # a line with a Blob may be longer than a block
            pieces.append(piece)
            if b"\n" in piece:
                break
            if sum(map(len, pieces)) > LINE_MAX_BYTES:
                raise BadRequest(
                    f"{label}: the record at byte {offset} is longer than {LINE_MAX_BYTES:,} bytes: give such Blobs as "
                    "a column of bytes in Parquet or Arrow, or one by one through a mutation",
                    code="line_too_long",
                    details={"file": label, "offset": offset},
                )
        if len(pieces) == 1:
            break
        block = b"".join(pieces)
        cut = block.rfind(b"\n") + 1
        if end is not None and offset + cut >= end:
            # The line that holds the split's last byte is the last one of ours.
            last = block.find(b"\n", max(0, end - 1 - offset)) + 1
            if last > 0:
                yield block[:last], offset
                return
        if cut:
            yield block[:cut], offset
            offset += cut
        rest = block[cut:]
    if rest and (end is None or offset < end):
        yield rest, offset


def _next_line(stream: BinaryIO, at: int) -> int:
    """Where the first line after the byte `at` begins; the file's end when there is none."""
    stream.seek(at)
    while piece := stream.read(64 << 10):
        found = piece.find(b"\n")
        if found >= 0:
            return at + found + 1
        at += len(piece)
    return at


def split_lines(block: bytes, offset: int) -> Lines:
    if block[-1] != _NEWLINE:
        block += b"\n"
    data = np.frombuffer(block, dtype=np.uint8)
    ends = np.flatnonzero(data == _NEWLINE) + 1
    bounds = np.concatenate([np.zeros(1, dtype=np.int64), ends.astype(np.int64)])
    text = pa.Array.from_buffers(
        pa.large_binary(), len(ends), [None, pa.py_buffer(bounds.tobytes()), pa.py_buffer(block)]
    )
    offsets = bounds[:-1] + offset
    if (data[bounds[:-1]] == _BRACE).all():
        return Lines(text, offsets, _plain(text, data, ends))
    skip = pc.match_substring_regex(text.cast(pa.binary()), r"^(\xef\xbb\xbf)?\s*(//.*)?\s*$")
    kept: npt.NDArray[Any] = np.flatnonzero(~np.asarray(skip))
    lines = text.take(pa.array(kept))
    return Lines(lines, offsets[kept], _plain(lines, None, None))


def _plain(text: Array, data: npt.NDArray[Any] | None, ends: npt.NDArray[Any] | None) -> bool:
    """Whether every line is UTF-8 and one `{…}`; given `data` and `ends`, that they begin so is known."""
    try:
        text.cast(pa.large_string())
    except pa.ArrowInvalid:
        return False
    if data is not None and ends is not None and len(data) > 1 and (data[ends - 2] == _CLOSE).all():
        return True
    whole = pc.match_substring_regex(text.cast(pa.binary()), r"(?s)^\s*\{.*\}\s*$")
    return bool(pc.all(whole).as_py() is not False)


def parse_lines(data: bytes, schema: pa.Schema, unexpected: Literal["error", "ignore"]) -> pa.Table:
    return pj.read_json(
        io.BytesIO(data),
        read_options=pj.ReadOptions(use_threads=False, block_size=len(data) + 1),
        parse_options=pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior=unexpected),
    ).combine_chunks()


_Group = tuple[NodeType | EdgeType | None, Lines, pa.Table | None]


def _by_type(lines: Lines, reading: Reading, hint: str | None) -> tuple[list[_Group], str | None]:
    """Lines grouped by table, in the order of first appearance; those already parsed come with their columns."""
    if hint is not None:
        entity = reading.catalog.by_table_key[hint]
        table = _parse_group(reading, entity, lines) if lines.plain else None
        if table is not None and _all_of(entity, table):
            return [(entity, lines, table)], hint
    if not lines.plain:
        return [(None, lines, None)], None
    try:
        head = parse_lines(lines.stream(), _HEAD, "ignore")
    except pa.ArrowInvalid:
        return [(None, lines, None)], None
    if head.num_rows != len(lines.text):
        return [(None, lines, None)], None
    if any(pc.any(pc.equal(head[word], "")).as_py() for word in ("type", "edge")):
        return [(None, lines, None)], None  # "" is no name, and below it would pass for a word that isn't there
    both = pc.binary_join_element_wise(
        pc.coalesce(head["type"], pa.scalar("")), pc.coalesce(head["edge"], pa.scalar("")), pa.scalar("\0")
    )
    encoded = pc.dictionary_encode(both.combine_chunks())
    codes = np.asarray(encoded.indices)
    groups: list[_Group] = []
    for code, name in enumerate(encoded.dictionary.to_pylist()):
        part = lines if len(encoded.dictionary) == 1 else lines.take(np.flatnonzero(codes == code))
        node, edge = name.split("\0", 1)
        entity_or_none = _entity(reading, node or None, edge or None)
        groups.append(
            (entity_or_none, part, None if entity_or_none is None else _parse_group(reading, entity_or_none, part))
        )
    only = groups[0][0] if len(groups) == 1 else None
    return groups, only.table_key if only is not None else None


def _entity(reading: Reading, node: str | None, edge: str | None) -> NodeType | EdgeType | None:
    if (node is None) == (edge is None):
        return None
    return reading.catalog.nodes.get(node) if node is not None else reading.catalog.edge(edge or "")


def _all_of(entity: NodeType | EdgeType, table: pa.Table) -> bool:
    word, other = ("edge", "type") if isinstance(entity, EdgeType) else ("type", "edge")
    names = pc.unique(table[word])
    return table[other].null_count == table.num_rows and names.to_pylist() == [entity.name]


def _end_type(node: NodeType) -> pa.DataType:
    parts = key_parts(node)
    return json_type(parts[0]) if len(parts) == 1 else pa.list_(pa.string())


def _group_schema(entity: NodeType | EdgeType, nodes: Mapping[str, NodeType]) -> pa.Schema:
    data = [pa.field("id", pa.string()), *(pa.field(p.name, json_type(p.type)) for p in entity.properties.values())]
    fields = [*_HEAD, pa.field("id", pa.string()), pa.field("data", pa.struct(data))]
    if isinstance(entity, EdgeType):
        fields += [
            pa.field("from", _end_type(nodes[entity.source])),
            pa.field("to", _end_type(nodes[entity.target])),
        ]
    return pa.schema(fields)


def _parse_group(reading: Reading, entity: NodeType | EdgeType, lines: Lines) -> pa.Table | None:
    """The lines' columns, or None where they aren't one record each that fits the type's schema."""
    try:
        table = parse_lines(lines.stream(), _group_schema(entity, reading.catalog.nodes), "error")
    except pa.ArrowInvalid:
        return None
    return table if table.num_rows == len(lines.text) and _finite(table) else None


def _finite(table: pa.Table) -> bool:
    """Whether no number is NaN or infinite, which Arrow reads though JSON has no such numbers."""
    data: Array = table["data"].combine_chunks()
    for column in data.flatten():
        values = column.flatten() if pa.types.is_list(column.type) else column
        if pa.types.is_floating(values.type) and pc.all(pc.is_finite(values)).as_py() is False:
            return False
    return True


def _read_group(
    entity: NodeType | EdgeType | None, lines: Lines, table: pa.Table | None, reading: Reading, file: int, label: str
) -> Iterator[TypedBatch]:
    if entity is not None and table is not None:
        yield _from_columns(entity, lines, table, reading, file, label, None)
        return
    by_entity: dict[str, list[tuple[int, dict[str, Any]]]] = {}
    for i, line in enumerate(lines.text.to_pylist()):
        at = int(lines.offsets[i])
        record = _record(line, reading, file, at)
        if record is not None:
            by_entity.setdefault(record[0].table_key, []).append((i, record[1]))
    for key, records in by_entity.items():
        yield _from_records(reading.catalog.by_table_key[key], lines, records, reading, file, label)


# ---- columns --------------------------------------------------------------------------------------------------------


def _from_columns(
    entity: NodeType | EdgeType,
    lines: Lines,
    table: pa.Table,
    reading: Reading,
    file: int,
    label: str,
    known_bad: Mapping[str, Array] | None,
) -> TypedBatch:
    """Rows from columns shaped as `_group_schema`; `known_bad` marks values that were refused before."""
    known_bad = known_bad or {}
    data: Array = table["data"].combine_chunks()
    parts = dict(zip(data.type.names, data.flatten(), strict=True))
    asked = [p.name for p in entity.properties.values() if tells_omitted(reading, entity, p)]
    left_out = omitted_rows(lines.text, {name: parts[name] for name in asked}, inside="data", outside=_TOP)
    given: dict[str, Given] = {}
    for prop in entity.properties.values():
        column, omitted, bad = parts[prop.name], left_out.get(prop.name), known_bad.get(prop.name)
        if bad is not None and omitted is not None:
            omitted = pc.and_(omitted, pc.invert(bad))
        given[prop.name] = Given(column, omitted, bad, form=None, show=partial(_shown, lines, ("data", prop.name)))
    inner, outer = parts["id"], table["id"].combine_chunks()
    for i in pc.indices_nonzero(pc.fill_null(pc.not_equal(inner, outer), False)).to_pylist():
        message = f"the record's id is {outer[i].as_py()!r}, and the one in its data {inner[i].as_py()!r}"
        reading.findings.add(BadRecord("id", message, entity.table_key, None, "id", file, int(lines.offsets[i])))
    ids = pc.coalesce(inner, outer)
    ends: list[tuple[Cast, Callable[[int], str]]] = []
    if isinstance(entity, EdgeType):
        for name, node in (("from", entity.source), ("to", entity.target)):
            bad = known_bad.get(name)
            column = table[name].combine_chunks()
            cast = _end(reading.catalog.nodes[node], column)
            if bad is not None:
                cast = Cast(cast.column, bad if cast.bad is None else pc.or_(bad, cast.bad))
            ends.append((cast, partial(_shown, lines, (name,))))
    return assemble(
        reading,
        entity,
        file=file,
        file_label=label,
        positions=lines.offsets,
        given=given,
        ends=ends,
        ids=None if ids.null_count == len(ids) else ids,
    )


def _shown(lines: Lines, path: tuple[str, ...], at: int) -> str:
    """A record's value as JSON. Columns know less: Arrow takes `true` for the text, and a whole number for a float."""
    value = json.loads(lines.text[at].as_py())
    for name in path:
        value = value[name]
    return json.dumps(value, ensure_ascii=False)


def _end(node: NodeType, column: Array) -> Cast:
    kinds = key_parts(node)
    if len(kinds) == 1:
        return endpoint(node, [column], text=False)
    lengths = pc.list_value_length(column)
    wrong = pc.fill_null(pc.not_equal(lengths, len(kinds)), False)
    whole = pc.if_else(pc.or_(wrong, pc.is_null(column)), pa.scalar([None] * len(kinds), column.type), column)
    cast = endpoint(node, [pc.list_element(whole, i) for i in range(len(kinds))], text=True)
    return Cast(cast.column, wrong if cast.bad is None else pc.or_(wrong, cast.bad))


# ---- record by record: only lines that Arrow refused ------------------------------------------------------------


def _record(line: bytes, reading: Reading, file: int, at: int) -> tuple[NodeType | EdgeType, dict[str, Any]] | None:
    """The type and the JSON object of one line, or None after saying what is wrong with it."""

    def refuse(kind: str, message: str) -> None:
        reading.findings.add(BadRecord(kind, message, file=file, row=at))

    try:
        value = json_value(line)
    except ValueError as error:
        refuse("syntax", str(error))
        return None
    if not isinstance(value, dict):
        refuse("syntax", f'a record is an object with "type" or "edge", not {kind_name(value)}{layout_hint(line)}')
        return None
    node, edge = value.get("type"), value.get("edge")
    if (node is None) == (edge is None):
        refuse("syntax", 'a record has either "type" (a node) or "edge"')
        return None
    name = node if node is not None else edge
    entity = _entity(reading, node, edge) if isinstance(name, str) else None
    if entity is None:
        declared = reading.catalog.nodes if node is not None else reading.catalog.edges
        word = "node" if node is not None else "edge"
        refuse("unknown_type", f"{word} type {name!r} isn't declared; declared: {', '.join(declared) or 'none'}")
        return None
    data = value.get("data")
    if data is not None and not isinstance(data, dict):
        refuse("syntax", f'"data" is an object, not {kind_name(data)}')
        return None
    loose = [n for n in value if n not in _TOP] + (
        [n for n in ("from", "to") if n in value] if node is not None else []
    )
    if loose:
        refuse("syntax", f'a {entity.name} record has no {loose[0]!r}; properties stand in "data"')
        return None
    unknown = [n for n in data or {} if n != "id" and n not in entity.properties]
    if unknown:
        reading.findings.add(
            BadRecord(
                "unknown_property",
                f"there is no property {unknown[0]!r}; there are {', '.join(entity.properties)}",
                entity.table_key,
                property=unknown[0],
                file=file,
                row=at,
            )
        )
        return None
    return entity, value


def _from_records(
    entity: NodeType | EdgeType,
    lines: Lines,
    records: list[tuple[int, dict[str, Any]]],
    reading: Reading,
    file: int,
    label: str,
) -> TypedBatch:
    """The same columns as a parse would give, made value by value."""
    n = len(records)
    part = lines.take(np.array([i for i, _ in records], dtype=np.int64))
    schema = _group_schema(entity, reading.catalog.nodes)
    bad: dict[str, Array] = {}

    def column(name: str, values: list[Any], kind: Type | None, arrow: pa.DataType) -> Array:
        out, wrong = [], np.zeros(n, dtype=bool)
        for i, value in enumerate(values):
            try:
                out.append(None if value is None else value_of(value, kind))
            except ValueError:
                out.append(None)
                wrong[i] = True
        if wrong.any():
            bad[name] = pa.array(wrong)
        return pa.array(out, arrow)

    datas = [r.get("data") or {} for _, r in records]
    given_ids = {"data.id": [d.get("id") for d in datas], "id": [r.get("id") for _, r in records]}
    made_ids = {name: column(name, values, Type("String"), pa.string()) for name, values in given_ids.items()}
    fields = [made_ids["data.id"]]
    fields += [
        column(p.name, [d.get(p.name) for d in datas], p.type, json_type(p.type)) for p in entity.properties.values()
    ]
    struct = schema.field("data").type
    columns: dict[str, Array] = {
        "id": made_ids["id"],
        "data": pa.StructArray.from_arrays(fields, fields=list(struct)),
    }
    if isinstance(entity, EdgeType):
        for name, node in (("from", entity.source), ("to", entity.target)):
            kinds = key_parts(reading.catalog.nodes[node])
            columns[name] = column(
                name, [r.get(name) for _, r in records], kinds[0] if len(kinds) == 1 else None, schema.field(name).type
            )
    for name in sorted(given_ids.keys() & bad.keys()):
        for i in np.flatnonzero(np.asarray(bad[name])):
            message = f"id: {json.dumps(given_ids[name][i], ensure_ascii=False)} is not a String"
            reading.findings.add(BadRecord("type", message, entity.table_key, None, "id", file, int(part.offsets[i])))
    return _from_columns(entity, part, pa.table(columns), reading, file, label, bad)
