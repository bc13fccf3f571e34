"""Older shapes of `__manifest`: read as they are, brought to ours by the first write; newer ones refused."""

from __future__ import annotations

import shutil
from pathlib import Path

import lance
import pytest

import omnigraph
from omnigraph.errors import Conflict
from omnigraph.storage import Repository, formats
from tests.engine.storage.older import SHAPES, older
from tests.engine.upstream.conftest import fingerprint, unpack


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return unpack("drift", tmp_path)


def hosts(root: Path) -> int:
    graph = omnigraph.open(root, read_only=True)
    return len(graph.query("query q() { match { $h: Host } return { $h.name } }"))


def is_ours(root: Path) -> bool:
    manifest = lance.dataset(str(root / "__manifest"))
    return (
        formats.stamp_of(manifest) == formats.CURRENT
        and bool(manifest.schema.field("object_id").metadata or {})
        and not [b for b in manifest.branches.list() if b.startswith("__run__")]
    )


@pytest.mark.parametrize("shape", SHAPES)
def test_an_older_shape_is_read_as_it_is_and_brought_to_ours_by_opening_for_writing(root: Path, shape: str) -> None:
    older(root, **SHAPES[shape])  # type: ignore[arg-type]
    before = fingerprint(root)
    assert hosts(root) == 7
    assert len(omnigraph.open(root, read_only=True).commits()) == 3
    assert omnigraph.open(root, read_only=True).branches.list()[0].name == "main"
    assert fingerprint(root) == before
    graph = omnigraph.open(root)
    assert is_ours(root)
    version = lance.dataset(str(root / "__manifest")).version
    omnigraph.open(root)
    assert lance.dataset(str(root / "__manifest")).version == version  # once
    graph.mutate('query q() { insert Tag { name: "new" } }')
    assert hosts(root) == 7
    assert graph.commits()[0].parents == (graph.commits()[1].id,)


def test_a_publish_migrates_too(root: Path) -> None:
    older(root, **SHAPES["1"])  # type: ignore[arg-type]
    graph = omnigraph.open(root, recovery="none")
    assert not is_ours(root)
    graph.mutate('query q() { insert Tag { name: "new" } }')
    assert is_ours(root)


@pytest.mark.parametrize("stamp", ["4", "17", "later"])
def test_a_newer_shape_is_refused_for_reading_and_writing(root: Path, stamp: str) -> None:
    older(root, marked=True, stamp=stamp)
    before = fingerprint(root)
    with pytest.raises(Conflict, match="upgrade omnigraph first"):
        hosts(root)
    for recovery in ("auto", "none"):
        with pytest.raises(Conflict, match="upgrade omnigraph first") as caught:
            omnigraph.open(root, recovery=recovery).mutate('query q() { insert Tag { name: "new" } }')  # type: ignore[arg-type]
        assert caught.value.code == "format_too_new"
    assert fingerprint(root) == before


def test_a_key_that_may_be_null_can_be_read_and_exported_not_written(root: Path) -> None:
    older(root, marked=False, stamp="1", nullable=True)
    before = fingerprint(root)
    for recovery in ("auto", "none"):
        with pytest.raises(Conflict, match="omnigraph export") as caught:
            omnigraph.open(root, recovery=recovery).mutate('query q() { insert Tag { name: "new" } }')  # type: ignore[arg-type]
        assert caught.value.code == "format_unmarkable"
    assert len(list(omnigraph.open(root, read_only=True).export())) > 7
    assert fingerprint(root) == before


def test_a_manifest_without_stable_row_ids_can_be_read_and_exported_not_written(root: Path) -> None:
    older(root, marked=True, stamp="3", stable=False)
    assert hosts(root) == 7
    assert len(list(omnigraph.open(root, read_only=True).export())) > 7
    before = fingerprint(root)
    with pytest.raises(Conflict, match="omnigraph export") as caught:
        omnigraph.open(root)
    assert caught.value.code == "no_stable_row_ids"
    assert fingerprint(root) == before


def test_a_table_without_stable_row_ids_is_not_written(root: Path) -> None:
    repository = Repository.open(str(root), read_only=True)
    ref = repository.snapshot().tables["node:Tag"]
    rows = repository.snapshot().scan("node:Tag")
    shutil.rmtree(root / ref.location)
    made = lance.write_dataset(rows, str(root / ref.location), data_storage_version="2.2")
    while made.version < ref.version:
        made.update_config({"nothing": str(made.version)})
    name = rows["name"][0].as_py()
    for write in ('insert Tag { name: "new" }', f'delete Tag where name = "{name}"'):
        with pytest.raises(Conflict, match="omnigraph export") as caught:
            omnigraph.open(root).mutate(f"query q() {{ {write} }}")
        assert caught.value.code == "no_stable_row_ids"
    assert omnigraph.open(root).snapshot().tables["node:Tag"] == ref
    assert omnigraph.open(root).pending() == []
