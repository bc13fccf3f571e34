"""Reads of a served graph over real sockets: bounds, callers who hang up, large answers, many callers and writers."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest
from fastapi.testclient import TestClient

import omnigraph
from omnigraph_server.app import create_app
from omnigraph_server.settings import Settings

sys.path.insert(0, str(Path(__file__).parent))
from conftest import ADD, COUNT, Served

SCHEMA = "node Item { name: String @key  price: F64?  stock: I64?  text: String? }"
PAIRS = "match { $a: Item $b: Item"
SLOW = f'query slow() {{ {PAIRS} (matches($a.text, "(a+b+ )+c") or matches($b.text, "(a+b+ )+c")) }} '
SLOW += "return { count($a) as n } }"
"""Four million pairs of long texts: minutes."""
ALL = "query pairs() { match { $a: Item $b: Item $b.stock < 10 } return { $a.name as a, $b.price as b, $a.text as t } }"
LATE = 60


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> omnigraph.Graph:
    graph = omnigraph.init(tmp_path_factory.mktemp("many") / "many.omni", schema=SCHEMA)
    rows = [{"name": f"i{i:04}", "price": i / 4, "stock": i, "text": "ab " * 300} for i in range(2000)]
    graph.load({"Item": rows})
    return graph


@pytest.fixture
def bounded(many: omnigraph.Graph, monkeypatch: pytest.MonkeyPatch) -> Iterator[TestClient]:
    with TestClient(create_app(many, tokens=None, settings=Settings(threads=1)), raise_server_exceptions=False) as made:
        yield made


def logged(served: Served, **fields: Any) -> list[dict[str, Any]]:
    """The log's lines with these fields, once there are some."""
    begin = time.monotonic()
    while time.monotonic() < begin + LATE:
        lines = [json.loads(line) for line in served.log.read_text().splitlines() if line.startswith("{")]
        found = [line for line in lines if fields.items() <= line.items()]
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError(f"no {fields} in {served.log.read_text()}")


def in_flight(http: httpx.Client) -> str:
    return next(
        line for line in http.get("/metrics").text.splitlines() if line.startswith("omnigraph_") and "in_flight" in line
    )


def test_a_caller_who_hangs_up_ends_its_query(many: omnigraph.Graph, serving: Any) -> None:
    serve = serving(many.uri, "--unauthenticated", "--read-only")
    with serve as served, httpx.Client(base_url=served.url, timeout=LATE) as http:
        for number in range(18):  # more than there are threads
            with pytest.raises(httpx.ReadTimeout):
                http.post("/query", json={"query": SLOW}, timeout=0.05, headers={"X-Request-Id": f"gone-{number}"})
        for number in range(18):
            (line,) = logged(served, request_id=f"gone-{number}")
            assert (line["status"], line["error_code"]) == (499, "query_cancelled")
        # and all threads are free again
        assert http.post("/query", json={"query": COUNT}).json()["rows"] == [{"n": 2000}]
        assert in_flight(http).endswith(" 1.0")  # the question itself


def test_a_query_may_take_as_long_as_its_caller_says(bounded: TestClient) -> None:
    late = bounded.post("/query", json={"query": SLOW, "timeout_seconds": 0.2})
    assert late.status_code == 503
    assert late.json()["details"]["code"] == "query_timeout"
    assert "timeout_seconds" in late.json()["error"]
    assert "OMNIGRAPH_SERVER_QUERY_MAX_SECONDS" in late.json()["error"]
    assert bounded.post("/query", json={"query": COUNT, "timeout_seconds": 1000}).status_code == 200
    for bad in (0, -1, "soon"):
        assert bounded.post("/query", json={"query": COUNT, "timeout_seconds": bad}).status_code == 400


def test_a_query_too_large_for_its_memory_is_refused_with_what_to_do(bounded: TestClient) -> None:
    rows = "match { $a: Item $b: Item $c: Item } return { $a.name, $b.name, $c.name }"
    refused = bounded.post("/query", json={"query": f"query q() {{ {rows} }}"})
    assert refused.status_code == 400
    assert refused.json()["details"]["code"] == "query_too_large"
    assert "OMNIGRAPH_READ_MAX_ROWS" in refused.json()["error"]


def test_a_server_without_a_free_thread_says_so_and_still_writes(
    many: omnigraph.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside, leave = threading.Event(), threading.Event()
    query = omnigraph.Graph.query

    def held(self: omnigraph.Graph, text: str, *args: Any, **kwargs: Any) -> Any:
        if "slow" in text:
            inside.set()
            assert leave.wait(LATE)
        return query(self, text, *args, **kwargs)

    monkeypatch.setattr(omnigraph.Graph, "query", held)
    app = create_app(many, tokens=None, settings=Settings(threads=1))
    with TestClient(app, raise_server_exceptions=False) as client:
        first = threading.Thread(
            target=client.post, args=("/query",), kwargs={"json": {"query": COUNT.replace("count_items", "slow")}}
        )
        first.start()
        assert inside.wait(LATE)
        busy = client.post("/query", json={"query": COUNT, "timeout_seconds": 0.1})
        assert (busy.status_code, busy.json()["details"]["code"]) == (503, "server_busy")
        assert client.get("/readyz").status_code == 200
        assert (
            client.post("/mutate", json={"query": 'query d() { delete Item where name = "none" }'}).status_code == 200
        )
        leave.set()
        first.join(LATE)
        assert client.post("/query", json={"query": COUNT}).status_code == 200


def test_a_large_answer_comes_in_pieces_and_a_small_one_whole(many: omnigraph.Graph, serving: Any) -> None:
    expected = many.query(ALL)
    assert len(expected) == 20_000
    arrow = {"Accept": "application/vnd.apache.arrow.stream"}
    serve = serving(many.uri, "--unauthenticated", "--read-only")
    with serve as served, httpx.Client(base_url=served.url, timeout=LATE) as http:
        with http.stream("POST", "/query", json={"query": ALL}) as large:
            assert "content-length" not in large.headers
            assert large.headers["omnigraph-snapshot"] == str(expected.snapshot.manifest_version)
            body = json.loads(b"".join(large.iter_bytes()))
        assert body["row_count"] == 20_000
        assert body["rows"] == expected.to_pylist()
        stream = http.post("/query", json={"query": ALL}, headers=arrow)
        assert pa.ipc.open_stream(stream.content).read_all().equals(expected.table)
        assert "content-length" in http.post("/query", json={"query": COUNT}).headers
        # Who hangs up in the middle of an answer holds nothing.
        with http.stream("POST", "/query", json={"query": ALL}, headers={"X-Request-Id": "half"}) as large:
            next(large.iter_bytes())
        assert logged(served, request_id="half")[0]["rows"] == 20_000
        assert in_flight(http).endswith(" 1.0")


def test_many_readers_beside_writers(shop: omnigraph.Graph, serving: Any) -> None:
    """Fifty readers and two writers: every answer is of one state, and the server answers for itself meanwhile."""
    failures: list[str] = []
    grown = "query q() { match { $i: Item } return { count($i) as n, min($i.name) as least } }"
    with serving(shop.uri, "--unauthenticated") as served:

        def ask(path: str, body: dict[str, Any] | None, times: int) -> None:
            with httpx.Client(base_url=served.url, timeout=LATE) as http:
                least = 0
                for _ in range(times):
                    answer = http.get(path) if body is None else http.post(path, json=body)
                    if answer.status_code != 200:
                        failures.append(f"{path} {answer.status_code} {answer.text}")
                    elif path == "/query":
                        now = answer.json()["rows"][0]["n"]
                        if now < least:
                            failures.append(f"{now} after {least}")
                        least = now

        def write(number: int) -> None:
            with httpx.Client(base_url=served.url, timeout=LATE) as http:
                for i in range(4):
                    body = {"query": ADD, "params": {"name": f"{number}-{i}"}}
                    answers = (http.post("/mutate", json=body) for _ in range(50))
                    if not any(answer.status_code == 200 for answer in answers):
                        failures.append(f"write {number}-{i}")

        work: list[tuple[Any, ...]] = [(ask, "/query", {"query": grown}, 4)] * 50
        work += [(write, number) for number in range(2)] + [(ask, "/healthz", None, 40), (ask, "/readyz", None, 10)]
        threads = [threading.Thread(target=one, args=args) for one, *args in work]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(2 * LATE)
            assert not thread.is_alive()
        assert failures == []
        with httpx.Client(base_url=served.url, timeout=LATE) as http:
            assert http.post("/query", json={"query": COUNT}).json()["rows"] == [{"n": 10}]
