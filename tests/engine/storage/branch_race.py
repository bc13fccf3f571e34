"""One of several in a race: `branch_race.py URI TAG ROUNDS` makes branches, writes on them, merges and deletes them.

Every round also writes to a branch and to a name that the others use too. Prints what was acknowledged.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Callable
from contextlib import suppress

import pyarrow as pa

from omnigraph.errors import Conflict, MergeConflicts, NotFound
from omnigraph.storage import Repository, Staging, TableChange, WriterKind
from omnigraph.write import merge

refused = 0


def insistently(action: Callable[[], object]) -> None:
    """Until it is done; a refusal that says that the same call may succeed is tried again."""
    global refused
    while True:
        try:
            action()
            return
        except MergeConflicts:
            raise
        except Conflict as error:
            if not error.retryable:
                raise
            refused += 1
            time.sleep(random.uniform(0, 0.02))


def write(repository: Repository, branch: str, row: str) -> None:
    change = TableChange("node:A", upserts=pa.table({"id": [row], "name": [row]}))
    repository.commit(Staging(branch, WriterKind.MUTATION, (change,)), repository.snapshot(branch))


def main() -> None:
    uri, tag, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3])
    repository = Repository.open(uri)
    merged, shared, own = [], [], []
    for i in range(rounds):
        name, row = f"{tag}/{i}", f"{tag}-{i}"
        insistently(lambda: repository.create_branch(name))  # noqa: B023
        insistently(lambda: write(repository, name, row))  # noqa: B023
        insistently(lambda: merge(repository, name, "main"))  # noqa: B023
        merged.append(row)
        insistently(lambda: repository.delete_branch(name))  # noqa: B023
        insistently(lambda: write(repository, "together", f"on-{row}"))  # noqa: B023
        shared.append(f"on-{row}")
        with suppress(Conflict):  # a name that comes and goes under everybody's hands
            repository.create_branch("fleeting")
        try:
            write(repository, "fleeting", f"f-{row}")
            merge(repository, "fleeting", "main")
            own.append(f"f-{row}")
            repository.delete_branch("fleeting")
        except (Conflict, NotFound):
            pass
    print(json.dumps({"merged": merged, "shared": shared, "fleeting": own, "refused": refused}))


if __name__ == "__main__":
    main()
