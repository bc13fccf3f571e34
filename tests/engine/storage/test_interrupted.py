"""Writes that Ctrl-C, or a time limit's exception, ends in the middle, in a process that goes on."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import omnigraph
from omnigraph import Graph
from omnigraph.storage import commit, sidecar
from omnigraph.storage.files import LocalFiles
from omnigraph.storage.translate import lance_errors

ADD = "query q($k: I64) { insert A { k: $k } }"


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    return omnigraph.init(tmp_path / "g", schema="node A { k: I64 @key }")


def interrupted(monkeypatch: pytest.MonkeyPatch, module: Any, name: str, *, before: bool) -> None:
    """Ctrl-C once, right before or right after this function."""
    real, came = getattr(module, name), []

    def once(*args: Any, **kwargs: Any) -> Any:
        if before and not came:
            came.append(1)
            raise KeyboardInterrupt
        result = real(*args, **kwargs)
        if not came:
            came.append(1)
            raise KeyboardInterrupt
        return result

    monkeypatch.setattr(module, name, once)


def test_a_lock_is_let_go_of_once(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    files: list[int] = []
    real = sidecar.unlock

    def unlock(handle: Any) -> None:
        real(handle)
        if not files:  # another thread gets the number of the file just closed
            files.extend(os.open(os.devnull, os.O_RDONLY) for _ in range(100))
            raise KeyboardInterrupt

    monkeypatch.setattr(sidecar, "unlock", unlock)
    with pytest.raises(KeyboardInterrupt):
        graph.mutate(ADD, {"k": 1})
    for file in files:
        os.fstat(file)
        os.close(file)
    assert not graph.pending()
    assert graph.mutate(ADD, {"k": 2}).nodes == 1
    assert graph.verify().ok


@pytest.mark.parametrize(
    ("module", "name", "before"),
    [(sidecar.Sidecars, "_owned", False), (sidecar.Sidecars, "write", False), (commit, "tidy", True)],
)
def test_a_write_that_could_not_let_go_blocks_nobody(
    graph: Graph, monkeypatch: pytest.MonkeyPatch, module: Any, name: str, before: bool
) -> None:
    graph.mutate(ADD, {"k": 1})
    interrupted(monkeypatch, module, name, before=before)
    with pytest.raises(KeyboardInterrupt):
        graph.mutate(ADD, {"k": 2})
    assert graph.mutate(ADD, {"k": 3}).nodes == 1
    there = graph.query("query q() { match { $a: A } return { $a.k as k } order { k } }").table["k"].to_pylist()
    assert there == ([1, 2, 3] if name == "tidy" else [1, 3])
    assert not graph.pending()
    assert isinstance(graph._repository.engine.store.files, LocalFiles)
    assert graph.verify().ok


def test_ctrl_c_while_lance_reads_stays_ctrl_c() -> None:
    with pytest.raises(KeyboardInterrupt), lance_errors("reading"):
        raise OSError("LanceError(IO): External error: KeyboardInterrupt: , /src/lance.rs:1:2")


@pytest.mark.parametrize("long", [False, True], ids=["gone again", "still there"])
def test_a_sweep_that_takes_a_new_file_for_a_dead_writers(
    graph: Graph, monkeypatch: pytest.MonkeyPatch, long: bool
) -> None:
    """Between its creation and its lock nothing tells a writer's temporary file from a dead one's."""
    graph.mutate(ADD, {"k": 1})
    other = omnigraph.open(graph.uri)._repository.engine.sidecars
    flock, met = sidecar.fcntl.flock, list[Any]()

    def after_a_sweep(handle: Any, how: int) -> None:
        if not met:
            met.append(None)
            if long:  # the sweep holds the file
                met.append(os.open(handle.name, os.O_RDWR))
                flock(met[-1], how)
                os.unlink(handle.name)
            else:
                other.sweep_temporary()
        flock(handle, how)

    monkeypatch.setattr(sidecar.fcntl, "flock", after_a_sweep)
    graph.mutate(ADD, {"k": 2})
    monkeypatch.undo()
    if long:
        os.close(met[-1])
    graph.close()
    assert len(met) == 1 + long
    assert os.listdir(f"{graph.uri}/__recovery") in ([], [".keep"])
    assert graph.query("query q() { match { $a: A } return { count($a) as n } }").to_pylist() == [{"n": 2}]
