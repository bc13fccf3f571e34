"""What the routes share: the graph, its stored queries, the tokens, and worker threads for the graph's work."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Annotated, ParamSpec, TypeVar

import anyio
import anyio.to_thread
from fastapi import Depends, Request

from omnigraph.errors import Unavailable
from omnigraph.graph import Graph
from omnigraph_server.auth import TokenStore
from omnigraph_server.metrics import Metrics
from omnigraph_server.settings import Settings
from omnigraph_server.stored import StoredQuery

__all__ = ["Service", "TheService", "Watch"]

P = ParamSpec("P")
T = TypeVar("T")


class Watch:
    """Whether the caller of a request still waits. `gone` is set once it has hung up, or `close` is called."""

    def __init__(self, request: Request) -> None:
        self.gone = threading.Event()
        self._task = asyncio.create_task(self._listen(request))

    async def _listen(self, request: Request) -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass
        self.gone.set()

    def close(self) -> None:
        """Nobody waits any more: what still works for the request ends soon."""
        self.gone.set()
        self._task.cancel()


@dataclass(frozen=True, slots=True)
class Service:
    """Args:
    limiter: how many writes and small questions run at the same time.
    readers: the threads of queries, apart from the others: however long queries take, a write or `/readyz` need not
        wait for them.
    """

    graph: Graph
    stored: Mapping[str, StoredQuery]
    tokens: TokenStore | None  # None: no authentication
    settings: Settings
    metrics: Metrics
    limiter: anyio.CapacityLimiter
    readers: ThreadPoolExecutor

    async def work(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a call on a worker thread: the graph's work never holds up the event loop."""
        return await anyio.to_thread.run_sync(functools.partial(call, *args, **kwargs), limiter=self.limiter)

    async def read(self, call: Callable[[], T], seconds: float | None = None) -> T:
        """Run a read, bounded in time. One that is given up keeps its thread until it ends, unheard.

        Args:
            seconds: how long its caller would wait; never longer than the server allows.

        Raises:
            Unavailable: it took longer (`query_timeout`), or no thread was free meanwhile (`server_busy`).
        """
        most = self.settings.query_max_seconds
        seconds = most if seconds is None else min(seconds, most)
        future = self.readers.submit(call)
        try:
            with anyio.fail_after(seconds):
                return await asyncio.wrap_future(future)
        except TimeoutError:
            if future.cancel():  # it never began
                raise Unavailable(
                    f"the server was busy with other queries for {seconds:g} s: ask again later, "
                    "or let more run at a time (OMNIGRAPH_SERVER_THREADS)",
                    code="server_busy",
                ) from None
            raise Unavailable(
                f"the query took longer than {seconds:g} s: ask for less, or allow more with timeout_seconds, "
                f"up to {most} here (OMNIGRAPH_SERVER_QUERY_MAX_SECONDS)",
                code="query_timeout",
            ) from None


def _service(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


TheService = Annotated[Service, Depends(_service)]
