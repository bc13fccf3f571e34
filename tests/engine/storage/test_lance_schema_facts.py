"""What a schema change leans on in Lance, each fact by itself, so that an upgrade that changes one is noticed."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from lance.commit import CommitConflictError

from omnigraph.storage.change import apply, stage
from omnigraph.storage.evolution import TableEvolution, commits_of
from omnigraph.storage.layout import MARK
from omnigraph.storage.types import TableChange

SCHEMA = pa.schema([pa.field("id", pa.string(), False), pa.field("n", pa.int64()), pa.field("m", pa.int64(), False)])
LINEAGE = ["id", "_rowid", "_row_created_at_version", "_row_last_updated_at_version"]


def make(path: Path) -> lance.LanceDataset:
    data = pa.table({"id": ["a", "b", "c"], "n": [1, None, 3], "m": [7, 8, 9]}, schema=SCHEMA)
    made = lance.write_dataset(data, str(path), enable_stable_row_ids=True, data_storage_version="2.2")
    return lance.write_dataset(data.slice(0, 1).set_column(0, SCHEMA.field(0), [["d"]]), made, mode="append")


def lineage(dataset: lance.LanceDataset) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = dataset.scanner(columns=LINEAGE).to_table().to_pylist()
    return rows


def files(path: Path) -> set[str]:
    return {p.name for p in (path / "data").iterdir()}


def guard(dataset: lance.LanceDataset) -> lance.LanceDataset:
    return apply(dataset, stage(dataset, TableChange("node:T")), "mark")


def test_an_update_passes_over_a_projection_so_that_a_guard_comes_first(tmp_path: Path) -> None:
    dataset = make(tmp_path / "t")
    stale = lance.dataset(dataset.uri)
    dataset.drop_columns(["n"])
    assert guard(stale).version == dataset.version + 1  # once this fails, the guard may go
    late, dataset = lance.dataset(dataset.uri), guard(lance.dataset(dataset.uri))
    dataset.alter_columns({"path": "m", "name": "k"})
    with pytest.raises(CommitConflictError):
        guard(late)


def test_a_guard_changes_nothing_of_a_row(tmp_path: Path) -> None:
    dataset = make(tmp_path / "t")
    before = lineage(dataset)
    after = guard(dataset)
    assert lineage(after) == before
    transaction = after.read_transaction(after.version)
    assert transaction is not None
    assert (transaction.transaction_properties or {})[MARK] == "mark"


def test_renames_nulls_and_drops_are_metadata(tmp_path: Path) -> None:
    dataset = make(tmp_path / "t")
    dataset.create_scalar_index("n", "BTREE", name="n_idx")
    before, there, version = lineage(dataset), files(tmp_path / "t"), dataset.version
    # A name given away and taken by another column, in one commit.
    dataset.alter_columns({"path": "n", "name": "k"}, {"path": "m", "name": "n", "nullable": True})
    assert dataset.version == version + 1
    assert [i.field_names for i in dataset.describe_indices()] == [["k"]]
    dataset.add_columns(pa.schema([pa.field("v", pa.list_(pa.float32(), 2)), pa.field("s", pa.string())]))
    dataset.drop_columns(["k"])
    assert dataset.version == version + 3
    assert dataset.describe_indices() == []
    assert lineage(dataset) == before
    assert files(tmp_path / "t") == there
    assert dataset.schema.field("n").nullable
    assert dataset.to_table(columns=["n", "v", "s"]).to_pylist()[0] == {"n": 7, "v": None, "s": None}
    old = lance.dataset(dataset.uri, version=version)
    assert old.schema.names == ["id", "n", "m"]
    assert old.to_table().to_pylist()[1] == {"id": "b", "n": None, "m": 8}


def test_a_column_with_values_marks_every_row_as_updated_and_keeps_its_id(tmp_path: Path) -> None:
    """Why a diff across a schema change compares values."""
    dataset = make(tmp_path / "t")
    before = lineage(dataset)
    added = pa.table({"d": ["x"]}, schema=pa.schema([pa.field("d", pa.string(), False)]))
    version = dataset.version
    for commit in commits_of(dataset, TableEvolution("node:T", SCHEMA, added=added))[1:]:
        dataset = commit(dataset, "mark")
    assert dataset.version == version + 1
    assert [r["_rowid"] for r in lineage(dataset)] == [r["_rowid"] for r in before]
    assert {r["_row_last_updated_at_version"] for r in lineage(dataset)} == {dataset.version}
    assert [r["_row_created_at_version"] for r in lineage(dataset)] == [r["_row_created_at_version"] for r in before]
    assert not dataset.schema.field("d").nullable
    assert dataset.to_table(columns=["d"])["d"].to_pylist() == ["x"] * 4


def test_a_table_without_rows_is_overwritten_strictly(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    dataset = lance.write_dataset(SCHEMA.empty_table(), path, enable_stable_row_ids=True, data_storage_version="2.2")
    stale = lance.dataset(path)
    after = pa.schema([pa.field("id", pa.string(), False), pa.field("k", pa.int32(), False)])
    (commit,) = commits_of(dataset, TableEvolution("node:T", after))
    changed = commit(dataset, "mark")
    assert changed.schema.equals(after)
    assert changed.has_stable_row_ids
    with pytest.raises(CommitConflictError):
        commit(stale, "mark")


def test_a_version_with_other_columns_can_be_restored(tmp_path: Path) -> None:
    dataset = make(tmp_path / "t")
    before, version = dataset.to_table().to_pylist(), dataset.version
    dataset.alter_columns({"path": "n", "name": "k"})
    dataset.drop_columns(["m"])
    old = lance.dataset(dataset.uri, version=version)
    old.restore()
    assert old.to_table().to_pylist() == before
    old.add_columns(pa.schema([pa.field("k", pa.string())]))
    assert old.to_table(columns=["k"])["k"].null_count == 4


def test_of_many_that_make_one_branch_one_does(tmp_path: Path) -> None:
    """The lock of schema changes is a branch."""
    uri = make(tmp_path / "t").uri
    for _ in range(5):
        won: list[int] = []

        def race(number: int, won: list[int] = won) -> None:
            dataset = lance.dataset(uri)
            try:
                dataset.create_branch("__lock__", dataset.version)
            except OSError:
                return
            won.append(number)

        threads = [threading.Thread(target=race, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(won) == 1
        lance.dataset(uri).branches.delete("__lock__")


def test_versions_that_are_named_go_and_tagged_ones_stay(tmp_path: Path) -> None:
    dataset = make(tmp_path / "t")
    dataset.tags.create("kept", 1)
    dataset.drop_columns(["n"])
    dataset.drop_columns(["m"])
    old = [v["version"] for v in dataset.versions()][:-1]
    dataset.cleanup_old_versions(versions=old, error_if_tagged_old_versions=False)
    assert [v["version"] for v in lance.dataset(dataset.uri).versions()] == [1, old[-1] + 1]
    assert lance.dataset(dataset.uri, version=1).count_rows() == 3
