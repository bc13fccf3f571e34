"""Lists of dictionaries: records of which each mentions the members it has."""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest

import omnigraph
from omnigraph.write.listed import listed

SCHEMA = """\
node P { slug: String @key  n: I64?  u: U64?  f: F64?  d: Date?  l: [F64]?  us: [U64]?  kind: String @default("plain") }
node K { name: String? }
edge E: P -> P
"""
ALL = "query q() { match { $p: P } return { $p.slug as slug, $p.n as n, $p.kind as kind } order { slug } }"


@pytest.fixture
def g(tmp_path: Path) -> omnigraph.Graph:
    return omnigraph.init(tmp_path / "g.omni", schema=SCHEMA)


def test_a_member_of_any_row_is_read_and_one_that_is_missing_has_its_default(g: omnigraph.Graph) -> None:
    g.load({"P": [{"slug": "a"}, {"slug": "b", "n": 5}, {"kind": "x", "slug": "c"}]}, mode="merge")
    assert [tuple(row.values()) for row in g.query(ALL)] == [("a", None, "plain"), ("b", 5, "plain"), ("c", None, "x")]
    with pytest.raises(omnigraph.BadRequest, match="'nn' are neither mapped nor ignored"):
        g.load({"P": [{"slug": "d"}, {"slug": "e", "nn": 5}]})


def test_a_merge_keeps_what_a_row_does_not_mention(g: omnigraph.Graph) -> None:
    g.load({"P": [{"slug": s, "n": 1, "kind": "k"} for s in "abc"]})
    g.load({"P": [{"slug": "a"}, {"slug": "b", "n": 7}, {"slug": "c", "n": None}]}, mode="merge")
    assert [tuple(row.values()) for row in g.query(ALL)] == [("a", 1, "k"), ("b", 7, "k"), ("c", None, "k")]


def test_rows_that_mention_nothing_are_rows(g: omnigraph.Graph) -> None:
    assert g.load({"K": [{}, {}]}).rows == 2
    assert g.load({"K": [{}, {"name": "x"}]}).rows == 2


def test_integers_beyond_2_to_the_63_are_unsigned(g: omnigraph.Graph) -> None:
    g.load({"P": [{"slug": "a", "u": None}, {"slug": "b", "u": 2**64 - 1, "us": [2**63]}, {"slug": "c", "u": 0}]})
    asked = "query q() { match { $p: P } return { $p.slug as slug, $p.u as u, $p.us as us } order { slug } }"
    assert [row["u"] for row in g.query(asked)] == [None, 2**64 - 1, 0]
    assert [row["us"] for row in g.query(asked)] == [None, [2**63], None]


def test_a_bad_row_may_be_put_aside(g: omnigraph.Graph, tmp_path: Path) -> None:
    rows = [{"slug": "a"}, {"slug": "b", "n": 1.5}]
    assert g.load({"P": rows}, quarantine=tmp_path / "bad").quarantined == 1
    assert '"source": "P row 2"' in (tmp_path / "bad").read_text()


@pytest.mark.parametrize("within", [list, lambda each: {"k": each}])
def test_a_value_nested_without_end_is_refused_by_its_row(g: omnigraph.Graph, within: Any) -> None:
    deep: Any = within([])
    for _ in range(20_000):
        deep = within([deep])
    with pytest.raises(omnigraph.BadRequest, match="table 'P' row 2: l: lists or dictionaries within one another"):
        g.load({"P": [{"slug": "a", "l": [1.0]}, {"slug": "b", "l": deep}]})


def test_a_number_that_python_does_not_write_is_refused_by_its_row(g: omnigraph.Graph) -> None:
    for value in (10**5000, [10**5000]):
        with pytest.raises(omnigraph.BadRequest, match="row 2: n: a number of thousands of digits is no value"):
            g.load({"P": [{"slug": "a"}, {"slug": "b", "n": value}]})


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ([1, "x"], "row 2: x: 'x' is a text, but 1 before it is a number"),
        ([None, 1.5, True], "row 3: x: True is a boolean, but 1.5 before it is a number"),  # Arrow: 1.0
        ([date(2020, 1, 1), datetime(2020, 1, 1, 5, tzinfo=UTC)], "row 2: x: .* is a time, but .* is a day"),
        (["x", b"x"], "row 2: x: b'x' is bytes"),
        ([[1.5], [2, True]], "row 2: x: True is a boolean"),
        ([1, 2**64], "row 2: x: 18446744073709551616 is no value"),
        ([2**63, 1.5], "row 2: x: 1.5 is no value"),  # Arrow, told to make integers: 1
        ([-1, 2**63], "row 2: x: 9223372036854775808 is no value"),
        (["a", "\ud800"], r"row 2: x: '\\ud800' is no value"),
        ([object()], "row 1: x: <object"),
    ],
)
def test_what_no_column_holds_is_named_with_its_row(values: list[Any], says: str) -> None:
    with pytest.raises(omnigraph.BadRequest, match=says):
        listed("P", [{"x": value} for value in values])


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ({1: [{"slug": "a"}]}, "by the names of their types, not by 1"),
        ({"P": [{"slug": "a"}, {5: 1}]}, "table 'P' row 2: 5 is no text"),
        ({"P": [{"\ud800": 1}]}, r"table 'P' row 1: '\\ud800' is no text"),
        ([None], "can't load a NoneType"),
    ],
)
def test_a_source_of_a_wrong_shape_is_refused(g: omnigraph.Graph, source: Any, says: str) -> None:
    with pytest.raises(omnigraph.BadRequest, match=says):
        g.load(source)


def test_a_name_that_is_no_text_is_refused(g: omnigraph.Graph) -> None:
    wrong: Any = 5
    for branch in (wrong, None):
        with pytest.raises(omnigraph.BadRequest, match="branch is a text"):
            g.load({"K": [{}]}, branch=branch, from_="main")
    with pytest.raises(omnigraph.BadRequest, match="operation id 5"):
        g.load({"K": [{}]}, operation_id=wrong)
    with pytest.raises(omnigraph.BadRequest, match="each of types is a text"):
        list(g.export(types=[wrong]))
    with pytest.raises(omnigraph.BadRequest, match="type is a text"):
        g.blob(wrong, wrong, wrong)
