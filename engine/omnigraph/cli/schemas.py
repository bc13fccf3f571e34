"""`schema show`, `schema plan` and `schema apply`: the accepted schema, what another one would do, and doing it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from omnigraph.cli.exits import FAILURE, UsageError
from omnigraph.cli.options import Actor, At, Branch, Format, GraphUri, Json, Quiet, parse_at, read_text
from omnigraph.cli.output import Output

if TYPE_CHECKING:
    from omnigraph.schema import MigrationPlan
    from omnigraph.write import SchemaResult

__all__ = ["register"]

_schema = typer.Typer(name="schema", help="Show the schema, plan its changes, and make them.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    app.add_typer(_schema)


@_schema.callback()
def _group() -> None:
    """Show the schema, plan its changes, and make them."""


@_schema.command("show")
def show(graph: GraphUri, branch: Branch = "main", at: At = None, format: Format = "table", json: Json = False) -> None:
    """Print the schema a branch has, or had at a moment, as it was written.

    \b
    Examples:
      omnigraph schema show graph.omni > schema.pg
      omnigraph schema show graph.omni --branch draft --at 12
      omnigraph schema show graph.omni --json
    """
    import omnigraph

    snapshot = omnigraph.open(graph, read_only=True).snapshot(branch, parse_at(at))
    catalog = snapshot.catalog
    Output(format).report(
        catalog.source.rstrip("\n"),
        {
            "branch": snapshot.branch,
            "commit": snapshot.head.id,
            "schema_hash": catalog.hash,
            "node_types": list(catalog.nodes),
            "edge_types": list(catalog.edges),
            "source": catalog.source,
        },
    )


@_schema.command("plan")
def plan(
    accepted: Annotated[
        str, typer.Argument(metavar="OLD.pg|GRAPH", help="The accepted schema, or a graph.", show_default=False)
    ],
    desired: Annotated[
        str | None,
        typer.Argument(metavar="NEW.pg", help="The desired schema; - is standard input.", show_default=False),
    ] = None,
    schema: Annotated[
        str | None,
        typer.Option("--schema", "-s", metavar="NEW.pg", help="The desired schema, said with its name."),
    ] = None,
    branch: Branch = "main",
    allow_data_loss: Annotated[
        bool, typer.Option("--allow-data-loss", help="Plan to drop for good: old versions are removed at once.")
    ] = False,
    format: Format = "table",
    json: Json = False,
) -> None:
    """Say, step by step, what another schema would change. Nothing is touched; exit 1 where it can't be done.

    Two files are compared by themselves, as if every type had rows. Against a graph, types without rows are free.

    \b
    Examples:
      omnigraph schema plan old.pg new.pg
      omnigraph schema plan graph.omni new.pg
      git show HEAD:schema.pg > old.pg; omnigraph schema plan old.pg schema.pg --format json
    """
    if (desired is None) == (schema is None):
        raise UsageError("name the desired schema, once: schema plan OLD.pg NEW.pg, or schema plan GRAPH NEW.pg")
    wanted = desired or schema
    assert wanted is not None
    if Path(accepted).is_file() and "://" not in accepted:
        made = _offline(accepted, wanted, allow_data_loss)
    elif accepted == "-" or (accepted.endswith(".pg") and not Path(accepted).exists()):
        raise UsageError(f"{accepted}: no such file")
    else:
        import omnigraph

        text = read_text("-") if wanted == "-" else Path(wanted)
        graph = omnigraph.open(accepted, read_only=True)
        made = graph.schema.plan(text, branch=branch, allow_data_loss=allow_data_loss)
    Output(format).report(_in_words(made), made.as_dict())
    if not made.supported:
        raise typer.Exit(FAILURE)


@_schema.command("apply")
def apply(
    graph: GraphUri,
    desired: Annotated[
        str, typer.Argument(metavar="NEW.pg", help="The desired schema; - is standard input.", show_default=False)
    ],
    plan: Annotated[
        str | None,
        typer.Option("--plan", metavar="DIGEST", help="The digest that `schema plan` showed; another plan is refused."),
    ] = None,
    branch: Branch = "main",
    allow_data_loss: Annotated[
        bool, typer.Option("--allow-data-loss", help="Drop for good: old versions are removed right after.")
    ] = False,
    actor: Actor = None,
    format: Format = "table",
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Accept another schema, and change the data with it, as one commit.

    All of it or nothing: what can't be done, and rows that break a new constraint, refuse the whole change. Older
    commits keep the schema of their time. Other branches must be merged and deleted first.

    \b
    Examples:
      omnigraph schema apply graph.omni schema.pg
      omnigraph schema apply graph.omni schema.pg --plan 5fd1…
      omnigraph schema apply graph.omni schema.pg --allow-data-loss --json
    """
    import omnigraph

    output = Output(format, quiet)
    text = read_text("-") if desired == "-" else Path(desired)
    opened = omnigraph.open(graph, actor=actor)
    done = opened.schema.apply(text, branch=branch, allow_data_loss=allow_data_loss, expect_plan=plan)
    output.report(_done_in_words(done), done.as_dict())
    if any(t.action in ("created", "changed", "renamed") for t in done.tables):
        output.hint(f"omnigraph ensure-indices {graph}")


def _done_in_words(done: SchemaResult) -> str:
    if done.commit is None:
        return "nothing to do: the graph has this schema already"
    lines = [_in_words(done.plan)] if done.plan.steps else ["only the text differs: no table changes"]
    for table in done.tables:
        was = f", was {table.was}" if table.was else ""
        lines.append(f"{table.action} {table.table_key}: {table.rows} row{'' if table.rows == 1 else 's'}{was}")
    return "\n".join([*lines, f"commit {done.commit.id} on {done.commit.branch}"])


def _offline(accepted: str, desired: str, allow_data_loss: bool) -> MigrationPlan:
    from omnigraph.schema import compile_schema, ir_of, plan_migration

    old = compile_schema(read_text(accepted), file=accepted, accepted=True)
    new = compile_schema(read_text(desired), file=desired)
    return plan_migration(ir_of(old), new, allow_data_loss=allow_data_loss)


def _in_words(plan: MigrationPlan) -> str:
    if not plan.steps:
        return "nothing to do: both schemas mean the same"
    lines = [str(step).partition(" ") for step in plan.steps]
    width = max(len(kind) for kind, _, _ in lines)
    refused = sum(kind == "UnsupportedChange" for kind, _, _ in lines)
    count = f"{len(lines)} step{'s' if len(lines) > 1 else ''}"
    end = f"{count}, digest {plan.digest}"
    if refused:
        end = f"not possible: {refused} of {count} {'is' if refused == 1 else 'are'} unsupported"
    return "\n".join([*(f"{kind:<{width}}  {rest}" for kind, _, rest in lines), end])
