"""The provider for tests and trials: no network, the same vectors everywhere, and texts with common words are near."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence

import numpy as np

from omnigraph.embed.vectors import Matrix

__all__ = ["mock_vectors"]

_WORD = re.compile(r"\w+")


def mock_vectors(texts: Sequence[str], dim: int) -> Matrix:
    """Hashed words (Weinberger et al. 2009, feature hashing), of shape (n, dim), each of length one.

    The whole text counts a little too, so that different texts have different vectors and none is zero.
    """
    out = np.zeros((len(texts), dim), dtype=np.float64)
    for i, text in enumerate(texts):
        for word in _WORD.findall(text.lower()):
            at, sign = _place(word, dim)
            out[i, at] += sign
        whole = np.frombuffer(hashlib.shake_256(text.encode()).digest(dim * 4), dtype="<u4")
        out[i] += 0.1 * (whole / 2.0**31 - 1.0) + 1e-6
    lengths = np.sqrt(np.einsum("ij,ij->i", out, out))
    vectors: Matrix = (out / lengths[:, None]).astype(np.float32)
    return vectors


def _place(word: str, dim: int) -> tuple[int, float]:
    number = int.from_bytes(hashlib.blake2b(word.encode(), digest_size=8).digest(), "little")
    return (number >> 1) % dim, 1.0 if number & 1 else -1.0
