"""Several processes make, write, merge and delete branches at once: what was acknowledged is there, once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from omnigraph.maintain import verify
from omnigraph.schema import compile_schema
from omnigraph.storage import Repository

SCHEMA = "node A {\n    name: String @key\n}\n"
PROGRAM = Path(__file__).with_name("branch_race.py")
WRITERS, ROUNDS = 3, 6


def test_branches_come_and_go_and_nothing_is_lost(tmp_path: Path) -> None:
    uri = str(tmp_path / "g")
    repository = Repository.create(uri, compile_schema(SCHEMA))
    repository.create_branch("together")  # everybody's first write there is a race for the fork
    path = os.pathsep.join(p for p in sys.path if p)
    racers = [
        subprocess.Popen(
            [sys.executable, str(PROGRAM), uri, f"w{i}", str(ROUNDS)],
            env=os.environ | {"PYTHONPATH": path},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for i in range(WRITERS)
    ]
    results = []
    for racer in racers:
        out, err = racer.communicate(timeout=240)
        assert racer.returncode == 0, err
        results.append(json.loads(out.splitlines()[-1]))
    repository = Repository.open(uri)
    repository.sweep("full")
    main = repository.snapshot().scan("node:A", ["id"])["id"].to_pylist()
    assert len(main) == len(set(main))
    acknowledged = {row for r in results for row in r["merged"]}
    assert len(acknowledged) == WRITERS * ROUNDS
    assert acknowledged <= set(main)
    assert {row for r in results for row in r["fleeting"]} <= set(main)
    assert all(row in acknowledged or row.startswith("f-") for row in main)
    together = repository.snapshot("together").scan("node:A", ["id"])["id"].to_pylist()
    assert sorted(together) == sorted(row for r in results for row in r["shared"])
    assert {b.name for b in repository.branches()} <= {"main", "together", "fleeting"}
    assert repository.pending() == []
    report = verify(repository)
    assert report.ok, report.findings
    commits = repository.commits(limit=100_000)
    merges = [c for c in commits if len(c.parents) == 2]
    assert len(merges) >= WRITERS * ROUNDS
    assert all(parent in {c.id for c in commits} for c in commits for parent in c.parents)
    for branch in ("main", "together"):
        ref = repository.snapshot(branch).tables["node:A"]
        assert repository.engine.store.latest(ref.location, ref.branch).version == ref.version
