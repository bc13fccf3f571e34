"""`nearest`: the cosine distance, 1 − cos, of each row's vector to one vector.

All rows are compared in single precision, by one matrix product; the distance itself is computed row by row in double
precision, in one order of summation, so that equal vectors have equal distances whatever stands around them.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from omnigraph.read.compute import Array
from omnigraph.read.datum import Bools, Longs, validity
from omnigraph.read.standing import Floats, Standing
from omnigraph.read.tables import Rows
from omnigraph.records import dataclass

__all__ = ["Vectors", "nearness", "vectors_of"]

Singles = npt.NDArray[np.float32]

_BLOCK = 1 << 15
_GATHERED = 24_000  # numbers gathered at once, less than what malloc gives back to the system
_STRANGE = 1e15  # a vector longer than this, or shorter than one over this, isn't trusted to single precision


@dataclass(frozen=True, eq=False)
class Vectors:
    """A column of vectors.

    Args:
        matrix: one vector a row; what stands under a null has no meaning.
        norms: the length of each.
        inverse: one over the length; 0 where the vector is null or all zeros.
        known: neither null nor all zeros.
        strange: which are too long or too short for single precision.
    """

    matrix: Singles
    norms: Floats
    inverse: Singles
    known: Bools
    strange: Longs

    @classmethod
    def of(cls, column: Array) -> Vectors:
        dim = column.type.list_size
        flat = column.values.slice(column.offset * dim, len(column) * dim)
        matrix = flat.to_numpy(zero_copy_only=False).reshape(-1, dim)
        norms = np.zeros(len(column))
        for begin in range(0, len(column), _BLOCK):
            block = matrix[begin : begin + _BLOCK].astype(np.float64)
            norms[begin : begin + _BLOCK] = np.sqrt(np.einsum("ij,ij->i", block, block))
        known = validity(column) & (norms > 0) & np.isfinite(norms)
        norms[~known] = 0.0
        strange = np.flatnonzero(known & ((norms > _STRANGE) | (norms < 1 / _STRANGE)))
        inverse = np.zeros(len(norms), dtype=np.float32)
        with np.errstate(over="ignore"):
            np.divide(1.0, norms, out=inverse, where=known, casting="same_kind")
        return cls(matrix, norms, inverse, known, strange)

    @property
    def nbytes(self) -> int:
        """Without the vectors themselves, which are the column's."""
        return int(self.norms.nbytes + self.inverse.nbytes + self.known.nbytes)

    def cosines(self, query: Floats, at: Longs) -> Singles:
        """About the cosine of each of some rows, within `slack`; those single precision can't tell are at infinity."""
        direction = (query / np.sqrt(query @ query)).astype(np.float32)
        with np.errstate(over="ignore", invalid="ignore"):
            if len(at) * 4 < len(self.known):
                out = self._products(direction, at)
                out *= self.inverse[at]
            else:
                out = ((self.matrix @ direction) * self.inverse)[at]
        return out

    def _products(self, direction: Singles, at: Longs) -> Singles:
        """Gathered a block at a time into the same memory: a large new array costs more in page faults than to fill."""
        size = max(1, _GATHERED // max(1, self.matrix.shape[1]))
        out = np.empty(len(at), dtype=np.float32)
        block = np.empty((min(size, len(at)), self.matrix.shape[1]), dtype=np.float32)
        for begin in range(0, len(at), size):
            some = at[begin : begin + size]
            part = block[: len(some)]
            np.take(self.matrix, some, axis=0, out=part, mode="clip")
            np.dot(part, direction, out=out[begin : begin + size])
        return out

    @property
    def slack(self) -> float:
        """A bound on the error of `cosines`: of a sum of as many products, and of the roundings before and after."""
        return float((self.matrix.shape[1] + 8) * np.finfo(np.float32).eps)

    def distances(self, query: Floats, at: Longs) -> Floats:
        """The distance of some rows, none of them unknown."""
        out = np.empty(len(at))
        length = np.sqrt(query @ query)
        for begin in range(0, len(at), _BLOCK):
            some = at[begin : begin + _BLOCK]
            dots = np.einsum("ij,j->i", self.matrix[some].astype(np.float64), query)
            out[begin : begin + _BLOCK] = 1.0 - dots / (self.norms[some] * length)
        return np.clip(out, 0.0, 2.0, out=out)  # rounding would put vectors of one direction a little below 0


def vectors_of(rows: Rows, name: str) -> Vectors:
    """The vectors of a column; kept with the rows."""
    return rows.derived("vectors", name, lambda: Vectors.of(rows.column(name)))


def nearness(rows: Rows, name: str, at: Longs, back: Longs | None, query: Floats) -> Standing:
    """How some rows stand by their distance to a vector that isn't zero."""
    vectors = vectors_of(rows, name)
    there = at if not len(at) or int(at.min()) >= 0 else np.maximum(at, 0)
    known = vectors.known[there] & (at >= 0) if rows.rows else np.zeros(len(at), dtype=bool)
    slack = vectors.slack
    likely: npt.NDArray[np.floating]
    if len(vectors.strange):
        likely = np.zeros(len(at))
        likely[known] = 1.0 - vectors.distances(query, at[known])
        slack = 0.0
    else:
        likely = vectors.cosines(query, there) if rows.rows else np.zeros(len(at))
    return Standing(rows, at, back, likely, slack, known, lambda some: vectors.distances(query, at[some]), less=True)
