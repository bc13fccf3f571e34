"""A served graph: an application with a client in process, and a real server process on a free port."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import structlog
from fastapi.testclient import TestClient

import omnigraph
from omnigraph_server.app import create_app
from omnigraph_server.auth import TokenStore
from omnigraph_server.settings import Settings

SHOP_SCHEMA = """\
node Item { name: String @key  price: F64?  stock: I64? }
edge PartOf: Item -> Item
"""
SHOP_ROWS = """\
{"type": "Item", "data": {"name": "bike", "price": 900.0, "stock": 9007199254740993}}
{"type": "Item", "data": {"name": "wheel", "price": 80.5}}
{"edge": "PartOf", "from": "wheel", "to": "bike"}
"""
SHOP_QUERIES = """\
query items($least: F64?) @description("Every item") {
  match { $i: Item }
  return { $i.name as name, $i.price as price, $i.stock as stock }
  order { name }
}
query parts_of($name: String) {
  match { $i: Item { name: $name } $p partOf $i }
  return { $p.name as name }
}
query add_item($name: String, $price: F64?) { insert Item { name: $name, price: $price } }
"""
COUNT = "query count_items() { match { $i: Item } return { count($i) as n } }"
ADD = "query add($name: String) { insert Item { name: $name } }"
SHOP_TOKENS = """\
reader: reader-token
writer: {token: writer-token, allow: [read, change, branch_create]}
caller: {token: caller-token, allow: [invoke_query]}
nobody: {token: nobody-token, allow: []}
"""


@pytest.fixture(autouse=True)
def plain_logs() -> None:
    """Without this, structlog draws every traceback with its locals, which takes seconds."""
    structlog.configure(
        processors=[structlog.processors.format_exc_info, structlog.processors.JSONRenderer()],
        logger_factory=structlog.ReturnLoggerFactory(),
    )


def bearer(name: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {name}-token"}


@pytest.fixture
def shop(tmp_path: Path) -> omnigraph.Graph:
    graph = omnigraph.init(tmp_path / "shop.omni", schema=SHOP_SCHEMA)
    graph.load(SHOP_ROWS)
    (tmp_path / "queries.gq").write_text(SHOP_QUERIES)
    (tmp_path / "tokens.yaml").write_text(SHOP_TOKENS)
    return graph


@pytest.fixture
def client(shop: omnigraph.Graph, tmp_path: Path) -> Iterator[TestClient]:
    app = create_app(shop, tokens=TokenStore(tmp_path / "tokens.yaml"), stored=[tmp_path / "queries.gq"])
    with TestClient(app, raise_server_exceptions=False) as client:
        yield client


@pytest.fixture
def small(shop: omnigraph.Graph) -> Iterator[TestClient]:
    """Without authentication, and with a small limit of bodies."""
    app = create_app(shop, tokens=None, settings=Settings(body_max_bytes=2000))
    with TestClient(app, raise_server_exceptions=False) as client:
        yield client


@dataclass(frozen=True)
class Served:
    url: str
    process: subprocess.Popen[str]
    ready: Path
    log: Path


Serving = Callable[..., "Iterator[Served]"]


@pytest.fixture
def serving(tmp_path: Path) -> Serving:
    @contextmanager
    def serve(uri: str, *args: object, log_name: str = "serve") -> Iterator[Served]:
        ready, log = tmp_path / f"{log_name}.ready.json", tmp_path / f"{log_name}.log"
        with log.open("w") as errors:
            process = subprocess.Popen(
                [sys.executable, "-m", "omnigraph.cli.main", "serve", uri, "--port", "0", "--ready-file", str(ready)]
                + [str(a) for a in args],
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
            )
        try:
            deadline = time.monotonic() + 60
            while not ready.exists():
                assert process.poll() is None, log.read_text()
                assert time.monotonic() < deadline, log.read_text()
                time.sleep(0.05)
            yield Served(json.loads(ready.read_text())["url"], process, ready, log)
        finally:
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()

    return serve
