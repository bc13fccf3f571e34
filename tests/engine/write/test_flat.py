"""Flat NDJSON through a mapping gives the rows that records give."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from omnigraph.errors import BadRequest
from omnigraph.schema import compile_schema
from omnigraph.write.mapping import Mapping
from omnigraph.write.rows import Reading
from omnigraph.write.sources import Split, plan_sources, read_batches
from tests.engine.write.test_sources import CATALOG, OPERATION, plain, read_all

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
