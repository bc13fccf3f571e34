"""The routes over an application in process."""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest
import uvicorn
from fastapi.testclient import TestClient

import omnigraph
from omnigraph.errors import BadRequest
from omnigraph_server.app import create_app
from omnigraph_server.settings import Settings

sys.path.insert(0, str(Path(__file__).parent))
from conftest import ADD, COUNT, bearer


def test_health_needs_no_token(client: TestClient) -> None:
    assert client.get("/healthz").json() == {"status": "ok"}
    ready = client.get("/readyz")
    assert ready.status_code == 200
    assert ready.json()["status"] == "ready"
    assert client.get("/openapi.json").json()["paths"].keys() >= {"/query", "/mutate", "/snapshot", "/queries/{name}"}
    client.get("/queries/not_there", headers=bearer("reader"))
    metrics = client.get("/metrics").text
    assert 'omnigraph_http_requests_total{method="GET",route="/healthz",status="200"} 1.0' in metrics


def test_query(client: TestClient) -> None:
    asked = client.post("/query", json={"query": COUNT}, headers=bearer("reader"))
    assert asked.status_code == 200, asked.text
    body = asked.json()
    assert body["query_name"] == "count_items"
    assert body["columns"] == ["n"]
    assert body["rows"] == [{"n": 2}]
    assert body["row_count"] == 1
    assert body["target"]["branch"] == "main"
    seen = client.get("/snapshot", headers=bearer("reader")).json()
    assert body["target"]["snapshot"] == seen["manifest_version"]


def test_large_integers_are_strings(client: TestClient) -> None:
    rows = client.post("/queries/items", json={}, headers=bearer("reader")).json()["rows"]
    assert rows[0] == {"name": "bike", "price": 900.0, "stock": "9007199254740993"}
    assert rows[1]["stock"] is None


def test_query_as_arrow(client: TestClient) -> None:
    headers = {**bearer("reader"), "Accept": "application/vnd.apache.arrow.stream"}
    asked = client.post("/queries/items", headers=headers)
    assert asked.headers["content-type"] == "application/vnd.apache.arrow.stream"
    table = pa.ipc.open_stream(asked.content).read_all()
    assert table["stock"].to_pylist() == [9007199254740993, None]


def test_mutate_and_if_match(client: TestClient) -> None:
    snapshot = client.get("/snapshot", headers=bearer("writer"))
    head = snapshot.json()["graph_commit_id"]
    assert snapshot.headers["etag"] == f'"{head}"'
    ask = {"query": ADD, "params": {"name": "bell"}}
    done = client.post("/mutate", json=ask, headers={**bearer("writer"), "If-Match": f'"{head}"'})
    assert done.status_code == 200, done.text
    body = done.json()
    assert (body["affected_nodes"], body["affected_edges"], body["actor_id"]) == (1, 0, "writer")
    assert done.headers["etag"] == f'"{body["graph_commit_id"]}"'
    ask = {"query": ADD, "params": {"name": "lamp"}}
    late = client.post("/mutate", json=ask, headers={**bearer("writer"), "If-Match": f'"{head}"'})
    assert late.status_code == 412, late.text
    assert late.json()["code"] == "conflict"
    bad = client.post("/mutate", json=ask, headers={**bearer("writer"), "If-Match": "abc"})
    assert bad.status_code == 400
    counted = client.post("/query", json={"query": COUNT}, headers=bearer("reader")).json()
    assert counted["rows"] == [{"n": 3}]
    commits = client.get("/commits", headers=bearer("reader")).json()["commits"]
    assert commits[0]["graph_commit_id"] == body["graph_commit_id"]
    assert commits[0]["actor_id"] == "writer"
    before = {"query": COUNT, "snapshot": head}
    assert client.post("/query", json=before, headers=bearer("reader")).json()["rows"] == [{"n": 2}]


@pytest.mark.parametrize(
    ("method", "path", "who", "status", "code"),
    [
        ("POST", "/query", None, 401, "unauthorized"),
        ("POST", "/query", "stranger", 401, "unauthorized"),
        ("POST", "/query", "nobody", 403, "forbidden"),
        ("POST", "/mutate", "reader", 403, "forbidden"),
        ("GET", "/snapshot", "caller", 403, "forbidden"),
        ("GET", "/queries", "nobody", 403, "forbidden"),
        ("POST", "/queries/items", "nobody", 404, "not_found"),
        ("POST", "/queries/not_there", "reader", 404, "not_found"),
        ("POST", "/queries/add_item", "reader", 403, "forbidden"),
        ("GET", "/nowhere", "reader", 404, "not_found"),
        ("GET", "/query", "reader", 405, "bad_request"),
    ],
)
def test_who_may_what(client: TestClient, method: str, path: str, who: str | None, status: int, code: str) -> None:
    body = {"params": {}} if path.startswith("/queries/") else {"query": ADD, "params": {"name": "x"}}
    refused = client.request(method, path, json=body if method == "POST" else None, headers=bearer(who) if who else {})
    assert refused.status_code == status, refused.text
    envelope = refused.json()
    assert envelope["code"] == code
    assert envelope["error"]
    assert envelope["request_id"] == refused.headers["x-request-id"]
    if status == 401:
        assert refused.headers["www-authenticate"] == "Bearer"


def test_an_unknown_and_a_forbidden_stored_query_look_the_same(client: TestClient) -> None:
    there = client.post("/queries/items", headers={**bearer("nobody"), "X-Request-Id": "a"}).json()
    missing = client.post("/queries/itemz", headers={**bearer("nobody"), "X-Request-Id": "a"}).json()
    assert there == {**missing, "error": missing["error"].replace("itemz", "items")}


def test_stored_queries(client: TestClient) -> None:
    listed = {q["name"]: q for q in client.get("/queries", headers=bearer("caller")).json()["queries"]}
    assert set(listed) == {"items", "parts_of", "add_item"}
    assert listed["items"]["description"] == "Every item"
    assert listed["parts_of"]["params"] == [{"name": "name", "required": True, "type": "String", "nullable": False}]
    assert [c["name"] for c in listed["items"]["columns"]] == ["name", "price", "stock"]
    assert listed["add_item"]["kind"] == "mutation"
    parts = client.post("/queries/parts_of", json={"params": {"name": "bike"}}, headers=bearer("caller"))
    assert parts.json()["rows"] == [{"name": "wheel"}]
    added = client.post("/queries/add_item", json={"params": {"name": "bell"}}, headers=bearer("writer"))
    assert added.json()["affected_nodes"] == 1


def test_wrong_requests_name_the_place(client: TestClient) -> None:
    def ask(path: str, **body: object):
        return client.post(path, json=body, headers=bearer("writer"))

    broken = ask("/query", query="query q() { match { $i: Itm } return { $i.name } }")
    assert broken.status_code == 400
    assert broken.json()["details"]["code"] == "T1"
    assert broken.json()["details"]["diagnostics"][0]["column"] == 25
    assert "/mutate" in ask("/query", query=ADD, params={"name": "x"}).json()["error"]
    assert "/query" in ask("/mutate", query=COUNT).json()["error"]
    missing = ask("/queries/parts_of")
    assert missing.status_code == 400
    assert "name" in missing.json()["error"]
    unknown = ask("/query", query=COUNT, brnch="main")
    assert unknown.status_code == 400
    assert "body.brnch" in unknown.json()["error"]
    assert ask("/query", query=COUNT, branch="nowhere").status_code == 404
    text = client.post("/query", content=b"{", headers={**bearer("writer"), "Content-Type": "application/json"})
    assert text.status_code == 400
    assert text.json()["code"] == "bad_request"


def test_a_duplicate_insert_is_no_server_error(client: TestClient) -> None:
    twice = client.post(
        "/mutate", json={"query": "query q() { insert PartOf { from: 'no', to: 'bike' } }"}, headers=bearer("writer")
    )
    assert twice.status_code in (400, 404, 409), twice.text


def test_branches(client: TestClient) -> None:
    assert client.post("/branches", json={"name": "draft"}, headers=bearer("reader")).status_code == 403
    made = client.post("/branches", json={"name": "draft", "from": "main"}, headers=bearer("writer"))
    assert made.status_code == 201, made.text
    ask = {"query": ADD, "params": {"name": "bell"}, "branch": "draft"}
    assert client.post("/mutate", json=ask, headers=bearer("writer")).status_code == 200
    counts = [
        client.post("/query", json={"query": COUNT, "branch": b}, headers=bearer("reader")).json()["rows"][0]["n"]
        for b in ("main", "draft")
    ]
    assert counts == [2, 3]
    assert {b["name"] for b in client.get("/branches", headers=bearer("reader")).json()["branches"]} == {
        "main",
        "draft",
    }
    assert client.post("/branches", json={"name": "draft"}, headers=bearer("writer")).status_code == 409


def test_schema(client: TestClient, shop: omnigraph.Graph) -> None:
    body = client.get("/schema", headers=bearer("reader")).json()
    assert body["schema_source"] == shop.schema.source
    assert body["schema_hash"] == shop.schema.catalog.hash


def test_a_body_too_large(small: TestClient) -> None:
    refused = small.post("/query", json={"query": COUNT + " " * 3000})
    assert refused.status_code == 413
    assert refused.json()["code"] == "payload_too_large"
    # Without a Content-Length it is counted.
    chunked = small.post("/query", content=(b" " * 1000 for _ in range(4)))
    assert chunked.status_code == 413
    assert small.post("/query", json={"query": COUNT}).status_code == 200


def test_unauthenticated_writes_have_no_actor(small: TestClient) -> None:
    done = small.post("/mutate", json={"query": ADD, "params": {"name": "bell"}})
    assert done.status_code == 200, done.text
    assert done.json()["actor_id"] is None


def test_a_query_is_bounded_in_time(shop: omnigraph.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(shop), "query", lambda *args, **kwargs: time.sleep(3))
    app = create_app(shop, tokens=None, settings=Settings(query_max_seconds=1))
    with TestClient(app, raise_server_exceptions=False) as client:
        late = client.post("/query", json={"query": COUNT})
    assert late.status_code == 503
    assert late.json()["details"]["code"] == "query_timeout"


def until_cancelled(ended: threading.Event) -> Callable[..., Any]:
    """A query that only its cancellation ends."""

    def query(*args: Any, cancelled: Callable[[], bool], **kwargs: Any) -> Any:
        while not cancelled():
            time.sleep(0.01)
        ended.set()
        raise BadRequest("the query was cancelled", code="query_cancelled")

    return query


def test_the_thread_of_a_query_that_is_given_up_ends(shop: omnigraph.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    ended = threading.Event()
    monkeypatch.setattr(shop, "query", until_cancelled(ended))
    app = create_app(shop, tokens=None, settings=Settings(query_max_seconds=1))
    with TestClient(app, raise_server_exceptions=False) as client:
        assert client.post("/query", json={"query": COUNT}).status_code == 503
        assert ended.wait(5)


def test_a_query_whose_caller_has_gone_is_cancelled(shop: omnigraph.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    ended = threading.Event()
    monkeypatch.setattr(shop, "query", until_cancelled(ended))
    app = create_app(shop, tokens=None, settings=Settings(query_max_seconds=30))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = uvicorn.Server(uvicorn.Config(app, port=port, log_level="error"))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            time.sleep(0.01)
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(f"http://127.0.0.1:{port}/query", json={"query": COUNT}, timeout=0.5)
        assert ended.wait(5)
    finally:
        server.should_exit = True
        thread.join()


def test_an_unreachable_store_is_not_ready(small: TestClient, shop: omnigraph.Graph) -> None:
    shop.close()  # history follows the answer, and would make the folder anew
    Path(shop.uri).rename(f"{shop.uri}.away")
    assert small.get("/healthz").status_code == 200
    refused = small.get("/readyz")
    assert refused.status_code == 503
    assert refused.json()["code"] == "unavailable"
    Path(f"{shop.uri}.away").rename(shop.uri)
    assert small.get("/readyz").status_code == 200


def test_request_ids(small: TestClient) -> None:
    assert small.get("/healthz", headers={"X-Request-Id": "abc-1"}).headers["x-request-id"] == "abc-1"
    assert len(small.get("/healthz", headers={"X-Request-Id": "a b"}).headers["x-request-id"]) == 26


def test_a_bug_is_an_envelope(small: TestClient, monkeypatch: pytest.MonkeyPatch, shop: omnigraph.Graph) -> None:
    def broken(*args: object, **kwargs: object) -> None:
        raise ZeroDivisionError("secret detail")

    monkeypatch.setattr(type(shop), "query", broken)
    failed = small.post("/query", json={"query": COUNT})
    assert failed.status_code == 500
    assert failed.json()["code"] == "internal"
    assert "secret detail" not in failed.text
    assert failed.json()["request_id"] == failed.headers["x-request-id"]


def test_a_read_only_server(shop: omnigraph.Graph) -> None:
    reader = omnigraph.open(shop.uri, read_only=True)
    with TestClient(create_app(reader, tokens=None), raise_server_exceptions=False) as client:
        refused = client.post("/mutate", json={"query": ADD, "params": {"name": "bell"}})
        assert refused.status_code == 403
        assert "read-only" in refused.json()["error"]
        shop.mutate(ADD, {"name": "bell"})
        assert client.post("/query", json={"query": COUNT}).json()["rows"] == [{"n": 3}]


def test_tokens_change_without_a_restart(client: TestClient, tmp_path: Path) -> None:
    file = tmp_path / "tokens.yaml"
    file.write_text("reader: rotated-token\n")
    os.utime(file, ns=(1, 1))
    assert client.get("/snapshot", headers=bearer("reader")).status_code == 401
    assert client.get("/snapshot", headers=bearer("rotated")).status_code == 200


def test_stored_queries_are_checked_first(shop: omnigraph.Graph, tmp_path: Path) -> None:
    bad = tmp_path / "bad.gq"
    bad.write_text(
        "query fine() { match { $i: Item } return { $i.name } }\nquery q() { match { $i: Itm } return { $i.name } }\n"
    )
    with pytest.raises(omnigraph.LanguageError) as caught:
        create_app(shop, tokens=None, stored=[bad])
    assert f"{bad}:2:25" in str(caught.value)
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "a.gq").write_text("query same() { match { $i: Item } return { $i.name } }")
    (folder / "b.gq").write_text("query same() { match { $i: Item } return { $i.price } }")
    with pytest.raises(omnigraph.BadRequest, match=r"b\.gq: query 'same' is in .*a\.gq too"):
        create_app(shop, tokens=None, stored=[folder])
    with pytest.raises(omnigraph.BadRequest, match="nowhere"):
        create_app(shop, tokens=None, stored=[tmp_path / "nowhere.gq"])


@pytest.mark.parametrize("snapshot", [-1, 0, 2**64])
def test_a_version_that_cannot_be_is_a_bad_request(client: TestClient, snapshot: int) -> None:
    asked = client.post("/query", json={"query": COUNT, "snapshot": snapshot}, headers=bearer("reader"))
    assert asked.status_code == 400, asked.text
    assert "snapshot" in asked.json()["error"]


def test_half_a_surrogate_pair_is_a_bad_request(client: TestClient) -> None:
    text = "query one($n: String) { match { $i: Item { name: $n } } return { $i.name } }"
    body = '{"query": "%s", "params": {"n": "\\ud800"}}' % text  # noqa: UP031  (braces all over)
    headers = {**bearer("reader"), "Content-Type": "application/json"}
    asked = client.post("/query", content=body, headers=headers)
    assert asked.status_code == 400, asked.text
    assert "surrogate" in asked.json()["error"]
