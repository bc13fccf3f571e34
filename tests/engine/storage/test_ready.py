"""What a write is to publish is written beside its tables' commit, and counts only where all went as foreseen."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import lance
import pytest
from ulid import ULID

import omnigraph
from omnigraph.errors import OmniGraphError
from omnigraph.storage import commit as commit_module
from omnigraph.storage import publish
from omnigraph.storage.change import rows_foreseen
from omnigraph.storage.layout import MANIFEST
from omnigraph.storage.manifest import head_id

SCHEMA = "node P { name: String @key  n: I64? }\nnode Q { name: String @key }\n"
PUT = "query q($k: String, $n: I64) { insert P { name: $k, n: $n } }"


@pytest.fixture
def graph(tmp_path: Path) -> omnigraph.Graph:
    made = omnigraph.init(tmp_path / "g", schema=SCHEMA)
    made.load("".join(f'{{"type": "P", "data": {{"name": "k{n}", "n": {n}}}}}\n' for n in range(20)))
    put(made, "first", 0)  # the first publish of a process doesn't know where the head row lies
    return made


def put(graph: omnigraph.Graph, name: str, n: int) -> Any:
    return graph.mutate(PUT, {"k": name, "n": n})


def rows(graph: omnigraph.Graph) -> dict[str, int]:
    found = graph.query("query q() { match { $p: P } return { $p.name as name, $p.n as n } }").to_pylist()
    return {row["name"]: row["n"] for row in found}


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Of each publish, whether it committed what had been written beside."""
    out: list[bool] = []
    stage, commit = publish._stage, publish.commit_rows
    beside: list[Any] = []

    def staged(*args: Any) -> Any:
        import threading

        made = stage(*args)
        if threading.current_thread().name.startswith("omnigraph-beside"):
            beside.append(made)
        return made

    def committed(made: Any) -> Any:
        out.append(any(made is one for one in beside))
        return commit(made)

    monkeypatch.setattr(publish, "_stage", staged)
    monkeypatch.setattr(publish, "commit_rows", committed)
    return out


def consistent(graph: omnigraph.Graph, commits: int) -> None:
    """One head row, the pins' counts are the tables', and the history has no hole."""
    graph.close()
    root = graph._repository.uri
    manifest = lance.dataset(f"{root}/{MANIFEST}")
    assert manifest.count_rows(f"object_id = '{head_id('main')}'") == 1
    fresh = omnigraph.open(root)
    for ref in fresh.snapshot().tables.values():
        dataset = lance.dataset(f"{root}/{ref.location}")
        assert (ref.version, ref.row_count) == (dataset.version, dataset.count_rows())
    assert len(fresh.commits()) == commits


def test_new_and_changed_rows_are_published_as_written_beside(graph: omnigraph.Graph, used: list[bool]) -> None:
    before = len(graph.commits())
    for n in range(6):
        put(graph, f"k{n}" if n % 2 else f"new{n}", 100 + n)
    assert used == [True] * 6
    expected = {f"k{n}": 100 + n for n in (1, 3, 5)} | {f"new{n}": 100 + n for n in (0, 2, 4)}
    assert expected.items() <= rows(graph).items()
    consistent(graph, before + 6)


def test_a_commit_of_another_process_in_between_is_published_upon(
    graph: omnigraph.Graph, used: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = len(graph.commits())
    apply = commit_module.apply

    def after_another(*args: Any) -> Any:
        monkeypatch.setattr(commit_module, "apply", apply)
        graph._repository.engine.beside.begin(lambda: None).result()  # type: ignore[union-attr]
        other = omnigraph.open(graph._repository.uri)
        other.mutate('query q() { insert Q { name: "other" } }')
        other.close()
        return apply(*args)

    monkeypatch.setattr(commit_module, "apply", after_another)
    put(graph, "k1", 101)
    assert used[-1] is False
    put(graph, "k2", 102)
    assert used[-1] is True
    assert {"k1": 101, "k2": 102}.items() <= rows(graph).items()
    assert [row["q.name"] for row in graph.query("query q() { match { $q: Q } return { $q.name } }").to_pylist()] == [
        "other"
    ]
    consistent(graph, before + 3)


def test_a_version_without_a_changed_row_below_ours_is_told(
    graph: omnigraph.Graph, used: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = len(graph.commits())
    apply = commit_module.apply

    def after_another(dataset: Any, *args: Any) -> Any:
        monkeypatch.setattr(commit_module, "apply", apply)
        location = graph.snapshot().ref("node:P").location
        lance.dataset(f"{graph._repository.uri}/{location}").update_config({"moved": str(ULID())})
        return apply(dataset, *args)

    monkeypatch.setattr(commit_module, "apply", after_another)
    put(graph, "k1", 101)
    assert used == [False]
    consistent(graph, before + 1)


@pytest.mark.parametrize("error", [OSError("no space left"), RuntimeError("x"), OmniGraphError("y")])
def test_what_fails_beside_is_done_again_in_its_turn(
    graph: omnigraph.Graph, used: list[bool], monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    before = len(graph.commits())

    def failing(*_: Any) -> Any:
        raise error

    monkeypatch.setattr(commit_module, "make_ready", failing)
    put(graph, "k1", 101)
    assert used == [False]
    assert rows(graph)["k1"] == 101
    consistent(graph, before + 1)


def test_a_refused_write_leaves_nothing_of_what_was_written_beside(
    graph: omnigraph.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, state = len(graph.commits()), rows(graph)

    def refused(*_: Any) -> Any:
        raise OSError("the disk is full")

    with monkeypatch.context() as context:
        context.setattr(commit_module, "apply", refused)
        with pytest.raises(OmniGraphError):
            put(graph, "k1", 101)
    assert rows(graph) == state
    put(graph, "k1", 102)
    assert rows(graph) == state | {"k1": 102}
    consistent(graph, before + 1)


def test_the_count_that_is_foreseen_is_the_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seed = random.randrange(10**6)
    print("seed", seed)
    rng = random.Random(seed)
    graph = omnigraph.init(tmp_path / "g", schema=SCHEMA)
    seen: list[int | None] = []

    def noted(*args: Any) -> int | None:
        seen.append(rows_foreseen(*args))
        return seen[-1]

    monkeypatch.setattr(commit_module, "rows_foreseen", noted)
    known = 0
    for turn in range(40):
        names = [f"k{rng.randrange(30)}" for _ in range(rng.randrange(1, 4))]
        if rng.random() < 0.2:
            graph.mutate("query q($k: String) { delete P where name = $k }", {"k": names[0]})
        else:
            statements = " ".join(f'insert P {{ name: "{name}", n: {turn} }}' for name in names)
            graph.mutate(f"query q() {{ {statements} }}")
        if seen and seen[-1] is not None:
            assert seen[-1] == graph.snapshot().ref("node:P").row_count
            known += 1
        seen.clear()
    assert known > 10
    assert len(rows(graph)) == graph.snapshot().ref("node:P").row_count
