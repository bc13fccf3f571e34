"""Actors: one that no commit can keep is refused before anything is written, and a graph that holds one goes on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import omnigraph
from omnigraph import graph as graph_room
from omnigraph.errors import BadRequest, Internal
from omnigraph.graph import Graph
from omnigraph.storage import CommitInfo, Repository, WriterKind, repository
from omnigraph.storage.history import History
from omnigraph.storage.sidecar import Sidecar, parse, render

SCHEMA = "node P { name: String @key }"
UNUSABLE: list[Any] = ["\udce9", "a\ud800", "", 5, b"ada"]
INSERT = 'query q() { insert P { name: "NAME" } }'


@pytest.fixture
def made(tmp_path: Path) -> str:
    omnigraph.init(tmp_path / "g", schema=SCHEMA, actor="maker").close()
    return str(tmp_path / "g")


def insert(graph: Graph, name: str, **more: Any) -> CommitInfo:
    return graph.mutate(INSERT.replace("NAME", name), **more).commit


def files(folder: str) -> list[str]:
    return sorted(os.path.join(path, name) for path, _, names in os.walk(folder) for name in names)


WRITES: dict[str, Callable[[Graph, Any], object]] = {
    "mutate": lambda graph, actor: insert(graph, "new", actor=actor),
    "load": lambda graph, actor: graph.load('{"type":"P","data":{"name":"new"}}\n', actor=actor),
    "load into a new branch": lambda graph, actor: graph.load({}, branch="new", from_="main", actor=actor),
    "branch": lambda graph, actor: graph.branches.create("new", actor=actor),
    "merge": lambda graph, actor: graph.branches.merge("main", "main", actor=actor),
    "schema": lambda graph, actor: graph.schema.apply(f"{SCHEMA}\nnode Q {{ name: String @key }}", actor=actor),
    "indices": lambda graph, actor: graph.ensure_indices(actor=actor),
    "optimize": lambda graph, actor: graph.optimize(actor=actor),
    "repair": lambda graph, actor: graph.repair(confirm=True, actor=actor),
    "embed": lambda graph, actor: graph.embed(actor=actor),
}


@pytest.mark.parametrize("write", WRITES)
def test_no_write_takes_an_actor_that_no_commit_can_keep(made: str, write: str) -> None:
    with omnigraph.open(made) as graph:
        insert(graph, "first")
    before = files(made)
    with omnigraph.open(made) as graph:
        for actor in UNUSABLE:
            with pytest.raises(BadRequest, match="actor ") as caught:
                WRITES[write](graph, actor)
            caught.value.message.encode()
    assert files(made) == before


def test_nor_does_an_opening_a_creation_or_the_room_below(made: str, tmp_path: Path) -> None:
    for actor in UNUSABLE:
        with pytest.raises(BadRequest, match="actor "):
            omnigraph.open(made, actor=actor)
        with pytest.raises(BadRequest, match="actor "):
            omnigraph.init(tmp_path / "other", schema=SCHEMA, actor=actor)
        with pytest.raises(BadRequest, match="actor "):
            Repository.open(made).optimize(actor=actor)
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize(("actor", "shown"), [("\udce9", r"\udce9"), ("a\ud800", r"a\ud800"), (5, "5")])
def test_a_graph_that_holds_one_is_written_recovered_and_listed(
    made: str, monkeypatch: pytest.MonkeyPatch, actor: Any, shown: str
) -> None:
    with monkeypatch.context() as unchecked:
        unchecked.setattr(graph_room, "check_actor", lambda given: given)
        unchecked.setattr(repository, "check_actor", lambda given: given)
        unchecked.setattr(History, "_flush_all", lambda self: None)
        graph = omnigraph.open(made)
        bad = insert(graph, "first", actor=actor)
        with pytest.raises((Internal, TypeError)):  # its row of the history is appended, its actor's isn't
            graph._repository.engine.history.flush("main")
        graph.close()
    with omnigraph.open(made) as graph:
        graph.recover()
        second = insert(graph, "second", actor="ada")
        graph.cleanup(keep=10)
        graph.branches.create("side")
        side = insert(graph, "third", branch="side")
    with omnigraph.open(made) as graph:
        actors = {commit.id: commit.actor for commit in graph.commits("side")}
        assert actors.items() >= {bad.id: shown, second.id: "ada", side.id: None}.items()
        assert graph.verify().ok
    listed = subprocess.run(
        [sys.executable, "-m", "omnigraph.cli.main", "commit", "list", made, "--json"], capture_output=True, check=True
    )
    assert shown in {commit["actor"] for commit in json.loads(listed.stdout)}


def test_a_sidecar_that_holds_one_can_be_read() -> None:
    for actor, shown in (("\udce9", r"\udce9"), (5, "5"), ("", None), (None, None), ("ada", "ada")):
        sidecar = Sidecar("x", "x", "2026-01-31T00:00:00Z", "main", actor, WriterKind.MUTATION, ())  # type: ignore[arg-type]
        assert parse("x", render(sidecar)).actor_id == shown


def test_the_command_refuses_an_argument_that_is_not_utf8(made: str) -> None:
    arguments = [b"mutate", os.fsencode(made), b"--as", b"\xe9", b"-e", INSERT.encode()]
    ran = subprocess.run([sys.executable, "-m", "omnigraph.cli.main", *arguments], capture_output=True)
    assert ran.returncode == 1
    assert b"actor '\\udce9': not UTF-8 text" in ran.stderr
    with omnigraph.open(made) as graph:
        assert len(graph.commits()) == 1
