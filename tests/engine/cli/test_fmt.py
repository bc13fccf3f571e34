"""`omnigraph fmt`: what it writes, what it leaves alone, what it says and how it ends."""

from __future__ import annotations

import io
import os
import stat
import sys
from pathlib import Path

import pytest

UGLY = "query q( ) { delete A where a=1 }\r\n"
NEAT = "query q() { delete A where a = 1 }\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sub").mkdir()
    for passed_over in (".hidden", "graph.omni"):
        (tmp_path / passed_over).mkdir()
        (tmp_path / passed_over / "q.gq").write_bytes(UGLY.encode())
    (tmp_path / "q.gq").write_bytes(UGLY.encode())
    (tmp_path / "sub" / "s.pg").write_text("node A{ }")
    (tmp_path / "sub" / "neat.gq").write_text(NEAT)
    (tmp_path / "notes.txt").write_text("node A{ }")
    return tmp_path


def test_a_folder_is_formatted_in_place(command, folder: Path) -> None:
    os.chmod(folder / "q.gq", 0o640)
    untouched = (folder / "sub" / "neat.gq").stat().st_ino
    ran = command("fmt")
    assert (ran.code, ran.out, ran.err) == (0, "2 formatted, 1 unchanged\n", "")
    assert (folder / "q.gq").read_bytes() == NEAT.encode()
    assert stat.S_IMODE((folder / "q.gq").stat().st_mode) == 0o640
    assert (folder / "sub" / "s.pg").read_text() == "node A {}\n"
    assert (folder / "notes.txt").read_text() == "node A{ }"
    assert (folder / "sub" / "neat.gq").stat().st_ino == untouched
    for passed_over in (".hidden", "graph.omni"):
        assert (folder / passed_over / "q.gq").read_bytes() == UGLY.encode()
    assert sorted(p.name for p in folder.iterdir()) == [".hidden", "graph.omni", "notes.txt", "q.gq", "sub"]
    assert command("fmt").out == "0 formatted, 3 unchanged\n"


def test_check_and_diff_write_nothing(command, folder: Path) -> None:
    ran = command("fmt", "--check")
    assert (ran.code, ran.out) == (1, "would change: q.gq\nwould change: sub/s.pg\n2 would change, 1 unchanged\n")
    ran = command("fmt", "--check", "--diff", "sub/s.pg")
    assert ran.code == 1
    assert "--- sub/s.pg\n+++ sub/s.pg (formatted)\n" in ran.out
    assert ran.out.endswith("-node A{ }\n\\ No newline at end of file\n+node A {}\n1 would change, 0 unchanged\n")
    assert (folder / "q.gq").read_bytes() == UGLY.encode()
    assert (folder / "sub" / "s.pg").read_text() == "node A{ }"
    ran = command("fmt", "--check", "sub/neat.gq", "--quiet")
    assert (ran.code, ran.out) == (0, "")


def test_a_fault_in_one_file_hinders_no_other(command, folder: Path) -> None:
    (folder / "bad.gq").write_text("query q() {\n  delet A\n}\n")
    (folder / "latin.pg").write_bytes(b"// \xe9\n")
    ran = command("fmt")
    assert ran.code == 1
    assert ran.out == "2 formatted, 1 unchanged, 2 not formatted\n"
    assert "bad.gq:2:3: Q000" in ran.err
    assert "latin.pg: not UTF-8 text (byte 3)" in ran.err
    assert (folder / "bad.gq").read_text() == "query q() {\n  delet A\n}\n"
    assert (folder / "q.gq").read_bytes() == NEAT.encode()


def test_a_link_stays_a_link(command, folder: Path) -> None:
    (folder / "link.gq").symlink_to("q.gq")
    assert command("fmt", "link.gq").code == 0
    assert (folder / "link.gq").is_symlink()
    assert (folder / "q.gq").read_bytes() == NEAT.encode()


def standard_input(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode()), encoding="utf-8"))


def test_standard_input(command, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    standard_input(monkeypatch, UGLY)
    ran = command("fmt", "-", "--stdin-name", "q.gq")
    assert (ran.code, ran.out, ran.err) == (0, NEAT, "")
    standard_input(monkeypatch, UGLY)
    ran = command("fmt", "-", "--stdin-name", "q.gq", "--check")
    assert (ran.code, ran.out) == (1, "would change: q.gq\n")
    standard_input(monkeypatch, "query")
    ran = command("fmt", "-", "--stdin-name", "q.gq")
    assert (ran.code, ran.out) == (1, "")
    assert "q.gq:1:" in ran.err


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["-"], "--stdin-name x.pg or"),
        (["-", "q.gq"], "stands alone"),
        (["q.gq", "--stdin-name", "x.gq"], "goes with -"),
        (["notes.txt"], "neither a schema (.pg) nor a query file (.gq)"),
        (["missing.gq"], "no such file"),
    ],
)
def test_what_makes_no_sense_is_a_usage_error(command, folder: Path, args: list[str], said: str) -> None:
    ran = command("fmt", *args)
    assert ran.code == 2
    assert said in ran.err
