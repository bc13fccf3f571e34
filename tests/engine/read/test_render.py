"""Results as text: what is made by column equals what is made value by value, in every format, for every type."""

from __future__ import annotations

import importlib
import io
import json
import math
import random
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from omnigraph import read
from omnigraph.query.ir import ResultColumn
from omnigraph.schema.catalog import Type

render = importlib.import_module("omnigraph.read.render")  # the package has the function under this name

UTC_MS = pa.timestamp("ms", "UTC")
ROWS = 120


# ---- the plain way ----


def dumps(value: Any, **kwargs: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, **kwargs)


def cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else dumps(value) if isinstance(value, (dict, list)) else str(value)


def csv_cell(value: Any) -> str:
    text = cell(value)
    if value is not None and (not text or text != text.strip() or any(c in text for c in ',"\r\n')):
        return '"' + text.replace('"', '""') + '"'
    return text


def plain(table: pa.Table, columns: list[ResultColumn], format: str) -> str:
    rows = read.json_rows(table, columns)
    names = [c.name for c in columns]
    if format == "json":
        return "[" + ",".join("\n  " + dumps(row) for row in rows) + ("\n]\n" if rows else "]\n")
    if format == "jsonl":
        return "".join(dumps(row) + "\n" for row in rows)
    if format == "csv":
        lines = [[csv_cell(n) for n in names], *([csv_cell(v) for v in row.values()] for row in rows)]
        return "".join(",".join(line) + "\n" for line in lines)
    if format == "kv":
        width = max(map(len, names))
        return "\n".join("".join(f"{n:<{width}}  {cell(v)}\n" for n, v in row.items()) for row in rows)
    cells = [["∅" if v is None else cell(v).replace("\n", "\\n") for v in row.values()] for row in rows]
    widths = [max([len(n), *(len(row[i]) for row in cells)]) for i, n in enumerate(names)]
    right = [c.type.base in ("I32", "I64", "U32", "U64", "F32", "F64") and not c.type.list for c in columns]

    def line(values: list[str]) -> str:
        aligned = [v.rjust(w) if r else v.ljust(w) for v, w, r in zip(values, widths, right, strict=True)]
        return "  ".join(aligned).rstrip() + "\n"

    body = line(names) + line(["─" * w for w in widths]) + "".join(map(line, cells))
    return body + f"{len(rows)} row{'' if len(rows) == 1 else 's'}\n"


# ---- random results ----

TEXTS = ["", " ", "a", "ada lovelace", "ü", "日本", 'say "hi"', "back\\slash", "a,b", "line\nline", "\r", "\t tab",
         "x ", "\u00a0", "\x00", "\x1f\x7f", "\u2028", "😀", "null", "∅", "\x08\x0c", "\x85end\x85", '"',
         "\\\\n"]  # fmt: skip
DOUBLES = [0.0, -0.0, 1.0, -1.0, 0.1, 1e-5, 1e-4, 9.999e-5, 1e15, 1e16, 123456789012345680.0, 1e22, 1e300, -1e-300,
           5e-324, math.nan, math.inf, -math.inf, 1 / 3, 999999999999999.9, 2.0**53, 100.0, 1e5, 1e10,
           9999999999.9, 12345678.9]  # fmt: skip
LONGS = [0, 1, -1, 2**53 - 1, 2**53, -(2**53) + 1, -(2**53), 2**63 - 1, -(2**63), 10**9]
MOMENTS = [0, -1, 1, -62_135_596_800_000, 253_402_300_799_999, 10**12, 951_782_400_000, 86_399_999]
DAYS = [0, -1, 19_000, -719_162, 2_932_896, 59]


def double(rng: random.Random) -> float:
    drawn = rng.choice(DOUBLES) if rng.random() < 0.4 else rng.choice([1, 1e3, 1e-6, 1e14, 1e18]) * rng.gauss(0, 1)
    return round(drawn, 2) if rng.random() < 0.3 and math.isfinite(drawn) else drawn


def text(rng: random.Random) -> str:
    return rng.choice(TEXTS) if rng.random() < 0.7 else rng.choice(TEXTS) + rng.choice(TEXTS)


KINDS: dict[str, tuple[Any, Any]] = {
    "String": (pa.string(), text),
    "large": (pa.large_string(), text),
    "Bool": (pa.bool_(), lambda rng: rng.random() < 0.5),
    "I32": (pa.int32(), lambda rng: rng.randrange(-(2**31), 2**31)),
    "I64": (pa.int64(), lambda rng: rng.choice(LONGS)),
    "U64": (pa.uint64(), lambda rng: rng.choice([0, 2**64 - 1, 2**53 - 1, 2**53])),
    "F64": (pa.float64(), double),
    "F32": (pa.float32(), lambda rng: float(np.float32(rng.gauss(0, 1) * 10 ** rng.randrange(-6, 20)))),
    "Date": (pa.date32(), lambda rng: rng.choice(DAYS)),
    "DateTime": (UTC_MS, lambda rng: rng.choice(MOMENTS)),
    "usual": (UTC_MS, lambda rng: rng.randrange(2 * 10**12)),
    "texts": (pa.list_(pa.string()), lambda rng: [maybe(rng, text) for _ in range(rng.randrange(4))]),
    "numbers": (pa.list_(pa.float64()), lambda rng: [double(rng) for _ in range(rng.randrange(3))]),
    "vector": (pa.list_(pa.float32(), 2), lambda rng: [rng.gauss(0, 1), 1.0]),
    "none": (pa.null(), lambda rng: None),
}


def maybe(rng: random.Random, make: Any, share: float = 0.2) -> Any:
    return None if rng.random() < share else make(rng)


def column(rng: random.Random, kind: str, share: float, rows: int) -> pa.Array:
    if kind == "entity":
        parts = rng.sample(sorted(KINDS), 3)
        fields = [column(rng, part, share, rows) for part in parts]
        mask = pa.array([rng.random() < share for _ in range(rows)])
        return pa.StructArray.from_arrays(fields, names=[f'{p} "{i}"' for i, p in enumerate(parts)], mask=mask)
    arrow, make = KINDS[kind]
    values = [maybe(rng, make, share) for _ in range(rows)]
    if kind in ("Date", "DateTime", "usual"):
        return pa.array(values, pa.int32() if kind == "Date" else pa.int64()).view(arrow)
    return pa.array(values, arrow)


def results(seed: int) -> Iterator[tuple[pa.Table, list[ResultColumn]]]:
    rng = random.Random(seed)
    print("seed", seed)
    kinds = [*KINDS, "entity"]
    for names in ([kind] for kind in kinds):
        yield result(rng, names, rng.choice([0.0, 0.2, 1.0]), ROWS)
    for _ in range(10):
        yield result(rng, rng.sample(kinds, rng.randrange(2, 7)), rng.choice([0.0, 0.2]), rng.choice([0, 1, 2, ROWS]))


def result(rng: random.Random, kinds: list[str], share: float, rows: int) -> tuple[pa.Table, list[ResultColumn]]:
    parts = [column(rng, kind, share, rows + 3).slice(2, rows) for kind in kinds]  # as a slice of something longer
    names = [f"{kind}{rng.choice(['', ' ü', ',', chr(34)])}{i}" for i, kind in enumerate(kinds)]
    table = pa.table([pa.chunked_array([part.slice(0, 5), part.slice(5)]) for part in parts], names=names)
    base = [kind if kind in ("I32", "I64", "U64", "F64", "F32") else "String" for kind in kinds]
    return table, [ResultColumn(n, Type(b, nullable=True)) for n, b in zip(names, base, strict=True)]


@pytest.mark.parametrize("format", ["json", "jsonl", "csv", "kv", "table"])
def test_by_column_equals_value_by_value(format: str) -> None:
    for table, columns in results(random.randrange(2**32)):
        assert "".join(str(p) for p in read.render(table, columns, format)) == plain(table, columns, format)


def test_blocks_give_the_same_as_one_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    table, columns = result(random.Random(5), ["String", "F64", "entity", "I64"], 0.1, ROWS)
    for format in ("json", "jsonl", "csv", "kv"):
        monkeypatch.setattr(render, "_BATCH", 7)
        pieces = [str(piece) for piece in read.render(table, columns, format)]
        assert len(pieces) > ROWS // 7
        assert "".join(pieces) == plain(table, columns, format)
        monkeypatch.setattr(render, "_BATCH", 8192)
        monkeypatch.setattr(render, "_BATCH_BYTES", 1)  # rows so long that each is a block
        assert len(list(read.render(table, columns, format))) >= ROWS
        monkeypatch.undo()


def test_a_reply_of_the_server_is_the_same_without_white_space(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(render, "_BATCH", 100)
    for table, columns in results(random.randrange(2**32)):
        made = b"".join(read.json_array(table, columns)).decode()
        assert made == dumps(read.json_rows(table, columns), separators=(",", ":"))


def test_arrow_comes_in_pieces_and_reads_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(render, "_ARROW_ROWS", 100)
    for rows in (0, ROWS):
        table, columns = result(random.Random(6), ["String", "I64", "texts", "usual"], 0.1, rows)
        pieces = list(read.render(table, columns, "arrow"))
        assert len(pieces) > rows // 100
        assert pa.ipc.open_stream(io.BytesIO(b"".join(pieces))).read_all().equals(table)  # type: ignore[arg-type]


def test_white_space_is_what_python_takes_for_it() -> None:
    space = [chr(i) for i in range(sys.maxunicode + 1) if chr(i).isspace()]
    other = ["\u200b", "\ufeff", "\u180e", "\u2060", "a"]
    table = pa.table({"t": pa.array([f"x{c}" for c in space + other])})
    columns = [ResultColumn("t", Type("String"))]
    for format in ("csv", "table"):
        assert "".join(str(p) for p in read.render(table, columns, format)) == plain(table, columns, format)


def test_no_value_becomes_an_object(monkeypatch: pytest.MonkeyPatch) -> None:
    """The work is counted in calls by value: there are none for the usual types."""
    monkeypatch.setattr(render, "json_rows", None)
    monkeypatch.setattr(render, "_dumps", None)
    monkeypatch.setattr(render, "_cell", None)
    table, columns = result(random.Random(8), ["String", "I64", "Bool", "usual", "texts", "entity"], 0.1, ROWS)
    for format in ("json", "jsonl", "csv", "kv", "table", "arrow"):
        assert list(read.render(table, columns, format))
