"""`init`, `load`, `export`, `snapshot`, `version`: a graph as a whole."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Annotated, Literal

import typer

from omnigraph.cli.options import Actor, At, Branch, Format, GraphUri, Json, Quiet, parse_at
from omnigraph.cli.output import Output

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    app.command("init")(init)
    app.command("load")(load)
    app.command("export")(export)
    app.command("snapshot")(snapshot)
    app.command("version")(version)


def init(
    graph: GraphUri,
    schema: Annotated[Path, typer.Option("--schema", "-s", metavar="FILE", help="The .pg schema.", show_default=False)],
    actor: Actor = None,
    format: Format = "table",
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Create an empty graph from a schema.

    \b
    Examples:
      omnigraph init graph.omni --schema schema.pg
      omnigraph init s3://bucket/graph --schema schema.pg --as ada
    """
    import omnigraph

    out = Output(format, quiet)
    opened = omnigraph.init(graph, schema=schema, actor=actor)
    catalog, head = opened.schema.catalog, opened.head()
    out.report(
        f"created {opened.uri}: {len(catalog.nodes)} node and {len(catalog.edges)} edge types, commit {head.id}",
        {
            "uri": opened.uri,
            "node_types": list(catalog.nodes),
            "edge_types": list(catalog.edges),
            "schema_hash": catalog.hash,
            "commit": head.id,
        },
    )
    out.hint(f"omnigraph load {graph} DATA.ndjson")


def load(
    graph: GraphUri,
    sources: Annotated[
        list[str] | None,
        typer.Argument(metavar="FILE", help="NDJSON files or globs; - is standard input.", show_default=False),
    ] = None,
    mapping: Annotated[
        Path | None,
        typer.Option("--mapping", "-m", metavar="FILE", help="A mapping (YAML) of Parquet, ORC, CSV or Arrow files."),
    ] = None,
    mode: Annotated[
        Literal["append", "merge", "overwrite"],
        typer.Option("--mode", help="append refuses ids that exist, merge updates them, overwrite replaces tables."),
    ] = "append",
    branch: Branch = "main",
    from_: Annotated[
        str | None, typer.Option("--from", metavar="BRANCH", help="Make the branch from this one if it isn't there.")
    ] = None,
    quarantine: Annotated[
        Path | None,
        typer.Option("--quarantine", metavar="FILE", help="Put bad records into this new file, and load the others."),
    ] = None,
    max_quarantined: Annotated[
        int,
        typer.Option("--max-quarantined", min=0, metavar="N", help="More bad records refuse the load all the same."),
    ] = 10_000,
    embed: Annotated[
        Literal["now", "later"] | None,
        typer.Option("--embed", help="Make missing @embed vectors now, or leave them to embed.", show_default="now"),
    ] = None,
    actor: Actor = None,
    format: Format = "table",
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Load records as one commit: all of them, or nothing if one is bad; with --quarantine all but the bad ones.

    \b
    Examples:
      omnigraph load graph.omni people.ndjson
      omnigraph load graph.omni 'data/*.ndjson' --mode merge
      omnigraph load graph.omni --mapping mapping.yaml --branch draft --from main
      omnigraph load graph.omni people.ndjson --quarantine bad.ndjson
      zcat dump.ndjson.gz | omnigraph load graph.omni -
    """
    import omnigraph
    from omnigraph.cli.exits import UsageError
    from omnigraph.write.mapping import Mapping

    if bool(sources) == (mapping is not None):
        raise UsageError("give FILEs of NDJSON, or --mapping for other files, exactly one of the two")
    if sources and "-" in sources and len(sources) > 1:
        raise UsageError("- (standard input) can't be loaded together with files")
    out = Output(format, quiet)
    opened = omnigraph.open(graph, actor=actor)
    started = time.monotonic()
    with out.progress("loading") as progress:
        result = opened.load(
            sys.stdin.buffer if sources == ["-"] else sources,
            mode=mode,
            branch=branch,
            from_=from_,
            mapping=Mapping.read(mapping) if mapping is not None else None,
            progress=progress,
            embed=embed,
            quarantine=quarantine,
            max_quarantined=max_quarantined,
        )
    seconds = time.monotonic() - started
    total = sum(rows for _, rows in result.tables)
    commit = result.commit.id if result.commit else None
    lines = [
        f"loaded {total:,} row{'' if total == 1 else 's'} into {branch} in {seconds:.2f} s, commit {commit or 'none'}"
    ]
    width = max((len(key) for key, _ in result.tables), default=0)
    lines += [f"  {key:<{width}}  {rows:>12,}" for key, rows in result.tables]
    if result.vectors:
        lines.append(f"made {result.vectors:,} vectors")
    out.report(
        "\n".join(lines),
        {
            "branch": branch,
            "branch_created": result.branch_created,
            "mode": mode,
            "rows": total,
            "tables": [{"table_key": key, "rows_loaded": rows} for key, rows in result.tables],
            "commit": commit,
            "quarantined": result.quarantined,
            "vectors": result.vectors,
            "unfilled": dict(result.unfilled),
            "seconds": round(seconds, 3),
        },
    )
    if result.quarantined:
        few = "1 bad record was" if result.quarantined == 1 else f"{result.quarantined:,} bad records were"
        out.note(f"{few} left out; {quarantine} has the reasons")
    if result.unfilled:
        waiting = ", ".join(f"{n:,} of {name}" for name, n in result.unfilled)
        out.note(f"texts without their vector: {waiting}; omnigraph embed {graph} makes them")
    out.hint(f"omnigraph ensure-indices {graph}, then omnigraph query {graph} QUERIES.gq")


def export(
    graph: GraphUri,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write here instead of standard output.")
    ] = None,
    types: Annotated[
        list[str] | None, typer.Option("--type", "-t", metavar="TYPE", help="Only this node or edge type; repeatable.")
    ] = None,
    branch: Branch = "main",
    at: At = None,
    quiet: Quiet = False,
) -> None:
    """Write a branch as NDJSON, nodes before edges; loading it again gives an equal graph.

    \b
    Examples:
      omnigraph export graph.omni > graph.ndjson
      omnigraph export graph.omni -o people.ndjson --type Person --at 12
    """
    import omnigraph

    out = Output("table", quiet)
    opened = omnigraph.open(graph, read_only=True)
    lines = opened.export(branch=branch, at=parse_at(at), types=types)
    if output is None:
        for line in lines:
            sys.stdout.write(f"{line}\n")
        return
    # Beside the target and then renamed, so that a half-written export never has the final name.
    partial = output.with_name(f"{output.name}.part")
    count = 0
    try:
        with partial.open("w", encoding="utf-8") as file:
            for line in lines:
                file.write(f"{line}\n")
                count += 1
            file.flush()
            os.fsync(file.fileno())
        partial.replace(output)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    out.note(f"wrote {count:,} records to {output}")


def snapshot(
    graph: GraphUri,
    branch: Branch = "main",
    at: At = None,
    format: Format = "table",
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Show which version of which table a branch sees.

    \b
    Examples:
      omnigraph snapshot graph.omni
      omnigraph snapshot graph.omni --branch draft --format json
      omnigraph snapshot graph.omni --at 2026-05-01T12:00:00
    """
    import omnigraph

    out = Output(format, quiet)
    seen = omnigraph.open(graph, read_only=True).snapshot(branch, parse_at(at))
    if format == "table":
        out.note(f"branch {seen.branch}, manifest version {seen.manifest_version}, commit {seen.head.id}")
    out.records(
        {
            "table_key": "String",
            "table_path": "String",
            "table_version": "I64",
            "table_branch": "String",
            "row_count": "I64",
        },
        [
            {
                "table_key": ref.table_key,
                "table_path": ref.location,
                "table_version": ref.version,
                "table_branch": ref.branch,
                "row_count": ref.row_count,
            }
            for ref in sorted(seen.tables.values(), key=lambda ref: ref.table_key)
        ],
    )


def version(
    json: Annotated[bool, typer.Option("--json", help="As a JSON object, with everything it stands on.")] = False,
) -> None:
    """Show the version.

    \b
    Examples:
      omnigraph version
      omnigraph version --json
    """
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as of

    if not json:
        print(f"omnigraph {of('omnigraph')}")
        return
    import platform

    versions = {"omnigraph": of("omnigraph"), "python": platform.python_version()}
    for package in ("pylance", "pyarrow", "fastapi", "kopf", "pyspark"):
        try:
            versions[package] = of(package)
        except PackageNotFoundError:
            continue
    Output("json").report("", versions)
