"""`omnigraph serve` as a process: real sockets, signals, ports and logs."""

from __future__ import annotations

import json
import logging
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

import omnigraph
from omnigraph.cli.main import main
from omnigraph.errors import Unavailable
from omnigraph_server.run import bind

sys.path.insert(0, str(Path(__file__).parent))
from conftest import ADD, COUNT, bearer


def test_the_main_journey(shop: omnigraph.Graph, tmp_path: Path, serving) -> None:
    args = ("--queries", tmp_path / "queries.gq", "--tokens-file", tmp_path / "tokens.yaml")
    with serving(shop.uri, *args) as served, httpx.Client(base_url=served.url, timeout=30) as http:
        line = json.loads(served.process.stdout.readline())
        assert line["url"] == served.url
        assert line["pid"] == served.process.pid
        assert http.get("/healthz").status_code == 200
        assert http.get("/readyz").status_code == 200
        parts = http.post("/queries/parts_of", json={"params": {"name": "bike"}}, headers=bearer("reader"))
        assert parts.json()["rows"] == [{"name": "wheel"}]
        ask = {"query": ADD, "params": {"name": "hidden-parameter"}}
        done = http.post("/mutate", json=ask, headers=bearer("writer"))
        assert done.status_code == 200, done.text
        assert http.post("/query", json={"query": COUNT}, headers=bearer("reader")).json()["rows"] == [{"n": 3}]
        metrics = http.get("/metrics").text
        assert "omnigraph_commits_total 1.0" in metrics
        served.process.send_signal(signal.SIGTERM)
        assert served.process.wait(30) == 0
        assert not served.ready.exists()
    log = served.log.read_text()
    lines = [json.loads(text) for text in log.splitlines()]
    mutations = [entry for entry in lines if entry.get("route") == "/mutate"]
    assert len(mutations) == 1
    assert mutations[0]["actor"] == "writer"
    assert mutations[0]["branch"] == "main"
    assert mutations[0]["decision"] == "allow"
    assert mutations[0]["duration_ms"] > 0
    assert "writer-token" not in log
    assert "hidden-parameter" not in log
    assert omnigraph.open(shop.uri).verify().ok


def test_concurrent_reads_and_writes(shop: omnigraph.Graph, serving) -> None:
    with serving(shop.uri, "--unauthenticated") as served:
        failures: list[str] = []

        def write(number: int) -> None:
            with httpx.Client(base_url=served.url, timeout=60) as http:
                for i in range(3):
                    ask = {"query": ADD, "params": {"name": f"{number}-{i}"}}
                    for _ in range(20):
                        done = http.post("/mutate", json=ask)
                        if done.status_code != 409:
                            break
                    if done.status_code != 200:
                        failures.append(done.text)
                    # Liveness answers beside the work.
                    if http.get("/healthz").status_code != 200:
                        failures.append("healthz")

        threads = [threading.Thread(target=write, args=(i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        assert httpx.post(f"{served.url}/query", json={"query": COUNT}).json()["rows"] == [{"n": 14}]


def test_sigterm_finishes_a_write(shop: omnigraph.Graph, serving) -> None:
    with serving(shop.uri, "--unauthenticated") as served:
        answers: list[int] = []

        def write() -> None:
            for i in range(200):
                try:
                    ask = {"query": ADD, "params": {"name": f"item {i}"}}
                    answers.append(httpx.post(f"{served.url}/mutate", json=ask, timeout=30).status_code)
                except httpx.TransportError:
                    return

        thread = threading.Thread(target=write)
        thread.start()
        while len(answers) < 3:
            time.sleep(0.01)
        served.process.send_signal(signal.SIGTERM)
        assert served.process.wait(30) == 0
        thread.join()
    assert set(answers) == {200}
    graph = omnigraph.open(shop.uri)
    assert graph.query(COUNT).to_pylist() == [{"n": 2 + len(answers)}]
    assert graph.recovered.outcomes == ()


def test_a_read_only_server_sees_commits_of_a_read_write_one(shop: omnigraph.Graph, serving) -> None:
    with (
        serving(shop.uri, "--unauthenticated", log_name="rw") as writer,
        serving(shop.uri, "--unauthenticated", "--read-only", log_name="ro") as reader,
    ):
        assert httpx.post(f"{reader.url}/query", json={"query": COUNT}).json()["rows"] == [{"n": 2}]
        ask = {"query": ADD, "params": {"name": "bell"}}
        assert httpx.post(f"{reader.url}/mutate", json=ask).status_code == 403
        assert httpx.post(f"{writer.url}/mutate", json=ask).status_code == 200
        assert httpx.post(f"{reader.url}/query", json={"query": COUNT}).json()["rows"] == [{"n": 3}]


def _refused(*args: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "omnigraph.cli.main", "serve", *map(str, args)],
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_a_port_in_use(shop: omnigraph.Graph) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        ran = _refused(shop.uri, "--unauthenticated", "--port", port)
    assert ran.returncode == 1
    assert f"port {port} on 127.0.0.1 is in use" in ran.stderr
    assert "Traceback" not in ran.stderr


@pytest.mark.parametrize("host", ["\udce9", "a\0b", "a" * 64 + ".example", "é..x", "256.0.0.1"])
def test_no_address_of_a_host(host: str) -> None:
    with pytest.raises(Unavailable, match="can't listen on") as caught:
        bind(host, 0)
    assert caught.value.code == "no_port"
    caught.value.message.encode()


@pytest.fixture
def own_logging() -> Iterator[None]:
    """A start sets up logging for the whole process; this puts it back."""
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    yield
    root.handlers, root.level = handlers, level


@pytest.mark.parametrize("case", ["no-auth", "both", "tokens", "query", "graph"])
def test_starts_that_are_refused(
    shop: omnigraph.Graph, tmp_path: Path, case: str, capsys: pytest.CaptureFixture[str], own_logging: None
) -> None:
    bad = tmp_path / "bad.gq"
    bad.write_text("query q() {\n  match { $i: Itm }\n  return { $i.name }\n}\n")
    args, message = {
        "no-auth": ((shop.uri,), "--unauthenticated"),
        "both": ((shop.uri, "--unauthenticated", "--tokens-file", tmp_path / "tokens.yaml"), "exactly one"),
        "tokens": ((shop.uri, "--tokens-file", tmp_path / "nowhere.yaml"), "nowhere.yaml: the tokens can't be read"),
        "query": ((shop.uri, "--unauthenticated", "--queries", bad), f"{bad}:2:15"),
        "graph": ((tmp_path / "nowhere.omni", "--unauthenticated"), "nowhere.omni"),
    }[case]
    code = main(["serve", *map(str, args), "--port", "0"])
    assert code == (2 if case in ("no-auth", "both") else 1)
    assert message in " ".join(capsys.readouterr().err.replace("│", " ").split())


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_answers_do_not_wait_for_acknowledgements(host: str) -> None:
    sock = bind(host, 0)
    with sock:
        assert sock.proto == socket.IPPROTO_TCP  # what asyncio looks at before it sets TCP_NODELAY
