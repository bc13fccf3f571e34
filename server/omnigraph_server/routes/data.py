"""`/query`, `/mutate`, `/snapshot`: the graph's data."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from omnigraph_server.auth import Caller
from omnigraph_server.models import MutateReply, MutateRequest, QueryReply, QueryRequest, SnapshotReply, SnapshotTable
from omnigraph_server.routes.answers import ARROW, answer_mutation, answer_query
from omnigraph_server.service import TheService

__all__ = ["router"]

router = APIRouter(tags=["data"])


@router.post(
    "/query",
    summary="Run a read query",
    response_model=QueryReply,
    responses={200: {"content": {ARROW: {"schema": {"type": "string", "format": "binary"}}}}},
)
async def query(body: QueryRequest, request: Request, service: TheService, caller: Caller) -> Response:
    caller.require("read")
    return await answer_query(
        service, request, body.query, body.name, body.params, body.branch, body.snapshot, body.timeout_seconds
    )


@router.post("/mutate", summary="Run a mutation as one commit", response_model=MutateReply)
async def mutate(body: MutateRequest, request: Request, service: TheService, caller: Caller) -> Response:
    """`If-Match: "<graph_commit_id>"` refuses with 412 unless that is the branch's newest commit."""
    caller.require("change")
    return await answer_mutation(service, request, caller, body.query, body.name, body.params, body.branch)


@router.get("/snapshot", summary="Which version of which table a branch sees")
async def snapshot(
    request: Request, response: Response, service: TheService, caller: Caller, branch: str = "main"
) -> SnapshotReply:
    caller.require("read")
    request.state.branch = branch
    seen = await service.work(service.graph.snapshot, branch)
    response.headers["ETag"] = f'"{seen.head.id}"'
    return SnapshotReply(
        branch=seen.branch,
        manifest_version=seen.manifest_version,
        graph_commit_id=seen.head.id,
        tables=[
            SnapshotTable(
                table_key=ref.table_key,
                table_path=ref.location,
                table_version=ref.version,
                table_branch=ref.branch,
                row_count=ref.row_count,
            )
            for ref in sorted(seen.tables.values(), key=lambda ref: ref.table_key)
        ],
    )
