"""What a one-row upsert costs as history grows: `python hack/bench/commit.py [rows] [commits,commits,…]`.

Prints, after each of these numbers of commits: milliseconds per commit of the last 50 (median, best, and processor
time, which other work on the machine disturbs least), the ratio of that processor time to the first one's, opening the
graph anew in the same process, and the files and bytes that a commit adds.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from statistics import median

import pyarrow as pa

from omnigraph.schema import compile_schema
from omnigraph.storage import Repository, Staging, TableChange, WriterKind

SCHEMA = "node P {\n    name: String @key\n    age: I64?\n}\n"
LAST = 50


def rows(ids: list[str], age: int) -> pa.Table:
    return pa.table({"id": ids, "name": ids, "age": pa.array([age] * len(ids), pa.int64())})


def written(folder: str) -> tuple[int, int]:
    """(files, bytes) under the folder."""
    sizes = [os.stat(os.path.join(top, name)).st_size for top, _, names in os.walk(folder) for name in names]
    return len(sizes), sum(sizes)


def main(count: int, marks: list[int]) -> None:
    folder = tempfile.mkdtemp()
    root = folder + "/graph"
    try:
        repository = Repository.create(root, compile_schema(SCHEMA))
        load = TableChange("node:P", appends=rows([f"p{i}" for i in range(count)], 0))
        repository.commit(Staging("main", WriterKind.LOAD, (load,)), repository.snapshot())
        repository.build_indices("main", {"node:P": [("id", "BTREE")]})
        times: list[float] = []
        first = 0.0
        print(f"one-row upserts into {count} rows")
        print(f"{'commits':>8} {'median':>9} {'best':>8} {'cpu':>8} {'ratio':>6} {'open':>8}  added")
        for mark in marks:
            while len(times) < mark - LAST:
                times.append(upsert(repository, len(times), count))
            repository.close()
            before, begun, cpu = written(root), len(times), time.process_time()
            while len(times) < mark:
                times.append(upsert(repository, len(times), count))
            repository.close()
            done, last = len(times) - begun, times[-LAST:]
            cpu = (time.process_time() - cpu) * 1000 / done
            after, first = written(root), first or cpu
            began = time.perf_counter()
            Repository.open(root).snapshot()
            opened = (time.perf_counter() - began) * 1000
            print(
                f"{mark:>8} {median(last):>6.1f} ms {min(last):>5.1f} ms {cpu:>5.1f} ms {cpu / first:>6.2f} "
                f"{opened:>5.1f} ms  "
                f"{(after[0] - before[0]) / done:.1f} files, {(after[1] - before[1]) / done / 1024:.0f} KiB a commit",
                flush=True,
            )
    finally:
        shutil.rmtree(folder)


def upsert(repository: Repository, number: int, count: int) -> float:
    """One acknowledged commit, in milliseconds."""
    began = time.perf_counter()
    change = TableChange("node:P", upserts=rows([f"p{number % count}"], number))
    repository.commit(Staging("main", WriterKind.MUTATION, (change,)), repository.snapshot())
    return (time.perf_counter() - began) * 1000


if __name__ == "__main__":
    given = sys.argv[1:]
    main(int(given[0]) if given else 10_000, [int(n) for n in given[1].split(",")] if len(given) > 1 else [10, 1_000])
