"""Expressions as deep as the languages allow, asked from a deep stack; and how much of one is shown."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import omnigraph
from omnigraph import read
from omnigraph.errors import BadRequest, LanguageError
from omnigraph.query import compile_query
from omnigraph.query.format import format_queries
from omnigraph.query.lint import lint_queries
from omnigraph.read import show as shown
from omnigraph.read.settings import ReadSettings
from omnigraph.schema import compile_schema

CATALOG = compile_schema("node Row { name: String @key  small: I64  ok: Bool }  edge Link: Row -> Row {}")
ROWS = {"node:Row": [{"id": "a", "name": "a", "small": 1, "ok": True}], "edge:Link": []}
MOST = "+".join(["$r.small"] * 200)  # 199 operations
CASE, NESTED = "case when true then ", 96  # two braces more are 98 levels


def nest(opening: str, closing: str, times: int, inner: str = "$r.small") -> str:
    return opening * times + inner + closing * times


VALUES = {
    "chain": MOST,
    "brackets": nest("(1+", ")", NESTED),
    "brackets before a chain": nest("(1+", ")", NESTED) + "+1" * 100,
    "two operators a level": nest("(1 - 0*", ")", NESTED),
    "values of case": nest(CASE, " end", NESTED),
    "else of case": nest("case when false then 1 else ", " end", NESTED),
    "conditions of case": nest("case when ", " > 0 then 1 else 2 end", 60),
    "arguments": nest("coalesce(", ", 1)", NESTED),
    "signs": nest("(-", ")", NESTED // 2),
}
TESTS = {
    "not": "not " * NESTED + "$r.ok",
    "every operator": nest("(true or true and 1 < 1 + 1 * case when ", " then 1 end)", 28, "$r.ok"),
    "exists": nest("exists { $r: Row ", " }", 60, "$r.ok"),
    "count": nest("1 < 1 + count { $x: Row ", " }", 38, "$r.ok"),
    "not { }": "".join(f"not {{ $r link $x{i} " for i in range(90)) + "}" * 90,
    "optional": "".join(f"optional {{ $r link $x{i} " for i in range(90)) + "}" * 90,
}
BODIES = [
    *(f"match {{ $r: Row }} return {{ {value} as v }} order {{ {value} }}" for value in VALUES.values()),
    *(f"match {{ $r: Row }} return {{ sum({value}) as v, max({value}) as w }}" for value in VALUES.values()),
    *(f"match {{ $r: Row {value} > 0 }} return {{ $r.name }}" for value in VALUES.values() if value != MOST),
    *(f"match {{ $r: Row {test} }} return {{ $r.name }}" for test in TESTS.values()),
    "match { $r: Row } return { " + VALUES["conditions of case"] + " }",  # its name is its text
]


def from_deep(work: Callable[[], Any], frames: int = 150) -> Any:
    return from_deep(work, frames - 1) if frames else work()


@pytest.mark.parametrize("body", BODIES, ids=range(len(BODIES)))
def test_what_is_allowed_runs_from_a_deep_stack(body: str, memory_snapshot: Callable[..., Any]) -> None:
    text = f"query q() {{ {body} }}"
    compiled = from_deep(lambda: compile_query(text, CATALOG))
    assert from_deep(lambda: lint_queries(text, CATALOG)).ok
    snapshot = memory_snapshot(CATALOG, ROWS)
    for settings in (None, None, ReadSettings(traversal_mode="scan")):  # the first time, bound, and in steps
        from_deep(lambda chosen=settings: read.execute(compiled, snapshot, {}, settings=chosen))
    from_deep(lambda: read.explain(compiled, snapshot, {}))


def test_mutations_run_from_a_deep_stack(tmp_path: Path) -> None:
    graph = omnigraph.init(tmp_path / "g", schema="node Row { name: String @key  small: I64?  ok: Bool }")
    for name, value in VALUES.items():
        stored, given = value.replace("$r.", ""), value.replace("$r.small", "$n")
        condition = "small + " * 198 + "1 > 0" if name == "chain" else f"{stored} > 0"
        for text in (
            f'query q($n: I64) {{ insert Row {{ name: "a", ok: true, small: {given} }} }}',
            f'query q($n: I64) {{ update Row set {{ small: {stored} }} where name = "a" and {condition} }}',
            f"query q($n: I64) {{ delete Row where {condition} }}",
        ):
            from_deep(lambda text=text: graph.mutate(text, {"n": 1}))


@pytest.mark.parametrize("name", ["chain", "brackets", "values of case", "else of case", "arguments"])
def test_what_is_allowed_is_formatted_from_a_deep_stack(name: str) -> None:
    text = f"query q() {{ match {{ $r: Row }} return {{ {VALUES[name]} as v }} }}"
    written = from_deep(lambda: format_queries(text))
    assert format_queries(written) == written


def test_a_layout_longer_than_a_text_may_be_is_refused() -> None:
    values = ", ".join(f"{VALUES['brackets']} as v{i}" for i in range(3))
    with pytest.raises(BadRequest, match="nested too deep to be formatted") as caught:
        format_queries(f"query q() {{ match {{ $r: Row }} return {{ {values} }} }}")
    assert not isinstance(caught.value, LanguageError)


@pytest.mark.parametrize(
    "test",
    [
        nest(CASE, " end", 246, "$r.ok"),
        nest("case when true then false else ", " end", 600, "$r.ok"),
        nest("case /* when */ when true then ", " end", 110, "$r.ok"),
        nest("not " * 40 + "($r.ok and ", ")", 50, "$r.ok"),
        nest("(true or true and 1 < 1 + 1 * case when ", " then 1 end)", 47, "$r.ok"),
        nest("1 < 1 + count { $x: Row ", " }", 90, "$r.ok"),
        nest("1 < count { $x: Row ", " }" + " + 1" * 100, 3, "$r.ok"),
        f"{MOST} + 1 > 0",
    ],
)
def test_what_is_deeper_is_refused(test: str) -> None:
    texts = [f"query q() {{ match {{ $r: Row {test} }} return {{ $r.name }} }}"]
    if "{" not in test:
        texts += [
            f"query q() {{ match {{ $r: Row }} return {{ $r.name as n, {test} as v }} }}",
            f"query q() {{ match {{ $r: Row }} return {{ $r.name }} order {{ {test} }} }}",
            f"query q() {{ update Row set {{ ok: false }} where {test.replace('$r.', '')} }}",
            f"query q() {{ delete Row where {test.replace('$r.', '')} }}",
        ]
    for text in texts:
        with pytest.raises(LanguageError) as caught:
            compile_query(text, CATALOG)
        assert caught.value.code == "Q000"
        assert not lint_queries(text, CATALOG).ok


def test_many_cases_side_by_side_are_no_nesting(memory_snapshot: Callable[..., Any]) -> None:
    value = " + ".join(["case when $r.ok then 1 else 0 end"] * 150)
    compiled = compile_query(f"query q() {{ match {{ $r: Row }} return {{ {value} as v }} }}", CATALOG)
    assert read.execute(compiled, memory_snapshot(CATALOG, ROWS), {}).to_pylist() == [{"v": 150}]


def test_case_and_end_as_names_are_no_nesting() -> None:
    schema = " ".join(f"node N{i} {{ case: String  end: String  when: String }}" for i in range(120))
    catalog = compile_schema(schema)
    clauses = " ".join(f"$n{i}: N{i} {{ case: $s, end: $s }}  $n{i}.case = $n{i}.end" for i in range(120))
    body = f"match {{ {clauses} }} return {{ $n0.case as end, $n1.end as case }}"
    compile_query(f"query case($s: String) {{ {body} }}", catalog)


def test_nothing_is_shown_of_a_query_that_does_not_fail(
    memory_snapshot: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    match = f"$r: Row $r.small + 1 > 0  $r link{{1,2}} $x  {MOST.removesuffix('+$r.small')} = $x.small"
    compiled = compile_query(f"query q() {{ match {{ {match} }} return {{ {MOST} as v }} }}", CATALOG)
    calls: list[object] = []
    monkeypatch.setattr(shown, "_show", lambda expr, deep: calls.append(expr) or "shown")
    snapshot = memory_snapshot(CATALOG, ROWS)
    for settings in (None, None, ReadSettings(traversal_mode="scan")):
        read.execute(compiled, snapshot, {}, settings=settings)
    assert calls == []
    assert "shown" in read.explain(compiled, snapshot, {})


def test_an_error_shows_no_more_of_an_expression_than_is_read(memory_snapshot: Callable[..., Any]) -> None:
    summed = " + ".join(["$r.small * 3"] * 150)
    text = f"query q() {{ match {{ $r: Row }} return {{ ({summed}) * 9000000000000000000 as v }} }}"
    with pytest.raises(BadRequest, match="leaves the range") as caught:
        read.execute(compile_query(text, CATALOG), memory_snapshot(CATALOG, ROWS), {})
    assert "…" in str(caught.value)
    assert "* 9000000000000000000`" in str(caught.value)
    assert len(str(caught.value)) < 1200
