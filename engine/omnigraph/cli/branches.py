"""`branch create|list|delete|merge|diff`, `commit list|show`, `changes`: the lineages of a graph and their history."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from omnigraph.cli.options import Actor, At, Branch, Format, GraphUri, Json, Quiet, parse_at
from omnigraph.cli.output import Output

if TYPE_CHECKING:
    from omnigraph.write import Diff

__all__ = ["register"]

_branch = typer.Typer(name="branch", help="Make, list, compare, merge and delete branches.", no_args_is_help=True)
_commit = typer.Typer(name="commit", help="Show the history.", no_args_is_help=True)


Types = Annotated[
    list[str] | None, typer.Option("--type", "-t", metavar="NAME", help="Only this node or edge type; repeatable.")
]
Kinds = Annotated[list[str] | None, typer.Option("--kind", metavar="node|edge", help="Only nodes, or only edges.")]
Ops = Annotated[
    list[str] | None, typer.Option("--op", metavar="insert|update|delete", help="Only this operation; repeatable.")
]
Stats = Annotated[bool, typer.Option("--stats", help="Only how many of each, by type.")]


def register(app: typer.Typer) -> None:
    app.add_typer(_branch)
    app.command("changes")(changes)
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
    json: Json = False,
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
    json: Json = False,
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
    json: Json = False,
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


@_branch.command("diff")
def diff(
    graph: GraphUri,
    from_: Annotated[
        str, typer.Argument(metavar="FROM", help="A branch, BRANCH@WHEN or a commit id.", show_default=False)
    ],
    to: Annotated[str, typer.Argument(metavar="TO", help="The same.")] = "main",
    types: Types = None,
    kinds: Kinds = None,
    ops: Ops = None,
    stats: Stats = False,
    format: Format = "table",
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Show what changed from one state to another: inserted, updated and deleted nodes and edges.

    \b
    Examples:
      omnigraph branch diff graph.omni main draft
      omnigraph branch diff graph.omni main@12 main --stats
      omnigraph branch diff graph.omni main draft --type Person --op delete --format jsonl
    """
    import omnigraph

    found = omnigraph.open(graph, read_only=True).diff(from_, to, kinds=kinds, types=types, ops=ops)
    _show(Output(format, quiet), found, stats)


def changes(
    graph: GraphUri,
    since: Annotated[str, typer.Option("--since", metavar="WHEN", help="A commit id, a manifest version or a time.")],
    branch: Branch = "main",
    types: Types = None,
    kinds: Kinds = None,
    ops: Ops = None,
    stats: Stats = False,
    format: Format = "jsonl",
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Show what changed on a branch since a commit; says on standard error where to go on from.

    \b
    Examples:
      omnigraph changes graph.omni --since 01J9ZC4T5E8QK3W7R2N6M1XV00
      omnigraph changes graph.omni --since 2026-01-31 --type Person --stats
    """
    import omnigraph

    moment = parse_at(since)
    assert moment is not None
    found = omnigraph.open(graph, read_only=True).changes(moment, branch=branch, kinds=kinds, types=types, ops=ops)
    out = Output(format, quiet)
    _show(out, found, stats)
    out.note(f"up to commit {found.to.head.id}")


def _show(out: Output, found: Diff, stats: bool) -> None:
    if stats:
        rows = [{"table_key": key} | dict(counts) for key, counts in found.stats().items()]
        out.records({"table_key": "String", "insert": "I64", "update": "I64", "delete": "I64"}, rows)
        return
    columns = dict.fromkeys(("table_key", "kind", "type", "id", "op"), "String") | {"version": "I64"}
    columns |= {"src": "String", "dst": "String"}
    if out.format != "jsonl":
        out.records(columns, found.table().to_pylist(), narrow=("op", "type", "id", "src", "dst"))
        return
    for batch in found.batches():  # as it comes: a diff may be larger than memory
        out.records(columns, batch.to_pylist())


@_branch.command("list")
def list_branches(graph: GraphUri, format: Format = "table", json: Json = False, quiet: Quiet = False) -> None:
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
    json: Json = False,
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
    json: Json = False,
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
