"""`duplicates` against a plain count, with hashes that collide as well."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

from omnigraph.write import constraints


@pytest.mark.parametrize("hashing", ["real", "colliding"])
def test_it_marks_what_stands_twice(monkeypatch: pytest.MonkeyPatch, hashing: str) -> None:
    if hashing == "colliding":
        monkeypatch.setattr(constraints, "hash_strings", lambda c: np.zeros(len(c), dtype=np.uint64))
    seed = random.randrange(1 << 30)
    print("seed", seed)
    rng = random.Random(seed)
    for _ in range(300):
        values = [rng.choice([None, "", "a", "b" * 9, "ü", str(rng.randrange(20))]) for _ in range(rng.randrange(12))]
        cut = rng.randrange(len(values) + 1)
        whole = pa.array(["before", *values, "after"], pa.string()).slice(1, len(values))
        chunked = pa.chunked_array([whole.slice(0, cut), whole.slice(cut)], pa.string())
        counts = Counter(v for v in values if v is not None)
        wanted = [v is not None and counts[v] > 1 for v in values]
        for column in (whole, chunked):
            got = constraints.duplicates(column)
            assert (got.to_pylist() if got is not None else [False] * len(values)) == wanted
