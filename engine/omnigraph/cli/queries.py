"""`query`, `mutate`, `explain`, `lint`: texts in the query language."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from omnigraph.cli.options import (
    Actor,
    At,
    Branch,
    Format,
    GraphUri,
    Inline,
    Params,
    QueryFile,
    QueryName,
    Quiet,
    parse_at,
    parse_params,
    query_source,
    read_text,
)
from omnigraph.cli.output import Output, write_pieces

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    app.command("query")(query)
    app.command("mutate")(mutate)
    app.command("explain")(explain)
    app.command("lint")(lint)


def query(
    graph: GraphUri,
    file: QueryFile = None,
    inline: Inline = None,
    name: QueryName = None,
    params: Params = None,
    branch: Branch = "main",
    at: At = None,
    format: Format = "table",
) -> None:
    """Run a read query and print its rows.

    \b
    Examples:
      omnigraph query graph.omni -e 'query all() { match { $p: Person } return { $p.name } limit 10 }'
      omnigraph query graph.omni queries.gq --name friends --params '{"name": "Ada"}'
      omnigraph query graph.omni queries.gq -n friends -p @params.json --format csv > friends.csv
      omnigraph query graph.omni queries.gq -n friends --branch draft --at 12
    """
    import omnigraph

    source, values = query_source(file, inline), parse_params(params)
    result = omnigraph.open(graph, read_only=True).query(source, values, name=name, branch=branch, at=parse_at(at))
    write_pieces(result.render(format))


def mutate(
    graph: GraphUri,
    file: QueryFile = None,
    inline: Inline = None,
    name: QueryName = None,
    params: Params = None,
    branch: Branch = "main",
    expect_head: Annotated[
        str | None,
        typer.Option(
            "--expect-head", metavar="COMMIT", help="Refuse (exit 4) unless this is the branch's newest commit."
        ),
    ] = None,
    actor: Actor = None,
    format: Format = "table",
    quiet: Quiet = False,
) -> None:
    """Run a mutation as one commit.

    \b
    Examples:
      omnigraph mutate graph.omni -e 'query add($n: String) { insert Person { name: $n } }' -p '{"n": "Ada"}'
      omnigraph mutate graph.omni changes.gq --name retire --branch draft --as ada
      omnigraph mutate graph.omni changes.gq -n retire --expect-head 01J9ZC4T5E8QK3W7R2N6M1XVYB
    """
    import omnigraph

    out = Output(format, quiet)
    source, values = query_source(file, inline), parse_params(params)
    opened = omnigraph.open(graph, actor=actor)
    result = opened.mutate(source, values, name=name, branch=branch, expect_head=expect_head)
    commit = result.commit.id if result.commit else None
    changed = f"{_count(result.nodes, 'node')} and {_count(result.edges, 'edge')} changed on {branch}"
    out.report(
        f"{changed}, commit {commit}" if commit else f"{changed}, no commit made",
        {"branch": branch, "affected_nodes": result.nodes, "affected_edges": result.edges, "graph_commit_id": commit},
    )


def explain(
    graph: GraphUri,
    file: QueryFile = None,
    inline: Inline = None,
    name: QueryName = None,
    params: Params = None,
    branch: Branch = "main",
    at: At = None,
) -> None:
    """Show how a read query would run, without running it.

    \b
    Examples:
      omnigraph explain graph.omni queries.gq --name friends --params '{"name": "Ada"}'
    """
    import omnigraph

    source, values = query_source(file, inline), parse_params(params)
    plan = omnigraph.open(graph, read_only=True).explain(source, values, name=name, branch=branch, at=parse_at(at))
    print(plan.rstrip("\n"))


def lint(
    files: Annotated[
        list[Path] | None, typer.Argument(metavar="FILE.gq", help="Query files to check.", show_default=False)
    ] = None,
    schema: Annotated[
        Path | None, typer.Option("--schema", "-s", metavar="FILE", help="The .pg schema to check, and check against.")
    ] = None,
    graph: Annotated[
        str | None, typer.Option("--graph", "-g", metavar="GRAPH", help="Check against this graph's schema instead.")
    ] = None,
    branch: Branch = "main",
    quiet: Quiet = False,
) -> None:
    """Check a schema and queries without running anything; every finding names file, line and column.

    \b
    Examples:
      omnigraph lint --schema schema.pg
      omnigraph lint queries.gq reports.gq --schema schema.pg
      omnigraph lint queries.gq --graph graph.omni
    """
    import omnigraph
    from omnigraph.cli.exits import FAILURE, UsageError
    from omnigraph.errors import LanguageError, render_diagnostic
    from omnigraph.query import compile_queries
    from omnigraph.schema import compile_schema

    if (schema is None) == (graph is None):
        raise UsageError("give --schema FILE or --graph GRAPH, exactly one of the two")
    if schema is not None:
        catalog = compile_schema(read_text(str(schema)), file=str(schema))
    else:
        catalog = omnigraph.open(str(graph), read_only=True).snapshot(branch).catalog
    out = Output("table", quiet)
    failed = False
    for file in files or []:
        text = read_text(str(file))
        try:
            compiled = compile_queries(text, catalog, file=str(file))
        except LanguageError as error:
            out_error(error.message)
            failed = True
            continue
        for one in compiled.values():
            for warning in one.warnings:
                out.note(render_diagnostic(warning, text, str(file)))
        print(f"{file}: {len(compiled)} quer{'y' if len(compiled) == 1 else 'ies'} fine")
    if schema is not None and not files:
        print(f"{schema}: {len(catalog.nodes)} node and {len(catalog.edges)} edge types fine")
    if failed:
        raise typer.Exit(FAILURE)


def out_error(text: str) -> None:
    """A finding that makes the command fail, on standard error."""
    typer.echo(text, err=True)


def _count(number: int, word: str) -> str:
    return f"{number:,} {word}{'' if number == 1 else 's'}"
