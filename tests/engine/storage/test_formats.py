"""Older shapes of `__manifest`: read as they are, brought to ours by the first write; newer ones refused."""

from __future__ import annotations

import shutil
from pathlib import Path

import lance
import pyarrow as pa
import pytest

import omnigraph
from omnigraph.errors import Conflict
from omnigraph.storage import Repository, formats
from omnigraph.storage.formats import KEY, STAMP
from omnigraph.storage.steps import Step
from tests.engine.upstream.conftest import fingerprint, unpack

UPDATED = "_row_last_updated_at_version"


def older(
    root: Path, *, marked: bool, stamp: str | None, runs: int = 0, nullable: bool = False, stable: bool = True
) -> None:
    """Make `__manifest` anew as an older version made it: the same rows at the same versions."""
    path = root / "__manifest"
    now = lance.dataset(str(path))
    rows = now.scanner(columns=[*now.schema.names, UPDATED]).to_table()
    fields = [
        f.with_nullable(nullable).with_metadata(KEY if marked else {}) if f.name == "object_id" else f
        for f in now.schema
    ]
    schema = pa.schema(fields, metadata={STAMP: stamp} if stamp is not None else None)
    shutil.rmtree(path)
    made = None
    for version in range(1, now.version + 1):
        at = rows.filter(pa.compute.equal(rows[UPDATED], version)).drop_columns([UPDATED])
        batch = pa.table(at.columns, schema=schema)
        if made is None:
            made = lance.write_dataset(batch, str(path), enable_stable_row_ids=stable, data_storage_version="2.2")
        elif batch.num_rows:
            made = lance.write_dataset(batch, made, mode="append")
        else:
            made.update_config({"nothing": str(version)})
    assert made is not None
    assert made.version == now.version
    for i in range(runs):
        made.create_branch(f"__run__{i}", made.version)


SHAPES = {
    "none": {"marked": False, "stamp": None, "runs": 2},
    "1": {"marked": False, "stamp": "1", "runs": 1},
    "2": {"marked": True, "stamp": "2", "runs": 2},
    "2 without runs": {"marked": True, "stamp": "2"},
    "3": {"marked": True, "stamp": "3"},
}


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


@pytest.mark.parametrize("at", [Step.FORMAT_KEY_MARKED, Step.FORMAT_RUN_DELETED, Step.FORMAT_STAMPED])
@pytest.mark.parametrize("time", [1, 2])
def test_a_crash_between_two_writes_is_made_good(
    root: Path, at: Step, time: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    older(root, **SHAPES["none"])  # type: ignore[arg-type]
    reached = []

    def die(step: Step) -> None:
        reached.append(step)
        if reached.count(at) == time and step == at:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(formats, "reach", die)
        if (at, time) == (Step.FORMAT_KEY_MARKED, 2):
            omnigraph.open(root)  # there is one key to mark
        else:
            with pytest.raises(KeyboardInterrupt):
                omnigraph.open(root)
    assert hosts(root) == 7
    omnigraph.open(root)
    assert is_ours(root)
    omnigraph.open(root).mutate('query q() { insert Tag { name: "new" } }')


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
