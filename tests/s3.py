"""An S3 server for tests: moto's, in this process, on a free loopback port; and ways to count and to spoil requests."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import boto3
from moto.core import DEFAULT_ACCOUNT_ID
from moto.moto_server.werkzeug_app import create_backend_app
from moto.s3.models import s3_backends
from moto.server import ThreadedMotoServer
from werkzeug.serving import WSGIRequestHandler

BUCKET = "graphs"
KEY, SECRET = "AKIDTESTTESTTEST", "s3cr3t-that-nobody-may-see"

Wsgi = Callable[[dict[str, Any], Any], Any]


def names_its_place(name: str) -> bool:
    """Whether a file of a graph holds the path it was made at."""
    return "/tree/" in name and name.endswith(".manifest")


def moved(name: str, data: bytes, uri: str, to: str) -> bytes:
    """A file of a graph as it would be had the graph been made at `to`, a root with a name of the same length.

    Lance writes the whole path of a dataset into the manifests of its branches.
    """
    old, new = (u.rpartition("/")[2].encode() for u in (uri, to))
    assert len(old) == len(new) >= 12
    return data.replace(old, new) if names_its_place(name) else data


@dataclass
class S3:
    """A running server.

    Args:
        endpoint: `http://127.0.0.1:port`.
        seen: requests by method and what they are for, since the last `reset`.
        sent: bytes of the bodies put.
        ranges: the `Range` of each GET of an object, "" for the whole of it.
        deaf: ignore `If-None-Match`, as stores do that lose commits.
        broken: answer every request with this status; 0 for none.
    """

    endpoint: str = ""
    seen: Counter[str] = field(default_factory=Counter)
    sent: int = 0
    ranges: list[str] = field(default_factory=list)
    deaf: bool = False
    broken: int = 0

    def uri(self, name: str = "") -> str:
        return f"s3://{BUCKET}/{name or uuid4().hex[:12]}"

    def env(self) -> dict[str, str]:
        return {
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ALLOW_HTTP": "true",
        }

    def client(self) -> Any:
        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            region_name="us-east-1",
            aws_access_key_id=KEY,
            aws_secret_access_key=SECRET,
        )

    def keys(self, uri: str) -> list[str]:
        """Names below a graph's root."""
        prefix = uri.removeprefix(f"s3://{BUCKET}/") + "/"
        pages = self.client().get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=prefix)
        return [o["Key"].removeprefix(prefix) for page in pages for o in page.get("Contents", [])]

    def read(self, uri: str, name: str) -> bytes:
        key = f"{uri.removeprefix(f's3://{BUCKET}/')}/{name}"
        data: bytes = self.client().get_object(Bucket=BUCKET, Key=key)["Body"].read()
        return data

    def copy(self, uri: str, to: str, *, literally: bool = False) -> None:
        """Every object of a graph under another root, as if it had been made there (see `moved`) or byte for byte."""
        client, target = self.client(), to.removeprefix(f"s3://{BUCKET}/")
        for name in self.keys(uri):
            data = self.read(uri, name)
            client.put_object(
                Bucket=BUCKET, Key=f"{target}/{name}", Body=data if literally else moved(name, data, uri, to)
            )

    def upload(self, folder: Any, uri: str) -> None:
        client, prefix = self.client(), uri.removeprefix(f"s3://{BUCKET}/")
        for path in folder.rglob("*"):
            if path.is_file():
                client.put_object(Bucket=BUCKET, Key=f"{prefix}/{path.relative_to(folder)}", Body=path.read_bytes())

    def drop(self, uri: str) -> None:
        """Every object of a graph is gone: a server lists all that it holds, so what isn't needed costs time."""
        client, prefix = self.client(), uri.removeprefix(f"s3://{BUCKET}/")
        for name in self.keys(uri):
            client.delete_object(Bucket=BUCKET, Key=f"{prefix}/{name}")

    def reset(self) -> None:
        self.seen.clear()
        self.sent = 0
        self.ranges.clear()

    def wrap(self, app: Wsgi) -> Wsgi:
        """One request at a time: moto looks whether a key is there and writes it in two steps, and cuts the answer
        of an object that is deleted meanwhile. No store does so; of two racing writers both were told that they won.
        """
        one_at_a_time = threading.Lock()

        def answer(environ: dict[str, Any], start: Any) -> Any:
            method, query = environ["REQUEST_METHOD"], environ.get("QUERY_STRING", "")
            self.seen["LIST" if method == "GET" and "list-type" in query else method] += 1
            if method == "GET" and "list-type" not in query:
                self.ranges.append(environ.get("HTTP_RANGE", ""))
            if method == "PUT":
                self.sent += int(environ.get("CONTENT_LENGTH") or 0)
            if self.deaf:
                environ.pop("HTTP_IF_NONE_MATCH", None)
            if self.broken:
                start(f"{self.broken} Broken", [("Content-Length", "0")])
                return [b""]
            with one_at_a_time:
                return list(app(environ, start))

        return answer


class Moto(S3):
    """Its objects are in the memory of this process, so whole graphs are copied without a request."""

    @staticmethod
    def _backend() -> Any:
        return s3_backends[DEFAULT_ACCOUNT_ID]["aws"]

    def _below(self, uri: str) -> dict[str, Any]:
        prefix = uri.removeprefix(f"s3://{BUCKET}/") + "/"
        held = self._backend().buckets[BUCKET].keys
        return {name.removeprefix(prefix): held[name] for name in list(held) if name.startswith(prefix)}

    def copy(self, uri: str, to: str, *, literally: bool = False) -> None:
        target = to.removeprefix(f"s3://{BUCKET}/")
        for name, key in self._below(uri).items():
            data = key.value if literally else moved(name, key.value, uri, to)
            self._backend().put_object(BUCKET, f"{target}/{name}", data)

    def drop(self, uri: str) -> None:
        prefix = uri.removeprefix(f"s3://{BUCKET}/")
        for name in self._below(uri):
            self._backend().delete_object(BUCKET, f"{prefix}/{name}")


@contextmanager
def serving() -> Iterator[S3]:
    """moto's server with an empty bucket, for as long as the block lasts."""
    s3 = Moto()
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    s3.endpoint = f"http://{host}:{port}"
    running = server._server
    # moto's own front looks up which of two hundred services each request is for; that took a third of its time.
    running.app = s3.wrap(create_backend_app("s3"))
    WSGIRequestHandler.log_request = lambda *_: None  # type: ignore[method-assign]
    s3.client().create_bucket(Bucket=BUCKET)
    try:
        yield s3
    finally:
        server.stop()


@contextmanager
def environment(s3: S3) -> Iterator[None]:
    """The variables that lead to the server, for as long as the block lasts."""
    before = dict(os.environ)
    os.environ.update(s3.env())
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
