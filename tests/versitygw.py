"""A second S3 server for tests: versitygw (Apache-2.0), built from its Go module into the user's cache folder.

`OMNIGRAPH_TEST_VERSITYGW` names a binary instead; without Go and without a binary there is none.
`python -m tests.versitygw` builds it ahead.
"""

from __future__ import annotations

import http.client
import os
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from tests.s3 import BUCKET, KEY, S3, SECRET, moved

MODULE, VERSION = "github.com/versity/versitygw/cmd/versitygw", "v1.8.0"
UP_SECONDS = 20
BUILD_SECONDS = 900


def binary(*, build: bool = False) -> Path | None:
    """The server's binary; with `build` made where it isn't there and Go is."""
    named = os.environ.get("OMNIGRAPH_TEST_VERSITYGW")
    if named:
        return Path(named)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "omnigraph" / f"versitygw-{VERSION}"
    made = cache / "versitygw"
    if made.exists() or not (build and shutil.which("go")):
        return made if made.exists() else None
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as folder:
        command = ["go", "install", "-trimpath", "-ldflags=-s -w", f"{MODULE}@{VERSION}"]
        env = os.environ | {"GOBIN": folder}
        subprocess.run(command, env=env, check=True, timeout=BUILD_SECONDS, capture_output=True)
        os.replace(Path(folder) / "versitygw", made)
    return made


class Versitygw(S3):
    """Its buckets are folders, so whole graphs are copied without a request."""

    def __init__(self, endpoint: str, folder: Path) -> None:
        super().__init__(endpoint)
        self._folder = folder

    def _path(self, uri: str) -> Path:
        return self._folder / uri.removeprefix("s3://")

    def copy(self, uri: str, to: str, *, literally: bool = False) -> None:
        def one(source: str, target: str) -> None:
            shutil.copy2(source, target)  # what it knows of an object lies in extended attributes
            if not literally:
                Path(target).write_bytes(moved(source, Path(source).read_bytes(), uri, to))

        shutil.copytree(self._path(uri), self._path(to), copy_function=one)

    def drop(self, uri: str) -> None:
        shutil.rmtree(self._path(uri), ignore_errors=True)


@contextmanager
def serving() -> Iterator[Versitygw | None]:
    """versitygw with an empty bucket, for as long as the block lasts; None where it isn't to be had."""
    program = binary()
    if program is None:
        yield None
        return
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="omnigraph-s3-") as folder:
        data = Path(folder)
        (data / BUCKET).mkdir()
        command = [program, "--port", f"127.0.0.1:{port}", "--access", KEY, "--secret", SECRET, "--region", "us-east-1"]
        process = subprocess.Popen([*command, "--quiet", "posix", data], stdout=subprocess.DEVNULL)
        try:
            _wait(port, process)
            yield Versitygw(f"http://127.0.0.1:{port}", data)
        finally:
            process.terminate()
            process.wait(10)


def _wait(port: int, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + UP_SECONDS
    while time.monotonic() < until and process.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise RuntimeError(f"versitygw didn't come up: exit code {process.poll()}")


@contextmanager
def deaf(server: S3) -> Iterator[S3]:
    """The server behind a proxy that leaves `If-None-Match` out, and signs what is left anew."""

    class Proxy(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _pass_on(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            kept = {
                k: v for k, v in self.headers.items() if k.lower() in ("range", "content-type", "x-amz-copy-source")
            }
            kept["X-Amz-Content-SHA256"] = "UNSIGNED-PAYLOAD"
            request = AWSRequest(self.command, server.endpoint + self.path, headers=kept, data=body)
            request.context["payload_signing_enabled"] = False
            S3SigV4Auth(Credentials(KEY, SECRET), "s3", "us-east-1").add_auth(request)
            sent = http.client.HTTPConnection(urlsplit(server.endpoint).netloc)
            sent.request(self.command, self.path, body, dict(request.headers))
            answer = sent.getresponse()
            data = answer.read()
            self.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in ("content-length", "transfer-encoding", "connection"):
                    self.send_header(name, value)
            length = answer.getheader("Content-Length") if self.command == "HEAD" else str(len(data))
            self.send_header("Content-Length", length or "0")
            self.end_headers()
            self.wfile.write(data)
            sent.close()

        do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _pass_on

        def log_message(self, *_: object) -> None:
            return

    proxy = ThreadingHTTPServer(("127.0.0.1", 0), Proxy)
    threading.Thread(target=proxy.serve_forever, daemon=True).start()
    try:
        yield S3(f"http://127.0.0.1:{proxy.server_address[1]}")
    finally:
        proxy.shutdown()
        proxy.server_close()


if __name__ == "__main__":
    print(binary(build=True) or "no Go here, and OMNIGRAPH_TEST_VERSITYGW isn't set")
