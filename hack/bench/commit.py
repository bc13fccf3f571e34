"""What a one-row upsert costs: `python hack/bench/commit.py [rows] [commits]`; prints milliseconds per commit."""

from __future__ import annotations

import shutil
import sys
import tempfile
import time

import pyarrow as pa

from omnigraph.schema import compile_schema
from omnigraph.storage import Repository, Staging, TableChange, WriterKind

SCHEMA = "node P {\n    name: String @key\n    age: I64?\n}\n"


def rows(ids: list[str], age: int) -> pa.Table:
    return pa.table({"id": ids, "name": ids, "age": pa.array([age] * len(ids), pa.int64())})


def main(count: int, commits: int) -> None:
    folder = tempfile.mkdtemp()
    try:
        repository = Repository.create(folder + "/graph", compile_schema(SCHEMA))
        load = TableChange("node:P", appends=rows([f"p{i}" for i in range(count)], 0))
        repository.commit(Staging("main", WriterKind.LOAD, (load,)), repository.snapshot())
        repository.build_indices("main", {"node:P": [("id", "BTREE")]})
        times = []
        for i in range(commits):
            began = time.perf_counter()
            change = TableChange("node:P", upserts=rows([f"p{i % count}"], i))
            repository.commit(Staging("main", WriterKind.MUTATION, (change,)), repository.snapshot())
            times.append((time.perf_counter() - began) * 1000)
        times.sort()
        print(
            f"one-row upsert into {count} rows, {commits} commits: median {times[len(times) // 2]:.1f} ms, "
            f"best {times[0]:.1f} ms, p95 {times[int(len(times) * 0.95)]:.1f} ms"
        )
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main(*(int(a) for a in (sys.argv[1:] + ["10000", "100"][len(sys.argv) - 1 :])))
