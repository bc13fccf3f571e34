"""Runs the application: takes the port, opens the graph, says where it serves, finishes everything on SIGTERM."""

from __future__ import annotations

import errno
import json
import os
import signal
import socket
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import structlog
import uvicorn

from omnigraph.errors import RecoveryPending, Unavailable
from omnigraph.graph import Graph, Recovery
from omnigraph_server import logs
from omnigraph_server.app import create_app
from omnigraph_server.auth import TokenStore
from omnigraph_server.settings import Settings

__all__ = ["ServeOptions", "bind", "serve"]

_log = structlog.get_logger("omnigraph.server")


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """What `omnigraph serve` was told. Without a tokens file anyone may do anything."""

    uri: str
    host: str = "127.0.0.1"
    port: int = 8080
    queries: Sequence[Path] = ()
    tokens_file: Path | None = None
    read_only: bool = False
    sweep: Recovery | None = None
    ready_file: Path | None = None


def serve(options: ServeOptions) -> None:
    """Serve until SIGTERM or SIGINT; returns when every running request is answered.

    Raises:
        BadRequest: tokens or stored queries are refused.
        RecoveryPending: an interrupted write needs a roll-back that wasn't allowed.
        Unavailable: the port is taken.
    """
    settings = Settings.from_env()
    logs.configure()
    tokens = TokenStore(options.tokens_file) if options.tokens_file is not None else None
    # The port first: a server that can't listen must not have swept anything.
    with bind(options.host, options.port) as sock:
        if options.ready_file is not None:
            # A killed server may have left its own.
            options.ready_file.unlink(missing_ok=True)
        graph = open_graph(options)
        app = create_app(graph, tokens=tokens, stored=options.queries, settings=settings)
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            server_header=False,
            lifespan="off",
            timeout_graceful_shutdown=settings.shutdown_seconds,
        )
        # uvicorn raises the signal again after its shutdown; this makes that the normal end, exit code 0.
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, _ended)
        try:
            Announcing(config, options, graph.uri).run(sockets=[sock])
        finally:
            if options.ready_file is not None:
                options.ready_file.unlink(missing_ok=True)
    _log.info("stopped", uri=graph.uri)


def open_graph(options: ServeOptions) -> Graph:
    """The graph, swept as asked; refuses where something stays to be rolled back."""
    if options.read_only:
        return Graph.open(options.uri, read_only=True)
    graph = Graph.open(options.uri, recovery=options.sweep or "auto")
    report = graph.recovered
    if report is not None and report.outcomes:
        _log.warning("recovered", outcomes=[dict(one) for one in report.outcomes])
    unsettled = [str(one["sidecar"]) for one in (report.pending if report else ()) if one["reason"] != "Live"]
    if unsettled:
        raise RecoveryPending(
            f"{unsettled[0]}: this write must be rolled back: stop all writers, run `omnigraph recover {graph.uri}`",
            sidecars=unsettled,
        )
    return graph


def bind(host: str, port: int) -> socket.socket:
    """A listening socket's address, taken. Port 0 takes a free one.

    Raises:
        Unavailable: the port is in use or not allowed, or the address isn't this machine's.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio turns Nagle's algorithm off only where the socket says it is TCP; with it on, an answer of two writes
    # waits some 40 ms for the client's delayed acknowledgement.
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, port))
        # Listening at once: with SO_REUSEADDR two sockets may be bound, but only one can listen.
        sock.listen(2048)
    except OSError as error:
        sock.close()
        if error.errno == errno.EADDRINUSE:
            raise Unavailable(
                f"port {port} on {host} is in use: stop what listens there, or choose another --port (0 finds one)",
                code="port_in_use",
            ) from None
        raise Unavailable(f"can't listen on {host} port {port}: {error.strerror or error}", code="no_port") from None
    except (TypeError, ValueError):  # not UTF-8, a NUL, or a label that no host's name has
        sock.close()
        raise Unavailable(f"can't listen on {host!r} port {port}: no address of a host", code="no_port") from None
    return sock


class Announcing(uvicorn.Server):
    """A uvicorn server that says where it serves, once it does."""

    def __init__(self, config: uvicorn.Config, options: ServeOptions, uri: str) -> None:
        super().__init__(config)
        self._options = options
        self._uri = uri

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        if self.should_exit or not sockets:
            return
        host, port = sockets[0].getsockname()[:2]
        url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
        ready = {"url": url, "pid": os.getpid()}
        if self._options.ready_file is not None:
            _write_atomically(self._options.ready_file, json.dumps(ready))
        if sys.stdout.isatty():
            mode = "read-only" if self._options.read_only else "read-write"
            print(f"serving {self._uri} ({mode}) at {url}  (docs: {url}/docs; Ctrl-C stops)", flush=True)
        else:
            print(
                json.dumps({"event": "serving", **ready, "uri": self._uri, "read_only": self._options.read_only}),
                flush=True,
            )


def _write_atomically(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)


def _ended(_number: int, _frame: FrameType | None) -> None:
    """Nothing left to do: uvicorn has shut down when this runs."""
