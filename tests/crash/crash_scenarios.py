"""Writes to interrupt.

Every scenario leads from one whole state to another; `contents` tells the two apart. A new kind of writer gets its
scenario here, and `test_matrix` and `test_matrix_s3` kill it at every step it reaches, in a folder and on S3.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import pyarrow as pa
from ulid import ULID

from omnigraph import maintain
from omnigraph.graph import Schema
from omnigraph.schema import compile_schema
from omnigraph.storage import Repository, Snapshot, Staging, TableChange, WriterKind, commit, history, tail
from omnigraph.storage.layout import MANIFEST, SCHEMA_LOCK
from omnigraph.storage.lineage import branch_names
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
NEVER = 3600.0
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


def create(uri: str) -> None:
    Repository.create(uri, compile_schema(SCHEMA), operation_id=CREATION)


def build(uri: str) -> None:
    """The graph every scenario begins with: people, no cities, a branch `dev`, a branch `topic` with changes."""
    create(uri)
    repository = Repository.open(uri)
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


def over_another(repository: Repository) -> None:
    """A write below which another process has changed settings of its table since it was staged."""
    base, apply = repository.snapshot(), commit.apply

    def meet(dataset: Any, operation: Any, mark: str) -> Any:
        ref = repository.snapshot().ref("node:Person")
        repository.engine.store.latest(ref.location).update_config({"moved": str(ULID())})
        return apply(dataset, operation, mark)

    commit.apply = meet
    try:
        change = TableChange("node:Person", upserts=people(["ann", "hal"], 6))
        repository.commit(Staging("main", WriterKind.MUTATION, (change,), operation_id="OPOVER", actor=ACTOR), base)
    finally:
        commit.apply = apply


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


def without_cities(repository: Repository) -> None:
    """A type is dropped, softly: its table stays for those who read the past."""
    alone(repository)
    Schema(repository, ACTOR).apply(SCHEMA[: SCHEMA.index("node City")] + SCHEMA[SCHEMA.index("edge Knows") :])
    for i in range(2):
        append_person(repository, f"late{i}", f"OPLATE{i}")


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


def open_graph(repository: Repository) -> None:
    """Opening for writing settles what dead writers left; the first one brings an older format to ours."""
    import omnigraph

    omnigraph.open(repository.uri)


def append_person(repository: Repository, name: str, operation_id: str, *, reads: frozenset[str] = frozenset()) -> None:
    change = TableChange("node:Person", appends=people([name], 3))
    staging = Staging("main", WriterKind.MUTATION, (change,), reads, operation_id)
    repository.commit(staging, repository.snapshot())


def append_unhealed(uri: str, name: str, operation_id: str, reads: list[str]) -> None:
    """In a child: a writer that looked for dead ones before the other died."""
    commit.heal = lambda *_: None
    commit.settle_drift = lambda _engine, _branch, ref, **_: ref
    append_person(Repository.open(uri), name, operation_id, reads=frozenset(reads))


def put_off(uri: str) -> None:
    """In a child: commits whose rows in the history wait for one another."""
    history.LINGER_SECONDS = NEVER
    repository = Repository.open(uri)
    for i in range(3):
        staging = Staging("main", WriterKind.MUTATION, (TableChange("node:Person", appends=people([f"n{i}"], i)),),
                          operation_id=f"OPWAIT{i}", actor=f"actor-{i}")  # fmt: skip
        repository.commit(staging, repository.snapshot())
    repository.close()


def fragmented(uri: str) -> None:
    build(uri)
    fragment(Repository.open(uri))


def row_ids(repository: Repository) -> dict[str, Any]:
    """Every row of main with its row id."""
    snapshot = repository.snapshot()
    return {k: sorted(map(str, snapshot.scan(k, ["_rowid", "id"]).to_pylist())) for k in snapshot.tables}


def one_file_a_table(repository: Repository) -> None:
    """A sweep may have published one of the tables under the operation's name: the next compaction does the rest."""
    maintain.optimize(repository)
    snapshot = repository.snapshot()
    assert all(len(snapshot.dataset(key).get_fragments()) <= 1 for key in snapshot.tables)


def untidied(uri: str) -> None:
    build(uri)
    untidy(Repository.open(uri))


def dropped(uri: str) -> None:
    build(uri)
    without_cities(Repository.open(uri))


def built_alone(uri: str) -> None:
    build(uri)
    alone(Repository.open(uri))


def numbered_rows(repository: Repository, branch: str) -> dict[str, Any]:
    """The schema with its ids, and every row with its id and the version that made it."""
    snapshot = repository.snapshot(branch)
    rows = {}
    for key in snapshot.tables:
        table = snapshot.scan(key, [*snapshot.schema(key).names, "_rowid", "_row_created_at_version"])
        rows[key] = sorted(map(repr, table.to_pylist()))
    return {"schema": snapshot.schema_hash, "ids": snapshot.schema_ir.identity, "rows": rows}


def no_other_schema(repository: Repository) -> None:
    """The copies are those of the schema that counts, and nothing of a change that wasn't made is left."""
    store, snapshot = repository.engine.store, repository.snapshot()
    assert SCHEMA_LOCK not in branch_names(store, MANIFEST)
    assert not any(store.files.exists(f"{n}.staging") for n in ("_schema.pg", "_schema.ir.json", "__schema_state.json"))
    assert store.files.read("_schema.pg").decode() == snapshot.catalog.source
    assert store.files.read("_schema.ir.json").decode() == snapshot.schema_ir.to_json()
    assert json.loads(store.files.read("__schema_state.json"))["schema_hash"] == snapshot.schema_hash
    if store.root.is_local:
        kept = {ref.location for ref in snapshot.tables.values()}
        there = {f"{kind}/{p.name}" for kind in ("nodes", "edges") for p in Path(repository.uri, kind).iterdir()}
        assert there == kept


def contents(repository: Repository, branch: str) -> dict[str, Any]:
    """The schema and every row of the branch, read from one snapshot, in no order of Lance's."""
    return rows_of(repository.snapshot(branch))


def rows_of(snapshot: Snapshot) -> dict[str, Any]:
    rows = {key: sorted(map(repr, snapshot.scan(key).to_pylist())) for key in snapshot.tables}
    return rows | {"schema": snapshot.schema_hash}


ALBUM = """node Photo {
    name: String @key
    data: Blob?
}
"""


def album(uri: str) -> None:
    """Photos within their rows, beside them and in files of their own, and a branch with more and others of them."""
    import omnigraph

    def photos(start: int, count: int) -> str:
        texts = [b64encode(bytes([i]) * 10 ** (i % 6)).decode() for i in range(start, start + count)]
        records = [{"name": f"p{i}", "data": f"base64:{text}"} for i, text in enumerate(texts, start)]
        return "\n".join(json.dumps({"type": "Photo", "data": record}) for record in records)

    with omnigraph.init(uri, schema=ALBUM) as graph:
        graph.load(photos(0, 8))
        graph.branches.create("dev")
        graph.branches.create("topic")
        graph.load(photos(8, 8), branch="topic")
        graph.mutate(
            'query q($b: Blob) { update Photo set { data: $b } where name = "p1" }',
            {"b": b"other" * 99},
            branch="topic",
        )


def album_alone(uri: str) -> None:
    album(uri)
    repository = Repository.open(uri)
    for name in ("dev", "topic"):
        repository.delete_branch(name)


def captioned(repository: Repository) -> None:
    """A schema change that renames the type, its Blob too, and writes a column."""
    changed = ALBUM.replace("node Photo {", 'node Picture @rename_from("Photo") {\n    lang: String @default("en")')
    Schema(repository, ACTOR).apply(
        changed.replace("data: Blob?", 'bytes: Blob? @rename_from("data")'), operation_id="OPSCHEMA"
    )


def digests(repository: Repository, branch: str) -> dict[str, Any]:
    """The bytes of every Blob, by the names of its type and its row."""
    snapshot, out = repository.snapshot(branch), {}
    for entity in snapshot.catalog.by_table_key.values():
        rows = snapshot.scan(entity.table_key, ["id", "_rowid"])
        blob = next(p.name for p in entity.properties.values() if p.type.base == "Blob")
        found = snapshot.blob_digests(entity.table_key, blob, rows["_rowid"].combine_chunks())
        out |= {f"{entity.name} {i}": d for i, d in zip(rows["id"].to_pylist(), found.to_pylist(), strict=True)}
    return out


def nothing(_: Repository) -> Any:
    return None


@dataclass(frozen=True)
class Scenario:
    """One write to interrupt.

    Args:
        act: does it; done again it is the retry of a write that failed.
        branch: the branch whose state it changes.
        build: makes the graph it begins with.
        neutral: it changes no row.
        purges: data goes for good, so a reader that began before may lose it.
        joins: it may leave the short files of a table joined without publishing that.
        merges: the branch whose head becomes the second parent.
        look: what tells the states before and after apart, more closely than `contents` if need be.
        kept: what neither the write nor a kill may change, beside the rows.
        settled: one more check wherever no write is in flight.
        ended: one more check after the retry.
    """

    act: Callable[[Repository], None]
    branch: str
    operation_id: str
    build: Callable[[str], None] = build
    neutral: bool = False
    purges: bool = False
    joins: bool = False
    merges: str | None = None
    look: Callable[[Repository, str], dict[str, Any]] = contents
    kept: Callable[[Repository], Any] = nothing
    settled: Callable[[Repository], Any] = nothing
    ended: Callable[[Repository], Any] = nothing


SCENARIOS = {
    "load": Scenario(load, "main", "OPLOAD"),
    "mutation": Scenario(mutation, "main", "OPMUTATE"),
    "branch": Scenario(branch_write, "dev", "OPBRANCH"),
    "indices": Scenario(indices, "main", "OPINDEX", neutral=True, kept=row_ids),
    "optimize": Scenario(
        optimize, "main", "OPOPTIMIZE", build=fragmented, neutral=True, kept=row_ids, ended=one_file_a_table
    ),
    "tail": Scenario(long_tail, "main", "OPTAIL", joins=True),
    "schema": Scenario(
        schema, "main", "OPSCHEMA", build=built_alone, look=numbered_rows, settled=no_other_schema, purges=True
    ),
    "merge": Scenario(merge, "main", "OPMERGE", merges="topic"),
    "merge-fork": Scenario(merge_into_branch, "dev", "OPMERGEDEV", merges="topic"),
}


IN_A_FOLDER = {"over-another": Scenario(over_another, "main", "OPOVER", joins=True)}
"""More of them, whose ways no store changes."""


def perform(uri: str, module: str, name: str) -> None:
    """In a child: what the function of that name does to the graph, or to the place where none is yet."""
    act = getattr(import_module(module), name)
    history.LINGER_SECONDS = NEVER  # the same steps each time
    if act is create:
        act(uri)
        return
    repository = Repository.open(uri)
    act(repository)
    repository.close()  # some steps follow the answer
