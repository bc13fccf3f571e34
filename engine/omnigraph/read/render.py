"""Results for people and programs: table, json, jsonl, csv, kv, arrow.

On the wire dates are ISO 8601, DateTime ends in `Z`, and a 64-bit integer that a double can't hold exactly (beyond
2^53 − 1) is a string. Conversion is by column; only the rows of a result, which leave the engine here, become objects.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from omnigraph.errors import BadRequest
from omnigraph.query.ir import ResultColumn
from omnigraph.read.compute import Array, Chunked, pc

__all__ = ["FORMATS", "html_table", "json_rows", "render"]

FORMATS = ("table", "json", "jsonl", "csv", "kv", "arrow")

_SAFE = 2**53 - 1
_BATCH = 8192


def _json_values(column: Array | Chunked) -> Any:
    """A column as a list of JSON-ready values."""
    kind = column.type
    if isinstance(column, pa.ChunkedArray):
        return [v for chunk in column.chunks for v in _json_values(chunk)]
    if pa.types.is_date64(kind):
        column = column.view(pa.int64()).view(pa.timestamp("ms"))
        kind = column.type
    if pa.types.is_timestamp(kind):
        text = pc.strftime(column.cast(pa.timestamp("ms")), format="%Y-%m-%dT%H:%M:%S")
        return [None if t is None else t + "Z" for t in text.to_pylist()]
    if pa.types.is_date(kind):
        return [None if d is None else d.isoformat() for d in column.to_pylist()]
    if pa.types.is_int64(kind) or pa.types.is_uint64(kind):
        values = column.to_pylist()
        bounds = pc.min_max(column).as_py()
        if bounds["min"] is None or (bounds["min"] >= -_SAFE and bounds["max"] <= _SAFE):
            return values
        return [v if v is None or -_SAFE <= v <= _SAFE else str(v) for v in values]
    if pa.types.is_floating(kind):
        # JSON has no NaN and no infinity; they go out as text rather than as a broken document.
        return [v if v is None or math.isfinite(v) else str(v) for v in column.to_pylist()]
    if pa.types.is_struct(kind):
        names = [field.name for field in kind]
        parts = [_json_values(column.field(i)) for i in range(kind.num_fields)]
        valid = column.is_valid().to_pylist()
        return [
            dict(zip(names, row, strict=True)) if ok else None
            for row, ok in zip(zip(*parts, strict=True), valid, strict=True)
        ]
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        if len(column) == 0:
            return []
        flat = iter(_json_values(column.flatten()))
        sizes = pc.list_value_length(column).to_pylist()
        return [None if n is None else [next(flat) for _ in range(n)] for n in sizes]
    return column.to_pylist()


def json_rows(table: pa.Table, columns: Sequence[ResultColumn]) -> list[dict[str, Any]]:
    """The rows as JSON-ready objects, nulls present."""
    names = [c.name for c in columns]
    parts = [_json_values(table.column(i)) for i in range(table.num_columns)]
    return [dict(zip(names, row, strict=True)) for row in zip(*parts, strict=True)] if parts else []


def _row_batches(table: pa.Table, columns: Sequence[ResultColumn]) -> Iterator[list[dict[str, Any]]]:
    for at in range(0, table.num_rows, _BATCH):
        yield json_rows(table.slice(at, _BATCH), columns)


def _dumps(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def _cell(value: Any) -> str:
    """A value in one line of text."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else _dumps(value) if isinstance(value, (dict, list)) else str(value)


def _json(table: pa.Table, columns: Sequence[ResultColumn]) -> Iterator[str]:
    yield "["
    first = True
    for rows in _row_batches(table, columns):
        yield ("\n  " if first else ",\n  ") + ",\n  ".join(_dumps(row) for row in rows)
        first = False
    yield "]\n" if first else "\n]\n"


def _jsonl(table: pa.Table, columns: Sequence[ResultColumn]) -> Iterator[str]:
    for rows in _row_batches(table, columns):
        yield "".join(_dumps(row) + "\n" for row in rows)


def _csv_cell(value: Any) -> str:
    """A null is an empty cell, an empty text is `""`, so that a reader (our own load, too) can tell them apart."""
    text = _cell(value)
    if value is not None and (not text or text != text.strip() or any(c in text for c in ',"\r\n')):
        return '"' + text.replace('"', '""') + '"'
    return text


def _csv(table: pa.Table, columns: Sequence[ResultColumn]) -> Iterator[str]:
    yield ",".join(_csv_cell(c.name) for c in columns) + "\n"
    for rows in _row_batches(table, columns):
        yield "".join(",".join(_csv_cell(v) for v in row.values()) + "\n" for row in rows)


def _kv(table: pa.Table, columns: Sequence[ResultColumn]) -> Iterator[str]:
    width = max((len(c.name) for c in columns), default=0)
    first = True
    for rows in _row_batches(table, columns):
        for row in rows:
            head = "" if first else "\n"
            first = False
            yield head + "".join(f"{name:<{width}}  {_cell(value)}\n" for name, value in row.items())


def _arrow(table: pa.Table, columns: Sequence[ResultColumn]) -> Iterator[bytes]:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    yield sink.getvalue().to_pybytes()


def _shown(value: Any) -> str:
    return "∅" if value is None else _cell(value)


def _table(table: pa.Table, columns: Sequence[ResultColumn]) -> Iterator[str]:
    """With rich on a terminal, plain aligned text elsewhere."""
    if sys.stdout.isatty():
        yield from _rich(table, columns)
        return
    for rows in _row_batches(table, columns) if table.num_rows else [[]]:
        cells = [[_shown(v).replace("\n", "\\n") for v in row.values()] for row in rows]
        widths = [max([len(c.name), *(len(row[i]) for row in cells)]) for i, c in enumerate(columns)]
        right = [c.type.base in ("I32", "I64", "U32", "U64", "F32", "F64") and not c.type.list for c in columns]

        def line(values: Sequence[str], widths: list[int] = widths, right: list[bool] = right) -> str:
            parts = [v.rjust(w) if r else v.ljust(w) for v, w, r in zip(values, widths, right, strict=True)]
            return "  ".join(parts).rstrip() + "\n"

        yield line([c.name for c in columns]) + line(["─" * w for w in widths]) + "".join(line(row) for row in cells)
    yield f"{table.num_rows} row{'' if table.num_rows == 1 else 's'}\n"


def _rich(table: pa.Table, columns: Sequence[ResultColumn]) -> Iterator[str]:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    out = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for c in columns:
        numeric = c.type.base in ("I32", "I64", "U32", "U64", "F32", "F64") and not c.type.list
        out.add_column(Text(c.name), justify="right" if numeric else "left", overflow="fold")
    for rows in _row_batches(table, columns):
        for row in rows:
            out.add_row(*[Text("∅", style="dim") if v is None else Text(_cell(v)) for v in row.values()])
    console = Console()
    with console.capture() as captured:
        console.print(out)
        console.print(Text(f"{table.num_rows} row{'' if table.num_rows == 1 else 's'}", style="dim"))
    yield captured.get()


def html_table(table: pa.Table, columns: Sequence[ResultColumn], limit: int = 50) -> str:
    """The first rows as an HTML table, for notebooks."""
    import html  # what only notebooks need

    head = "".join(f"<th>{html.escape(c.name)}</th>" for c in columns)
    body = "".join(
        "<tr>" + "".join(f"<td>{html.escape(_shown(v))}</td>" for v in row.values()) + "</tr>"
        for row in json_rows(table.slice(0, limit), columns)
    )
    more = f"<caption>{limit} of {table.num_rows} rows</caption>" if table.num_rows > limit else ""
    return f"<table>{more}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


_RENDERERS: dict[str, Callable[[pa.Table, Sequence[ResultColumn]], Iterator[str] | Iterator[bytes]]] = {
    "table": _table,
    "json": _json,
    "jsonl": _jsonl,
    "csv": _csv,
    "kv": _kv,
    "arrow": _arrow,
}


def render(table: pa.Table, columns: Sequence[ResultColumn], format: str) -> Iterator[str | bytes]:
    """A result in one of `FORMATS`, piece by piece; `arrow` gives the bytes of an IPC stream, the others text.

    Raises:
        BadRequest: an unknown format.
    """
    renderer = _RENDERERS.get(format)
    if renderer is None:
        raise BadRequest(f"unknown format {format!r}: one of {', '.join(FORMATS)}")
    return iter(renderer(table, columns))
