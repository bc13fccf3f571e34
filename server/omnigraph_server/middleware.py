"""Around every request: its id, the limit of its body, one log line, metrics, and an answer even to a bug."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

import structlog
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from ulid import ULID

from omnigraph_server.errors import envelope

if TYPE_CHECKING:
    from omnigraph_server.metrics import Metrics

__all__ = ["Envelope"]

_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_DIGITS = 19  # more of them is no size of anything
_QUIET = frozenset({"/healthz", "/readyz", "/metrics"})
_log = structlog.get_logger("omnigraph.http")


class Envelope:
    """ASGI middleware; outermost, so that nothing leaves without a request id, a log line and a count."""

    def __init__(self, app: ASGIApp, *, metrics: Metrics, body_max_bytes: int) -> None:
        self._app = app
        self._metrics = metrics
        self._limit = body_max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        given = headers.get("x-request-id", "")
        request_id = given if _REQUEST_ID.fullmatch(given) else str(ULID())
        state = scope.setdefault("state", {})
        state["request_id"] = request_id
        started = time.perf_counter()
        status = 0

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)["X-Request-Id"] = request_id
            await send(message)

        self._metrics.in_flight.inc()
        try:
            whole = await self._read(headers, receive)
            if whole is None:
                message = f"the body is larger than {self._limit:,} bytes"
                refusal = envelope(413, "payload_too_large", message, request_id)
                await refusal(scope, receive, send_with_id)
            else:
                await self._app(scope, _replay(whole, receive), send_with_id)
        except Exception:
            _log.exception("bug", request_id=request_id, path=scope["path"])
            if status:
                raise
            message = f"an unexpected error; the server's log has it under request id {request_id}"
            await envelope(500, "internal", message, request_id)(scope, receive, send_with_id)
        finally:
            self._metrics.in_flight.dec()
            self._account(scope, status, time.perf_counter() - started)

    async def _read(self, headers: Headers, receive: Receive) -> bytes | None:
        """The whole body, or None where it is too large. Bodies are small by the limit, so holding one is fine."""
        declared = headers.get("content-length", "")
        if declared.isdecimal() and (len(declared) > _DIGITS or int(declared) > self._limit):
            return None
        body = bytearray()
        while True:
            message = await receive()
            if message["type"] != "http.request":
                return bytes(body)
            body += message.get("body", b"")
            if len(body) > self._limit:
                return None
            if not message.get("more_body", False):
                return bytes(body)

    def _account(self, scope: Scope, status: int, seconds: float) -> None:
        # The route's pattern, not the path: paths would make a label for every name that anyone asks for.
        route = getattr(scope.get("route"), "path", "unmatched")
        self._metrics.requests.labels(scope["method"], route, status).inc()
        self._metrics.seconds.labels(scope["method"], route).observe(seconds)
        state = scope["state"]
        fields = {
            key: state[key] for key in ("actor", "branch", "query", "rows", "error_code") if state.get(key) is not None
        }
        write = _log.debug if route in _QUIET else _log.info
        write(
            "request",
            request_id=state["request_id"],
            method=scope["method"],
            route=route,
            status=status,
            decision="deny" if status in (401, 403) else "allow",
            duration_ms=round(seconds * 1000, 2),
            **fields,
        )


def _replay(body: bytes, receive: Receive) -> Receive:
    """A `receive` that gives the body read before, then whatever comes."""
    given = False

    async def replay() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay
