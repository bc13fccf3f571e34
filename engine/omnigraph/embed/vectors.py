"""What a provider's numbers must be before they are anyone's vectors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

__all__ = ["BadVector", "Matrix", "unit_vectors"]

Matrix: TypeAlias = npt.NDArray[np.float32]


class BadVector(ValueError):
    """A provider's answer that is no vector; the text says why."""


def unit_vectors(rows: Sequence[Any], dim: int) -> Matrix:
    """The rows as float32 of shape (n, dim), each of length one (L2).

    Raises:
        BadVector: a row isn't `dim` finite numbers, or is all zeros.
    """
    out = np.empty((len(rows), dim), dtype=np.float32)
    for i, row in enumerate(rows):
        if not isinstance(row, list):
            raise BadVector(f"vector {i} is no list of numbers")
        if len(row) != dim:
            raise BadVector(f"vector {i} has {len(row)} numbers, and the property has {dim}")
        values = np.asarray(row) if all(type(v) in (int, float) for v in row) else None
        if values is None or values.dtype.kind not in "fiu":
            raise BadVector(f"vector {i} holds something that is no number")
        exact = values.astype(np.float64)
        if not np.isfinite(exact).all():
            raise BadVector(f"vector {i} holds NaN or infinity")
        largest = float(np.abs(exact).max()) if dim else 0.0
        if largest == 0.0:
            raise BadVector(f"vector {i} is all zeros, which has no direction")
        exact /= largest  # squares of the largest doubles would be infinite
        out[i] = exact / np.sqrt(float(exact @ exact))
    return out
