"""The same questions after each of many small commits: what is kept and changed answers as a scan of everything does.

Each question is asked twice of a version, so that it also runs bound and through what only a second use makes.
"""

from __future__ import annotations

import os
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

from omnigraph import read
from omnigraph.graph import Graph
from omnigraph.query import bind_params, compile_query
from omnigraph.read.settings import read_settings
from omnigraph.read.tables import TABLES
from omnigraph.schema import compile_schema
from omnigraph.storage import Repository, Snapshot
from tests.engine.read.oracle.graphs import Change
from tests.engine.read.oracle.states import commit

CATALOG = compile_schema("""
node Person { name: String @key  age: I32?  city: String?  bio: String?  score: F64?  vec: Vector(3)? }
node Firm { name: String @key  size: I64 }
edge Knows: Person -> Person { since: I32? }
edge Works: Person -> Firm { }
""")
QUESTIONS = [
    "$p: Person } return { $p.name, $p.age, $p.city, $p.bio, $p.score }",
    "$p: Person $p.age > 2 } return { $p.name, $p.age }",
    '$p: Person $p.city = "x" } return { $p.name, $p.city }',
    '$p: Person $p.city in ["y", "zz"] $p.age < 3 } return { $p.name }',
    '$p: Person contains($p.bio, "fox") } return { $p.name }',
    "$p: Person { name: $k } } return { $p }",
    "$p: Person { name: $k } $p knows $q } return { $q.name, $q.age }",
    "$p: Person { name: $k } $p knows{1,3} $q } return { $q.name }",
    "$p: Person { name: $k } $p <knows>{2,3} $q } return { $q.name, $p.city }",
    "$p $e: knows $q } return { $e.id, $e.since, $p.name, $q.city }",
    "$p <knows> $q } return { $p.name, $q.name }",
    "$p knows[since > 1] $q } return { $p.name, $q.name }",
    "$p knows $q $q knows $r } return { $p.name, count($r) as n, count(distinct $r) as m }",
    "$p knows $q $q knows $p } return { $p.name, $q.name }",
    "$p works $f $f.size > 1 } return { $p.name, $f.size }",
    "$p: Person not { $p works $f } } return { $p.name }",
    "$p: Person optional { $p works $f } } return { $p.name, $f.name, $f.size }",
    "$p: Person { name: $k } $z = shortest $p knows{1,4} $q } return { $q.name, nodes($z) as n, edges($z) as e }",
    '$p: Person search($p.bio, "fox") } return { $p.name }',
    '$p: Person fuzzy($p.bio, "fux") } return { $p.name }',
    '$p: Person } return { $p.name } order { bm25($p.bio, "red fox") desc } limit 6',
    "$p: Person } return { $p.name } order { nearest($p.vec, [1, 2, 3]) } limit 6",
    "$p: Person } return { $p.name, $p.age } order { $p.city desc, $p.age } limit 7",
    "$p: Person } return { $p.name } order { $p.name } skip 2 limit 5",
    "$p: Person } return { $p.city, count($p) as n, count($p.age) as a, sum($p.score) as s, min($p.bio) as b }",
]
COMPILED = [compile_query(f"query q($k: String) {{ match {{ {text} }}", CATALOG) for text in QUESTIONS]
BIOS = [None, "", "red fox", "a blue fox, a red one", "wolf", "Red wolf", "fux", "grey fox fox"]


class Kept:
    """A graph that a test changes in few places, and what it has to hold."""

    def __init__(self, folder: Path, rng: random.Random) -> None:
        self.rng = rng
        self.repository = Repository.create(str(folder), CATALOG)
        self.graph = Graph(self.repository)
        self.rows: dict[str, dict[str, dict[str, Any]]] = {key: {} for key in CATALOG.by_table_key}
        self.serial = 0
        self.gone: list[str] = []
        done = Change({}, {}, {})
        for key, count in (("node:Person", 40), ("node:Firm", 4), ("edge:Knows", 90), ("edge:Works", 20)):
            for _ in range(count):
                self.append(done, key)
        commit(self.repository, CATALOG, "main", done)

    def values(self, key: str) -> dict[str, Any]:
        pick = self.rng.choice
        if key == "node:Person":
            return {
                "age": pick([None, 0, 1, 2, 3, 4]),
                "city": pick([None, "", "x", "y", "zz"]),
                "bio": pick(BIOS),
                "score": pick([None, -1.5, 0.0, 0.5, 8.0]),
                "vec": pick([None, [1, 0, 0], [0, 1, 0], [3, 1, 2]]),
            }
        if key == "node:Firm":
            return {"size": pick([0, 1, 2, 3])}
        ends = list(self.rows["node:Person"])
        far = ends if key == "edge:Knows" else list(self.rows["node:Firm"])
        known = {"since": pick([None, 0, 1, 2, 3])} if key == "edge:Knows" else {}
        return known | {"src": pick(ends), "dst": pick(far)}

    def append(self, done: Change, key: str) -> None:
        self.serial += 1
        id_ = f"{'zma'[self.serial % 3]}{self.serial}"
        row = {"id": id_, **({"name": id_} if key.startswith("node") else {}), **self.values(key)}
        self.rows[key][id_] = row
        done.appends.setdefault(key, []).append(row)

    def update(self, done: Change, key: str) -> None:
        """Write a row again; an edge may get other ends."""
        row = self.rng.choice([*self.rows[key].values()])
        if all(row["id"] != other["id"] for other in done.upserts.get(key, [])):
            row |= self.values(key)
            done.upserts.setdefault(key, []).append(row)

    def delete(self, done: Change, key: str) -> None:
        gone = self.rng.choice([*self.rows[key]])
        del self.rows[key][gone]
        self.gone.append(gone)
        done.deletes.setdefault(key, []).append(gone)
        if key == "node:Person":
            for edges in ("edge:Knows", "edge:Works"):
                loose = [e["id"] for e in self.rows[edges].values() if gone in (e["src"], e["dst"])]
                done.deletes.setdefault(edges, []).extend(loose)
                for id_ in loose:
                    del self.rows[edges][id_]

    def change(self) -> str:
        """One commit of one kind of write to one table, seldom of several, or upkeep. Returns what it was."""
        if self.rng.random() < 0.1:
            what = self.rng.choice(["optimize", "ensure_indices"])
            getattr(self.graph, what)()
            return what
        key = self.rng.choice(["node:Person", "node:Person", "edge:Knows", "edge:Knows", "edge:Works", "node:Firm"])
        what = self.rng.choice(["update", "update", "append", "delete"] if key != "node:Firm" else ["update"])
        if len(self.rows[key]) < 10 and key != "node:Firm":
            what = "append"  # many deletes, and those of nodes take edges with them
        done = Change({}, {}, {})
        for _ in range(self.rng.choice([1, 1, 2, 3])):
            getattr(self, what)(done, key)
        if self.rng.random() < 0.2 and what == "update":
            self.append(done, "edge:Knows")
        commit(self.repository, CATALOG, "main", done)
        return f"{what} {key}"


def answer(snapshot: Snapshot, number: int, key: str, mode: str) -> list[Any]:
    compiled, ordered = COMPILED[number], " order { " in QUESTIONS[number]
    chosen = replace(read_settings(), traversal_mode=mode)
    table = read.execute(compiled, snapshot, bind_params(compiled, {"k": key}), settings=chosen)
    rows = list(zip(*(c.to_pylist() for c in table.columns), strict=True))
    return rows if ordered else sorted(rows, key=repr)


def test_after_each_small_commit_answers_are_those_of_a_scan(tmp_path: Path) -> None:
    seed = int(os.environ.get("OMNIGRAPH_TEST_SEED", random.randrange(2**32)))
    print(f"seed {seed}")
    rng = random.Random(seed)
    kept = Kept(tmp_path / "graph", rng)
    TABLES.clear()
    history = []
    older = kept.repository.snapshot()
    for _ in range(int(os.environ.get("OMNIGRAPH_REFRESH_COMMITS", 18))):
        snapshot = kept.repository.snapshot()
        for number in range(len(QUESTIONS)):
            key = rng.choice([*kept.rows["node:Person"], *kept.gone[-3:] * 5])
            want = answer(snapshot, number, key, "scan")
            for mode in ("csr", "csr", ""):
                found = answer(snapshot, number, key, mode)
                assert found == want, f"seed {seed}, after {history}, {mode or 'auto'}, $k={key}: {QUESTIONS[number]}"
        if rng.random() < 0.2:  # what a reader of an older version takes up again
            answer(older, 0, "", "")
            older = snapshot
        history.append(kept.change())
