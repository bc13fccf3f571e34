"""What branches cost: `python hack/bench/branches.py [--rows 1000000] [--branches 1000]`; medians in milliseconds.

Making a branch beside many others; merging and comparing branches that differ in ten rows of a large table, with and
without the index on its ids; a fast-forward of a large load, next to writing the same rows again.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable

import pyarrow as pa

from omnigraph.schema import compile_schema
from omnigraph.storage import Repository, Staging, TableChange, WriterKind
from omnigraph.write import Diff, merge

SCHEMA = "node P {\n    name: String @key\n    age: I64?\n    text: String?\n}\n"


def rows(first: int, count: int, age: int = 0) -> pa.Table:
    ids = [f"p{i:08d}" for i in range(first, first + count)]
    texts = [f"some text of {one} that is a little longer" for one in ids]
    return pa.table({"id": ids, "name": ids, "age": pa.array([age] * count, pa.int64()), "text": texts})


def put(repository: Repository, branch: str, change: TableChange) -> None:
    repository.commit(Staging(branch, WriterKind.MUTATION, (change,)), repository.snapshot(branch))


def timed(action: Callable[[], object]) -> float:
    began = time.perf_counter()
    action()
    return (time.perf_counter() - began) * 1000


def creation(folder: str, count: int) -> None:
    repository = Repository.create(f"{folder}/many", compile_schema(SCHEMA))
    put(repository, "main", TableChange("node:P", appends=rows(0, 10)))
    times = [timed(lambda name=f"b{i}": repository.create_branch(name)) for i in range(count)]  # type: ignore[misc]
    tenth = max(1, count // 10)
    first, last = statistics.median(times[:tenth]), statistics.median(times[-tenth:])
    print(f"create a branch: {first:.1f} ms beside few, {last:.1f} ms beside {count}")
    listing = timed(repository.branches)
    gone = statistics.median(timed(lambda name=f"b{i}": repository.delete_branch(name)) for i in range(5))  # type: ignore[misc]
    print(f"list {count} branches: {listing:.0f} ms; delete one of them: {gone:.0f} ms")


def small_changes(repository: Repository, count: int, word: str) -> None:
    merges, diffs, plain = [], [], []
    for i in range(7):
        name = f"{word}-{i}"
        repository.create_branch(name)
        at = (i + 1) * (count // 10)
        put(repository, name, TableChange("node:P", upserts=rows(at, 10, age=i + 1)))
        plain.append(timed(lambda: put(repository, "main", TableChange("node:P", upserts=rows(at - 50, 10, age=9)))))  # noqa: B023
        one, other = repository.snapshot(), repository.snapshot(name)
        diffs.append(timed(lambda: Diff(repository, one, other).table()))  # noqa: B023
        merges.append(timed(lambda: merge(repository, name, "main")))  # noqa: B023
    print(
        f"10 changed rows of {count}, {word}: merge {statistics.median(merges):.0f} ms, diff (20 rows) "
        f"{statistics.median(diffs):.0f} ms; upsert of 10 rows {statistics.median(plain):.0f} ms"
    )


def big_load(repository: Repository, count: int) -> None:
    repository.create_branch("load")
    files = repository.write_fragments(repository.snapshot("load"), "node:P", rows(2 * count, count))
    put(repository, "load", TableChange("node:P", fragments=files))
    took = timed(lambda: merge(repository, "load", "main"))
    again = timed(lambda: repository.write_fragments(repository.snapshot(), "node:P", rows(4 * count, count)))
    print(f"fast-forward of {count} new rows: {took:.0f} ms; writing as many again: {again:.0f} ms")


def main(count: int, branches: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        creation(folder, branches)
        repository = Repository.create(f"{folder}/large", compile_schema(SCHEMA))
        files = repository.write_fragments(repository.snapshot(), "node:P", rows(0, count))
        put(repository, "main", TableChange("node:P", fragments=files))
        small_changes(repository, count, "unindexed")
        repository.build_indices("main", {"node:P": [("id", "BTREE")]})
        small_changes(repository, count, "indexed")
        big_load(repository, count)
        repository.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--branches", type=int, default=1_000)
    given = parser.parse_args()
    main(given.rows, given.branches)
