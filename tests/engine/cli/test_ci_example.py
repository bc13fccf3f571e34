"""examples/ci: the commands in its files are run as they stand, and fail when something is wrong."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "examples" / "ci"


def hook_commands() -> list[str]:
    """What pre-commit would run: a hook's entry with its arguments, and files where they are passed."""
    (repo,) = yaml.safe_load((EXAMPLE / ".pre-commit-config.yaml").read_text())["repos"]
    out = []
    for hook in repo["hooks"]:
        files = ["schema.pg", "queries.gq"] if hook.get("pass_filenames", True) else []
        out.append(" ".join([hook["entry"], *hook.get("args", []), *files]))
    return out


def workflow_commands() -> list[str]:
    (job,) = yaml.safe_load((EXAMPLE / "workflow.yaml").read_text())["jobs"].values()
    return [s["run"] for s in job["steps"] if s.get("run", "").startswith("omnigraph ")]


def readme_commands() -> list[str]:
    block = (EXAMPLE / "README.md").read_text().split("```sh\n")[1].split("```")[0]
    return block.splitlines()


COMMANDS = [*hook_commands(), *workflow_commands(), *readme_commands()]


def run(line: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command, *args = shlex.split(line)
    program = Path(sys.executable).parent / command
    environment = os.environ | {"NO_COLOR": "1"}
    return subprocess.run([program, *args], cwd=folder, env=environment, capture_output=True, text=True, timeout=60)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return Path(shutil.copytree(EXAMPLE, tmp_path / "ci"))


def test_there_are_commands() -> None:
    assert [sum(word in line for line in COMMANDS) for word in ("omnigraph lint", "omnigraph fmt")] == [3, 3]


@pytest.mark.parametrize("line", COMMANDS)
def test_the_example_passes(line: str, copy: Path) -> None:
    ran = run(line, copy)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert (copy / "schema.pg").read_text() == (EXAMPLE / "schema.pg").read_text()
    assert (copy / "queries.gq").read_text() == (EXAMPLE / "queries.gq").read_text()


@pytest.mark.parametrize("line", [line for line in COMMANDS if "lint" in line])
def test_a_mistake_fails(line: str, copy: Path) -> None:
    queries = copy / "queries.gq"
    queries.write_text(queries.read_text().replace("$f.name as", "$f.nme as"))
    ran = run(line, copy)
    assert ran.returncode == 1
    assert "T6" in ran.stdout
