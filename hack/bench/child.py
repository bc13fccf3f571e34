"""One system in a process of its own: commands as JSON lines on stdin, answers as JSON lines on stdout.

Runs in the peers' environment too, so it imports nothing of OmniGraph itself.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from hack.bench.lines import Line, social_lines, study_lines

__all__ = ["System"]


class System(Protocol):
    """What is measured of every system."""

    def load(self, files: Path, target: Path, data: str) -> None:
        """From Parquet files to a durable database at a path where nothing is yet."""

    def prepare(self, target: Path, data: str) -> None:
        """Build the indexes that the load didn't."""

    def open(self, target: Path, data: str) -> None: ...

    def reader(self, line: Line) -> Callable[[dict[str, Any]], Any] | None:
        """What answers the line, prepared; None where the system can't."""

    def rows(self, result: Any) -> list[list[Any]]:
        """A result as rows of Python values, to compare."""

    def upsert(self, row: dict[str, Any]) -> None:
        """One person, written durably."""


def _system(name: str) -> System:
    if name == "omnigraph":
        from hack.bench.systems.product import Product

        return Product()
    if name == "duckdb":
        from hack.bench.systems.duck import Duck

        return Duck()
    if name == "lancedb":
        from hack.bench.systems.lance_search import LanceSearch

        return LanceSearch()
    from hack.bench.systems.cypher import Cypher

    return Cypher(name)


def _milliseconds(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return (time.perf_counter() - begin) * 1000


def _peak_mib() -> float:
    try:  # the kernel's figure of getrusage has in it what the parent held when it forked
        status = Path("/proc/self/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) / 1024
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20  # bytes on macOS


class _Child:
    def __init__(self, name: str, data: str, scale: int) -> None:
        self.system = _system(name)
        self.written = 0
        self.data = data
        self.lines = {line.name: line for line in (social_lines(scale) if data == "social" else study_lines())}
        self.readers: dict[str, Callable[[dict[str, Any]], Any] | None] = {}
        self.turns: dict[str, int] = {}

    def load(self, files: str, target: str) -> dict[str, Any]:
        begin = time.process_time()
        took = _milliseconds(lambda: self.system.load(Path(files), Path(target), self.data))
        return {"ms": took, "cpu_ms": (time.process_time() - begin) * 1000, "peak_mib": _peak_mib()}

    def prepare(self, target: str) -> dict[str, Any]:
        return {"ms": _milliseconds(lambda: self.system.prepare(Path(target), self.data))}

    def open(self, target: str) -> dict[str, Any]:
        return {"ms": _milliseconds(lambda: self.system.open(Path(target), self.data))}

    def answer(self, line: str) -> dict[str, Any]:
        """The rows of the first parameters, and what the very first call took."""
        if line not in self.readers:
            self.readers[line] = self.system.reader(self.lines[line])
        read = self.readers[line]
        if read is None:
            return {"rows": None}
        out: list[Any] = []
        first = _milliseconds(lambda: out.append(read(dict(self.lines[line].params[0]))))
        rows = self.system.rows(out[0])
        if len(self.lines[line].params) > 1:
            rows = [*rows, *(r for p in self.lines[line].params[1:4] for r in self.system.rows(read(dict(p))))]
        return {"rows": rows, "first_ms": first}

    def run(self, line: str, seconds: float) -> dict[str, Any]:
        """Times for about so long, at least three calls, parameters in turn."""
        read, params = self.readers[line], self.lines[line].params
        if read is None:
            return {"ms": []}
        took: list[float] = []
        begin = time.process_time()
        turn = self.turns.get(line, 0)
        end = time.perf_counter() + seconds
        while len(took) < 3 or (time.perf_counter() < end and len(took) < 400):
            one = params[turn % len(params)]
            took.append(_milliseconds(lambda: read(one)))  # noqa: B023
            turn += 1
        self.turns[line] = turn
        return {"ms": took, "cpu_ms": (time.process_time() - begin) * 1000 / len(took)}

    def upsert(self, count: int) -> dict[str, Any]:
        """Times of one-row upserts: every second one is a new person, and none repeats an earlier row."""
        took = []
        first, self.written = self.written, self.written + count
        for i in range(first, first + count):
            key = f"person-{i:08d}" if i % 2 else f"new-{i:08d}"
            row = {"k": key, "n": "Name", "a": i % 90, "c": "city-01", "b": "w1 w2 w3", "v": [float(i)] + [1.0] * 63}
            took.append(_milliseconds(lambda: self.system.upsert(row)))  # noqa: B023
        return {"ms": took}

    def memory(self) -> dict[str, Any]:
        return {"peak_mib": _peak_mib()}


def _commands() -> Iterator[dict[str, Any]]:
    for text in sys.stdin:
        yield json.loads(text)


class _WithoutPandas:
    """As where pandas isn't installed: pyarrow imports it wherever it finds it, and no system here needs it."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError(name, name=name)


def _cold(name: str, scale: int, target: str) -> dict[str, float]:
    """What a process that has just begun pays: import, open, one look-up by key."""
    sys.meta_path.insert(0, _WithoutPandas())  # type: ignore[arg-type]
    system = _system(name)
    line = social_lines(scale)[0]
    imported = _milliseconds(lambda: import_module("omnigraph.graph" if name == "omnigraph" else name))
    opened = _milliseconds(lambda: system.open(Path(target), "social"))

    def look_up() -> None:
        read = system.reader(line)
        assert read is not None
        system.rows(read(dict(line.params[0])))

    first = _milliseconds(look_up)
    return {"import": imported, "open": opened, "first": first, "cpu": time.process_time() * 1000}


def main() -> None:
    name, data, scale = sys.argv[1], sys.argv[2], int(sys.argv[3])
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever a library prints goes to stderr
    if len(sys.argv) > 4:
        answers.write(json.dumps(_cold(name, scale, sys.argv[4])))
        answers.flush()
        return
    child = _Child(name, data, scale)
    for command in _commands():
        try:
            said = getattr(child, command.pop("do"))(**command)
        except Exception as error:  # noqa: BLE001  # told to the parent, which names system and line
            said = {"error": f"{type(error).__name__}: {error}"[:500]}
        answers.write(json.dumps(said) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
