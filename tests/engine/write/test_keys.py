"""Rendered keys and hashed ids: columnar, deterministic, the same in another process."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import date

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from ulid import ULID

from omnigraph.write.keys import composite_parts, hashed_ids, render_key

OPERATION = "01ARZ3NDEKTSV4RRFFQ69G5FAV"


def test_single_parts_as_the_spec_writes_them() -> None:
    assert render_key([pa.array(["ada", None, "a\nb"])]).to_pylist() == ["ada", None, "a\nb"]
    assert render_key([pa.array([-7, 2**63 - 1])]).to_pylist() == ["-7", "9223372036854775807"]
    assert render_key([pa.array([2**64 - 1], pa.uint64())]).to_pylist() == ["18446744073709551615"]
    assert render_key([pa.array([True, False])]).to_pylist() == ["true", "false"]
    assert render_key([pa.array([date(2026, 1, 31)])]).to_pylist() == ["2026-01-31"]
    millis = pa.array([0, 1_234_567, -1], pa.int64()).view(pa.date64())
    assert render_key([millis]).to_pylist() == [
        "1970-01-01T00:00:00.000Z",
        "1970-01-01T00:20:34.567Z",
        "1969-12-31T23:59:59.999Z",
    ]


def test_timestamps_render_as_the_tables_own_type() -> None:
    zoned = pa.array([1_234_567], pa.timestamp("ms", "Europe/Rome"))
    assert render_key([zoned]).to_pylist() == ["1970-01-01T00:20:34.567Z"]


def test_composite_is_null_where_a_part_is() -> None:
    assert render_key([pa.array(["a", None, "c"]), pa.array([1, 2, None])]).to_pylist() == ['["a","1"]', None, None]


@given(st.lists(st.tuples(st.text(), st.text()), max_size=20))
@settings(max_examples=60, deadline=None)
def test_composite_is_the_json_array_of_its_parts(rows: list[tuple[str, str]]) -> None:
    rows = [r for r in rows if not any(0xD800 <= ord(c) <= 0xDFFF for part in r for c in part)]
    columns = [pa.array([r[i] for r in rows], pa.string()) for i in range(2)]
    rendered = render_key(columns).to_pylist()
    assert rendered == [json.dumps(list(r), ensure_ascii=False, separators=(",", ":")) for r in rows]
    assert [composite_parts(text) for text in rendered] == [list(r) for r in rows]


def test_hashed_ids_are_ulids_that_sort_by_operation() -> None:
    ids = hashed_ids(OPERATION, "people.jsonl", np.arange(1000)).to_pylist()
    assert len(set(ids)) == 1000
    assert all(str(ULID.from_str(i)) == i and i.startswith(OPERATION[:10]) for i in ids)


def test_hashed_ids_depend_on_operation_file_and_ordinal_alone() -> None:
    base = hashed_ids(OPERATION, "a", np.array([5, 9]))
    assert hashed_ids(OPERATION, "a", np.array([9, 5])).to_pylist() == base.to_pylist()[::-1]
    others = [hashed_ids("01BRZ3NDEKTSV4RRFFQ69G5FAV", "a", np.array([5])), hashed_ids(OPERATION, "b", np.array([5]))]
    assert all(o[0].as_py() != base[0].as_py() for o in others)


def test_hashed_ids_stay_what_earlier_releases_made() -> None:
    """A load that an older process began and a newer one tries again must make the same edges."""
    ordinals = np.array([0, 1, 2**40])
    assert hashed_ids(OPERATION, "people.jsonl", ordinals).to_pylist() == [
        "01ARZ3NDEKDYEEHDFXWNFWKNGJ",
        "01ARZ3NDEKH5M5WAEZ99Y9VPDX",
        "01ARZ3NDEKVVGT9TW27EATAWN0",
    ]


def test_hashed_ids_are_the_same_however_records_are_batched() -> None:
    whole = hashed_ids(OPERATION, "a", np.arange(20_001)).to_pylist()
    for size in (1000, 8192, 8193):
        parts = [hashed_ids(OPERATION, "a", np.arange(20_001)[at : at + size]) for at in range(0, 20_001, size)]
        assert pa.chunked_array(parts).to_pylist() == whole


def test_hashed_ids_do_not_collide_over_a_million_records_of_two_files() -> None:
    n = 500_000
    both = pa.chunked_array([hashed_ids(OPERATION, f, np.arange(n)) for f in ("a", "b")])
    assert len(both.unique()) == 2 * n


def test_hashed_ids_are_the_same_in_another_process() -> None:
    code = (
        "import numpy as np; from omnigraph.write.keys import hashed_ids; "
        f"print(hashed_ids('{OPERATION}', 'a', np.arange(3)).to_pylist())"
    )
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"PYTHONPATH": "engine"}
    )
    assert out.stdout.strip() == str(hashed_ids(OPERATION, "a", np.arange(3)).to_pylist())
