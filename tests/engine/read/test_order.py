"""Sorting key by key, of many rows and of the first few, against sorting by all keys at once."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from omnigraph.read.compute import flags
from omnigraph.read.order import AskedKey, likely_key, rows_in_order, sort_key

_SHORT = ["", "a", "a\0", "a\0\0", "ab", "é"]
_TEXTS = ["", "a", "a\0", "a\0\0", "ab", "abcdefgh", "abcdefghi", "abcdefgh\0", "é", "日本", "z" * 20]


def _column(rng: random.Random, count: int) -> Any:
    kind = rng.choice(["int", "float", "text", "shared", "short", "short", "constant", "long"])
    null = rng.choice([0.0, 0.3, 1.0 if count < 50 else 0.1])
    if kind == "int":
        values: list[Any] = [rng.randrange(-3, 4) for _ in range(count)]
    elif kind == "float":
        values = [rng.choice([0.0, -0.0, 1.5, -2.0]) for _ in range(count)]
    elif kind == "constant":
        values = ["same"] * count
    else:
        shared = {"shared": "common ", "long": "common"}.get(kind, "")
        tails = {"short": _SHORT, "long": [t + u for t in _TEXTS for u in _TEXTS]}.get(kind, _TEXTS)
        values = [shared + rng.choice(tails) for _ in range(count)]
    known = [False, *(rng.random() >= null for _ in values)]
    type_ = {"int": pa.int64(), "float": pa.float64()}.get(kind, rng.choice([pa.string(), pa.large_string()]))
    whole: Any = pa.array([values[0] if values else None, *values], type_)
    bits: Any = pa.array(known).buffers()[1]
    padded: Any = pa.Array.from_buffers(type_, len(whole), [bits, *whole.buffers()[1:]])  # values stand under the nulls
    return padded.slice(1)  # not at the buffers' beginning


def _naive(columns: list[tuple[Any, bool]], count: int) -> list[int]:
    """Nulls first ascending, last descending; stable sorts from the last key to the first."""
    order = list(range(count))
    for column, descending in reversed(columns):
        values = [v.encode() if isinstance(v, str) else v for v in column.to_pylist()]
        order.sort(key=lambda i: (values[i] is not None, values[i] if values[i] is not None else 0), reverse=descending)
    return order


@pytest.mark.parametrize("seed", range(40))
def test_keys_asked_in_turn_give_the_order_of_all(seed: int) -> None:
    rng = random.Random(seed)
    count = rng.choice([0, 1, 2, 40, 1500])  # texts of more than a thousand rows go by their beginnings first
    columns = [(_column(rng, count), rng.random() < 0.5) for _ in range(rng.choice([1, 2, 3]))]
    unique = pa.array(rng.sample(range(count), count), pa.int64())
    columns.append((unique, False))
    asked: list[int] = []

    def key(column: Any, descending: bool) -> AskedKey:
        def of(some: Any, exact: bool) -> Any:
            asked.append(count if some is None else len(some))
            part = column if some is None else column.take(pa.array(some))
            return (sort_key if exact else likely_key)(part, descending=descending)

        return of

    wanted = _naive(columns, count)
    for stop in (None, 0, 1, 3, count // 3, count, count + 5):
        asked.clear()
        found = rows_in_order(count, [key(c, d) for c, d in columns], stop)
        assert found.tolist() == wanted[:stop], (seed, stop)
        assert stop != 0 or not asked


def test_later_keys_are_asked_of_few() -> None:
    rng = np.random.default_rng(3)
    lead, other = rng.integers(0, 90, 20_000), rng.permutation(20_000)
    asked: list[int] = []

    def second(some: Any, exact: bool) -> Any:
        asked.append(len(some))
        return sort_key(pa.array(other[some]))

    found = rows_in_order(20_000, [lambda some, exact: sort_key(pa.array(lead)), second], 10)
    assert found.tolist() == np.lexsort((other, lead))[:10].tolist()
    assert asked == [int((lead == 0).sum())]


@pytest.mark.parametrize("offset", [0, 1, 7, 8, 13])
def test_flags_of_a_part_of_a_column(offset: int) -> None:
    rng = np.random.default_rng(offset)
    values = rng.random(100) < 0.5
    column: Any = pa.array(values).slice(offset, 60)
    assert flags(column).tolist() == values[offset : offset + 60].tolist()
    assert flags(column.slice(0, 0)).tolist() == []
