"""What every merge must obey, on any rows (the step) and on any small histories (whole graphs)."""

from __future__ import annotations

import itertools
import json
import shutil
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import omnigraph
from omnigraph.errors import MergeConflicts
from omnigraph.write.merge_step import merge_step, same_rows

TYPE = pa.schema(
    [
        pa.field("id", pa.string()),
        pa.field("n", pa.float64()),
        pa.field("l", pa.list_(pa.int64())),
        pa.field("v", pa.list_(pa.float32(), 2)),
    ]
)
IDS = list("abcdef")
values = st.tuples(
    st.sampled_from([None, 0.0, 1.5, float("nan")]),
    st.sampled_from([None, [], [1], [1, None], [2, 1]]),
    st.sampled_from([None, [0.0, 1.0], [1.0, 0.0]]),
)
sides = st.dictionaries(st.sampled_from(IDS), values)
Side = Mapping[str, tuple[Any, ...]]


def table(side: Side) -> pa.Table:
    return pa.Table.from_pylist([{"id": k, "n": v[0], "l": v[1], "v": v[2]} for k, v in side.items()], schema=TYPE)


def plain(side: Side) -> dict[str, str]:
    """Comparable: NaN equals itself as text."""
    return {k: repr(v) for k, v in side.items()}


def merged(base: Side, ours: Side, theirs: Side) -> tuple[dict[str, tuple[Any, ...]], set[str]]:
    """Ours after the step, and the ids it couldn't decide."""
    step = merge_step(pa.array(IDS), table(base), table(ours), table(theirs))
    out = {k: v for k, v in ours.items() if k not in set(step.deletes.to_pylist())}
    for rows, known in ((step.inserts, False), (step.updates, True)):
        for row in rows["id"].to_pylist():
            assert (row in ours) is known
            out[row] = theirs[row]
    return out, {clash.id for clash in step.clashes}


@settings(max_examples=150, deadline=None)
@given(sides, sides, sides)
def test_the_step_is_what_a_dictionary_says(base: Side, ours: Side, theirs: Side) -> None:
    b, o, t = plain(base), plain(ours), plain(theirs)
    result, clashes = merged(base, ours, theirs)
    for key in IDS:
        if b.get(key) == t.get(key) or o.get(key) == t.get(key):
            expected = o.get(key)
        elif b.get(key) == o.get(key):
            expected = t.get(key)
        else:
            assert key in clashes
            continue
        assert key not in clashes
        assert plain(result).get(key) == expected


@settings(max_examples=100, deadline=None)
@given(sides, sides, sides)
def test_identity_equality_and_symmetry(base: Side, ours: Side, theirs: Side) -> None:
    assert merged(base, ours, base) == (dict(ours), set())
    result, clashes = merged(base, base, theirs)
    assert (plain(result), clashes) == (plain(theirs), set())
    assert merged(base, ours, ours) == (dict(ours), set())
    one, other = merged(base, ours, theirs), merged(base, theirs, ours)
    assert one[1] == other[1]
    keep = set(IDS) - one[1]
    assert {k: v for k, v in plain(one[0]).items() if k in keep} == {
        k: v for k, v in plain(other[0]).items() if k in keep
    }


@settings(max_examples=60, deadline=None)
@given(
    sides, st.lists(st.tuples(st.sampled_from(IDS), st.one_of(st.none(), values)), max_size=6, unique_by=lambda c: c[0])
)
def test_disjoint_changes_come_in_any_order(base: Side, changes: list[tuple[str, Any]]) -> None:
    versions = []
    for key, value in changes:
        side = dict(base)
        side.pop(key, None)
        versions.append(side if value is None else side | {key: value})
    outcomes = []
    for order in itertools.islice(itertools.permutations(versions), 6):
        state: Side = dict(base)
        for theirs in order:
            state, clashes = merged(base, state, theirs)
            assert clashes == set()
        outcomes.append(plain(state))
    assert all(outcome == outcomes[0] for outcome in outcomes)


def test_equality_of_every_kind_of_value() -> None:
    structs = pa.array([{"a": 1}, {"a": None}, None], pa.struct([("a", pa.int64())]))
    one = pa.table({"s": structs, "t": ["x", None, "z"]})
    other = pa.table({"s": structs, "t": ["x", None, "y"]})
    assert same_rows(one, other).tolist() == [True, True, False]
    assert same_rows(one.slice(0, 0), one.slice(0, 0)).dtype == np.bool_
    sliced = pa.table({"l": pa.array([[9], [1, 2], []], pa.list_(pa.int64())).slice(1)})
    assert same_rows(sliced, pa.table({"l": pa.array([[1, 2], []], pa.list_(pa.int64()))})).tolist() == [True, True]


# ---- whole graphs ----------------------------------------------------------------------------------------------------

SCHEMA = "node N { k: String @key  v: I64? }\nedge E: N -> N @card(0..2) { w: I64?  @key(src, dst) }\n"
node_changes = st.tuples(st.just("node"), st.sampled_from("abc"), st.sampled_from([None, 1, 2]))
edge_changes = st.tuples(st.just("edge"), st.sampled_from("abc"), st.sampled_from("abc"))
drops = st.tuples(st.just("drop"), st.sampled_from("abc"), st.none())
histories = st.lists(st.one_of(node_changes, node_changes, edge_changes, drops), max_size=4)


@pytest.fixture(scope="module")
def seed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("laws") / "g"
    graph = omnigraph.init(path, schema=SCHEMA)
    graph.load("".join(json.dumps({"type": "N", "data": {"k": k, "v": 0}}) + "\n" for k in "ab"))
    graph.branches.create("dev")
    graph.close()
    return path


def act(graph: omnigraph.Graph, branch: str, history: list[tuple[str, str, Any]]) -> None:
    for kind, key, value in history:
        if kind == "drop":
            graph.mutate("query q($k: String) { delete N where k = $k }", {"k": key}, branch=branch)
            continue
        record = {"type": "N", "data": {"k": key, "v": value}}
        if kind == "edge":
            known = {json.loads(line)["data"].get("k") for line in graph.export(branch=branch, types=["N"])}
            out = [line for line in graph.export(branch=branch, types=["E"]) if json.loads(line)["from"] == key]
            if not {key, value} <= known or len(out) >= 2:
                continue
            record = {"edge": "E", "from": key, "to": value, "data": {}}
        graph.load(json.dumps(record) + "\n", mode="merge", branch=branch)


def contents(graph: omnigraph.Graph, branch: str) -> list[str]:
    return sorted(graph.export(branch=branch))


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(histories, histories)
@example([("drop", "a", None)], [("node", "a", None), ("edge", "a", "a")])
def test_whole_histories(seed: Path, ours: list[Any], theirs: list[Any]) -> None:
    folder, opened = tempfile.mkdtemp(), ExitStack()
    try:
        shutil.copytree(seed, f"{folder}/one")
        graph = opened.enter_context(omnigraph.open(f"{folder}/one"))
        act(graph, "main", ours)
        act(graph, "dev", theirs)
        base = contents(graph, "main")
        graph.close()
        shutil.copytree(f"{folder}/one", f"{folder}/two")
        other = opened.enter_context(omnigraph.open(f"{folder}/two"))
        try:
            graph.branches.merge("dev", into="main")
        except MergeConflicts as error:
            with pytest.raises(MergeConflicts) as caught:
                other.branches.merge("main", into="dev")
            sides = [{(c["kind"], c["table_key"], c["id"]) for c in e.conflicts} for e in (error, caught.value)]
            assert sides[0] == sides[1]
            assert contents(graph, "main") == base
            return
        other.branches.merge("main", into="dev")
        assert contents(graph, "main") == contents(other, "dev")
        assert graph.branches.merge("dev", into="main").outcome == "already_up_to_date"
        graph.branches.merge("main", into="dev")
        assert contents(graph, "main") == contents(graph, "dev")
        assert graph.verify().ok, graph.verify().findings
    finally:
        opened.close()
        shutil.rmtree(folder)
