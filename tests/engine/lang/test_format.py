"""The formatter keeps what a text says and every comment, and is done after one run, whatever the text."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from omnigraph.errors import BadRequest, LanguageError
from omnigraph.query import compile_queries, format_queries
from omnigraph.query.format import _QueryPrinter
from omnigraph.query.parser import GRAMMAR as QUERY
from omnigraph.query.parser import parse_queries
from omnigraph.schema import compile_schema, format_schema
from omnigraph.schema.concrete import leaves, read_tree
from omnigraph.schema.format import _SchemaPrinter
from omnigraph.schema.grammar import Grammar
from omnigraph.schema.layout import WIDTH
from omnigraph.schema.parser import GRAMMAR as SCHEMA
from omnigraph.schema.parser import parse_schema
from omnigraph.schema.printing import Printer
from omnigraph.schema.source import SourceText
from tests.engine.lang.cases import read_cases
from tests.engine.lang.printing import query_lines
from tests.engine.lang.trees import query_texts, schema_texts
from tests.engine.lang.written import bare, write_queries, write_schema

Format = Callable[[str], str]
Parse = Callable[[SourceText], Any]
LANGUAGES: dict[str, tuple[Format, Parse, Grammar]] = {
    "schema": (format_schema, parse_schema, SCHEMA),
    "query": (format_queries, parse_queries, QUERY),
}
_COMMENT = re.compile(r'"(?:[^"\\]|\\.)*"|(//[^\n]*|/\*[\s\S]*?\*/)')
MODERATE = settings(max_examples=50, deadline=None, suppress_health_check=list(HealthCheck))


def comments(text: str) -> list[str]:
    """All comments of a text, without white space. One amid an expression may come before those of a block in it."""
    return sorted("".join(m[1].split()) for m in _COMMENT.finditer(text) if m[1])


def check(language: str, text: str) -> str:
    """Format a text and look at everything that must hold of any."""
    form, parse, _ = LANGUAGES[language]
    written = form(text)
    assert bare(parse(SourceText(written, "written"))) == bare(parse(SourceText(text, "text"))), written
    assert comments(written) == comments(text), written
    assert form(written) == written
    assert not re.search(r"[ \t\r]\n|\n\n\n|\A\n|\n\n\Z|\t(?!.*[\"/])", written), written
    assert written.endswith("\n") or not written
    return written


# ---- trees ----


@MODERATE
@given(schema_texts)
def test_a_schema_tree_is_read_back_as_written(tree: Any) -> None:
    text = write_schema(tree)
    assert bare(parse_schema(SourceText(text, "tree"))) == bare(tree), text
    check("schema", text)


@MODERATE
@given(query_texts)
def test_a_query_tree_is_read_back_as_written(tree: Any) -> None:
    text = write_queries(tree)
    assert bare(parse_queries(SourceText(text, "tree"))) == bare(tree), text
    check("query", text)


# ---- the same tokens, laid out anyhow ----

GAPS = [
    "",
    " ",
    " ",
    "\n",
    "\n  ",
    "\n\n\n",
    "\r\n",
    "\t",
    "COMMENT",
    "COMMENT\n",
    "\nCOMMENT\n",
    "\n\nCOMMENT\n\nCOMMENT",
]


def scattered(grammar: Grammar, text: str, seed: int, commented: float) -> str:
    """The tokens of a text with other white space between them, and comments."""
    chance = random.Random(seed)
    out: list[str] = []
    count = 0
    tokens = list(leaves(read_tree(grammar, SourceText(text, "scattered"))))
    for index, leaf in enumerate(tokens):
        piece = text[leaf.start_pos : leaf.end_pos]
        gap = chance.choice(GAPS)
        if "COMMENT" in gap and chance.random() > commented:
            gap = " "
        while "COMMENT" in gap:
            count += 1
            mark = chance.choice([f"//{count} \n", f"/*{count}*/", f"/* {count}\n  * and\n */", f"/*{count}\n more */"])
            gap = gap.replace("COMMENT", mark, 1)
        if not gap and index and re.search(r"[\w$\"]\Z", out[-1]) and re.match(r"[\w$\"-]", piece):
            gap = " "
        out += [gap, piece]
    return "".join(out)


def scatter_and_check(language: str, text: str, seed: int, commented: float) -> None:
    _, parse, grammar = LANGUAGES[language]
    messy = scattered(grammar, text, seed, commented)
    try:
        read = bare(parse(SourceText(messy, "messy")))
    except LanguageError:
        return  # a comment where a token looks ahead through it
    if read == bare(parse(SourceText(text, "text"))):
        check(language, messy)


@MODERATE
@given(schema_texts, st.integers(0, 2**32), st.sampled_from([0.0, 0.1, 1.0]))
def test_any_layout_of_a_schema(tree: Any, seed: int, commented: float) -> None:
    scatter_and_check("schema", write_schema(tree), seed, commented)


@MODERATE
@given(query_texts, st.integers(0, 2**32), st.sampled_from([0.0, 0.1, 1.0]))
def test_any_layout_of_a_query(tree: Any, seed: int, commented: float) -> None:
    scatter_and_check("query", write_queries(tree), seed, commented)


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_cases_in_any_layout(language: str) -> None:
    """Texts that people would write, each scattered in one way; most of them must still be read the same."""
    _, parse, grammar = LANGUAGES[language]
    texts = []
    for case in read_cases(language):
        try:
            parse(SourceText(case.text, "case"))
        except LanguageError:
            continue
        texts.append(case.text)
    assert len(texts) > 20
    read = 0
    for seed, text in enumerate(texts):
        check(language, text)
        messy = scattered(grammar, text, seed, (0.0, 0.15, 1.0)[seed % 3])
        try:
            same = bare(parse(SourceText(messy, "messy"))) == bare(parse(SourceText(text, "text")))
        except LanguageError:
            continue
        if same:
            read += 1
            check(language, messy)
    assert 3 * read > 2 * len(texts)


def test_formatting_changes_no_plan_and_no_name_of_a_column() -> None:
    """What the query cases compile to, before and after, and from a layout that nobody would choose."""
    compared = 0
    for seed, case in enumerate(read_cases("query")):
        try:
            catalog = compile_schema(case.schema)
            before = [line for q in compile_queries(case.text, catalog).values() for line in query_lines(q)]
        except LanguageError:
            continue
        messy = scattered(QUERY, case.text, seed, 0.0)
        for text in (case.text, messy)[: 1 + (seed % 3 == 0)]:
            after = [line for q in compile_queries(format_queries(text), catalog).values() for line in query_lines(q)]
            assert after == before, text
        compared += 1
    assert compared > 100


# ---- single rules ----


def test_ends_of_lines_and_marks() -> None:
    assert format_schema("\ufeffnode A {\r\n  a: I32 // x \r\n}\r\n") == "node A {\n  a: I32  // x\n}\n"
    assert format_schema("") == ""
    assert format_schema(" \n ") == ""
    assert format_schema("// x") == "// x\n"
    assert format_queries("\n\n/* a\r\n b */") == "/* a\n b */\n"


def test_numbers_texts_and_patterns_stay_as_written() -> None:
    member = r"""@check(a, "^\\d+\u0041\/$")  b: F64 @default(0.50)  c: F64 @default(-1e6)"""
    assert format_schema(f"node A {{ {member} }}") == f"node A {{ {member} }}\n"


@pytest.mark.parametrize("raw", ["\t", "\x00", "\x01", "\x0b", "\x1f", "\x7f"])
def test_a_raw_control_character_may_stand_beside_an_escape(raw: str) -> None:
    text = f'"{raw}\\n\\u0041"'
    for language, written in (
        ("schema", f"node A @description({text}) {{ a: String @default({text}) @check(a, {text}) }}"),
        ("query", f"query a() {{ match {{ $a: A {{ s: {text} }} }} return {{ {text} as b }} }}"),
        ("query", f"query a() {{ insert A {{ s: {text} }} }}"),
    ):
        _, parse, _ = LANGUAGES[language]
        assert repr(f"{raw}\nA") in repr(parse(SourceText(written, "text")))
        assert text in check(language, written)


def test_a_fault_is_said_with_its_place() -> None:
    with pytest.raises(LanguageError) as caught:
        format_queries("query a() {\n  match { $p Person }\n}", file="q.gq")
    assert caught.value.code == "Q000"
    assert str(caught.value).startswith("q.gq:2:")


def test_what_nests_too_deep_is_refused() -> None:
    deep = "(1 or 2 and not 3 = 4 + 5 * -" * 90
    with pytest.raises(BadRequest, match="nested too deep"):
        format_queries(f"query q() {{ match {{ {deep}1{')' * 90} }} return {{ $x }} }}")


def test_lines_are_as_long_as_they_may_be() -> None:
    def text(length: int) -> str:
        head = "query q() { delete A where a = "
        return f'{head}"{"x" * (length - len(head) - 4)}" }}\n'

    assert format_queries(text(WIDTH)) == text(WIDTH)
    assert len(format_queries(text(WIDTH + 1)).splitlines()) == 3


@pytest.mark.parametrize(("grammar", "printer"), [(SCHEMA, _SchemaPrinter), (QUERY, _QueryPrinter)])
def test_every_rule_of_a_grammar_can_be_printed(grammar: Grammar, printer: type[Printer]) -> None:
    rules = {str(rule.origin.name) for rule in grammar.parser.rules}
    missing = {
        name for name in rules if not name.startswith("_") and name != "start" and not hasattr(printer, f"rule_{name}")
    }
    # Rules of which nothing remains but what they hold.
    inlined = {str(r.origin.name) for r in grammar.parser.rules if r.options.expand1}
    assert missing - inlined == set()


def test_a_formatter_that_would_change_the_meaning_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_QueryPrinter, "spelled", lambda self, leaf: leaf.text.replace("1", "2"))
    with pytest.raises(Exception, match="would change what it says"):
        format_queries("query q() { delete A where a = 1 }")


def test_long_texts_take_no_recursion() -> None:
    ors = " or ".join(f"$p.age = {i}" for i in range(3000))
    written = format_queries(f"query a() {{ match {{ {ors} }} return {{ $p.slug }} }}")
    assert len(written.splitlines()) > 3000
