"""`recover`, `repair`, `verify`, `ensure-indices`, `optimize`, `cleanup`: keeping a graph sound, fast and small."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from omnigraph.cli.options import Actor, Branch, Format, GraphUri, Json, Quiet
from omnigraph.cli.output import Output

if TYPE_CHECKING:
    from omnigraph.storage import CleanupReport

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    app.command("recover")(recover)
    app.command("repair")(repair)
    app.command("verify")(verify)
    app.command("ensure-indices")(ensure_indices)
    app.command("optimize")(optimize)
    app.command("cleanup")(cleanup)


def recover(
    graph: GraphUri,
    forward: Annotated[
        bool, typer.Option("--forward", help="Only finish writes, never roll one back: safe beside living writers.")
    ] = False,
    format: Format = "table",
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Settle interrupted writes: finish those that got far enough, undo the others.

    Without --forward you assert that no writer lives (in a folder, locks tell by themselves).

    \b
    Examples:
      omnigraph recover graph.omni
      omnigraph recover s3://bucket/graph --forward
    """
    import omnigraph
    from omnigraph.cli.exits import RECOVERY_PENDING

    out = Output(format, quiet)
    report = omnigraph.open(graph, recovery="none").recover("forward" if forward else "full")
    lines = [f"settled {len(report.outcomes)} interrupted write(s)" if report.outcomes else "nothing to settle"]
    lines += [
        f"  {one['sidecar']}: {one['outcome']} ({one['writer_kind']} on {one['branch']})" for one in report.outcomes
    ]
    lines += [f"  {one['sidecar']}: left ({one['reason']} on {one['branch']})" for one in report.pending]
    out.report("\n".join(lines), {"outcomes": report.outcomes, "pending": report.pending})
    if any(one["reason"] != "Live" for one in report.pending):
        out.note("what is left needs a roll-back: stop the writers and run recover without --forward")
        raise typer.Exit(RECOVERY_PENDING)


def repair(
    graph: GraphUri,
    confirm: Annotated[
        bool,
        typer.Option("--confirm", help="Publish what provably changes no row: indexes, compaction, empty deletes."),
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="With --confirm: publish the rest too, whatever rows it changes.")
    ] = False,
    branch: Annotated[str | None, typer.Option("--branch", "-b", metavar="NAME", help="Only this branch.")] = None,
    actor: Actor = None,
    format: Format = "table",
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Show tables whose newest version no commit published, and publish them on demand.

    Without --confirm nothing is written. Versions of interrupted writes are left to recover.

    \b
    Examples:
      omnigraph repair graph.omni
      omnigraph repair graph.omni --confirm
      omnigraph repair graph.omni --force --confirm --as ada && omnigraph verify graph.omni
    """
    import omnigraph
    from omnigraph.cli.exits import FAILURE

    out = Output(format, quiet)
    opened = omnigraph.open(graph, actor=actor) if confirm else omnigraph.open(graph, read_only=True)
    report = opened.repair(branch=branch, confirm=confirm, force=force)
    how = "" if confirm else "; nothing was written: --confirm publishes what changes no row"
    lines = [f"{len(report.tables)} table(s) ahead of what is published{how}" if report.tables else "nothing to repair"]
    for one in report.tables:
        done = "" if one.action == "none" else f", {one.action}"
        lines.append(
            f"  {one.table_key} on {one.branch}: published {one.pinned}, newest {one.head} "
            f"({', '.join(one.operations)}): {one.kind}{done}"
        )
    tables = [{name: getattr(one, name) for name in one.__slots__} for one in report.tables]
    out.report("\n".join(lines), {"tables": tables, "commits": [c.id for c in report.commits]})
    if report.refused:
        out.note("what may change rows needs --force --confirm, an interrupted write needs omnigraph recover")
        raise typer.Exit(FAILURE)
    if report.tables and not confirm:
        out.hint(f"omnigraph repair {graph} --confirm")


def verify(graph: GraphUri, format: Format = "table", json: Json = False, quiet: Quiet = False) -> None:
    """Walk everything and report every inconsistency (exit 1). Writes nothing.

    \b
    Examples:
      omnigraph verify graph.omni
      omnigraph verify graph.omni --format json
    """
    import omnigraph
    from omnigraph.cli.exits import FAILURE

    out = Output(format, quiet)
    report = omnigraph.open(graph, read_only=True).verify()
    counted = ", ".join(f"{number:,} {what}" for what, number in report.counts.items())
    lines = [f"{'sound' if report.ok else 'NOT sound'}: checked {counted}"]
    lines += [
        f"  {one['severity']} {one['kind']} {one.get('table_key', '')}: {one['message']}" for one in report.findings
    ]
    out.report("\n".join(lines), {"ok": report.ok, "findings": report.findings, "counts": report.counts})
    if not report.ok:
        raise typer.Exit(FAILURE)


def ensure_indices(
    graph: GraphUri,
    branch: Branch = "main",
    actor: Actor = None,
    format: Format = "table",
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Build the indexes that are missing. They change speed, never results.

    \b
    Examples:
      omnigraph ensure-indices graph.omni
      omnigraph ensure-indices graph.omni --branch draft --format json
    """
    import omnigraph

    out = Output(format, quiet)
    done = omnigraph.open(graph, actor=actor).ensure_indices(branch=branch)
    built = sum(len(one["built"]) + len(one["extended"]) for one in done)
    lines = [f"built or extended {built} index(es) on {branch}" if built else f"all indexes of {branch} are there"]
    for one in done:
        for what in ("built", "extended"):
            lines += [f"  {one['table_key']}: {what} {', '.join(one[what])}"] if one[what] else []
        lines += [f"  {one['table_key']}: not yet {p['column']}: {p['reason']}" for p in one["pending"]]
    out.report("\n".join(lines), {"branch": branch, "tables": done})


def optimize(
    graph: GraphUri,
    branch: Branch = "main",
    actor: Actor = None,
    format: Format = "table",
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Extend indexes to new rows, and turn many small data files into few. Readers and writers go on meanwhile.

    \b
    Examples:
      omnigraph optimize graph.omni
      omnigraph optimize graph.omni --branch draft --format json
    """
    import omnigraph

    out = Output(format, quiet)
    opened = omnigraph.open(graph, actor=actor)
    with out.counting(f"compacting {branch}") as progress:
        done = opened.optimize(branch=branch, progress=progress)
    tables = [{name: getattr(one, name) for name in one.__slots__} for one in done.tables]
    if format == "table":
        shown = [
            {
                "table": one.table_key,
                "action": one.action if one.reason is None else f"{one.action} ({one.reason})",
                "fragments": _change(one.fragments_before, one.fragments_after),
                "size": _change(_size(one.bytes_before), _size(one.bytes_after)),
                "version": _change(one.version, one.manifest_version),
                "indexes extended": ", ".join(one.extended) or None,
                "seconds": f"{one.seconds:.2f}",
            }
            for one in done.tables
        ]
        if shown:
            out.records(dict.fromkeys(shown[0], "String"), shown)
        print(f"commit {done.commit.id}" if done.commit else f"nothing of {branch} had to move")
    else:
        commit = done.commit.id if done.commit else None
        out.report("", {"branch": branch, "commit": commit, "tables": tables, "system": done.system})
    for one in done.tables:
        if one.reason in ("DriftNeedsRepair", "NoStableRowIds", "NullBlobsOfOldFormat", "Busy"):
            out.note(f"{one.table_key}: {one.message}")
    if done.commit is not None:
        out.hint(f"omnigraph cleanup {graph} --keep 10   # old versions keep the old files until then")


def cleanup(
    graph: GraphUri,
    keep: Annotated[
        int | None, typer.Option("--keep", metavar="N", min=1, help="The newest commits of every branch that stay.")
    ] = None,
    older_than: Annotated[
        str | None,
        typer.Option("--older-than", metavar="AGE", help="What is younger stays: 90s, 30m, 12h, 7d, 2w."),
    ] = None,
    confirm: Annotated[bool, typer.Option("--confirm", help="Do it; without it, only say what would go.")] = False,
    format: Format = "table",
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Remove old versions and what deleted branches and killed writes left. Without --confirm nothing is removed.

    One of --keep and --older-than is needed; with both, what either keeps stays. What a living branch, a tag or a
    pending recovery needs always stays.

    \b
    Examples:
      omnigraph cleanup graph.omni --keep 10
      omnigraph cleanup graph.omni --older-than 7d --confirm
      omnigraph cleanup s3://bucket/graph --keep 100 --older-than 30d --confirm --format json
    """
    import omnigraph
    from omnigraph.cli.exits import FAILURE, UsageError
    from omnigraph.maintain.cleanup import FEW

    if keep is None and older_than is None:
        raise UsageError(
            "say what is to stay: --keep N commits of every branch, or those younger than --older-than AGE"
        )
    out = Output(format, quiet)
    if keep is not None and keep < FEW and older_than is None:
        out.note(f"with fewer than {FEW} commits kept, a reader that began a moment ago may find its version gone")
    opened = omnigraph.open(graph) if confirm else omnigraph.open(graph, read_only=True)
    with out.counting("cleaning" if confirm else "looking") as progress:
        done = opened.cleanup(keep=keep, older_than=older_than, confirm=confirm, progress=progress)
    if format == "table":
        _show_cleanup(out, done)
    else:
        out.report(
            "",
            {
                "confirmed": done.confirmed,
                "commits_kept": done.commits_kept,
                "commits_lost": done.commits_lost,
                "tables": [{name: getattr(one, name) for name in one.__slots__} for one in done.tables],
                "files": done.files,
            },
        )
    for one in done.failed:
        out.note(f"{one.table} of {one.branch}: {one.message}")
    if done.failed:
        raise typer.Exit(FAILURE)
    if not confirm and any(one.action == "planned" for one in done.tables):
        options = (f" --keep {keep}" if keep is not None else "") + (
            f" --older-than {older_than}" if older_than else ""
        )
        out.hint(f"omnigraph cleanup {graph}{options} --confirm")


def _show_cleanup(out: Output, done: CleanupReport) -> None:
    shown = [
        {
            "table": one.table,
            "branch": one.branch,
            "action": one.action if one.reason is None else f"{one.action} ({one.reason})",
            "versions": f"{one.removed} of {one.removed + one.kept}" if one.removed or one.kept else "all",
            "size": _size(one.bytes),
            "pinned": str(one.pinned) if one.pinned is not None else None,
            "newest": str(one.head) if one.head else None,
        }
        for one in done.tables
        if one.action != "unchanged"
    ]
    if shown:
        out.records(dict.fromkeys(shown[0], "String"), shown)
    versions, size = sum(one.removed for one in done.tables), sum(one.bytes for one in done.tables)
    lost, kept = sum(done.commits_lost.values()), sum(done.commits_kept.values())
    if done.confirmed:
        print(f"removed {versions} version(s), {_size(size)}; {kept} commit(s) can be read, {lost} not any more")
        if done.files:
            print(f"and {len(done.files)} file(s) and folder(s) of killed writes")
    else:
        planned = any(one.action == "planned" for one in done.tables)
        how = "; nothing was removed: --confirm does it" if planned else ""
        print(f"would remove {versions} version(s), {_size(size)}; {kept} commit(s) stay readable, {lost} not{how}")


def _change(before: object, after: object) -> str:
    return str(after) if before == after else f"{before} → {after}"


def _size(size: int) -> str:
    """Bytes as people read them: at most three figures before the point, decimal units."""
    number, units = float(size), ["B", "kB", "MB", "GB", "TB"]
    while number >= 999.5 and len(units) > 1:
        number, units = number / 1000, units[1:]
    return f"{number:.0f} {units[0]}" if units[0] == "B" or number >= 99.5 else f"{number:.1f} {units[0]}"
