"""One table's change against a plain model: values, row ids and row versions, whichever way ids are looked up."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest

from omnigraph.errors import Conflict
from omnigraph.schema import compile_schema
from omnigraph.storage import Repository, Staging, TableChange, WriterKind, change

SCHEMA = "node P {\n    name: String @key\n    age: I64?\n}\n"


def rows(values: dict[str, int]) -> pa.Table:
    names = list(values)
    return pa.table({"id": names, "name": names, "age": pa.array(list(values.values()), pa.int64())})


def write(repository: Repository, made: TableChange) -> None:
    repository.commit(Staging("main", WriterKind.MUTATION, (made,)), repository.snapshot())


@pytest.mark.parametrize("lookup", ["index", "index-lags", "no-index", "scan"])
def test_random_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lookup: str) -> None:
    seed = random.randrange(2**32)
    print("seed", seed)
    rng = random.Random(seed)
    monkeypatch.setattr(change, "LOOKUP_CHUNK", 3)
    if lookup == "scan":
        monkeypatch.setattr(change, "INDEX_BELOW_ROWS", 0)
    repository = Repository.create(str(tmp_path / "g"), compile_schema(SCHEMA))
    names = [f"it's p{i}" for i in range(30)]
    model = dict.fromkeys(names[:12], 0)
    write(repository, TableChange("node:P", appends=rows(model)))
    first = repository.snapshot().ref("node:P").version
    made, moved = dict.fromkeys(model, first), dict.fromkeys(model, first)
    known: dict[str, int] = {}
    if lookup.startswith("index"):
        repository.build_indices("main", {"node:P": [("id", "BTREE")]})
    for step in range(12):
        gone = rng.sample(names, rng.randrange(4))
        upserts = dict.fromkeys(rng.sample(names, rng.randrange(6)), step)
        fresh = [name for name in names if name not in model and name not in upserts]
        appends = dict.fromkeys(rng.sample(fresh, min(len(fresh), rng.randrange(3))), -step)
        if not (gone or upserts or appends):
            continue
        write(
            repository,
            TableChange(
                "node:P",
                appends=rows(appends) if appends else None,
                upserts=rows(upserts) if upserts else None,
                delete_ids=pa.array([*gone, *gone[:1]]) if gone else None,
            ),
        )
        version = repository.snapshot().ref("node:P").version
        for name in gone:
            if name not in upserts and model.pop(name, None) is not None:
                known.pop(name, None)
        for name, age in {**upserts, **appends}.items():
            if name not in model:
                made[name] = version
                known.pop(name, None)
            model[name], moved[name] = age, version
        if lookup == "index":
            repository.build_indices("main", {"node:P": [("id", "BTREE")]})
        columns = ["id", "name", "age", "_rowid", "_row_created_at_version", "_row_last_updated_at_version"]
        found = repository.snapshot().dataset("node:P").scanner(columns).to_table().to_pylist()
        assert {row["id"]: row["age"] for row in found} == model, seed
        assert len(found) == len(model), seed
        assert len({row["_rowid"] for row in found}) == len(found), seed
        for row in found:
            assert row["_row_created_at_version"] == made[row["id"]], (seed, row)
            assert row["_row_last_updated_at_version"] == moved[row["id"]], (seed, row)
            assert known.setdefault(row["id"], row["_rowid"]) == row["_rowid"], (seed, row)
        for name in names:
            one = repository.snapshot().scan("node:P", ["id"], filter=f"id = '{name.replace(chr(39), chr(39) * 2)}'")
            assert one.num_rows == (name in model), (seed, name)


def test_an_id_stored_twice_is_refused(tmp_path: Path) -> None:
    repository = Repository.create(str(tmp_path / "g"), compile_schema(SCHEMA))
    write(repository, TableChange("node:P", appends=rows({"a": 1, "b": 1})))
    write(repository, TableChange("node:P", appends=rows({"a": 2})))
    with pytest.raises(Conflict, match="stored several times") as caught:
        write(repository, TableChange("node:P", upserts=rows({"c": 3, "a": 3})))
    assert caught.value.code == "repeated_id"
    write(repository, TableChange("node:P", upserts=rows({"c": 3, "b": 3}), delete_ids=pa.array(["a"])))
    assert sorted(repository.snapshot().scan("node:P", ["id"])["id"].to_pylist()) == ["b", "c"]


def test_upserts_in_any_order_leave_a_small_manifest(tmp_path: Path) -> None:
    """Lance writes the row ids of every file into every later version."""
    repository = Repository.create(str(tmp_path / "g"), compile_schema(SCHEMA))
    names = [f"p{i:05d}" for i in range(20_000)]
    write(repository, TableChange("node:P", appends=rows(dict.fromkeys(names, 0))))
    write(repository, TableChange("node:P", upserts=rows(dict.fromkeys(random.sample(names, 10_000), 1))))
    write(repository, TableChange("node:P", upserts=rows({"one": 1})))
    ref = repository.snapshot().ref("node:P")
    newest = tmp_path / "g" / ref.location / "_versions" / f"{2**64 - 1 - ref.version:020}.manifest"
    assert newest.stat().st_size < 20_000  # unordered, 40 kB and more
