"""Blocks inside a match: running the steps inside for the rows outside, and `exists { … }` and `count { … }`."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from omnigraph.read.datum import Datum, Longs
from omnigraph.read.expand import ExpandStep
from omnigraph.read.frame import Binding, Context, Frame
from omnigraph.read.steps import Step, run_step
from omnigraph.read.tables import Rows
from omnigraph.records import dataclass

__all__ = ["ROW", "BlockValue", "degrees", "inside"]

ROW = "#row"
"""The hidden variable that says which outer row an inner row came from."""


def inside(ctx: Context, frame: Frame, inner: tuple[Step, ...], outer: tuple[str, ...]) -> tuple[Frame, Longs, int]:
    """Run a block's steps. Rows that agree in the outer variables are asked about once.

    Returns:
        The inner rows, with `ROW` saying which question each answers; the question of each outer row; how many there
        are.
    """
    rows: Longs = np.arange(frame.length)
    back = rows
    if not outer:
        rows, back = rows[:1], np.zeros(frame.length, dtype=np.int64)
    elif len(outer) == 1:
        _, rows, back = np.unique(frame.bound[outer[0]].at, return_index=True, return_inverse=True)
    found = frame.keep(frozenset(outer)).take(rows)
    found = Frame(found.length, found.bound)  # how often an outer row stands is no matter of the block's
    found = found.bind(ROW, Binding(Rows("", len(rows), {}), np.arange(len(rows))))
    for step in inner:
        found = run_step(step, ctx, found)
    return found, back, len(rows)


def degrees(ctx: Context, frame: Frame, inner: tuple[Step, ...], *, distinct: bool) -> Longs | None:
    """The answers where the inside only follows one edge from each row: how many there are at its node."""
    match inner:
        case (ExpandStep(bound=False, where=None, edge_where=None) as step,) if step.walk.low == 1 and step.walk.plain:
            source = frame.bound[step.source]
            if source.nullable or (distinct and not (step.walk.single and step.edge_var is None)):
                return None
            opened = step.walk.stored(ctx, source)
            if opened is None:
                return None
            links, at = opened
            links = links.distinct if distinct else links
            return np.asarray(links.start[at + 1] - links.start[at])
    return None


@dataclass(frozen=True, slots=True, eq=False)
class BlockValue:
    """How many times the block matches in each row, or whether it does."""

    exists: bool
    inner: tuple[Step, ...]
    outer: tuple[str, ...]

    def value(self, ctx: Context, frame: Frame) -> Datum:
        kind = pa.bool_() if self.exists else pa.int64()
        if frame.length == 0:
            return pa.array([], kind)
        found = degrees(ctx, frame, self.inner, distinct=not self.exists)
        if found is None:
            inner, back, count = inside(ctx, frame, self.inner, self.outer)
            found = np.bincount(inner.bound[ROW].at, minlength=count)[back]
        return pa.array(found > 0 if self.exists else found, kind)
