"""Writers, a reader, `optimize` and `cleanup` in processes of their own: every acknowledged commit is there, once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import omnigraph
from omnigraph.storage import Repository

PROGRAM = Path(__file__).with_name("maintenance_race.py")
ROLES = ("writer-a", "writer-b", "reader", "optimizer", "cleaner")
SECONDS = 8


def test_maintenance_beside_everybody(tmp_path: Path) -> None:
    uri = str(tmp_path / "g")
    graph = omnigraph.init(uri, schema="node P { slug: String @key  n: I64? @index }\n")
    graph.load('{"type": "P", "data": {"slug": "first"}}')
    graph.ensure_indices()
    graph.branches.create("dev")
    graph.close()
    path = os.pathsep.join(p for p in sys.path if p)
    racers = {
        role: subprocess.Popen(
            [sys.executable, str(PROGRAM), uri, role, str(SECONDS)],
            env=os.environ | {"PYTHONPATH": path},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for role in ROLES
    }
    results = {}
    for role, racer in racers.items():
        out, err = racer.communicate(timeout=200)
        assert racer.returncode == 0, (role, err)
        results[role] = json.loads(out.splitlines()[-1])
    graph = omnigraph.open(uri)
    for branch in ("main", "dev"):
        acknowledged = {s: c for r in results.values() for b, s, c in r["done"] if b == branch}
        found = graph.snapshot(branch).scan("node:P", ["slug"])["slug"].to_pylist()
        assert len(found) == len(set(found)), branch
        assert set(found) == {"first", *acknowledged}, branch
        assert set(acknowledged.values()) <= {c.id for c in graph.commits(branch, limit=100_000)}
        newest = [c for c in graph.commits(branch, limit=100_000) if c.branch == branch][:25]
        for commit in newest:
            graph.snapshot(branch, commit.id).scan("node:P", ["slug"])
    print({role: (r["rounds"], r["refused"]) for role, r in results.items()})
    assert all(r["rounds"] > r["refused"] for r in results.values())
    assert graph.pending() == []
    report = graph.verify()
    assert report.ok, report.findings
    for branch in ("main", "dev"):
        graph.optimize(branch=branch)
        assert {t.action for t in graph.optimize(branch=branch).tables} == {"unchanged"}
        ref = graph.snapshot(branch).tables["node:P"]
        assert Repository.open(uri).engine.store.latest(ref.location, ref.branch).version == ref.version
