"""`query`, `mutate`, `explain`: texts in the query language."""

from __future__ import annotations

from typing import Annotated

import typer

from omnigraph.cli.options import (
    Actor,
    At,
    Branch,
    Format,
    GraphUri,
    Inline,
    Json,
    Params,
    QueryFile,
    QueryName,
    Quiet,
    parse_at,
    parse_params,
    query_source,
)
from omnigraph.cli.output import Output, write_pieces

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    app.command("query")(query)
    app.command("mutate")(mutate)
    app.command("explain")(explain)


def query(
    graph: GraphUri,
    file: QueryFile = None,
    inline: Inline = None,
    name: QueryName = None,
    params: Params = None,
    branch: Branch = "main",
    at: At = None,
    timeout: Annotated[
        float | None, typer.Option("--timeout", metavar="SECONDS", help="Give the query up after so long.")
    ] = None,
    format: Format = "table",
    json: Json = False,
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
    opened = omnigraph.open(graph, read_only=True)
    result = opened.query(source, values, name=name, branch=branch, at=parse_at(at), timeout_seconds=timeout)
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
    json: Json = False,
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
    analyze: Annotated[
        bool, typer.Option("--analyze", help="Run the query too and show each step's rows and time.")
    ] = False,
    format: Format = "table",
    json: Json = False,
) -> None:
    """Show how a read query would run.

    \b
    Examples:
      omnigraph explain graph.omni queries.gq --name friends --params '{"name": "Ada"}'
      omnigraph explain graph.omni queries.gq -n friends -p '{"name": "Ada"}' --analyze
    """
    import omnigraph

    source, values = query_source(file, inline), parse_params(params)
    opened = omnigraph.open(graph, read_only=True)
    plan = opened.explain(source, values, name=name, branch=branch, at=parse_at(at), analyze=analyze)
    lines = plan.rstrip("\n").split("\n")
    Output(format).report("\n".join(lines), {"analyzed": analyze, "plan": lines})


def _count(number: int, word: str) -> str:
    return f"{number:,} {word}{'' if number == 1 else 's'}"
