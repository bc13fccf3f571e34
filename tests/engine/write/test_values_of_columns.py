"""Values of typed columns: what a property can't hold is a bad record, and what it can is kept whole."""

from __future__ import annotations

import json
from datetime import date
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import omnigraph
from omnigraph.errors import BadRequest
from omnigraph.write.mapping import Mapping
from tests.engine.write.reading import read_all

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
