"""`omnigraph up` with real child processes: converging, failing, being killed at random, stopping, deleting."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from omnigraph_operator.platform.local_process import MARK

STAND_IN = Path(__file__).parent / "local_stand_in.py"

MANIFEST = """\
apiVersion: omnigraph.io/v1alpha1
kind: OmniGraph
metadata: { name: g }
spec:
  storage: { uri: "file:g.omni" }
  deletionPolicy: Delete
  schema:
    configMapRef: { name: texts, key: schema.pg }
  loads:
    - { name: one, source: { uri: one.ndjson } }
    - { name: two, source: { uri: "*.more" }, mode: merge }
  server:
    auth: { unauthenticated: true }
---
apiVersion: v1
kind: ConfigMap
metadata: { name: texts }
data:
  schema.pg: |
    node Person { name: String @key }
"""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "manifest.yaml").write_text(MANIFEST)
    (tmp_path / "one.ndjson").write_text("{}")
    (tmp_path / "two.more").write_text("{}")
    yield tmp_path
    end_all(tmp_path)


def end_all(folder: Path) -> None:
    for pid in living(folder):
        os.kill(pid, signal.SIGKILL)


def living(folder: Path) -> list[int]:
    """Process ids of all workloads under a folder, by the mark in their environment."""
    mark = f"{MARK}={folder}".encode()
    out = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if any(part.startswith(mark) for part in (entry / "environ").read_bytes().split(b"\0")):
                out.append(int(entry.name))
        except OSError:
            continue
    return out


def start(folder: Path, *flags: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(STAND_IN), "up", str(folder), str(folder / ".omnigraph"), *flags],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def once(folder: Path, *flags: str) -> tuple[int, str]:
    process = start(folder, "--once", *flags)
    try:
        out, _ = process.communicate(timeout=120)
    except subprocess.TimeoutExpired:
        process.kill()
        out, _ = process.communicate()
        raise AssertionError(f"no end:\n{out}") from None
    return process.returncode, out


def until(holds: Callable[[], bool], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it didn't come about in time"
        time.sleep(0.05)


def status(folder: Path) -> dict[str, Any]:
    path = folder / ".omnigraph/objects/default/OmniGraph/g/status.yaml"
    return dict(yaml.safe_load(path.read_text())) if path.exists() else {}


def journal(folder: Path) -> list[dict[str, Any]]:
    path = folder / "g.omni" / "journal"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def commits(folder: Path) -> list[str]:
    return [entry["purpose"] for entry in journal(folder) if "commit" in entry]


def problems(folder: Path) -> list[str]:
    return [entry["problem"] for entry in journal(folder) if "problem" in entry]


def test_once_converges_stops_its_server_and_again_does_nothing(folder: Path) -> None:
    code, out = once(folder)
    assert code == 0, out
    assert commits(folder) == ["init", "load", "load", "index"]
    assert status(folder)["phase"] == "Stopped"
    assert "load one: 7 rows" in out
    assert living(folder) == []
    workloads = folder / ".omnigraph/workloads"
    load = next(w for w in workloads.iterdir() if "-load-" in w.name)
    for name in ("command.json", "log", "exit.json", "result.json"):
        assert (load / name).exists()

    code, out = once(folder)
    assert code == 0, out
    assert commits(folder) == ["init", "load", "load", "index"]
    # A changed source is loaded, that one alone.
    (folder / "two.more").write_text("{ }")
    code, out = once(folder)
    assert code == 0, out
    assert commits(folder) == ["init", "load", "load", "index", "load", "index"]
    assert problems(folder) == []


def test_a_lost_state_folder_does_nothing_twice(folder: Path) -> None:
    assert once(folder)[0] == 0
    (folder / ".omnigraph").rename(folder / "lost")
    code, out = once(folder)
    assert code == 0, out
    assert commits(folder) == ["init", "load", "load", "index"]


def test_a_bad_record_ends_it_with_the_message_and_the_log(folder: Path) -> None:
    (folder / "one.ndjson").write_text("bad")
    code, out = once(folder)
    assert code == 1
    assert f"{folder}/one.ndjson:1: bad record" in out
    assert f"reading {folder}/one.ndjson" in out
    assert status(folder)["phase"] == "Failed"


def test_what_is_wrong_is_said_before_anything_starts(folder: Path) -> None:
    manifest = folder / "manifest.yaml"
    manifest.write_text(MANIFEST.replace("String", "Strin"))
    code, out = once(folder)
    assert code == 1
    assert "ConfigMap/texts/schema.pg:1:21" in out
    assert "Stalled" in out
    manifest.write_text(MANIFEST.replace("one.ndjson", "none.ndjson"))
    code, out = once(folder)
    assert code == 1
    assert f"load/one: {folder}/none.ndjson: there is no such file" in out
    assert not (folder / "g.omni").exists()


def test_a_second_up_is_refused_while_the_first_lives(folder: Path) -> None:
    first = start(folder)
    try:
        until(lambda: status(folder).get("phase") == "Serving")
        code, out = once(folder)
        assert code == 1
        assert f"(process {first.pid})" in out
        # Ctrl-C ends it, the server included.
        first.send_signal(signal.SIGINT)
        assert first.wait(timeout=30) == 0
        assert living(folder) == []
    finally:
        first.kill()
        first.communicate()


def test_changes_are_taken_up_while_it_runs(folder: Path) -> None:
    process = start(folder)
    try:
        until(lambda: status(folder).get("phase") == "Serving")
        before = status(folder)["endpoints"]["readWrite"]
        (folder / "one.ndjson").write_text("{  }")
        until(lambda: commits(folder).count("load") == 3)
        until(lambda: status(folder).get("phase") == "Serving")
        assert status(folder)["endpoints"]["readWrite"] == before
        (folder / "manifest.yaml").write_text(MANIFEST.replace("auth:", "readWrite: { enabled: false }\n    auth:"))
        until(lambda: status(folder).get("phase") == "Ready")
        until(lambda: living(folder) == [])
        (folder / "manifest.yaml").write_text("nonsense")
        time.sleep(1)
        assert process.poll() is None
    finally:
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=30)
    assert "what was accepted before stays in force" in out
    assert problems(folder) == []


def test_a_kept_server_is_adopted_and_a_killed_one_replaced(folder: Path) -> None:
    assert once(folder, "--keep")[0] == 0
    served = [e["serving"] for e in journal(folder) if "serving" in e]
    assert once(folder, "--keep")[0] == 0
    assert [e["serving"] for e in journal(folder) if "serving" in e] == served
    os.kill(served[0], signal.SIGKILL)
    code, out = once(folder, "--keep")
    assert code == 0, out
    assert len([e for e in journal(folder) if "serving" in e]) == 2
    assert problems(folder) == []


@pytest.mark.parametrize("case", range(2))
def test_kill_nine_of_up_and_of_children_at_random_moments(folder: Path, case: int) -> None:
    seed = int(os.environ.get("KILL_SEED", "7")) + case
    print(f"KILL_SEED={seed - case} case {case}")
    dice = random.Random(seed)
    for _ in range(6):
        process = start(folder, "--once")
        time.sleep(0.8 + dice.random() * 4)
        victims = living(folder)
        if victims and dice.random() < 0.6:
            with contextlib.suppress(ProcessLookupError):
                os.kill(dice.choice(victims), signal.SIGKILL)
            time.sleep(dice.random() * 0.3)
        process.kill()
        process.communicate()
    code, out = once(folder)
    assert code == 0, out
    assert sorted(commits(folder)) == ["index", "init", "load", "load"], out
    assert problems(folder) == []
    assert living(folder) == []


def test_delete_removes_what_it_made(folder: Path) -> None:
    from omnigraph_operator.platform.local_inspect import delete_object

    assert once(folder, "--keep")[0] == 0
    said: list[str] = []
    assert delete_object(folder / ".omnigraph", "og", "g", lambda _style, text: said.append(text)) == 0
    assert living(folder) == []
    assert not (folder / "g.omni").exists()
    assert not (folder / ".omnigraph/objects/default/OmniGraph/g").exists()
    assert said[-1] == "OmniGraph/g  deleted"
