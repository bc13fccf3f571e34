"""The cases of tests/data/lang, section by section; see its README.

After a change on purpose `OMNIGRAPH_UPDATE_CASES=1 pytest tests/engine/lang/test_cases.py` writes the sections anew:
read the difference before committing it.
"""

from __future__ import annotations

import functools
import os
import re

import pytest

from omnigraph.errors import Diagnostic, LanguageError
from omnigraph.query import compile_queries
from omnigraph.query.parser import parse_queries
from omnigraph.schema import Catalog, compile_schema
from omnigraph.schema.parser import parse_schema
from omnigraph.schema.source import SourceText
from tests.engine.lang.cases import Case, read_cases, write_section
from tests.engine.lang.printing import diagnostic_line, dump, query_lines, schema_lines, span_lines

UPDATE = bool(os.environ.get("OMNIGRAPH_UPDATE_CASES"))
CASES = read_cases()
_REFUSAL = re.compile(r"\s*(?:[A-Z]\d+|OG-[A-Z]+-\d+) \d+:\d+\b")


@functools.cache
def catalog_of(schema: str) -> Catalog:
    return compile_schema(schema)


def refusals(diagnostics: tuple[Diagnostic, ...]) -> list[str]:
    return [diagnostic_line(d) for d in diagnostics]


# ---- what a section is about: one function each, from the case to its lines ----


def plain(case: Case) -> list[str]:
    if case.language == "schema":
        return schema_lines(compile_schema(case.text))
    queries = compile_queries(case.text, catalog_of(case.schema))
    return [line for q in queries.values() for line in query_lines(q)]


def ast(case: Case) -> list[str]:
    source = SourceText(case.text, "case")
    tree = parse_schema(source).declarations if case.language == "schema" else parse_queries(source).queries
    return [line for node in tree for line in dump(node)]


def spans(case: Case) -> list[str]:
    source = SourceText(case.text, "case")
    tree = parse_schema(source).declarations if case.language == "schema" else parse_queries(source).queries
    return [line for node in tree for line in span_lines(node, case.text, source.position)]


def ir(case: Case) -> list[str]:
    if case.language == "schema":
        from omnigraph.schema import ir_of

        return ir_of(compile_schema(case.text)).canonical().splitlines()
    return [line for q in compile_queries(case.text, catalog_of(case.schema)).values() for line in dump(q)]


def plan(case: Case) -> list[str]:
    from omnigraph.schema import ir_of, plan_migration

    before, _, after = case.text.partition("\n--- to\n")
    planned = plan_migration(ir_of(compile_schema(before)), compile_schema(after))
    lines = [str(step) for step in planned.steps]
    return lines if planned.supported else [*lines, "not supported"]


def lint(case: Case) -> list[str]:
    from omnigraph.query.lint import lint_queries, lint_schema

    if case.language == "schema":
        return refusals(lint_schema(case.text).found)
    report = lint_queries(case.text, catalog_of(case.schema))
    lines: list[str] = []
    for query in report.queries:
        lines.append(f"{query.name}: {query.kind} {query.status}")
        lines += [
            f"  {name} {' '.join(sorted(t))}" for name, t in (("reads", query.reads), ("writes", query.writes)) if t
        ]
        lines += [f"  -> {c.name}: {c.type}" for c in query.columns]
        lines += [f"  {line}" for line in refusals((*query.errors, *query.warnings))]
    return lines + refusals(report.elsewhere)


def fmt(case: Case) -> list[str]:
    from omnigraph.query import format_queries
    from omnigraph.schema import format_schema

    written = format_schema(case.text) if case.language == "schema" else format_queries(case.text)
    again = format_schema(written) if case.language == "schema" else format_queries(written)
    assert again == written, "formatting again changes it"
    return written.rstrip().splitlines()


SECTIONS = {"": plain, "ast": ast, "spans": spans, "ir": ir, "plan": plan, "lint": lint, "fmt": fmt}


def agree(expected: list[str], got: list[str]) -> bool:
    """The same lines; of a refusal's words any stretch is enough."""
    return len(expected) == len(got) and all(map(_same, expected, got))


def _same(wanted: str, line: str) -> bool:
    ours, theirs = _REFUSAL.match(wanted), _REFUSAL.match(line)
    if ours is None or theirs is None:
        return wanted.rstrip() == line.rstrip()
    return ours.group() == theirs.group() and wanted[ours.end() :].strip() in line[theirs.end() :]


@pytest.mark.parametrize(
    ("case", "section"),
    [pytest.param(c, s, id=f"{c.id} [{s}]" if s else c.id) for c in CASES for s in c.sections if s != "schema"],
)
def test_case(case: Case, section: str) -> None:
    try:
        got = SECTIONS[section](case)
    except LanguageError as error:
        got = refusals(error.diagnostics)
    expected = case.sections[section].splitlines()
    if expected == ["ok"] and not any(map(_REFUSAL.match, got)):
        return
    if UPDATE and not agree(expected, got):
        write_section(case, section, "\n".join(got))
        return
    assert agree(expected, got), "\n".join([f"{case.path}: {case.title}", "this came of it:", *got])
