"""Several processes commit at once: what was acknowledged is there, once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from omnigraph.schema import compile_schema
from omnigraph.storage import Repository

SCHEMA = "node A {\n    name: String @key\n}\nnode B {\n    name: String @key\n}\n"
PROGRAM = Path(__file__).with_name("storage_race.py")


@pytest.mark.parametrize("tables", [("node:A", "node:A", "node:A"), ("node:A", "node:B", "node:A")])
def test_acknowledged_commits_are_all_there_and_none_twice(tmp_path: Path, tables: tuple[str, ...]) -> None:
    uri = str(tmp_path / "g")
    repository = Repository.create(uri, compile_schema(SCHEMA))
    path = os.pathsep.join(p for p in sys.path if p)
    writers = [
        subprocess.Popen(
            [sys.executable, str(PROGRAM), uri, table, f"w{i}-", "8"],
            env=os.environ | {"PYTHONPATH": path},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for i, table in enumerate(tables)
    ]
    results = []
    for writer in writers:
        out, err = writer.communicate(timeout=120)
        assert writer.returncode == 0, err
        results.append(json.loads(out.splitlines()[-1]))
    snapshot = repository.snapshot()
    for table in set(tables):
        expected = sorted(row for t, r in zip(tables, results, strict=True) if t == table for row in r["acknowledged"])
        assert sorted(snapshot.scan(table, ["id"])["id"].to_pylist()) == expected
    commits = repository.commits(limit=10_000)
    published = [c.operation_id for c in commits if c.operation_id and c.recovery_kind is None]
    assert len(published) == len(set(published)) == 8 * len(tables)
    assert commits[-1].parents == ()
    assert {p for c in commits for p in c.parents} <= {c.id for c in commits}
    assert repository.pending() == []
    for ref in snapshot.tables.values():
        assert repository.engine.store.latest(ref.location, ref.branch).version == ref.version
