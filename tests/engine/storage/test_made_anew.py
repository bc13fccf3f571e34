"""A graph or a branch that was removed and made anew counts the same versions: nothing known of the old one is used."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from omnigraph.errors import ExpectedVersionMismatch
from omnigraph.schema import compile_schema
from omnigraph.storage import Repository, Snapshot, Staging, TableChange, WriterKind
from tests.s3 import BUCKET, environment, serving

SCHEMA = "node P {\n    name: String @key\n}\nnode Q {\n    name: String @key\n}\n"


def put(
    repository: Repository, name: str, branch: str = "main", *, key: str = "node:P", base: Snapshot | None = None
) -> None:
    change = TableChange(key, upserts=pa.table({"id": [name], "name": [name]}))
    repository.commit(Staging(branch, WriterKind.MUTATION, (change,)), base or repository.snapshot(branch))


def names(repository: Repository, branch: str = "main") -> list[str]:
    return sorted(repository.snapshot(branch).scan("node:P", ["id"])["id"].to_pylist())


@pytest.fixture(params=["folder", "store"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, Callable[[], None]]]:
    """A graph's root, and what removes all in it."""
    if request.param == "folder":
        yield str(tmp_path / "g"), lambda: shutil.rmtree(tmp_path / "g")
        return
    with serving() as s3, environment(s3):
        uri = s3.uri()

        def wipe() -> None:
            for name in s3.keys(uri):
                s3.client().delete_object(Bucket=BUCKET, Key=f"{uri.removeprefix(f's3://{BUCKET}/')}/{name}")

        yield uri, wipe


@pytest.mark.parametrize("later", [0, 1, 2])
def test_a_graph_removed_and_made_anew_while_it_is_open(place: tuple[str, Callable[[], None]], later: int) -> None:
    uri, wipe = place
    opened = Repository.create(uri, compile_schema(SCHEMA))
    put(opened, "old")
    put(opened, "q", key="node:Q")
    assert names(opened) == ["old"]
    opened.close()
    wipe()
    anew = Repository.create(uri, compile_schema(SCHEMA))
    put(anew, "new")
    for i in range(later):
        put(anew, f"q{i}", key="node:Q")
    anew.close()
    assert names(opened) == ["new"]
    put(opened, "more")
    assert names(opened) == names(Repository.open(uri)) == ["more", "new"]


def test_a_graph_put_back_from_a_copy_while_it_is_open(tmp_path: Path) -> None:
    opened = Repository.create(str(tmp_path / "g"), compile_schema(SCHEMA))
    put(opened, "one")
    opened.close()
    shutil.copytree(tmp_path / "g", tmp_path / "copy")
    put(opened, "lost")
    put(opened, "lost too")
    assert names(opened) == ["lost", "lost too", "one"]
    opened.close()
    shutil.rmtree(tmp_path / "g")
    shutil.copytree(tmp_path / "copy", tmp_path / "g")
    assert names(opened) == ["one"]
    other = Repository.open(str(tmp_path / "g"))
    for name in ("x", "y", "z"):
        put(other, name)
        assert names(opened) == names(other)


def test_a_write_prepared_on_a_deleted_branch_is_refused_on_its_namesake(tmp_path: Path) -> None:
    repository = Repository.create(str(tmp_path / "g"), compile_schema(SCHEMA))
    other = Repository.open(str(tmp_path / "g"))
    repository.create_branch("b")
    put(repository, "old", "b")
    base = repository.snapshot("b")
    repository.close()
    other.delete_branch("b")
    other.create_branch("b")
    put(other, "new", "b")
    assert other.snapshot("b").ref("node:P").version == base.ref("node:P").version
    with pytest.raises(ExpectedVersionMismatch):
        put(repository, "late", "b", base=base)
    assert names(repository, "b") == ["new"]
    put(repository, "late", "b")
    assert names(other, "b") == ["late", "new"]
