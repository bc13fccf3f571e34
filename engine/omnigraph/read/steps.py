"""What every step of a plan is, and the two simplest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from omnigraph.read.datum import Evaluate, as_mask
from omnigraph.read.env import FrameEnv
from omnigraph.read.frame import Context, Frame, Indices

__all__ = ["FilterStep", "KeepStep", "Step", "indented", "present"]


class Step(Protocol):
    """One step of a plan: a frame in, a frame out."""

    def run(self, ctx: Context, frame: Frame) -> Frame: ...

    def describe(self, ctx: Context) -> str: ...


@dataclass(frozen=True, slots=True, eq=False)
class FilterStep:
    """Keep the rows where a predicate over several variables (or none) is true."""

    test: Evaluate
    reads: frozenset[str]
    text: str
    blocks: tuple[tuple[Step, ...], ...] = ()  # the steps of each block in it

    def run(self, ctx: Context, frame: Frame) -> Frame:
        if frame.length == 0:
            return frame
        return frame.take(as_mask(self.test(FrameEnv(ctx, frame)), frame.length))

    def describe(self, ctx: Context) -> str:
        steps = tuple(step for block in self.blocks for step in block)
        return indented(f"filter  {self.text}", steps, ctx)


@dataclass(frozen=True, slots=True, eq=False)
class KeepStep:
    """Drop the variables nobody reads any more."""

    names: frozenset[str]

    def run(self, ctx: Context, frame: Frame) -> Frame:
        return frame.keep(self.names)

    def describe(self, ctx: Context) -> str:
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


def indented(head: str, steps: tuple[Step, ...], ctx: Context) -> str:
    """A step with the steps inside it, for `explain`."""
    inner = (line for step in steps for line in step.describe(ctx).splitlines())
    return "\n".join([head, *("    " + line for line in inner)])
