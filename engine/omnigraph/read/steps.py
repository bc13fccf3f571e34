"""What every step of a plan is, and the two simplest."""

from __future__ import annotations

import time
from typing import Protocol

import numpy as np

from omnigraph.read.datum import Evaluate, as_mask
from omnigraph.read.env import FrameEnv
from omnigraph.read.frame import Context, Frame, Indices
from omnigraph.read.limits import BLOCK_ROWS
from omnigraph.read.memory import Memory, Run
from omnigraph.read.show import Shown
from omnigraph.read.trace import counted
from omnigraph.records import dataclass

__all__ = ["FilterStep", "KeepStep", "Step", "described", "indented", "present", "run_step"]

_BLOCKS = 64  # at most: a search finds its rows anew in each


class Step(Protocol):
    """One step of a plan: a frame in, a frame out."""

    def run(self, ctx: Context, frame: Frame) -> Frame: ...

    def bind(self, memory: Memory) -> Run | None:
        """The same for a snapshot that has all it needs in memory; None if there is nothing to do.

        Raises:
            NotInMemory: it hasn't.
        """
        ...

    def expected(self, rows: float) -> float:
        """Rows out, of so many rows in."""
        ...

    def describe(self, ctx: Context, rows: float) -> str:
        """The step for `explain`, with the steps inside it on indented lines; `rows` are expected to come in."""
        ...


def run_step(step: Step, ctx: Context, frame: Frame) -> Frame:
    """Run a step within the query's limits."""
    ctx.check()
    if ctx.trace is None:
        out = step.run(ctx, frame)
    else:
        begin = time.perf_counter()
        out = step.run(ctx, frame)
        ctx.trace.add(step, time.perf_counter() - begin, out.length)
    ctx.check_bytes(8 * out.length * len(out.bound), "a step")
    return out


@dataclass(frozen=True, slots=True, eq=False)
class FilterStep:
    """Keep the rows where a predicate over several variables (or none) is true."""

    test: Evaluate
    reads: frozenset[str]
    text: Shown
    share: float  # of rows for which it is expected to be true
    blocks: tuple[tuple[Step, ...], ...] = ()  # the steps of each block in it

    def run(self, ctx: Context, frame: Frame) -> Frame:
        if frame.length == 0:
            return frame
        if self.blocks or frame.length <= BLOCK_ROWS:  # what a block finds for one row serves others too
            return frame.take(as_mask(self.test(FrameEnv(ctx, frame)), frame.length))
        # The values asked for are taken for some rows at a time: a column for all of them may be far larger than the
        # table it is of.
        size = max(BLOCK_ROWS, frame.length // _BLOCKS)
        masks = []
        for at in range(0, frame.length, size):
            ctx.check()
            some = frame.part(at, at + size)
            masks.append(as_mask(self.test(FrameEnv(ctx, some)), some.length))
        return frame.take(np.concatenate(masks))

    def bind(self, memory: Memory) -> Run:
        return self.run

    def expected(self, rows: float) -> float:
        return rows * self.share

    def describe(self, ctx: Context, rows: float) -> str:
        steps = tuple(step for block in self.blocks for step in block)
        return indented(f"filter  {self.text}", steps, ctx, rows)


@dataclass(frozen=True, slots=True, eq=False)
class KeepStep:
    """Drop the variables nobody reads any more."""

    names: frozenset[str]

    def run(self, ctx: Context, frame: Frame) -> Frame:
        return frame.keep(self.names)

    def bind(self, memory: Memory) -> Run | None:
        if self.names.issuperset(memory.bound):
            return None
        memory.keep(self.names)
        return self.run

    def expected(self, rows: float) -> float:
        return rows

    def describe(self, ctx: Context, rows: float) -> str:
        return ""


def present(frame: Frame, *names: str) -> Frame:
    """The rows in which none of these variables is null."""
    for name in names:
        bound = frame.bound[name]
        if bound.nullable:
            frame = frame.take(np.asarray(bound.at >= 0))
            there: Indices = frame.bound[name].at
            frame = frame.bind(name, type(bound)(bound.rows, there))
    return frame


def described(steps: tuple[Step, ...], ctx: Context, rows: float) -> tuple[list[str], float]:
    """(a line for each step and those inside it, with expected and actual rows; rows expected in the end)."""
    lines: list[str] = []
    for step in steps:
        text = step.describe(ctx, rows)
        rows = step.expected(rows)
        if text:
            head, *inner = text.splitlines()
            ran = "" if ctx.trace is None else f" | {ctx.trace.of(step)}"
            lines += [f"{head}  ~{counted(rows)} rows{ran}", *inner]
    return lines, rows


def indented(head: str, steps: tuple[Step, ...], ctx: Context, rows: float) -> str:
    """A step with the steps inside it."""
    return "\n".join([head, *("    " + line for line in described(steps, ctx, rows)[0])])
