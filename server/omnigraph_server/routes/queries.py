"""`/queries`: what is stored, and running it by name."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response

from omnigraph.errors import Forbidden, NotFound
from omnigraph_server.auth import Caller
from omnigraph_server.models import InvokeRequest, MutateReply, QueryReply
from omnigraph_server.routes.answers import answer_mutation, answer_query
from omnigraph_server.service import TheService

__all__ = ["router"]

router = APIRouter(tags=["stored queries"])


@router.get("/queries", summary="The stored queries with their parameters")
async def list_queries(service: TheService, caller: Caller) -> dict[str, list[dict[str, Any]]]:
    if not caller.may("read", "invoke_query"):
        raise Forbidden(f"{caller.actor} may neither read nor invoke_query")
    return {"queries": [stored.describe() for stored in service.stored.values()]}


@router.post("/queries/{name}", summary="Run a stored query", response_model=QueryReply | MutateReply)
async def invoke(
    name: str, request: Request, service: TheService, caller: Caller, body: InvokeRequest | None = None
) -> Response:
    """Whoever may read may run a stored read query too; `invoke_query` alone allows nothing but stored ones.

    Without either, every name gets the same 404. A stored mutation also needs `change`.
    """
    stored = service.stored.get(name)
    if stored is None or not caller.may("read", "invoke_query"):
        raise NotFound(f"there is no stored query {name!r}; GET /queries lists them")
    asked = body or InvokeRequest()
    if stored.compiled.kind == "mutation":
        caller.require("change")
        return await answer_mutation(service, request, caller, stored.text, name, asked.params, asked.branch)
    return await answer_query(
        service, request, stored.text, name, asked.params, asked.branch, asked.snapshot, asked.timeout_seconds
    )
