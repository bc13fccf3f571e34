"""Sums of floats by group that don't depend on the order of the rows.

Adding floats rounds after every step, so the order in which rows are met shows in the last digits. Here each fold cuts
all numbers on one grid that is coarse enough for their sums to be exact in any order; what is cut off is summed by the
next fold, on a finer grid, until nothing is left.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from omnigraph.read.datum import Longs

__all__ = ["float_means", "float_sums"]

Doubles = npt.NDArray[np.float64]

_FOLDS = 3  # as many as most columns need
_BLOCK = 1 << 14  # values that stay in the processor's cache from fold to fold
_LARGE, _SCALE = 2.0**900, 128
"""Numbers from here on are summed as so many powers of two less: a grid for them would be beyond the largest double."""


def float_sums(values: Doubles, groups: Longs, count: int) -> Doubles:
    """The sum of each group's values: the same bits for any order of the rows, the double nearest to the exact sum but
    for rare last digits, infinite beyond the doubles.

    Args:
        values: (n,) numbers; where one isn't finite, sums are as they come.
        groups: (n,) the group of each, from 0 to `count` - 1.
    """
    highest = float(np.abs(values).max(initial=0.0))
    if not math.isfinite(highest):
        return np.bincount(groups, weights=values, minlength=count).astype(np.float64)
    if highest < _LARGE:
        return _folded(values, groups, count)
    large = np.abs(values) >= _LARGE
    with np.errstate(over="ignore"):
        sums = np.ldexp(_folded(np.ldexp(values[large], -_SCALE), groups[large], count), _SCALE)
    return np.asarray(sums + _folded(values[~large], groups[~large], count))


def float_means(values: Doubles, groups: Longs, sizes: Longs) -> Doubles:
    """The average of each group's values, finite where they are, though their sum may be beyond the doubles; the same
    bits for any order of the rows.

    Args:
        values: (n,) numbers.
        groups: (n,) the group of each.
        sizes: how many values each group has; 0 for one with none.
    """
    sizes = np.maximum(sizes, 1)
    means = float_sums(values, groups, len(sizes)) / sizes
    if not np.isfinite(means).all():
        less = float_sums(np.ldexp(values, -_SCALE), groups, len(sizes)) / sizes
        most = np.where(np.isfinite(less), np.finfo(np.float64).max, np.inf)  # rounding may go one step beyond
        with np.errstate(over="ignore"):
            means = np.where(np.isfinite(means), means, np.clip(np.ldexp(less, _SCALE), -most, most))
    return means


def _folded(values: Doubles, groups: Longs, count: int) -> Doubles:
    folds: list[Doubles] = []
    while len(values):
        # With n values below 2^e and a grid of 2^(e + bits - 52), all sums are at most 2^52 steps of it.
        bits = len(values).bit_length()
        exponent = math.frexp(max(float(values.max()), -float(values.min())))[1]
        magnets = [math.ldexp(1.5, exponent + bits + fold * (bits - 53)) for fold in range(_FOLDS)]
        sums, left = np.zeros((_FOLDS, count)), []
        size = max(_BLOCK, 2 * count)
        for low in range(0, len(values), size):
            part, of = values[low : low + size], groups[low : low + size]
            for fold, magnet in zip(sums, magnets, strict=True):
                cut = part + magnet
                cut -= magnet
                fold += np.bincount(of, cut, count)
                part = part - cut
                there = np.flatnonzero(part)
                if 2 * len(there) < len(part):
                    part, of = part[there], of[there]
                if not len(there):
                    break
            else:
                there = np.flatnonzero(part)
                left.append((part[there], of[there]))
        folds.extend(sums)
        values = np.concatenate([np.zeros(0), *(part for part, _ in left)])
        groups = np.concatenate([groups[:0], *(of for _, of in left)])
    total, lost = np.zeros(count), np.zeros(count)
    for fold in reversed(folds):  # from small to large, each with what its rounding lost
        new = total + fold
        part = new - total
        lost += (total - (new - part)) + (fold - part)
        total = new
    return total + lost
