"""`schema show`: the accepted schema."""

from __future__ import annotations

import typer

from omnigraph.cli.options import At, Branch, GraphUri, parse_at

__all__ = ["register"]

_schema = typer.Typer(name="schema", help="Show the schema.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    app.add_typer(_schema)


@_schema.callback()
def _group() -> None:
    """Show the schema."""


@_schema.command("show")
def show(graph: GraphUri, branch: Branch = "main", at: At = None) -> None:
    """Print the schema a branch has, or had at a moment, as it was written.

    \b
    Examples:
      omnigraph schema show graph.omni > schema.pg
      omnigraph schema show graph.omni --branch draft --at 12
    """
    import omnigraph

    print(omnigraph.open(graph, read_only=True).snapshot(branch, parse_at(at)).catalog.source.rstrip("\n"))
