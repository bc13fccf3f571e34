"""Index builds and verify, on real storage: idempotent, and every damage they look for is found."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pyarrow as pa
import pytest
from ulid import ULID

from omnigraph.cli.main import main
from omnigraph.errors import Internal
from omnigraph.maintain import ensure_indices, verify
from omnigraph.schema import compile_schema
from omnigraph.storage import Repository, Staging, TableChange, WriterKind, index_kinds
from omnigraph.storage import commit as commit_module
from omnigraph.storage.arrow import table_schema
from omnigraph.storage.layout import COMMITS, MANIFEST
from omnigraph.storage.steps import Step
from omnigraph.write import load

SCHEMA = """
node Person { slug: String @key  age: I32? @index  email: String? @unique  tags: [String]? }
edge Knows: Person -> Person @card(1..2) { since: Date? @index }
"""
PEOPLE = """
{"type": "Person", "data": {"slug": "a", "email": "1"}}
{"type": "Person", "data": {"slug": "b"}}
{"edge": "Knows", "from": "a", "to": "b"}
"""


@pytest.fixture
def graph(tmp_path: Path) -> Repository:
    repository = Repository.create(str(tmp_path / "g"), compile_schema(SCHEMA))
    load(repository, PEOPLE)
    return repository


def put_unchecked(repository: Repository, table_key: str, rows: list[dict[str, object]]) -> None:
    """Writes past every check, as a damaged graph would look."""
    base = repository.snapshot()
    schema = table_schema(base.catalog.by_table_key[table_key])
    change = TableChange(table_key, appends=pa.Table.from_pylist(rows, schema=schema))
    repository.commit(Staging("main", WriterKind.LOAD, (change,), operation_id=str(ULID())), base)


def errors(repository: Repository) -> list[str]:
    return sorted({one["kind"] for one in verify(repository).findings if one["severity"] == "error"})


def test_indices_are_built_once_and_extended_after_a_write(graph: Repository) -> None:
    first = {one["table_key"]: one for one in ensure_indices(graph)}
    assert first["node:Person"]["built"] == ["id", "slug", "age"]
    assert first["edge:Knows"]["built"] == ["id", "src", "dst", "since"]
    head = graph.head().id
    assert all(not one["built"] and not one["extended"] for one in ensure_indices(graph))
    assert graph.head().id == head
    load(graph, '{"type": "Person", "data": {"slug": "c", "age": 3}}')
    again = {one["table_key"]: one for one in ensure_indices(graph)}
    assert sorted(again["node:Person"]["built"] + again["node:Person"]["extended"]) == ["age", "id", "slug"]
    assert graph.snapshot().scan("node:Person", ["id"], filter="age = 3").to_pylist() == [{"id": "c"}]


def test_a_sound_graph_is_ok_with_notes_alone(graph: Repository) -> None:
    report = verify(graph)
    assert report.ok
    assert {one["kind"] for one in report.findings} == {"index_coverage", "below_minimum"}
    assert report.counts == {"branches": 1, "commits": 2, "tables": 2, "rows": 3}
    (person,) = (
        f["message"] for f in report.findings if f["kind"] == "index_coverage" and f["table_key"] == "node:Person"
    )
    assert person == "the indexes on id, slug, age cover 0 of 2 rows: run `omnigraph ensure-indices` for speed"
    ensure_indices(graph)
    assert {one["kind"] for one in verify(graph).findings} == {"below_minimum"}


def test_branches_that_share_tables_are_looked_at_once(graph: Repository) -> None:
    graph.create_branch("draft")
    assert verify(graph).counts == {"branches": 2, "commits": 2, "tables": 2, "rows": 3}
    load(graph, '{"type": "Person", "data": {"slug": "c"}}', branch="draft")
    report = verify(graph)
    assert report.ok
    assert (report.counts["tables"], report.counts["rows"]) == (3, 6)


def test_each_damage_is_named(graph: Repository) -> None:
    put_unchecked(graph, "edge:Knows", [{"id": "e", "src": "a", "dst": "gone"}])
    assert errors(graph) == ["orphan_edge"]
    put_unchecked(graph, "edge:Knows", [{"id": "f", "src": "a", "dst": "b"}])
    assert errors(graph) == ["cardinality_violation", "orphan_edge"]
    put_unchecked(graph, "node:Person", [{"id": "b", "slug": "b", "email": "1"}])
    assert errors(graph) == ["cardinality_violation", "duplicate_id", "orphan_edge", "unique_violation"]
    assert not verify(graph).ok


def test_values_that_the_schema_forbids_are_named(tmp_path: Path) -> None:
    schema = """
    node P { k: I32 @key  age: I32?  word: String?  state: enum(on, off)?  states: [enum(on, off)]?
             @range(age, 0..150) @check(word, "[a-z]+") }
    edge Likes: P -> P { how: enum(much, little)  @key(src, dst) }
    """
    graph = Repository.create(str(tmp_path / "g"), compile_schema(schema))
    good = {"id": "1", "k": 1, "age": 150, "word": "a", "state": "on", "states": ["off"]}
    put_unchecked(graph, "node:P", [good, {"id": "2", "k": 2}])
    put_unchecked(graph, "edge:Likes", [{"id": '["1","2"]', "src": "1", "dst": "2", "how": "much"}])
    assert errors(graph) == []
    put_unchecked(graph, "edge:Likes", [{"id": "x", "src": "2", "dst": "1", "how": "so"}])
    bad = {"age": 151, "word": "A", "state": "or", "states": ["on", "or"]}
    put_unchecked(graph, "node:P", [{"id": str(k), "k": k, name: bad[name]} for k, name in enumerate(bad, 3)])
    put_unchecked(graph, "node:P", [{"id": "nine", "k": 9}])
    found = [(f["kind"], f["severity"], f["table_key"]) for f in verify(graph).findings if f["severity"] != "note"]
    assert sorted(found) == [
        ("foreign_ids", "error", "node:P"),
        ("foreign_ids", "warning", "edge:Likes"),
        ("value_constraint_violation", "error", "edge:Likes"),
        *[("value_constraint_violation", "error", "node:P")] * 4,
    ]


def test_a_head_ahead_of_its_pin_is_drift(graph: Repository) -> None:
    graph.snapshot().dataset("node:Person").delete("id = 'b'")
    report = verify(graph)
    assert not report.ok
    assert "drift" in {one["kind"] for one in report.findings}


def test_a_running_write_is_no_fault(graph: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    """Looked at from the moment between a table's commit and the publish, by another opener of the graph."""
    reports = []

    def look(step: Step) -> None:
        if step == Step.TABLE_COMMITTED:
            reports.append(verify(Repository.open(graph.uri)))

    monkeypatch.setattr(commit_module, "reach", look)
    load(graph, json.dumps({"type": "Person", "data": {"slug": "zoe"}}))
    (report,) = reports
    assert report.ok, report.findings
    assert [f["severity"] for f in report.findings if f["kind"] == "running_write"] == ["note"]


def test_an_unfinished_write_is_named(graph: Repository) -> None:
    (Path(graph.uri) / "__recovery" / "01ARZ3NDEKTSV4RRFFQ69G5FAV.json").write_text("{}")
    report = verify(graph)
    assert not report.ok
    assert report.findings[0]["kind"] == "pending_recovery"
    assert "01ARZ3NDEKTSV4RRFFQ69G5FAV" in report.findings[0]["message"]


def test_numbers_that_are_none_are_named(tmp_path: Path) -> None:
    schema = "node M { slug: String @key  x: F64?  y: F32?  many: [F64]?  v: Vector(2)? }\n"
    repository = Repository.create(str(tmp_path / "n"), compile_schema(schema))
    inf, nan = float("inf"), float("nan")
    rows: list[dict[str, object]] = [
        {"id": "fine", "slug": "fine", "x": 1.0, "y": None, "many": [1.0, None], "v": [1.0, 0.0]},
        {"id": "one", "slug": "one", "x": nan, "y": 2.0, "many": None, "v": None},
        {"id": "two", "slug": "two", "x": -inf, "y": inf, "many": [0.0, nan, inf], "v": [nan, 1.0]},
    ]
    put_unchecked(repository, "node:M", rows)
    found = {f["message"].split(" ")[0]: f for f in verify(repository).findings if f["kind"] == "not_finite"}
    assert {name: f["id"] for name, f in found.items()} == {"x": "one", "y": "two", "many": "two", "v": "two"}
    assert "2 row(s)" in found["x"]["message"]
    assert "1 row(s)" in found["many"]["message"]
    assert errors(repository) == ["not_finite"]


def test_what_killed_writes_left_is_a_note(graph: Repository) -> None:
    graph.create_branch("gone")
    load(graph, '{"type": "Person", "data": {"slug": "c"}}', branch="gone")
    graph.close()
    manifest = graph.engine.store.latest("__manifest")
    manifest.branches.delete("gone")
    manifest.create_branch("__schema_apply_lock__", None)
    temporary = Path(graph.uri) / "_schemas" / ".00ff.tmp"
    temporary.write_text("x")
    os.utime(temporary, (0, 0))
    report = verify(graph)
    left = {f["kind"] for f in report.findings if f["severity"] == "note"} - {"index_coverage"}
    assert left == {"schema_lock", "leftover_fork", "temporary_file"}
    assert report.ok
    graph.sweep("full")
    graph.cleanup(keep=10, confirm=True)
    assert {f["kind"] for f in verify(graph).findings} == {"index_coverage", "below_minimum"}


def damage(repository: Repository, table_key: str, *texts: str) -> None:
    """Overwrites what the data files hold from each of these texts on."""
    folder = Path(repository.uri) / repository.snapshot().ref(table_key).location / "data"
    for text in texts:
        (path,) = (path for path in folder.iterdir() if text.encode() in path.read_bytes())
        data = path.read_bytes()
        at = data.index(text.encode())
        path.write_bytes(data[:at] + b"\xff" * 40 + data[at + 40 :])


def test_every_column_that_cannot_be_read_is_named_and_the_rest_is_checked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    schema = """
    node P { slug: String @key  bio: String?  nick: String? @unique  n: F64?  state: enum(on, off)? }
    node Q { slug: String @key  bio: String? }
    edge Likes: P -> P { why: String? }
    """
    graph = Repository.create(str(tmp_path / "g"), compile_schema(schema))
    rows: list[dict[str, object]] = [
        {
            "id": f"p{i}",
            "slug": f"p{i}",
            "bio": f"bio of {i} " * 5,
            "nick": f"nick of {i} " * 5,
            "n": 1.0,
            "state": "on",
        }
        for i in range(20)
    ]
    put_unchecked(graph, "node:P", [*rows, {"id": "z", "slug": "z", "n": float("inf"), "state": "or"}])
    put_unchecked(graph, "node:Q", [{"id": "q", "slug": "other", "bio": "b"}])
    put_unchecked(graph, "edge:Likes", [{"id": "e", "src": "p1", "dst": "gone", "why": "because of that"}])
    graph.create_branch("draft")
    assert errors(graph) == ["foreign_ids", "not_finite", "orphan_edge", "value_constraint_violation"]
    damage(graph, "node:P", "bio of 3", "nick of 4")
    report = verify(Repository.open(graph.uri))
    found = [(f["kind"], f["table_key"], f.get("column")) for f in report.findings if f["severity"] == "error"]
    assert sorted(found, key=str) == [
        ("foreign_ids", "node:Q", None),
        ("not_finite", "node:P", None),
        ("orphan_edge", "edge:Likes", None),
        ("unreadable_column", "node:P", "bio"),
        ("unreadable_column", "node:P", "nick"),
        ("value_constraint_violation", "node:P", None),
    ]
    assert report.counts["tables"] == 3
    assert main(["verify", graph.uri]) == 1
    assert "error unreadable_column node:P: bio of version 2 can't be read: " in capsys.readouterr().out


def test_what_else_cannot_be_read_ends_no_run(graph: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    put_unchecked(graph, "edge:Knows", [{"id": "e", "src": "b", "dst": "gone"}])
    for name in ("bad", "good"):
        graph.create_branch(name)
        load(graph, json.dumps({"type": "Person", "data": {"slug": name}}), branch=name)
    graph.close()
    root = Path(graph.uri)
    for path in (root / MANIFEST / "tree" / "bad" / "_versions").iterdir():
        path.write_bytes(b"no manifest")
    for path in (root / COMMITS / "tree" / "good" / "data").iterdir():
        path.write_bytes(b"no rows")

    def fails(*_: object) -> None:
        raise Internal("no index")

    monkeypatch.setattr(index_kinds, "lacking", fails)
    report = verify(Repository.open(graph.uri))
    found = {(f["kind"], f.get("branch"), f.get("table_key")) for f in report.findings if f["severity"] == "error"}
    assert found == {
        ("unreadable_branch", "bad", None),
        ("unreadable_branch", None, None),  # what its writers may have left
        ("unreadable_history", "good", None),
        *[("orphan_edge", branch, "edge:Knows") for branch in ("main", "good")],
        *[("unreadable_index", "main", key) for key in ("node:Person", "edge:Knows")],
        ("unreadable_index", "good", "node:Person"),
    }
    assert report.counts["branches"] == 3
