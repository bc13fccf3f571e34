"""`optional { … }`: a left join. Each row once per match of the inside, or once with the inside's variables null."""

from __future__ import annotations

import numpy as np

from omnigraph.read.frame import Binding, Context, Frame
from omnigraph.read.memory import Memory, Run
from omnigraph.read.steps import Step, indented
from omnigraph.read.submatch import ROW, inside
from omnigraph.records import dataclass

__all__ = ["OptionalStep"]


@dataclass(frozen=True, slots=True, eq=False)
class OptionalStep:
    """Args:
    inner: the steps inside; they carry `ROW` along.
    outer: the variables bound outside that the inside reads.
    binds: the variables it adds.
    """

    inner: tuple[Step, ...]
    outer: tuple[str, ...]
    binds: tuple[str, ...]

    def run(self, ctx: Context, frame: Frame) -> Frame:
        found, back, count = inside(ctx, frame, self.inner, self.outer)
        question = found.bound[ROW].at
        order = np.argsort(question, kind="stable")
        many = np.bincount(question, minlength=count)
        start = np.cumsum(many) - many
        repeats = np.maximum(many, 1)[back]  # a question without an answer keeps its row
        ctx.check_rows(int(repeats.sum()), "an optional block")
        rows = np.repeat(np.arange(frame.length), repeats)
        nth = np.arange(len(rows)) - np.repeat(np.cumsum(repeats) - repeats, repeats)
        asked = back[rows]
        answered = many[asked] > 0
        spot = np.where(answered, start[asked] + nth, 0)
        out = frame.take(rows)
        for name in self.binds:
            bound = found.bound[name]
            at = np.full(len(rows), -1, dtype=np.int64)
            at[answered] = bound.at[order[spot[answered]]]
            out = out.bind(name, Binding(bound.rows, at, nullable=True))
        return out

    def bind(self, memory: Memory) -> Run:
        for name in self.binds:
            memory.bind(name, None)
        memory.once = None
        return self.run

    def expected(self, rows: float) -> float:
        inside = rows
        for step in self.inner:
            inside = step.expected(inside)
        return max(rows, inside)

    def describe(self, ctx: Context, rows: float) -> str:
        head = f"left    optional, from {', '.join(f'${v}' for v in self.outer) or 'nothing'}"
        return indented(f"{head}, binds {', '.join(f'${v}' for v in self.binds)}", self.inner, ctx, rows)
