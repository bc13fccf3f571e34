"""`/blobs/{type}/{id}/{property}`: the bytes of one Blob, whole or a range of them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import StreamingResponse

from omnigraph.points import parse_moment
from omnigraph.read import Blob
from omnigraph_server.auth import Caller
from omnigraph_server.errors import envelope
from omnigraph_server.ranges import matches, range_applies, range_of
from omnigraph_server.service import Service, TheService

__all__ = ["router"]

router = APIRouter(tags=["data"])

_SUMMARY = "The bytes of a Blob"
_BYTES = {"content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}}
_ANSWERS = {
    200: {"description": "All bytes", **_BYTES},
    206: {"description": "The bytes of the range", **_BYTES},
    304: {"description": "The caller has them"},
    412: {"description": "They aren't those of If-Match"},
    416: {"description": "There are no such bytes"},
}


@router.get("/blobs/{type}/{id:path}/{property}", summary=_SUMMARY, response_class=Response, responses=_ANSWERS)  # type: ignore[arg-type]
async def blob(
    type: str,
    id: str,
    property: str,
    request: Request,
    service: TheService,
    caller: Caller,
    branch: str = "main",
    snapshot: Annotated[
        str | None, Query(description="A commit id, a manifest version, or an ISO time; default: the branch as it is")
    ] = None,
) -> Response:
    """`type` is a node or edge type, `id` a node's key or an edge's id, percent-encoded.

    Takes `Range` with one range of bytes, `If-None-Match`, `If-Match` and `If-Range` with the `ETag` of an earlier
    answer. HEAD answers the same headers.
    """
    caller.require("read")
    request.state.branch = branch
    at = None if snapshot is None else parse_moment(snapshot)
    found = await service.read(lambda: service.graph.blob(type, id, property, branch=branch, at=at))
    headers = {
        "ETag": f'"{found.etag}"',
        "Accept-Ranges": "bytes",
        "Cache-Control": "private, no-cache",
        "OmniGraph-Commit": found.commit,
    }
    given = request.headers
    if matches(given.get("if-match"), found.etag, weak=False) is False:
        message = "the Blob isn't the one that If-Match names: read it anew"
        return _refused(412, message, request, headers)
    if matches(given.get("if-none-match"), found.etag, weak=True):
        return Response(status_code=304, headers=headers)
    wanted = None
    if request.method == "GET" and range_applies(given.get("if-range"), found.etag):
        wanted = range_of(given.get("range"), found.size)
    if wanted is not None and not wanted.satisfiable:
        headers["Content-Range"] = f"bytes */{found.size}"
        return _refused(416, f"the Blob has {found.size:,} bytes, and the range begins after them", request, headers)
    # Whoever wrote the bytes mustn't have them run in a browser as a page of this server.
    headers |= {"X-Content-Type-Options": "nosniff", "Content-Disposition": "attachment"}
    start, end = (0, found.size) if wanted is None else (wanted.start, wanted.end)
    headers["Content-Length"] = str(end - start)
    if wanted is not None:
        headers["Content-Range"] = f"bytes {start}-{end - 1}/{found.size}"
    status = 200 if wanted is None else 206
    kind = "application/octet-stream"
    if request.method == "HEAD":
        return Response(status_code=status, headers=headers, media_type=kind)
    return StreamingResponse(_pieces(service, found, start, end), status, headers, kind)


router.add_api_route(
    "/blobs/{type}/{id:path}/{property}", blob, methods=["HEAD"], summary=_SUMMARY, include_in_schema=False
)


def _refused(status: int, message: str, request: Request, headers: dict[str, str]) -> Response:
    answer = envelope(status, "bad_request" if status == 416 else "conflict", message, request.state.request_id)
    answer.headers.update(headers)
    return answer


async def _pieces(service: Service, found: Blob, start: int, end: int) -> AsyncIterator[bytes]:
    """The bytes, each piece read on a worker thread when the one before it is on its way."""
    pieces: Iterator[bytes] = found.chunks(start, end)
    while (piece := await service.work(next, pieces, None)) is not None:
        yield piece
