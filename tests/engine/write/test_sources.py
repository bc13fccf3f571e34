# ruff: noqa: E501  (records are long lines)
"""Reading records: NDJSON, Parquet, CSV, Arrow and tables give the same typed rows; bad ones are named with their place."""

from __future__ import annotations

import gzip
import io
import json
import os
import random
import threading
import zlib
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.csv as pcsv
import pyarrow.feather as feather
import pyarrow.orc as orc
import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError

import omnigraph
from omnigraph.errors import BadRequest
from omnigraph.schema import compile_schema
from omnigraph.write import ndjson
from omnigraph.write.csv_rows import csv_rows
from omnigraph.write.findings import FILE, ROW, Findings
from omnigraph.write.mapping import Mapping, SourceMapping
from omnigraph.write.ndjson import read_ndjson
from omnigraph.write.rows import Reading
from omnigraph.write.sources import Split, plan_sources, read_batches

OPERATION = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
CATALOG = compile_schema("""
node Person {
  slug: String @key
  age: I32?
  born: Date?
  seen: DateTime?
  status: enum(active, left)? @default("active")
  tags: [String]?
  vec: Vector(2)?
  big: U64?
  score: F32?
  @range(age, 0..150)
  @check(slug, "[a-z]+")
}
node Note { text: String? }
node Part { a: String  b: I32  @key(a, b) }
edge Knows: Person -> Person { since: Date? }
edge Uses: Part -> Part { n: I64? }
""")


def read_all(
    source: Any, mapping: Mapping | None = None, *, merge: bool = False
) -> tuple[dict[str, list[dict[str, Any]]], Findings, list[str]]:
    reading = Reading(CATALOG, OPERATION, merge=merge)
    out: dict[str, list[dict[str, Any]]] = {}
    with plan_sources(source, mapping, CATALOG) as plan:
        for file in plan.files:
            for batch in plan.read(file, reading):
                out.setdefault(batch.table_key, []).extend(batch.rows.to_pylist())
        lines: list[str] = []
        try:
            reading.findings.refuse(plan.locate)
        except BadRequest as error:
            lines = str(error).splitlines()
    return out, reading.findings, lines


def plain(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{k: v for k, v in row.items() if k not in (FILE, ROW) and v is not None} for row in rows]


def test_ndjson_types_defaults_ids_and_ends() -> None:
    rows, findings, _ = read_all("""\
// people
{"type": "Person", "data": {"slug": "ada", "age": 36, "born": "1815-12-10", "tags": ["a", "b"], "vec": [1, 2.5], "big": 18446744073709551615, "score": 1}}

{"type": "Person", "data": {"slug": "bob", "status": null}}
{"type": "Person", "data": {"slug": "cy"}}
{"edge": "knows", "from": "ada", "to": "bob", "data": {"id": "e1", "since": "2020-01-01"}}
{"edge": "Knows", "id": "e2", "from": "bob", "to": "ada"}
{"edge": "Uses", "from": ["x", "3"], "to": ["y", 4]}
{"type": "Note", "data": {"text": "say \\"status\\": null // x"}}
""")
    assert not findings
    ada, bob, cy = plain(rows["node:Person"])
    assert ada == {
        "id": "ada", "slug": "ada", "age": 36, "born": date(1815, 12, 10), "status": "active", "tags": ["a", "b"],
        "vec": [1.0, 2.5], "big": 2**64 - 1, "score": 1.0,
    }  # fmt: skip
    assert bob == {"id": "bob", "slug": "bob"}  # an explicit null beats the default
    assert cy == {"id": "cy", "slug": "cy", "status": "active"}
    assert [(e["id"], e["src"], e["dst"]) for e in rows["edge:Knows"]] == [("e1", "ada", "bob"), ("e2", "bob", "ada")]
    assert [(e["src"], e["dst"]) for e in rows["edge:Uses"]] == [('["x","3"]', '["y","4"]')]
    assert rows["node:Note"][0]["text"] == 'say "status": null // x'
    assert len(rows["node:Note"][0]["id"]) == 26


def test_only_the_name_in_data_is_a_mention_however_it_is_written() -> None:
    catalog = compile_schema("node T { slug: String @key  edge: String?  age: I32? }")
    text = """\
{"type": "T", "edge": null, "data": {"slug": "a"}}
{"type": "T", "data": {"slug": "b", "\\u0061ge": null}}
{"type": "T", "data": {"slug": "c", "edge": null, "age": 1}}
"""
    reading = Reading(catalog, OPERATION, merge=True)
    (batch,) = read_ndjson(io.BytesIO(text.encode()), reading, file=0, label="x")
    assert batch.rows.column("__omitted:edge").to_pylist() == [True, True, False]
    assert batch.rows.column("__omitted:age").to_pylist() == [True, False, False]


def test_dates_with_zones_and_milliseconds_become_utc() -> None:
    times = [
        "2020-01-01T10:00:00.5+02:00",
        "2020-01-01T08:00:00.500Z",
        "2020-01-01 08:00:00.500",
        "2020-01-01T08:00:00.500000Z",
    ]
    rows, findings, _ = read_all(
        "\n".join(
            json.dumps({"type": "Person", "data": {"slug": s, "seen": t}}) for s, t in zip("abcd", times, strict=True)
        )
    )
    assert not findings
    assert len({row["id"] for row in rows["node:Person"]}) == 4
    reading = Reading(CATALOG, OPERATION)
    text = "\n".join(json.dumps({"type": "Person", "data": {"slug": "a", "seen": t}}) for t in times)
    for batch in read_ndjson(io.BytesIO(text.encode()), reading, file=0, label="x"):
        seen = batch.rows.column("seen").view(pa.int64()).to_pylist()
        assert set(seen) == {1577865600500}


def test_forms_that_one_arrow_column_cannot_take_are_read_all_the_same() -> None:
    rows, findings, _ = read_all("""\
{"type": "Person", "data": {"slug": "a", "big": "18446744073709551615"}}
{"type": "Person", "data": {"slug": "b", "big": 3, "born": 15740}}
""")
    assert not findings
    assert [r["big"] for r in rows["node:Person"]] == [2**64 - 1, 3]
    assert rows["node:Person"][1]["born"] == date(2013, 2, 4)


def test_an_empty_name_of_a_type_is_refused_whatever_stands_beside_it() -> None:
    edge = '"edge": "Knows", "from": "a", "to": "a"'
    for line in (f'{{"type": "", {edge}}}', '{"type": "Person", "edge": "", "data": {"slug": "a"}}'):
        _, findings, _ = read_all(f"{line}\n{line}\n")
        assert dict(findings.counts) == {"syntax": 2}


def test_whole_numbers_written_with_a_point_or_an_exponent_are_read_exactly() -> None:
    good = {
        "12345678901234567.0": 12345678901234567,
        "9007199254740993e0": 9007199254740993,
        "1.8446744073709551615e19": 2**64 - 1,
        "1e3": 1000,
        "-0.0": 0,
    }
    bad = [
        "9007199254740993.5",
        "1.00000000000000000001",
        "1e-400",
        "1e-99999999999999999999",
        "1e400",
        "18446744073709551616.0",
    ]
    lines = [f'{{"type": "Person", "data": {{"slug": "a", "score": {n}, "big": {n}}}}}' for n in [*good, *bad[:3]]]
    lines += [f'{{"type": "Person", "data": {{"slug": "\\u0061", "big": {n}}}}}' for n in bad[3:]]
    lines.append('{"edge": "Uses", "from": ["a", 5.0], "to": ["a", 9007199254740993.0]}')
    rows, findings, _ = read_all("\n".join(lines))
    assert [r["big"] for r in rows["node:Person"]] == [*good.values(), *[None] * len(bad)]
    assert [r["score"] for r in rows["node:Person"]][:5] == pytest.approx([float(n) for n in good])
    assert (findings.counts["type"], len(findings.shown)) == (len(bad) + 2, len(bad) + 2)


@pytest.mark.parametrize(
    ("line", "kind", "says"),
    [
        ('{"type": "Person", "data": {"slug": "a", "age": "x"}}', "type", 'age: "x" is not I32'),
        ('{"type": "Person", "data": {"slug": "a", "age": 3000000000}}', "type", "age: 3000000000 is not I32"),
        ('{"type": "Person", "data": {"slug": "a", "age": 200}}', "range", "age is 200, outside @range 0..150"),
        ('{"type": "Person", "data": {"slug": "A"}}', "check", "doesn't match @check"),
        ('{"type": "Person", "data": {"slug": "a\\nb"}}', "check", "doesn't match @check"),
        ('{"type": "Person", "data": {"age": 3}}', "required", "slug is required"),
        ('{"type": "Person"}', "required", "slug is required"),
        ('{"type": "Person", "data": {"slug": "a", "status": "gone"}}', "enum", "not one of active, left"),
        ('{"type": "Person", "data": {"slug": "a", "born": "2020-02-30"}}', "type", "is not Date"),
        ('{"type": "Person", "data": {"slug": "a", "seen": "2020-01-01T00:00:00.0001Z"}}', "type", "is not DateTime"),
        ('{"type": "Person", "data": {"slug": "a", "vec": [1, 2, 3]}}', "type", "is not Vector(2)"),
        ('{"type": "Person", "data": {"slug": "a", "vec": [0, 0]}}', "vector", "all zeros"),
        ('{"type": "Person", "data": {"slug": "a", "tags": ["x", null]}}', "type", "tags"),
        ('{"type": "Person", "data": {"slug": "a", "nope": 1}}', "unknown_property", "'nope'"),
        ('{"type": "Persn", "data": {}}', "unknown_type", "'Persn' isn't declared; declared: Person"),
        ('{"type": "Person", "edge": "Knows"}', "syntax", 'either "type"'),
        ('{"type": "", "edge": "Knows", "from": "a", "to": "a"}', "syntax", 'either "type"'),
        ('{"type": "Person", "slug": "a"}', "syntax", "'slug'"),
        ('{"type": "Person", "data": 3}', "syntax", "not a number"),
        ('{"type": "Person", "data": {"slug": "a"}', "syntax", "not one JSON record"),
        ('[1]', "syntax", "not an array"),
        ('{"edge": "Knows", "from": "a"}', "endpoint", "to is missing"),
        ('{"edge": "Uses", "from": ["a"], "to": ["a", 1]}', "type", "from"),
        ('{"edge": "Uses", "from": ["a", "x"], "to": ["a", 1]}', "type", "from"),
        ('{"type": "Person", "id": "b", "data": {"slug": "a"}}', "id", "isn't the key's"),
        ('{"type": "Note", "id": "b", "data": {"id": "c"}}', "id", "id is 'b', and the one in its data 'c'"),
    ],
)  # fmt: skip
def test_a_bad_record_is_named_with_file_and_line(tmp_path: Path, line: str, kind: str, says: str) -> None:
    good = '{"type": "Person", "data": {"slug": "fine"}}'
    path = tmp_path / "people.jsonl"
    path.write_text(f"// comment\n{good}\n{line}\n{good}\n", encoding="utf-8")
    _, findings, lines = read_all(str(path))
    assert dict(findings.counts) == {kind: 1}
    assert f"{path}:3: " in lines[1]
    assert says in lines[1]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (b'{"type":"Person","data":{"slug":"\\ud800"}}', "surrogate"),
        (b'{"type":"Person","data":{"slug":"a","age":"\\udfff"}}', "surrogate"),
        (b'{"type":"Person","data":{"slug":"a","age":' + b"1" * 5000 + b"}}", "not one JSON record"),
        (b'{"type":"Person","data":{"slug":"a","score":NaN}}', "NaN is no JSON number"),
        (b'{"type":"Person","data":{"slug":"a","score":-Infinity}}', "-Infinity is no JSON number"),
        (b'{"type":"Person","data":{"slug":"a\xff"}}', "not UTF-8 at byte 35"),
        (b'{"type":"Person","data":{"slug":"a","tags":["\xc3"]}}', "not UTF-8"),
    ],
)
def test_what_is_no_json_text_is_refused_with_its_line(line: bytes, says: str) -> None:
    good = b'{"type":"Person","data":{"slug":"b"}}'
    findings = Findings()
    stream = io.BytesIO(good + b"\n" + line + b"\n" + good + b"\n")
    list(read_ndjson(stream, Reading(CATALOG, OPERATION, findings=findings), file=0, label="x"))
    ((kind, count),) = findings.counts.items()
    assert (kind, count, findings.shown[0].row) == ("syntax", 1, len(good) + 1)
    assert says in findings.shown[0].message
    findings.shown[0].message.encode()


def test_records_that_only_add_up_to_one_a_line_are_refused() -> None:
    """Two records on one line and one on two are three of three, but belong to other lines."""
    one = b'{"type":"Person","data":{"slug":"a"}}'
    findings = Findings()
    stream = io.BytesIO(one + b" " + one + b'\n{"type":"Person",\n"data":{"slug":"c"}}\n')
    list(read_ndjson(stream, Reading(CATALOG, OPERATION, findings=findings), file=0, label="x"))
    assert findings.counts == {"syntax": 3}


def test_every_bad_record_is_counted_and_twenty_are_shown() -> None:
    text = "\n".join(f'{{"type": "Person", "data": {{"slug": "a", "age": {900 + i}}}}}' for i in range(50))
    _, findings, lines = read_all(text)
    assert findings.counts == {"range": 50}
    assert len(findings.shown) == 20
    assert lines[0].startswith("50 bad records (50 range); nothing was written")
    assert "<text>:1:" in lines[1]
    assert lines[-1].strip() == "and 30 more"


def test_splits_give_the_same_rows_and_ids_as_the_whole_file(tmp_path: Path) -> None:
    records = []
    for i in range(300):
        records.append(json.dumps({"type": "Note", "data": {"text": "x" * (i % 37)}}))
        records.append("// nothing" if i % 7 == 0 else json.dumps({"edge": "Knows", "from": "a", "to": "b"}))
    path = tmp_path / "mixed.jsonl"
    path.write_text("\n".join(records), encoding="utf-8")
    with plan_sources(str(path), None, CATALOG) as plan:
        (file,) = plan.files

        def rows(split: Split | None) -> list[tuple[Any, ...]]:
            reading = Reading(CATALOG, OPERATION)
            return [
                (b.table_key, r["id"], r[ROW]) for b in read_batches(file, reading, split) for r in b.rows.to_pylist()
            ]

        whole = sorted(rows(None))
        for step in (1, 97, 1000, file.size):
            pieces = [Split(at, min(at + step, file.size)) for at in range(0, file.size, step)][:4000]
            if step == 1:
                pieces = pieces[:200]
                first = sorted(r for r in whole if r[2] < 200)
                assert sorted(r for p in pieces for r in rows(p)) == first
            else:
                assert sorted(r for p in pieces for r in rows(p)) == whole


def write_rows(path: Path, table: pa.Table) -> None:
    """In the format of the suffix."""
    match path.suffix:
        case ".parquet":
            pq.write_table(table, path)
        case ".csv":
            pcsv.write_csv(table, path)
        case ".orc":
            orc.write_table(table, path)
        case ".arrow":
            with pa.ipc.new_stream(path, table.schema) as out:
                out.write_table(table)
        case ".feather":
            feather.write_feather(table, str(path), compression="uncompressed")
        case ".ndjson":
            path.write_text("\n".join(map(json.dumps, table.to_pylist())))


PEOPLE = pa.table({"full": ["ada", "bob"], "age": pa.array([36, None], pa.int32()), "etag": ["x", "y"]})
FRIENDS = pa.table({"a": ["ada"], "b": ["bob"], "since": ["31.12.2019"]})
MAPPING = """
sources:
- path: people.SUFFIX
  node: Person
  columns: {slug: full}
  constants: {status: left}
  ignore: [etag]
- path: friends.SUFFIX
  edge: Knows
  from: [a]
  to: [b]
  formats: {since: "%d.%m.%Y"}
"""


@pytest.mark.parametrize(
    "suffix", ["parquet", "csv", "arrow", "feather", "orc", "csv.gz", "csv.bz2", "parquet.zst", "arrow.gz", "orc.gz"]
)
def test_files_of_every_format_through_one_mapping(tmp_path: Path, suffix: str) -> None:
    kind, _, packed = suffix.partition(".")
    for name, table in (("people", PEOPLE), ("friends", FRIENDS)):
        where = tmp_path / f"{name}.{kind}"
        write_rows(where, table)
        if packed:
            how = {"gz": "gzip", "bz2": "bz2", "zst": "zstd"}[packed]
            with pa.output_stream(f"{where}.{packed}", compression=how) as out:
                out.write(where.read_bytes())
    mapping = Mapping.parse(MAPPING.replace("SUFFIX", suffix), base=tmp_path)
    rows, findings, _ = read_all(None, mapping)
    assert not findings
    assert plain(rows["node:Person"]) == [
        {"id": "ada", "slug": "ada", "age": 36, "status": "left"},
        {"id": "bob", "slug": "bob", "status": "left"},
    ]
    (edge,) = plain(rows["edge:Knows"])
    assert (edge["src"], edge["dst"], edge["since"]) == ("ada", "bob", date(2019, 12, 31))


@pytest.mark.parametrize("suffix", ["parquet", "csv", "arrow", "orc", "ndjson", "table"])
def test_an_ignored_column_that_names_an_end_or_an_id_fills_no_property(tmp_path: Path, suffix: str) -> None:
    catalog = compile_schema("node D { slug: String @key } node N { label: String? } edge Up: D -> D { dist: String? }")
    links, notes = pa.table({"dist": ["a"], "up": ["b"]}), pa.table({"label": ["x"]})
    if suffix != "table":
        write_rows(tmp_path / f"in.{suffix}", links)
        write_rows(tmp_path / f"n.{suffix}", notes)
    by = ["table: in", "table: n"] if suffix == "table" else [f"path: in.{suffix}", f"path: n.{suffix}"]
    mapping = Mapping.parse(
        f"sources: [{{{by[0]}, edge: Up, from: [dist], to: [up], ignore: [dist]}}, "
        f"{{{by[1]}, node: N, id: label, ignore: [label]}}]",
        base=tmp_path,
    )
    reading = Reading(catalog, OPERATION)
    with plan_sources({"in": links, "n": notes} if suffix == "table" else None, mapping, catalog) as plan:
        rows = {batch.table_key: batch.rows.to_pylist() for file in plan.files for batch in plan.read(file, reading)}
    (edge,), (note,) = rows["edge:Up"], rows["node:N"]
    assert (edge["src"], edge["dst"], edge["dist"]) == ("a", "b", None)
    assert (note["id"], note["label"]) == ("x", None)


def test_tables_in_memory_need_no_mapping_where_names_agree() -> None:
    tables = {"Knows": pa.table({"from": ["a"], "to": ["b"]}), "Person": pa.table({"slug": ["a", "b"]})}
    rows, findings, _ = read_all(tables)
    assert not findings
    assert list(rows) == ["node:Person", "edge:Knows"]  # nodes first, whatever the order given


def test_a_bad_value_in_a_table_names_its_row(tmp_path: Path) -> None:
    pq.write_table(pa.table({"slug": ["a", "b", "c"], "age": [1, 2, 2**40]}), tmp_path / "p.parquet")
    _, findings, lines = read_all(None, Mapping.parse("sources: [{path: p.parquet, node: Person}]", base=tmp_path))
    assert findings.counts == {"type": 1}
    assert "p.parquet row 3: Person: age: 1099511627776 is not I32" in lines[1]


DECIMALS = [pa.decimal32(5, 2), pa.decimal64(9, 2), pa.decimal128(9, 2), pa.decimal256(50, 2)]


@pytest.mark.parametrize("kind", DECIMALS, ids=str)
def test_decimals_of_every_width_are_whole_numbers_where_they_are(kind: pa.DataType) -> None:
    column = pa.array([Decimal("2.00"), Decimal("-1.50"), None], kind)
    for name, bad in (("age", 1), ("big", 1), ("score", 0)):
        rows, findings, _ = read_all({"Person": pa.table({"slug": ["a", "b", "c"], name: column})})
        assert [row[name] for row in rows["node:Person"]] == [2, None if bad else -1.5, None]
        assert findings.counts["type"] == bad


ZONELESS = pa.timestamp("ns", "Foo/Bar")
TWICE = pa.StructArray.from_arrays([pa.array([1]), pa.array([2])], ["a", "a"])


@pytest.mark.parametrize(
    ("name", "column", "says"),
    [
        ("born", pa.array([86_400_000 * 3 + 5], pa.date64()), "born: 1970-01-04 00:00:00.005 is not Date"),
        ("born", pa.array([2**62], pa.date64()), "born: .* is not Date"),
        ("seen", pa.array([2**62], pa.date64()), "seen: .* is not DateTime"),
        ("born", pa.array([86_400 * 10**9], ZONELESS), "born: 1970-01-02 00:00:00.000000000Z is not Date"),
        ("seen", pa.array([5], ZONELESS), "seen: 1970-01-01 00:00:00.000000005Z is not DateTime"),
        ("age", pa.array([5], ZONELESS), "age: 1970-01-01 00:00:00.000000005Z is not I32"),
        ("age", TWICE, r"age: \[\('a', 1\), \('a', 2\)\] is not I32"),
        ("status", pa.DictionaryArray.from_arrays([0], pa.array(["x"], pa.string_view())), "status is 'x', not one of"),
    ],
    ids=lambda value: str(value.type) if isinstance(value, pa.Array) else "",
)
def test_values_that_python_or_arrow_has_no_word_for_are_bad_records(
    tmp_path: Path, name: str, column: pa.Array, says: str
) -> None:
    graph = omnigraph.init(
        tmp_path / "g",
        schema="node P { slug: String @key  age: I32?  born: Date?  seen: DateTime?  status: enum(a, b)? }",
    )
    table = {"P": pa.table({"slug": ["a"], name: column})}
    with pytest.raises(BadRequest, match=says):
        graph.load(table)
    assert graph.load(table, quarantine=tmp_path / "bad").quarantined == 1
    raw = json.loads((tmp_path / "bad").read_text())["raw"][name]
    assert isinstance(raw, str)


def test_no_pattern_cuts_a_time_of_day_off() -> None:
    table = pa.table({"slug": ["a", "b"], "born": ["01.02.2020 00:00", "01.02.2020 10:00"]})
    mapping = Mapping.parse('sources: [{table: t, node: Person, formats: {born: "%d.%m.%Y %H:%M"}}]')
    rows, _, lines = read_all({"t": table}, mapping)
    assert [row["born"] for row in rows["node:Person"]] == [date(2020, 2, 1), None]
    assert lines[1:] == ['  t row 2: Person: born: "01.02.2020 10:00" is not Date written as %d.%m.%Y %H:%M']


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())], ids=str
)
def test_texts_that_mean_null_do_so_however_a_column_keeps_them(kind: pa.DataType) -> None:
    table = pa.table({"slug": ["a", "b"], "status": pa.array(["-", "left"]).cast(kind)})
    rows, _, _ = read_all({"t": table}, Mapping.parse('sources: [{table: t, node: Person, nulls: ["-"]}]'))
    assert [row["status"] for row in rows["node:Person"]] == [None, "left"]


NO_ENCODINGS = ("klingon", "hex", "rot13", "base64", "zlib", "punycode", "undefined", "a\0b", "é")
CHARACTERS, NO_CHARACTERS = ("delimiter", "quote", "escape"), ("::", "", "é", "€", "\0", "\n", "\r")
BYTES = pa.array([b"ada", b"\xff", b"bob", None])


@pytest.mark.parametrize(
    "texts",
    [
        BYTES.view(pa.string()),
        BYTES.cast(pa.large_binary()).view(pa.large_string()),
        BYTES.cast(pa.binary_view()).view(pa.string_view()),
        BYTES.view(pa.string()).dictionary_encode(),
        pa.ListArray.from_arrays([0, 1, 2, 3, 4], BYTES.view(pa.string())),
        pa.LargeListArray.from_arrays([0, 1, 2, 3, 4], BYTES.view(pa.string()).dictionary_encode()),
    ],
    ids=lambda texts: str(texts.type).split("<")[0],
)
def test_text_that_is_no_utf8_is_no_record_however_a_column_keeps_it(texts: pa.Array) -> None:
    mapping, people = "node: Person, nulls: [bob]", pa.array(["a", "b", "c", "d"])
    listed = pa.types.is_list(texts.type) or pa.types.is_large_list(texts.type)
    tables = {"status": pa.table({"slug": people, "status": texts}), "born": pa.table({"slug": people, "born": texts})}
    tables["tags"] = pa.table({"slug": people, "tags": texts})
    if not listed:
        tables["slug"], tables["from"] = pa.table({"slug": texts}), pa.table({"from": texts, "to": people})
    for name, table in tables.items():
        how = "edge: Knows, from: from, to: to" if name == "from" else mapping
        _, findings, lines = read_all({"t": table}, Mapping.parse(f"sources: [{{table: t, {how}}}]"))
        assert findings.counts["syntax"] == 1
        assert f"t row 2: {'Knows' if name == 'from' else 'Person'}: {name}: not UTF-8" in "\n".join(lines)
    notes = pa.table({"id": people if listed else texts, "text": people})
    rows, findings, _ = read_all({"Note": notes})
    assert len(rows["node:Note"]) == (4 if listed else 3)


def test_columns_that_hold_other_than_they_say_are_refused(tmp_path: Path) -> None:
    torn = pa.StringArray.from_buffers(2, pa.py_buffer(b"\0\0\0\0\2\0\0\0\1\0\0\0"), pa.py_buffer(b"ab"))
    with pytest.raises(BadRequest, match=r"table 'Note' can't be read: .*offset"):
        read_all({"Note": pa.table({"text": torn})})
    nameless = pa.table([["a"]], schema=pa.schema([pa.field(b"\xff", pa.string())]))
    for given in (nameless, nameless.to_batches()[0], nameless.to_reader()):
        with pytest.raises(BadRequest, match="table 'Note': the name of a column is no UTF-8"):
            read_all({"Note": given})
    pq.write_table(nameless, tmp_path / "n.parquet")
    mapping = Mapping.parse("sources: [{path: n.parquet, node: Note}]", base=tmp_path)
    with pytest.raises(BadRequest, match="the name of a column is no UTF-8"):
        read_all(None, mapping)


@pytest.mark.parametrize(
    ("yaml", "says"),
    [
        ("sources: [{path: p.parquet, node: Nobody}]", "node type 'Nobody' isn't declared"),
        ("sources: [{path: p.parquet, node: Person, columns: {nick: x}}]", "no property 'nick'"),
        ("sources: [{path: p.parquet, edge: Knows}]", "name one column for each key part of Person (slug)"),
        ("sources: [{path: p.parquet, edge: Uses, from: [a], to: [a, b]}]", "from: name one column"),
        ("sources: [{path: p.parquet, node: Person, id: x}]", "the id of Person is its key"),
        ("sources: [{path: p.parquet, node: Person, formats: {age: '%d'}}]", "not Date or DateTime"),
        ("sources: [{path: p.parquet, node: Person, edge: Knows}]", "either node or edge"),
        ("sources: [{path: p.parquet, node: Person, collumns: {}}]", "sources[0].collumns"),
        ("sources: [{path: p.parquet, node: Person, columns: {slug: nope}}]", "column 'nope' (property slug) isn't there"),
        ("sources: [{path: p.parquet, node: Person}]", "'odd' are neither mapped nor ignored"),
        ("sources: [{path: missing.parquet, node: Person}]", "there is no such file"),
        ("sources: [\n  {path: p", "<mapping>:2"),
        ("sources: [{path: p.parquet, node: Person, constants: {age: !!int x}}]", "<mapping>:1:60: not YAML"),
    ],
)  # fmt: skip
def test_a_bad_mapping_is_refused_before_a_row_is_read(tmp_path: Path, yaml: str, says: str) -> None:
    pq.write_table(pa.table({"slug": ["a"], "odd": [1]}), tmp_path / "p.parquet")
    with pytest.raises(BadRequest) as caught:
        read_all(None, Mapping.parse(yaml, base=tmp_path))
    assert says in str(caught.value)


def test_a_mapping_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "nowhere.yaml", "a\0b"):
        with pytest.raises(BadRequest, match=r"the mapping: .*can't be read") as caught:
            Mapping.read(path)
        assert caught.value.code == "bad_mapping"


def test_nothing_is_cut_off_a_time(tmp_path: Path) -> None:
    table = pa.table(
        {
            "slug": ["a", "b"],
            "born": pa.array([1_577_836_800, 1_577_862_000], pa.timestamp("s")),
            "seen": pa.array([2_000_000, 1], pa.timestamp("ns")),
        }
    )
    _, findings, lines = read_all({"Person": table})
    assert findings.counts == {"type": 2}
    assert "born: 2020-01-01 07:00:00 is not Date" in lines[1]
    assert "seen: 1970-01-01 00:00:00.000000001 is not DateTime" in lines[2]
    zoned = pa.table(
        {
            "slug": ["a"],
            "born": pa.array([1_577_919_600], pa.timestamp("s", "+01:00")),
        }
    )
    rows, findings, _ = read_all({"Person": zoned})
    assert (rows["node:Person"][0]["born"], findings.counts) == (date(2020, 1, 2), {})


@pytest.mark.parametrize(
    "data", [b"not gzip", gzip.compress(b'{"type":"Note","data":{}}\n' * 1000)[:-20]], ids=["no", "cut"]
)
def test_damaged_compression_says_so(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "a.jsonl.gz").write_bytes(data)
    with pytest.raises(BadRequest, match=r"a\.jsonl\.gz: can't be read as ndjson"):
        read_all(str(tmp_path / "a.jsonl.gz"))


@pytest.mark.parametrize("suffix", ["csv.gz", "parquet.gz", "arrow.zst"])
def test_a_damaged_packed_table_says_so(tmp_path: Path, suffix: str) -> None:
    (tmp_path / f"p.{suffix}").write_bytes(gzip.compress(b"slug\n" + bytes(range(97, 120)) * 999)[:-20])
    with pytest.raises(BadRequest) as caught:
        read_all(None, Mapping.parse(f"sources: [{{path: p.{suffix}, node: Person}}]", base=tmp_path))
    assert f"p.{suffix}: can't be read as {suffix.partition('.')[0]}" in str(caught.value)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (gzip.compress(b"x"), "compressed with gzip: give it the suffix .gz"),
        (pa.compress(b"x", codec="zstd", asbytes=True), "the suffix .zst"),
        ('{"type":"Note","data":{}}\n'.encode("utf-16"), "UTF-16: write it as UTF-8"),
        (b"PAR1....", "Parquet"),
        (b"PK\x03\x04....", "a ZIP archive"),
    ],
    ids=["gzip", "zstd", "utf-16", "parquet", "zip"],  # gzip writes the second down: two workers wouldn't agree
)
def test_a_file_that_is_no_text_is_told_what_it_is(tmp_path: Path, data: bytes, says: str) -> None:
    (tmp_path / "a.jsonl").write_bytes(data)
    with pytest.raises(BadRequest, match=rf"a\.jsonl: is no NDJSON but .*{says}") as caught:
        read_all(str(tmp_path / "a.jsonl"))
    assert caught.value.code == "unreadable_source"


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_json_in_another_layout_is_told_how_to_write_it(tmp_path: Path, suffix: str) -> None:
    for text, says in (
        ('[{"type":"Note","data":{}},\n{"type":"Note"}]', "an array isn't read"),
        ("{\n}", "on one line"),
    ):
        data = text.encode()
        (tmp_path / f"a.json{suffix}").write_bytes(gzip.compress(data) if suffix else data)
        _, _, lines = read_all(str(tmp_path / f"a.json{suffix}"))
        assert f"a.json{suffix}:1: not one JSON record" in lines[1]
        assert says in lines[1]


def test_a_line_of_csv_that_is_too_long_says_how_long_it_may_be(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b'slug\n"' + b"z" * 9_000_000 + b'"\n')
    with pytest.raises(BadRequest, match="a line is longer than 4 MiB"):
        read_all(None, Mapping.parse("sources: [{path: a.csv, node: Person}]", base=tmp_path))


@pytest.mark.parametrize(
    ("how", "says"),
    [
        *(({"options": {"encoding": name}}, "options.encoding: .* names no encoding") for name in NO_ENCODINGS),
        *(({"options": {name: c}}, f"options.{name}: takes one ASCII") for name in CHARACTERS for c in NO_CHARACTERS),
        ({"options": {"delimiter": 1}}, "options.delimiter: "),
        ({"options": {"quote": ","}}, "options: .*different"),
        ({"options": {"escape": '"'}}, "options: .*different"),
        ({"options": {"header": 0}}, "options.header: "),
        ({"options": {"header": "false"}}, "options.header: "),
        ({"options": {"headr": False}}, "options.headr: "),
        ({"formats": {"seen": {"pattern": "%d.%m.%Y", "zone": "Foo/Bar"}}}, "formats.seen: 'Foo/Bar' is no IANA"),
        ({"formats": {"seen": {"pattern": "%d.%m.%Y", "zone": ""}}}, "formats.seen: '' is no IANA"),
        ({"formats": {"born": "%d.%Q"}}, "formats.born: .*'%Q', which strptime"),
        ({"formats": {"born": "%d %"}}, "formats.born: .*'%', which strptime"),
        ({"formats": {"born": "%d\0"}}, "formats.born: .*which strptime"),
        ({"formats": {"born": ""}}, "formats.born: .*no part of a date"),
        ({"formats": {"born": "%%d"}}, "formats.born: .*no part of a date"),
    ],
)
def test_what_a_mapping_says_of_texts_is_checked_in_it(how: dict[str, Any], says: str) -> None:
    with pytest.raises(BadRequest, match=rf"sources\[0\]\.{says}"):
        Mapping.parse(json.dumps({"sources": [{"path": "a.csv", "node": "Person"} | how]}))


@pytest.mark.parametrize(
    "how",
    [
        {"formats": {"born": "%d\ud800"}},
        {"constants": {"status": "\ud800"}},
        {"nulls": ["\ud800"]},
        {"columns": {"slug": "\ud800"}},
        {"ignore": ["\ud800"]},
        {"path": "\ud800"},
    ],
    ids=lambda how: next(iter(how)),
)
def test_a_mapping_made_in_python_holds_no_half_characters(how: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="holds half of a surrogate pair"):
        Mapping.model_validate({"sources": [{"path": "a.csv", "node": "Person"} | how]})


def test_csv_is_read_as_its_options_say(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes("'a;b'|é\\|ß\n".encode("utf-16"))
    (tmp_path / "b.csv").write_bytes(b"a\x01b\n")
    (tmp_path / "c.tsv").write_bytes(b"a,b\n")
    given = {"a": {"delimiter": "|", "quote": "'", "escape": "\\", "encoding": "utf-16"}, "b": {"delimiter": "\x01"}}
    for name, options in (given | {"c": {"delimiter": ","}}).items():
        how = {"node": "Part", "columns": {"a": "f0", "b": "f1"}, "options": {"header": False} | options}
        path = next(tmp_path.glob(f"{name}.*"))
        mapping = Mapping.parse(json.dumps({"sources": [{"path": path.name} | how]}), base=tmp_path)
        _, _, lines = read_all(None, mapping)
        cell = "é|ß" if name == "a" else "b"
        assert lines[1] == f'  {path.name} row 1: Part: b: "{cell}" is not I32'


def test_times_of_a_pattern_are_taken_in_their_zone() -> None:
    table = pa.table({"slug": ["a"], "seen": ["01.02.2020 10:00"]})
    for zone, hours in (("Europe/Berlin", 1), ("+02:00", 2), ("UTC", 0)):
        form = {"seen": {"pattern": "%d.%m.%Y %H:%M", "zone": zone}}
        mapping = Mapping.parse(json.dumps({"sources": [{"table": "t", "node": "Person", "formats": form}]}))
        with plan_sources({"t": table}, mapping, CATALOG) as plan:
            (batch,) = plan.read(plan.files[0], Reading(CATALOG, OPERATION))
        assert batch.rows.column("seen").view(pa.int64()).to_pylist() == [1580551200000 - hours * 3600_000]
    _, _, lines = read_all({"t": table.set_column(1, "seen", [["x"]])}, mapping)
    assert lines[1].endswith('seen: "x" is not DateTime written as %d.%m.%Y %H:%M')


@pytest.mark.parametrize("suffix", ["parquet", "orc"])
def test_an_unreadable_file_says_so(tmp_path: Path, suffix: str) -> None:
    (tmp_path / f"p.{suffix}").write_bytes(b"nothing of the kind at all")
    with pytest.raises(BadRequest) as caught:
        read_all(None, Mapping.parse(f"sources: [{{path: p.{suffix}, node: Person}}]", base=tmp_path))
    assert f"p.{suffix}: can't be read as {suffix}" in str(caught.value)


def test_orc_rows_are_numbered_over_all_stripes(tmp_path: Path) -> None:
    table = pa.table({"slug": ["abc"] * 30_000, "age": [1] * 29_999 + [999]})
    orc.write_table(table, tmp_path / "p.orc", stripe_size=1024, batch_size=1024)
    assert orc.ORCFile(str(tmp_path / "p.orc")).nstripes > 1
    rows, findings, _ = read_all(None, Mapping.parse("sources: [{path: p.orc, node: Person}]", base=tmp_path))
    assert (len(rows["node:Person"]), [r.row for r in findings.shown]) == (30_000, [30_000])


@pytest.mark.parametrize("suffix", ["parquet", "arrow", "orc", "csv", "ndjson"])
def test_constants_alone_make_a_row_of_each_row(tmp_path: Path, suffix: str) -> None:
    table = pa.table({"a": [1, 2], "b": [3, 4]})
    path = tmp_path / f"n.{suffix}"
    write: dict[str, Any] = {"parquet": pq.write_table, "arrow": feather.write_feather, "orc": orc.write_table}
    if suffix in write:
        write[suffix](table, path)
    else:
        path.write_text("a,b\n1,3\n2,4\n" if suffix == "csv" else '{"a": 1}\n{"b": 4}\n')
    how = f'sources: [{{path: {path.name}, node: Note, constants: {{text: q}}, ignore: ["*"]}}]'
    rows, _, _ = read_all(None, Mapping.parse(how, base=tmp_path))
    assert [row["text"] for row in rows["node:Note"]] == ["q", "q"]


def test_a_short_csv_is_read_once_and_whole() -> None:
    """Where Arrow refuses a stream, a thread of its own may go on reading it: it then isn't ours to read again."""

    class Sparing(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            threads.add(threading.get_ident())
            return super().read(min(size or 3, 3))

    threads: set[int] = set()
    source = SourceMapping(path="p.csv", node="Person")
    for text in (b"slug,age", b"slug,age\nada,1\nbob,2\n"):
        read = csv_rows(Sparing(text), source, ["slug", "age"], ["slug", "age"])
        assert [row["slug"] for rows in read for row in rows.batch.to_pylist()] == (
            ["ada", "bob"] if b"ada" in text else []
        )
    assert threads == {threading.get_ident()}


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "latin-1"])
def test_csv_of_one_line_without_an_end(tmp_path: Path, encoding: str) -> None:
    for name, text in (
        ("header", "slug,age"),
        ("record", "zoé,1"),
        ("quoted", '"slug","age"'),
        ("blank", "\n\nslug,age"),
    ):
        (tmp_path / f"{name}.csv").write_bytes(text.encode(encoding))
        how = f"options: {{encoding: {encoding}, header: {str(name != 'record').lower()}}}"
        columns = ", columns: {slug: f0, age: f1}" if name == "record" else ""
        mapping = Mapping.parse(f"sources: [{{path: {name}.csv, node: Person, {how}{columns}}}]", base=tmp_path)
        rows, _, _ = read_all(None, mapping)
        assert [(r["slug"], r["age"]) for r in rows.get("node:Person", [])] == (
            [("zoé", 1)] if name == "record" else []
        )


def test_a_missing_file_says_where_it_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(BadRequest, match=r"nowhere\.jsonl: there is no such file"):
        read_all(str(tmp_path / "nowhere.jsonl"))
    pq.write_table(pa.table({"slug": ["a"]}), tmp_path / "p.parquet")
    with pytest.raises(BadRequest, match="need a mapping"):
        read_all(str(tmp_path / "p.parquet"))


@pytest.mark.parametrize(
    "address",
    [
        "https://h.invalid/x.ndjson",
        "xx://y",
        "file:///%zz",
        "file://host/x",
        "://",
        "a://b c",
        "\udce9://x",
        "s3://\ud800",
    ],
)
def test_an_address_that_cannot_be_read_says_which_can(address: str) -> None:
    for mapping in (None, Mapping.parse("sources: [{path: x.csv, node: Person}]")):
        with pytest.raises(BadRequest, match=r"s3://, .* can\.|can't be looked at") as caught:
            plan_sources(address, mapping, CATALOG)
        assert caught.value.code == "unreadable_source"
        str(caught.value).encode()


def test_a_file_whose_name_is_no_utf8_is_refused_and_its_stream_is_read(tmp_path: Path) -> None:
    path = os.fsencode(tmp_path) + b"/caf\xe9.ndjson"
    Path(os.fsdecode(path)).write_text('{"type": "Note"}\n')
    for name in (os.fsdecode(path), f"{tmp_path}/*.ndjson"):
        with pytest.raises(BadRequest, match="no UTF-8: rename the file"):
            plan_sources(name, None, CATALOG)
    with pytest.raises(BadRequest, match="there is no such file"):
        plan_sources(os.fsdecode(path) + "x", None, CATALOG)
    with open(path, "rb") as file:
        assert len(read_all(file)[0]["node:Note"]) == 1


class Broken:
    """A stream that gives something and then fails, or gives what it shouldn't."""

    def __init__(self, then: Any) -> None:
        self.gives = [b'{"type": "Person"}\n', then]

    def read(self, _size: int) -> Any:
        given = self.gives.pop(0)
        if isinstance(given, Exception):
            raise given
        return given


@pytest.mark.parametrize(
    ("then", "says"),
    [
        (OSError(5, "it broke"), "<stream>: can't be read: .*it broke"),
        (EOFError(), "<stream>: can't be read: EOFError"),
        (zlib.error("bad block"), "<stream>: can't be read: bad block"),
        (5, "<stream>: can't be read: .*int"),
        (None, "<stream>: can't be read: .*None"),
        (b"\xe9", r"l.ndjson: can't be read: .*utf-8"),
    ],
)
def test_a_stream_that_fails_is_named_and_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, then: Any, says: str
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "spool"))
    (tmp_path / "spool").mkdir()
    (tmp_path / "l.ndjson").write_bytes(then if isinstance(then, bytes) else b"")
    with (tmp_path / "l.ndjson").open(encoding="utf-8") as file, pytest.raises(BadRequest, match=says) as caught:
        plan_sources(file if isinstance(then, bytes) else cast("Any", Broken(then)), None, CATALOG)
    assert caught.value.code == "unreadable_source"
    assert list((tmp_path / "spool").iterdir()) == []


def test_threads_change_neither_rows_nor_findings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of a few lines, types mixed, some bad: one thread and four give the same, in the order of the lines."""
    seed = random.randrange(1 << 30)
    print("seed", seed)
    rng = random.Random(seed)
    lines = []
    for i in range(400):
        kind = rng.random()
        if kind < 0.5:
            lines.append(json.dumps({"type": "Person", "data": {"slug": "p", "age": rng.choice([1, 200, "x"])}}))
        elif kind < 0.8:
            lines.append(json.dumps({"type": "Note", "data": {"text": f"n{i}"}}))
        else:
            lines.append(rng.choice(["", "// hm", "nonsense", '{"edge": "Knows", "from": "a", "to": 1}']))
    text = "\n".join(lines).encode()
    monkeypatch.setattr(ndjson, "BLOCK_BYTES", 300)
    seen = []
    for threads in (1, 4):
        reading = Reading(CATALOG, OPERATION, findings=Findings(1000))
        batches = list(read_ndjson(io.BytesIO(text), reading, file=0, label="x", threads=threads))
        rows = {
            key: [r for b in batches if b.table_key == key for r in b.rows.to_pylist()] for key in CATALOG.by_table_key
        }
        seen.append((rows, sorted(map(str, reading.findings.shown)), reading.findings.counts))
        for held in rows.values():
            assert [r[ROW] for r in held] == sorted(r[ROW] for r in held)
    assert seen[0] == seen[1]


def test_a_reader_that_is_left_early_leaves_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ndjson, "BLOCK_BYTES", 100)
    text = ('{"type": "Note", "data": {"text": "x"}}\n' * 500).encode()
    reader = read_ndjson(io.BytesIO(text), Reading(CATALOG, OPERATION), file=0, label="x", threads=3)
    next(reader)
    reader.close()
    assert not [t for t in threading.enumerate() if t.name.startswith("omnigraph-ndjson")]


def test_cells_of_csv_may_be_empty_whatever_their_type(tmp_path: Path) -> None:
    given = {
        "ok": "True",
        "i": "1",
        "u": "2",
        "f": "1.5",
        "d": "2020-02-29",
        "t": "2020-02-29T00:00:00Z",
        "e": "x",
        "s": "s",
    }
    types = ["Bool", "I32", "U64", "F64", "Date", "DateTime", "enum(x, y)", "String"]
    catalog = compile_schema(f"node P {{ {' '.join(f'{n}: {kind}?' for n, kind in zip(given, types, strict=True))} }}")
    text = "\n".join([",".join(given), ",".join(given.values()), "," * (len(given) - 1)])
    (tmp_path / "p.csv").write_text(text)
    (tmp_path / "p.tsv").write_text(text.replace(",", "\t"))  # tabs without being told
    for name in ("p.csv", "p.tsv"):
        mapping = Mapping.parse(f"sources: [{{path: {name}, node: P}}]", base=tmp_path)
        reading = Reading(catalog, "01JZZZZZZZZZZZZZZZZZZZZZZZ")
        with plan_sources(None, mapping, catalog) as plan:
            (batch,) = plan.read(plan.files[0], reading)
        assert reading.findings.shown == []
        first, second = batch.rows.select(list(given)).to_pylist()
        assert [str(v) for v in first.values()][:4] == ["True", "1", "2", "1.5"]
        assert set(second.values()) == {None}


@pytest.mark.parametrize(
    ("data", "options"),
    [
        (b"sl\xe4ug\nq\n", ""),
        ("slug\nq\n".encode("utf-16"), ""),
        (b"slug,n\nq\xe4,1,2\n", ""),
        (b"slug\nq\xe4\n", ", options: {encoding: ascii}"),
        ("slug\nq\n".encode("utf-16-le"), ", options: {encoding: utf-16}"),
    ],
)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # Arrow's, of the third
def test_csv_of_another_encoding_says_so(tmp_path: Path, data: bytes, options: str) -> None:
    (tmp_path / "p.csv").write_bytes(data)
    catalog = compile_schema("node P { slug: String @key n: I32? }")
    mapping = Mapping.parse(f"sources: [{{path: p.csv, node: P{options}}}]", base=tmp_path)
    with plan_sources(None, mapping, catalog) as plan, pytest.raises(BadRequest, match="encoding") as caught:
        list(plan.read(plan.files[0], Reading(catalog, "01JZZZZZZZZZZZZZZZZZZZZZZZ")))
    assert caught.value.code == "unreadable_source"
