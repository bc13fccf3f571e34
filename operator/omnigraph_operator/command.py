"""`omnigraph up` and `omnigraph operator`. Light at import: what runs is imported when it runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Literal

import typer

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the commands to `omnigraph` (entry-point group `omnigraph.commands`)."""
    app.command("up")(up)
    app.command("get")(get)
    app.command("logs")(logs)
    app.command("delete")(delete)
    app.command("operator")(operator)


Files = Annotated[
    list[str],
    typer.Option("--file", "-f", metavar="PATH", help="A manifest, a folder of them, or - ; repeatable."),
]
StateFolder = Annotated[
    Path | None,
    typer.Option("--state", metavar="DIR", help="The state folder; default .omnigraph beside the first manifest."),
]


def up(
    file: Files,
    once: Annotated[bool, typer.Option("--once", help="End when everything is as declared, or can't be.")] = False,
    keep: Annotated[bool, typer.Option("--keep", help="With --once: leave the servers running.")] = False,
    stop: Annotated[bool, typer.Option("--stop", help="Only stop what an earlier --keep left running.")] = False,
    state: StateFolder = None,
) -> None:
    """Make manifests true on this machine: the same files as for a cluster, with processes for pods.

    \b
    Examples:
      omnigraph up -f examples/python-env
      omnigraph up -f graph.yaml --once --keep
      omnigraph up -f graph.yaml --stop
    """
    from omnigraph_operator.platform.local_up import default_state, run, stop_processes

    folder = state or default_state(file)
    if stop:
        raise typer.Exit(stop_processes(folder, show=_show()))
    raise typer.Exit(run(file, folder, once=once, keep=keep, show=_show()))


HereState = Annotated[Path, typer.Option("--state", metavar="DIR", help="The state folder of `omnigraph up`.")]


def get(
    kind: Annotated[str, typer.Argument(help="A kind, such as og or omnigraphs.")] = "omnigraphs",
    name: Annotated[str | None, typer.Argument(help="One object; all without it.")] = None,
    output: Annotated[
        Literal["table", "wide", "yaml", "json", "name"], typer.Option("--output", "-o", help="How to show them.")
    ] = "table",
    state: HereState = Path(".omnigraph"),
) -> None:
    """Show objects of a state folder as kubectl shows them on a cluster.

    \b
    Examples:
      omnigraph get --state examples/python-env/.omnigraph
      omnigraph get og python-env -o yaml --state examples/python-env/.omnigraph
    """
    from omnigraph_operator.platform.local_inspect import show_objects

    raise typer.Exit(show_objects(state, kind, name, output))


def logs(
    workload: Annotated[str | None, typer.Argument(help="A workload, or the beginning of its name.")] = None,
    state: HereState = Path(".omnigraph"),
) -> None:
    """Print a workload's output; without a name, list the workloads.

    \b
    Examples:
      omnigraph logs --state examples/python-env/.omnigraph
      omnigraph logs python-env-load --state examples/python-env/.omnigraph
    """
    from omnigraph_operator.platform.local_inspect import show_logs

    raise typer.Exit(show_logs(state, workload))


def delete(
    kind: Annotated[str, typer.Argument(help="A kind, such as og or omnigraph.")],
    name: Annotated[str, typer.Argument(help="The object.")],
    state: HereState = Path(".omnigraph"),
) -> None:
    """Delete an object: what runs is stopped; its data goes if spec.deletionPolicy is Delete and it made them.

    \b
    Examples:
      omnigraph delete og python-env --state examples/python-env/.omnigraph
    """
    from omnigraph_operator.platform.local_inspect import delete_object

    raise typer.Exit(delete_object(state, kind, name, _show()))


def operator(
    namespace: Annotated[
        list[str] | None, typer.Option("--namespace", "-n", metavar="NAME", help="Look after this one; repeatable.")
    ] = None,
    all_namespaces: Annotated[bool, typer.Option("--all-namespaces", "-A", help="Look after all of them.")] = False,
) -> None:
    """Run the operator on the cluster that the pod or the kubeconfig names.

    \b
    Examples:
      omnigraph operator --all-namespaces
      omnigraph operator --namespace graphs
    """
    if bool(namespace) == all_namespaces:
        raise typer.BadParameter("give --namespace or --all-namespaces")
    from omnigraph_operator.main import run

    raise typer.Exit(run(namespace or ()))


def _show() -> Callable[[str, str], None]:
    from omnigraph_operator.platform.local_inspect import printer

    return printer()
