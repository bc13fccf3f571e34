"""Builds the `omnigraph` command and ends it: the only place that turns an error into an exit code.

The engine's own commands are known by name. Server and operator add theirs through the entry-point group
`omnigraph.commands`; those are looked up only when the command asked for isn't one of the engine's own.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import typer

from omnigraph.cli import branches, graphs, maintenance, queries, schemas, task
from omnigraph.cli.exits import FAILURE, exit_for

__all__ = ["build", "main"]

_HELP = """Typed property graphs as data you can branch, review and declare.

\b
Examples:
  omnigraph init graph.omni --schema schema.pg
  omnigraph load graph.omni people.ndjson
  omnigraph query graph.omni -e 'query all { match { $p: Person } return { $p.name } }'
  omnigraph serve graph.omni --unauthenticated

\b
Exit codes: 0 ok, 1 failure, 2 usage, 3 conflict, 4 precondition, 5 recovery pending.
"""


def build(*, extensions: bool) -> typer.Typer:
    """The whole command; with `extensions`, also what other packages add to it."""
    app = typer.Typer(
        name="omnigraph",
        help=_HELP,
        no_args_is_help=True,
        rich_markup_mode=None if os.environ.get("NO_COLOR") else "rich",
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    for module in (graphs, queries, branches, schemas, maintenance):
        module.register(app)
    app.add_typer(task.app)
    if extensions:
        _extend(app)
    return app


def _extend(app: typer.Typer) -> None:
    """Let each entry point of the group `omnigraph.commands` register its commands."""
    from importlib.metadata import entry_points

    for point in sorted(entry_points(group="omnigraph.commands"), key=lambda p: p.name != "serve"):
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
    command = typer.main.get_command(build(extensions=_asks_for_more(args)))
    try:
        result = command.main(args=args, prog_name="omnigraph", standalone_mode=True)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else FAILURE if end.code else 0
    except Exception as error:
        ending = exit_for(error)
        if ending is None:
            raise
        print(f"error: {ending.message}", file=sys.stderr)
        return ending.status
    return result if isinstance(result, int) else 0


def _asks_for_more(args: Sequence[str]) -> bool:
    """Whether the command asked for isn't one of the engine's own, so that extensions have to be looked up."""
    own = {"init", "load", "export", "snapshot", "version", "query", "mutate", "explain", "lint", "branch", "commit"}
    own |= {"schema", "recover", "verify", "ensure-indices", "task"}
    return not args or args[0] not in own


if __name__ == "__main__":
    sys.exit(main())
