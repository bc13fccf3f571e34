"""A snapshot asked for again costs a few looks at a folder, and never hides what was published meanwhile."""

from __future__ import annotations

import time
from pathlib import Path

import pyarrow as pa
import pytest

from omnigraph.schema import compile_schema
from omnigraph.storage import Repository, Staging, TableChange, WriterKind
from omnigraph.storage.manifest import Manifest

SCHEMA = "node P {\n    name: String @key\n}\n"


def put(repository: Repository, name: str, branch: str = "main") -> None:
    change = TableChange("node:P", upserts=pa.table({"id": [name], "name": [name]}))
    repository.commit(Staging(branch, WriterKind.MUTATION, (change,)), repository.snapshot(branch))


def names(repository: Repository, branch: str = "main") -> list[str]:
    return sorted(repository.snapshot(branch).scan("node:P", ["id"])["id"].to_pylist())


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The branches whose manifest was opened."""
    seen: list[str] = []
    real = Manifest.handle

    def handle(self: Manifest, branch: str) -> object:
        seen.append(branch)
        return real(self, branch)

    monkeypatch.setattr(Manifest, "handle", handle)
    return seen


def test_nothing_is_opened_while_nothing_is_published(tmp_path: Path, opened: list[str]) -> None:
    repository = Repository.create(str(tmp_path / "g"), compile_schema(SCHEMA))
    repository.create_branch("b")
    for branch in ("main", "b"):
        first = repository.snapshot(branch).state
        opened.clear()
        assert all(repository.snapshot(branch).state is first for _ in range(5))
        assert opened == []


@pytest.mark.parametrize("branch", ["main", "b"])
def test_what_another_publishes_is_seen_at_once(tmp_path: Path, branch: str) -> None:
    reader = Repository.create(str(tmp_path / "g"), compile_schema(SCHEMA))
    reader.create_branch("b")
    writer = Repository.open(str(tmp_path / "g"))
    expected: list[str] = []
    for i in range(12):
        assert names(reader, branch) == expected
        put(writer, f"p{i:02d}", branch)
        expected.append(f"p{i:02d}")
    assert names(reader, branch) == expected


def test_a_change_whose_files_are_gone_again_is_seen_by_the_folder(tmp_path: Path) -> None:
    reader = Repository.create(str(tmp_path / "g"), compile_schema(SCHEMA))
    assert names(reader) == []
    at = reader.snapshot().manifest_version
    writer = Repository.open(str(tmp_path / "g"))
    put(writer, "a")
    put(writer, "b")
    time.sleep(1.1)
    (tmp_path / "g/__manifest/_versions" / f"{2**64 - 2 - at:020}.manifest").unlink()  # as cleanup does
    assert names(reader) == ["a", "b"]
    assert names(reader) == ["a", "b"]
    put(writer, "c")
    assert names(reader) == ["a", "b", "c"]


def test_a_branch_made_anew_is_another(tmp_path: Path) -> None:
    reader = Repository.create(str(tmp_path / "g"), compile_schema(SCHEMA))
    other = Repository.open(str(tmp_path / "g"))
    reader.create_branch("b")
    put(reader, "old", "b")
    assert names(reader, "b") == ["old"]
    assert names(reader, "b") == ["old"]
    other.delete_branch("b")
    other.create_branch("b")
    put(other, "new", "b")
    assert names(reader, "b") == ["new"]
