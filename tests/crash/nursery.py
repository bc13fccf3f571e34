"""Processes to be killed, forked from one that has imported everything and done nothing yet.

A new interpreter needs a second to import Lance, a fork of a warm one some milliseconds. Lance starts its threads when
it is first used, so the process that forks never uses it.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from typing import Any, NoReturn

__all__ = ["NEVER", "Ended", "Nursery"]

NEVER = "never:0"
SECONDS = 120
"""How long a child may live."""

WARM = ("omnigraph", "omnigraph.maintain", "omnigraph.pipeline.load", "numpy.ma", "pyarrow.acero", "pyarrow.dataset",
        "importlib.resources.readers", "tests.crash.crash_scenarios")  # fmt: skip


@dataclass(frozen=True)
class Ended:
    """How a child ended.

    Args:
        code: its exit code; minus the signal's number where one ended it.
        reached: `step:n` of every step it reached, known only where it came to its end.
    """

    code: int
    reached: tuple[str, ...] = ()


class Nursery:
    """The warm process; `run` lets it fork a child and waits for that one."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", "tests.crash.nursery"],
            env=os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, call: Any, *args: Any, kill_at: str = NEVER, env: Mapping[str, str] | None = None) -> Ended:
        """Call a module's function in a child that dies at the step `kill_at`. Arguments travel as JSON."""
        order = {"module": call.__module__, "name": call.__qualname__, "args": args, "kill_at": kill_at, "env": env}
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        return Ended(answer["code"], tuple(answer["reached"]))

    def close(self) -> None:
        self._process.communicate()


def _serve() -> None:
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what a child prints is no answer
    for module in WARM:
        with suppress(ImportError):
            import_module(module)
    gc.freeze()  # or the first collection of every child would touch, and so copy, all of its memory
    for line in sys.stdin:
        reading, writing = os.pipe()
        child = os.fork()
        if not child:
            os.close(reading)
            _live(json.loads(line), writing)
        os.close(writing)
        with os.fdopen(reading) as report:
            reached = report.read()
        _, status = os.waitpid(child, 0)
        print(
            json.dumps({"code": os.waitstatus_to_exitcode(status), "reached": json.loads(reached or "[]")}),
            file=answers,
        )


def _live(order: Mapping[str, Any], report: int) -> NoReturn:
    from omnigraph.storage import steps

    signal.alarm(SECONDS)
    try:
        os.environ.update(order["env"] or {})
        steps._KILL_AT = order["kill_at"]
        getattr(import_module(order["module"]), order["name"])(*order["args"])
        reached = [f"{step}:{n}" for step, count in steps._reached.items() for n in range(1, count + 1)]
        os.write(report, json.dumps(reached).encode())
    except BaseException:  # noqa: BLE001 - the end of this process
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


if __name__ == "__main__":
    _serve()
