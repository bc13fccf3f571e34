"""Any text at all gives a result or a refusal, soon: random texts, words of the languages, and real texts damaged."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.errors import LanguageError
from omnigraph.query import compile_queries
from omnigraph.query.lint import lint_queries, lint_schema
from omnigraph.schema import compile_schema
from tests.engine.lang.cases import FOLDER, read_cases

SOCIAL = compile_schema((FOLDER / "query" / "social.pg").read_text(encoding="utf-8"))


def listed(text: str) -> list[str]:
    return text.split()


SIGNS = listed('( ) { } [ ] , : . = != < > <= >= * + - / | -> ? .. ? @ " \\ // /* */ {1,3} $ ;')
ODD = ["\x00", "\r\n", "\r", "é", "\u2028", "\u202e", "\ud800", "\ufeff", "𝒳", "e\u0301", "\x1b[31m", "\t"]
QUERY_WORDS = listed("""
query match return order limit skip insert update delete set where not and or in is null as desc distinct optional
exists case when then else end count sum collect lower coalesce date_trunc nearest bm25 rrf search fuzzy match_text
contains starts_with shortest date now true false knows worksAt name age slug Person Company Knows $p $q $x $w $p.name
$p.age $q.vec @description "a" "active" date("2026-01-31") 1 2.5 99999999999999999999
""")
SCHEMA_WORDS = listed("""
node edge interface implements Person A I32 String Vector Blob enum @key @unique @index @range @check @card @default
@embed @rename_from 1 -2.5 "x" "(" name id src true null date("2020-01-01")
""")


def words(own: list[str]) -> st.SearchStrategy[str]:
    return st.lists(st.sampled_from([*own, *SIGNS, *ODD]), max_size=40).map(" ".join)


@st.composite
def damaged(draw: st.DrawFn, texts: list[str], own: list[str]) -> str:
    """A real text in which stretches are cut out, doubled or replaced."""
    text = draw(st.sampled_from(texts))
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(text)))
        end = min(len(text), start + draw(st.integers(0, 12)))
        text = text[:start] + draw(st.sampled_from(["", text[start:end] * 2, *own, *SIGNS, *ODD])) + text[end:]
    return text


def refusal(compile: Callable[[], object]) -> str | None:
    """The refusal's words. Anything else that goes wrong fails the test."""
    try:
        compile()
    except LanguageError as error:
        starts = [d.span.start for d in error.diagnostics if d.span]
        said = str(error)
    else:
        return None
    assert starts, "a refusal says where"
    assert starts == sorted(starts), "findings come in the text's order"
    return said


def query(text: str) -> str | None:
    said = refusal(lambda: compile_queries(text, SOCIAL))
    assert said is None or said.startswith("<query>:")
    report = lint_queries(text, SOCIAL)
    assert report.ok == (said is None), "lint and the compiler refuse the same texts"
    json.dumps(report.as_dict())
    assert lint_queries(text, None).ok or said is not None
    return said


def schema(text: str) -> str | None:
    said = refusal(lambda: compile_schema(text))
    assert said is None or said.startswith("schema.pg:")
    assert lint_schema(text).ok == (said is None)
    return said


QUERIES = [case.text for case in read_cases("query")]
SCHEMAS = [case.text for case in read_cases("schema")]


@settings(max_examples=200, deadline=10_000)
@given(st.one_of(st.text(), words(QUERY_WORDS)))
def test_any_query_text(text: str) -> None:
    query(text)
    query(f"query a($x: String) {{ match {{ $p: Person {text} }} return {{ $p }} }}")


@settings(max_examples=300, deadline=10_000)
@given(damaged(QUERIES, QUERY_WORDS))
def test_damaged_queries(text: str) -> None:
    query(text)


@settings(max_examples=200, deadline=10_000)
@given(st.one_of(st.text(), words(SCHEMA_WORDS)))
def test_any_schema_text(text: str) -> None:
    schema(text)
    schema(f"node Person {{ name: String {text} }}")


@settings(max_examples=200, deadline=10_000)
@given(damaged(SCHEMAS, SCHEMA_WORDS))
def test_damaged_schemas(text: str) -> None:
    schema(text)


@settings(max_examples=40, deadline=10_000)
@given(st.sampled_from(["(", "[", "not ", "not {", "{", "-", "case when ", "a("]), st.integers(90, 50_000))
def test_deep_nesting_is_refused(piece: str, times: int) -> None:
    text = f"query a() {{ match {{ $p: Person $p.age = {piece * times} }} return {{ $p }} }}"
    with pytest.raises(LanguageError) as caught:
        compile_queries(text, SOCIAL)
    assert caught.value.code == "Q000"


def test_long_flat_text_is_no_nesting() -> None:
    ors = " or ".join(f"$p.age = {i}" for i in range(3000))
    compile_queries(f"query a() {{ match {{ $p: Person {ors} }} return {{ $p.slug }} }}", SOCIAL)


@pytest.mark.parametrize("text", [r'"\ud800"', '"\t\\udfff"'])
def test_half_a_surrogate_pair_is_no_text(text: str) -> None:
    assert "half of a surrogate pair" in (
        query(f"query a() {{ match {{ $p: Person }} return {{ {text} as b }} }}") or ""
    )
    assert "half of a surrogate pair" in (schema(f"node A @description({text}) {{ a: String }}") or "")


def test_line_ends_change_nothing() -> None:
    text = "query a() {\n  match { $p: Person\n $p.age > 3 }\n  return { $p.slug }\n}\n"
    plain, windows = (compile_queries(t, SOCIAL)["a"] for t in (text, text.replace("\n", "\r\n")))
    assert plain.operators == windows.operators


@pytest.mark.parametrize("piece", ["(", "query ", "query a() { ", "/ ", "/*", '"', "a", "$p ", "\n", "query a() {\n"])
def test_long_texts_are_refused_soon(piece: str) -> None:
    start = time.process_time()
    assert query(piece * (75_000 // len(piece)) + "§") is not None
    assert time.process_time() - start < 5  # a second on a machine that does nothing else
    assert "longer than" in (query(piece * 300_000) or "")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "query a() { match { " + " ".join(f"$v{i}: Person" for i in range(600)) + " } return { $v1 } }",
            "500 clauses",
        ),
        (
            "query a() { match { $p: Person } return { " + ", ".join(f"{i} as c{i}" for i in range(1100)) + " } }",
            "1000 columns",
        ),
        ("query a() { " + 'insert Memo { text: "x" } ' * 2100 + "}", "2000 statements"),
    ],
)
def test_more_than_compiles_in_good_time_is_refused(text: str, words: str) -> None:
    assert f"more than {words} in one query" in (query(text) or "")


def test_many_unknown_names_among_many_known_take_no_time() -> None:
    properties = " ".join(f"p{i}: I32 @index(q{i})" for i in range(3000))
    start = time.process_time()
    assert "S05" in (schema(f"node A {{ {properties} }}") or "")
    assert time.process_time() - start < 5


def test_interfaces_multiply_properties_up_to_a_bound() -> None:
    interface = "interface I { " + " ".join(f"p{i}: I32" for i in range(1000)) + " } "
    nodes = [f"node A{i} implements I {{}} " for i in range(102)]
    said = schema(interface + "".join(nodes)) or ""
    assert said.count("S00 more than 100000 properties by interfaces") == 1
    assert schema(interface + "".join(nodes[:100])) is None
