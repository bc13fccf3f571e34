"""Which (source, node) pairs a breadth-first search has met; a pair is one number, source × size + node."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from omnigraph.read.datum import Bools, Longs
from omnigraph.read.distinct import once
from omnigraph.read.hops import Hops

__all__ = ["Met", "met_keys"]

_SORT_BELOW = 4096  # keys of a level: below it sorting them is quicker than touching the stamp array


def met_keys(hops: Hops, sources: int, first: Longs) -> Met:
    """The pairs met at the beginning: a bitmap over all pairs, or a sorted array where positions are few in a wide
    range."""
    return _Bitmap(sources * hops.size, first) if hops.dense else _Sorted(first)


class _Bitmap:
    def __init__(self, size: int, first: Longs) -> None:
        self._met = np.zeros(size, dtype=bool)
        self._met[first] = True
        self._stamp: npt.NDArray[np.int32] | None = None

    def has(self, keys: Longs) -> Bools:
        return self._met[keys]

    def add(self, keys: Longs) -> None:
        self._met[keys] = True

    def fresh(self, keys: Longs) -> Longs:
        """Those not met before, each once; they are met now."""
        keys = keys[~self._met[keys]]
        if len(keys) < _SORT_BELOW:
            keys = once(keys)
        else:
            if self._stamp is None:
                self._stamp = np.empty(len(self._met), dtype=np.int32)
            mark = np.arange(len(keys), dtype=np.int32)
            self._stamp[keys] = mark
            keys = keys[self._stamp[keys] == mark]
        self._met[keys] = True
        return keys


class _Sorted:
    def __init__(self, first: Longs) -> None:
        self._met = np.sort(first)

    def has(self, keys: Longs) -> Bools:
        return np.isin(keys, self._met)

    def add(self, keys: Longs) -> None:
        self._met = np.union1d(self._met, keys)

    def fresh(self, keys: Longs) -> Longs:
        keys = np.setdiff1d(keys, self._met)
        self.add(keys)
        return keys


Met = _Bitmap | _Sorted
