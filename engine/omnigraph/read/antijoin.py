"""`not { … }`: keeps the rows for which the inner steps yield nothing."""

from __future__ import annotations

import numpy as np

from omnigraph.read.frame import Context, Frame
from omnigraph.read.memory import Memory, Run
from omnigraph.read.steps import Step, indented
from omnigraph.read.submatch import ROW, degrees, inside
from omnigraph.records import dataclass

__all__ = ["AntiJoinStep"]


@dataclass(frozen=True, slots=True, eq=False)
class AntiJoinStep:
    """Rows that agree in the outer variables are asked about once.

    Args:
        inner: the steps inside; they carry `ROW` along.
        outer: the variables bound outside that the inside reads.
    """

    inner: tuple[Step, ...]
    outer: tuple[str, ...]

    def run(self, ctx: Context, frame: Frame) -> Frame:
        if frame.length == 0:
            return frame
        if (found := degrees(ctx, frame, self.inner, distinct=False)) is not None:
            return frame.take(found == 0)
        inner, back, count = inside(ctx, frame, self.inner, self.outer)
        matched = np.zeros(count, dtype=bool)
        matched[inner.bound[ROW].at] = True
        return frame.take(~matched[back])

    def bind(self, memory: Memory) -> Run:
        return self.run

    def expected(self, rows: float) -> float:
        return rows / 2

    def describe(self, ctx: Context, rows: float) -> str:
        return indented(f"anti    not, from {', '.join(f'${v}' for v in self.outer)}", self.inner, ctx, rows)
