"""The tables of the expression language against their cases and their page, and random expressions."""

from __future__ import annotations

import re
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.codes import CODES
from omnigraph.errors import Diagnostic, LanguageError
from omnigraph.query import compile_queries
from omnigraph.query.aggregates import AGGREGATES
from omnigraph.query.functions import FUNCTIONS
from omnigraph.query.ir import Agg, Aggregate, Call, CompiledQuery, Expr, Project
from omnigraph.query.ranking import RANKINGS, SEARCHES
from omnigraph.schema import compile_schema
from tests.engine.lang.cases import FOLDER, read_cases

SOCIAL = compile_schema((FOLDER / "query" / "social.pg").read_text(encoding="utf-8"))
PAGES = Path(__file__).parents[3] / "docs" / "language"


def test_every_function_has_a_case_of_its_types_and_one_of_what_it_refuses() -> None:
    titles = {c.title for c in read_cases("query") if c.path.stem == "functions"}
    accepted = {m[1] for t in titles if (m := re.fullmatch(r"(?:T32 )?(\w+): its types, null for null", t))}
    refused = {m[1] for t in titles if (m := re.fullmatch(r"(\w+) of what it doesn't take", t))}
    assert accepted == refused == set(FUNCTIONS)


def test_every_function_stands_in_the_reference() -> None:
    text = "".join((PAGES / page).read_text(encoding="utf-8") for page in ("functions.md", "query.md"))
    names = {*FUNCTIONS, *AGGREGATES, *RANKINGS, *SEARCHES, "nodes", "edges", "date", "datetime"}
    assert [name for name in sorted(names) if f"{name}(" not in text] == []


# ---- random expressions ----

LEAVES = [
    *("$p.name", "$p.email", "$p.age", "$p.score", "$p.born", "$p.seen", "$p.active", "$p.status", "$p.tags", "$p.vec"),
    *("$p.photo", "$m.likes", "$p", "$s", "$i", "$u", "$d", "$t", "$l", "$b", "$zz", "$p.zz"),
    *("1", "0", "-3", "2.5", "18446744073709551615", '"active"', '"x"', "true", "null", "[]", "[1, 2]", '["a", null]'),
    *('date("2026-01-31")', 'datetime("2026-01-31T00:00:00Z")', "now()"),
]
OPERATORS = ["+", "-", "*", "/", "=", "!=", "<", ">=", "in", "not in", "contains", "starts_with", "and", "or"]
NAMES = sorted({*FUNCTIONS, *AGGREGATES, *RANKINGS, *SEARCHES, "nodes", "zzz"})


def grown(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    arguments = st.lists(inner, max_size=3).map(", ".join)
    return st.one_of(
        st.tuples(inner, st.sampled_from(OPERATORS), inner).map(lambda t: f"({t[0]} {t[1]} {t[2]})"),
        st.tuples(st.sampled_from(NAMES), arguments).map(lambda t: f"{t[0]}({t[1]})"),
        inner.map(lambda e: f"(not {e})"),
        inner.map(lambda e: f"(-{e})"),
        inner.map(lambda e: f"({e} is null)"),
        inner.map(lambda e: f"count(distinct {e})"),
        st.tuples(inner, inner, inner).map(lambda t: f"case when {t[0]} then {t[1]} else {t[2]} end"),
        st.lists(inner, min_size=1, max_size=3).map(lambda items: f"[{', '.join(items)}]"),
    )


ANYTHING = st.recursive(st.sampled_from(LEAVES), grown, max_leaves=8)

# Those of a type, which mostly compile: `N`, `T`, `B`, `D` and `L` in a form stand for one of that type.
FORMS = {
    "N": """$p.age | $p.score | $i | 2 | 1.5 | (N + N) | (N / N) | (-N) | mod(N, N) | abs(N) | round(N) | length(T)
        | length(L) | to_int(T) | to_float(N) | year(D) | days_between(D, D) | coalesce(N, N)
        | case when B then N else N end | case when B then N end""",
    "T": """$p.name | $p.email | $s | "x" | $p.status | lower(T) | trim(T) | replace(T, "a", T) | to_string(N)
        | to_string(D) | substring(T, 0, length(T)) | coalesce(T, null, T) | case when B then T when B then T end""",
    "B": """$p.active | $b | true | (N < N) | (N = N) | (T != T) | (D >= D) | (T contains T) | (T in L) | (not B)
        | (B and B) | (B or B) | (T is null) | (N is not null) | starts_with(T, T) | matches(T, "a+") | (L contains T)
        | (T not in [T, T]) | exists { $p knows $q $q.age > 3 }""",
    "D": """$p.born | $d | date("2026-01-31") | add_days(D, length(T)) | add_months(D, 2) | date_trunc("month", D)""",
    "L": """$p.tags | $l | ["a", "b"] | [T, T] | split(T, ",") | coalesce(L, L) | []""",
}
_HOLE = re.compile(r"\b[NTBDL]\b")


@st.composite
def of_a_type(draw: st.DrawFn) -> str:
    text = draw(st.sampled_from("NTBDL"))
    for step in range(60):
        hole = _HOLE.search(text)
        if hole is None:
            return text
        forms = [form.strip() for form in FORMS[hole[0]].split("|")]
        plain = [form for form in forms if not _HOLE.search(form)]
        text = text[: hole.start()] + draw(st.sampled_from(forms if step < 12 else plain)) + text[hole.end() :]
    return _HOLE.sub("null", text)


EXPRESSIONS = st.one_of(ANYTHING, of_a_type())
HEAD = "query a($s: String, $i: I32, $u: U64, $d: Date, $t: DateTime?, $l: [String], $b: Bool?)"


def unlike(expr: Expr) -> list[Expr]:
    """Calls whose result can't be null though an operand can, and that aren't among those made for it."""
    inner = expr.args if isinstance(expr, Call) else (expr.arg,) if isinstance(expr, Agg) and expr.arg else ()
    found = [e for part in inner for e in unlike(part)]
    made_for_null = ("is_null", "coalesce", "case", "list", "bm25", "rrf", "in")
    if isinstance(expr, Call) and expr.fn not in made_for_null:
        maybe = any(a.type.nullable for a in expr.args)
        found += [expr] if maybe != expr.type.nullable else []
    return found


def compile_or_refuse(query: str) -> tuple[tuple[Diagnostic, ...], CompiledQuery | None]:
    try:
        return (), compile_queries(query, SOCIAL)["a"]
    except LanguageError as error:
        return error.diagnostics, None


@settings(max_examples=250, deadline=10_000)
@given(EXPRESSIONS)
def test_any_expression_has_a_type_or_is_refused_with_a_code(text: str) -> None:
    query = f"{HEAD} {{ match {{ $p: Person $m: Memo }} return {{ {text} as x }} }}"
    found, compiled = compile_or_refuse(query)
    assert {d.code for d in found} <= CODES.keys()
    assert all(d.span is not None and d.span.start < d.span.end <= len(query) for d in found)
    if compiled is None:
        return
    (output,) = (o for o in compiled.operators if isinstance(o, (Project, Aggregate)))
    assert [found for _, e in output.columns for found in unlike(e)] == []


@settings(max_examples=100, deadline=10_000)
@given(EXPRESSIONS)
def test_an_expression_means_the_same_in_a_filter_and_in_a_mutation(text: str) -> None:
    bare = re.sub(r"\$p\.(\w+)", r"\1", text)
    if "$p" in bare or "$m" in bare:
        return
    queries = (
        f"{HEAD} {{ match {{ $p: Person ({text}) }} return {{ 1 as x }} }}",
        f"{HEAD} {{ delete Person where ({bare}) }}",
    )
    a, b = ([d.code for d in compile_or_refuse(query)[0]] for query in queries)
    # What may stand where differs: names, Blobs, text search and rankings have codes of their own in a mutation.
    if not {*a, *b} & {"T6", "T11", "T14", "T15", "T19", "T20", "T21", "T24"}:
        assert a == b
