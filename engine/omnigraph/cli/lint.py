"""`lint`: schema and query texts checked without a graph and without running anything."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from omnigraph.cli.exits import FAILURE, UsageError
from omnigraph.cli.options import Branch, Json, read_text

if TYPE_CHECKING:
    from omnigraph.errors import Diagnostic
    from omnigraph.query.lint import LintReport, QueryReport
    from omnigraph.schema.catalog import Catalog

__all__ = ["register"]

_SUFFIXES = (".pg", ".gq")


def register(app: typer.Typer) -> None:
    app.command("lint")(lint)


def lint(
    paths: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[FILE|FOLDER|-]…",
            help="Schemas (.pg), query files (.gq), folders to search for them; - is standard input.",
            show_default=False,
        ),
    ] = None,
    schema: Annotated[
        str | None,
        typer.Option("--schema", "-s", metavar="FILE", help="The schema that the queries are checked against."),
    ] = None,
    graph: Annotated[
        str | None, typer.Option("--graph", "-g", metavar="GRAPH", help="Check against this graph's schema instead.")
    ] = None,
    branch: Branch = "main",
    stdin_name: Annotated[
        str, typer.Option("--stdin-name", metavar="NAME", help="What standard input is called: x.pg or x.gq.")
    ] = "stdin.gq",
    format: Annotated[
        Literal["text", "json", "github"],
        typer.Option("--format", "-f", help="For people, for programs, or as annotations of a GitHub workflow."),
    ] = "text",
    json_: Json = False,
    strict: Annotated[bool, typer.Option("--strict", help="Warnings fail too.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Findings only.")] = False,
) -> None:
    """Check schemas and queries; every finding names file, line and column.

    Queries are checked against --schema, --graph, or the one .pg file among the arguments.

    If the schema has mistakes, of the queries only the syntax is checked.

    Exit codes: 0 fine, 1 errors (with --strict warnings too), 2 usage.

    \b
    Examples:
      omnigraph lint schema.pg queries/
      omnigraph lint --schema schema.pg friends.gq reports.gq --strict
      omnigraph lint queries.gq --graph graph.omni
      omnigraph lint --format github .
      omnigraph lint --schema schema.pg - --stdin-name new.gq < new.gq
    """
    if schema is not None and graph is not None:
        raise UsageError("give --schema or --graph, not both")
    names = _files(paths or ([] if schema else ["."]))
    reports = _reports(names, schema, graph, branch, stdin_name)
    if format == "json":
        print(json.dumps(_as_json(reports), ensure_ascii=False, indent=2))
    elif format == "github":
        for report in reports:
            for finding in report.found:
                print(_annotation(finding, report.file))
    else:
        _print_text(reports, quiet=quiet)
    if any(report.errors or (strict and report.warnings) for report in reports):
        raise typer.Exit(FAILURE)


# ---- which texts, and which schema ----


def _files(paths: Iterable[str]) -> list[str]:
    """The files to check, each once, in the order they were named; `-` stays `-`."""
    found: dict[str, None] = {}
    for name in paths:
        if name == "-":
            found[name] = None
        elif os.path.isdir(name):
            found |= dict.fromkeys(_inside(name))
        elif not os.path.exists(name):
            raise UsageError(f"{name}: no such file or folder")
        elif not name.endswith(_SUFFIXES):
            raise UsageError(f"{name}: neither a schema (.pg) nor a query file (.gq)")
        else:
            found[name] = None
    if not found and list(paths):
        raise UsageError(f"no .pg or .gq file in {', '.join(paths)}")
    return list(found)


def _inside(folder: str) -> Iterator[str]:
    """Folders below, but for hidden ones and graphs."""
    for parent, folders, files in os.walk(folder):
        folders[:] = sorted(f for f in folders if not f.startswith(".") and not f.endswith(".omni"))
        yield from (os.path.normpath(os.path.join(parent, f)) for f in sorted(files) if f.endswith(_SUFFIXES))


def _reports(names: list[str], schema: str | None, graph: str | None, branch: str, stdin_name: str) -> list[LintReport]:
    """One report a text, in the order of the names; the schema's first where it isn't among them."""
    from omnigraph.query.lint import lint_schema, lint_texts
    from omnigraph.schema.source import SourceText

    called = {name: stdin_name if name == "-" else name for name in names}
    schemas = {name: lint_schema(read_text(name), file=file) for name, file in called.items() if file.endswith(".pg")}
    queries = [SourceText(read_text(name), file) for name, file in called.items() if name not in schemas]
    own = None
    catalog: Catalog | None = None
    if graph is not None:
        import omnigraph

        catalog = omnigraph.open(graph, read_only=True).snapshot(branch).catalog
    elif schema is not None:
        same = next((n for n in schemas if n != "-" and os.path.exists(schema) and os.path.samefile(n, schema)), None)
        own = lint_schema(read_text(schema), file=schema) if same is None else schemas[same]
        catalog = own.catalog
    elif queries:
        if len(schemas) != 1:
            raise UsageError(_which_schema(list(schemas)))
        catalog = next(iter(schemas.values())).catalog
    checked = {report.file: report for report in lint_texts(queries, catalog)}
    reports = [schemas.get(name) or checked[file] for name, file in called.items()]
    return [own, *reports] if own is not None and own not in reports else reports


def _which_schema(schemas: list[str]) -> str:
    if not schemas:
        return "which schema? Name a .pg file, or give --schema FILE or --graph GRAPH"
    return f"which schema? There are {len(schemas)} ({', '.join(schemas)}): say which one with --schema"


# ---- for people ----


def _print_text(reports: list[LintReport], *, quiet: bool) -> None:
    for report in reports:
        if report.found:
            print(report)
    if quiet:
        return
    for report in reports:
        print(f"{report.file}: {_summary(report)}")
        for query in report.queries:
            print("\n".join(_query_lines(query)))


def _summary(report: LintReport) -> str:
    if report.language == "query":
        what = _count(len(report.queries), "query", "queries")
    elif report.catalog is not None:
        what = f"{len(report.catalog.nodes)} node and {_count(len(report.catalog.edges), 'edge type')}"
    else:
        what = "a schema"
    errors, warnings = len(report.errors), len(report.warnings)
    if not errors and not warnings:
        unchecked = any(query.status == "unchecked" for query in report.queries)
        return f"{what}, syntax fine; not checked against the schema" if unchecked else f"{what} fine"
    counts = [_count(errors, "error")] if errors else []
    return ", ".join([what, *counts, *([_count(warnings, "warning")] if warnings else [])])


def _query_lines(query: QueryReport) -> Iterator[str]:
    yield f"  {query.name}: {query.kind}, {query.status}"
    if query.columns:
        yield f"    returns {', '.join(f'{c.name}: {c.type}' for c in query.columns)}"
    for word, keys in (("reads", query.reads), ("writes", query.writes)):
        if keys:
            yield f"    {word} {', '.join(sorted(key.partition(':')[2] for key in keys))}"


def _count(number: int, one: str, many: str | None = None) -> str:
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"


# ---- for programs ----


def _as_json(reports: list[LintReport]) -> dict[str, object]:
    return {
        "ok": all(report.ok for report in reports),
        "errors": sum(len(report.errors) for report in reports),
        "warnings": sum(len(report.warnings) for report in reports),
        "files": [report.as_dict() for report in reports],
    }


def _annotation(finding: Diagnostic, file: str) -> str:
    """A workflow command of GitHub Actions. Its columns are both inclusive, and an end column needs a single line."""
    properties: dict[str, object] = {"file": file}
    span = finding.span
    if span is not None:
        properties |= {"line": span.line, "endLine": span.end_line, "col": span.column}
        if span.end_line == span.line:
            properties["endColumn"] = max(span.column, span.end_column - 1)
    properties["title"] = finding.code
    listed = ",".join(f"{name}={_escaped(str(value), ':,')}" for name, value in properties.items())
    message = finding.message + (f"\n{finding.hint}" if finding.hint else "")
    return f"::{'warning' if finding.severity == 'warning' else 'error'} {listed}::{_escaped(message)}"


def _escaped(text: str, more: str = "") -> str:
    """`%`, line ends and, in properties, the characters that separate them, as their codes."""
    for character in f"%\r\n{more}":
        text = text.replace(character, f"%{ord(character):02X}")
    return text
