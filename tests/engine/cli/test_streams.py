"""The command in a shell that closed a stream, or that speaks another encoding than UTF-8."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import omnigraph
from tests.engine.cli.conftest import PEOPLE_SCHEMA

COMMAND = f"{sys.executable} -m omnigraph.cli.main"
ALL = "query all() { match { $p: Person } return { $p.name as name } }"


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shell")
    (folder / "people.ndjson").write_text('{"type": "Person", "data": {"name": "Zoë ☃"}}\n', encoding="utf-8")
    (folder / "all.gq").write_text(ALL)
    with omnigraph.init(folder / "g", schema=PEOPLE_SCHEMA) as graph:
        graph.load(folder / "people.ndjson")
    return folder


def run(folder: Path, line: str, **environ: str) -> subprocess.CompletedProcess[bytes]:
    env = os.environ | environ
    return subprocess.run(
        f"OG {line}".replace("OG", COMMAND), shell=True, cwd=folder, env=env, capture_output=True, timeout=60
    )


@pytest.mark.parametrize("line", ["query g all.gq", "commit list g"])
def test_a_closed_output_is_the_null_device(shell: Path, line: str) -> None:
    ran = run(shell, f"{line} >&-")
    assert (ran.returncode, ran.stderr, ran.stdout) == (0, b"", b"")


def test_closed_streams_get_no_other_files_data(shell: Path) -> None:
    ran = run(shell, "load g people.ndjson --mode merge <&- >&- 2>&-")
    assert ran.returncode == 0
    refused = run(shell, "query g -e nonsense 2>&-")
    assert (refused.returncode, refused.stdout) == (1, b"")
    with omnigraph.open(shell / "g") as graph:
        assert graph.verify().ok


@pytest.mark.parametrize("line", ["query g all.gq", "export g"])
def test_answers_are_utf8_whatever_the_environment_says(shell: Path, line: str) -> None:
    ran = run(shell, line, PYTHONIOENCODING="ascii")
    assert (ran.returncode, ran.stderr) == (0, b"")
    assert "Zoë ☃" in ran.stdout.decode("utf-8")


def test_standard_input_is_utf8_too(shell: Path) -> None:
    (shell / "name.json").write_text(json.dumps({"name": "Zoë ☃"}, ensure_ascii=False), encoding="utf-8")
    query = "query one($name: String) { match { $p: Person { name: $name } } return { count($p) as n } }"
    ran = run(shell, f"query g -e '{query}' -p @- --json < name.json", PYTHONIOENCODING="ascii")
    assert json.loads(ran.stdout) == [{"n": 1}], ran.stderr
