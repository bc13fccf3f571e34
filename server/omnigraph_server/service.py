"""What the routes share: the graph, its stored queries, the tokens, and worker threads for the graph's work."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Callable, Mapping
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

__all__ = ["Service", "TheService"]

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Service:
    graph: Graph
    stored: Mapping[str, StoredQuery]
    tokens: TokenStore | None  # None: no authentication
    settings: Settings
    metrics: Metrics
    limiter: anyio.CapacityLimiter

    async def work(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a call on a worker thread: the graph's work never holds up the event loop."""
        return await anyio.to_thread.run_sync(functools.partial(call, *args, **kwargs), limiter=self.limiter)

    async def query(self, call: Callable[[Callable[[], bool]], T], request: Request) -> T:
        """Like `read`, for what asks now and then whether it is still wanted: where its time is over or its caller has
        gone, it ends soon, and its thread with it.

        Args:
            call: is given the question, which is true once nobody waits any more.

        Raises:
            Unavailable: it took longer than the server allows.
        """
        given_up = threading.Event()

        async def watch() -> None:
            while (await request.receive())["type"] != "http.disconnect":
                pass
            given_up.set()

        watching = asyncio.create_task(watch())
        try:
            return await self.read(lambda: call(given_up.is_set))
        finally:
            given_up.set()
            watching.cancel()

    async def read(self, call: Callable[[], T]) -> T:
        """Like `work`, bounded in time. A call that is given up runs to its end on its thread, unheard.

        Raises:
            Unavailable: it took longer than the server allows.
        """
        try:
            with anyio.fail_after(self.settings.query_max_seconds):
                return await anyio.to_thread.run_sync(call, abandon_on_cancel=True, limiter=self.limiter)
        except TimeoutError:
            raise Unavailable(
                f"the query took longer than {self.settings.query_max_seconds} s: ask for less",
                code="query_timeout",
            ) from None


def _service(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


TheService = Annotated[Service, Depends(_service)]
