"""`blob get|stat`: the bytes of one Blob of a node or edge."""

from __future__ import annotations

import contextlib
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from omnigraph.cli.exits import UsageError
from omnigraph.cli.options import At, Branch, Format, GraphUri, Json, Quiet, parse_at
from omnigraph.cli.output import Output

if TYPE_CHECKING:
    from omnigraph.read import Blob

__all__ = ["register"]

_blob = typer.Typer(name="blob", help="Read Blobs; loads and mutations write them.", no_args_is_help=True)

Type = Annotated[str, typer.Argument(metavar="TYPE", help="A node or edge type.", show_default=False)]
Id = Annotated[str, typer.Argument(metavar="ID", help="A node's key or an edge's id.", show_default=False)]
Property = Annotated[str, typer.Argument(metavar="PROPERTY", help="A Blob property of it.", show_default=False)]

_RANGE = re.compile(r"(\d{0,18})-(\d{0,18})", re.ASCII)


def register(app: typer.Typer) -> None:
    app.add_typer(_blob)


@_blob.command("get")
def get(
    graph: GraphUri,
    type: Type,
    id: Id,
    property: Property,
    range: Annotated[
        str | None,
        typer.Option(
            "--range",
            metavar="A-B",
            help="Bytes A to B, both counted from 0 and included; A- to the end, -N the last N.",
        ),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write here instead of standard output.")
    ] = None,
    branch: Branch = "main",
    at: At = None,
    quiet: Quiet = False,
) -> None:
    """Write the bytes of a Blob, all or a range of them. Only what is written is read.

    \b
    Examples:
      omnigraph blob get graph.omni Person ada photo -o ada.jpg
      omnigraph blob get graph.omni Person ada photo --range 0-511 | file -
      omnigraph blob get graph.omni Person ada photo --branch draft --at 12 > before.jpg
    """
    found = _open(graph, type, id, property, branch, at)
    start, end = _range(range, found.size)
    pieces = found.chunks(start, end)
    if output is None:
        if sys.stdout.isatty():
            raise UsageError("bytes would upset the terminal: write them to a file with -o FILE, or pipe them on")
        sys.stdout.flush()
        for piece in pieces:
            sys.stdout.buffer.write(piece)
        sys.stdout.buffer.flush()
        return
    # Beside the target and then renamed, so that half a Blob never has the final name.
    partial = output.with_name(f"{output.name}.part")
    try:
        with partial.open("wb") as file:
            for piece in pieces:
                file.write(piece)
        partial.replace(output)
    except BaseException:
        with contextlib.suppress(OSError):
            partial.unlink()
        raise
    Output("table", quiet).note(f"wrote {end - start:,} bytes to {output}")


@_blob.command("stat")
def stat(
    graph: GraphUri,
    type: Type,
    id: Id,
    property: Property,
    sha256: Annotated[bool, typer.Option("--sha256", help="Read all bytes, and show their SHA-256.")] = False,
    branch: Branch = "main",
    at: At = None,
    format: Format = "table",
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Show the size and the tag of a Blob. No bytes are read without --sha256.

    \b
    Examples:
      omnigraph blob stat graph.omni Person ada photo
      omnigraph blob stat graph.omni Person ada photo --sha256 --format json
    """
    found = _open(graph, type, id, property, branch, at)
    data = {
        "type": found.type,
        "id": found.id,
        "property": found.property,
        "size": found.size,
        "etag": found.etag,
        "commit": found.commit,
    }
    if sha256:
        data["sha256"] = found.sha256()
    sentence = f"{found.size:,} bytes, etag {found.etag}" + (f", sha256 {data['sha256']}" if sha256 else "")
    Output(format, quiet).report(sentence, data)


def _open(graph: str, type: str, id: str, property: str, branch: str, at: str | None) -> Blob:
    import omnigraph

    return omnigraph.open(graph, read_only=True).blob(type, id, property, branch=branch, at=parse_at(at))


def _range(text: str | None, size: int) -> tuple[int, int]:
    """The half-open range of bytes.

    Raises:
        UsageError: the text is no range, or the Blob has none of its bytes.
    """
    if text is None:
        return 0, size
    found = _RANGE.fullmatch(text)
    if found is None or found[1] == found[2] == "" or (found[1] and found[2] and int(found[2]) < int(found[1])):
        raise UsageError(f"--range {text}: write A-B, A- or -N, such as 0-511 for the first 512 bytes")
    if found[1] == "":
        start, end = max(size - int(found[2]), 0), size
    else:
        start, end = int(found[1]), min(int(found[2]) + 1, size) if found[2] else size
    if start >= end:
        raise UsageError(f"--range {text}: the Blob has {size:,} bytes, and none of these")
    return start, end
