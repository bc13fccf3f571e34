"""What is kept of one version becomes that of the next: equal to what a cold process reads, without reading it all."""

from __future__ import annotations

import gc
import json
import os
import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import omnigraph
from omnigraph import read
from omnigraph.query import compile_query
from omnigraph.read.adjacency import Adjacency, Links, adjacency
from omnigraph.read.hashing import IdMap
from omnigraph.read.numbering import Numbering, Splice, through
from omnigraph.read.settings import read_settings
from omnigraph.read.tables import TABLES, TableData
from omnigraph.storage import Snapshot

SCHEMA = """
node Person { name: String @key  age: I32?  seen: DateTime?  tags: [String]  ok: Bool? }
node Firm { name: String @key }
edge Knows: Person -> Person { since: I32? }
edge Works: Person -> Firm
"""
KEYS = ("edge:Knows", "node:Person", "node:Person")
QUESTIONS = [
    "match { $p: Person } return { $p.name, $p.age, $p.seen, $p.tags, $p.ok }",
    "match { $p $e:knows $q } return { $e.id, $p.name, $q.age, $e.since }",
    "match { $p <knows>{1,2} $q $q works $f } return { $p.name, $q.name, $f.name }",
    "match { $p: Person not { $p knows $q } } return { $p.name, $p.age }",
    'match { $p: Person { name: "p7" } $p knows $q } return { $q.name }',
    "match { $p knows $q $q knows $p } return { $p.name, $q.name }",
]


def answers(snapshot: Snapshot) -> list[list[Any]]:
    """All questions through cached columns and adjacency."""
    chosen = replace(read_settings(), traversal_mode="csr")
    out = []
    for text in QUESTIONS:
        table = read.execute(compile_query(f"query q() {{ {text} }}", snapshot.catalog), snapshot, {}, settings=chosen)
        out.append(sorted(zip(*(c.to_pylist() for c in table.columns), strict=True), key=repr))
    return out


def cold(snapshot: Snapshot) -> list[list[Any]]:
    kept = TABLES.kept.items()
    TABLES.clear()
    try:
        return answers(snapshot)
    finally:
        TABLES.clear()
        for key, entry in kept:
            TABLES.kept.add(key, entry)


@pytest.fixture(autouse=True)
def _cold() -> None:
    TABLES.clear()


def change(graph: omnigraph.Graph, rng: random.Random, branch: str, people: set[str]) -> None:
    """One random commit. `people` follows what is there."""
    some = [f"p{rng.randrange(30)}" for _ in range(rng.choice([1, 1, 2, 5]))]
    known = sorted(people)
    what = rng.choice(
        ["upsert", "upsert", "knows", "knows", "works", "delete", "unknow", "load", "indices", "optimize"]
    )
    if what == "upsert":
        graph.load("\n".join(node(name, rng) for name in dict.fromkeys(some)), mode="merge", branch=branch)
        people.update(some)
    elif what in ("knows", "works") and known:
        ends = known if what == "knows" else ["x", "y"]
        lines = [edge(what.title(), rng.choice(known), rng.choice(ends), rng) for _ in some]
        graph.load("\n".join(lines), mode="append", branch=branch)
    elif what == "delete" and known:
        gone = rng.choice(known)
        graph.mutate("query q($n: String) { delete Person where name = $n }", {"n": gone}, branch=branch)
        people.discard(gone)
    elif what == "unknow":
        graph.mutate(f"query q() {{ delete Knows where since = {rng.randrange(4)} }}", branch=branch)
    elif what == "load":
        names = [f"p{i}" for i in rng.sample(range(30), 10)]
        graph.load("\n".join(node(name, rng) for name in names), mode="merge", branch=branch)
        people.update(names)
    elif what == "indices":
        graph.ensure_indices(branch=branch)
    elif what == "optimize":
        graph.optimize(branch=branch)


def node(name: str, rng: random.Random) -> str:
    age, ok = rng.choice(["null", str(rng.randrange(9))]), rng.choice(["null", "true", "false"])
    seen = rng.choice(["null", '"2020-01-01T12:30:00.005Z"'])
    tags = rng.choice(["[]", '["a"]', '["a", "b"]'])
    return (
        f'{{"type": "Person", "data": {{"name": "{name}", "age": {age}, "seen": {seen}, "tags": {tags}, "ok": {ok}}}}}'
    )


def edge(name: str, src: str, dst: str, rng: random.Random) -> str:
    data = f'{{"since": {rng.randrange(4)}}}' if name == "Knows" else "{}"
    return f'{{"edge": "{name}", "from": "{src}", "to": "{dst}", "data": {data}}}'


def test_after_random_writes_what_is_kept_equals_what_a_cold_process_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seed = int(os.environ.get("OMNIGRAPH_TEST_SEED", random.randrange(2**32)))
    print(f"seed {seed}")
    rng = random.Random(seed)
    graph = omnigraph.init(tmp_path / "graph", schema=SCHEMA)
    people = {f"p{i}" for i in range(20)}
    lines = [node(name, rng) for name in sorted(people)] + [
        '{"type": "Firm", "data": {"name": "x"}}',
        '{"type": "Firm", "data": {"name": "y"}}',
    ]
    lines += [edge("Knows", f"p{rng.randrange(20)}", f"p{rng.randrange(20)}", rng) for _ in range(40)]
    graph.load("\n".join(lines), mode="append")
    here = {"main": people}
    known: list[tuple[Snapshot, list[list[Any]]]] = []
    for step in range(24):
        monkeypatch.setattr(TABLES.kept, "_limit", rng.choice([None, None, 5_000, 10_000]))
        if step == 8:
            graph.branches.create("draft", from_="main")
            here["draft"] = set(people)
        branch = rng.choice(sorted(here))
        change(graph, rng, branch, here[branch])
        if rng.random() < 0.7:  # several commits may lie between two questions
            snapshot = graph.snapshot(branch)
            found = answers(snapshot)
            assert found == cold(snapshot), f"seed {seed}, step {step}"
            known.append((snapshot, found))
            older, found = rng.choice(known)
            assert answers(older) == found, f"seed {seed}, step {step}, an older version"
    for branch in here:
        assert answers(graph.snapshot(branch)) == cold(graph.snapshot(branch)), f"seed {seed}"


def big(folder: Path) -> omnigraph.Graph:
    graph = omnigraph.init(folder / "graph", schema=SCHEMA)
    rng = random.Random(1)
    lines = [node(f"p{i}", rng) for i in range(3_000)]
    lines += [edge("Knows", f"p{rng.randrange(3_000)}", f"p{rng.randrange(3_000)}", rng) for _ in range(8_998)]
    lines += [edge("Knows", "p7", "p8", rng)] * 2  # joined twice, and a third time by a write below
    graph.load("\n".join(lines), mode="append")
    return graph


def full_scans(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The tables read from end to end from now on."""
    seen: list[str] = []
    scan = Snapshot.scan

    def watched(self: Snapshot, table_key: str, *args: Any, **kwargs: Any) -> Any:
        if kwargs.get("filter") is None and kwargs.get("limit") is None and len(args) < 2:
            seen.append(table_key)
        return scan(self, table_key, *args, **kwargs)

    monkeypatch.setattr(Snapshot, "scan", watched)
    return seen


WRITES: dict[str, Callable[[omnigraph.Graph], Any]] = {
    "update": lambda g: g.load(node("p7", random.Random(2)), mode="merge"),
    "insert": lambda g: g.load(node("new", random.Random(2)), mode="append"),
    "edge": lambda g: g.load(edge("Knows", "p7", "p8", random.Random(2)), mode="append"),
    "delete": lambda g: g.mutate('query q() { delete Person where name = "p7" }'),
    "indices": lambda g: g.ensure_indices(),
    "optimize": lambda g: (WRITES["update"](g), g.optimize()),
}


@pytest.mark.parametrize("write", WRITES)
def test_a_small_write_costs_no_reading_from_end_to_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: str
) -> None:
    graph = big(tmp_path)
    answers(graph.snapshot())
    first = adjacency().get(graph.snapshot(), *KEYS)
    assert first.out.parallel
    assert len(first.out.distinct.neighbour) < 9_000
    assert first.both.near  # made now, so that it is changed too
    WRITES[write](graph)
    snapshot = graph.snapshot()
    seen = full_scans(monkeypatch)
    found = answers(snapshot)
    assert seen == []
    got = adjacency().get(snapshot, *KEYS)
    ids = TABLES.get(snapshot, "edge:Knows").load(snapshot, ["id"]).column("id").to_pylist()
    people = TABLES.get(snapshot, "node:Person").column("id").to_pylist()
    assert "both" in got.__dict__
    pairs = [pairs_of(links, people, ids) for links in (got.out, got.into, got.both)]
    joined = {(a, b) for a, b, _ in pairs_of(got.out.distinct, people, ids)}
    assert len(joined) == len(got.out.distinct.neighbour) == len({(a, b) for a, b, _ in pairs[0]})
    assert found == cold(snapshot)
    TABLES.clear()
    fresh = adjacency().get(snapshot, *KEYS)
    ids = TABLES.get(snapshot, "edge:Knows").load(snapshot, ["id"]).column("id").to_pylist()
    people = TABLES.get(snapshot, "node:Person").column("id").to_pylist()
    assert pairs == [pairs_of(links, people, ids) for links in (fresh.out, fresh.into, fresh.both)]
    assert fresh.out.parallel == got.out.parallel


def pairs_of(links: Links, people: list[str], edges: list[str]) -> list[tuple[str, str, str]]:
    owner = np.repeat(np.arange(links.near), np.diff(links.start))
    for low, high in zip(links.start[:-1], links.start[1:], strict=True):
        assert (np.diff(links.neighbour[low:high]) >= 0).all()
    assert links.near == links.far == len(people)
    found = zip(owner.tolist(), links.neighbour.tolist(), links.edge.tolist(), strict=True)
    return sorted((people[a], people[b], edges[e]) for a, b, e in found)


def test_a_branch_made_again_is_not_taken_for_the_old_one(tmp_path: Path) -> None:
    graph = omnigraph.init(tmp_path / "graph", schema=SCHEMA)
    rng = random.Random(3)
    graph.load("\n".join(node(f"p{i}", rng) for i in range(5)), mode="append")
    for name in ("first", "second"):
        graph.branches.create("draft", from_="main")
        for i in range(2):
            graph.load(node(f"{name}{i}", rng), mode="append", branch="draft")
            if name == "second" and i == 0:
                continue  # versions are counted alike: the first branch's stand in memory
            snapshot = graph.snapshot("draft")
            assert answers(snapshot) == cold(snapshot)
        graph.branches.delete("draft")


def test_an_earlier_version_that_was_cleaned_away_is_no_matter(tmp_path: Path) -> None:
    graph = big(tmp_path)
    answers(graph.snapshot())
    WRITES["update"](graph)
    WRITES["edge"](graph)
    snapshot = graph.snapshot()
    for key in ("node:Person", "edge:Knows"):
        dataset = snapshot._engine.store.latest(snapshot.tables[key].location)
        keep = {snapshot.tables[key].version}
        dataset.cleanup_old_versions(
            versions=[v["version"] for v in dataset.versions() if v["version"] not in keep], delete_unverified=True
        )
    graph = omnigraph.open(tmp_path / "graph")
    assert answers(graph.snapshot()) == cold(graph.snapshot())


def test_changes_of_positions_follow_each_other() -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    rng = np.random.default_rng(seed)
    for _ in range(200):
        size = int(rng.integers(0, 12))
        first = Numbering(rng.permutation(np.arange(100, 100 + size)).astype(np.uint64), frozenset())
        rows = {int(r): 0 for r in first.row_ids}
        now, fresh = first, 1000
        touched: set[int] = set()
        for step in range(int(rng.integers(1, 4))):
            ids = list(rows)
            gone = [r for r in ids if rng.random() < 0.3]
            new = list(range(fresh, fresh + int(rng.integers(0, 3))))
            fresh += 10
            updated = [r for r in ids if r not in gone and rng.random() < 0.3]
            for r in gone:
                del rows[r]
            for r in (*updated, *new):
                rows[r] = step + 1
            touched.update(updated)
            written = rng.permutation(np.array([*updated, *new], dtype=np.uint64))
            now = now.spliced(np.array(gone, dtype=np.uint64), written, frozenset())
            assert sorted(now.row_ids.tolist()) == sorted(rows)
        steps = now.since(first)
        assert steps is not None
        whole: Splice = through(steps, size)
        stayed = np.array([r for r in first.row_ids.tolist() if r in rows], dtype=np.uint64)
        assert now.row_ids[: whole.kept].tolist() == stayed.tolist()
        assert whole.kept + whole.appended == now.rows
        assert {int(first.row_ids[i]) for i in whole.updated} == {r for r in touched if r in stayed.tolist()}
        assert first.row_ids[whole.came_from(np.arange(whole.kept))].tolist() == stayed.tolist()
        assert now.row_ids[whole.moved(first.places(stayed))].tolist() == stayed.tolist()


@pytest.mark.parametrize("seed", range(10))
def test_a_changed_id_map_finds_what_a_new_one_does(seed: int) -> None:
    rng = random.Random(seed)
    ids = [f"p{i}" for i in range(40)]
    known, ever = IdMap(pa.array(ids)), set(ids)
    for turn in range(6):
        gone = sorted(rng.sample(range(len(ids)), 5)) if turn % 2 else [len(ids) - 1]
        new = [f"n{turn}-{i}" for i in range(rng.choice([0, 0, 3]))]
        none = np.zeros(0, dtype=np.int64)
        step = Splice(None, len(ids), np.array(gone, dtype=np.int64), none, len(new))
        ids = [name for i, name in enumerate(ids) if i not in gone] + new
        ever.update(new)
        changed = known.spliced(pa.array(ids), step)
        assert changed is not None
        assert changed.nbytes == IdMap(pa.array(ids)).nbytes
        for name in ever:
            assert changed.position(name) == (ids.index(name) if name in ids else -1)
        known = changed


def test_a_version_dropped_and_numbered_another_way_is_not_taken_for_the_first(tmp_path: Path) -> None:
    graph = omnigraph.init(tmp_path / "graph", schema=SCHEMA)
    rng = random.Random(4)
    lines = [node(f"p{i}", rng) for i in range(6)] + [edge("Knows", f"p{i}", f"p{i + 1}", rng) for i in range(5)]
    graph.load("\n".join(lines), mode="append")
    versions = []
    for name in ("p1", "p2"):
        TABLES.get(graph.snapshot(), "node:Person").load(graph.snapshot(), ["id"])
        graph.load(node(name, rng), mode="merge")  # the updated row keeps its position, but a scan finds it elsewhere
        versions.append(graph.snapshot())
    middle, last = versions
    people = TABLES.get(last, "node:Person").load(last, ["id"])
    assert people.column("id").to_pylist() == [f"p{i}" for i in range(6)]
    for key, entry in TABLES.kept.items():
        if entry is not people:
            TABLES.kept.drop(key)
    gc.collect()
    for snapshot in (middle, last):
        assert answers(snapshot) == cold(snapshot)


def test_a_query_keeps_the_positions_it_began_with(tmp_path: Path) -> None:
    """Whatever other queries push out of the cache between its steps: the edges it met are those it reads."""
    graph = omnigraph.init(tmp_path / "graph", schema=SCHEMA)
    rng = random.Random(4)
    edges = [{"edge": "Knows", "id": f"k{i}", "from": f"p{i}", "to": f"p{i + 1}"} for i in range(5)]
    lines = [node(f"p{i}", rng) for i in range(6)] + [json.dumps(e | {"data": {"since": 0}}) for e in edges]
    graph.load("\n".join(lines), mode="append")
    answers(graph.snapshot())
    graph.load(json.dumps(edges[0] | {"data": {"since": 1}}), mode="merge")  # a scan finds it at the end from now on
    snapshot = graph.snapshot()
    text = "query q() { match { $p $e:knows $q } return { $p.name, $e.since } order { $p.name } }"
    compiled, chosen = compile_query(text, snapshot.catalog), replace(read_settings(), traversal_mode="csr")

    def others() -> bool:
        TABLES.clear()
        gc.collect()
        return False

    want = read.execute(compiled, snapshot, {}, settings=chosen)
    assert want.column(1).to_pylist() == [1, 0, 0, 0, 0]
    for _ in range(2):
        assert read.execute(compiled, snapshot, {}, settings=chosen, cancelled=others).equals(want)


def test_adjacency_counts_among_the_bytes_kept(tmp_path: Path) -> None:
    graph = big(tmp_path)
    answers(graph.snapshot())
    found = [entry for _, entry in TABLES.kept.items() if isinstance(entry, Adjacency)]
    assert TABLES.nbytes > sum(entry.nbytes for entry in found) > 9_000 * 16


def held(entry: Any) -> int:
    """Bytes of the arrays an entry holds, each once."""
    parts = [entry]
    if isinstance(entry, TableData):
        parts = [entry.numbering(None), *entry._columns.values(), *entry._derived.values()]  # type: ignore[arg-type]
    elif isinstance(entry, Adjacency):
        parts = [*(vars(links) for links in (entry.out, entry.into, entry.both)), *entry.numberings]
    arrays: dict[int, Any] = {}
    while parts:
        part = parts.pop()
        if isinstance(part, (np.ndarray, pa.Array)):
            arrays[id(part)] = part
        elif isinstance(part, (tuple, list)):
            parts.extend(part)
        elif isinstance(part, dict):
            parts.extend(part.values())
        elif isinstance(part, Numbering):
            parts.append(part.row_ids)
        elif isinstance(part, IdMap):
            parts.extend((part._order, part._sorted))
        elif isinstance(part, Links) and part is not entry:
            parts.append({name: value for name, value in vars(part).items() if value is not part})
    return sum(array.nbytes for array in arrays.values())


def test_what_is_kept_counts_all_it_holds_also_of_versions_with_equal_rows(tmp_path: Path) -> None:
    graph = big(tmp_path)
    for _ in range(2):
        snapshot = graph.snapshot()
        answers(snapshot)
        found = adjacency().get(snapshot, *KEYS)
        assert found.into.indegree is not None
        TABLES.get(snapshot, "node:Person").id_rank()
        entries = [entry for _, entry in TABLES.kept.items()]
        assert any(isinstance(entry, Adjacency) for entry in entries)
        for entry in entries:
            if not isinstance(entry, TableData) or entry.loaded:
                size = held(entry)
                assert entry.nbytes >= size
        graph.ensure_indices()


def test_threads_that_want_the_same_thing_at_once_make_it_once(tmp_path: Path) -> None:
    snapshot = big(tmp_path).snapshot()
    table = TABLES.get(snapshot, "node:Person").load(snapshot, ["id"])
    before, meet, made = table.nbytes, threading.Barrier(4), []

    def make() -> np.ndarray[Any, Any]:
        made.append(threading.get_ident())
        return np.zeros(1_000, dtype=np.int64)

    def ask(_: int) -> np.ndarray[Any, Any]:
        meet.wait(10)
        return table.derived("test", "id", make)

    with ThreadPoolExecutor(4) as pool:
        assert len({id(found) for found in pool.map(ask, range(4))}) == 1
    assert len(made) == 1
    assert table.nbytes == before + 8_000


def test_graphs_whose_tables_count_alike_are_told_apart(tmp_path: Path) -> None:
    rng = random.Random(5)
    for name in ("one", "other"):
        graph = omnigraph.init(tmp_path / name, schema=SCHEMA)
        graph.load(node(f"only-{name}", rng), mode="append")
        snapshot = graph.snapshot()
        for key, ref in list(snapshot.tables.items()):  # as other makers write it
            snapshot.state.tables[key] = replace(ref, stamp="")  # type: ignore[index]
        assert [row[0] for row in answers(snapshot)[0]] == [f"only-{name}"]
