"""`omnigraph serve`. Light at import: the application is built only when the command runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from omnigraph.errors import Unavailable

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add `serve` to the `omnigraph` command (entry-point group `omnigraph.commands`)."""
    app.command("serve")(serve)


def serve(
    uri: Annotated[str, typer.Argument(metavar="GRAPH", help="A graph: a folder or an s3:// URI.", show_default=False)],
    host: Annotated[str, typer.Option("--host", help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="Port to listen on; 0 picks a free one.")
    ] = 8080,
    queries: Annotated[
        list[Path] | None,
        typer.Option("--queries", metavar="FILE", help="Stored queries (.gq file or folder); repeatable."),
    ] = None,
    tokens_file: Annotated[
        Path | None,
        typer.Option(
            "--tokens-file",
            envvar="OMNIGRAPH_SERVER_BEARER_TOKENS_FILE",
            metavar="FILE",
            help="Bearer tokens: YAML or JSON, or a folder with one file an actor.",
        ),
    ] = None,
    unauthenticated: Annotated[
        bool, typer.Option("--unauthenticated", help="Serve without tokens: anyone may do anything.")
    ] = False,
    read_only: Annotated[
        bool, typer.Option("--read-only", help="Never write; any number of such servers may run.")
    ] = False,
    sweep: Annotated[
        Literal["full", "forward", "none"] | None,
        typer.Option("--sweep", help="Settle interrupted writes first; by default what is safe for the store."),
    ] = None,
    ready_file: Annotated[
        Path | None, typer.Option("--ready-file", metavar="FILE", help='Written once serving: {"url", "pid"}.')
    ] = None,
) -> None:
    """Serve a graph over HTTP: queries, mutations, stored queries, metrics; see /docs once it runs.

    \b
    Examples:
      omnigraph serve graph.omni --unauthenticated
      omnigraph serve graph.omni --queries queries.gq --tokens-file tokens.yaml --port 8080
      omnigraph serve s3://bucket/graph --read-only --tokens-file tokens/ --host 0.0.0.0

    \b
    The tokens file holds one entry an actor:
      ada: a-long-random-token
      ci:
        token: another-token
        allow:
        - read
        - change
    A token without `allow` may only read.
    """
    if (tokens_file is None) == (not unauthenticated):
        raise typer.BadParameter(
            "give --tokens-file FILE, or --unauthenticated to let anyone do anything; exactly one of the two"
        )
    try:
        from omnigraph_server.run import ServeOptions
        from omnigraph_server.run import serve as run
    except ModuleNotFoundError as error:
        raise Unavailable(f"the server needs the package {error.name}: pip install 'omnigraph[server]'") from None
    run(
        ServeOptions(
            uri=uri,
            host=host,
            port=port,
            queries=tuple(queries or ()),
            tokens_file=tokens_file,
            read_only=read_only,
            sweep=sweep,
            ready_file=ready_file,
        )
    )
