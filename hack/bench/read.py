"""Times of warm reads on a generated graph, beside duckdb where it is installed.

    python hack/bench/read.py [--persons 200000] [--knows 2000000] [--works 160000] [--rounds 30]

Prints the median in milliseconds of each question, parsing and planning included (both are kept per query), and first
what a cold process pays. Numbers of a noisy machine: compare within one run only.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from ulid import ULID

from omnigraph import read
from omnigraph.query import bind_params, compile_query
from omnigraph.read.adjacency import adjacency
from omnigraph.read.tables import TABLES
from omnigraph.schema import compile_schema
from omnigraph.storage import Repository, Snapshot, Staging, TableChange, WriterKind, table_schema

SCHEMA = """
node Person { name: String @key  age: I32  city: String  bio: String }
node Company { name: String @key }
edge Knows: Person -> Person
edge WorksAt: Person -> Company
"""

QUESTIONS: dict[str, tuple[str, dict[str, Any], str]] = {
    "point by key, 2 properties": (
        "query q($n: String) { match { $p: Person { name: $n } } return { $p.age, $p.city } }",
        {"n": "person-00000042"},
        "select age, city from person where name = 'person-00000042'",
    ),
    "1 hop, 2 properties": (
        "query q($n: String) { match { $p: Person { name: $n } $p knows $f } return { $f.name, $f.age } }",
        {"n": "person-00000042"},
        "select distinct f.name, f.age from knows k join person f on f.name = k.dst where k.src = 'person-00000042'",
    ),
    "2 hops, count": (
        "query q($n: String) { match { $p: Person { name: $n } $p knows{2,2} $f } return { count($f) as n } }",
        {"n": "person-00000042"},
        "select count(distinct b.dst) from knows a join knows b on b.src = a.dst where a.src = 'person-00000042'",
    ),
    "1..3 hops, count": (
        "query q($n: String) { match { $p: Person { name: $n } $p knows{1,3} $f } return { count($f) as n } }",
        {"n": "person-00000042"},
        "",
    ),
    "filter and group, 100 groups": (
        "query q() { match { $p: Person $p.age > 30 } return { $p.city as c, count($p) as n } }",
        {},
        "select city, count(*) from person where age > 30 group by city",
    ),
    "anti-join": (
        "query q() { match { $p: Person not { $p worksAt $c } } return { count($p) as n } }",
        {},
        "select count(*) from person p where not exists (select 1 from works w where w.src = p.name)",
    ),
    "computed groups": (
        'query q() { match { $p: Person } return { case when $p.age > 50 then "old" else "young" end as c, '
        "count($p) as n, sum($p.age + 1) / count($p) as a } }",
        {},
        "select age > 50, count(*), sum(age + 1) / count(*) from person group by 1",
    ),
    "optional, counted": (
        "query q() { match { $p: Person optional { $p worksAt $c } } return { count($p) as n, count($c) as k } }",
        {},
        "select count(*), count(w.dst) from person p left join works w on w.src = p.name",
    ),
    "count of a block": (
        "query q() { match { $p: Person count { $p knows $f } > 12 } return { count($p) as n } }",
        {},
        "select count(*) from (select src from knows group by src having count(distinct dst) > 12)",
    ),
    "shortest paths from one": (
        "query q($n: String) { match { $p: Person { name: $n } $z = shortest $p knows{1,3} $f } "
        "return { length($z) as l, count($f) as n } }",
        {"n": "person-00000042"},
        "",
    ),
    "text search": ('query q() { match { $p: Person search($p.bio, "5 30") } return { count($p) as n } }', {}, ""),
    "top 10 by bm25": (
        'query q() { match { $p: Person } return { $p.name } order { bm25($p.bio, "likes 5") } limit 10 }',
        {},
        "",
    ),
    "top 10 by age, ties by id": (
        "query q() { match { $p: Person } return { $p.name, $p.age } order { $p.age desc } limit 10 }",
        {},
        "select name, age from person order by age desc, name limit 10",
    ),
}


def generate(persons: int, knows: int, works: int) -> dict[str, pa.Table]:
    """Columns of the four tables; who is known follows a power law."""
    rng = np.random.default_rng(7)
    catalog = compile_schema(SCHEMA)
    names = pa.array([f"person-{i:08d}" for i in range(persons)])
    firms = pa.array([f"company-{i:04d}" for i in range(1000)])

    def edges(count: int, ends: pa.Array, target: np.ndarray, prefix: str) -> dict[str, pa.Array]:
        src = names.take(pa.array(rng.integers(0, persons, count)))
        return {
            "id": pa.array([f"{prefix}{i:09d}" for i in range(count)]),
            "src": src,
            "dst": ends.take(pa.array(target)),
        }

    popular = np.minimum((rng.pareto(1.5, knows) * persons / 50).astype(np.int64), persons - 1)
    columns: dict[str, dict[str, pa.Array]] = {
        "node:Person": {
            "id": names,
            "name": names,
            "age": pa.array(rng.integers(0, 90, persons), pa.int32()),
            "city": pa.array([f"city-{i:02d}" for i in range(100)]).take(pa.array(rng.integers(0, 100, persons))),
            "bio": pa.array([f"likes {i % 977} and {i % 31}" for i in range(persons)]),
        },
        "node:Company": {"id": firms, "name": firms},
        "edge:Knows": edges(knows, names, rng.permutation(persons)[popular], "k"),
        "edge:WorksAt": edges(works, firms, rng.integers(0, 1000, works), "w"),
    }
    return {k: pa.table(c, schema=table_schema(catalog.by_table_key[k])) for k, c in columns.items()}


def stored(folder: Path, tables: dict[str, pa.Table]) -> Snapshot:
    """The tables committed to a new repository."""
    repository = Repository.create(str(folder / "graph"), compile_schema(SCHEMA))
    changes = tuple(TableChange(k, appends=t) for k, t in tables.items())
    repository.commit(Staging("main", WriterKind.LOAD, changes, operation_id=str(ULID())), repository.snapshot())
    return repository.snapshot()


def timed(work: Callable[[], object], rounds: int) -> float:
    """Median milliseconds."""
    took = []
    for _ in range(rounds):
        begin = time.perf_counter()
        work()
        took.append((time.perf_counter() - begin) * 1000)
    return statistics.median(took)


def duck(tables: dict[str, pa.Table]) -> Any:
    """A duckdb connection with the same rows in its own tables, or None."""
    try:
        import duckdb  # type: ignore[import-not-found]  # a peer to measure against, not a dependency
    except ImportError:
        return None
    connection = duckdb.connect()
    for name, key in (("person", "node:Person"), ("knows", "edge:Knows"), ("works", "edge:WorksAt")):
        connection.register("incoming", tables[key])
        connection.execute(f"create table {name} as select * from incoming")
    return connection


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--persons", type=int, default=200_000)
    parser.add_argument("--knows", type=int, default=2_000_000)
    parser.add_argument("--works", type=int, default=160_000)
    parser.add_argument("--rounds", type=int, default=30)
    args = parser.parse_args()
    tables = generate(args.persons, args.knows, args.works)
    peer = duck(tables)
    with tempfile.TemporaryDirectory() as folder:
        begin = time.perf_counter()
        snapshot = stored(Path(folder), tables)
        print(f"{args.persons} persons, {args.knows} knows committed in {time.perf_counter() - begin:.1f} s")
        if peer is None:
            print("duckdb is not installed: no peer beside these figures")

        def ask(text: str, params: dict[str, Any]) -> pa.Table:
            compiled = compile_query(text, snapshot.catalog)
            return read.execute(compiled, snapshot, bind_params(compiled, params))

        print(f"\n{'question':32}{'cold ms':>10}{'warm ms':>10}{'duckdb ms':>11}{'ratio':>8}")
        for name, (text, params, sql) in QUESTIONS.items():
            TABLES.clear()
            adjacency().clear()
            cold = timed(lambda text=text, params=params: ask(text, params), 1)
            ask(text, params)  # a second question is what fills the cache after a look-up
            ask(text, params)
            warm = timed(lambda text=text, params=params: ask(text, params), args.rounds)
            line = f"{name:32}{cold:>10.1f}{warm:>10.3f}"
            if peer is not None and sql:
                other = timed(lambda sql=sql: peer.execute(sql).fetch_arrow_table(), args.rounds)
                line += f"{other:>11.3f}{warm / other:>8.2f}"
            print(line)
        print(f"\ncached columns: {TABLES.nbytes / 2**20:.0f} MiB")


if __name__ == "__main__":
    main()
