"""Texts that are too long together for one array of `string` beside others that aren't: the answers are the same.

How long is too long is patched to be little, so that a column, a parameter and what a `replace` makes are wide.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from omnigraph import read
from omnigraph.query import bind_params, compile_query
from omnigraph.read import compute
from omnigraph.read.numbering import Splice
from omnigraph.read.postings import TextIndex, refreshed
from omnigraph.read.tables import TABLES
from omnigraph.read.text import replace as replaced
from omnigraph.schema import compile_schema

CATALOG = compile_schema("""
node Row { name: String @key  wide: String?  s: String?  part: String?  tags: [String]?  i: I64  ok: Bool  n: String? }
edge Link: Row -> Row { text: String? }
edge Tie: Row -> Row { text: String? }
""")
LONG = "0123456789" * 12
ROWS = [
    {"name": "a", "wide": f"aqb{LONG}", "s": "aqb", "part": "q", "tags": ["a", "q"], "i": 1, "ok": True, "n": "7"},
    {"name": "b", "wide": f"bc{LONG}", "s": "bc", "part": "c", "tags": ["bc"], "i": 2, "ok": False, "n": "12"},
    {"name": "c", "wide": f"c{LONG}", "s": None, "part": "c", "tags": None, "i": 0, "ok": True, "n": None},
    {"name": "d", "wide": None, "s": "d,q", "part": None, "tags": [], "i": 3, "ok": False, "n": "-3"},
    {"name": "e", "wide": "c", "s": "d,q", "part": ",", "tags": ["c", None], "i": 3, "ok": True, "n": "0"},
]
LINKS = [(a, b) for a, b in itertools.product("abcde", repeat=2) if a < b]
TEXTS = {
    "narrow": "$r.s",
    "other": "$r.part",
    "wide": "$r.wide",
    "grown": 'replace($r.s, "q", $long)',
    "grown by row": "replace($r.s, $r.part, $long)",
    "constant": '"q,bc"',
    "parameter": "$long",
    "grown constant": 'replace("q,bc", "q", $long)',
    "none": "$none",
}
PAIRS = list(itertools.product(TEXTS, repeat=2))
ONE = [
    "{}", "lower({})", "upper({})", "trim({})", "length({})", "to_string({})", "substring({}, 1, 4)",
    "substring({}, $r.i, 200)", "substring({}, 0, $r.i)", 'matches({}, "[a-c].*")', "{} is null", '{} in ["c", "bc"]',
    "{} in $r.tags", "contains($r.tags, {})", "split({}, \",\")", "{} in split({}, $r.part)",
    "case when $r.ok then split({}, \",\") else $r.tags end", "case when $r.ok then $r.tags else split({}, \",\") end",
    "coalesce($r.tags, split({}, $r.part))", "coalesce(split({}, \",\"), $r.tags)",
    "case when {} = \"bc\" then to_int($r.n) else length({}) end", "case when $r.ok then {} end",
    "replace({}, substring($r.name, 0, 1), \"x\")", 'case when $r.ok then split({}, ",") else split($r.s, ",") end',
]  # fmt: skip
TWO = [
    "{} = {}", "{} != {}", "{} < {}", "{} >= {}", "contains({}, {})", "starts_with({}, {})", "ends_with({}, {})",
    "{} in [{}, $r.s, \"c\"]", "[{}, {}]", "length([{}, {}])", "split({}, coalesce({}, \",\"))",
    "length(split({}, coalesce({}, \",\")))", "{} in split({}, \",\")", "replace({}, {}, \"xy\")",
    "replace({}, \"q\", {})", "replace({}, {}, $r.name)", "replace($r.s, {}, {})", "coalesce({}, {})",
    "case when $r.ok then {} else {} end", "case when $r.i > 1 then {} when $r.ok then {} else $r.name end",
    "coalesce($r.wide, substring({}, 0, to_int($r.n) * 0), {})",
]  # fmt: skip


def ask(snapshot: Any, body: str) -> Any:
    compiled = compile_query(f"query q($long: String, $none: String?) {{ {body} }}", CATALOG)
    return read.execute(compiled, snapshot, bind_params(compiled, {"long": LONG, "none": None}))


@pytest.fixture
def same(memory_snapshot: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Asks as it is and with texts that are soon wide, and compares."""
    rows = [{"id": row["name"], **row} for row in ROWS]
    edges = [{"id": f"{a}{b}", "src": a, "dst": b, "text": a if b < "d" else b + LONG} for a, b in LINKS]
    short = [{"id": f"{a}-{b}", "src": a, "dst": b, "text": a} for a, b in LINKS]
    data = {"node:Row": rows, "edge:Link": edges, "edge:Tie": short}

    def same(body: str) -> None:
        TABLES.clear()
        want = ask(memory_snapshot(CATALOG, data), body)
        with monkeypatch.context() as patched:
            patched.setattr(compute, "LONGEST", 300)
            TABLES.clear()
            got = ask(memory_snapshot(CATALOG, data), body)
            TABLES.clear()
        got.validate(full=True)
        assert got.schema == want.schema
        assert got.to_pylist() == want.to_pylist()

    return same


def test_the_texts_are_of_both_widths(memory_snapshot: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    met = set()
    widened = compute.widened

    def noted(*given: Any) -> Any:
        out = widened(*given)
        met.add(out.type)
        return out

    monkeypatch.setattr(compute, "LONGEST", 300)
    monkeypatch.setattr("omnigraph.read.tables.widened", noted)
    TABLES.clear()
    rows = [{"id": row["name"], **row} for row in ROWS]
    ask(memory_snapshot(CATALOG, {"node:Row": rows}), "match { $r: Row } return { $r.wide, $r.s }")
    assert {pa.string(), pa.large_string()} <= met


@pytest.mark.parametrize("form", [*ONE, *TWO])
def test_an_expression(same: Callable[[str], None], form: str) -> None:
    given = PAIRS if form in TWO else [(name, name) for name in TEXTS]
    columns = ", ".join(f"{form.format(TEXTS[a], TEXTS[b])} as c{at}" for at, (a, b) in enumerate(given))
    same(f"match {{ $r: Row }} return {{ $r.name as n, {columns} }} order {{ n }}")


CLAUSES = [
    "match {{ $r: Row {0} = {1} }} return {{ $r.name as n }} order {{ n }}",
    "match {{ $r: Row contains({0}, {1}) or {0} in [{1}, \"c\"] }} return {{ $r.name as n }} order {{ n }}",
    "match {{ $r: Row }} return {{ {0} as a, {1} as b, count($r) as n, max({1}) as m }} order {{ a, b }}",
    "match {{ $r: Row }} return distinct {{ {0} as a, {1} as b }} order {{ b desc, a }}",
    "match {{ $r: Row }} return {{ {0} as a, collect({1}) as b, collect(distinct {0}) as c }} order {{ a }}",
    "match {{ $r: Row }} return {{ $r.name as n }} order {{ {0} desc, {1}, n }} limit 3",
    "match {{ $r: Row $q: Row {{ name: \"b\" }} exists {{ $r link $x $x.wide != {0} $x.s != {1} }} }} "
    "return {{ $r.name as n, $q.wide as w }} order {{ n }}",
    "match {{ $r: Row optional {{ $r link $x {0} != $x.wide }} }} return {{ $r.name as n, $x.name as x, {1} as y }} "
    "order {{ n, x }}",
    "match {{ $r: Row $r $e:(link|tie) $x }} return {{ $r.name as n, $x.name as x, $e.text as t, {0} = $e.text as a, "
    "{1} as b }} order {{ n, x, t }}",
]  # fmt: skip


@pytest.mark.parametrize("form", CLAUSES)
def test_a_clause(same: Callable[[str], None], form: str) -> None:
    for a, b in PAIRS[::4]:
        same(form.format(TEXTS[a], TEXTS[b]))


def test_patterns_that_differ_by_row() -> None:
    texts = pa.array(["q" * 10, "ab", None, "b", "c"])
    olds, news = pa.array(["q", "a", "q", None, ""]), pa.array(["xy", "", "a", "a", None])
    assert replaced(texts, olds, news).to_pylist() == ["xy" * 10, "b", None, None, None]
    assert replaced(texts, pa.scalar("b"), news).to_pylist() == ["q" * 10, "a", None, "a", None]
    assert replaced(pa.scalar("qb"), olds, pa.scalar("z")).to_pylist() == ["zb", "qb", "zb", None, "qb"]
    assert replaced(texts, pa.nulls(5, pa.string()), news).null_count == 5
    assert len(replaced(texts[:0], olds[:0], news[:0])) == 0


@pytest.mark.parametrize("updated", [[1, 3], list(range(40))])
def test_a_column_that_commits_make_too_long_becomes_wide(monkeypatch: pytest.MonkeyPatch, updated: list[int]) -> None:
    monkeypatch.setattr(compute, "LONGEST", 300)
    old, new = pa.array(["old"] * 100), pa.array(["a newer text"] * (len(updated) + 2))
    step = Splice(None, 100, np.array([60]), np.array(updated), 2)
    out = step.column(old, new)
    want = ["a newer text" if at in updated else "old" for at in range(100) if at != 60] + ["a newer text"] * 2
    assert out.type == pa.large_string()
    assert out.to_pylist() == want
    again = Splice(None, 101, np.array([0]), np.array([5]), 0).column(out, pa.array(["x"]))
    assert again.to_pylist() == [*want[1:5], "x", *want[6:]]


def test_words_that_are_too_long_together(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = pa.array(["one two", None, "two three one", "four", ""] * 20)
    want = TextIndex.of(texts)
    monkeypatch.setattr(compute, "LONGEST", 700)
    monkeypatch.setattr("omnigraph.read.tokens._BATCH_BYTES", 100)
    found = TextIndex.of(texts)
    assert found.words.type == pa.large_string()
    longer = refreshed(found, np.array([-1, *range(1, 100)]), pa.array(["five", *texts.to_pylist()[1:]]))
    assert (found.words.to_pylist(), found.codes.tolist()) == (want.words.to_pylist(), want.codes.tolist())
    assert longer.words.to_pylist() == [*want.words.to_pylist(), "five"]
    assert [longer.number(word) for word in ("one", "five", "six")] == [0, 4, -1]
