"""`omnigraph task`: exit codes, results that fit, operation ids, signals."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from omnigraph.cli import report


def test_results_fit_and_keep_their_totals() -> None:
    tables = [{"tableKey": f"node:Type{i:04}", "rows": i} for i in range(1000)]
    data = report.encode({"ok": True, "purpose": "load", "operationId": "x", "tables": tables, "seconds": 1.0})
    assert len(data) <= 4096
    cut = json.loads(data)
    assert cut["totals"] == {"tables": 1000}
    assert 0 < len(cut["tables"]) < 1000
    assert cut["tables"] == tables[: len(cut["tables"])]


def test_a_long_message_is_cut_to_fit() -> None:
    data = report.encode({"ok": False, "purpose": "load", "operationId": "x", "message": "ä" * 9000, "seconds": 1.0})
    assert len(data) <= 4096
    assert json.loads(data)["message"].endswith("ä…")


def test_small_results_are_whole() -> None:
    result = {"ok": True, "purpose": "sweep", "operationId": "x", "sweep": report.sweep("full", [], []), "seconds": 0.1}
    assert json.loads(report.encode(result)) == result


def test_sweep_outcomes_are_counted() -> None:
    one = {"operation_id": "x", "sidecar": "x.json", "writer_kind": "Load", "branch": "main", "outcome": "RolledBack"}
    left = [{"sidecar": "y.json", "reason": "NeedsRollBack"}, {"sidecar": "z.json", "reason": "Live"}]
    swept = report.sweep("forward", [one, one], left)
    assert swept["counts"] == {"RolledBack": 2}
    assert swept["outcomes"][0]["operationId"] == "x"
    assert swept["pending"] == [{"sidecar": "y.json", "reason": "NeedsRollBack"}]
    assert swept["live"] == [{"sidecar": "z.json", "reason": "Live"}]


def test_writing_is_atomic_and_replaces(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "result.json"
    report.write(b"one", target)
    report.write(b"two", target)
    assert target.read_bytes() == b"two"
    assert [p.name for p in target.parent.iterdir()] == ["result.json"]


@pytest.fixture
def task(files: Path, command):
    def run(purpose: str, *args: object):
        result = files / "result.json"
        result.unlink(missing_ok=True)
        ran = command("task", purpose, "--uri", files / "graph.omni", "--result", result, *args)
        found = json.loads(result.read_text())
        assert found == json.loads(ran.out)
        return ran.code, found

    return run


def test_an_init_that_runs_again_has_created_the_graph_not_adopted_it(files: Path, task) -> None:
    mine = ("init", "--schema", files / "schema.pg", "--operation-id", "01J9ZC4T5E8QK3W7R2N6M1XVYA")
    _, made = task(*mine)
    for more in ((), ("--adopt", "Never")):
        code, again = task(*mine, *more)
        assert (code, again["adopted"], again["head"]) == (0, False, made["head"]), more
    _, other = task("init", "--schema", files / "schema.pg", "--operation-id", "01J9ZC4T5E8QK3W7R2N6M1XVYZ")
    assert (other["ok"], other["adopted"]) == (True, True)
    # A later write of the same id is no creation.
    load = ("load", "--source", files / "people.ndjson", "--operation-id", "01J9ZC4T5E8QK3W7R2N6M1XVYZ")
    assert task(*load)[0] == 0
    _, other = task("init", "--schema", files / "schema.pg", "--operation-id", "01J9ZC4T5E8QK3W7R2N6M1XVYZ")
    assert other["adopted"] is True


def test_init_load_index_sweep(files: Path, task) -> None:
    code, made = task("init", "--schema", files / "schema.pg")
    assert code == 0, made
    assert made["ok"] is True
    assert made["adopted"] is False
    code, again = task("init", "--schema", files / "schema.pg")
    assert (code, again["adopted"], again["schemaInSync"]) == (0, True, True)
    assert again["head"]["commit"] == made["head"]["commit"]
    code, never = task("init", "--schema", files / "schema.pg", "--adopt", "Never")
    assert code == 3, never
    assert never["ok"] is False
    load = ("--name", "people", "--source", files / "people.ndjson", "--operation-id", "01J9ZC4T5E8QK3W7R2N6M1XVYB")
    code, loaded = task("load", *load, "--actor", "ci", "--sweep", "full")
    assert code == 0, loaded
    assert {t["tableKey"]: t["rows"] for t in loaded["tables"]} == {"node:Person": 3, "edge:Knows": 2}
    assert loaded["rows"] == 5
    assert loaded["commit"] == loaded["head"]["commit"]
    assert loaded["sweep"]["mode"] == "full"
    code, twice = task("load", *load)
    assert code == 0, twice
    assert twice["head"] == loaded["head"]
    assert twice["graph"] == {"tables": 2, "rows": 5}
    code, indexed = task("index", "--branch", "main")
    assert code == 0, indexed
    assert {t["tableKey"] for t in indexed["tables"]} == {"node:Person", "edge:Knows"}
    code, swept = task("sweep", "--mode", "full")
    assert code == 0
    assert swept["sweep"]["outcomes"] == []


def test_failures_have_code_message_and_place(files: Path, task) -> None:
    bad = files / "bad.pg"
    bad.write_text("node Person {\n  name: Strin @key\n}\n")
    code, broken = task("init", "--schema", bad)
    assert code == 1
    assert f"{bad}:2:9" in broken["message"]
    code, missing = task("load", "--source", files / "people.ndjson")
    assert code == 1
    assert missing["code"] == "graph_not_found"
    assert task("init", "--schema", files / "schema.pg")[0] == 0
    code, source = task("load", "--source", files / "nowhere.ndjson")
    assert code == 1
    assert "nowhere.ndjson" in source["message"]
    code, unmapped = task("load", "--source", files / "x.parquet", "--format", "parquet")
    assert code == 1
    assert "--mapping" in unmapped["message"]
    code, clash = task("load", "--source", files / "people.ndjson")
    assert code == 0
    code, clash = task("load", "--source", files / "people.ndjson")
    assert code != 0
    assert "Ada" in clash["message"]


@pytest.mark.parametrize("engine", ["process", pytest.param("spark", marks=pytest.mark.spark)])
def test_a_mapping_starts_from_the_source_folder(files: Path, task, engine: str) -> None:
    data, elsewhere = files / "data", files / "config"
    data.mkdir()
    elsewhere.mkdir()
    people = pa.table({"full_name": ["Dan", "Eve"], "age": pa.array([3, None], pa.int32()), "etag": ["x", "y"]})
    pq.write_table(people, data / "people.parquet")
    mapping = elsewhere / "mapping.yaml"
    mapping.write_text("sources:\n- {path: '*.parquet', node: Person, columns: {name: full_name}, ignore: [etag]}\n")
    assert task("init", "--schema", files / "schema.pg")[0] == 0
    args = ("--source", data, "--mapping", mapping, "--format", "parquet", "--engine", engine, "--mode", "merge")
    code, loaded = task("load", *args)
    assert code == 0, loaded
    assert loaded["tables"] == [{"tableKey": "node:Person", "rows": 2}]
    assert loaded["graph"]["rows"] == 2


def test_embed_fills_what_is_missing_and_says_what_it_needs(files: Path, task, monkeypatch: pytest.MonkeyPatch) -> None:
    (files / "schema.pg").write_text('node Person { name: String @key  bio: String?  v: Vector(8)? @embed("bio") }')
    (files / "people.ndjson").write_text(
        "\n".join(json.dumps({"type": "Person", "data": {"name": f"p{i}", "bio": f"text {i}"}}) for i in range(5))
    )
    assert task("init", "--schema", files / "schema.pg")[0] == 0
    code, none = task("embed")  # nothing is missing: nobody has to be asked
    assert (code, none["made"], none["commits"]) == (0, 0, 0)
    loaded = task("load", "--source", files / "people.ndjson")[1]
    for args, what in (((), "5 rows of main have no vector"), (("--all",), "vector is to be made anew")):
        code, refused = task("embed", *args)
        assert (code, refused["code"]) == (1, "no_embedder")
        for word in (what, "OPENAI_API_KEY", "GEMINI_API_KEY", "OMNIGRAPH_EMBED_BASE_URL"):
            assert word in refused["message"], word
    monkeypatch.setenv("OMNIGRAPH_EMBEDDINGS_MOCK", "1")
    code, made = task("embed", "--batch-rows", "2", "--actor", "ci")
    assert (code, made["missing"], made["made"], made["commits"]) == (0, 5, 5, 3)
    assert made["properties"] == [{"property": "Person.v", "missing": 5, "made": 5}]
    assert made["commit"] == made["head"]["commit"] != loaded["head"]["commit"]
    monkeypatch.delenv("OMNIGRAPH_EMBEDDINGS_MOCK")
    code, again = task("embed")
    assert (code, again["made"], again["head"]) == (0, 0, made["head"])
    assert task("embed", "--type", "Robot")[1]["code"] == "not_found"


_SLOW_TASK = """
import sys, time, pathlib
from omnigraph.cli.task import _run
def work(graph):
    pathlib.Path(sys.argv[3]).touch()
    time.sleep(60)
    return {}
_run("load", sys.argv[1], None, "none", pathlib.Path(sys.argv[2]), work)
"""


def test_sigterm_leaves_a_result(files: Path, task) -> None:
    assert task("init", "--schema", files / "schema.pg")[0] == 0
    result, at_work = files / "term.json", files / "at-work"
    child = subprocess.Popen([sys.executable, "-c", _SLOW_TASK, files / "graph.omni", result, at_work])
    try:
        deadline = time.monotonic() + 60
        while not at_work.exists():
            assert child.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.02)
        child.send_signal(signal.SIGTERM)
        child.wait(30)
    finally:
        child.kill()
        child.wait()
    found = json.loads(result.read_text())
    assert found["ok"] is False
    assert found["code"] == "terminated"
    assert found["seconds"] < 30
