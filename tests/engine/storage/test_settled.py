"""An opening looks for what there is to settle, and loads what settles it only where there is something."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import omnigraph
from omnigraph.storage.layout import MANIFEST, RECOVERY, SCHEMA_LOCK, STAGING


def made(path: Path) -> Path:
    with omnigraph.init(path, schema="node P { name: String @key }") as graph:
        graph.load('{"type": "P", "data": {"name": "ann"}}\n')
    return path


def sweeps(path: Path, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether an opening loads the sweep."""
    monkeypatch.delitem(sys.modules, "omnigraph.storage.sweep", raising=False)
    omnigraph.open(path).close()
    return "omnigraph.storage.sweep" in sys.modules


def test_nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = made(tmp_path / "g")
    assert not sweeps(graph, monkeypatch)
    (graph / RECOVERY / ".keep").unlink()
    os.rmdir(graph / RECOVERY)
    assert not sweeps(graph, monkeypatch)


def _temporary(graph: Path) -> None:
    (graph / RECOVERY / ".01J.0.tmp").write_bytes(b"{")


def _working_folder(graph: Path) -> None:
    (graph / STAGING / "load").mkdir(parents=True)


def _lock(graph: Path) -> None:
    import lance

    manifest = lance.dataset(str(graph / MANIFEST))
    manifest.create_branch(SCHEMA_LOCK, manifest.version)


def _other_schema(graph: Path) -> None:
    state = json.loads((graph / "__schema_state.json").read_text())
    (graph / "__schema_state.json").write_text(json.dumps({**state, "schema_hash": "0" * 64}))


def _no_copies(graph: Path) -> None:
    (graph / "__schema_state.json").unlink()


@pytest.mark.parametrize("leave", [_temporary, _working_folder, _lock, _other_schema, _no_copies])
def test_what_is_left_is_settled_once(
    leave: Callable[[Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = made(tmp_path / "g")
    leave(graph)
    assert sweeps(graph, monkeypatch)
    assert not sweeps(graph, monkeypatch)


def test_a_copy_of_the_schema_that_was_changed_by_hand_is_not_taken_for_it(tmp_path: Path) -> None:
    graph = made(tmp_path / "g")
    (graph / "_schema.pg").write_text("node Other { name: String @key }")
    with omnigraph.open(graph) as opened:
        assert list(opened.snapshot().catalog.nodes) == ["P"]
    for wrong in (b"node {", b"\xff", b""):
        (graph / "_schema.pg").write_bytes(wrong)
        with omnigraph.open(graph) as opened:
            assert list(opened.snapshot().catalog.nodes) == ["P"]
