"""Each number once, by sorting. numpy's `unique` hashes integers, which takes ten times as long for a few hundred."""

from __future__ import annotations

from typing import Any, TypeVar, cast

import numpy as np
import numpy.typing as npt

from omnigraph.read.datum import Bools

__all__ = ["begins", "different", "once"]

_FEW = 4096

Ints = TypeVar("Ints", bound=npt.NDArray[np.integer[Any]])


def begins(ordered: npt.NDArray[np.integer[Any]]) -> Bools:
    """Where a sorted array has another number than before."""
    out = np.empty(len(ordered), dtype=bool)
    out[:1] = True
    np.not_equal(ordered[1:], ordered[:-1], out=out[1:])
    return out


def once(numbers: Ints) -> Ints:
    """Each number once, ascending."""
    if len(numbers) < 2:
        return numbers
    ordered = numbers.copy()
    ordered.sort()
    return cast("Ints", ordered[begins(ordered)])


def different(numbers: npt.NDArray[np.integer[Any]], span: int) -> int:
    """How many different numbers there are, all of them from 0 to below `span`."""
    if span <= max(_FEW, 16 * len(numbers)):
        return int(np.count_nonzero(np.bincount(numbers, minlength=1)))
    return len(once(numbers))
