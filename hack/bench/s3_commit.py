"""What a one-row upsert costs on S3: `python hack/bench/s3_commit.py [commits]`; requests, bytes and milliseconds.

Counted is a closed loop with all that follows it: the look at the newest version, and rows of the history, which are
written for several commits together. The server is moto's in this process, so the times say little beside the counts.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

import pyarrow as pa

from omnigraph.schema import compile_schema
from omnigraph.storage import Repository, Staging, TableChange, WriterKind
from tests.s3 import environment, serving

SCHEMA = "node P {\n    name: String @key\n    age: I64?\n}\n"


def rows(ids: list[str], age: int) -> pa.Table:
    return pa.table({"id": ids, "name": ids, "age": pa.array([age] * len(ids), pa.int64())})


def main(commits: int) -> None:
    with serving() as s3, environment(s3):
        repository = Repository.create(s3.uri(), compile_schema(SCHEMA))
        load = TableChange("node:P", appends=rows([f"p{i}" for i in range(1000)], 0))
        repository.commit(Staging("main", WriterKind.LOAD, (load,)), repository.snapshot())
        repository.build_indices("main", {"node:P": [("id", "BTREE")]})
        repository.close()
        times: list[float] = []
        s3.reset()
        for i in range(commits):
            base = repository.snapshot()
            began = time.perf_counter()
            change = TableChange("node:P", upserts=rows([f"p{i}"], i))
            repository.commit(Staging("main", WriterKind.MUTATION, (change,)), base)
            times.append((time.perf_counter() - began) * 1000)
        repository.close()
        seen, sent = Counter(s3.seen), s3.sent
        kinds = ", ".join(f"{count / commits:.1f} {kind}" for kind, count in seen.most_common())
        print(
            f"one-row upsert on S3, {commits} commits: {sum(seen.values()) / commits:.1f} requests ({kinds}), "
            f"{sent / commits / 1024:.1f} KiB put; median {sorted(times)[commits // 2]:.0f} ms"
        )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20)
