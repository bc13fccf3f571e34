"""Builds the `omnigraph` command and ends it: the only place that turns an error into an exit code.

Only the module of the command asked for is imported. Server and operator add theirs through the entry-point group
`omnigraph.commands`; those are looked up only when the command asked for isn't one of the engine's own.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from importlib import import_module
from typing import TYPE_CHECKING

from omnigraph.cli.exits import FAILURE, exit_for
from omnigraph.cli.interrupt import INTERRUPTED, ended_at_once
from omnigraph.cli.streams import standard_streams

if TYPE_CHECKING:
    import typer

__all__ = ["build", "main"]

_HELP = """Typed property graphs as data you can branch, review and declare.

\b
Examples:
  omnigraph init graph.omni --schema schema.pg
  omnigraph load graph.omni people.ndjson
  omnigraph query graph.omni -e 'query all() { match { $p: Person } return { $p.name } }'
  omnigraph serve graph.omni --unauthenticated

\b
Exit codes: 0 ok, 1 failure, 2 usage, 3 conflict, 4 precondition, 5 recovery pending, 130 interrupted.
"""

# Which module registers which commands: the order of the help.
_MODULES = {
    "graphs": ("init", "load", "export", "snapshot", "version"),
    "queries": ("query", "mutate", "explain"),
    "blobs": ("blob",),
    "lint": ("lint",),
    "fmt": ("fmt",),
    "branches": ("branch", "commit", "changes"),
    "schemas": ("schema",),
    "maintenance": ("recover", "repair", "verify", "ensure-indices", "optimize", "cleanup"),
    "embed": ("embed",),
    "task": ("task",),
}


# Those that write nothing: Ctrl-C need not wait for them.
_READS = frozenset({"query", "explain", "snapshot", "commit", "changes", "verify", "lint"})

# Those in whose process nothing uses pandas. Tasks may run Spark, and extensions anything.
_WITHOUT_PANDAS = frozenset(name for commands in _MODULES.values() for name in commands) - {"task"}


class _WithoutPandas:
    """Says that it isn't installed. `None` among the modules doesn't: pyarrow takes that for the package, and fails."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError(name, name=name)


def build(command: str | None = None) -> typer.Typer:
    """The `omnigraph` command.

    Args:
        command: the command that will run. If it is one of the engine's own, its module alone is imported; else, and
            without a name, everything is there, extensions by other packages included.
    """
    import typer

    app = typer.Typer(
        name="omnigraph",
        help=_HELP,
        no_args_is_help=True,
        rich_markup_mode=None if os.environ.get("NO_COLOR") else "rich",
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )

    @app.callback()
    def root() -> None: ...

    root.__doc__ = _HELP
    own = [module for module, commands in _MODULES.items() if command in commands]
    for module in own or _MODULES:
        import_module(f"omnigraph.cli.{module}").register(app)
    if not own:
        _extend(app, command)
    return app


def _extend(app: typer.Typer, command: str | None) -> None:
    """Let the entry points of the group `omnigraph.commands` register their commands.

    One that is named like the command asked for is enough; else any of them may have it.
    """
    from importlib.metadata import entry_points

    points = sorted(entry_points(group="omnigraph.commands"), key=lambda point: point.name)
    for point in [point for point in points if point.name == command] or points:
        try:
            register = point.load()
        except ImportError as error:
            print(f"omnigraph: the commands of {point.value} are not available: {error}", file=sys.stderr)
            continue
        register(app)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line.

    Args:
        argv: the arguments after the program's name; default is the process's own.

    Returns:
        The exit code (`exits`).
    """
    args = list(sys.argv[1:] if argv is None else argv)
    if argv is None:
        standard_streams()
    if args in (["version"], ["--version"]):
        # Asked by every script and probe, and answered without building anything.
        from importlib.metadata import version

        print(f"omnigraph {version('omnigraph')}")
        return 0
    if argv is None and args and args[0] in _WITHOUT_PANDAS:
        # Lance's and pyarrow's packages import it wherever it is installed, which takes longer than most commands.
        sys.meta_path.insert(0, _WithoutPandas)
        gc.set_threshold(100_000, 50, 50)  # what is imported is no garbage, and to look through it takes 40 ms
    os.environ.setdefault("LANCE_LOG", "error")  # its warnings are about its insides; what matters is raised
    try:
        with ended_at_once() if args and args[0] in _READS else nullcontext():
            return _run(args)
    finally:
        if argv is None:
            gc.freeze()  # the process ends: to look through all objects for garbage takes Python some 60 ms


def _run(args: list[str]) -> int:
    import typer

    command = typer.main.get_command(build(args[0] if args else None))
    try:
        result = command.main(args=args, prog_name="omnigraph", standalone_mode=True)
    except SystemExit as end:
        if end.code == INTERRUPTED:
            print("interrupted", file=sys.stderr)
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        return FAILURE
    except Exception as error:
        ending = exit_for(error)
        if ending is None:
            raise
        print(f"error: {ending.message}", file=sys.stderr)
        return ending.status
    return result if isinstance(result, int) else 0


if __name__ == "__main__":
    sys.exit(main())
