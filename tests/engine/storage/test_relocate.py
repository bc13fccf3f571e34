"""A graph that was moved or copied: its branches stand on their own files, not on those of the place they came from."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pytest

from omnigraph.errors import Internal
from omnigraph.schema import compile_schema
from omnigraph.storage import Repository, Staging, TableChange, WriterKind
from omnigraph.storage.relocate import base_at, rewritten

SCHEMA = "node P {\n    name: String @key\n}\n"


def put(repository: Repository, branch: str, *names: str) -> None:
    rows = pa.table({"id": list(names), "name": list(names)})
    change = TableChange("node:P", upserts=rows)
    repository.commit(Staging(branch, WriterKind.MUTATION, (change,)), repository.snapshot(branch))


def names(repository: Repository, branch: str) -> list[str]:
    return sorted(repository.snapshot(branch).scan("node:P", ["id"])["id"].to_pylist())


@pytest.fixture
def original(tmp_path: Path) -> Path:
    repository = Repository.create(str(tmp_path / "first"), compile_schema(SCHEMA))
    put(repository, "main", "a", "b")
    repository.create_branch("dev")
    put(repository, "dev", "c")
    repository.create_branch("deep/er", from_="dev")
    put(repository, "deep/er", "d")
    repository.close()
    return tmp_path / "first"


def test_a_moved_graph_is_read_and_written(original: Path) -> None:
    moved = original.rename(original.with_name("second"))
    before = {p: p.read_bytes() for p in moved.rglob("*") if p.is_file()}
    reader = Repository.open(str(moved), read_only=True)
    assert [names(reader, b) for b in ("main", "dev", "deep/er")] == [list("ab"), list("abc"), list("abcd")]
    assert before == {p: p.read_bytes() for p in moved.rglob("*") if p.is_file()}
    writer = Repository.open(str(moved))
    put(writer, "deep/er", "e")
    put(writer, "dev", "f")
    assert [names(reader, b) for b in ("main", "dev", "deep/er")] == [list("ab"), list("abcf"), list("abcde")]
    assert names(Repository.open(str(moved), read_only=True), "deep/er") == list("abcde")


def test_a_copy_and_its_original_go_separate_ways(original: Path) -> None:
    copy = original.with_name("copy")
    shutil.copytree(original, copy)
    put(Repository.open(str(copy)), "deep/er", "x")
    put(Repository.open(str(original)), "deep/er", "y")
    assert names(Repository.open(str(copy)), "deep/er") == list("abcdx")
    assert names(Repository.open(str(original)), "deep/er") == list("abcdy")
    for ref in Repository.open(str(copy)).snapshot("deep/er").tables.values():
        bases = Repository.open(str(copy)).engine.store.pinned(ref).base_paths().values()
        assert {b.path.startswith(str(copy)) for b in bases} == {True}


def test_a_link_to_the_graph_is_no_move(original: Path) -> None:
    link = original.with_name("link")
    link.symlink_to(original)
    before = {p: p.read_bytes() for p in original.rglob("*.manifest")}
    assert names(Repository.open(str(link)), "deep/er") == list("abcd")
    assert before == {p: p.read_bytes() for p in original.rglob("*.manifest")}


def test_where_a_base_lies_now() -> None:
    assert base_at("/old/g/nodes/ab", "nodes/ab", "/new/nodes/ab") == "/new/nodes/ab"
    assert base_at("/old/g/nodes/ab/tree/x/y", "nodes/ab", "s3://b/g/nodes/ab") == "s3://b/g/nodes/ab/tree/x/y"
    assert base_at("/elsewhere/data", "nodes/ab", "/new/nodes/ab") == "/elsewhere/data"


def test_a_manifest_is_kept_byte_for_byte_but_for_its_bases(original: Path) -> None:
    files = list(original.rglob("tree/**/*.manifest"))
    assert files
    for file in files:
        data = file.read_bytes()
        assert rewritten(data, lambda base: base) == data
        there = rewritten(data, lambda base: base + "/a/longer/place" * 20)
        assert there != data
        assert rewritten(there, lambda base: base.replace("/a/longer/place", "")) == data
    with pytest.raises(Internal, match="unknown form"):
        rewritten(b"x" * 40, lambda base: base)
