"""`kill -9` of `omnigraph up` and of its children at random moments; then it converges and nothing was done twice."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROUNDS = int(os.environ.get("OMNIGRAPH_TEST_KILL_ROUNDS", "20"))

MANIFEST = """
apiVersion: omnigraph.io/v1alpha1
kind: OmniGraph
metadata: {name: people}
spec:
  storage: {uri: "file:people.omni"}
  schema:
    inline: |
      node Person { name: String @key  age: I32? }
      edge Knows: Person -> Person
  loads:
    - name: people
      source: {uri: people.ndjson}
      mode: merge
  server:
    auth: {unauthenticated: true}
    queries:
      - inline: "query all() { match { $p: Person } return { $p.name, $p.age } order { $p.name } }"
"""


def command(*args: str) -> list[str]:
    return [sys.executable, "-m", "omnigraph.cli.main", *args]


def processes_of(folder: Path) -> list[int]:
    """Every living process that names the folder in its arguments."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                said = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if str(folder).encode() in said:
                found.append(int(entry.name))
    return found


def write_people(folder: Path, count: int) -> None:
    lines = [json.dumps({"type": "Person", "data": {"name": f"p{i:03d}", "age": i}}) for i in range(count)]
    lines += [
        json.dumps({"edge": "Knows", "from": f"p{i:03d}", "to": f"p{i + 1:03d}", "data": {"id": f"e{i}"}})
        for i in range(count - 1)
    ]
    temporary = folder / "people.tmp"
    temporary.write_text("\n".join(lines) + "\n")
    temporary.replace(folder / "people.ndjson")


@pytest.mark.timeout(900)
@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="finds its victims in /proc")
def test_killed_at_random_moments_it_converges(tmp_path: Path) -> None:
    seed = int(os.environ.get("OMNIGRAPH_TEST_SEED", random.randrange(10**6)))
    print(f"seed {seed}")
    rng = random.Random(seed)
    (tmp_path / "graph.yaml").write_text(MANIFEST)
    up = command("up", "-f", str(tmp_path), "--once", "--keep")
    log = (tmp_path / "up.log").open("wb")
    people = 20
    try:
        for number in range(ROUNDS):
            people += 5
            write_people(tmp_path, people)
            running = subprocess.Popen(up, stdout=log, stderr=log)
            time.sleep(rng.uniform(0.2, 4.0))
            victims = processes_of(tmp_path)
            victim = rng.choice(victims) if victims and rng.random() < 0.6 else running.pid
            try:
                os.kill(victim, signal.SIGKILL)
            except ProcessLookupError:
                continue
            if victim != running.pid:
                # It may go on and converge by itself, or be killed as well.
                if rng.random() < 0.5:
                    running.kill()
                else:
                    try:
                        running.wait(60)
                    except subprocess.TimeoutExpired:
                        pytest.fail(f"round {number}: up neither converged nor failed within a minute")
            running.wait(60)

        people += 5
        write_people(tmp_path, people)
        done = subprocess.run(up, capture_output=True, text=True, timeout=180, check=False)
        assert done.returncode == 0, f"seed {seed}\n{done.stdout}\n{done.stderr}"

        uri = str(tmp_path / "people.omni")
        verified = subprocess.run(command("verify", uri), capture_output=True, text=True, timeout=60, check=False)
        assert verified.returncode == 0, f"seed {seed}\n{verified.stdout}\n{verified.stderr}"

        import omnigraph

        with omnigraph.open(uri, read_only=True) as graph:
            names = graph.query("query q() { match { $p: Person } return { $p.name } order { $p.name } }").to_pylist()
            assert [r["p.name"] for r in names] == [f"p{i:03d}" for i in range(people)]
            assert graph.snapshot().tables["edge:Knows"].row_count == people - 1
            operations = [c.operation_id for c in graph.commits(limit=10_000) if c.operation_id and not c.recovery_kind]
            assert len(operations) == len(set(operations)), f"seed {seed}: an operation was published twice"
        assert not list((tmp_path / "people.omni" / "__recovery").glob("*.json"))
    finally:
        log.close()
        subprocess.run(command("up", "-f", str(tmp_path), "--stop"), capture_output=True, timeout=60, check=False)
        for pid in processes_of(tmp_path):
            os.kill(pid, signal.SIGKILL)
