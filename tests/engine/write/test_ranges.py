"""`@range` at the borders of every type of number: judged exactly, however large its ends and the values are."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import omnigraph
from omnigraph import BadRequest

VALUES: dict[str, list[int | float]] = {
    "I32": [-(2**31), -1, 0, 3, 2**31 - 1],
    "I64": [-(2**63), -(2**53) - 1, 0, 3, 2**53 + 1, 2**63 - 1],
    "U32": [0, 3, 2**32 - 1],
    "U64": [0, 3, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1],
    "F32": [-(2.0**127), -0.5, 0.0, 2.0, 2.0**24, 2.0**64, 2.0**127],
    "F64": [-1e308, -0.5, 0.0, 2.0, 2.0**53, 2.0**53 + 2, 2.0**63, 2.0**64, 1e308],
}
ENDS = [
    "0..7", "-1..", "..7", "0.5..2.5", "..0.1", "0.1..", "..1e300", "-1e300..", f"..{2**53 + 1}", f"{-(2**53) - 1}..",
    f"..{2**63 - 1}", f"..{2**64 - 1}", f"{2**63 - 1}..", f"..{10**23}", f"{-(10**23)}..", f"..{10**30}",
]  # fmt: skip
CASES = [(i, ends) for i, ends in enumerate(ENDS)]
BEYOND = {"I32", "U32"}
"""Types that have no value above 2^63 - 1: such a range is refused with the schema."""


def fits(kind: str, ends: str, value: int | float) -> bool:
    low, _, high = ends.partition("..")
    least, most = (Fraction(end) if end else None for end in (low, high))
    if kind == "F32":  # the ends are stored numbers too
        least, most = (
            end if end is None or abs(end) > 2**127 else Fraction(float(np.float32(end))) for end in (least, most)
        )
    return (least is None or value >= least) and (most is None or value <= most)


@pytest.mark.parametrize("kind", VALUES)
def test_an_end_may_be_written_as_it_stands(tmp_path: Path, kind: str) -> None:
    """0.3 as an F32 is a little more than 0.3, and still the end of the range."""
    ends = ("0.1", "0.3") if kind.startswith("F") else ("1", "3")
    default = "" if kind[0] != "F" else f" @default({ends[1]})"
    graph = omnigraph.init(tmp_path / "g", schema=f"node T {{ x: {kind}{default}  @range(x, {ends[0]}..{ends[1]}) }}")
    lines = [f'{{"type": "T", "data": {{"x": {end}}}}}' for end in ends]
    graph.load("\n".join(lines if not default else [*lines, '{"type": "T", "data": {}}']))
    for end in ends:
        graph.mutate(f"query q() {{ insert T {{ x: {end} }} }}")
    assert graph.verify().ok


@pytest.mark.parametrize("kind", VALUES)
def test_ranges_are_exact(tmp_path: Path, kind: str) -> None:
    cases = [(f"T{i}", ends) for i, ends in CASES if not (kind in BEYOND and ends == f"{2**63 - 1}..")]
    graph = omnigraph.init(
        tmp_path / "g", schema="\n".join(f"node {t} {{ x: {kind}?  @range(x, {ends}) }}" for t, ends in cases)
    )
    every = [(node, ends, value) for node, ends in cases for value in VALUES[kind]]
    lines = {case: json.dumps({"type": case[0], "data": {"x": case[2]}}) for case in every}
    bad = [i for i, case in enumerate(every, 1) if not fits(kind, *case[1:])]
    graph.load("\n".join(lines.values()), quarantine=tmp_path / "bad.ndjson")
    aside = [json.loads(line) for line in (tmp_path / "bad.ndjson").read_text().splitlines()]
    assert [one["line"] for one in aside] == bad
    assert {reason["kind"] for one in aside for reason in one["reasons"]} == {"range"}
    for node, ends, value in every:
        stored = graph.query(f"query q() {{ match {{ $t: {node} }} return {{ $t.x as x }} }}").to_pylist()
        assert ({"x": np.float32(value) if kind == "F32" else value} in stored) == fits(kind, ends, value)
    node, ends = cases[0]
    for value in VALUES[kind]:
        insert = f"query q($x: {kind}) {{ insert {node} {{ x: $x }} }}"
        if fits(kind, ends, value):
            assert graph.mutate(insert, {"x": value}).nodes == 1
        else:
            with pytest.raises(BadRequest, match="outside @range"):
                graph.mutate(insert, {"x": value})
    assert graph.verify().ok
