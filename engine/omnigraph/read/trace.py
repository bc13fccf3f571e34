"""What an execution did, for `explain --analyze`: how long each step took and how many rows it gave."""

from __future__ import annotations

from dataclasses import field

from omnigraph.records import dataclass

__all__ = ["Ran", "Trace", "counted"]


@dataclass
class Ran:
    """A step inside a block runs as often as the block is asked; times and rows add up. Seconds include inner steps."""

    seconds: float = 0.0
    rows: int = 0
    times: int = 0

    def __str__(self) -> str:
        again = f" in {self.times} runs" if self.times > 1 else ""
        return f"{counted(self.rows)} rows, {self.seconds * 1000:.2f} ms{again}"


@dataclass
class Trace:
    """Steps and traversals by identity."""

    steps: dict[int, Ran] = field(default_factory=dict)
    modes: dict[int, str] = field(default_factory=dict)

    def add(self, step: object, seconds: float, rows: int) -> None:
        ran = self.steps.setdefault(id(step), Ran())
        ran.seconds += seconds
        ran.rows += rows
        ran.times += 1

    def of(self, step: object) -> str:
        """What became of a step, as `explain` says it."""
        ran = self.steps.get(id(step))
        return "not run by itself" if ran is None else str(ran)


def counted(rows: float) -> str:
    """A number of rows, exact or expected."""
    return f"{rows:,.0f}" if rows >= 10 or rows == int(rows) else f"{rows:.1f}"
