"""The README's library and command snippets run as printed, and every command's help has an example."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest
import typer.main

README = Path(__file__).parents[2] / "README.md"


def snippet(heading: str, language: str) -> str:
    found = re.search(rf"^## {heading}\n.*?```{language}\n(.*?)```", README.read_text(encoding="utf-8"), re.S | re.M)
    assert found, f"README has no {language} snippet under {heading}"
    return found[1]


def test_the_library_snippet(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", snippet("The library", "python")], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("[{'f.name': 'Grace', 'f.age': 45}]\n")


def test_the_command_snippet(tmp_path: Path) -> None:
    lines = snippet("The command", "sh")
    assert "omnigraph serve" in lines
    # The last line serves until it is stopped; the server's own tests run that.
    script = "\n".join(line for line in lines.splitlines() if not line.startswith("omnigraph serve"))
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-euc", script], cwd=tmp_path, env={**os.environ, "PATH": path}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert '"name":"Ada"' in (tmp_path / "backup.ndjson").read_text(encoding="utf-8")


def test_local_platform_commands_have_examples() -> None:
    from omnigraph_operator.command import register

    app = typer.Typer()
    register(app)
    group = typer.main.get_command(app)
    assert isinstance(group, click.Group) or hasattr(group, "commands")
    without = [name for name, one in group.commands.items() if "Examples:" not in (one.help or "")]
    assert without == []


def test_get_without_a_state_folder_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from omnigraph_operator.platform.local_inspect import show_objects

    assert show_objects(tmp_path / "none", "og", None, "table") == 1
    assert "there is no state folder" in capsys.readouterr().err
