"""What the engine leans on in Lance, each fact by itself, so that an upgrade that changes one is noticed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from lance.commit import CommitConflictError
from lance.fragment import write_fragments

from omnigraph.storage.change import apply, stage
from omnigraph.storage.layout import MARK
from omnigraph.storage.types import TableChange

SCHEMA = pa.schema([pa.field("id", pa.string(), nullable=False), pa.field("n", pa.int64())])
KEYED = pa.schema(
    [
        pa.field("object_id", pa.string(), False, metadata={"lance-schema:unenforced-primary-key": "true"}),
        pa.field("n", pa.int64()),
    ]
)


def rows(ids: list[str], n: int = 0) -> pa.Table:
    return pa.table({"id": ids, "n": pa.array([n] * len(ids), pa.int64())}, schema=SCHEMA)


def keyed(ids: list[str], n: int = 0) -> pa.Table:
    return pa.table({"object_id": ids, "n": pa.array([n] * len(ids), pa.int64())}, schema=KEYED)


def make(path: Path, data: pa.Table) -> lance.LanceDataset:
    return lance.write_dataset(data, str(path), enable_stable_row_ids=True, data_storage_version="2.2")


def merge(dataset: lance.LanceDataset, data: pa.Table) -> Any:
    builder = dataset.merge_insert("object_id").when_matched_update_all().when_not_matched_insert_all()
    return builder.use_index(False).conflict_retries(0).execute(data)


@pytest.mark.parametrize("second", [["head", "x"], ["x"]], ids=["same row updated", "same row inserted"])
def test_merge_on_a_stale_handle_is_refused(tmp_path: Path, second: list[str]) -> None:
    make(tmp_path / "m", keyed(["head", "other"]))
    one, two = lance.dataset(str(tmp_path / "m")), lance.dataset(str(tmp_path / "m"))
    merge(one, keyed(["head", "x"], 1))
    with pytest.raises(OSError, match="Too many concurrent writers"):
        merge(two, keyed(second, 2))
    assert lance.dataset(str(tmp_path / "m")).count_rows() == 3


CHANGES = {
    "append": TableChange("node:T", appends=rows(["new"])),
    "upsert": TableChange("node:T", upserts=rows(["b"], 5)),
    "delete": TableChange("node:T", delete_ids=pa.array(["c"])),
    "all": TableChange("node:T", appends=rows(["x"]), upserts=rows(["b"], 7), delete_ids=pa.array(["a"])),
    "overwrite": TableChange("node:T", appends=rows(["z"]), overwrite=True),
}


@pytest.mark.parametrize("first", sorted(CHANGES))
@pytest.mark.parametrize("second", sorted(CHANGES))
def test_any_two_changes_from_one_version_collide(tmp_path: Path, first: str, second: str) -> None:
    make(tmp_path / "t", rows(["a", "b", "c"]))
    one, two = lance.dataset(str(tmp_path / "t")), lance.dataset(str(tmp_path / "t"))
    staged = stage(two, CHANGES[second])
    apply(one, stage(one, CHANGES[first]), "S1")
    with pytest.raises(CommitConflictError):
        apply(two, staged, "S2")


def test_two_changes_of_an_empty_table_collide(tmp_path: Path) -> None:
    make(tmp_path / "t", SCHEMA.empty_table())
    one, two = lance.dataset(str(tmp_path / "t")), lance.dataset(str(tmp_path / "t"))
    staged = stage(two, CHANGES["append"])
    after = apply(one, stage(one, CHANGES["append"]), "S1")
    assert after.has_stable_row_ids
    with pytest.raises(CommitConflictError):
        apply(two, staged, "S2")


def test_a_mixed_change_keeps_row_ids_lineage_and_index(tmp_path: Path) -> None:
    dataset = make(tmp_path / "t", rows(["a", "b", "c"]))
    dataset.create_scalar_index("id", "BTREE")
    files = tuple(__import__("json").dumps(f.to_json()) for f in write_fragments(rows(["w"], 3), dataset))
    change = TableChange("node:T", rows(["x"], 1), rows(["b", "y"], 2), pa.array(["a", "gone"]), files)
    after = apply(dataset, stage(dataset, change), "S1")
    assert after.version == 3
    columns = ["id", "n", "_rowid", "_row_created_at_version", "_row_last_updated_at_version"]
    found = {r["id"]: list(r.values())[1:] for r in after.scanner(columns=columns).to_table().to_pylist()}
    assert found["b"] == [2, 1, 1, 3]
    assert found["c"] == [0, 2, 1, 1]
    assert sorted(found) == ["b", "c", "w", "x", "y"]
    assert [found[k][2:] for k in "wxy"] == [[3, 3]] * 3
    assert len({v[1] for v in found.values()}) == 5
    for row in found:
        assert after.scanner(filter=f"id = '{row}'").to_table().num_rows == 1
    assert after.read_transaction(3).transaction_properties[MARK] == "S1"


def test_repeated_ids_are_deleted_together(tmp_path: Path) -> None:
    dataset = make(tmp_path / "t", rows(["a", "b", "a"]))
    lance.write_dataset(rows(["a"]), dataset, mode="append")
    dataset = lance.dataset(str(tmp_path / "t"))
    after = apply(dataset, stage(dataset, TableChange("node:T", delete_ids=pa.array(["a", "a"]))), "S")
    assert after.to_table()["id"].to_pylist() == ["b"]


def test_restore_and_forks(tmp_path: Path) -> None:
    dataset = make(tmp_path / "t", rows(["a"]))
    apply(dataset, stage(dataset, CHANGES["append"]), "S")
    old = lance.dataset(str(tmp_path / "t"), version=1)
    old.restore()
    assert (old.version, old.count_rows()) == (3, 1)
    old.create_branch("a/b", 1)
    fork = lance.dataset(str(tmp_path / "t" / "tree" / "a" / "b"))
    assert fork.version == 1
    after = apply(fork, stage(fork, CHANGES["append"]), "S")
    assert (after.version, after.count_rows()) == (2, 2)
    assert lance.dataset(str(tmp_path / "t")).version == 3
    session = lance.Session()
    lance.dataset(fork.uri, version=2, session=session).to_table()
    old.branches.delete("a/b")
    old.create_branch("a/b", 1)
    fork = lance.dataset(str(tmp_path / "t" / "tree" / "a" / "b"))
    apply(fork, stage(fork, CHANGES["all"]), "S")
    again = lance.dataset(fork.uri, version=2, session=session)  # a session that knew the former fork of this name
    assert sorted(again.to_table()["id"].to_pylist()) == ["b", "x"]


def test_an_unknown_row_id_is_left_out_silently(tmp_path: Path) -> None:
    dataset = make(tmp_path / "t", rows(["a", "b"]))
    assert dataset._take_rows([1, 0, 1], columns=["id"])["id"].to_pylist() == ["b", "a", "b"]
    assert dataset._take_rows([7, 0], columns=["id"])["id"].to_pylist() == ["a"]


def test_schema_metadata_and_lineage_survive_compaction(tmp_path: Path) -> None:
    data = keyed(["head"]).replace_schema_metadata({"omnigraph:internal_schema_version": "3"})
    dataset = make(tmp_path / "m", data)
    for i in range(5):
        merge(dataset, keyed(["head", f"r{i}"], i))
    columns = ["object_id", "_row_created_at_version", "_row_last_updated_at_version"]
    before = sorted(map(str, dataset.scanner(columns=columns).to_table().to_pylist()))
    dataset.optimize.compact_files()
    after = lance.dataset(str(tmp_path / "m"))
    assert sorted(map(str, after.scanner(columns=columns).to_table().to_pylist())) == before
    assert after.schema.metadata == {b"omnigraph:internal_schema_version": b"3"}
    assert after.schema.field("object_id").metadata == {b"lance-schema:unenforced-primary-key": b"true"}
    assert len(after.get_fragments()) < 5


@pytest.mark.parametrize("kind", ["BTREE", "BITMAP", "NGRAM", "INVERTED"])
def test_rows_written_beside_an_indexed_fragment_are_not_taken_for_indexed(tmp_path: Path, kind: str) -> None:
    dataset = make(tmp_path / "d", rows(["a", "b", "c"]))
    dataset.create_scalar_index("id", kind, name="i")
    for change in (CHANGES["append"], CHANGES["upsert"], CHANGES["all"]):
        dataset = apply(dataset, stage(dataset, change), "mark")
        assert [set(index["fragment_ids"]) for index in dataset.list_indices()] in ([{0}], [set()])
    assert dataset.to_table(filter="id = 'new'").num_rows == 1
    assert dataset.to_table(filter="id = 'x'").num_rows == 1


def test_an_update_says_that_every_field_may_have_changed(tmp_path: Path) -> None:
    """Else Lance counts new fragments as indexed once the index covers those that the update names."""
    nested = pa.table({"id": ["a"], "v": pa.array([[1.0, 2.0]], pa.list_(pa.float32(), 2)), "l": [[1]]})
    dataset = lance.write_dataset(nested, str(tmp_path / "d"), enable_stable_row_ids=True)
    operation = stage(dataset, TableChange("node:T", upserts=nested))
    named = {
        number
        for field in dataset.lance_schema.fields()
        for number in (field.id(), *(c.id() for c in field.children()))
    }
    assert set(operation.fields_for_preserving_frag_bitmap) == named
    assert len(named) >= 4


def test_deleted_row_ids_of_a_delta(tmp_path: Path) -> None:
    """On main and on a branch from the version it began at; over updates, restores, overwrites and compaction."""

    def gone(dataset: lance.LanceDataset, begin: int) -> list[int]:
        delta = dataset.delta(begin_version=begin, end_version=int(dataset.version))
        return sorted(delta.get_deleted_row_ids().read_all()["_rowid"].to_pylist())

    dataset = make(tmp_path / "t", rows(["a", "b", "c"]))
    dataset = apply(dataset, stage(dataset, TableChange("node:T", appends=rows(["d"]))), "S")
    dataset.create_branch("x", 2)
    for handle in (lance.dataset(str(tmp_path / "t")), lance.dataset(str(tmp_path / "t" / "tree" / "x"))):
        change = TableChange("node:T", upserts=rows(["b"], 5), delete_ids=pa.array(["a", "d"]))
        after = apply(handle, stage(handle, change), "S")
        assert gone(after, 2) == [0, 3]
        after = apply(after, stage(after, TableChange("node:T", appends=rows(["a"]))), "S")
        assert gone(after, 2) == [0, 3]  # the id came back, as another row
        after.optimize.compact_files()
        assert gone(after, 2) == [0, 3]
        old = lance.dataset(after.uri, version=2)
        old.restore()
        assert gone(old, 2) == []
        over = apply(old, stage(old, CHANGES["overwrite"]), "S")
        assert gone(over, 2) == [0, 1, 2, 3]
        assert over.scanner(columns=["_rowid"]).to_table()["_rowid"].to_pylist()[0] > 3  # ids are never used again


def test_the_record_of_a_branch_is_a_file(tmp_path: Path) -> None:
    import json

    from omnigraph.storage.lineage import ref_file

    dataset = make(tmp_path / "t", rows(["a"]))
    for name in ("a/b", "größe-1.x_y"):
        dataset.create_branch(name, 1)
        record = json.loads((tmp_path / ref_file("t", name)).read_text())
        assert (record["parentBranch"], record["parentVersion"]) == (None, 1)
    lance.dataset(str(tmp_path / "t" / "tree" / "a" / "b")).create_branch("c", 1)
    assert json.loads((tmp_path / ref_file("t", "c")).read_text())["parentBranch"] == "a/b"
    with pytest.raises(OSError, match="referenced"):
        dataset.branches.delete("a/b")
    dataset.branches.delete("c")
    assert not (tmp_path / ref_file("t", "c")).exists()


@pytest.mark.parametrize(("kinds", "answers"), [(("BTREE", "NGRAM"), "BTree"), (("NGRAM", "BTREE"), None)])
def test_of_a_columns_indexes_the_first_alone_answers_conditions(
    tmp_path: Path, kinds: tuple[str, ...], answers: str | None
) -> None:
    """Once this fails, `storage.index_kinds` may give texts an NGRAM beside their BTREE."""
    dataset = make(tmp_path / "t", rows([f"number {i}" for i in range(500)]))
    for kind in kinds:
        dataset.create_scalar_index("id", kind, name=f"id_{kind}")  # type: ignore[arg-type]

    def asked(condition: str) -> str:
        return str(dataset.scanner(columns=["n"], filter=condition, prefilter=True).explain_plan())

    assert ("ScalarIndexQuery" in asked("id = 'number 7'")) == (answers == "BTree")
    assert ("ScalarIndexQuery" in asked("contains(id, 'ber 7')")) == (answers is None)


@pytest.mark.parametrize(("longest", "answers"), [(1 << 30, True), (None, False)])
def test_an_inverted_index_with_a_longest_word_leaves_conditions_to_the_btree(
    tmp_path: Path, longest: int | None, answers: bool
) -> None:
    """Why `storage.index_kinds` sets one: without it the INVERTED that was there first would hide the BTREE."""
    dataset = make(tmp_path / "t", rows([f"number {i}" for i in range(500)]))
    options: dict[str, Any] = {"stem": False, "remove_stop_words": False, "max_token_length": longest}
    dataset.create_scalar_index("id", "INVERTED", name="a", **options)
    dataset.create_scalar_index("id", "BTREE", name="b")
    plan = dataset.scanner(columns=["n"], filter="id = 'number 7'", prefilter=True).explain_plan()
    assert ("ScalarIndexQuery" in str(plan)) == answers


def test_the_metadata_of_fragments_is_equal_where_their_json_is(tmp_path: Path) -> None:
    dataset = make(tmp_path / "t", rows(["a", "b", "c"]))
    for change in (CHANGES["append"], CHANGES["upsert"], CHANGES["delete"]):
        dataset = apply(dataset, stage(dataset, change), "S")
    old = dataset.version
    dataset.delete("id = 'new'")
    again = lance.dataset(dataset.uri)
    versions = [dataset.checkout_version(v) for v in range(1, old + 1)] + [dataset, again]
    fragments = [fragment.metadata for version in versions for fragment in version.get_fragments()]
    alike = 0
    for one in fragments:
        for other in fragments:
            assert (one == other) == (one.to_json() == other.to_json())
            alike += one == other
    assert len(fragments) < alike < len(fragments) ** 2


def test_an_index_of_vectors_in_several_partitions_cannot_be_extended_by_none(tmp_path: Path) -> None:
    """Once this fails, `storage.index_kinds` needn't leave such an index as it is."""
    kind = pa.list_(pa.float32(), 2)
    vectors = pa.array([[float(i), 100.0] for i in range(300)], kind)
    dataset = make(tmp_path / "t", pa.table({"v": vectors}))
    dataset.create_index("v", "IVF_SQ", name="v", metric="cosine", num_partitions=2)
    dataset = lance.write_dataset(pa.table({"v": pa.nulls(3, kind)}), dataset, mode="append")
    with pytest.raises(OSError, match="Not found"):
        dataset.optimize.optimize_indices()
