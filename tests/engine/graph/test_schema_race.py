"""A schema change beside others: of two exactly one wins, and a write prepared on the old schema is told to retry."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import omnigraph
from omnigraph.errors import Conflict, RecoveryPending
from omnigraph.graph import Graph
from omnigraph.storage import Repository, Staging, TableChange, WriterKind
from omnigraph.storage import schema_settle as settling
from omnigraph.storage.layout import MANIFEST, SCHEMA_LOCK

SCHEMA = "node Person { name: String @key  kind: enum(a, b) }\nnode Thing { label: String @key }\n"
WIDER = SCHEMA.replace("kind:", "age: I32?  kind:")
RACER = Path(__file__).with_name("schema_race.py")


def made(folder: Path) -> Graph:
    graph = omnigraph.init(folder / "graph.omni", schema=SCHEMA)
    graph.load('{"type": "Person", "data": {"name": "ann", "kind": "a"}}\n{"type": "Thing", "data": {"label": "pen"}}')
    return graph


def race(folder: Path, uri: str, *racers: list[str]) -> list[dict[str, Any]]:
    start = folder / "start"
    running = [
        subprocess.Popen([sys.executable, str(RACER), uri, str(start), *r], stdout=subprocess.PIPE, text=True)
        for r in racers
    ]
    until = time.monotonic() + 60
    while len(list(folder.glob("start.*"))) < len(racers) and time.monotonic() < until:
        time.sleep(0.01)
    start.touch()
    outs = [p.communicate(timeout=120)[0] for p in running]
    assert [p.returncode for p in running] == [0] * len(running)
    for path in folder.glob("start*"):
        path.unlink()
    return [json.loads(out) for out in outs]


def sound(uri: str) -> Graph:
    graph = omnigraph.open(uri)
    assert [f for f in graph.verify().findings if f["severity"] == "error"] == []
    assert graph.pending() == []
    assert SCHEMA_LOCK not in Repository.open(uri).engine.store.latest(MANIFEST).branches.list()
    assert (Path(uri) / "_schema.pg").read_text() == graph.schema.source
    assert not list(Path(uri).glob("*.staging"))
    return graph


def test_of_two_changes_exactly_one_wins(tmp_path: Path) -> None:
    uri = made(tmp_path).uri
    for round_ in range(3):
        graph, racers, source = omnigraph.open(uri), [], {}
        for name in ("one", "two"):
            text = graph.schema.source.replace("kind:", f"{name}{round_}: I32?  kind:")
            path = tmp_path / f"{name}.pg"
            path.write_text(text)
            source[name] = text
            racers.append(["apply", str(path), graph.schema.plan(text).digest])
        outcomes = dict(zip(source, race(tmp_path, uri, *racers), strict=True))
        won = [name for name, out in outcomes.items() if out.get("commit")]
        assert len(won) == 1, outcomes
        lost = next(out for name, out in outcomes.items() if name != won[0])
        assert lost["code"] in ("schema_apply_running", "schema_changed", "plan_changed", "expected_version_mismatch")
        graph = sound(uri)
        assert graph.schema.source == source[won[0]]
        assert graph.query("query q() { match { $p: Person } return { $p.name } }").to_pylist() == [{"p.name": "ann"}]


def test_a_change_beside_loads_loses_no_acknowledged_row(tmp_path: Path) -> None:
    uri = made(tmp_path).uri
    path = tmp_path / "wider.pg"
    path.write_text(WIDER)
    digest = omnigraph.open(uri).schema.plan(WIDER).digest
    first, second, changed = race(tmp_path, uri, ["load", "x", "6"], ["load", "y", "6"], ["apply", str(path), digest])
    graph = sound(uri)
    while changed.get("code"):  # it may lose to a load, and says so; the next try wins
        assert changed["code"] in ("expected_version_mismatch", "row_level_cas_contention"), changed
        done = graph.schema.apply(WIDER)
        changed = {"commit": done.commit and done.commit.id}
    names = [r["p.name"] for r in graph.query("query q() { match { $p: Person } return { $p.name } }").to_pylist()]
    assert sorted(names) == sorted(["ann", *first["loaded"], *second["loaded"]])
    assert graph.schema.source == WIDER
    assert {c.schema_hash for c in graph.commits()} == {graph.commits()[-1].schema_hash, graph.head().schema_hash}


def staged(table_key: str, rows: pa.Table) -> Staging:
    return Staging("main", WriterKind.LOAD, (TableChange(table_key, appends=rows),))


@pytest.mark.parametrize("table_key", ["node:Person", "node:Thing"])
def test_a_write_prepared_on_the_old_schema_is_told_to_retry(tmp_path: Path, table_key: str) -> None:
    """Whether the change moved its table or not; the Spark driver ends in the same commit."""
    graph = made(tmp_path)
    repository = Repository.open(graph.uri)
    base = repository.snapshot()
    column = {"node:Person": {"name": ["x"], "kind": ["a"]}, "node:Thing": {"label": ["x"]}}[table_key]
    rows = pa.table({"id": ["x"], **column})
    graph.schema.apply(WIDER)
    head = graph.head().id
    with pytest.raises(Conflict) as caught:
        repository.commit(staged(table_key, rows), base)
    assert caught.value.retryable
    assert caught.value.code == ("schema_changed" if table_key == "node:Thing" else "expected_version_mismatch")
    assert graph.head().id == head
    sound(graph.uri)


def test_a_change_that_meets_the_lock_of_a_dead_one_takes_it_over(tmp_path: Path) -> None:
    graph = made(tmp_path)
    engine = Repository.open(graph.uri).engine
    assert settling.take_lock(engine, "dead")  # and its sidecar was never written, or is gone
    assert [b.name for b in graph.branches.list()] == ["main"]
    assert graph.schema.apply(WIDER).commit is not None
    assert settling.take_lock(engine, "dead")
    sound(graph.uri)  # an opening removes it as well


def test_a_change_beside_a_living_one_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    graph = made(tmp_path)
    tried: list[str] = []
    other = omnigraph.open(graph.uri)
    take = settling.take_lock

    def within(engine: Any, own: str) -> bool:
        held = take(engine, own)
        if not tried:
            tried.append("")
            with pytest.raises(Conflict, match="another schema change is under way") as caught:
                other.schema.apply(SCHEMA.replace("kind:", "other: I32?  kind:") + "node New { x: I32? }\n")
            tried.append(caught.value.code)
            with pytest.raises(Conflict, match="schema"):
                other.branches.create("draft")
        return held

    from omnigraph.storage import schema_apply

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(schema_apply, "take_lock", within)
        assert graph.schema.apply(WIDER).commit is not None
    assert tried == ["", "schema_apply_running"]
    assert [b.name for b in graph.branches.list()] == ["main"]
    assert len(list((Path(graph.uri) / "nodes").iterdir())) == 2
    sound(graph.uri)


def test_a_dead_change_that_needs_a_roll_back_blocks_and_says_what_to_run(tmp_path: Path) -> None:
    from omnigraph.storage import steps

    graph = made(tmp_path)
    code = (
        "import sys, omnigraph; from omnigraph.storage import steps; steps._KILL_AT = sys.argv[2]; "
        "omnigraph.open(sys.argv[1]).schema.apply(sys.argv[3])"
    )
    # Two tables move; it dies between them.
    text = WIDER.replace("label:", "n: I32?  label:")
    killed = subprocess.run([sys.executable, "-c", code, graph.uri, f"{steps.Step.TABLE_COMMITTED}:1", text])
    assert killed.returncode == -9
    with pytest.raises(RecoveryPending, match="omnigraph recover"):
        graph.load('{"type": "Thing", "data": {"label": "cup"}}')
    with pytest.raises(RecoveryPending, match="omnigraph recover"):
        graph.schema.apply(WIDER)
    assert graph.recover().outcomes[0]["outcome"] == "RolledBack"
    graph.load('{"type": "Thing", "data": {"label": "cup"}}')
    assert graph.schema.apply(text).commit is not None
    sound(graph.uri)
