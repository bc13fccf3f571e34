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
