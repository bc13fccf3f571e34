"""Ctrl-C: a command that reads ends at once, in whatever it is, with exit code 130 and one line."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import omnigraph
from omnigraph.cli.interrupt import ended_at_once
from omnigraph.cli.main import main

SCHEMA = "node Item { name: String @key  text: String? }"
SLOW = (
    'query q() { match { $a: Item $b: Item (matches($a.text, "(a+b+ )+c") or matches($b.text, "(a+b+ )+c")) } '
    "return { count($a) as n } }"
)
"""Four million pairs of long texts: minutes."""


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> str:
    graph = omnigraph.init(tmp_path_factory.mktemp("slow") / "slow.omni", schema=SCHEMA)
    graph.load({"Item": [{"name": f"i{i:04}", "text": "ab " * 300} for i in range(2000)]})
    return graph.uri


def seconds_of_work(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc to see how far a process is")
@pytest.mark.parametrize("options", [[], ["--timeout", "600"]])
def test_an_interrupted_query_ends_at_once(slow: str, options: list[str]) -> None:
    command = [sys.executable, "-m", "omnigraph.cli.main", "query", slow, "-e", SLOW, *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        while seconds_of_work(process.pid) < 3:  # it has begun: starting takes one
            assert process.poll() is None, process.stderr.read()  # type: ignore[union-attr]
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        written, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert written == ""
    assert said.strip() == "interrupted"


def test_a_query_that_takes_too_long_says_what_to_do(slow: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["query", slow, "-e", SLOW, "--timeout", "0.2"]) == 1
    assert "--timeout" in capsys.readouterr().err


def test_signals_are_as_before_afterwards() -> None:
    before, threads = signal.getsignal(signal.SIGINT), threading.active_count()
    with ended_at_once():
        assert signal.getsignal(signal.SIGINT) is not before
    assert signal.getsignal(signal.SIGINT) is before
    assert threading.active_count() == threads
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_another_thread_may_run_a_command_too(slow: str) -> None:
    ended: list[int] = []
    text = "query q() { match { $a: Item } return { count($a) as n } }"
    thread = threading.Thread(target=lambda: ended.append(main(["query", slow, "-e", text])))
    thread.start()
    thread.join(60)
    assert ended == [0]


def test_a_command_that_writes_says_that_it_was_interrupted(
    slow: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*args: object, **kwargs: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(omnigraph.Graph, "mutate", interrupted)
    assert main(["mutate", slow, "-e", 'query q() { delete Item where name = "no" }']) == 130
    assert capsys.readouterr().err.strip() == "interrupted"
