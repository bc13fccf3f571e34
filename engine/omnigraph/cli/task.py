"""`omnigraph task PURPOSE`: what runs inside pods and the local platform's child processes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import typer

SweepMode: TypeAlias = Literal["full", "forward", "none"]

Uri = Annotated[str, typer.Option("--uri", metavar="GRAPH", help="The graph: a folder or an s3:// URI.")]
OperationId = Annotated[
    str | None, typer.Option("--operation-id", metavar="ULID", help="The write's identity; a fresh one without it.")
]
Actor = Annotated[str | None, typer.Option("--actor", metavar="NAME", help="Who is writing; recorded in the commit.")]
Sweep = Annotated[SweepMode, typer.Option("--sweep", help="Settle interrupted writes first, in the same process.")]
Result = Annotated[
    Path | None,
    typer.Option(
        "--result", metavar="FILE", help="Where the JSON result goes; default /dev/termination-log if writable."
    ),
]

app = typer.Typer(
    name="task", help="Run one piece of work as a job does: sweep first, result as JSON.", no_args_is_help=True
)


@app.command("init")
def init(
    uri: Uri,
    schema: Annotated[Path, typer.Option("--schema", metavar="FILE", help="The .pg schema.")],
    adopt: Annotated[
        Literal["IfExists", "Never"], typer.Option("--adopt", help="What to do with a graph that is already there.")
    ] = "IfExists",
    operation_id: OperationId = None,
    actor: Actor = None,
    sweep: Sweep = "none",
    result: Result = None,
) -> None:
    """Create the graph, or take over the one that is there."""


@app.command("sweep")
def sweep_(
    uri: Uri,
    mode: Annotated[
        Literal["full", "forward"], typer.Option("--mode", help="forward never rolls a write back.")
    ] = "full",
    operation_id: OperationId = None,
    actor: Actor = None,
    result: Result = None,
) -> None:
    """Settle interrupted writes."""


@app.command("load")
def load(
    uri: Uri,
    source: Annotated[list[str], typer.Option("--source", metavar="PATH", help="A file or glob; repeatable.")],
    name: Annotated[str, typer.Option("--name", metavar="NAME", help="The load's name, for messages.")] = "load",
    format: Annotated[
        Literal["ndjson", "parquet", "csv", "arrow"], typer.Option("--format", help="What the sources hold.")
    ] = "ndjson",
    mapping: Annotated[
        Path | None, typer.Option("--mapping", metavar="FILE", help="The mapping of tabular sources.")
    ] = None,
    mode: Annotated[
        Literal["append", "merge", "overwrite"], typer.Option("--mode", help="How rows meet those there.")
    ] = "append",
    branch: Annotated[str, typer.Option("--branch", metavar="NAME", help="The branch to load into.")] = "main",
    engine: Annotated[
        Literal["process", "spark"], typer.Option("--engine", help="In this process, or with Spark.")
    ] = "process",
    operation_id: OperationId = None,
    actor: Actor = None,
    sweep: Sweep = "forward",
    result: Result = None,
) -> None:
    """Load files as one commit."""


@app.command("index")
def index(
    uri: Uri,
    branch: Annotated[
        str, typer.Option("--branch", metavar="NAME", help="The branch whose tables are indexed.")
    ] = "main",
    operation_id: OperationId = None,
    actor: Actor = None,
    sweep: Sweep = "forward",
    result: Result = None,
) -> None:
    """Build missing indexes."""
