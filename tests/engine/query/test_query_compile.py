"""The compiler's own behaviour: cache, names, parameters, mutations' tables, warnings, and what it imports."""

from __future__ import annotations

import datetime as dt
import subprocess
import sys
from pathlib import Path

import pytest

from omnigraph.errors import BadRequest, LanguageError, NotFound
from omnigraph.query import bind_params, compile_queries, compile_query
from omnigraph.schema import compile_schema

SOCIAL = compile_schema((Path(__file__).parents[2] / "data/lang/query/social.pg").read_text(encoding="utf-8"))
TWO = """
query one($s: String) @description("first") @instruction("use it") { match { $p: Person { slug: $s } } return { $p } }
query two() { insert Memo { text: "x" } }
"""


def test_a_text_is_compiled_once() -> None:
    assert compile_query(TWO, SOCIAL, "one") is compile_query(TWO, SOCIAL, "one")


def test_the_catalog_is_part_of_the_key() -> None:
    other = compile_schema("node Memo { text: String }")
    with pytest.raises(LanguageError) as caught:
        compile_query(TWO, other, "two")
    assert caught.value.code == "T1"


def test_one_of_several_must_be_named() -> None:
    with pytest.raises(BadRequest, match="2 queries"):
        compile_query(TWO, SOCIAL)
    with pytest.raises(NotFound, match="did you mean `one`"):
        compile_query(TWO, SOCIAL, "onee")


def test_metadata_and_tables() -> None:
    queries = compile_queries(TWO, SOCIAL)
    assert (queries["one"].description, queries["one"].instruction) == ("first", "use it")
    assert queries["one"].reads == {"node:Person"}
    assert queries["two"].writes == {"node:Memo"}
    assert [w.code for w in queries["two"].warnings] == ["L202"]
    forget = compile_query("query f($s: String) { delete Person where slug = $s }", SOCIAL)
    assert forget.writes == {"node:Person", "edge:Knows", "edge:WorksAt", "edge:Wrote"}
    update = compile_query("query u($s: String) { update Memo set { text: $s } where likes > 3 }", SOCIAL)
    assert (update.reads, update.writes) == ({"node:Memo"}, {"node:Memo"})
    joins = compile_query("query j($s: String) { insert WorksAt { from: $s, to: lower($s) } }", SOCIAL)
    assert (joins.reads, joins.writes) == ({"node:Person", "node:Company"}, {"edge:WorksAt"})


PARAMS = """
query p($i: I32, $l: I64?, $d: Date?, $t: DateTime?, $e: enum(a, b)?, $v: Vector(2)?, $s: [String]?,
  $u: U32?, $b: Bool?, $f: F64?) { match { $x: Person } return { $x } }"""


@pytest.mark.parametrize(
    ("name", "given", "bound"),
    [
        ("l", "9007199254740993", 9007199254740993),
        ("l", -5, -5),
        ("l", 3.0, 3),
        ("d", "2026-01-31", dt.date(2026, 1, 31)),
        ("t", "2026-01-31T10:00:00+01:00", dt.datetime(2026, 1, 31, 9, tzinfo=dt.UTC)),
        ("t", "2026-01-31T10:00:00.25", dt.datetime(2026, 1, 31, 10, 0, 0, 250_000, tzinfo=dt.UTC)),
        ("e", "a", "a"),
        ("v", [1, 2.5], (1.0, 2.5)),
        ("s", ["x"], ("x",)),
        ("$b", True, True),
        ("f", 2, 2.0),
        ("f", None, None),
    ],
)
def test_parameters_in_their_json_forms(name: str, given: object, bound: object) -> None:
    out = bind_params(compile_query(PARAMS, SOCIAL), {"i": 1, name: given})
    assert out[name.removeprefix("$")] == bound
    assert set(out) == set("ildtevsubf")


class Nanoseconds(dt.datetime):
    """As pandas' Timestamp has them."""

    nanosecond = 1


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "needs the parameter `i`"),
        ({"i": None}, "null is not an I32"),
        ({"i": 1, "j": 2}, "no parameter `j`"),
        ({"i": "x"}, "is not an I32"),
        ({"i": True}, "is not an I32"),
        ({"i": 2**31}, "out of the range"),
        ({"i": 1, "u": -1}, "out of the range"),
        ({"i": 1, "d": "2026-02-30"}, "not a date"),
        ({"i": 1, "t": "2026-01-31T10:00:00.0001Z"}, "finer than a millisecond"),
        ({"i": 1, "t": dt.datetime(1, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=1)))}, "years 1 to 9999"),
        ({"i": 1, "t": dt.datetime(9999, 12, 31, 23, tzinfo=dt.timezone(-dt.timedelta(hours=1)))}, "years 1 to 9999"),
        ({"i": 1, "e": "c"}, "not one of a, b"),
        ({"i": 1, "t": Nanoseconds(2026, 1, 31)}, "finer than a millisecond"),
        ({"i": 1, "v": [1.0]}, "a vector of 1"),
        ({"i": 1, "v": [0, -0.0]}, "a vector of zeros"),
        ({"i": 1, "v": [1e-46, 0]}, "a vector of zeros"),
        ({"i": 1, "v": [1.0, float("nan")]}, "not a finite number"),
        ({"i": 1, "v": [float("inf"), float("-inf")]}, "not a finite number"),
        ({"i": 1, "v": [0.0, -1e39]}, "out of the range of F32"),
        ({"i": 1, "v": [0.0, True]}, "is not a F32"),
        ({"i": 1, "s": ["x", 3]}, "is not a String"),
        ({"i": 1, "f": float("nan")}, "not a finite number"),
    ],
)
def test_parameters_that_do_not_fit(given: dict[str, object], words: str) -> None:
    with pytest.raises(BadRequest, match=words):
        bind_params(compile_query(PARAMS, SOCIAL), given)


def test_nul_in_a_text_is_named() -> None:
    with pytest.raises(LanguageError, match=r"U\+0000"):
        compile_queries("query a() { \x00 }", SOCIAL)


def test_the_languages_import_neither_arrow_nor_lance() -> None:
    code = "import sys, omnigraph.schema, omnigraph.query; print({'pyarrow', 'lance', 'numpy'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
