"""`/schema`, `/branches`, `/commits`: what the graph is and how it came to be."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request

from omnigraph.graph import CommitInfo
from omnigraph_server.auth import Caller
from omnigraph_server.models import BranchCreate
from omnigraph_server.routes.answers import refuse_read_only
from omnigraph_server.service import TheService

__all__ = ["router"]

router = APIRouter(tags=["schema and history"])


@router.get("/schema", summary="The accepted schema")
async def schema(service: TheService, caller: Caller, branch: str = "main") -> dict[str, Any]:
    caller.require("read")
    catalog = (await service.work(service.graph.snapshot, branch)).catalog
    return {"schema_source": catalog.source, "schema_hash": catalog.hash}


@router.get("/branches", summary="The branches")
async def branches(service: TheService, caller: Caller) -> dict[str, Any]:
    caller.require("read")
    found = await service.work(service.graph.branches.list)
    return {"branches": [{"name": one.name, "parent": one.parent, "head": _commit(one.head)} for one in found]}


@router.post("/branches", summary="Make a branch", status_code=201)
async def create_branch(body: BranchCreate, request: Request, service: TheService, caller: Caller) -> dict[str, Any]:
    caller.require("branch_create")
    refuse_read_only(service)
    request.state.branch = body.name
    made = await service.work(
        service.graph.branches.create, body.name, from_=body.from_, at=body.snapshot, actor=caller.actor
    )
    return {"name": made.name, "from": body.from_, "head": _commit(made.head), "actor_id": caller.actor}


@router.get("/commits", summary="The history of a branch, newest first")
async def commits(
    service: TheService,
    caller: Caller,
    branch: str = "main",
    limit: Annotated[int, Query(ge=1, le=1000)] = 50,
    before: str | None = None,
) -> dict[str, Any]:
    caller.require("read")
    found = await service.work(service.graph.commits, branch, limit=limit, before=before)
    return {"branch": branch, "commits": [_commit(one) for one in found]}


def _commit(commit: CommitInfo) -> dict[str, Any]:
    return {
        "graph_commit_id": commit.id,
        "branch": commit.branch,
        "manifest_version": commit.manifest_version,
        "parents": list(commit.parents),
        "created_at": commit.created_at.isoformat(),
        "actor_id": commit.actor,
    }
