"""`/healthz`, `/readyz`, `/metrics`: for whoever runs the server; no token needed."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Response

from omnigraph.errors import OmniGraphError, Unavailable
from omnigraph_server.service import TheService

__all__ = ["router"]

router = APIRouter(tags=["health"])


@router.get("/healthz", summary="The process lives")
async def healthz() -> dict[str, str]:
    return {"status": "ok"}


@router.get("/readyz", summary="The store is reachable and the schema is valid")
async def readyz(service: TheService) -> dict[str, Any]:
    def look() -> dict[str, Any]:
        try:
            seen = service.graph.snapshot()
            # Writes in flight leave such files too, so they are reported and don't make the server unready.
            pending = len(service.graph.pending())
        except (OmniGraphError, OSError) as error:
            raise Unavailable(f"the graph can't be read: {error}") from error
        return {"status": "ready", "manifest_version": seen.manifest_version, "pending_recoveries": pending}

    return await service.work(look)


@router.get("/metrics", summary="Prometheus metrics", response_class=Response)
async def metrics(service: TheService) -> Response:
    return Response(service.metrics.render(), media_type="text/plain; version=0.0.4; charset=utf-8")
