"""`branch create|list|delete|merge` and `commit list|show`: the lineages of a graph and their history."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from omnigraph.cli.options import Actor, At, Branch, Format, GraphUri, Quiet, parse_at
from omnigraph.cli.output import Output

__all__ = ["register"]

_branch = typer.Typer(name="branch", help="Make, list, merge and delete branches.", no_args_is_help=True)
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


@_branch.command("merge")
def merge(
    graph: GraphUri,
    source: Annotated[
        str, typer.Argument(metavar="SOURCE", help="A branch, BRANCH@WHEN or a commit id.", show_default=False)
    ],
    into: Annotated[str, typer.Option("--into", metavar="BRANCH", help="The branch that gets the changes.")] = "main",
    delete_source: Annotated[
        bool, typer.Option("--delete-source", help="Delete the source branch afterwards.")
    ] = False,
    expect_head: Annotated[
        str | None,
        typer.Option("--expect-head", metavar="COMMIT", help="Refuse (exit 4) unless this is the target's head."),
    ] = None,
    actor: Actor = None,
    format: Format = "table",
    quiet: Quiet = False,
) -> None:
    """Merge a branch into another, row by row. Conflicts are listed, and then nothing is changed (exit 3).

    \b
    Examples:
      omnigraph branch merge graph.omni draft
      omnigraph branch merge graph.omni draft --into review --delete-source
      omnigraph branch merge graph.omni draft --format json
    """
    import omnigraph

    out = Output(format, quiet)
    opened = omnigraph.open(graph, actor=actor)
    try:
        done = opened.branches.merge(source, into, delete_source=delete_source, expect_head=expect_head)
    except omnigraph.MergeConflicts as error:
        out.records(_CONFLICT, [_conflict(c) for c in error.conflicts], narrow=("kind", "table_key", "id", "message"))
        raise
    tables = [
        {
            "table_key": t.table_key,
            "inserted": t.inserted,
            "updated": t.updated,
            "deleted": t.deleted,
            "copied": t.copied,
        }
        for t in done.tables
    ]
    lines = [f"{into}: {done.outcome.replace('_', ' ')}" + (f", commit {done.commit.id}" if done.commit else "")]
    lines += [
        f"  {t['table_key']}: {t['inserted']} inserted, {t['updated']} updated, {t['deleted']} deleted" for t in tables
    ]
    out.report(
        "\n".join(lines),
        {
            "outcome": done.outcome,
            "commit": done.commit.id if done.commit else None,
            "base": done.base,
            "source": done.source,
            "tables": tables,
        },
    )


_CONFLICT = dict.fromkeys(("kind", "table_key", "id", "message", "base", "ours", "theirs"), "String")


def _conflict(conflict: Mapping[str, Any]) -> dict[str, str | None]:
    sides = {side: json.dumps(conflict[side], ensure_ascii=False) for side in ("base", "ours", "theirs")}
    return {name: sides.get(name, conflict[name]) for name in _CONFLICT}


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
