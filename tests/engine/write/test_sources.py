# ruff: noqa: E501  (records are long lines)
"""Reading records: NDJSON, Parquet, CSV, Arrow and tables give the same typed rows; bad ones are named with their place."""

from __future__ import annotations

import io
import json
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pcsv
import pyarrow.feather as feather
import pyarrow.orc as orc
import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError

from omnigraph.errors import BadRequest
from omnigraph.schema import compile_schema
from omnigraph.write.findings import ROW, Findings
from omnigraph.write.mapping import Mapping
from omnigraph.write.ndjson import read_ndjson
from omnigraph.write.rows import Reading
from omnigraph.write.sources import Split, plan_sources, read_batches
from tests.engine.write.reading import CATALOG, OPERATION, plain, read_all


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


NO_ENCODINGS = ("klingon", "hex", "rot13", "base64", "zlib", "punycode", "undefined", "a\0b", "é")
CHARACTERS, NO_CHARACTERS = ("delimiter", "quote", "escape"), ("::", "", "é", "€", "\0", "\n", "\r")


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
