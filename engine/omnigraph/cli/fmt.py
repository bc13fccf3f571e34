"""`fmt`: the one layout of .pg and .gq texts."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Annotated

import typer

from omnigraph.cli.exits import FAILURE, UsageError
from omnigraph.records import dataclass

__all__ = ["register"]

_SUFFIXES = (".pg", ".gq")


def register(app: typer.Typer) -> None:
    app.command("fmt")(fmt)


def fmt(
    paths: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FILE|FOLDER|-",
            help="What to format; - is standard input. Default: the folder you are in.",
            show_default=False,
        ),
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="Write nothing; exit 1 if a file would change.")] = False,
    diff: Annotated[
        bool, typer.Option("--diff", help="Write nothing but the changes; exit 1 if there are any.")
    ] = False,
    stdin_name: Annotated[
        str | None, typer.Option("--stdin-name", metavar="NAME", help="What standard input is called: x.pg or x.gq.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing but errors.")] = False,
) -> None:
    """Lay out schema and query texts in the one way; meaning and comments stay.

    Folders are searched for .pg and .gq files, but for hidden folders and graphs. A faulty file stays as it is.

    \b
    Examples:
      omnigraph fmt
      omnigraph fmt schema.pg queries/
      omnigraph fmt --check --diff
      omnigraph fmt - --stdin-name q.gq < q.gq
    """
    if stdin_name is not None and paths != ["-"]:
        raise UsageError("--stdin-name goes with - alone, which stands for standard input")
    if paths and "-" in paths:
        if len(paths) > 1:
            raise UsageError("- stands alone: name files or give standard input, not both")
        raise typer.Exit(_standard_input(stdin_name, check=check, diff=diff))
    done = [_one(path, check=check, diff=diff) for path in _files(paths or ["."])]
    changed, failed = sum(d.changed for d in done), sum(d.failed for d in done)
    if not quiet:
        print(_summary(changed, len(done) - changed - failed, failed, would=check or diff))
    if failed or (changed and (check or diff)):
        raise typer.Exit(FAILURE)


@dataclass(frozen=True, slots=True)
class _Done:
    changed: bool = False
    failed: bool = False


def _one(path: Path, *, check: bool, diff: bool) -> _Done:
    """Format one file; a fault is said on standard error and hinders no other file."""
    from omnigraph.errors import OmniGraphError

    try:
        raw = path.read_bytes()
        new = _formatter(path.name)(raw.decode("utf-8"), file=str(path)).encode()
        if new == raw:
            return _Done()
        if diff:
            _print_diff(raw.decode("utf-8"), new.decode(), str(path))
        elif check:
            print(f"would change: {path}")
        else:
            _replace(path, new)
    except OmniGraphError as error:
        print(error.message, file=sys.stderr)
    except UnicodeDecodeError as error:
        print(f"{path}: not UTF-8 text (byte {error.start}); left as it is", file=sys.stderr)
    except OSError as error:
        print(f"{path}: {error.strerror or error}", file=sys.stderr)
    else:
        return _Done(changed=True)
    return _Done(failed=True)


def _standard_input(name: str | None, *, check: bool, diff: bool) -> int:
    """Standard input to standard output, or what would change of it."""
    if name is None:
        raise UsageError("say which language standard input is: --stdin-name x.pg or --stdin-name x.gq")
    form = _formatter(name)
    try:
        text = sys.stdin.buffer.read().decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"{name}: not UTF-8 text (byte {error.start})") from None
    new = form(text, file=name)
    if not (check or diff):
        sys.stdout.buffer.write(new.encode())
        return 0
    if new == text:
        return 0
    if diff:
        _print_diff(text, new, name)
    else:
        print(f"would change: {name}")
    return FAILURE


def _formatter(name: str) -> Callable[..., str]:
    """The formatter of a file of this name. Its grammar isn't loaded before there is such a file."""
    if name.endswith(".pg"):
        from omnigraph.schema.format import format_schema

        return format_schema
    if name.endswith(".gq"):
        from omnigraph.query.format import format_queries

        return format_queries
    raise UsageError(f"{name}: neither a schema (.pg) nor a query file (.gq)")


def _files(paths: Iterable[str]) -> list[Path]:
    """The files to format, each once, in the order they were named."""
    found: dict[Path, None] = {}
    for name in paths:
        path = Path(name)
        if path.is_dir():
            found |= dict.fromkeys(_inside(path))
        elif not path.exists():
            raise UsageError(f"{name}: no such file or folder")
        else:
            _formatter(path.name)
            found[path] = None
    return list(found)


def _inside(folder: Path) -> Iterator[Path]:
    for parent, folders, files in os.walk(folder):
        folders[:] = sorted(f for f in folders if not f.startswith(".") and not f.endswith(".omni"))
        yield from (Path(parent) / f for f in sorted(files) if f.endswith(_SUFFIXES))


def _replace(path: Path, content: bytes) -> None:
    """Put a new content in a file's place: a reader sees the old one or the new one whole. A link stays a link."""
    target = path.resolve()
    mode = target.stat().st_mode
    handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.chmod(temporary, mode & 0o7777)
        os.replace(temporary, target)
    except BaseException:
        os.unlink(temporary)
        raise


def _print_diff(old: str, new: str, name: str) -> None:
    import difflib
    import re

    # Lines end at \n alone, as in the languages; a \r is shown as a part of its line.
    before, after = (re.findall(r"[^\n]*\n|[^\n]+", text) for text in (old, new))
    for line in difflib.unified_diff(before, after, name, f"{name} (formatted)"):
        sys.stdout.write(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n")


def _summary(changed: int, unchanged: int, failed: int, *, would: bool) -> str:
    """`3 formatted, 5 unchanged`."""
    parts = [f"{changed:,} {'would change' if would else 'formatted'}", f"{unchanged:,} unchanged"]
    return ", ".join([*parts, f"{failed:,} not formatted"] if failed else parts)
