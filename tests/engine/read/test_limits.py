"""Bounds of a query in rows, bytes and time, cancellation in the middle of a step, and what `explain` says."""

from __future__ import annotations

import importlib
import re
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from omnigraph import read
from omnigraph.errors import BadRequest, Internal
from omnigraph.query import compile_query
from omnigraph.read import compute, env, expand, hops, scan, steps
from omnigraph.read.adjacency import adjacency
from omnigraph.read.settings import read_settings
from omnigraph.read.tables import TABLES
from omnigraph.schema import compile_schema

CATALOG = compile_schema("""
node Person { name: String @key  age: I32?  bio: String? }
edge Knows: Person -> Person { since: I32? }
""")
EVERYONE = 400


@pytest.fixture
def crowd(memory_snapshot: Callable[..., Any]) -> Any:
    """Everybody knows the next fifty."""
    TABLES.clear()
    adjacency().clear()
    names = [f"p{i:03}" for i in range(EVERYONE)]
    people = [{"id": n, "name": n, "age": i, "bio": "x" * 100} for i, n in enumerate(names)]
    knows = [
        {"id": f"{i}-{k}", "src": names[i], "dst": names[(i + k) % EVERYONE], "since": k}
        for i in range(EVERYONE)
        for k in range(1, 51)
    ]
    return memory_snapshot(CATALOG, {"node:Person": people, "edge:Knows": knows})


def ask(snapshot: Any, body: str, *, cancelled: Callable[[], bool] | None = None, **settings: Any) -> Any:
    compiled = compile_query(f"query q() {{ {body} }}", CATALOG)
    chosen = replace(read_settings(), **settings)
    return read.execute(compiled, snapshot, {}, cancelled=cancelled, settings=chosen)


TOO_LARGE = [
    ("match { $a: Person $b: Person } return { $a.age, $b.age }", {"max_rows": 100_000}),
    ("match { $a: Person $b: Person } return { $a.age, $b.age }", {"max_bytes": 1_000_000}),
    ("match { $a knows $b $b knows $c } return { $a.age, $c.age }", {"max_bytes": 5_000_000}),
    ("match { $a knows{1,3} $b $b knows $c } return { $c.bio }", {"max_bytes": 120_000_000}),
    ("match { $a: Person optional { $a knows $b $b knows $c } } return { count($c) as n }", {"max_rows": 100_000}),
]


@pytest.mark.parametrize(("body", "limit"), TOO_LARGE)
def test_what_is_too_large_is_refused(crowd: Any, body: str, limit: dict[str, int]) -> None:
    with pytest.raises(BadRequest) as refused:
        ask(crowd, body, **limit)
    assert refused.value.code == "query_too_large"
    assert "OMNIGRAPH_READ_MAX_" in refused.value.message


def test_a_limit_makes_a_large_result_small(crowd: Any) -> None:
    body = "match { $a knows{1,3} $b $b knows $c } return { $c.bio } limit 3"
    assert ask(crowd, body, max_bytes=120_000_000).num_rows == 3


@pytest.mark.parametrize(
    "body",
    [
        "match { $a knows{1,4} $b } return { count($b) as n }",
        "match { $a <knows>{2,4}[since < 40] $b } return { count($b) as n }",
        "match { $a $e:knows $b } return { count($e) as n }",
        "match { $a knows $b } return { $a.age, $b.age }",
        "match { $p = shortest $a knows{1,4} $b } return { count($b) as n }",
    ],
)
def test_blocks_of_work_give_the_same_and_are_where_a_query_can_be_cancelled(
    crowd: Any, monkeypatch: pytest.MonkeyPatch, body: str
) -> None:
    whole = ask(crowd, body).to_pylist()
    asked = 0

    def once_more() -> bool:
        nonlocal asked
        asked += 1
        return False

    assert ask(crowd, body, cancelled=once_more).to_pylist() == whole
    few = asked
    monkeypatch.setattr(hops, "BLOCK", 1_000)
    monkeypatch.setattr(expand, "BLOCK", 1_000)
    asked = 0
    assert ask(crowd, body, cancelled=once_more).to_pylist() == whole
    assert asked > few + 10  # twenty thousand edges, a thousand at a time
    left = iter(range(few + 5))
    with pytest.raises(BadRequest) as cancelled:
        ask(crowd, body, cancelled=lambda: next(left, None) is None)
    assert cancelled.value.code == "query_cancelled"


@pytest.mark.parametrize(
    ("body", "module", "block"),
    [
        ("match { $a: Person $b: Person } return { $a.age, $b.age } limit 5", scan, "_AT_ONCE"),
        ("match { $a: Person $b: Person $a.age + $b.age = 7 } return { $a.age, $b.age }", steps, "BLOCK_ROWS"),
        ('match { $a: Person matches($a.bio, "x+") } return { count($a) as n }', env, "_AT_ONCE"),
    ],
)
def test_combinations_and_conditions_are_worked_through_in_blocks(
    crowd: Any, monkeypatch: pytest.MonkeyPatch, body: str, module: Any, block: str
) -> None:
    asked = 0

    def once_more() -> bool:
        nonlocal asked
        asked += 1
        return False

    whole = ask(crowd, body, cancelled=once_more).to_pylist()
    few = asked
    monkeypatch.setattr(module, block, 20)
    asked = 0
    assert ask(crowd, body, cancelled=once_more).to_pylist() == whole
    assert asked > few + 10


def test_one_pattern_a_row_is_worked_through_in_blocks(crowd: Any) -> None:
    asked = 0

    def once_more() -> bool:
        nonlocal asked
        asked += 1
        return False

    constant = 'match { $a: Person $b: Person $b.age < 9 contains($a.bio, "p1") } return { count($a) as n }'
    ask(crowd, constant, cancelled=once_more)
    few, asked = asked, 0
    by_row = "match { $a: Person $b: Person $b.age < 9 contains($a.bio, replace($b.bio, $a.name, $b.name)) }"
    ask(crowd, by_row + " return { count($a) as n }", cancelled=once_more)
    assert asked > few  # four hundred patterns


PREDICATES = [
    "$a.age > 3",
    '$a.name starts_with "p01"',
    'substring($a.bio, $a.age, 2) = "xx"',
    "$a.age > 5 and 100 / ($a.age - 5) > 2",
    'search($a.bio, "xx") or $a.age in [3, 4, 399]',
    'replace($a.name, "p0", $a.bio) contains "x1"',
    'length(split($a.name, "1")) = 2',
    "exists { $a knows $b $b.age < $a.age }",
    'case when $a.age < 9 then $a.name else $a.bio end > "p"',
    "coalesce($a.bio, $a.name) != $a.name",
]


@pytest.mark.parametrize("predicate", PREDICATES)
def test_conditions_are_the_same_in_parts(crowd: Any, monkeypatch: pytest.MonkeyPatch, predicate: str) -> None:
    alone = f"match {{ $a: Person {predicate} }} return {{ $a.age as n }} order {{ n }}"
    pairs = f"match {{ $a: Person $b: Person $b.age < 3 {predicate} $b.age != $a.age }} "
    pairs += "return { $a.age as n, $b.age as m } order { n, m }"
    whole = [ask(crowd, body).to_pylist() for body in (alone, pairs)]
    assert all(whole)
    monkeypatch.setattr(env, "_AT_ONCE", 64)
    monkeypatch.setattr(steps, "BLOCK_ROWS", 50)
    monkeypatch.setattr(scan, "_AT_ONCE", 100)
    assert [ask(crowd, body).to_pylist() for body in (alone, pairs)] == whole


def test_no_memory_left_is_a_refusal(crowd: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: Any, **kwargs: Any) -> None:
        raise MemoryError("malloc of size 1 failed")

    monkeypatch.setattr(crowd, "scan", full)
    with pytest.raises(BadRequest) as refused:
        ask(crowd, "match { $a: Person } return { $a.bio }")
    assert refused.value.code == "query_too_large"
    assert "query `q`" in refused.value.message


def test_a_query_gives_up_soon_after_its_time(crowd: Any) -> None:
    body = "match { $a knows{1,8} $b $b knows{1,8} $c } return { count($c) as n }"
    compiled = compile_query(f"query q() {{ {body} }}", CATALOG)
    begin = time.monotonic()
    with pytest.raises(BadRequest) as late:
        read.execute(compiled, crowd, {}, deadline=begin + 0.05)
    assert late.value.code == "query_timeout"


def test_explain_says_what_is_expected_and_analyze_what_came(crowd: Any) -> None:
    body = 'match { $a: Person { name: "p003" } $a knows $b not { $b knows $c $c.age < 3 } $b.age > 10 }'
    compiled = compile_query(f"query q() {{ {body} return {{ $b.name as n }} order {{ n }} limit 5 }}", CATALOG)
    plan = read.explain(compiled, crowd, {}).splitlines()
    assert [line.split()[0] for line in plan] == [
        "query",
        "scan",
        "expand",
        "anti",
        "expand",
        "project",
        "order",
        "limit",
    ]
    assert all(re.search(r"~[\d.,]+ rows$", line) for line in plan[1:5])
    assert "where $b.age > 10" in plan[2]
    ran = read.explain(compiled, crowd, {}, analyze=True).splitlines()
    assert [re.search(r"\| ([\d,]+) rows, [\d.]+ ms", line).group(1) for line in ran[1:4]] == ["1", "43", "43"]  # type: ignore[union-attr]
    assert re.search(r"^project .*\| 5 rows, [\d.]+ ms$", ran[5])
    assert re.search(r"^total   5 rows, [\d.]+ ms$", ran[-1])


def test_far_ends_are_counted_while_they_are_gathered(crowd: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    batches = 0
    levels = expand._levels

    def counted(*given: Any) -> Any:
        nonlocal batches
        batches += 1
        return levels(*given)

    monkeypatch.setattr(expand, "_levels", counted)
    with pytest.raises(BadRequest) as refused:
        ask(crowd, "match { $a knows{1,3} $b } return { $a.age }", bitmap_bytes=10 * EVERYONE, max_bytes=500_000)
    assert refused.value.code == "query_too_large"
    assert batches < EVERYONE // 10 // 2


TEXTS = [
    "match { $a: Person } return { $a.bio, $a.name }",
    "match { $a: Person } return { $a.name as n, $a.bio } order { n desc }",
    "match { $a knows $b $a.age < 20 } return { $b.bio, $a.age }",
    'match { $a: Person } return { $a.name as n, "0123456789" as c, "%s" as d } order { n }' % ("x" * 60),
    'match { $a: Person } return { replace($a.name, "p", "%s") as r, $a.age }' % ("x" * 100),
    "match { $a: Person $a.age < 300 } return { $a.name, $a.age }",
    "match { $a: Person optional { $b: Person { age: 3 } $b knows $a } } return { $a.name as n, $b.bio } order { n }",
]


@pytest.mark.parametrize("body", TEXTS)
def test_texts_that_are_too_long_for_one_array_come_in_chunks(
    crowd: Any, monkeypatch: pytest.MonkeyPatch, body: str
) -> None:
    want = ask(crowd, body)

    def narrow(take: Any) -> Any:
        """Takes of texts are refused as Arrow refuses those of more than 2 GiB."""

        class Narrow:
            def call(self, given: list[Any], options: Any) -> Any:
                of = given[0]
                kinds = of.schema.types if isinstance(of, pa.Table) else [of.type]
                if pa.string() in kinds and len(given[1]) > 100:
                    raise pa.ArrowInvalid("Take operation overflowed binary array capacity")
                return take.call(given, options)

        return Narrow()

    monkeypatch.setattr(compute, "_TAKE", narrow(compute._TAKE))
    monkeypatch.setattr(compute, "_TAKE_ROWS", narrow(compute._TAKE_ROWS))
    monkeypatch.setattr(compute, "LONGEST", 20_000)
    TABLES.clear()
    for _ in range(3):  # cold, warm, bound
        got = ask(crowd, body)
        assert got.schema == want.schema
        assert got.equals(want)
        texts = [column for column in got.columns if pa.types.is_string(column.type)]
        assert all(chunk.nbytes < 25_000 for column in texts for chunk in column.chunks)


def test_a_text_that_is_too_long_is_refused(crowd: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compute, "LONGEST", 50)
    with pytest.raises(BadRequest, match="texts take more than 2 GiB") as refused:
        ask(crowd, "match { $a: Person } return { $a.bio }")
    assert refused.value.code == "query_too_large"


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (pa.ArrowInvalid("Failed casting from large_string to string: input array too large"), BadRequest),
        (pa.ArrowInvalid("offset overflow while concatenating arrays"), BadRequest),
        (pa.ArrowCapacityError("array cannot contain more than 2147483646 bytes"), BadRequest),
        (pa.ArrowInvalid("anything else"), Internal),
        (pa.ArrowNotImplementedError("no kernel"), Internal),
    ],
)
def test_no_error_of_arrow_comes_out_as_it_is(
    crowd: Any, monkeypatch: pytest.MonkeyPatch, error: Exception, kind: type[Exception]
) -> None:
    def fails(*_: Any) -> None:
        raise error

    monkeypatch.setattr(importlib.import_module("omnigraph.read.execute"), "run", fails)
    with pytest.raises(kind, match="query `q`"):
        ask(crowd, "match { $a: Person } return { $a.bio }")
