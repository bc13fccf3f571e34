"""What queries and mutations answer, whether the text came along or is stored."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from fastapi import Request, Response

from omnigraph.errors import BadRequest, Conflict, Forbidden
from omnigraph.read import json_rows
from omnigraph_server.auth import Principal
from omnigraph_server.models import MutateReply
from omnigraph_server.service import Service

__all__ = ["ARROW", "answer_mutation", "answer_query", "expected_head", "refuse_read_only"]

ARROW = "application/vnd.apache.arrow.stream"


async def answer_query(
    service: Service,
    request: Request,
    text: str,
    name: str | None,
    params: Mapping[str, Any],
    branch: str,
    snapshot: int | str | None,
) -> Response:
    """Run a read query; rows as JSON, or as an Arrow stream where the caller accepts that."""
    arrow = ARROW in request.headers.get("accept", "")
    request.state.branch = branch

    def work(cancelled: Callable[[], bool]) -> tuple[str, int, int, bytes]:
        try:
            result = service.graph.query(text, params, name=name, branch=branch, at=snapshot, cancelled=cancelled)
        except BadRequest as error:
            if error.code == "is_mutation":
                raise BadRequest("this is a mutation: send it to POST /mutate", code="is_mutation") from None
            raise
        version = result.snapshot.manifest_version
        if arrow:
            pieces = result.render("arrow")
            body = b"".join(piece if isinstance(piece, bytes) else piece.encode() for piece in pieces)
            return result.name, len(result), version, body
        reply = {
            "query_name": result.name,
            "target": {"branch": branch, "snapshot": version},
            "row_count": len(result),
            "columns": [column.name for column in result.columns],
            "rows": json_rows(result.table, result.columns),
        }
        return result.name, len(result), version, json.dumps(reply, ensure_ascii=False, separators=(",", ":")).encode()

    query_name, rows, version, body = await service.query(work, request)
    request.state.query, request.state.rows = query_name, rows
    service.metrics.rows.inc(rows)
    headers = {"OmniGraph-Snapshot": str(version), "Vary": "Accept"}
    return Response(body, headers=headers, media_type=ARROW if arrow else "application/json")


async def answer_mutation(
    service: Service,
    request: Request,
    principal: Principal,
    text: str,
    name: str | None,
    params: Mapping[str, Any],
    branch: str,
) -> Response:
    """Run a mutation as one commit by the caller; the commit is the reply's ETag."""
    refuse_read_only(service)
    request.state.branch = branch
    expect = expected_head(request.headers.get("if-match"))

    def work() -> tuple[MutateReply, str]:
        compiled = service.graph.compile(text, name=name, branch=branch)
        if compiled.kind != "mutation":
            raise BadRequest(f"query {compiled.name!r} only reads: send it to POST /query", code="is_query")
        done = service.graph.mutate(
            text, params, name=compiled.name, branch=branch, expect_head=expect, actor=principal.actor
        )
        commit = done.commit.id if done.commit else None
        reply = MutateReply(
            branch=branch,
            query_name=compiled.name,
            affected_nodes=done.nodes,
            affected_edges=done.edges,
            actor_id=principal.actor,
            graph_commit_id=commit,
        )
        return reply, commit or ""

    try:
        reply, commit = await service.work(work)
    except Conflict:
        service.metrics.conflicts.inc()
        raise
    request.state.query = reply.query_name
    if commit:
        service.metrics.commits.inc()
    headers = {"ETag": f'"{commit}"'} if commit else {}
    return Response(reply.model_dump_json(), headers=headers, media_type="application/json")


def refuse_read_only(service: Service) -> None:
    """Raises Forbidden where this server never writes."""
    if service.graph.read_only:
        raise Forbidden("this server is read-only: send writes to the read-write server")


def expected_head(if_match: str | None) -> str | None:
    """The commit named by an If-Match header; None where there is none, or `*`.

    Raises:
        BadRequest: it isn't one strong entity tag.
    """
    if if_match is None or if_match.strip() == "*":
        return None
    tag = if_match.strip()
    if len(tag) < 3 or tag[0] != '"' or tag[-1] != '"' or '"' in tag[1:-1]:
        raise BadRequest('If-Match: expected one commit id in double quotes, such as "01J9ZC4T5E8QK3W7R2N6M1XVYB"')
    return tag[1:-1]
