"""Expressions in `set`, in inserted values, in an edge's ends and in `where`: over the rows as they were."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pytest

from omnigraph.errors import BadRequest
from omnigraph.query import bind_params, compile_query
from omnigraph.schema import compile_schema
from omnigraph.storage import Repository
from omnigraph.write import MutationResult, mutate

SCHEMA = """
node Item {
  name: String @key  a: I32?  b: I32?  u: U32?  f: F32?  g: F64?  text: String?  due: Date?  at: DateTime?
  tags: [String]?  kind: enum(big, small)?  @range(a, -100..100)
}
edge Near: Item -> Item { gap: I64?  note: String? }
"""


@pytest.fixture
def graph(tmp_path: Path) -> Repository:
    repository = Repository.create(str(tmp_path / "g"), compile_schema(SCHEMA))
    run(repository, 'query q() { insert Item { name: "x", a: 1, b: 10, text: "one", due: date("2024-01-31") } }')
    run(repository, 'query q() { insert Item { name: "y", a: 0, b: 20 } }')
    return repository


def run(repository: Repository, text: str, **params: Any) -> MutationResult:
    compiled = compile_query(text, repository.snapshot().catalog)
    return mutate(repository, compiled, bind_params(compiled, params))


def stored(repository: Repository, name: str) -> dict[str, Any]:
    (row,) = repository.snapshot().scan("node:Item", filter=f"name = '{name}'").to_pylist()
    return dict(row)


def test_every_row_computes_from_its_own_stored_values(graph: Repository) -> None:
    result = run(graph, "query q($n: I32) { update Item set { a: b - $n, b: a, g: a / b } where b > 0 }", n=5)
    assert result.nodes == 2
    x, y = stored(graph, "x"), stored(graph, "y")
    assert (x["a"], x["b"], x["g"]) == (5, 1, 0.1)
    assert (y["a"], y["b"], y["g"]) == (15, 0, 0.0)


@pytest.mark.parametrize(
    ("value", "name", "expected"),
    [
        ('replace(upper(text), "N", "_")', "text", "O_E"),
        ("case when a > 0 then text end", "text", "one"),
        ("add_months(due, 1)", "due", dt.date(2024, 2, 29)),
        ("split(text, $sep)", "tags", ["one"]),
        ('[name, coalesce(text, "-")]', "tags", ["x", "one"]),
        ("coalesce(f, g, a + 0.25)", "f", 1.25),
        ("length(text) * 2", "u", 6),
        ("$kind", "kind", "small"),
        ("null", "text", None),
    ],
)
def test_values(graph: Repository, value: str, name: str, expected: Any) -> None:
    match_ = f'update Item set {{ {name}: {value} }} where name = "x"'
    run(graph, f"query q($sep: String, $kind: String) {{ {match_} }}", sep=",", kind="small")
    assert stored(graph, "x")[name] == expected


def test_now_is_one_moment_to_the_millisecond(graph: Repository) -> None:
    run(graph, "query q() { update Item set { at: now() } where a >= 0 }")
    assert graph.snapshot().scan("node:Item", ["at"]).column("at").unique().null_count == 0
    assert len(graph.snapshot().scan("node:Item", ["at"]).column("at").unique()) == 1


@pytest.mark.parametrize(
    ("text", "code", "says"),
    [
        ("update Item set { g: b / a } where b > 0", "division_by_zero", "b / a"),
        ("update Item set { a: b * 300000000 } where a > 0", "out_of_range", "I32"),
        ("update Item set { u: a - 1 } where a = 0", "out_of_range", "-1"),
        ("update Item set { f: 1e308 * 10 } where a = 0", "overflow", "1e+308 * 10"),
        ("update Item set { a: to_int(text) } where a > 0", "bad_value", '"one"'),
        ("update Item set { a: 1 } where b / a > 1", "division_by_zero", "b / a"),
    ],
)
def test_a_value_that_cannot_be_is_refused_and_nothing_is_written(
    graph: Repository, text: str, code: str, says: str
) -> None:
    before = graph.snapshot().scan("node:Item").sort_by("name")
    with pytest.raises(BadRequest) as refused:
        run(graph, f"query q() {{ {text} }}")
    assert refused.value.code == code
    assert says in str(refused.value)
    assert "query `q`" in str(refused.value)
    assert graph.snapshot().scan("node:Item").sort_by("name").equals(before)


def test_an_enum_and_a_range_are_judged_on_computed_values(graph: Repository) -> None:
    for text in ("set { a: a + 100 }", 'set { kind: lower("HUGE") }'):
        with pytest.raises(BadRequest):
            run(graph, f"query q() {{ update Item {text} where a = 1 }}")


def test_where_asks_only_rows_that_count(graph: Repository) -> None:
    assert run(graph, "query q() { update Item set { b: 0 } where a != 0 and b / a > 1 }").nodes == 1
    assert run(graph, "query q() { update Item set { b: 5 } where b / a > 1 and a != 0 }").nodes == 0
    fresh = 'insert Item { name: "z", a: 0, b: 9 } update Item set { b: 6 } where b / a > 1 and a != 0'
    assert run(graph, f"query q() {{ {fresh} }}").nodes == 1  # what this query wrote is asked in the same order
    run(graph, 'query q() { delete Item where name = "z" }')
    assert run(graph, "query q() { delete Item where length(name) + 1 = 2 and a = 0 }").nodes == 1


def test_inserts_compute_from_parameters_and_later_statements_see_them(graph: Repository) -> None:
    insert = 'insert Item { name: lower($n), a: $k * 2, tags: [$n, "t"] }'
    edge = 'insert Near { from: lower($n), to: trim(" x "), gap: length($n) + $k, note: to_string($k) }'
    update = "update Item set { b: a + 1 } where name = lower($n)"
    run(graph, f"query q($n: String, $k: I32) {{ {insert} {edge} {update} }}", n="NEW", k=4)
    new = stored(graph, "new")
    assert (new["a"], new["b"], new["tags"]) == (8, 9, ["NEW", "t"])
    (near,) = graph.snapshot().scan("edge:Near").to_pylist()
    assert (near["src"], near["dst"], near["gap"], near["note"]) == ("new", "x", 7, "4")
    assert run(graph, 'query q() { delete Near where gap - 6 = 1 and from = lower("NEW") }').edges == 1
