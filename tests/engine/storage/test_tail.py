"""The newest files of a table stay few: a writer joins a long tail, and that changes no row."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from omnigraph.schema import compile_schema
from omnigraph.storage import Repository, Staging, TableChange, WriterKind, history, tail
from omnigraph.storage.layout import COMMITS, MANIFEST

SCHEMA = "node P {\n    name: String @key\n    age: I64?\n}\n"


def rows(ids: list[str], age: int) -> pa.Table:
    return pa.table({"id": ids, "name": ids, "age": pa.array([age] * len(ids), pa.int64())})


def write(repository: Repository, branch: str, age: int, *ids: str) -> None:
    base = repository.snapshot(branch)
    change = TableChange("node:P", upserts=rows(list(ids), age))
    repository.commit(Staging(branch, WriterKind.MUTATION, (change,)), base)


def files(repository: Repository, branch: str = "main") -> int:
    return len(repository.snapshot(branch).dataset("node:P").get_fragments())


def read(repository: Repository, branch: str = "main", at: int | None = None) -> dict[str, int]:
    table = repository.snapshot(branch, at).scan("node:P", ["id", "age"])
    assert len(set(table["id"].to_pylist())) == table.num_rows
    return dict(zip(table["id"].to_pylist(), table["age"].to_pylist(), strict=True))


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repository:
    monkeypatch.setattr(tail, "TAIL_FILES", 4)
    return Repository.create(str(tmp_path / "g"), compile_schema(SCHEMA))


def test_many_small_writes_leave_few_files_and_every_version(repository: Repository) -> None:
    states = {}
    for i in range(14):
        write(repository, "main", i, *dict.fromkeys((f"p{i}", f"p{i // 2}")))
        states[repository.head().manifest_version] = read(repository)
        assert files(repository) <= tail.TAIL_FILES + 2
    assert len(repository.commits()) == 15  # joining made none
    for version, state in states.items():
        assert read(repository, at=version) == state
    lineage = repository.snapshot().dataset("node:P").scanner(["id", "_rowid", "_row_created_at_version"]).to_table()
    assert len(set(lineage["_rowid"].to_pylist())) == 14
    made = dict(zip(lineage["id"].to_pylist(), lineage["_row_created_at_version"].to_pylist(), strict=True))
    assert sorted(made, key=made.__getitem__) == [f"p{i}" for i in range(14)]
    assert all(drift is None for drift in [repository.drift(repository.snapshot(), "node:P")])


def test_a_branch_joins_what_it_inherited_and_merges(repository: Repository) -> None:
    for i in range(5):
        write(repository, "main", i, f"p{i}")
    repository.create_branch("dev")
    for i in range(7):
        write(repository, "dev", 100 + i, f"d{i}")
    assert files(repository, "dev") <= tail.TAIL_FILES + 2
    assert read(repository) == {f"p{i}": i for i in range(5)}
    assert read(repository, "dev") == {f"p{i}": i for i in range(5)} | {f"d{i}": 100 + i for i in range(7)}
    theirs = repository.snapshot("dev")
    ((base, _),) = repository.merge_bases(repository.snapshot(), theirs)
    touched = repository.touched_ids(base.ref("node:P"), theirs.ref("node:P")).to_pylist()
    assert set(touched) >= {f"d{i}" for i in range(7)}


def test_a_branch_that_inherited_an_index_stays_readable_and_writable(repository: Repository) -> None:
    for i in range(3):
        write(repository, "main", i, f"p{i}")
    repository.build_indices("main", {"node:P": [("id", "BTREE")]})
    repository.create_branch("dev")
    for i in range(9):
        write(repository, "dev", 100 + i, f"d{i}", "p1")
    assert read(repository, "dev") == {"p0": 0, "p1": 108, "p2": 2} | {f"d{i}": 100 + i for i in range(9)}
    assert repository.snapshot("dev").scan("node:P", ["id"], filter="id = 'p1'").num_rows == 1


def test_a_join_without_its_write_is_covered_by_the_next_write(repository: Repository) -> None:
    for i in range(5):
        write(repository, "main", i, f"p{i}")
    assert tail.join_tail(repository.engine, repository.snapshot().ref("node:P"))
    drift = repository.drift(repository.snapshot(), "node:P")
    assert drift is not None
    assert drift.kind == "NoRowChanged"
    before = len(repository.commits())
    other = Repository.open(repository.uri)
    write(other, "main", 9, "p9")
    assert len(other.commits()) == before + 1
    assert other.drift(other.snapshot(), "node:P") is None
    assert read(other) == {f"p{i}": i for i in range(5)} | {"p9": 9}


def test_system_tables_keep_long_files_and_join_short_ones(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "LONG_ROWS", 10)
    monkeypatch.setattr(history, "COMPACT_ABOVE", 3)
    for i in range(30):
        write(repository, "main", i, f"p{i}")
        repository.close()  # each commit's row by itself
    for name in (MANIFEST, COMMITS):
        sizes = [f.physical_rows for f in repository.engine.store.latest(name).get_fragments()]
        assert sum(size >= 10 for size in sizes) >= 2, (name, sizes)
        assert sum(size < 10 for size in sizes) <= 5, (name, sizes)
    assert len(Repository.open(repository.uri).commits()) == 31
    assert len(read(repository)) == 30
