"""A provider of embeddings on a real socket, which answers as a test tells it to, well or badly."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

KEY = "sk-very-secret-0123456789"


@dataclass
class Request:
    path: str
    headers: dict[str, str]
    json: Any

    @property
    def texts(self) -> list[str]:
        if "requests" in self.json:
            return [r["content"]["parts"][0]["text"] for r in self.json["requests"]]
        return list(self.json["input"])

    @property
    def dim(self) -> int | None:
        if "requests" in self.json:
            return self.json["requests"][0].get("outputDimensionality")
        return self.json.get("dimensions")


Behaviour = Callable[["Handler", Request], None]


@dataclass
class Provider:
    """`script` is used up one request at a time; after it every answer is good."""

    url: str = ""
    script: list[Behaviour] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)
    default: Behaviour | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)

    def environ(self, **more: str) -> dict[str, str]:
        """Settings that point here, quick to give up, with nothing cached on disk."""
        base = {
            "OMNIGRAPH_EMBED_BASE_URL": self.url,
            "OPENAI_API_KEY": KEY,
            "GEMINI_API_KEY": KEY,
            "OMNIGRAPH_EMBED_CACHE": "off",
            "OMNIGRAPH_EMBED_RETRY_BACKOFF_MS": "1",
        }
        return base | {f"OMNIGRAPH_EMBED_{name}": value for name, value in more.items()}


def vector_of(text: str, dim: int) -> list[float]:
    """Not of length one, and told apart by its text."""
    seed = sum(map(ord, text)) + 1
    return [float((seed * (i + 3)) % 17) + 1.0 for i in range(dim)]


def answer_of(request: Request, dim: int) -> dict[str, Any]:
    vectors = [vector_of(text, dim) for text in request.texts]
    if "requests" in request.json:
        return {"embeddings": [{"values": v} for v in vectors]}
    data = [{"object": "embedding", "index": i, "embedding": v} for i, v in enumerate(vectors)]
    return {"object": "list", "data": data[::-1], "model": request.json["model"]}  # no order is promised


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    provider: Provider

    def do_POST(self) -> None:
        size = int(self.headers["content-length"])
        headers = {k.lower(): v for k, v in self.headers.items()}
        request = Request(self.path, headers, json.loads(self.rfile.read(size)))
        with self.provider.lock:
            self.provider.requests.append(request)
            behave = self.provider.script.pop(0) if self.provider.script else self.provider.default or good
        try:
            behave(self, request)
        except OSError:  # the client gave up
            self.close_connection = True

    def send(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None: ...


def good(handler: Handler, request: Request) -> None:
    handler.send(200, json.dumps(answer_of(request, request.dim or 4)).encode())


def status(code: int, body: bytes = b"", **headers: str) -> Behaviour:
    return lambda handler, request: handler.send(code, body, **headers)


def refusing(bad: Callable[[str], bool], body: bytes = b'{"error": "too long"}') -> Behaviour:
    """Refuses every request that has a bad text, as providers do, without saying which it is."""

    def behave(handler: Handler, request: Request) -> None:
        if any(map(bad, request.texts)):
            handler.send(400, body)
        else:
            good(handler, request)

    return behave


def raw(body: bytes | Callable[[Request], Any], **headers: str) -> Behaviour:
    """Status 200 with this body, or with the JSON a function makes of the request."""

    def behave(handler: Handler, request: Request) -> None:
        handler.send(200, body if isinstance(body, bytes) else json.dumps(body(request)).encode(), **headers)

    return behave


def hang_up(handler: Handler, request: Request) -> None:
    """Closes without a word."""
    handler.close_connection = True


def cut_off(handler: Handler, request: Request) -> None:
    """Promises more than it sends."""
    handler.send_response(200)
    handler.send_header("Content-Length", "100000")
    handler.end_headers()
    handler.wfile.write(b'{"data": [')
    handler.close_connection = True


def no_http(handler: Handler, request: Request) -> None:
    handler.wfile.write(b"\x00\x01 this is no HTTP at all\r\n\r\n")
    handler.close_connection = True


def silent(handler: Handler, request: Request) -> None:
    """Says nothing for longer than anyone waits."""
    time.sleep(3)
    handler.close_connection = True


def drip_headers(handler: Handler, request: Request) -> None:
    """A byte of a header now and then: no single read ever waits long."""
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
    for _ in range(60):
        handler.wfile.write(b"x")
        time.sleep(0.05)
    handler.close_connection = True


def drip_body(handler: Handler, request: Request) -> None:
    handler.send_response(200)
    handler.send_header("Content-Length", "100000")
    handler.end_headers()
    for _ in range(60):
        handler.wfile.write(b" ")
        time.sleep(0.05)
    handler.close_connection = True


@contextmanager
def serving() -> Iterator[Provider]:
    provider = Provider()
    kind = type("Bound", (Handler,), {"provider": provider})
    server = ThreadingHTTPServer(("127.0.0.1", 0), kind)
    server.daemon_threads = True
    provider.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield provider
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
