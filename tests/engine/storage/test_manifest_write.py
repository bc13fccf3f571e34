"""The commit that publishes: strict beside any other from the same version, and each id stays at one row."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import pytest

from omnigraph.storage.create import create_dataset
from omnigraph.storage.layout import MANIFEST
from omnigraph.storage.manifest import Row, RowPlace, manifest_schema, manifest_table
from omnigraph.storage.manifest_write import commit_rows, find_rows, stage_rows
from omnigraph.storage.store import Store
from omnigraph.storage.translate import is_commit_race
from omnigraph.storage.uri import parse_root


def row(object_id: str, n: int = 0) -> Row:
    return {"object_id": object_id, "object_type": "graph_head", "table_key": "graph", "table_version": n}


def make(path: Path, *ids: str) -> Callable[[], lance.LanceDataset]:
    """A manifest with these rows, and a way to open it as every process does."""
    create_dataset(Store(parse_root(str(path))), MANIFEST, manifest_table([row(i) for i in ids], manifest_schema("h")))
    return lambda: lance.dataset(f"{path}/{MANIFEST}")


def replace_rows(manifest: lance.LanceDataset, rows: Any, there: Any) -> tuple[lance.LanceDataset, dict[str, RowPlace]]:
    return commit_rows(stage_rows(manifest, rows, there))


def publish(manifest: lance.LanceDataset, *rows: Row) -> tuple[lance.LanceDataset, dict[str, RowPlace]]:
    return replace_rows(manifest, rows, find_rows(manifest, [r["object_id"] for r in rows]))


def merge(manifest: lance.LanceDataset, *rows: Row) -> Any:
    """As releases before this way of writing publish."""
    builder = manifest.merge_insert("object_id").when_matched_update_all().when_not_matched_insert_all()
    return builder.use_index(False).conflict_retries(0).execute(manifest_table(rows, manifest.schema))


def content(manifest: lance.LanceDataset) -> dict[str, int]:
    rows = manifest.to_table(columns=["object_id", "table_version"]).to_pydict()
    assert len(set(rows["object_id"])) == len(rows["object_id"])
    return dict(zip(rows["object_id"], rows["table_version"], strict=True))


@pytest.mark.parametrize("second", [publish, merge])
@pytest.mark.parametrize("first", [publish, merge])
@pytest.mark.parametrize("head", ["head", "new"], ids=["head is there", "first commit of a branch"])
def test_of_two_from_one_version_one_wins(tmp_path: Path, head: str, first: Any, second: Any) -> None:
    opened = make(tmp_path, "head", "other")
    one, two = opened(), opened()
    first(one, row("v1", 1), row(head, 1))
    with pytest.raises(OSError) as caught:
        second(two, row("v2", 2), row(head, 2))
    assert is_commit_race(caught.value)
    assert content(opened()) == {"head": 0, "other": 0, "v1": 1, head: 1}


def test_the_loser_against_a_later_commit_loses_too(tmp_path: Path) -> None:
    opened = make(tmp_path, "head")
    stale = opened()
    for n in (1, 2):
        publish(opened(), row(f"v{n}", n), row("head", n))
    with pytest.raises(OSError) as caught:
        publish(stale, row("head", 3))
    assert is_commit_race(caught.value)


def test_a_compaction_between_is_a_race_and_then_the_row_is_found_anew(tmp_path: Path) -> None:
    opened = make(tmp_path, "head")
    for n in range(4):
        stale, places = publish(opened(), row(f"v{n}", n), row("head", n))
    opened().optimize.compact_files()
    with pytest.raises(OSError) as caught:
        replace_rows(stale, [row("head", 9)], {"head": [places["head"]]})
    assert is_commit_race(caught.value)
    publish(opened(), row("head", 9))
    assert content(opened()) == {f"v{n}": n for n in range(4)} | {"head": 9}


def test_a_row_stays_the_same_row_and_says_when_it_changed(tmp_path: Path) -> None:
    opened = make(tmp_path, "table", "head")
    columns = ["object_id", "_rowid", "_row_created_at_version", "_row_last_updated_at_version"]
    before = {r["object_id"]: r for r in opened().to_table(columns=columns).to_pylist()}
    after, places = publish(opened(), row("table", 1), row("v1", 1), row("head", 1))  # a table registered again
    for n in (2, 3):  # where the head row lies is known now
        after, places = replace_rows(after, [row(f"v{n}", n), row("head", n)], {"head": [places["head"]]})
        assert find_rows(after, ["head"]) == {"head": [places["head"]]}
    now = {r["object_id"]: r for r in after.to_table(columns=columns).to_pylist()}
    for object_id, changed in (("head", 4), ("table", 2)):
        assert now[object_id]["_rowid"] == before[object_id]["_rowid"]
        assert now[object_id]["_row_created_at_version"] == before[object_id]["_row_created_at_version"]
        assert now[object_id]["_row_last_updated_at_version"] == changed
    assert len({r["_rowid"] for r in now.values()}) == 5
    assert content(after) == {"table": 1, "head": 3, "v1": 1, "v2": 2, "v3": 3}
