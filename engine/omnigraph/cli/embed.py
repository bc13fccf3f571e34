"""`embed`: vectors for the rows that lack them."""

from __future__ import annotations

from typing import Annotated

import typer

from omnigraph.cli.options import Actor, Branch, Format, GraphUri, Json, Quiet
from omnigraph.cli.output import Output

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    app.command("embed")(embed)


def embed(
    graph: GraphUri,
    types: Annotated[
        list[str] | None, typer.Option("--type", "-t", metavar="TYPE", help="Only this type; repeatable.")
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Make every vector anew, not only missing ones: after a change of the model.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Count what is missing; ask nobody, write nothing.")
    ] = False,
    batch_rows: Annotated[
        int | None, typer.Option("--batch-rows", min=1, metavar="N", help="Rows of one commit.", show_default=False)
    ] = None,
    branch: Branch = "main",
    actor: Actor = None,
    format: Format = "table",
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Make the vectors of @embed that rows with a text lack, with the provider that the environment sets up.

    Batch by batch, each its own commit: interrupted, it keeps what it finished; run again, it goes on.

    \b
    Examples:
      omnigraph embed graph.omni --dry-run
      OMNIGRAPH_EMBED_PROVIDER=gemini GEMINI_API_KEY=… omnigraph embed graph.omni
      OMNIGRAPH_EMBED_BASE_URL=http://localhost:11434/v1 omnigraph embed graph.omni --type Person --branch draft
    """
    import omnigraph
    from omnigraph.cli.exits import FAILURE

    out = Output(format, quiet)
    opened = omnigraph.open(graph, read_only=True) if dry_run else omnigraph.open(graph, actor=actor)
    with out.measured("making vectors", "rows") as count:
        report = opened.embed(
            types,
            branch=branch,
            only_missing=not everything,
            dry_run=dry_run,
            batch_rows=batch_rows,
            progress=(lambda step: count(step.done, step.total)) if count is not None else None,
        )
    if dry_run:
        lines = [
            f"{report.missing:,} vectors are missing on {branch}" if not everything else f"{report.missing:,} vectors"
        ]
        lines += [f"  {one.property}: {one.missing:,}" for one in report.properties if one.missing]
    else:
        commits = f", {len(report.commits)} commit{'s' if len(report.commits) > 1 else ''}" if report.commits else ""
        lines = [
            f"made {report.made:,} vectors on {branch}{commits}" if report.made else f"no vector is missing on {branch}"
        ]
        lines += [f"  {one.property}: {one.made:,}" for one in report.properties if one.made]
    out.report(
        "\n".join(lines),
        {
            "branch": branch,
            "missing": report.missing,
            "made": report.made,
            "properties": [{"property": p.property, "missing": p.missing, "made": p.made} for p in report.properties],
            "commits": [c.id for c in report.commits],
            "refused": [record.as_dict() for record in report.refused],
            "refused_count": report.refused_count,
        },
    )
    if report.refused_count:
        few = "1 text" if report.refused_count == 1 else f"{report.refused_count:,} texts"
        out.note(f"the provider refuses {few}; their rows stay as they are:")
        for record in report.refused:
            out.note(f"  {record}")
        raise typer.Exit(FAILURE)
