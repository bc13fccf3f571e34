"""The whole way through the command: init, load, query, mutate, snapshot, export, verify."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest


def test_init_load_and_query(files: Path, command) -> None:
    path = files / "graph.omni"
    made = command("init", path, "--schema", files / "schema.pg")
    assert made.code == 0
    assert "1 node and 1 edge types" in made.out
    loaded = command("load", path, files / "people.ndjson", "--format", "json")
    assert loaded.code == 0, loaded.err
    report = loaded.json()
    assert report["rows"] == 5
    assert {t["table_key"]: t["rows_loaded"] for t in report["tables"]} == {"node:Person": 3, "edge:Knows": 2}
    asked = command("query", path, files / "queries.gq", "--name", "everyone", "--format", "json")
    assert asked.code == 0, asked.err
    rows = asked.json()
    assert [row["name"] for row in rows] == ["Ada", "Bob", "Cleo"]
    assert [row["age"] for row in rows] == [36, 25, None]


@pytest.mark.parametrize("format", ["table", "json", "jsonl", "csv", "kv"])
def test_every_text_format_holds_every_row(graph: Path, files: Path, command, format: str) -> None:
    asked = command("query", graph, files / "queries.gq", "-n", "everyone", "-f", format)
    assert asked.code == 0, asked.err
    assert all(name in asked.out for name in ("Ada", "Bob", "Cleo"))


def test_arrow_format_is_a_stream(graph: Path, files: Path, command, monkeypatch: pytest.MonkeyPatch) -> None:
    buffer = io.BytesIO()
    fake = SimpleNamespace(buffer=buffer, flush=lambda: None, isatty=lambda: False, write=lambda text: None)
    monkeypatch.setattr("omnigraph.cli.output.sys.stdout", fake)
    assert command("query", graph, files / "queries.gq", "-n", "everyone", "-f", "arrow").code == 0
    table = pa.ipc.open_stream(buffer.getvalue()).read_all()
    assert table["name"].to_pylist() == ["Ada", "Bob", "Cleo"]


def test_params_inline_and_from_a_file(graph: Path, files: Path, command) -> None:
    params = files / "params.json"
    params.write_text('{"name": "Ada"}')
    for given in ('{"name": "Ada"}', f"@{params}"):
        asked = command("query", graph, files / "queries.gq", "-n", "known_by", "--params", given, "-f", "json")
        assert asked.code == 0, asked.err
        assert asked.json() == [{"name": "Bob"}]


def test_mutation_makes_one_commit(graph: Path, files: Path, command) -> None:
    before = command("commit", "list", graph, "-f", "json").json()
    done = command(
        "mutate",
        graph,
        files / "queries.gq",
        "-n",
        "add",
        "-p",
        '{"name": "Dan", "age": 3}',
        "--as",
        "ada",
        "-f",
        "json",
    )
    assert done.code == 0, done.err
    assert done.json()["affected_nodes"] == 1
    after = command("commit", "list", graph, "-f", "json").json()
    assert len(after) == len(before) + 1
    assert after[0]["id"] == done.json()["graph_commit_id"]
    assert after[0]["actor"] == "ada"
    made = datetime.fromisoformat(after[0]["created_at"])
    assert abs((datetime.now(UTC) - made).total_seconds()) < 60
    inline = command("query", graph, "-e", "query q() { match { $p: Person } return { count($p) as n } }", "-f", "json")
    assert inline.json() == [{"n": 4}]


def test_a_stale_head_is_a_failed_precondition(graph: Path, files: Path, command) -> None:
    head = command("commit", "list", graph, "-f", "json").json()[0]["id"]
    first = ("mutate", graph, files / "queries.gq", "-n", "add", "--expect-head", head)
    assert command(*first, "-p", '{"name": "Dan"}').code == 0
    again = command(*first, "-p", '{"name": "Eve"}')
    assert again.code == 4, again.err
    rows = command("query", graph, files / "queries.gq", "-n", "everyone", "-f", "jsonl").out.splitlines()
    assert len(rows) == 4


def test_branches_are_apart(graph: Path, files: Path, command) -> None:
    assert command("branch", "create", graph, "draft").code == 0
    assert command("mutate", graph, files / "queries.gq", "-n", "add", "-p", '{"name": "Dan"}', "-b", "draft").code == 0
    count = "query q() { match { $p: Person } return { count($p) as n } }"
    assert command("query", graph, "-e", count, "-f", "json").json() == [{"n": 3}]
    assert command("query", graph, "-e", count, "-b", "draft", "-f", "json").json() == [{"n": 4}]
    assert {row["name"] for row in command("branch", "list", graph, "-f", "json").json()} == {"main", "draft"}


def test_time_travel(graph: Path, files: Path, command) -> None:
    version = command("commit", "list", graph, "-f", "json").json()[0]["manifest_version"]
    assert command("mutate", graph, files / "queries.gq", "-n", "add", "-p", '{"name": "Dan"}').code == 0
    then = command("query", graph, files / "queries.gq", "-n", "everyone", "--at", version, "-f", "jsonl")
    assert len(then.out.splitlines()) == 3


def test_snapshot_lists_the_tables(graph: Path, command) -> None:
    rows = command("snapshot", graph, "-f", "json").json()
    assert {row["table_key"]: row["row_count"] for row in rows} == {"node:Person": 3, "edge:Knows": 2}
    assert command("snapshot", graph).code == 0


def test_export_loads_again_as_an_equal_graph(graph: Path, files: Path, command) -> None:
    target = files / "out.ndjson"
    assert command("export", graph, "-o", target).code == 0
    assert not list(files.glob("*.part"))
    copy = files / "copy.omni"
    assert command("init", copy, "-s", files / "schema.pg").code == 0
    assert command("load", copy, target).code == 0
    assert sorted(command("export", copy).out.splitlines()) == sorted(target.read_text().splitlines())
    only = command("export", graph, "--type", "Person").out.splitlines()
    assert {json.loads(line).get("type") for line in only} == {"Person"}


def test_verify_recover_indices_schema_explain(graph: Path, files: Path, command) -> None:
    sound = command("verify", graph, "-f", "json")
    assert sound.code == 0, sound.out
    assert sound.json()["ok"] is True
    settled = command("recover", graph)
    assert settled.code == 0
    assert "nothing to settle" in settled.out
    assert command("ensure-indices", graph).code == 0
    assert command("verify", graph).code == 0
    assert command("schema", "show", graph).out.strip() == (files / "schema.pg").read_text().strip()
    plan = command("explain", graph, files / "queries.gq", "-n", "known_by", "-p", '{"name": "Ada"}')
    assert plan.code == 0, plan.err
    assert "Person" in plan.out
    assert "total" not in plan.out
    ran = command("explain", graph, files / "queries.gq", "-n", "known_by", "-p", '{"name": "Ada"}', "--analyze")
    assert ran.code == 0, ran.err
    assert ran.out.splitlines()[-1].startswith("total   ")


def test_branches_begin_anywhere_and_end(graph: Path, command) -> None:
    head = command("commit", "list", graph, "-f", "json").json()[0]["id"]
    assert command("branch", "create", graph, "fix/names", "--from", head).code == 0
    assert head in command("commit", "show", graph, head).out
    assert command("commit", "show", graph, head, "-f", "json").json()["branch"] == "main"
    assert command("branch", "create", graph, "child", "--from", "fix/names@1").code == 0
    assert command("branch", "delete", graph, "fix/names").code == 0
    assert command("branch", "delete", graph, "fix/names").code == 1
    assert command("branch", "delete", graph, "main").code == 1
    assert command("branch", "delete", graph, "child", "-f", "json").json()["name"] == "child"


def test_a_branch_is_merged_or_its_conflicts_are_listed(graph: Path, files: Path, command) -> None:
    def age(branch: str, years: int) -> None:
        params = json.dumps({"name": "Ada", "age": years})
        ran = command("mutate", graph, files / "queries.gq", "-n", "add", "-p", params, "--branch", branch)
        assert ran.code == 0, ran.err

    assert command("branch", "create", graph, "draft").code == 0
    age("draft", 40)
    done = command("branch", "merge", graph, "draft")
    assert done.code == 0, done.err
    assert "fast forward" in done.out
    assert "1 updated" in done.out
    age("draft", 50)
    age("main", 60)
    refused = command("branch", "merge", graph, "draft", "-f", "json")
    assert refused.code == 3
    assert "divergent_update" in refused.err
    (conflict,) = refused.json()
    assert (conflict["kind"], conflict["id"]) == ("divergent_update", "Ada")
    assert [json.loads(conflict[side])["age"] for side in ("base", "ours", "theirs")] == [40, 60, 50]
    assert "Ada" in command("branch", "merge", graph, "draft").out
    age("main", 50)
    agreed = command("branch", "merge", graph, "draft", "--delete-source", "-f", "json")
    assert agreed.json()["outcome"] == "merged"
    assert [b["name"] for b in command("branch", "list", graph, "-f", "json").json()] == ["main"]


def test_differences_and_the_feed(graph: Path, files: Path, command) -> None:
    assert command("branch", "create", graph, "draft").code == 0
    head = command("commit", "list", graph, "-f", "json").json()[0]["id"]
    params = json.dumps({"name": "Dora", "age": 40})
    assert command("mutate", graph, files / "queries.gq", "-n", "add", "-p", params, "--branch", "draft").code == 0
    listed = command("branch", "diff", graph, "main", "draft", "-f", "json").json()
    assert [(e["table_key"], e["id"], e["op"]) for e in listed] == [("node:Person", "Dora", "insert")]
    assert "Dora" in command("branch", "diff", graph, "main", "draft").out
    assert command("branch", "diff", graph, "main", "draft", "--op", "delete", "-f", "jsonl").out == ""
    assert command("branch", "diff", graph, "main", "draft", "--kind", "table").code == 1
    stats = command("branch", "diff", graph, "draft", "main", "--stats", "-f", "json").json()
    assert stats == [{"table_key": "node:Person", "insert": 0, "update": 0, "delete": 1}]
    fed = command("changes", graph, "--since", head, "--branch", "draft")
    assert json.loads(fed.out)["id"] == "Dora"
    assert "up to commit" in fed.err
    assert command("changes", graph, "--since", head).out == ""
    assert command("changes", graph).code == 2
