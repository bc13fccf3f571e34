"""What queries and mutations answer, whether the text came along or is stored."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from fastapi import Request, Response
from fastapi.responses import StreamingResponse

from omnigraph.errors import BadRequest, Conflict, Forbidden
from omnigraph.graph import QueryResult
from omnigraph.read import json_array
from omnigraph_server.auth import Principal
from omnigraph_server.models import MutateReply
from omnigraph_server.service import Service, Watch

__all__ = ["ARROW", "answer_mutation", "answer_query", "expected_head", "refuse_read_only"]

ARROW = "application/vnd.apache.arrow.stream"

_WHOLE_BYTES = 1 << 20  # up to which an answer is one body


@dataclass(frozen=True, slots=True)
class Answer:
    """Args:
    begin: the first bytes of the body.
    rest: those after them, piece by piece; None where there are none.
    """

    result: QueryResult
    begin: bytes
    rest: Iterator[bytes] | None


async def answer_query(
    service: Service,
    request: Request,
    text: str,
    name: str | None,
    params: Mapping[str, Any],
    branch: str,
    snapshot: int | str | None,
    timeout_seconds: float | None,
) -> Response:
    """Run a read query; rows as JSON, or as an Arrow stream where the caller accepts that.

    A small answer is one body with its length; of a large one each piece is made when the one before it is on its way.
    """
    arrow = ARROW in request.headers.get("accept", "")
    request.state.branch = branch
    watch = Watch(request)

    def work() -> Answer:
        try:
            # No timeout_seconds: whoever waits leaves by itself, and the query keeps this thread as long as it works.
            result = service.graph.query(
                text, params, name=name, branch=branch, at=snapshot, cancelled=watch.gone.is_set
            )
        except BadRequest as error:
            if error.code == "is_mutation":
                raise BadRequest("this is a mutation: send it to POST /mutate", code="is_mutation") from None
            raise
        pieces = _arrow(result) if arrow else _json(result, branch)
        begin = b""
        for piece in pieces:
            begin += piece
            if len(begin) > _WHOLE_BYTES:
                return Answer(result, begin, pieces)
        return Answer(result, begin, None)

    try:
        answer = await service.read(work, timeout_seconds)
    except BaseException:
        watch.close()
        raise
    result = answer.result
    request.state.query, request.state.rows = result.name, len(result)
    service.metrics.rows.inc(len(result))
    headers = {"OmniGraph-Snapshot": str(result.snapshot.manifest_version), "Vary": "Accept"}
    media_type = ARROW if arrow else "application/json"
    if answer.rest is not None:
        return StreamingResponse(_pieces(service, watch, answer.begin, answer.rest), 200, headers, media_type)
    watch.close()
    return Response(answer.begin, headers=headers, media_type=media_type)


def _json(result: QueryResult, branch: str) -> Iterator[bytes]:
    head = {
        "query_name": result.name,
        "target": {"branch": branch, "snapshot": result.snapshot.manifest_version},
        "row_count": len(result),
        "columns": [column.name for column in result.columns],
    }
    yield json.dumps(head, ensure_ascii=False, separators=(",", ":")).encode()[:-1] + b',"rows":'
    yield from json_array(result.table, result.columns)
    yield b"}"


def _arrow(result: QueryResult) -> Iterator[bytes]:
    for piece in result.render("arrow"):
        assert isinstance(piece, bytes)
        yield piece


async def _pieces(service: Service, watch: Watch, begin: bytes, rest: Iterator[bytes]) -> AsyncIterator[bytes]:
    try:
        yield begin
        while not watch.gone.is_set() and (piece := await service.read(lambda: next(rest, None))) is not None:
            yield piece
    finally:
        watch.close()


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
