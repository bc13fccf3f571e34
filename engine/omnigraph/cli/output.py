"""What commands write: answers to standard output in the chosen format, everything else to standard error.

A command's answer is a *table* (rows of a query), *records* (rows the command makes itself, such as branches) or a
*report* (what it did, said in a sentence to people and as one object to machines).
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeAlias

from omnigraph.records import dataclass

if TYPE_CHECKING:
    import pyarrow as pa

    from omnigraph.cli.options import FormatName
    from omnigraph.query.ir import ResultColumn
    from omnigraph.write import Progress as LoadProgress

__all__ = ["Output", "Progress", "color_allowed", "write_pieces"]


COUNTER_SECONDS = 10.0
"""Between two lines of progress where no terminal is."""

Progress: TypeAlias = "Callable[[LoadProgress], None]"
"""Told how far a load has come."""


def color_allowed() -> bool:
    """NO_COLOR, set to anything, means none (no-color.org)."""
    return not os.environ.get("NO_COLOR")


def write_pieces(pieces: Iterable[str | bytes]) -> None:
    """Write to standard output, text or binary, piece by piece."""
    for piece in pieces:
        if isinstance(piece, bytes):
            sys.stdout.flush()
            sys.stdout.buffer.write(piece)
        else:
            sys.stdout.write(piece)
    sys.stdout.flush()


@dataclass(frozen=True, slots=True)
class Output:
    """One command's voice.

    Args:
        format: how the answer is written.
        quiet: nothing on standard error but errors.
    """

    format: FormatName = "table"
    quiet: bool = False

    # ---- answers ---------------------------------------------------------------------------------------------------

    def table(self, table: pa.Table, columns: Sequence[ResultColumn]) -> None:
        """The rows of a query, rendered by the reading room."""
        from omnigraph.read import render

        write_pieces(render(table, columns, self.format))

    def records(
        self, columns: Mapping[str, str], rows: Sequence[Mapping[str, Any]], *, narrow: Sequence[str] = ()
    ) -> None:
        """Rows a command makes itself, in the same formats as a query's.

        Args:
            columns: base type (`String`, `I64`, `Bool`, `DateTime`) by column name, in order; every column is nullable.
            rows: values by column name.
            narrow: the columns that a terminal has room for; all of them without it. Machines get all in any case.
        """
        import pyarrow as pa

        from omnigraph.query.ir import ResultColumn
        from omnigraph.schema.catalog import Type

        if narrow and self.format == "table":
            columns = {name: columns[name] for name in narrow}
        arrow = {"String": pa.string(), "I64": pa.int64(), "Bool": pa.bool_(), "DateTime": pa.timestamp("ms", "UTC")}
        fields = [pa.field(name, arrow[base]) for name, base in columns.items()]
        table = pa.Table.from_pylist([{name: row[name] for name in columns} for row in rows], schema=pa.schema(fields))
        self.table(table, [ResultColumn(name, Type(base, nullable=True)) for name, base in columns.items()])

    def report(self, sentence: str, data: Mapping[str, Any]) -> None:
        """What a command did: the sentence for people (`table`), the object for machines (every other format)."""
        if self.format == "table":
            print(sentence)
        elif self.format == "kv":
            for key, value in data.items():
                print(f"{key}: {value if isinstance(value, str) else json.dumps(_plain(value), ensure_ascii=False)}")
        else:
            indent = 2 if self.format == "json" else None
            print(json.dumps(_plain(data), ensure_ascii=False, indent=indent))

    # ---- asides ----------------------------------------------------------------------------------------------------

    def note(self, text: str) -> None:
        """A remark for people: a warning, or what to do next."""
        if not self.quiet:
            print(text, file=sys.stderr)

    def hint(self, text: str) -> None:
        """What to do next; only where a person is looking."""
        if not self.quiet and self.format == "table" and sys.stdout.isatty():
            print(f"next: {text}", file=sys.stderr)

    @contextmanager
    def progress(self, label: str) -> Iterator[Progress | None]:
        """How far a load has come: a bar on a terminal, elsewhere a line of counters every `COUNTER_SECONDS`."""
        if self.quiet:
            yield None
            return
        if not sys.stderr.isatty():
            say = _now_and_then()

            def count(step: LoadProgress) -> None:
                of = f" of {step.total_bytes / 1e6:,.0f}" if step.total_bytes else ""
                say(f"{label}: {step.rows:,} rows, {step.bytes / 1e6:,.0f}{of} MB")

            yield count
            return
        from rich.progress import DownloadColumn, TextColumn

        with _bar(DownloadColumn(), TextColumn("{task.fields[rows]:,} rows")) as bar:
            task = bar.add_task(label, total=None, rows=0)
            yield lambda step: bar.update(task, completed=step.bytes, total=step.total_bytes or None, rows=step.rows)

    @contextmanager
    def measured(self, label: str, unit: str) -> Iterator[Callable[[int, int], None] | None]:
        """The same for work whose size is known: called with what is done and what there is."""
        if self.quiet:
            yield None
            return
        if not sys.stderr.isatty():
            say = _now_and_then()
            yield lambda done, total: say(f"{label}: {done:,} of {total:,} {unit}")
            return
        from rich.progress import MofNCompleteColumn, TextColumn

        with _bar(MofNCompleteColumn(), TextColumn(unit)) as bar:
            task = bar.add_task(label, total=None)
            yield lambda done, total: bar.update(task, completed=done, total=total)

    @contextmanager
    def counting(self, label: str) -> Iterator[Callable[[str], None] | None]:
        """A line on standard error that counts and names what was done last; None where no person is looking."""
        if self.quiet or not sys.stderr.isatty():
            yield None
            return
        from rich.console import Console
        from rich.text import Text

        count = 0
        with Console(stderr=True, no_color=not color_allowed()).status(Text(label)) as status:

            def advance(name: str) -> None:
                nonlocal count
                count += 1
                status.update(Text(f"{label}: {count} ({name})"))  # names are no markup

            yield advance


def _now_and_then() -> Callable[[str], None]:
    """Writes a line to standard error, unless one was written less than `COUNTER_SECONDS` ago."""
    last = [time.monotonic()]

    def say(line: str) -> None:
        if time.monotonic() - last[0] >= COUNTER_SECONDS:
            last[0] = time.monotonic()
            print(line, file=sys.stderr, flush=True)

    return say


def _bar(*columns: Any) -> Any:
    """A bar on standard error that goes when it is done."""
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    return Bar(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        *columns,
        TimeElapsedColumn(),
        console=Console(stderr=True, no_color=not color_allowed()),
        transient=True,
    )


def _plain(value: Any) -> Any:
    """Plain JSON values out of mappings, sequences, times and whatever else has a text."""
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(v) for v in value]
    if isinstance(value, datetime):
        return value.isoformat()
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)
