"""The lint report: what is wrong with schema and query texts, what is doubtful, and what each query gives and touches.

Pure: texts in, reports out. Errors are the compiler's own; warnings (L201 to L204) are judged here and in
`doubts`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from omnigraph.codes import CODES
from omnigraph.errors import Diagnostic, LanguageError, Span, render_diagnostic
from omnigraph.query import ast
from omnigraph.query.compile import CheckedQuery, check_text, in_order
from omnigraph.query.doubts import null_doubts, unused_parameters
from omnigraph.query.ir import ResultColumn
from omnigraph.query.parser import parse_each_query
from omnigraph.records import dataclass
from omnigraph.schema.catalog import Catalog
from omnigraph.schema.compile import compile_schema
from omnigraph.schema.source import SourceText

__all__ = ["LintReport", "QueryReport", "lint_queries", "lint_schema", "lint_texts"]

Status = Literal["ok", "warning", "error", "unchecked"]


@dataclass(frozen=True, slots=True)
class QueryReport:
    """One query. With errors, or where there is no schema to check against, it has no columns and no tables.

    `reads` and `writes` hold table keys (`node:Person`, `edge:Knows`).
    """

    name: str
    kind: Literal["read", "mutation"]
    span: Span
    errors: tuple[Diagnostic, ...] = ()
    warnings: tuple[Diagnostic, ...] = ()
    columns: tuple[ResultColumn, ...] = ()
    reads: frozenset[str] = frozenset()
    writes: frozenset[str] = frozenset()
    checked: bool = True

    @property
    def status(self) -> Status:
        if self.errors:
            return "error"
        if not self.checked:
            return "unchecked"
        return "warning" if self.warnings else "ok"

    def as_dict(self) -> dict[str, Any]:
        """Plain data, as `omnigraph lint --format json` writes it."""
        return {
            "name": self.name,
            "kind": self.kind,
            "status": self.status,
            "line": self.span.line,
            "column": self.span.column,
            "errors": [_finding(d) for d in self.errors],
            "warnings": [_finding(d) for d in self.warnings],
            "columns": [
                {"name": c.name, "kind": str(replace(c.type, nullable=False)), "nullable": c.type.nullable}
                for c in self.columns
            ],
            "reads": sorted(self.reads),
            "writes": sorted(self.writes),
        }


@dataclass(frozen=True, slots=True)
class LintReport:
    """One text. `elsewhere` holds what lies in no query that could be read: syntax errors, and all of a schema's.

    `catalog` is a sound schema's.
    """

    file: str
    language: Literal["schema", "query"]
    text: str
    queries: tuple[QueryReport, ...] = ()
    elsewhere: tuple[Diagnostic, ...] = ()
    catalog: Catalog | None = None

    @property
    def found(self) -> tuple[Diagnostic, ...]:
        """Everything, in the text's order."""
        own = (d for query in self.queries for d in (*query.errors, *query.warnings))
        return tuple(in_order([*self.elsewhere, *own]))

    @property
    def errors(self) -> tuple[Diagnostic, ...]:
        return tuple(d for d in self.found if d.severity == "error")

    @property
    def warnings(self) -> tuple[Diagnostic, ...]:
        return tuple(d for d in self.found if d.severity == "warning")

    @property
    def ok(self) -> bool:
        """No errors; there may be warnings."""
        return not self.errors

    def as_dict(self) -> dict[str, Any]:
        """Plain data, as `omnigraph lint --format json` writes it."""
        return {
            "file": self.file,
            "language": self.language,
            "ok": self.ok,
            "findings": [_finding(d) for d in self.found],
            "queries": [query.as_dict() for query in self.queries],
        }

    def __str__(self) -> str:
        """Each finding with its line and a caret."""
        return "\n".join(render_diagnostic(d, self.text, self.file) for d in self.found)


def _finding(d: Diagnostic) -> dict[str, Any]:
    return d.as_dict() | {"rule": CODES[d.code].meaning}


def lint_schema(text: str, *, file: str = "schema.pg") -> LintReport:
    """The report of a `.pg` text."""
    try:
        return LintReport(file, "schema", text, catalog=compile_schema(text, file=file))
    except LanguageError as error:
        return LintReport(file, "schema", text, elsewhere=error.diagnostics)


def lint_queries(text: str, catalog: Catalog | None, *, file: str = "<query>") -> LintReport:
    """The report of one `.gq` text; see `lint_texts`."""
    return lint_texts([SourceText(text, file)], catalog)[0]


def lint_texts(sources: Sequence[SourceText], catalog: Catalog | None) -> list[LintReport]:
    """The reports of several `.gq` texts that belong together: L201 looks at the updates of all of them.

    Args:
        sources: the texts.
        catalog: what to check against; without it only the syntax is.
    """
    if catalog is None:
        return [_syntax(source) for source in sources]
    checked = [check_text(source, catalog) for source in sources]
    queries = [(source, query) for source, (own, _) in zip(sources, checked, strict=True) for query in own]
    never_set = _never_set(queries, catalog)
    reports: list[LintReport] = []
    for source, (own, syntax) in zip(sources, checked, strict=True):
        judged = tuple(_report(query, source, catalog, never_set) for query in own)
        reports.append(LintReport(source.file, "query", source.text, judged, tuple(syntax)))
    return reports


def _syntax(source: SourceText) -> LintReport:
    nodes, syntax = parse_each_query(source)
    queries = tuple(
        QueryReport(node.name.text, _kind(node), source.span(*node.name.place), checked=False) for node in nodes
    )
    return LintReport(source.file, "query", source.text, queries, tuple(syntax))


def _kind(node: ast.QueryNode) -> Literal["read", "mutation"]:
    return "read" if isinstance(node.body, ast.ReadBody) else "mutation"


def _report(
    query: CheckedQuery, source: SourceText, catalog: Catalog, never_set: Mapping[int, list[Diagnostic]]
) -> QueryReport:
    compiled = query.compiled
    warnings = [*compiled.warnings, *unused_parameters(query.node, source), *never_set.get(id(query.node), ())]
    if query.found:
        span = source.span(*query.node.name.place)
        return QueryReport(compiled.name, compiled.kind, span, query.found, tuple(in_order(warnings)))
    warnings += null_doubts(query, source, catalog)
    return QueryReport(
        compiled.name,
        compiled.kind,
        source.span(*query.node.name.place),
        warnings=tuple(in_order(warnings)),
        columns=compiled.columns,
        reads=compiled.reads,
        writes=compiled.writes,
    )


def _never_set(queries: Iterable[tuple[SourceText, CheckedQuery]], catalog: Catalog) -> dict[int, list[Diagnostic]]:
    """L201, by the identity of the query it is said of: the first that updates the type."""
    first: dict[str, tuple[int, Span]] = {}
    assigned: dict[str, set[str]] = {}
    for source, query in queries:
        for update in _updates(query.node):
            name = update.type.text
            first.setdefault(name, (id(query.node), source.span(*update.type.place)))
            assigned.setdefault(name, set()).update(value.name.text for value in update.values)
    out: dict[int, list[Diagnostic]] = {}
    for name, (query_id, span) in first.items():
        node = catalog.nodes.get(name)
        missing = [p.name for p in node.properties.values() if p.type.nullable] if node else []
        missing = [p for p in missing if p not in assigned[name]]
        if missing:
            listed = ", ".join(f"`{p}`" for p in missing)
            message = f"no update of {name} sets what may be null: {listed}"
            hint = "what is missing there stays missing; set it in an update"
            out.setdefault(query_id, []).append(Diagnostic("L201", message, span, "warning", hint))
    return out


def _updates(node: ast.QueryNode) -> Iterator[ast.Update]:
    if not isinstance(node.body, ast.ReadBody):
        yield from (s for s in node.body if isinstance(s, ast.Update))
