"""Writes to interrupt.

Every scenario leads from one whole state to another; `contents` tells the two apart.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from omnigraph import maintain
from omnigraph.graph import Schema
from omnigraph.schema import compile_schema
from omnigraph.storage import Repository, Staging, TableChange, WriterKind, tail
from omnigraph.storage.layout import MANIFEST
from omnigraph.write import merging

SCHEMA = """node Person {
    name: String @key
    age: I64?
}
node City {
    name: String @key
}
edge Knows: Person -> Person {
    since: I64?
}
"""
ACTOR = "alice"
CREATION = "01J9ZC4T5E8QK3W7R2N6M1XV00"


def people(ids: list[str], age: int) -> pa.Table:
    return pa.table({"id": ids, "name": ids, "age": pa.array([age] * len(ids), pa.int64())})


def cities(ids: list[str]) -> pa.Table:
    return pa.table({"id": ids, "name": ids})


def knows(pairs: list[tuple[str, str]]) -> pa.Table:
    return pa.table(
        {
            "id": [f"{a}-{b}" for a, b in pairs],
            "src": [a for a, _ in pairs],
            "dst": [b for _, b in pairs],
            "since": pa.array([1] * len(pairs), pa.int64()),
        }
    )


def build(uri: str) -> None:
    """The graph every scenario begins with: people, no cities, a branch `dev`, a branch `topic` with changes."""
    repository = Repository.create(uri, compile_schema(SCHEMA), operation_id=CREATION)
    staging = Staging(
        "main", WriterKind.LOAD, (TableChange("node:Person", appends=people(["ann", "bob", "cy", "dee"], 1)),)
    )
    repository.commit(staging, repository.snapshot())
    staging = Staging("main", WriterKind.LOAD, (TableChange("edge:Knows", appends=knows([("ann", "bob")])),))
    repository.commit(staging, repository.snapshot())
    repository.create_branch("dev")
    repository.create_branch("topic")
    files = repository.write_fragments(repository.snapshot("topic"), "node:Person", people(["tom", "una"], 4))
    changes: tuple[TableChange, ...] = (
        TableChange("node:Person", upserts=people(["dee"], 5), delete_ids=pa.array(["cy"]), fragments=files),
        TableChange("edge:Knows", appends=knows([("tom", "ann")])),
    )
    repository.commit(Staging("topic", WriterKind.LOAD, changes, actor=ACTOR), repository.snapshot("topic"))
    repository.commit(
        Staging("topic", WriterKind.LOAD, (TableChange("node:City", appends=cities(["lima"])),)),
        repository.snapshot("topic"),
    )
    staging = Staging("main", WriterKind.LOAD, (TableChange("edge:Knows", appends=knows([("bob", "dee")])),))
    repository.commit(staging, repository.snapshot())


def load(repository: Repository) -> None:
    """Files written ahead, an empty table, a full one; relies on a table it doesn't write."""
    base = repository.snapshot()
    files = repository.write_fragments(base, "node:Person", people(["eve", "fay"], 2))
    changes = (
        TableChange("node:Person", fragments=files),
        TableChange("node:City", appends=cities(["rome", "oslo"])),
    )
    repository.commit(Staging("main", WriterKind.LOAD, changes, frozenset({"edge:Knows"}), "OPLOAD", actor=ACTOR), base)


def mutation(repository: Repository) -> None:
    base = repository.snapshot()
    changes = (
        TableChange("node:Person", upserts=people(["ann", "gil"], 9), delete_ids=pa.array(["cy"])),
        TableChange("edge:Knows", appends=knows([("ann", "gil")]), delete_ids=pa.array(["ann-bob"])),
    )
    repository.commit(Staging("main", WriterKind.MUTATION, changes, operation_id="OPMUTATE", actor=ACTOR), base)


def branch_write(repository: Repository) -> None:
    """The first write to two tables on a branch, one with files written ahead."""
    base = repository.snapshot("dev")
    files = repository.write_fragments(base, "edge:Knows", knows([("dee", "ann")]))
    changes = (
        TableChange("node:Person", upserts=people(["dee"], 7), delete_ids=pa.array(["bob"])),
        TableChange("edge:Knows", fragments=files, delete_ids=pa.array(["ann-bob"])),
    )
    repository.commit(Staging("dev", WriterKind.MUTATION, changes, operation_id="OPBRANCH", actor=ACTOR), base)


def indices(repository: Repository) -> None:
    wanted = {"node:Person": [("id", "BTREE"), ("age", "BTREE")], "edge:Knows": [("src", "BTREE")]}
    repository.build_indices("main", wanted, actor=ACTOR, operation_id="OPINDEX")


def fragment(repository: Repository) -> None:
    """Many small files in two tables, indices that lag, deleted rows: something to compact on `main`."""
    repository.build_indices("main", {"node:Person": [("id", "BTREE")], "edge:Knows": [("src", "BTREE")]})
    for i in range(3):
        names = [f"p{i}-{j}" for j in range(4)]
        changes = (
            TableChange("node:Person", appends=people(names, i)),
            TableChange("edge:Knows", appends=knows([(names[0], "ann"), (names[1], "dee")])),
        )
        repository.commit(Staging("main", WriterKind.LOAD, changes), repository.snapshot())
    change = TableChange("node:Person", delete_ids=pa.array(["p0-2", "p1-3"]), upserts=people(["p2-0"], 8))
    repository.commit(Staging("main", WriterKind.MUTATION, (change,)), repository.snapshot())


def optimize(repository: Repository) -> None:
    maintain.optimize(repository, actor=ACTOR, operation_id="OPOPTIMIZE")


def long_tail(repository: Repository) -> None:
    """A write that joins the short files of its table first."""
    base = repository.snapshot()
    kept, tail.TAIL_FILES = tail.TAIL_FILES, 1
    try:
        change = TableChange("edge:Knows", appends=knows([("dee", "bob")]))
        repository.commit(Staging("main", WriterKind.MUTATION, (change,), operation_id="OPTAIL", actor=ACTOR), base)
    finally:
        tail.TAIL_FILES = kept


CHANGED = """node Human @rename_from("Person") {
    name: String @key
    years: I64? @rename_from("age")
    note: String?
    lang: String @default("en")
    @range(years, 0..100)
}
node Pet {
    name: String @key
}
edge Knows: Human -> Human {
    since: I64?
}
edge Owns: Human -> Pet
"""
"""From `SCHEMA`: every kind of step that moves, makes or drops a table."""


def alone(repository: Repository) -> None:
    """`main` with rows and an index everywhere, and no other branch: a schema may change."""
    repository.delete_branch("topic")
    repository.delete_branch("dev")
    staging = Staging("main", WriterKind.LOAD, (TableChange("node:City", appends=cities(["lima"])),))
    repository.commit(staging, repository.snapshot())
    repository.build_indices("main", {"node:Person": [("id", "BTREE"), ("age", "BTREE")]})


def schema(repository: Repository) -> None:
    Schema(repository, ACTOR).apply(CHANGED, allow_data_loss=True, operation_id="OPSCHEMA")


def untidy(repository: Repository) -> None:
    """Many versions on two branches, and a branch whose deletion was killed before it reclaimed anything."""
    fragment(repository)
    for i in range(2):
        change = TableChange("node:Person", upserts=people(["dee"], 20 + i))
        repository.commit(Staging("dev", WriterKind.MUTATION, (change,)), repository.snapshot("dev"))
    repository.close()
    repository.engine.store.latest(MANIFEST).branches.delete("topic")


def cleanup(repository: Repository) -> None:
    repository.cleanup(keep=2, confirm=True)


def _merge(repository: Repository, into: str, operation_id: str) -> None:
    kept, merging.COPIED_FROM_ROWS = merging.COPIED_FROM_ROWS, 1
    try:
        merging.merge(repository, "topic", into, operation_id=operation_id, actor=ACTOR)
    finally:
        merging.COPIED_FROM_ROWS = kept


def merge(repository: Repository) -> None:
    """Both sides have changed; a file is copied, rows are updated, deleted and inserted in three tables."""
    _merge(repository, "main", "OPMERGE")


def merge_into_branch(repository: Repository) -> None:
    """A fast-forward that is the first write of the target to its tables."""
    _merge(repository, "dev", "OPMERGEDEV")


def create_branch(repository: Repository) -> None:
    repository.create_branch("new/one", from_="topic")


def delete_branch(repository: Repository) -> None:
    repository.delete_branch("topic")


def sweep(repository: Repository) -> None:
    repository.sweep("full")


SCENARIOS = {
    "load": (load, "main", "OPLOAD"),
    "mutation": (mutation, "main", "OPMUTATE"),
    "branch": (branch_write, "dev", "OPBRANCH"),
    "indices": (indices, "main", "OPINDEX"),
    "optimize": (optimize, "main", "OPOPTIMIZE"),
    "tail": (long_tail, "main", "OPTAIL"),
    "merge": (merge, "main", "OPMERGE"),
    "merge-fork": (merge_into_branch, "dev", "OPMERGEDEV"),
}
ACTIONS = {name: action for name, (action, _, _) in SCENARIOS.items()} | {
    "sweep": sweep,
    "fragment": fragment,
    "untidy": untidy,
    "cleanup": cleanup,
    "alone": alone,
    "schema": schema,
    "create-branch": create_branch,
    "delete-branch": delete_branch,
}


def contents(repository: Repository, branch: str) -> dict[str, Any]:
    """Every row of the branch, read from one snapshot, in no order of Lance's."""
    snapshot = repository.snapshot(branch)
    return {key: sorted(map(repr, snapshot.scan(key).to_pylist())) for key in snapshot.tables}
