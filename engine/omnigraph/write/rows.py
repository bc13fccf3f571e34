"""From a source's columns to rows of a table: casts, defaults, ids, endpoints, value constraints. Columnar.

Rows on their way into a graph have the table's columns plus `FILE`, `ROW` and, for a merge, one bool column
`OMITTED + property` per property that is not part of the key: true where the record doesn't mention it. A load that
makes vectors has those of the vectors in any mode.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.read.compute import Array, Chunked, Scalar, pc
from omnigraph.records import dataclass
from omnigraph.schema.catalog import Catalog, EdgeType, NodeType, Property, Type
from omnigraph.storage.arrow import arrow_type, moving_schema
from omnigraph.write.blobs import BlobSpool, blob_problem
from omnigraph.write.columns import Cast, cast_column, nulls_of, values_column
from omnigraph.write.constraints import check_values
from omnigraph.write.embedding import given_texts, made_vectors
from omnigraph.write.findings import FILE, OMITTED, ROW, Findings
from omnigraph.write.keys import hashed_ids, render_key
from omnigraph.write.mapping import DateFormat

__all__ = [
    "Given",
    "Reading",
    "TypedBatch",
    "arrow_text",
    "assemble",
    "default_column",
    "endpoint",
    "key_parts",
    "row_schema",
    "short",
    "table_rows",
    "tells_omitted",
    "value_text",
]

_Rows = TypeVar("_Rows", pa.RecordBatch, pa.Table)


@dataclass(frozen=True, slots=True)
class Reading:
    """What reading a source needs to know.

    Args:
        catalog: the schema the records are read by.
        operation_id: seeds the ids of records without one.
        merge: keep which properties a record omits, and leave value constraints to the merged row.
        fills: an `@embed` vector that a record omits is made later in this write: it is no missing value.
        findings: where bad records go.
        blobs: where the bytes of Blobs wait.
    """

    catalog: Catalog
    operation_id: str
    merge: bool = False
    fills: bool = False
    findings: Findings = field(default_factory=Findings)
    blobs: BlobSpool = field(default_factory=BlobSpool)


@dataclass(frozen=True, slots=True)
class TypedBatch:
    """Rows of one table, in `row_schema`. `generated_ids`: every id was made here, so none can repeat."""

    table_key: str
    rows: pa.RecordBatch
    generated_ids: bool = False


@dataclass(frozen=True, slots=True)
class Given:
    """One property as a source gives it.

    Args:
        column: any Arrow array that `cast_column` takes.
        omitted: mask (bool) of records that don't mention it; None: all do.
        bad: mask of values that are already known not to fit.
        text: the source knows text only.
        form: how dates are written.
        show: what shows the value that a record gives; None: the column's own value is shown.
    """

    column: Array | Chunked
    omitted: Array | None = None
    bad: Array | None = None
    text: bool = False
    form: DateFormat | None = None
    show: Callable[[int], str] | None = None


def row_schema(entity: NodeType | EdgeType, *, merge: bool, fills: bool = False) -> pa.Schema:
    """Columns of rows on their way in; all nullable, since what is wrong with a row is said later."""
    ends = ("src", "dst") if isinstance(entity, EdgeType) else ()
    fields: list[pa.Field[Any]] = [pa.field(name, pa.string()) for name in ("id", *ends)]
    fields += [pa.field(p.name, arrow_type(p.type)) for p in entity.properties.values()]
    fields += [pa.field(FILE, pa.int32()), pa.field(ROW, pa.int64())]
    if merge:
        fields += [pa.field(OMITTED + name, pa.bool_()) for name in entity.properties if name not in entity.key]
    elif fills:
        fields += [pa.field(OMITTED + prop.name, pa.bool_()) for prop in made_vectors(entity)]
    return pa.schema(fields)


def table_rows(entity: NodeType | EdgeType, rows: _Rows) -> _Rows:
    """Judged rows with the table's columns, Blobs as tickets, without the columns that only travelled along."""
    extra = [n for n in rows.schema.names if n in (FILE, ROW) or n.startswith(OMITTED)]
    schema = moving_schema(entity)
    return rows.drop_columns(extra).select(schema.names).cast(schema)


def tells_omitted(reading: Reading, entity: NodeType | EdgeType, prop: Property) -> bool:
    """Whether a record that leaves the property out gives another row than one that says null."""
    made = reading.fills and prop.embed is not None
    return prop.has_default or ((reading.merge or made) and prop.name not in entity.key)


def default_column(prop: Property, n: int) -> Array:
    """The property's default n times, or nulls."""
    if not prop.has_default or prop.default is None:
        return nulls_of(prop.type, n)
    value = list(prop.default) if isinstance(prop.default, tuple) else prop.default
    cast = cast_column(values_column([value]), prop.type)
    return cast.column.take(pa.array(np.zeros(n, dtype=np.int64)))


def key_parts(node: NodeType) -> tuple[Type, ...]:
    """Types of what names a node: its key's properties, or its id."""
    return tuple(node.properties[name].type for name in node.key) or (Type("String"),)


def endpoint(node: NodeType, parts: Sequence[Array | Chunked], *, text: bool) -> Cast:
    """Ids of the named nodes (utf8), one a row, from the columns of their key's parts."""
    casts = [cast_column(column, kind, text=text) for column, kind in zip(parts, key_parts(node), strict=True)]
    bad: Array | None = None
    for cast in casts:
        if cast.bad is not None:
            bad = cast.bad if bad is None else pc.or_(bad, cast.bad)
    return Cast(render_key([cast.column for cast in casts]), bad)


def assemble(
    reading: Reading,
    entity: NodeType | EdgeType,
    *,
    file: int,
    file_label: str,
    positions: npt.NDArray[Any],
    given: Mapping[str, Given],
    ends: Sequence[tuple[Cast, Callable[[int], str]]] = (),
    ids: Array | None = None,
) -> TypedBatch:
    """Rows of one type from columns of equal length; what doesn't fit goes to the findings.

    Args:
        file: number of the source in the load; `file_label` its name, which seeds ids.
        positions: where each record stands in the source (int64).
        given: the properties that come from the source; the others are omitted in every record.
        ends: for edges, the ids of source and target, each with what shows the given value of a record.
        ids: given ids (utf8), null where a record has none; None when no record has.
    """
    n, key, findings = len(positions), entity.table_key, reading.findings
    origin = pa.record_batch({FILE: pa.array(np.full(n, file, dtype=np.int32)), ROW: pa.array(positions, pa.int64())})
    columns: dict[str, Array] = {}
    omitted: dict[str, Array] = {}
    excused: dict[str, Array] = {}
    for prop in entity.properties.values():
        it = given.get(prop.name)
        # A merge knows a row by its key; of the others it asks the stored row before the default.
        defaults = not reading.merge or prop.name in entity.key
        if it is None:
            columns[prop.name] = default_column(prop, n) if defaults else nulls_of(prop.type, n)
            omitted[prop.name] = pa.array(np.ones(n, dtype=bool))
            continue
        if prop.type.base == "Blob":
            cast = reading.blobs.cast(it.column)
        else:
            cast = cast_column(it.column, prop.type, text=it.text, form=it.form)
        bad = _either(cast.bad, it.bad)
        if bad is not None:
            excused[prop.name] = bad
            _report_type(findings, key, origin, bad, prop, it)
        column = cast.column
        if defaults and prop.has_default and it.omitted is not None:
            column = pc.if_else(it.omitted, default_column(prop, n), column)
        columns[prop.name] = column
        omitted[prop.name] = it.omitted if it.omitted is not None else pa.array(np.zeros(n, dtype=bool))
    own: dict[str, Array] = {}
    for name, (cast, show) in zip(("src", "dst"), ends, strict=False):
        own[name] = cast.column
        _report_end(findings, key, origin, cast, name, show)
    generated = False
    if entity.key:
        own["id"] = render_key([own[p] if p in own else columns[p] for p in entity.key])
        if ids is not None:
            differs = pc.not_equal(ids, own["id"])
            both = pa.record_batch([own["id"], ids, *origin.columns], ["id", "given", FILE, ROW])
            findings.add_rows(
                "id",
                key,
                both,
                differs,
                lambda row: f"the given id {row['given']!r} isn't the key's",
                property="id",
            )
    else:
        made = hashed_ids(reading.operation_id, file_label, positions)
        generated = ids is None or ids.null_count == n
        own["id"] = made if ids is None or generated else pc.coalesce(ids, made)
    schema = row_schema(entity, merge=reading.merge, fills=reading.fills)
    extra = {OMITTED + name: mask for name, mask in omitted.items()}
    for prop in made_vectors(entity) if reading.fills else ():
        assert prop.embed is not None
        waits = pc.and_(omitted[prop.name], given_texts(columns[prop.embed.source]))
        excused[prop.name] = pc.or_(waits, excused[prop.name]) if prop.name in excused else waits
    every = own | columns | {FILE: origin.column(FILE), ROW: origin.column(ROW)} | extra
    rows = pa.record_batch([every[f.name] for f in schema], schema=schema)
    if not reading.merge:
        check_values(entity, rows, findings, excused=excused)
    return TypedBatch(key, rows, generated)


def _either(a: Array | None, b: Array | None) -> Array | None:
    return b if a is None else a if b is None else pc.or_(a, b)


def value_text(value: Scalar) -> str:
    """A value as findings show it: as JSON where JSON has it, whatever way a file was read in."""
    if pa.types.is_date(value.type) or pa.types.is_timestamp(value.type) or pa.types.is_time(value.type):
        return arrow_text(value)
    if value.is_valid and pa.types.is_list(value.type):
        return f"[{', '.join(map(value_text, value.values))}]"
    try:
        plain = value.as_py()
        return json.dumps(plain, ensure_ascii=False) if isinstance(plain, (str, int, float)) else repr(plain)
    except (ValueError, OverflowError):  # finer than Python's times, or of a year that it doesn't have
        return arrow_text(value)


def arrow_text(value: Scalar) -> str:
    """A value that Python has nothing for, as Arrow writes it; what Arrow can't write is told by its type."""
    kind = value.type
    try:
        if pa.types.is_struct(kind):
            return str(value)
        if pa.types.is_date64(kind) and value.is_valid and value.value % 86_400_000:  # the time of day would be cut off
            return str(pa.scalar(value.value, pa.timestamp("ms")).cast(pa.string()))
        return str(value.cast(pa.string()))
    except (ValueError, pa.ArrowException):
        if pa.types.is_timestamp(kind):  # of a zone that there isn't
            return str(value.cast(pa.timestamp(kind.unit, "UTC")).cast(pa.string()))
        return f"a {kind}"


def _report_type(findings: Findings, key: str, origin: pa.RecordBatch, bad: Array, prop: Property, it: Given) -> None:
    numbered = origin.append_column("at", pa.array(np.arange(origin.num_rows)))

    def text(row: dict[str, Any]) -> str:
        if prop.type.base == "Blob":
            given = it.column[row["at"]].as_py()
            if given is not None:
                return f"{prop.name}: {blob_problem(given)}"
        value = it.show(row["at"]) if it.show is not None else value_text(it.column[row["at"]])
        wanted = str(replace(prop.type, nullable=False))
        if it.form is not None:
            wanted += f" written as {it.form.pattern}"
        return f"{prop.name}: {short(value)} is not {wanted}"

    findings.add_rows("type", key, numbered, bad, text, property=prop.name)


def _report_end(
    findings: Findings, key: str, origin: pa.RecordBatch, cast: Cast, name: str, show: Callable[[int], str]
) -> None:
    word = "from" if name == "src" else "to"
    numbered = origin.append_column("at", pa.array(np.arange(origin.num_rows)))
    missing = pc.is_null(cast.column)
    if cast.bad is not None:
        missing = pc.and_(missing, pc.invert(cast.bad))

        def text(row: dict[str, Any]) -> str:
            return f"{word}: {short(show(row['at']))} is no key of the node"

        findings.add_rows("type", key, numbered, cast.bad, text, property=word)
    if cast.column.null_count:
        findings.add_rows("endpoint", key, numbered, missing, lambda row: f"{word} is missing", property=word)


def short(text: str, limit: int = 80) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"
