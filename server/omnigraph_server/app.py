"""The application factory."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path

import anyio
from fastapi import FastAPI

from omnigraph.graph import Graph
from omnigraph_server import errors
from omnigraph_server.auth import TokenStore
from omnigraph_server.metrics import Metrics
from omnigraph_server.middleware import Envelope
from omnigraph_server.routes import blobs, data, health, lineage, queries
from omnigraph_server.service import Service
from omnigraph_server.settings import Settings
from omnigraph_server.stored import read_stored

__all__ = ["create_app"]


def create_app(
    graph: Graph,
    *,
    tokens: TokenStore | None,
    stored: Iterable[Path] = (),
    settings: Settings | None = None,
) -> FastAPI:
    """An application that serves one graph.

    Args:
        graph: opened; read-only if the server must never write.
        tokens: who may ask; None means anyone may do anything.
        stored: files and folders of stored queries.
        settings: limits.

    Raises:
        LanguageError: a stored query doesn't typecheck against the live schema; names file, line and column.
        BadRequest: a stored query can't be read, or its name is taken.
    """
    settings = settings or Settings()
    metrics = Metrics()
    app = FastAPI(
        title="OmniGraph",
        version=version("omnigraph"),
        description="One typed property graph over HTTP.",
        openapi_url="/openapi.json",
        redoc_url=None,
    )
    app.state.service = Service(
        graph=graph,
        stored=read_stored(stored, graph.schema.catalog),
        tokens=tokens,
        settings=settings,
        metrics=metrics,
        limiter=anyio.CapacityLimiter(settings.threads),
        readers=ThreadPoolExecutor(settings.threads, thread_name_prefix="omnigraph-read"),
    )
    errors.install(app)
    for module in (health, data, blobs, queries, lineage):
        app.include_router(module.router)
    app.add_middleware(Envelope, metrics=metrics, body_max_bytes=settings.body_max_bytes)
    return app
