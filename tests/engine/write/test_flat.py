"""Flat NDJSON through a mapping gives the rows that records give."""

from __future__ import annotations

import io
import json
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.errors import BadRequest
from omnigraph.schema import compile_schema
from omnigraph.write import ndjson
from omnigraph.write.flat import read_flat
from omnigraph.write.mapping import Mapping
from omnigraph.write.rows import Reading
from omnigraph.write.sources import Split, plan_sources, read_batches
from tests.engine.write.reading import CATALOG, OPERATION, plain, read_all

FLAT = """
{"key": "ada", "age": 36, "born": "31.12.1999", "tags": ["x"], "note": 1}
// a comment
{"key": "bob", "age": null, "note": "another type"}
{"key": "cy", "age": "old"}
nonsense
[1]
{"key": "dee", "big": 18446744073709551615}
{"age": 1}
"""


def test_flat_ndjson_through_a_mapping(tmp_path: Path) -> None:
    (tmp_path / "p.ndjson").write_text(FLAT.lstrip())
    text = """sources: [{path: p.ndjson, node: Person, columns: {slug: key}, formats: {born: "%d.%m.%Y"},
      constants: {status: left}, ignore: [note]}]"""
    rows, findings, lines = read_all(None, Mapping.parse(text, base=tmp_path))
    assert plain(rows["node:Person"])[:2] == [
        {"id": "ada", "slug": "ada", "age": 36, "born": date(1999, 12, 31), "tags": ["x"], "status": "left"},
        {"id": "bob", "slug": "bob", "status": "left"},
    ]
    assert rows["node:Person"][2]["big"] == 2**64 - 1
    assert findings.counts == {"type": 1, "syntax": 2, "required": 1}
    places = sorted(line.split(": ")[0].strip() for line in lines if "p.ndjson:" in line)
    assert places == [f"p.ndjson:{n}" for n in (4, 5, 6, 8)]
    with pytest.raises(BadRequest, match="'note' are neither mapped nor ignored"):
        read_all(None, Mapping.parse(text.replace("ignore: [note]", "ignore: []"), base=tmp_path))


def test_flat_ndjson_tells_what_is_left_out_from_null(tmp_path: Path) -> None:
    (tmp_path / "p.ndjson").write_text('{"slug": "a", "age": null}\n{"slug": "b", "score": 1.5}\n')
    mapping = Mapping.parse("sources: [{path: p.ndjson, node: Person}]", base=tmp_path)
    rows, _, _ = read_all(None, mapping, merge=True)
    assert [r["__omitted:age"] for r in rows["node:Person"]] == [False, True]
    assert [r["__omitted:score"] for r in rows["node:Person"]] == [True, False]
    assert all(r["__omitted:born"] for r in rows["node:Person"])
    rows, _, _ = read_all(None, mapping)
    assert [r["status"] for r in rows["node:Person"]] == ["active"] * 2


def test_flat_ndjson_takes_what_records_take(tmp_path: Path) -> None:
    """64-bit integers as texts beside numbers, as the product's own JSON has them; a wrong value is named as there."""
    catalog = compile_schema("node P { k: I64 @key  u: U64?  d: Date?  us: [U64]?  f: F64? }")
    lines = [
        '{"k": 1, "u": 7, "us": [1], "f": 2}',
        '{"k": "-9223372036854775808", "u": "18446744073709551615", "us": ["18446744073709551615", 1]}',
        '{"k": 2.0, "u": "-", "d": "2020-02-29"}',
        '{"k": "x", "u": -1, "f": "1"}',
        '{"k": 3, "f": NaN}',
        '{"k": 4, "u": "18446744073709551616"}',
        '{"k": "1_000"}',
        '{"k": " 5"}',
    ]
    (tmp_path / "p.ndjson").write_text("\n".join(lines))
    mapping = Mapping.parse('sources: [{path: p.ndjson, node: P, nulls: ["-"]}]', base=tmp_path)
    reading = Reading(catalog, OPERATION)
    with plan_sources(None, mapping, catalog) as plan:
        (batch,) = plan.read(plan.files[0], reading)
    rows = batch.rows.to_pylist()
    assert [(r["k"], r["u"], r["us"], r["f"]) for r in rows] == [
        (1, 7, [1], 2.0),
        (-(2**63), 2**64 - 1, [2**64 - 1, 1], None),
        (2, None, None, None),
    ]
    assert sorted(found.message for found in reading.findings.shown) == [
        'f: "1" is not F64',
        'k: " 5" is not I64',
        'k: "1_000" is not I64',
        'k: "x" is not I64',
        "not one JSON record: NaN is no JSON number",
        'u: "18446744073709551616" is not U64',
        "u: -1 is not U64",
    ]


def test_flat_ndjson_edges_and_splits(tmp_path: Path) -> None:
    path = tmp_path / "e.ndjson"
    path.write_text("".join(f'{{"a": "x{i}", "b": 3, "to_a": "y", "to_b": {i}, "n": {i}}}\n' for i in range(50)))
    text = f"sources: [{{path: {path}, edge: Uses, from: [a, b], to: [to_a, to_b]}}]"
    rows, findings, _ = read_all(None, Mapping.parse(text))
    assert not findings
    assert rows["edge:Uses"][7]["src"] == '["x7","3"]'
    with plan_sources(None, Mapping.parse(text), CATALOG) as plan:
        parts = [
            row
            for a in range(0, 3000, 100)
            for batch in read_batches(plan.files[0], Reading(CATALOG, OPERATION), Split(a, a + 100))
            for row in batch.rows.to_pylist()
        ]
    assert parts == rows["edge:Uses"]


# ---- left out, or null -----------------------------------------------------------------------------------------------

PEOPLE = compile_schema("""
node P {
  slug: String @key
  name: String?
  age: I32?
  mark: String?
  note: String?
  status: String? @default("new")
}
node Q { slug: String @key  name: String  mark: String @default("none")  born: Date? }
""")


def flat_rows(text: str, how: str, *, merge: bool = True) -> tuple[list[dict[str, Any]], list[str]]:
    """The rows of flat lines and what is said of the others; `how` is the mapping of one source."""
    (source,) = Mapping.parse(f"sources: [{{path: x.ndjson, {how}}}]").sources
    reading = Reading(PEOPLE, OPERATION, merge=merge)
    batches = list(read_flat(io.BytesIO(text.encode()), reading, source, file=0, label="x"))
    return [row for b in batches for row in b.rows.to_pylist()], [found.message for found in reading.findings.shown]


@pytest.mark.parametrize(
    ("line", "mentioned"),
    [
        ('{"slug": "a", "owner": {"name": "x"}}', False),
        ('{"slug": "a", "owner": {"name": null}}', False),
        ('{"slug": "a", "owner": [{"name" : null}], "age": 1}', False),
        ('{"slug": "a", "name": null, "owner": {"name": null}}', True),
        ('{"slug": "a", "owner": {"x": null}, "name":null}', True),
        ('{"slug": "a", "note": "say \\"name\\": null"}', False),
        ('{"slug": "a", "note": "say {\\"name\\": null}", "name" : null}', True),
        ('{"slug": "a", "a\\"name": null}', False),
        ('{"slug": "a", "na\\u006de": null}', True),
        ('{"slug": "a", "note": "\\u00e9", "owner": "name"}', False),
        ('{"slug": "a", "owner": {"na\\u006de": null}}', False),
        ('{"slug": "a", "age": "1", "na\\u006de": null}', True),  # a text: value by value
        ('{"slug": "a", "age": "1", "owner": {"name": null}}', False),
    ],
)
def test_a_member_is_mentioned_by_its_own_name_in_the_record_itself(line: str, mentioned: bool) -> None:
    (row,), said = flat_rows(line, 'node: P, ignore: ["*"]')
    assert (row["__omitted:name"], said) == (not mentioned, [])


def test_a_nested_member_of_the_name_leaves_the_default_and_what_is_required() -> None:
    text = '{"slug": "a", "owner": {"name": "x", "mark": null}}\n{"slug": "b", "name": "n", "owner": {"mark": null}}\n'
    rows, said = flat_rows(text, "node: Q, ignore: [owner]", merge=False)
    assert [row["mark"] for row in rows] == ["none", "none"]
    assert said == ["name is required and has no value"]


@pytest.mark.parametrize("column", ["Größe", "full name", "a/b", 'a"b', "a\\b", ", ", ":", "x.y(z)"])
@pytest.mark.parametrize("ascii", [True, False])
def test_a_column_of_any_name_is_told_left_out_from_null(column: str, ascii: bool) -> None:
    records = [{"slug": "a", column: None}, {"slug": "b"}, {"slug": "c", column: "x"}]
    records += [{"slug": "d", "note": f'"{column}": null'}, {"slug": "e", "age": None, "note": "v"}]
    lines = [json.dumps(record, ensure_ascii=ascii) for record in records]
    lines.append(lines[0].replace('"a"', '"f"').replace("/", "\\/"))
    rows, _ = flat_rows("\n".join(lines), f"node: P, columns: {{name: {json.dumps(column)}}}")
    assert [row["__omitted:name"] for row in rows] == [False, True, False, True, True, False]


def test_a_column_that_some_or_all_blocks_lack_is_omitted_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ndjson, "BLOCK_BYTES", 60)
    some = [f'{{"slug": "s{i}", "name": "n"}}' for i in range(8)]
    some[4:4] = ['{"slug": "t", "name": "n", "birth": "2020-02-29"}', '{"slug": "u", "name": "n", "birth": null}']
    how = "node: Q, columns: {born: birth, mark: sign}"
    rows, said = flat_rows("\n".join(some), how)
    assert [row["slug"] for row in rows if not row["__omitted:born"]] == ["t", "u"]
    assert (len(rows), rows[4]["born"], said) == (10, date(2020, 2, 29), [])
    rows, said = flat_rows("\n".join(some), how, merge=False)
    assert {row["mark"] for row in rows} == {"none"}
    assert said == []
    _, said = flat_rows("\n".join(some), "node: Q, columns: {name: title}, ignore: [name, birth]", merge=False)
    assert said == ["name is required and has no value"] * 10


NAMES = {"name": "Größe", "age": "age", "mark": ", ", "note": 'a/"b'}
WORDS = st.sampled_from(["", "x", "é", '"', "\\", "{", 'say "age": null', '{"Größe": null}', '", ":', "null"])
NESTED = st.dictionaries(st.sampled_from(["Größe", "age", "x"]), st.none() | WORDS, max_size=2)
RECORDS = st.fixed_dictionaries(
    {"slug": st.just("p")},
    optional={
        "Größe": st.none() | WORDS,
        "age": st.none() | st.integers(0, 9) | st.integers(0, 9).map(str),
        ", ": st.none() | WORDS,
        'a/"b': st.none() | WORDS,
        "other": st.none() | WORDS | NESTED | st.lists(NESTED, max_size=2),
        'x"Größe': st.none() | NESTED,
    },
).flatmap(lambda record: st.permutations(list(record.items())).map(dict))


@given(st.lists(st.tuples(RECORDS, st.booleans(), st.booleans()), max_size=8), st.sampled_from([1 << 20, 80]))
@settings(max_examples=60, deadline=None, print_blob=True)
def test_flat_lines_are_read_as_the_json_that_they_are(
    written: list[tuple[dict[str, Any], bool, bool]], block: int
) -> None:
    lines = []
    for record, ascii, tight in written:
        line = json.dumps(record, ensure_ascii=ascii, separators=(",", ":") if tight else None)
        lines.append(line.replace("/", "\\/") if ascii else line)
    how = f'node: P, columns: {json.dumps(NAMES, ensure_ascii=False)}, ignore: ["*"]'
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ndjson, "BLOCK_BYTES", block)
        rows, said = flat_rows("\n".join(lines), how)
    assert said == []
    for row, line in zip(rows, lines, strict=True):
        record = json.loads(line)
        for name, column in NAMES.items():
            assert row["__omitted:" + name] == (column not in record), line
            value = record.get(column)
            assert row[name] == (int(value) if name == "age" and value is not None else value), line
