"""Each number once, by sorting. numpy's `unique` hashes integers, which takes ten times as long for a few hundred."""

from __future__ import annotations

from typing import Any, TypeVar, cast

import numpy as np
import numpy.typing as npt

from omnigraph.read.datum import Bools

__all__ = ["begins", "once"]

Ints = TypeVar("Ints", bound=npt.NDArray[np.integer[Any]])


def begins(ordered: npt.NDArray[np.integer[Any]]) -> Bools:
    """Where a sorted array has another number than before."""
    out = np.ones(len(ordered), dtype=bool)
    np.not_equal(ordered[1:], ordered[:-1], out=out[1:])
    return out


def once(numbers: Ints) -> Ints:
    """Each number once, ascending."""
    if len(numbers) < 2:
        return numbers
    ordered = np.sort(numbers)
    return cast("Ints", ordered[begins(ordered)])
