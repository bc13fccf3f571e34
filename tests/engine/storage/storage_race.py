"""One of several writers in a race. `storage_race.py URI TABLE TAG COUNT`: commits COUNT rows one by one."""

from __future__ import annotations

import json
import sys

import pyarrow as pa

from omnigraph.errors import Conflict, ExpectedVersionMismatch
from omnigraph.storage import Repository, Staging, TableChange, WriterKind


def main() -> None:
    uri, table, tag, count = sys.argv[1:5]
    repository = Repository.open(uri)
    acknowledged, mismatches, others = [], 0, 0
    for i in range(int(count)):
        row = f"{tag}{i}"
        rows = pa.table({"id": [row], "name": [row]})
        while True:
            base = repository.snapshot()
            try:
                repository.commit(
                    Staging("main", WriterKind.MUTATION, (TableChange(table, appends=rows),), operation_id=f"OP{row}"),
                    base,
                )
            except ExpectedVersionMismatch:
                mismatches += 1
            except Conflict as error:
                if not error.retryable:
                    raise
                others += 1
            else:
                acknowledged.append(row)
                break
    print(json.dumps({"acknowledged": acknowledged, "mismatches": mismatches, "others": others}))


if __name__ == "__main__":
    main()
