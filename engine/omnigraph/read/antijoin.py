"""`not { … }`: keeps the rows for which the inner steps yield nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from omnigraph.read.expand import ExpandStep, whole
from omnigraph.read.frame import Binding, Context, Frame
from omnigraph.read.tables import Rows

__all__ = ["ROW", "AntiJoinStep", "Step"]

ROW = "#row"
"""The hidden variable that says which outer row an inner row came from."""


class Step(Protocol):
    """One step of a plan: a frame in, a frame out."""

    def run(self, ctx: Context, frame: Frame) -> Frame: ...

    def describe(self, ctx: Context) -> str: ...


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
        if (degrees := self._degrees(ctx, frame)) is not None:
            return frame.take(degrees == 0)
        rows: npt.NDArray[np.int64] = np.arange(frame.length)
        back = rows
        if len(self.outer) == 1:
            _, rows, back = np.unique(frame.bound[self.outer[0]].at, return_index=True, return_inverse=True)
        inside = frame.keep(frozenset(self.outer)).take(rows)
        inside = inside.bind(ROW, Binding(Rows("", len(rows), {}), np.arange(len(rows))))
        for step in self.inner:
            ctx.check()
            inside = step.run(ctx, inside)
        found = np.zeros(len(rows), dtype=bool)
        found[inside.bound[ROW].at] = True
        return frame.take(~found[back])

    def _degrees(self, ctx: Context, frame: Frame) -> npt.NDArray[np.int64] | None:
        """Edges at each row, where the inside only asks whether there is any."""
        match self.inner:
            case (ExpandStep(low=1, bound=False, where=None, edge_where=None) as step,):
                frame = whole(ctx, frame, step.source, step.near)
                links = step.links(ctx)
                at = frame.bound[step.source].at
                return np.asarray(links.start[at + 1] - links.start[at])
        return None

    def describe(self, ctx: Context) -> str:
        inner = "\n".join("    " + line for step in self.inner for line in step.describe(ctx).splitlines())
        return f"anti    not, from {', '.join(f'${v}' for v in self.outer)}\n{inner}"
