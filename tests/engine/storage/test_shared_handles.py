"""Handles of pinned versions are shared: whatever a writer looks up through one, readers of it go on."""

from __future__ import annotations

import threading
from pathlib import Path

import omnigraph
from omnigraph.storage.drift import operation_of


def test_reading_a_transaction_leaves_the_handle_to_its_readers(tmp_path: Path) -> None:
    graph = omnigraph.init(tmp_path / "graph.omni", schema="node Item { name: String @key }")
    graph.load({"Item": [{"name": f"i{i}"} for i in range(100)]})
    handle = graph.snapshot().dataset("node:Item")
    failures: list[Exception] = []
    over = threading.Event()

    def read() -> None:
        while not over.is_set():
            try:
                assert handle.to_table().num_rows == 100
            except Exception as error:  # noqa: BLE001
                failures.append(error)

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    try:
        for _ in range(50):
            operation_of(handle, int(handle.version))
    finally:
        over.set()
        for reader in readers:
            reader.join()
    assert failures == []


def test_the_columns_kept_with_a_handle_are_its_own(tmp_path: Path) -> None:
    uri = tmp_path / "graph.omni"
    graph = omnigraph.init(uri, schema="node Item { name: String @key }")
    for name in ("a", "b"):
        graph.mutate(f'query put() {{ insert Item {{ name: "{name}" }} }}')
    before = graph.snapshot()
    graph.schema.apply("node Item { name: String @key  size: I64? }")
    after = graph.snapshot()
    graph.mutate('query put() { insert Item { name: "c", size: 3 } }')
    for snapshot, names in ((before, ["id", "name"]), (after, ["id", "name", "size"])):
        assert snapshot.schema("node:Item").names == names == snapshot.dataset("node:Item").schema.names
    now = graph.snapshot()
    assert now.schema("node:Item").equals(now.dataset("node:Item").schema, check_metadata=True)
    assert now.scan("node:Item", ["id", "size"]).sort_by("id").to_pylist()[2] == {"id": "c", "size": 3}
