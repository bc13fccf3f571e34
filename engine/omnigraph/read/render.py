"""Results for people and programs: table, json, jsonl, csv, kv, arrow.

On the wire dates are ISO 8601, DateTime ends in `Z`, and a 64-bit integer that a double can't hold exactly (beyond
2^53 − 1) is a string. Text is made column by column (see `texts`), some thousand rows at a time.
"""

from __future__ import annotations

import io
import json
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from omnigraph.errors import BadRequest
from omnigraph.query.ir import ResultColumn
from omnigraph.read.compute import Array, Chunked, pc
from omnigraph.read.texts import LOOSE, SAFE, TIGHT, cells, data_of, joined, json_objects, quoted_cells

__all__ = ["FORMATS", "html_table", "json_array", "json_rows", "render"]

FORMATS = ("table", "json", "jsonl", "csv", "kv", "arrow")

_BATCH = 8192
_BATCH_BYTES = 32 << 20
_ARROW_ROWS = 1 << 16
_READ = 1000  # rows; rich lays all of them out before it shows the first


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
        if bounds["min"] is None or (bounds["min"] >= -SAFE and bounds["max"] <= SAFE):
            return values
        return [v if v is None or -SAFE <= v <= SAFE else str(v) for v in values]
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


def _blocks(table: pa.Table) -> Iterator[list[Array]]:
    """The columns, some thousand rows at a time, or fewer where they are long."""
    size = min(_BATCH, max(1, _BATCH_BYTES * table.num_rows // max(1, table.nbytes)))
    for at in range(0, table.num_rows, size):
        block = table.slice(at, size)
        yield [block.column(i).combine_chunks() for i in range(block.num_columns)]


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


def json_array(table: pa.Table, columns: Sequence[ResultColumn]) -> Iterator[bytes]:
    """The rows as one JSON array without white space, in UTF-8, piece by piece."""
    names, first = [c.name for c in columns], True
    for block in _blocks(table):
        data = data_of(json_objects(names, block, TIGHT, ",", ""))
        yield b"[" + data[1:] if first else data
        first = False
    yield b"[]" if first else b"]"


def _json(table: pa.Table, columns: Sequence[ResultColumn]) -> Iterator[str]:
    names, first = [c.name for c in columns], True
    for block in _blocks(table):
        data = data_of(json_objects(names, block, LOOSE, ",\n  ", "")).decode()
        yield "[" + data[1:] if first else data
        first = False
    yield "[]\n" if first else "\n]\n"


def _jsonl(table: pa.Table, columns: Sequence[ResultColumn]) -> Iterator[str]:
    names = [c.name for c in columns]
    for block in _blocks(table):
        yield data_of(json_objects(names, block, LOOSE, "", "\n")).decode()


def _csv(table: pa.Table, columns: Sequence[ResultColumn]) -> Iterator[str]:
    heads = quoted_cells(pa.array([c.name for c in columns], pa.string())).to_pylist()
    yield ",".join(heads) + "\n"
    for block in _blocks(table):
        yield data_of(joined(*_between([quoted_cells(column) for column in block], ","), "\n")).decode()


def _between(columns: Sequence[Array], sign: str) -> list[Array | str]:
    return [part for column in columns for part in (sign, column)][1:]


def _kv(table: pa.Table, columns: Sequence[ResultColumn]) -> Iterator[str]:
    width = max((len(c.name) for c in columns), default=0)
    heads = [f"{c.name:<{width}}  " for c in columns]
    first = True
    for block in _blocks(table):
        parts = [part for head, column in zip(heads, block, strict=True) for part in (head, cells(column, ""), "\n")]
        text = data_of(joined("\n", *parts)).decode()
        yield text[1:] if first else text
        first = False


class _Pieces(io.RawIOBase):
    """A file whose content is taken away as it is written."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._parts.append(bytes(data))
        return len(self._parts[-1])

    def taken(self) -> bytes:
        parts, self._parts = self._parts, []
        return b"".join(parts)


def _arrow(table: pa.Table, columns: Sequence[ResultColumn]) -> Iterator[bytes]:
    pieces = _Pieces()
    with pa.ipc.new_stream(pieces, table.schema) as writer:
        size = min(_ARROW_ROWS, max(1, _BATCH_BYTES * table.num_rows // max(1, table.nbytes)))
        for number, batch in enumerate(table.to_batches(max_chunksize=size)):
            if number:
                yield pieces.taken()
            writer.write_batch(batch)
    yield pieces.taken()


def _shown(value: Any) -> str:
    return "∅" if value is None else _cell(value)


def _table(table: pa.Table, columns: Sequence[ResultColumn]) -> Iterator[str]:
    """With rich on a terminal, plain aligned text elsewhere, and where there is more than a person reads."""
    if sys.stdout is not None and sys.stdout.isatty() and table.num_rows <= _READ:  # None: it is closed
        yield from _rich(table, columns)
        return
    names = [c.name for c in columns]
    right = [c.type.base in ("I32", "I64", "U32", "U64", "F32", "F64") and not c.type.list for c in columns]
    for block in _blocks(table) if table.num_rows else [[pa.array([], pa.string())] * len(columns)]:
        shown = [pc.replace_substring(cells(column, "∅"), pattern="\n", replacement="\\n") for column in block]
        longest = [pc.max(pc.utf8_length(column)).as_py() or 0 for column in shown]
        widths = [max(len(name), length) for name, length in zip(names, longest, strict=True)]
        pads = [pc.utf8_lpad if r else pc.utf8_rpad for r in right]
        padded = [pad(column, width=w) for pad, column, w in zip(pads, shown, widths, strict=True)]
        heads = [name.rjust(w) if r else name.ljust(w) for name, w, r in zip(names, widths, right, strict=True)]
        yield "  ".join(heads).rstrip() + "\n" + "  ".join("─" * w for w in widths) + "\n"
        lines = joined(pc.utf8_rtrim_whitespace(joined(*_between(padded, "  "))), "\n")
        yield data_of(lines).decode()
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
