"""Arguments and options that several commands share, and how their texts are read."""

from __future__ import annotations

import sys
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

import typer

from omnigraph.cli.exits import UsageError
from omnigraph.json_text import NotJson, read_json
from omnigraph.points import parse_moment

__all__ = [
    "Actor",
    "At",
    "Branch",
    "Format",
    "FormatName",
    "GraphUri",
    "Inline",
    "Json",
    "Params",
    "QueryFile",
    "QueryName",
    "Quiet",
    "parse_at",
    "parse_params",
    "query_source",
    "read_text",
]

FormatName: TypeAlias = Literal["table", "json", "jsonl", "csv", "kv", "arrow"]

GraphUri = Annotated[
    str, typer.Argument(metavar="GRAPH", help="A graph: a folder or an s3:// URI.", show_default=False)
]
Branch = Annotated[str, typer.Option("--branch", "-b", metavar="NAME", help="The branch.")]
At = Annotated[
    str | None,
    typer.Option("--at", metavar="WHEN", help="A commit id, a manifest version, or an ISO time (UTC unless it says)."),
]
Format = Annotated[FormatName, typer.Option("--format", "-f", help="How the answer is written to standard output.")]


def _choose_json(context: typer.Context, chosen: bool) -> bool:
    if chosen:  # what --format is where nobody said it
        context.default_map = {**(context.default_map or {}), "format": "json"}
    return chosen


Json = Annotated[bool, typer.Option("--json", is_eager=True, callback=_choose_json, help="The same as --format json.")]
"""Acts on `format`; a command takes it and need not look at it."""
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no hints on standard error.")]
Actor = Annotated[str | None, typer.Option("--as", metavar="ACTOR", help="Who is asking; recorded in the commit.")]
Params = Annotated[
    str | None,
    typer.Option("--params", "-p", metavar="JSON|@FILE", help="Parameters as a JSON object, @FILE, or @- for stdin."),
]
QueryFile = Annotated[
    str | None, typer.Argument(metavar="FILE", help="A .gq file, or - for standard input.", show_default=False)
]
Inline = Annotated[str | None, typer.Option("-e", "--execute", metavar="TEXT", help="The query text itself.")]
QueryName = Annotated[
    str | None, typer.Option("--name", "-n", metavar="NAME", help="Which query of the text; needed if it has several.")
]


_SHAPE = '{"name": "Ada"}'


def parse_params(text: str | None) -> dict[str, Any]:
    """The `--params` option as a mapping from parameter name to JSON value.

    Raises:
        UsageError: not JSON, or not an object; the message says where.
    """
    if text is None:
        return {}
    origin = "--params"
    if text.startswith("@"):
        origin = text[1:]
        text = read_text(origin)
    try:
        value = read_json(text)
    except NotJson as error:
        place = origin if error.line is None else f"{origin}:{error.line}:{error.column}"
        raise UsageError(f"{place}: not valid JSON: {error.problem}; write {_SHAPE}") from None
    if not isinstance(value, dict):
        raise UsageError(f"{origin}: expected a JSON object such as {_SHAPE}, got {type(value).__name__}")
    return value


def parse_at(text: str | None) -> int | str | datetime | None:
    """The `--at` option: digits are a manifest version, an ISO date or time a moment, anything else a commit id."""
    if text is None:
        return None
    return parse_moment(text)


def query_source(file: str | None, inline: str | None) -> str | Path:
    """The query, from exactly one of a file and `-e`; a path where there is one, so that messages name it."""
    if (file is None) == (inline is None):
        raise UsageError("give the query as a FILE or with -e TEXT, exactly one of the two")
    if inline is not None:
        return inline
    assert file is not None
    return read_text("-") if file == "-" else Path(file)


def read_text(path: str) -> str:
    """A UTF-8 text file, or standard input for `-`.

    Raises:
        UsageError: there is no such file, or it isn't UTF-8.
    """
    try:
        return sys.stdin.read() if path == "-" else Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: not UTF-8 text (byte {error.start})") from None
    except ValueError as error:  # a NUL in the name
        raise UsageError(f"{path!r}: {error}") from None
