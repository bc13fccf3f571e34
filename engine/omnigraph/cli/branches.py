"""`branch create|list|delete` and `commit list|show`: the lineages of a graph and their history."""

from __future__ import annotations

from typing import Annotated

import typer

from omnigraph.cli.options import Actor, At, Branch, Format, GraphUri, Quiet, parse_at
from omnigraph.cli.output import Output

__all__ = ["register"]

_branch = typer.Typer(name="branch", help="Make, list and delete branches.", no_args_is_help=True)
_commit = typer.Typer(name="commit", help="Show the history.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    app.add_typer(_branch)
    app.add_typer(_commit)


@_branch.command("create")
def create(
    graph: GraphUri,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The new branch; may hold slashes.", show_default=False)],
    from_: Annotated[
        str, typer.Option("--from", metavar="POINT", help="Where it begins: a branch, BRANCH@WHEN, or a commit id.")
    ] = "main",
    at: At = None,
    actor: Actor = None,
    format: Format = "table",
    quiet: Quiet = False,
) -> None:
    """Make a branch; no data is copied.

    \b
    Examples:
      omnigraph branch create graph.omni draft
      omnigraph branch create graph.omni fix/names --from draft@12
    """
    import omnigraph

    out = Output(format, quiet)
    opened = omnigraph.open(graph, actor=actor)
    made = opened.branches.create(name, from_=from_, at=parse_at(at))
    out.report(
        f"created branch {made.name} from {from_} at commit {made.head.id}",
        {"name": made.name, "from": from_, "head": made.head.id},
    )
    out.hint(f"omnigraph load {graph} DATA.ndjson --branch {made.name}")


@_branch.command("delete")
def delete(
    graph: GraphUri,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The branch.", show_default=False)],
    format: Format = "table",
    quiet: Quiet = False,
) -> None:
    """Delete a branch. What others have merged of it stays theirs.

    \b
    Examples:
      omnigraph branch delete graph.omni draft
    """
    import omnigraph

    gone = omnigraph.open(graph).branches.delete(name)
    Output(format, quiet).report(
        f"deleted branch {gone.name}, which was at commit {gone.head.id}", {"name": gone.name, "head": gone.head.id}
    )


@_branch.command("list")
def list_branches(graph: GraphUri, format: Format = "table", quiet: Quiet = False) -> None:
    """List the branches with their newest commits.

    \b
    Examples:
      omnigraph branch list graph.omni
      omnigraph branch list graph.omni --format json
    """
    import omnigraph

    Output(format, quiet).records(
        {"name": "String", "parent": "String", "head": "String", "manifest_version": "I64", "created_at": "DateTime"},
        [
            {
                "name": branch.name,
                "parent": branch.parent,
                "head": branch.head.id,
                "manifest_version": branch.head.manifest_version,
                "created_at": branch.head.created_at,
            }
            for branch in omnigraph.open(graph, read_only=True).branches.list()
        ],
        narrow=("name", "parent", "head", "created_at"),
    )


@_commit.command("list")
def list_commits(
    graph: GraphUri,
    branch: Branch = "main",
    limit: Annotated[int, typer.Option("--limit", "-l", min=1, help="At most this many.")] = 20,
    before: Annotated[str | None, typer.Option("--before", metavar="COMMIT", help="Go on below this commit.")] = None,
    format: Format = "table",
    quiet: Quiet = False,
) -> None:
    """List the commits of a branch, newest first.

    \b
    Examples:
      omnigraph commit list graph.omni
      omnigraph commit list graph.omni --branch draft --limit 5 --format json
    """
    import omnigraph

    Output(format, quiet).records(
        {
            "id": "String",
            "branch": "String",
            "manifest_version": "I64",
            "created_at": "DateTime",
            "actor": "String",
            "parents": "String",
        },
        [
            {
                "id": commit.id,
                "branch": commit.branch,
                "manifest_version": commit.manifest_version,
                "created_at": commit.created_at,
                "actor": commit.actor,
                "parents": " ".join(commit.parents),
            }
            for commit in omnigraph.open(graph, read_only=True).commits(branch, limit=limit, before=before)
        ],
        narrow=("id", "manifest_version", "created_at", "actor"),
    )


@_commit.command("show")
def show_commit(
    graph: GraphUri,
    commit: Annotated[str, typer.Argument(metavar="COMMIT", help="The commit's id.", show_default=False)],
    format: Format = "table",
    quiet: Quiet = False,
) -> None:
    """Show one commit of any branch.

    \b
    Examples:
      omnigraph commit show graph.omni 01J9ZC4T5E8QK3W7R2N6M1XV00
    """
    import omnigraph

    found = omnigraph.open(graph, read_only=True).commit(commit)
    data = {
        "id": found.id,
        "branch": found.branch,
        "manifest_version": found.manifest_version,
        "created_at": found.created_at,
        "actor": found.actor,
        "parents": list(found.parents),
        "operation_id": found.operation_id,
        "schema_hash": found.schema_hash,
        "recovery_kind": found.recovery_kind,
    }
    lines = [f"{name}: {' '.join(v) if isinstance(v, list) else v}" for name, v in data.items() if v]
    Output(format, quiet).report("\n".join(lines), data)
