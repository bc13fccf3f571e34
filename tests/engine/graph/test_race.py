"""Many processes write for a while; then everything that was acknowledged is there, once, and the graph is sound.

`OMNIGRAPH_RACE_SECONDS=600 OMNIGRAPH_RACE_SEED=7 pytest -s -o timeout=0 tests/engine/graph/test_race.py` runs long.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import omnigraph
from omnigraph.errors import NotFound
from tests.engine.graph.racer import HUBS, KEPT
from tests.s3 import environment, serving

PROGRAM = Path(__file__).with_name("racer.py")
SECONDS = float(os.environ.get("OMNIGRAPH_RACE_SECONDS", "10"))
SCHEMA = """\
node A { name: String @key }
node B { name: String @key }
edge E: A -> A { @key(src, dst) }
edge F: A -> B
"""
ROLES = ("nodes", "nodes", "others", "edges", "deletes", "branches", "branches", "upkeep")
ALL = 1_000_000


@pytest.fixture(params=["folder", "s3"])
def uri(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "folder":
        yield str(tmp_path / "g")
        return
    with serving() as server, environment(server):
        yield server.uri()


def race(uri: str, seed: int) -> list[list[str]]:
    """What the racers were told, in the order of each."""
    path = os.pathsep.join(p for p in sys.path if p)
    racers = [
        subprocess.Popen(
            [sys.executable, str(PROGRAM), uri, role, f"{role}{i}", str(seed + i), str(SECONDS)],
            env=os.environ | {"PYTHONPATH": path},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for i, role in enumerate(ROLES)
    ]
    said = []
    for racer in racers:
        out, err = racer.communicate(timeout=SECONDS + 200)
        assert racer.returncode == 0, err
        said += [json.loads(line) for line in out.splitlines()]
    return said


def readable(graph: omnigraph.Graph, commit_id: str) -> bool:
    try:
        past = graph.snapshot(at=commit_id)
        return all(past.scan(key, ["id"]).num_rows == past.tables[key].row_count for key in past.tables)
    except NotFound:
        return False


def test_what_was_acknowledged_is_there_once(uri: str) -> None:
    seed = int(os.environ.get("OMNIGRAPH_RACE_SEED") or random.randrange(10**6))
    print(f"seed {seed}")
    with omnigraph.init(uri, schema=SCHEMA) as graph:
        hubs = " ".join(f'insert A {{ name: "hub{i}" }}' for i in range(HUBS))
        graph.mutate(f'query q() {{ insert A {{ name: "first" }} {hubs} }}')
    said = race(uri, seed)
    told = Counter(kind for kind, _, _ in said)
    print(dict(told))
    assert all(told[kind] for kind in ("A", "B", "gone", "cleanup"))
    assert {what for kind, what, _ in said if kind == "cleanup"} == {""}

    graph = omnigraph.open(uri, recovery="full")
    snapshot = graph.snapshot()
    ids = {key: snapshot.scan(key, ["id"])["id"].to_pylist() for key in snapshot.tables}
    for key, found in ids.items():
        assert len(found) == len(set(found)), f"{key} holds an id twice"
    assert {what for kind, what, _ in said if kind == "A"} <= set(ids["node:A"])
    assert {what for kind, what, _ in said if kind == "B"} == set(ids["node:B"])
    assert {f"hub{i}" for i in range(HUBS)} | {"first"} <= set(ids["node:A"])
    edges = snapshot.scan("edge:F", ["src", "dst"]).to_pylist()
    assert sorted(e["dst"] for e in edges) == sorted(ids["node:B"])
    for edge in snapshot.scan("edge:E", ["src", "dst"]).to_pylist():
        assert {edge["src"], edge["dst"]} <= set(ids["node:A"])

    commits = graph.commits(limit=ALL)
    listed = Counter(c.id for c in commits)
    assert max(listed.values()) == 1
    acknowledged = {commit for _, _, commit in said if commit is not None}
    assert acknowledged <= set(listed)
    operations = Counter(c.operation_id for c in commits if c.operation_id and c.recovery_kind is None)
    assert max(operations.values()) == 1
    assert commits[-1].parents == ()
    assert all(parent in listed for c in commits for parent in c.parents)
    own = [c for c in commits if c.branch == "main"]
    gone = [number for number, commit in enumerate(own) if not readable(graph, commit.id)]
    assert not gone or gone[0] >= KEPT, f"commit {own[gone[0]].id} is one of the {KEPT} newest and can't be read"

    assert [b.name for b in graph.branches.list()] == ["main"]
    assert graph.pending() == []
    assert graph.cleanup(keep=KEPT, confirm=True).failed == ()
    bad = [f for f in graph.verify().findings if f["severity"] != "note"]
    assert not bad, bad
