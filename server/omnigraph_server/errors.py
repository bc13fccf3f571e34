"""From an error to a status and an envelope: the one place.

`{error, code, details?, merge_conflicts?, manifest_conflict?, request_id}`; `code` is the class of the error, `details`
has the refusal's own code (`T4`, `recovery_pending`) and whatever is known of the place.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from omnigraph.errors import (
    BadRequest,
    Conflict,
    ExpectedVersionMismatch,
    Forbidden,
    MergeConflicts,
    NotFound,
    OmniGraphError,
    Unavailable,
)

__all__ = ["PayloadTooLarge", "Unauthorized", "envelope", "install", "status_of"]


class Unauthorized(OmniGraphError):
    """No bearer token, or one that nobody has."""

    kind = "unauthorized"


class PayloadTooLarge(OmniGraphError):
    """The request's body is larger than the server takes."""

    kind = "payload_too_large"


_STATUS: tuple[tuple[type[OmniGraphError], int], ...] = (
    (Unauthorized, 401),
    (PayloadTooLarge, 413),
    (Forbidden, 403),
    (NotFound, 404),
    (BadRequest, 400),
    (Conflict, 409),
    (Unavailable, 503),
)
_HTTP_CODE = {401: "unauthorized", 403: "forbidden", 404: "not_found", 409: "conflict", 413: "payload_too_large"}


def status_of(error: OmniGraphError) -> int:
    """The HTTP status of an error of the product."""
    if isinstance(error, Conflict) and error.code == "head_moved":
        return 412
    if error.code == "query_cancelled":
        return 499  # the caller has hung up: for the log and the metrics alone
    return next((status for kind, status in _STATUS if isinstance(error, kind)), 500)


def envelope(status: int, code: str, message: str, request_id: str, **more: Any) -> Response:
    """The body every error has."""
    headers = {401: {"WWW-Authenticate": "Bearer"}, 503: {"Retry-After": "1"}}.get(status, {})
    body = {"error": message, "code": code, **{k: v for k, v in more.items() if v}, "request_id": request_id}
    # What a request named may hold half a surrogate pair, which is written as a question mark.
    content = json.dumps(body, ensure_ascii=False, default=str).encode("utf-8", "replace")
    return Response(content, status, headers, media_type="application/json")


def install(app: FastAPI) -> None:
    """Let every error of a route leave as an envelope."""
    app.add_exception_handler(OmniGraphError, _ours)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)


async def _ours(request: Request, error: Exception) -> Response:
    assert isinstance(error, OmniGraphError)
    status = status_of(error)
    details: Mapping[str, Any] = error.details
    if error.code != error.kind:
        details = {"code": error.code, **details}
    more: dict[str, Any] = {"details": details}
    if isinstance(error, MergeConflicts):
        more = {"merge_conflicts": error.conflicts}
    elif isinstance(error, ExpectedVersionMismatch):
        more = {"manifest_conflict": error.details}
    request.state.error_code = error.code
    return envelope(status, error.kind, error.message, request.state.request_id, **more)


async def _invalid(request: Request, error: Exception) -> Response:
    """A body or parameter of the wrong shape: 400, naming each place."""
    assert isinstance(error, RequestValidationError)
    places = [f"{'.'.join(str(part) for part in one['loc'])}: {one['msg']}" for one in error.errors()]
    return envelope(400, "bad_request", "; ".join(places), request.state.request_id)


async def _http(request: Request, error: Exception) -> Response:
    """What the framework itself refuses: unknown paths, wrong methods, unreadable JSON."""
    assert isinstance(error, HTTPException)
    message = str(error.detail)
    if error.status_code == 404:
        message = f"nothing is at {request.url.path}; see /openapi.json"
    elif error.status_code == 405:
        message = f"{request.method} isn't allowed at {request.url.path}; see /openapi.json"
    code = _HTTP_CODE.get(error.status_code, "bad_request" if error.status_code < 500 else "internal")
    response = envelope(error.status_code, code, message, request.state.request_id)
    response.headers.update(error.headers or {})
    return response
