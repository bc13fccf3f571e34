"""The cases of tests/data/lang/query, and properties that hold for any text."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.errors import LanguageError
from omnigraph.query import compile_queries
from omnigraph.query.ir import (
    Agg,
    Aggregate,
    AntiJoin,
    Call,
    Column,
    CompiledQuery,
    Delete,
    Distinct,
    Expand,
    Expr,
    Filter,
    InsertEdge,
    InsertNode,
    Limit,
    Lit,
    NodeScan,
    Operator,
    Optional,
    Order,
    Param,
    Project,
    Prop,
    Shortest,
    SubMatch,
    UpdateNode,
    Var,
)
from omnigraph.schema import compile_schema

FOLDER = Path(__file__).parents[2] / "data" / "lang" / "query"
SOCIAL = compile_schema((FOLDER / "social.pg").read_text(encoding="utf-8"))


def read_cases(folder: Path) -> list[tuple[str, str, list[str]]]:
    out = []
    for path in sorted(folder.glob("*.txt")):
        for part in re.split(r"(?m)^=== ", path.read_text(encoding="utf-8"))[1:]:
            title, _, rest = part.partition("\n")
            text, _, expected = rest.partition("\n---\n")
            out.append((f"{path.stem}: {title}", text, expected.strip().splitlines()))
    return out


def show(e: Expr | None) -> str:
    match e:
        case Lit(value, type_):
            return f"{value!r}:{type_}"
        case Param(name, _):
            return f"${name}"
        case Var(name, _):
            return name
        case Prop(var, name, _):
            return f"{var}.{name}" if var else name
        case Agg(fn, arg, type_, distinct):
            return f"{fn}({'distinct ' if distinct else ''}{show(arg)}):{type_}"
        case Column(name, _):
            return f"[{name}]"
        case Call(fn, args, _):
            return f"({' '.join([fn, *map(show, args)])})"
        case SubMatch(fn, inner, outer, _):
            steps = "; ".join(line.strip() for op in inner for line in operator_lines(op))
            return f"({fn} using {' '.join(outer) or 'nothing'}: {steps})"
        case _:
            return "-"


def where(e: Expr | None) -> str:
    return f" where {show(e)}" if e is not None else ""


def walk_line(op: Expand | Shortest) -> str:
    hops = "" if (op.min, op.max) == (1, 1) else f"{{{op.min},{op.max}}}"
    ways = "|".join(f"{way.direction} {way.edge}" for way in op.ways)
    tail = (" bound" if op.target_bound else "") + where(op.where)
    if isinstance(op, Shortest):
        start = f"shortest {op.path} ="
    else:
        start = "expand"
        tail += f" edge{where(op.edge_where)}" if op.edge_where else ""
        if op.edge_var:
            ways = ways.replace(" ", f" {op.edge_var}:", 1)
    tail += f" hop{where(op.hop_where)}" if op.hop_where else ""
    return f"{start} {op.source} {ways}{hops} {op.target}: {op.target_node}{tail}"


def operator_lines(op: Operator, indent: str = "") -> list[str]:
    match op:
        case NodeScan(var, node, condition):
            return [f"{indent}scan {var}: {node}{where(condition)}"]
        case Expand() | Shortest():
            return [f"{indent}{walk_line(op)}"]
        case Filter(predicate):
            return [f"{indent}filter {show(predicate)}"]
        case AntiJoin(inner, outer):
            lines = [x for i in inner for x in operator_lines(i, indent + "  ")]
            return [f"{indent}not using {' '.join(outer)}", *lines]
        case Optional(inner, outer, binds):
            lines = [x for i in inner for x in operator_lines(i, indent + "  ")]
            return [f"{indent}optional {' '.join(binds)} using {' '.join(outer) or 'nothing'}", *lines]
        case Distinct():
            return [f"{indent}distinct"]
        case Project(columns):
            return [f"{indent}project {', '.join(f'{n} = {show(e)}' for n, e in columns)}"]
        case Aggregate(keys, columns):
            by = f" by {', '.join(n for n, _ in keys)}" if keys else ""
            return [f"{indent}aggregate {', '.join(f'{n} = {show(e)}' for n, e in columns)}{by}"]
        case Order(keys, ties):
            shown = ", ".join(show(k.expr) + (" desc" if k.descending else "") for k in keys)
            return [f"{indent}order {shown}" + (f" ties {' '.join(ties)}" if ties else "")]
        case Limit(count, skip):
            amounts = [show(x) if isinstance(x, Param) else str(x) for x in (count, skip)]
            return [f"{indent}limit {amounts[0]} skip {amounts[1]}"]
    raise AssertionError(op)


def summary(query: CompiledQuery) -> list[str]:
    lines = [line for op in query.operators for line in operator_lines(op)]
    for s in query.statements:
        match s:
            case InsertNode(node, values):
                lines.append(f"insert {node} {', '.join(f'{n} = {show(e)}' for n, e in values)}".rstrip())
            case InsertEdge(edge, source, target, values):
                given = "".join(f", {n} = {show(e)}" for n, e in values)
                lines.append(f"insert {edge} {show(source)} -> {show(target)}{given}")
            case UpdateNode(node, values, condition):
                lines.append(f"update {node} {', '.join(f'{n} = {show(e)}' for n, e in values)}{where(condition)}")
            case Delete(kind, type_, condition):
                lines.append(f"delete {kind} {type_}{where(condition)}")
    if query.columns:
        lines.append("-> " + ", ".join(f"{c.name}: {c.type}" for c in query.columns))
    return lines


@pytest.mark.parametrize(("text", "expected"), [pytest.param(t, e, id=i) for i, t, e in read_cases(FOLDER)])
def test_query_case(text: str, expected: list[str]) -> None:
    try:
        queries = compile_queries(text, SOCIAL)
    except LanguageError as error:
        diagnostics = error.diagnostics
    else:
        assert [line for q in queries.values() for line in summary(q)] == ([] if expected == ["ok"] else expected)
        return
    refusals = [line.split(" ", 2) for line in expected]
    got = [f"{d.code} {d.span.line}:{d.span.column}" if d.span else d.code for d in diagnostics]
    assert [" ".join(line[:2]) for line in refusals] == got
    for diagnostic, line in zip(diagnostics, refusals, strict=True):
        assert "".join(line[2:]) in f"{diagnostic.message} {diagnostic.hint}"


BUILT = {f"T{i}" for i in range(1, 17)} | {"T22", "T23", "T24", "T30", "T32", "T33", "Q000", "Q001"}


def test_every_code_has_a_refused_case() -> None:
    seen = {e.split(" ")[0] for _, _, expected in read_cases(FOLDER) for e in expected if re.match(r"[TQ]\d+ ", e)}
    assert seen == BUILT


# ---- properties ----

WORDS = st.sampled_from(
    [
        *[
            "query",
            "match",
            "return",
            "order",
            "limit",
            "skip",
            "insert",
            "update",
            "delete",
            "set",
            "where",
            "not",
            "and",
            "or",
            "in",
            "is",
            "null",
            "as",
            "desc",
        ],
        *[
            "distinct",
            "optional",
            "exists",
            "case",
            "when",
            "then",
            "else",
            "end",
            "count",
            "sum",
            "knows",
            "worksAt",
            "name",
            "age",
            "slug",
            "Person",
            "Company",
        ],
        *[
            "Knows",
            "$p",
            "$q",
            "$x",
            "$w",
            "{",
            "}",
            "(",
            ")",
            "[",
            "]",
            ",",
            ":",
            ".",
            "=",
            "!=",
            ">",
            "<=",
            "*",
            "+",
            "-",
            "/",
            "|",
            "<",
            ">",
            "{1,3}",
            "1",
            "2.5",
            "true",
            "date",
            "now",
            "shortest",
        ],
        *["contains", "starts_with", "$p.name", "$p.age", "@description", "//", "/*", "*/"],
        *('"a"', '"active"', 'date("2026-01-31")', '"', "\\", "\x00", "\r\n", "é", "\u2028", "\ud800"),
    ]
)


def refusal(text: str) -> str | None:
    try:
        compile_queries(text, SOCIAL)
    except LanguageError as error:
        return str(error)
    return None


@settings(max_examples=300, deadline=2000)
@given(st.one_of(st.text(), st.lists(WORDS, max_size=40).map(" ".join)))
def test_any_text_compiles_or_is_refused(text: str) -> None:
    for whole in (text, f"query a($x: String) {{ match {{ $p: Person {text} }} return {{ $p }} }}"):
        said = refusal(whole)
        assert said is None or said.startswith("<query>:")


@settings(max_examples=40, deadline=2000)
@given(st.sampled_from(["(", "[", "not ", "not {", "{", "-", "case when ", "a("]), st.integers(90, 50_000))
def test_deep_nesting_is_refused(piece: str, times: int) -> None:
    text = f"query a() {{ match {{ $p: Person $p.age = {piece * times} }} return {{ $p }} }}"
    with pytest.raises(LanguageError) as caught:
        compile_queries(text, SOCIAL)
    assert caught.value.code == "Q000"


def test_long_flat_text_is_no_nesting() -> None:
    ors = " or ".join(f"$p.age = {i}" for i in range(3000))
    compile_queries(f"query a() {{ match {{ $p: Person {ors} }} return {{ $p.slug }} }}", SOCIAL)


def test_line_ends_change_nothing() -> None:
    text = "query a() {\n  match { $p: Person\n $p.age > 3 }\n  return { $p.slug }\n}\n"
    plain, windows = (compile_queries(t, SOCIAL)["a"] for t in (text, text.replace("\n", "\r\n")))
    assert plain.operators == windows.operators


@pytest.mark.parametrize("piece", ["(", "query ", "query a() { ", "/ ", "/*", '"', "a", "$p ", "\n", "query a() {\n"])
def test_long_texts_are_refused_soon(piece: str) -> None:
    start = time.process_time()
    assert refusal(piece * (240_000 // len(piece)) + "§") is not None
    assert time.process_time() - start < 5  # a second on a machine that does nothing else
    assert "longer than" in (refusal(piece * 300_000) or "")
