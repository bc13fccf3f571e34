"""A column of every type and its list, with the least and the greatest values: each kind of write goes through it."""

from __future__ import annotations

import datetime as dt
import math
import operator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import omnigraph
from omnigraph import BadRequest, Graph

VALUES: dict[str, list[Any]] = {
    "String": ["", "it's", "a\\'b", "nul\0in it", "🜁 é"],
    "enum(a, b)": ["a", "b"],
    "Bool": [True, False],
    "I32": [-(2**31), 2**31 - 1, 0],
    "I64": [-(2**63), 2**63 - 1, 2**53 + 1],
    "U32": [0, 2**32 - 1],
    "U64": [0, 2**64 - 1, 2**63],
    "F32": [0.5, -(2.0**127)],
    "F64": [-1.7e308, 5e-324],
    "Date": [dt.date(1, 1, 1), dt.date(9999, 12, 31)],
    "DateTime": [dt.datetime(1, 1, 1, tzinfo=dt.UTC), dt.datetime(9999, 12, 31, 23, 59, 59, 999000, tzinfo=dt.UTC)],
}
KEYS = {"String", "Bool", "I32", "I64", "U32", "U64", "Date", "DateTime"}
TYPES = {f"T{i}": name for i, name in enumerate(VALUES)}


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    words = []
    for name, kind in TYPES.items():
        words.append(f"node {name} {{ slug: String @key  x: {kind}? @unique  xs: [{kind}]?  n: I32? }}")
        if kind in KEYS:
            words.append(f"node K{name} {{ x: {kind} @key  n: I32? }}  edge E{name}: K{name} -> K{name}")
    return omnigraph.init(tmp_path_factory.mktemp("types") / "g", schema="\n".join(words))


def found(graph: Graph, name: str) -> list[dict[str, Any]]:
    rows = graph.query(
        f"query q() {{ match {{ $t: {name} }} return {{ $t.slug as s, $t.x as x, $t.xs as xs }} order {{ s }} }}"
    )
    return rows.to_pylist()


@pytest.mark.parametrize("name", TYPES)
def test_every_write_goes_through_a_column_of_any_type(
    graph: Graph, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind, values = TYPES[name], VALUES[TYPES[name]]
    insert = f"query q($s: String, $x: {kind}, $xs: [{kind}]) {{ insert {name} {{ slug: $s, x: $x, xs: $xs }} }}"
    for i, value in enumerate(values):
        graph.mutate(insert, {"s": f"s{i}", "x": value, "xs": [value, *values]})
    want = [{"s": f"s{i}", "x": v, "xs": [v, *values]} for i, v in enumerate(values)]
    assert found(graph, name) == want
    with pytest.raises(BadRequest, match="@unique"):
        graph.mutate(insert, {"s": "other", "x": values[0], "xs": []})
    with pytest.raises(BadRequest, match="exists already"):
        graph.load({name: pa.table({"slug": ["s0"]})})
    assert graph.mutate(insert, {"s": "s0", "x": values[0], "xs": [values[0], *values]}).commit is None
    monkeypatch.setenv("OMNIGRAPH_READ_SMALL_TABLE_ROWS", "0")
    for at, value in enumerate(values):
        ask = f"query q($x: {kind}) {{ match {{ $t: {name} {{ x: $x }} }} return {{ $t.slug as s }} }}"
        assert graph.query(ask, {"x": value}).to_pylist() == [{"s": f"s{at}"}]
        ask = f"query q($x: [{kind}]) {{ update {name} set {{ n: 1 }} where x in $x }}"
        assert graph.mutate(ask, {"x": [value]}).nodes == 1
    graph.load({name: pa.table({"slug": ["s0", "s0"], "n": pa.array([2, 3], pa.int32())})}, mode="merge")
    assert found(graph, name)[0]["xs"] is not None
    lines = list(graph.export(types=name))
    graph.load("\n".join(lines), mode="overwrite")
    assert list(graph.export(types=name)) == lines
    graph.mutate(f"query q() {{ delete {name} where true }}")
    assert found(graph, name) == []


@pytest.mark.parametrize("name", [n for n, kind in TYPES.items() if kind in KEYS])
def test_a_key_of_any_type_joins_edges(graph: Graph, name: str) -> None:
    kind = TYPES[name]
    first, last = VALUES[kind][0], VALUES[kind][-1]
    text = f"($a: {kind}, $b: {kind}) {{ insert K{name} {{ x: $a }} insert K{name} {{ x: $b }} "
    text += f"insert E{name} {{ from: $a, to: $b }} }}"
    assert graph.mutate(f"query q{text}", {"a": first, "b": last}).edges == 1
    hop = f"query q($a: {kind}) {{ match {{ $a: K{name} {{ x: $a }}  $a e{name} $b }} return {{ $b.x as b }} }}"
    assert graph.query(hop, {"a": first}).to_pylist() == [{"b": last}]
    assert graph.mutate(f"query q($b: {kind}) {{ delete K{name} where x = $b }}", {"b": last}).edges == 1


@pytest.mark.parametrize("kind", ["I32", "I64", "U32", "U64"])
def test_a_condition_may_ask_for_numbers_that_its_column_never_holds(graph: Graph, kind: str) -> None:
    name = next(n for n, k in TYPES.items() if k == kind)
    values = [-5, 7] if kind[0] == "I" else [5, 7]
    for value in values:
        graph.mutate(f"query q($x: {kind}) {{ insert {name} {{ slug: to_string($x), x: $x }} }}", {"x": value})
    words = {"=": "eq", "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge"}
    for beyond, other in ((-(2**63), "I64"), (-1, "I64"), (2**33, "I64"), (2**63 - 1, "I64"), (2**64 - 1, "U64")):
        for sign, word in words.items():
            ask = f"query q($x: {other}) {{ update {name} set {{ n: n }} where x {sign} $x }}"
            met = graph.mutate(ask, {"x": beyond}).nodes
            assert met == sum(getattr(operator, word)(v, beyond) for v in values), (sign, beyond)
        ask = f"query q($x: [{other}]) {{ update {name} set {{ n: n }} where x in $x }}"
        assert graph.mutate(ask, {"x": [beyond]}).nodes == 0
    graph.mutate(f"query q() {{ delete {name} where true }}")


def test_defaults_reach_to_the_ends_of_their_types(tmp_path: Path) -> None:
    schema = (
        "node P { s: String @key  a: U64 @default(18446744073709551615)  b: [U64]? @default([18446744073709551615, 1])"
    )
    graph = omnigraph.init(tmp_path / "g", schema=f"{schema} }}")
    graph.mutate('query q() { insert P { s: "m" } }')
    graph.load('{"type": "P", "data": {"s": "l"}}')
    graph.schema.apply(f"{schema}  c: U64? @default(18446744073709551615) }}")
    want = {"a": 2**64 - 1, "b": [2**64 - 1, 1], "c": 2**64 - 1}
    rows = graph.query("query q() { match { $p: P } return { $p.a as a, $p.b as b, $p.c as c } }").to_pylist()
    assert rows == [want, want]


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("F64", pa.array([1.0, math.nan])),
        ("F64", pa.array([1.0, -math.inf])),
        ("F32", pa.array([1.0, math.nan], pa.float32())),
        ("F32", pa.array([1.0, 1e39])),
        ("[F64]", pa.array([[1.0], [2.0, math.inf]])),
        ("Date", pa.array([0, 2_932_897], pa.date32())),
        ("Date", pa.array([0, -719_163], pa.int32())),
        ("[Date]", pa.array([[0], [2_932_897]], pa.list_(pa.date32()))),
        ("DateTime", pa.array([0, 253_402_300_800_000], pa.date64())),
        ("DateTime", pa.array([0, -62_135_596_800_001], pa.timestamp("ms"))),
    ],
)
@pytest.mark.parametrize("mode", ["append", "merge"])
def test_what_no_query_could_show_is_not_loaded(tmp_path: Path, kind: str, values: pa.Array, mode: Any) -> None:
    graph = omnigraph.init(tmp_path / "g", schema=f"node P {{ s: String @key  x: {kind}? }}")
    with pytest.raises(BadRequest, match=r"x: .* is not") as caught:
        graph.load({"P": pa.table({"s": ["good", "bad"], "x": values})}, mode=mode)
    assert caught.value.details["counts"] == {"type": 1}
    assert "row 2" in str(caught.value)
    table = {"P": pa.table({"s": ["good", "bad"], "x": values})}
    assert graph.load(table, mode=mode, quarantine=tmp_path / "bad.ndjson").quarantined == 1
    assert "is not" in (tmp_path / "bad.ndjson").read_text()


def test_zero_is_one_number_with_either_sign(tmp_path: Path) -> None:
    graph = omnigraph.init(tmp_path / "g", schema="node P { s: String @key  x: F64? @unique  y: F32?  @unique(y, s) }")
    graph.mutate('query q() { insert P { s: "a", x: 0.0 } }')
    with pytest.raises(BadRequest, match="@unique"):
        graph.mutate('query q($x: F64) { insert P { s: "b", x: $x } }', {"x": -0.0})


def test_a_condition_may_name_more_values_than_a_look_up_takes(tmp_path: Path) -> None:
    graph = omnigraph.init(tmp_path / "g", schema="node P { s: String @key  x: I32? }")
    graph.load({"P": pa.table({"s": ["s0", "s7", "other"]})})
    many = [f"s{i}" for i in range(10_001)]
    assert graph.mutate("query q($l: [String]) { update P set { x: 1 } where s in $l }", {"l": many}).nodes == 2
    assert graph.mutate("query q($l: [String]) { update P set { x: 2 } where s not in $l }", {"l": many}).nodes == 1
