"""`omnigraph task PURPOSE`: what runs inside pods and the local platform's child processes.

Each purpose sweeps first if asked, does one thing, and leaves one JSON object (`report`), on failure too.
"""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import typer

from omnigraph.cli import report
from omnigraph.cli.exits import FAILURE, OK, RECOVERY_PENDING, exit_for
from omnigraph.errors import BadRequest, Conflict, NotFound

if TYPE_CHECKING:
    from omnigraph.graph import Graph
    from omnigraph.write import LoadResult
    from omnigraph.write.mapping import Mapping as LoadMapping

__all__ = ["register"]

SweepMode: TypeAlias = Literal["full", "forward", "none"]

Uri = Annotated[str, typer.Option("--uri", metavar="GRAPH", help="The graph: a folder or an s3:// URI.")]
OperationId = Annotated[
    str | None, typer.Option("--operation-id", metavar="ULID", help="The write's identity; a fresh one without it.")
]
Actor = Annotated[str | None, typer.Option("--actor", metavar="NAME", help="Who is writing; recorded in the commit.")]
Sweep = Annotated[SweepMode, typer.Option("--sweep", help="Settle interrupted writes first, in the same process.")]
Result = Annotated[
    Path | None,
    typer.Option("--result", metavar="FILE", help="Where the result goes; default /dev/termination-log if writable."),
]

app = typer.Typer(
    name="task", help="Run one piece of work as a job does: sweep first, result as JSON.", no_args_is_help=True
)


def register(parent: typer.Typer) -> None:
    parent.add_typer(app)


class Terminated(Exception):
    """SIGTERM arrived."""


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
    """Create the graph, or take over the one that is there.

    \b
    Examples:
      omnigraph task init --uri graph.omni --schema schema.pg --result result.json
    """
    import omnigraph
    from omnigraph.schema import compile_schema

    operation = operation_id or report.fresh_id()

    def work() -> dict[str, Any]:
        # A schema that doesn't compile is refused even where a graph is there to be taken over.
        wanted = compile_schema(schema.read_text(encoding="utf-8"), file=str(schema))
        graph: Graph | None = None
        if adopt == "IfExists":
            try:
                graph = omnigraph.open(uri, recovery="none")
            except NotFound:
                graph = None
        if graph is None:
            try:
                graph = omnigraph.init(uri, schema=schema, actor=actor, operation_id=operation)
            except Conflict:
                # Another task was faster; the graph that is there is the one to take over.
                if adopt == "Never":
                    raise
                graph = omnigraph.open(uri, recovery="none")
        # A task that was killed after it had created the graph, and runs again, has created it.
        adopted = not graph.made_by(operation)
        here = graph.schema.catalog
        return {"adopted": adopted, "schemaInSync": here.hash == wanted.hash} | _state(graph, "main")

    _run("init", uri, operation, sweep, result, lambda _: work(), must_exist=False)


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
    """Settle interrupted writes.

    \b
    Examples:
      omnigraph task sweep --uri graph.omni --mode full
      omnigraph task sweep --uri s3://bucket/graph --mode forward --result result.json
    """
    _run("sweep", uri, operation_id, mode, result, lambda graph: _state(graph, "main"))


@app.command("load")
def load(
    uri: Uri,
    source: Annotated[
        list[str],
        typer.Option("--source", metavar="PATH", help="A file or glob, or the folder a mapping's paths start from."),
    ],
    name: Annotated[str, typer.Option("--name", metavar="NAME", help="The load's name, for messages.")] = "load",
    format: Annotated[
        Literal["ndjson", "parquet", "csv", "arrow", "orc"] | None,
        typer.Option("--format", help="What the files hold; default by their suffixes."),
    ] = None,
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
    quarantine: Annotated[
        str | None,
        typer.Option("--quarantine", metavar="FILE", help="Put bad records into this new file, and load the others."),
    ] = None,
    max_quarantined: Annotated[
        int,
        typer.Option("--max-quarantined", min=0, metavar="N", help="More bad records refuse the load all the same."),
    ] = 10_000,
    operation_id: OperationId = None,
    actor: Actor = None,
    sweep: Sweep = "forward",
    result: Result = None,
) -> None:
    """Load files as one commit.

    \b
    Examples:
      omnigraph task load --uri graph.omni --source people.ndjson --mode merge --quarantine bad.ndjson
      omnigraph task load --uri graph.omni --source data --mapping mapping.yaml --format parquet --engine spark
    """
    from omnigraph.write.mapping import Mapping as LoadMapping

    operation = operation_id or report.fresh_id()

    def work(graph: Graph) -> dict[str, Any]:
        if mapping is None and format not in (None, "ndjson"):
            raise BadRequest(f"load {name!r}: {format} needs --mapping, which says which type the rows are")
        parsed = LoadMapping.read(mapping) if mapping is not None else None
        done = (
            _load_with_spark(
                graph.uri, source, parsed, format, mode, branch, operation, actor, quarantine, max_quarantined
            )
            if engine == "spark"
            else graph.load(
                source,
                mode=mode,
                branch=branch,
                mapping=parsed,
                format=format,
                actor=actor,
                operation_id=operation,
                quarantine=quarantine,
                max_quarantined=max_quarantined,
            )
        )
        return {
            "name": name,
            "branch": branch,
            "commit": done.commit.id if done.commit else None,
            "tables": [{"tableKey": key, "rows": rows} for key, rows in done.tables],
            "rows": sum(rows for _, rows in done.tables),
            "quarantined": done.quarantined,
        } | _state(graph, branch)

    _run("load", uri, operation, sweep, result, work)


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
    """Build missing indexes.

    \b
    Examples:
      omnigraph task index --uri graph.omni --branch main
    """
    operation = operation_id or report.fresh_id()

    def work(graph: Graph) -> dict[str, Any]:
        done = graph.ensure_indices(branch=branch, actor=actor, operation_id=operation)
        return {"branch": branch, "tables": [report.camel_keys(one) for one in done]} | _state(graph, branch)

    _run("index", uri, operation, sweep, result, work)


@app.command("embed")
def embed(
    uri: Uri,
    branch: Annotated[str, typer.Option("--branch", metavar="NAME", help="The branch whose rows are filled.")] = "main",
    types: Annotated[
        list[str] | None, typer.Option("--type", metavar="TYPE", help="Only this type; repeatable.")
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Make every vector anew, not only missing ones: after a change of the model.")
    ] = False,
    batch_rows: Annotated[
        int | None, typer.Option("--batch-rows", min=1, metavar="N", help="Rows of one commit.")
    ] = None,
    operation_id: OperationId = None,
    actor: Actor = None,
    sweep: Sweep = "forward",
    result: Result = None,
) -> None:
    """Make the vectors of @embed that rows with a text lack, with the provider that the environment sets up.

    Each batch is a commit of its own: ended in between, the finished ones stay, and the task run again goes on.

    \b
    Examples:
      omnigraph task embed --uri graph.omni --result result.json
      omnigraph task embed --uri s3://bucket/graph --branch draft --type Person
    """

    def work(graph: Graph) -> dict[str, Any]:
        done = graph.embed(types, branch=branch, only_missing=not everything, batch_rows=batch_rows, actor=actor)
        fields = {
            "branch": branch,
            "missing": done.missing,
            "made": done.made,
            "commits": len(done.commits),
            "commit": done.commits[-1].id if done.commits else None,
            "properties": [{"property": p.property, "missing": p.missing, "made": p.made} for p in done.properties],
        } | _state(graph, branch)
        if not done.refused_count:
            return fields
        few = "1 text" if done.refused_count == 1 else f"{done.refused_count:,} texts"
        return fields | {
            "ok": False,
            "code": "text_refused",
            "message": f"the provider refuses {few}, whose rows stay as they are: {done.refused[0]}",
            "refusedCount": done.refused_count,
            "refused": [report.camel_keys(record.as_dict()) for record in done.refused],
        }

    _run("embed", uri, operation_id, sweep, result, work)


def _load_with_spark(
    uri: str,
    sources: list[str],
    mapping: LoadMapping | None,
    format: str | None,
    mode: Literal["append", "merge", "overwrite"],
    branch: str,
    operation_id: str,
    actor: str | None,
    quarantine: str | None,
    max_quarantined: int,
) -> LoadResult:
    """The one call of the Spark load; it has the contract of `Graph.load`."""
    from omnigraph.pipeline.load import LoadJob, run

    return run(
        LoadJob(
            uri=uri,
            sources=tuple(sources),
            mapping=mapping,
            format=format,
            mode=mode,
            branch=branch,
            operation_id=operation_id,
            actor=actor,
            quarantine=quarantine,
            max_quarantined=max_quarantined,
        )
    )


def _run(
    purpose: str,
    uri: str,
    operation_id: str | None,
    sweep: SweepMode,
    result: Path | None,
    work: Callable[[Graph], Mapping[str, Any]],
    *,
    must_exist: bool = True,
) -> None:
    """Sweep, work, report; ends the process with the exit code of `exits`."""
    import omnigraph

    started = time.monotonic()
    fields: dict[str, Any] = {"ok": True, "purpose": purpose, "operationId": operation_id or report.fresh_id()}
    status = OK
    bug: Exception | None = None
    with _terminable():
        try:
            graph = None
            if sweep != "none" or must_exist:
                graph = omnigraph.open(uri, recovery="none")
            if graph is not None and sweep != "none":
                swept = graph.recover(sweep)
                fields["sweep"] = report.sweep(sweep, swept.outcomes, swept.pending)
                unsettled = fields["sweep"]["pending"]
                if purpose == "sweep" and unsettled:
                    status = RECOVERY_PENDING
                    fields |= {
                        "ok": False,
                        "code": "recovery_pending",
                        "message": f"{len(unsettled)} interrupted write(s) need a roll-back: {unsettled[0]['sidecar']}",
                    }
            fields |= work(graph)  # type: ignore[arg-type]  # None only where the work opens the graph itself
            if not fields["ok"]:
                status = status or FAILURE
        except Terminated:
            status = FAILURE
            fields |= {"ok": False, "code": "terminated", "message": "ended by SIGTERM; run the task again to go on"}
        except Exception as error:  # noqa: BLE001  (reported whole, then raised again if it is a bug)
            ending = exit_for(error)
            if ending is None:
                bug, status = error, FAILURE
                fields |= {"ok": False, "code": "internal", "message": f"{type(error).__name__}: {error}"}
            else:
                status = ending.status
                fields |= {"ok": False, "code": ending.code, "message": ending.message}
    fields["seconds"] = round(time.monotonic() - started, 3)
    line = report.encode(fields)
    report.write(line, result)
    sys.stdout.write(line.decode() + "\n")
    sys.stdout.flush()
    if bug is not None:
        raise bug
    if status != OK:
        print(f"error: {fields['message']}", file=sys.stderr)
    raise typer.Exit(status)


def _state(graph: Graph, branch: str) -> dict[str, Any]:
    """What a branch holds now, for the graph's status."""
    seen = graph.snapshot(branch)
    return {
        "head": {
            "commit": seen.head.id,
            "manifestVersion": seen.manifest_version,
            "time": seen.head.created_at.isoformat(),
        },
        "schemaHash": seen.schema_hash,
        "graph": {"tables": len(seen.tables), "rows": sum(ref.row_count for ref in seen.tables.values())},
    }


@contextmanager
def _terminable() -> Iterator[None]:
    """SIGTERM raises `Terminated` in the main thread, so that the result is written on the way out."""

    def stop(_number: int, _frame: FrameType | None) -> None:
        # A second one must not interrupt the writing of the result.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise Terminated

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
