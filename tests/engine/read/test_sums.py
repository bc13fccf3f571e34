"""Sums of floats: the same bits whatever the order of the rows, and those of the exact sum."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.read import sums
from omnigraph.read.sums import float_means, float_sums

LARGEST = np.finfo(np.float64).max
VALUES = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False),
    st.floats(-1000, 1000),
    st.sampled_from([0.1, 0.2, 0.3, -0.0, 1e308, -1e308, 5e-324, 2.0**53, 1e16, -1e16]),
    st.integers(-(2**40), 2**40).map(float),
)


def exact(values: list[float]) -> float:
    try:
        return math.fsum(values)
    except OverflowError:
        return math.inf


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.tuples(VALUES, st.integers(0, 2)), max_size=30),
    st.sampled_from([1, 16]),
    st.randoms(use_true_random=False),
)
def test_the_order_of_the_rows_makes_no_difference(rows: list[tuple[float, int]], block: int, chance: Any) -> None:
    def summed() -> Any:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sums, "_BLOCK", block)
            return float_sums(np.array([v for v, _ in rows]), np.array([g for _, g in rows], dtype=np.int64), 3)

    first = summed()
    for group, got in enumerate(first.tolist()):
        values = [v for v, g in rows if g == group]
        want = exact(values)
        if math.isfinite(want) and math.isfinite(got):
            assert abs(got - want) <= max(math.ulp(want), 1e-30 * max(map(abs, values), default=0.0))
    for _ in range(3):
        chance.shuffle(rows)
        assert summed().tobytes() == first.tobytes()


def test_many_rows_of_mixed_magnitude() -> None:
    chance, rows = np.random.default_rng(5), 50_000
    values = chance.standard_normal(rows) * 10.0 ** chance.integers(-12, 12, rows)
    groups = chance.integers(0, 7, rows)
    first = float_sums(values, groups, 7)
    order = chance.permutation(rows)
    assert float_sums(values[order], groups[order], 7).tobytes() == first.tobytes()
    for group in range(7):
        want = math.fsum(values[groups == group])
        assert abs(first[group] - want) <= math.ulp(want)


@pytest.mark.parametrize(
    ("values", "want"),
    [
        ([], 0.0),
        ([0.0, -0.0], 0.0),
        ([0.1] * 10, 1.0),
        ([0.1, 0.2, 0.3], 0.6),
        ([1e308, 1e308, -1e308, -1e308, 1.0], 1.0),
        ([1e300, 1.0, -1e300], 1.0),
        ([5e-324, 5e-324, -5e-324], 5e-324),
        ([2.0**52 + 1, 2.0**52 + 3, -1.0], 2.0**53 + 3),
        ([LARGEST, -LARGEST / 2], LARGEST / 2),
        ([LARGEST, LARGEST], math.inf),
    ],
)
def test_sums_are_those_of_exact_numbers(values: list[float], want: float) -> None:
    assert float_sums(np.array(values), np.zeros(len(values), dtype=np.int64), 1).tolist() == [want]


@pytest.mark.parametrize(
    ("values", "want"),
    [
        ([1.5, 1e308, 1e308, 0.0], 5e307),
        ([-1e308] * 7, -1e308),
        ([LARGEST] * 49, LARGEST),
        ([0.1, 0.2, 0.3], 0.6 / 3),
        ([math.inf, 1.0], math.inf),
    ],
)
def test_an_average_is_as_large_as_what_it_is_of(values: list[float], want: float) -> None:
    sizes = np.array([len(values), 0, 1])
    groups = np.array([0] * len(values) + [2])
    assert float_means(np.array([*values, 2.5]), groups, sizes).tolist() == [want, 0.0, 2.5]


def test_a_group_of_small_numbers_is_summed_beside_a_group_of_large_ones() -> None:
    values, groups = np.array([1e300, 0.1, 1e308, 0.2, 5e-324]), np.array([0, 1, 0, 1, 2])
    assert float_sums(values, groups, 4).tolist() == [1e308 + 1e300, 0.1 + 0.2, 5e-324, 0.0]
