"""`contains` over a whole column says what it says of each text."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

from omnigraph.read import substrings
from omnigraph.read.compare import holds_text


@pytest.mark.parametrize("seed", range(30))
def test_a_part_is_found_in_the_texts_that_hold_it(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(seed)
    monkeypatch.setattr(substrings, "_SMALL", 0)
    monkeypatch.setattr(substrings, "_BLOCK", rng.choice([1, 7, 100, 1 << 19]))
    alphabet = rng.choice(["ab", "abc\0", "aé日ö", "a"])
    texts = [None if rng.random() < 0.1 else "".join(rng.choices(alphabet, k=rng.randrange(8))) for _ in range(300)]
    for kind in (pa.string(), pa.large_string()):
        column: Any = pa.array([None, "ab", *texts], kind).slice(2)
        for part in ("", "a", "aa", "ab", "aba", "é日", alphabet, "b" * 9, "z"):
            found = holds_text(column, pa.scalar(part, kind))
            assert found.to_pylist() == [None if t is None else part in t for t in texts], (seed, part)
    nothing: Any = pa.array([], pa.string())
    assert substrings.holds_part(nothing, "a").to_pylist() == []
