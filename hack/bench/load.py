"""Bulk load of Parquet with every constraint check, next to a raw pyarrow → Lance write of the same files.

    python hack/bench/load.py [--persons 200000] [--edges 2000000]

Prints seconds and rows per second; the difference is what keys, endpoints, uniqueness and the commit cost.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.parquet as pq

from omnigraph.schema import compile_schema
from omnigraph.storage import Repository
from omnigraph.write import load
from omnigraph.write.mapping import Mapping

SCHEMA = """
node Person {
  key: String @key
  name: String
  age: I32
  city: enum(rome, oslo, lima)
  email: String @unique
  @range(age, 0..150)
}
edge Knows: Person -> Person @card(0..1000) { since: Date? }
"""
MAPPING = """
sources:
- {path: persons.parquet, node: Person}
- {path: knows.parquet, edge: Knows, from: a, to: b}
"""


def make_files(folder: Path, persons: int, edges: int) -> None:
    rng = np.random.default_rng(1)
    keys = pa.array([f"person-{i:08d}" for i in range(persons)])
    cities = pa.array(["rome", "oslo", "lima"]).take(pa.array(rng.integers(0, 3, persons)))
    names = pa.array([f"Name {i % 5000}" for i in range(persons)])
    emails = pa.array([f"p{i}@example.org" for i in range(persons)])
    age = pa.array(rng.integers(0, 100, persons), pa.int32())
    pq.write_table(
        pa.table({"key": keys, "name": names, "age": age, "city": cities, "email": emails}), folder / "persons.parquet"
    )
    ends = [keys.take(pa.array(rng.integers(0, persons, edges))) for _ in range(2)]
    since = pa.array(rng.integers(15_000, 20_000, edges).astype(np.int32)).view(pa.date32())
    pq.write_table(pa.table({"a": ends[0], "b": ends[1], "since": since}), folder / "knows.parquet")


def timed(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--persons", type=int, default=200_000)
    arguments.add_argument("--edges", type=int, default=2_000_000)
    arguments.add_argument("--repeat", type=int, default=2)
    options = arguments.parse_args()
    rows = options.persons + options.edges
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_files(folder, options.persons, options.edges)
        mapping = Mapping.parse(MAPPING, base=folder)

        def raw(i: int) -> None:
            for part in ("persons", "knows"):
                data = pads.dataset(folder / f"{part}.parquet").scanner().to_reader()
                lance.write_dataset(data, str(folder / f"raw-{i}-{part}"), enable_stable_row_ids=True)

        def full(i: int) -> None:
            repository = Repository.create(str(folder / f"graph-{i}"), compile_schema(SCHEMA))
            load(repository, None, mapping=mapping)

        for label, work in (("raw pyarrow → Lance", raw), ("load, all checks", full)):
            best = min(timed(lambda i=i, work=work: work(i)) for i in range(options.repeat))  # type: ignore[misc]
            print(f"{label:22} {best:6.2f} s   {rows / best:12,.0f} rows/s")


if __name__ == "__main__":
    main()
