"""`IdIndex` against a dictionary: strings of one length and of many, columns cut out of others, and crowded buckets."""

from __future__ import annotations

import random
import tracemalloc

import numpy as np
import pyarrow as pa
import pytest

from omnigraph.read import hashing
from omnigraph.read.hashing import IdIndex, hash_one, hash_strings


@pytest.mark.parametrize("crowded", [False, True])
@pytest.mark.parametrize("block", [7, 64, 16384])
def test_it_finds_what_is_there(monkeypatch: pytest.MonkeyPatch, block: int, crowded: bool) -> None:
    monkeypatch.setattr(hashing, "_BLOCK", block)
    if crowded:  # all hashes alike, so that only the strings tell
        monkeypatch.setattr(hashing._Part, "hashes", lambda part: np.full(len(part.starts), 7, dtype=np.uint64))
    seed = random.randrange(1 << 30)
    print("seed", seed)
    rng = random.Random(seed)

    def texts(count: int, alphabet: str, shortest: int, longest: int) -> list[str]:
        return ["".join(rng.choices(alphabet, k=rng.randint(shortest, longest))) for _ in range(count)]

    for _ in range(100):
        alphabet = rng.choice(["ab", "a\0", "aé€", "0123456789"])
        lengths = rng.choice([(0, 3), (8, 8), (7, 9), (15, 15), (0, 40), (1, 1), (16, 17)])
        ids = texts(rng.randrange(60), alphabet, *lengths)
        asked = [*texts(rng.randrange(60), alphabet, *lengths), *rng.sample(ids, len(ids) // 2), None]
        cut = rng.randrange(3)
        index = IdIndex(pa.array(["before"] * cut + ids, pa.string()).slice(cut))
        kind = rng.choice([pa.string(), pa.large_string()])
        at = index.positions(pa.array([None] * cut + asked, kind).slice(cut)).tolist()
        assert len(index) == len(ids)
        known = set(ids)
        assert [None if i < 0 else ids[i] for i in at] == [t if t in known else None for t in asked]
        if not crowded:
            assert hash_strings(pa.array(ids, pa.string())).tolist() == [hash_one(t) for t in ids]


@pytest.mark.parametrize("block", [1, 3, 1 << 18])
def test_where_numbers_begin(monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    monkeypatch.setattr(hashing, "_NUMBERS", block)
    for numbers in ([], [0], [7], [0, 0, 2, 5, 5, 5, 7], [3] * 9):
        found = hashing._beginnings(np.array(numbers, dtype=np.int64), 8, np.dtype(np.int32))
        assert found.tolist() == [sum(n < at for n in numbers) for at in range(9)]
        assert found.dtype == np.int32


def test_making_it_takes_a_hundred_bytes_an_id_at_most() -> None:
    count = 1 << 18
    ids = pa.array(np.arange(count)).cast(pa.string())
    tracemalloc.start()
    try:
        index = IdIndex(ids)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert index.positions(ids.slice(1000, 5)).tolist() == [1000, 1001, 1002, 1003, 1004]
    print("bytes", peak / count)
    assert peak < 100 * count
