"""Rows by id, with short files that the index doesn't cover, are those that a scan gives."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

import omnigraph
from omnigraph.storage import short_files
from omnigraph.storage.conditions import one_of
from omnigraph.storage.short_files import ShortFiles

SCHEMA = "node P { name: String @key  n: I64? }\n"
COLUMNS = ["id", "_rowaddr", "_rowid"]


def made(path: Path, rows: int = 300) -> omnigraph.Graph:
    graph = omnigraph.init(path, schema=SCHEMA)
    graph.load("".join(f'{{"type": "P", "data": {{"name": "k{n}", "n": {n}}}}}\n' for n in range(rows)))
    graph.ensure_indices()
    return graph


def put(graph: omnigraph.Graph, name: str, n: int, branch: str = "main") -> None:
    graph.mutate("query q($k: String, $n: I64) { insert P { name: $k, n: $n } }", {"k": name, "n": n}, branch=branch)


def same(dataset: Any, kept: ShortFiles, ids: list[str]) -> None:
    import pyarrow as pa

    test = one_of("id", pa.array(ids, pa.string()))
    assert test is not None
    scanned = dataset.scanner(columns=COLUMNS, filter=test, use_scalar_index=False).to_table()
    found = dataset.scanner(columns=COLUMNS, filter=test, fragments=kept.holding(dataset, ids)).to_table()
    assert sorted(map(str, found.to_pylist())) == sorted(map(str, scanned.to_pylist()))


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_whatever_happens_to_the_table_the_rows_are_those_of_a_scan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(short_files, "FEW_FILES", 0)
    print("seed", seed)
    rng = random.Random(seed)
    graph = made(tmp_path / "g")
    store = graph._repository.engine.store
    seen: list[Any] = []
    for turn in range(40):
        key = f"k{rng.randrange(340)}"
        match rng.choice(["put", "put", "put", "delete", "optimize", "load", "schema"]):
            case "put":
                put(graph, key, turn)
            case "delete":
                graph.mutate("query q($k: String) { delete P where name = $k }", {"k": key})
            case "optimize" if turn % 3 == 0:
                graph.optimize()
            case "load":
                graph.load(f'{{"type": "P", "data": {{"name": "{key}", "n": {turn}}}}}\n', mode="merge")
            case "schema" if turn % 4 == 0:
                graph.schema.apply(SCHEMA.replace("}", f" c{turn}: String? }}"))
        snapshot = graph.snapshot()
        seen.append(snapshot.dataset("node:P"))
        for dataset in {id(d): d for d in (seen[-1], rng.choice(seen))}.values():  # an older version too
            same(dataset, store.short_files, [key, *(f"k{rng.randrange(400)}" for _ in range(5))])
    assert store.short_files._ids


def test_a_branch_and_a_row_that_was_deleted_and_comes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(short_files, "FEW_FILES", 0)
    graph = made(tmp_path / "g")
    kept = ShortFiles()
    graph.load("".join(f'{{"type": "P", "data": {{"name": "new{n}"}}}}\n' for n in range(6)))  # one file
    before = graph.snapshot().dataset("node:P")
    graph.mutate('query q() { delete P where name = "new3" }')
    after = graph.snapshot().dataset("node:P")
    for dataset in (after, before, after):
        same(dataset, kept, ["new3"])
        same(dataset, kept, ["new3", "new4", "k1"])
    graph.branches.create("dev")
    for n in range(8):
        put(graph, f"dev{n}", n, branch="dev")
    put(graph, "new4", 99, branch="dev")
    for dataset in (graph.snapshot("dev").dataset("node:P"), graph.snapshot().dataset("node:P")):
        same(dataset, kept, ["dev1", "new4", "new3", "k7"])


def test_short_files_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = made(tmp_path / "g")
    for n in range(12):
        put(graph, f"new{n}", n)
    graph.close()
    graph = omnigraph.open(tmp_path / "g")
    asked: list[int] = []
    read: list[int] = []
    holding, keep = ShortFiles.holding, ShortFiles._keep

    def noted(self: ShortFiles, dataset: Any, ids: Any) -> Any:
        found = holding(self, dataset, ids)
        asked.append(-1 if found is None else len(found))
        return found

    def counted(self: ShortFiles, new: Any) -> None:
        read.append(len(new))
        keep(self, new)

    monkeypatch.setattr(ShortFiles, "holding", noted)
    monkeypatch.setattr(ShortFiles, "_keep", counted)
    for n in range(12, 15):
        put(graph, f"new{n}", n)
    assert asked == [1, 1, 1]  # the file that the index covers
    assert read == [12, 1, 1, 1]  # those of the process before, and each that was just written
    put(graph, "new5", 7)
    assert asked[-1] == 2
    table = graph.query('query q() { match { $p: P { name: "new5" } } return { $p.n } }').to_pylist()
    assert table == [{"p.n": 7}]


def test_a_writer_knows_its_own_files_and_leaves_few_others_to_lance(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = made(tmp_path / "g")
    put(graph, "new0", 0)
    kept = graph._repository.engine.store.short_files
    assert list(kept._ids.values()) == [frozenset({"new0"})]
    monkeypatch.setattr(ShortFiles, "_keep", lambda *_: pytest.fail("nothing is read"))
    dataset = graph.snapshot().dataset("node:P")
    same(dataset, kept, ["new0", "k1"])
    same(dataset, ShortFiles(), ["new0", "k1"])


def test_many_rows_without_an_index_are_left_to_lance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(short_files, "MOST_ROWS", 5)
    graph = made(tmp_path / "g")
    for n in range(12):
        put(graph, f"new{n}", n)
    kept = ShortFiles()
    same(graph.snapshot().dataset("node:P"), kept, ["new3", "k1"])
    assert not kept._ids


def test_what_is_kept_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(short_files, "FILES_KEPT", 8)
    graph = made(tmp_path / "g")
    for n in range(14):
        put(graph, f"new{n}", n)
    assert len(graph._repository.engine.store.short_files._ids) <= 8
