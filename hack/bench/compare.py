"""Driving the systems in turn: load, equal answers, times, cold starts."""

from __future__ import annotations

import json
import math
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from hack.bench.lines import Line

__all__ = ["Figures", "cold", "compare", "load", "upsert"]

ROUNDS = 5
LOADS = 3
COLD_STARTS = 7


@dataclass
class Figures:
    """One line's outcome: milliseconds by system, and what is said beside them."""

    name: str
    title: str
    aim: float | None
    ms: dict[str, list[float]]
    cpu_ms: dict[str, list[float]] = field(default_factory=dict)  # of all threads, a call: what a busy machine spares
    first_ms: dict[str, float] = field(default_factory=dict)
    peak_mib: dict[str, float] = field(default_factory=dict)
    limit_ms: float | None = None
    notes: list[str] = field(default_factory=list)

    def p50(self, system: str) -> float | None:
        times = self.ms.get(system)
        return statistics.median(times) if times else None

    def best(self, system: str) -> float | None:
        times = self.ms.get(system)
        return min(times) if times else None

    def cpu(self, system: str) -> float | None:
        times = self.cpu_ms.get(system)
        return min(times) if times else None

    def ratio(self, of: Callable[[Figures, str], float | None]) -> float | None:
        """Ours to the fastest peer's, by p50 or best."""
        ours = of(self, "omnigraph")
        theirs = [t for s in self.ms if s != "omnigraph" and (t := of(self, s)) is not None]
        return ours / min(theirs) if ours is not None and theirs else None

    def as_json(self) -> dict[str, Any]:
        systems = {
            s: {"p50": self.p50(s), "best": self.best(s), "cpu": self.cpu(s), "calls": len(t)}
            for s, t in self.ms.items()
            if t
        }
        rest = {k: v for k, v in asdict(self).items() if k not in ("ms", "cpu_ms")}
        return {**rest, "systems": systems, "ratio": self.ratio(Figures.p50)}


class Process:
    """A child that answers commands."""

    def __init__(self, system: str, python: str, data: str, scale: int) -> None:
        self.system = system
        self._child = subprocess.Popen(
            [python, "-m", "hack.bench.child", system, data, str(scale)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=_environment(),
        )  # fmt: skip

    def ask(self, do: str, **arguments: Any) -> dict[str, Any]:
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        self._child.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
        self._child.stdin.flush()
        said = self._child.stdout.readline()
        if not said:
            raise SystemExit(f"{self.system} ended during {do} {arguments}")
        answer: dict[str, Any] = json.loads(said)
        if "error" in answer:
            raise SystemExit(f"{self.system}, {do} {arguments}: {answer['error']}")
        return answer

    def end(self) -> None:
        assert self._child.stdin is not None
        self._child.stdin.close()
        try:
            self._child.wait(30)
        except subprocess.TimeoutExpired:
            self._child.kill()


def _environment() -> dict[str, str]:
    """Compiled Python files are kept, as every installation has them, whatever the caller's environment says."""
    kept = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTHONUNBUFFERED": "1", "PYTHONPYCACHEPREFIX": os.path.abspath(".bench/pycache")}


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def load(
    name: str, files: Path, folder: Path, python: Mapping[str, str], data: str, scale: int, *, again: bool
) -> Figures:
    """Each system's database in the folder, made anew `again`, or where it isn't there."""
    out = Figures(name, "bulk load of Parquet, all checks", 0.6 if name == "load" else None, {s: [] for s in python})
    wanted = [s for s in python if again or not (folder / s).exists()]
    for turn in range(LOADS if again else 1):
        for system in wanted:
            target = folder / system
            if target.is_dir():
                shutil.rmtree(target)
            for part in folder.glob(f"{system}*"):
                part.unlink()
            process = Process(system, python[system], data, scale)
            said = process.ask("load", files=str(files), target=str(target))
            process.end()
            _say(f"{name:10} {system:10} {said['ms']:10.0f} ms")
            if system != "lancedb":  # one table without a check is another work
                out.ms[system].append(said["ms"])
                out.cpu_ms.setdefault(system, []).append(said["cpu_ms"])
                out.peak_mib[system] = max(said["peak_mib"], out.peak_mib.get(system, 0))
            if turn == (LOADS if again else 1) - 1:
                process = Process(system, python[system], data, scale)
                out.first_ms[system] = process.ask("prepare", target=str(target))["ms"]
                process.end()
    out.notes.append("its indexes afterwards: " + ", ".join(f"{s} {ms / 1000:.1f} s" for s, ms in out.first_ms.items()))
    out.first_ms = {}
    return out


def compare(
    lines: Sequence[Line], folder: Path, python: Mapping[str, str], data: str, scale: int, seconds: float
) -> list[Figures]:
    """Warm times of every line, after equal answers."""
    processes = [Process(system, path, data, scale) for system, path in python.items()]
    out = []
    try:
        for process in processes:
            process.ask("open", target=str(folder / process.system))
        for line in lines:
            figures = Figures(line.name, line.title, line.aim, {})
            answers: dict[str, Any] = {}
            for process in processes:
                said = process.ask("answer", line=line.name)
                if said["rows"] is not None:
                    answers[process.system] = said["rows"]
                    figures.ms[process.system] = []
                    figures.first_ms[process.system] = said["first_ms"]
            figures.notes += _differences(line, answers)
            for _ in range(ROUNDS):
                for process in processes:
                    if process.system in answers:
                        said = process.ask("run", line=line.name, seconds=seconds / ROUNDS)
                        figures.ms[process.system] += said["ms"]
                        figures.cpu_ms.setdefault(process.system, []).append(said["cpu_ms"])
            _say(f"{line.name:10} " + "  ".join(f"{s} {figures.p50(s):.3f}" for s in figures.ms))
            out.append(figures)
        peaks = {p.system: p.ask("memory")["peak_mib"] for p in processes}
        if len(lines) > 1:
            out.append(Figures("memory", f"peak memory of all {data} reads", None, {}, peak_mib=peaks))
    finally:
        for process in processes:
            process.end()
    return out


def _differences(line: Line, answers: Mapping[str, list[list[Any]]]) -> list[str]:
    """Nothing where all answers are equal; ends the run where they differ and may not."""
    if len(answers) < 2:
        return []
    first, *others = answers
    notes = []
    for other in others:
        one, two = answers[first], answers[other]
        if line.check == "overlap":
            same = {row[0] for row in one} & {row[0] for row in two}
            notes.append(f"{len(same)} of {len({row[0] for row in one})} rows as {other}")
            if len(same) * 2 < len({row[0] for row in one}):
                raise SystemExit(f"{line.name}: {first} and {other} find other rows: {one[:3]} and {two[:3]}")
            continue
        if not line.ordered:
            one, two = sorted(one, key=str), sorted(two, key=str)
        equal = len(one) == len(two) and all(_equal(a, b) for x, y in zip(one, two, strict=True) for a, b in zip(x, y))  # noqa: B905
        if not equal:
            raise SystemExit(f"{line.name}: {first} and {other} differ: {one[:5]} and {two[:5]}")
    return notes


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, float) or isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-6)
    return bool(one == other)


def cold(folder: Path, python: Mapping[str, str], scale: int) -> list[Figures]:
    """A new process each time: import, open, one look-up; then all of it, from the process's start to the answer.

    The aim of the first line is the fastest peer's open alone.
    """
    names = ("import", "open", "first", "cpu", "all")
    parts: dict[str, dict[str, list[float]]] = {s: {name: [] for name in names} for s in python}
    for turn in range(COLD_STARTS + 1):
        for system, path in python.items():
            if system == "lancedb":
                continue
            command = [path, "-m", "hack.bench.child", system, "social", str(scale), str(folder / system)]
            begin = time.perf_counter()
            done = subprocess.run(command, capture_output=True, text=True, check=True, env=_environment())
            took = {**json.loads(done.stdout), "all": (time.perf_counter() - begin) * 1000}
            for name, value in took.items() if turn else ():  # the first one compiles what is imported
                parts[system][name].append(value)
    parts = {s: p for s, p in parts.items() if p["open"]}
    both = {s: [a + b for a, b in zip(p["open"], p["first"], strict=True)] for s, p in parts.items()}
    opens = [statistics.median(p["open"]) for s, p in parts.items() if s != "omnigraph"]
    imports = ", ".join(f"{s} {statistics.median(p['import']):.0f}" for s, p in parts.items())
    opening = ", ".join(f"{s} {statistics.median(p['open']):.1f}" for s, p in parts.items())
    notes = [f"import apart: {imports} ms", f"open alone: {opening} ms"]
    limit = min(opens) if opens else None
    whole = {s: p["all"] for s, p in parts.items()}
    cpu = {s: p["cpu"] for s, p in parts.items()}
    return [
        Figures("cold", "cold process: open and first look-up", None, both, limit_ms=limit, notes=notes),
        Figures("start", "cold process: from its start to the answer", 1.0, whole, cpu),
    ]


def upsert(folder: Path, python: Mapping[str, str], scale: int) -> Figures:
    """One-row upserts, each durable before the next."""
    out = Figures("upsert", "one-row upsert, durable", None, {}, limit_ms=20.0)
    processes = [Process(system, path, "social", scale) for system, path in python.items()]
    for process in processes:
        process.ask("open", target=str(folder / process.system))
        process.ask("upsert", count=3)
        out.ms[process.system] = []
    for _ in range(ROUNDS):
        for process in processes:
            out.ms[process.system] += process.ask("upsert", count=10)["ms"]
    for process in processes:
        process.end()
    return out
