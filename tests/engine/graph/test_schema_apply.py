"""`Graph.schema.apply`: each kind of step on data with a history, identity over renames, refusals with their codes."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

import omnigraph
from omnigraph.errors import BadRequest, Conflict, LanguageError
from omnigraph.graph import Graph
from omnigraph.storage import Repository
from omnigraph.storage.layout import fnv1a64

PEOPLE = """node Person { name: String @key  mail: String?  age: I32?  kind: enum(a, b) }
node Thing { label: String @key }
edge Knows: Person -> Person { since: I32? }
edge Owns: Person -> Thing
"""
ROWS = """
{"type": "Person", "data": {"name": "ann", "mail": "a@x", "age": 30, "kind": "a"}}
{"type": "Person", "data": {"name": "bob", "age": 40, "kind": "b"}}
{"type": "Person", "data": {"name": "cy", "kind": "b"}}
{"type": "Thing", "data": {"label": "pen"}}
{"edge": "Knows", "from": "ann", "to": "bob", "data": {"since": 1}}
{"edge": "Knows", "from": "ann", "to": "cy", "data": {"since": 2}}
{"edge": "Owns", "from": "bob", "to": "pen", "data": {}}
"""


def made(folder: Path, schema: str = PEOPLE, rows: str = ROWS) -> Graph:
    graph = omnigraph.init(folder / "graph.omni", schema=schema)
    if rows:
        graph.load(rows)
    return graph


def rows(graph: Graph, table_key: str, at: Any = None) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = graph.snapshot(at=at).scan(table_key).to_pylist()
    return sorted(found, key=lambda r: r["id"])


def identities(graph: Graph, table_key: str) -> dict[str, tuple[int, int]]:
    """Row id and the version in which the row was made, by id."""
    table = graph.snapshot().scan(table_key, ["id", "_rowid", "_row_created_at_version"])
    return {r["id"]: (r["_rowid"], r["_row_created_at_version"]) for r in table.to_pylist()}


def sound(graph: Graph) -> None:
    """Nothing is left in flight, and the graph is as its manifest says, for whoever opens it next too."""
    report = graph.verify()
    assert [f for f in report.findings if f["severity"] == "error"] == []
    assert graph.pending() == []
    assert [b.name for b in graph.branches.list() if b.name.startswith("__")] == []
    root = Path(graph.uri)
    assert not list(root.glob("*.staging"))
    snapshot = omnigraph.open(graph.uri, read_only=True).snapshot()
    assert (root / "_schema.pg").read_text() == snapshot.catalog.source
    assert (root / "_schema.ir.json").read_text() == snapshot.schema_ir.to_json()
    state = json.loads((root / "__schema_state.json").read_text())
    assert state["schema_hash"] == snapshot.schema_hash
    assert set(snapshot.tables) == set(snapshot.catalog.by_table_key)
    for key, entity in snapshot.catalog.by_table_key.items():
        fixed = {"id"} if key.startswith("node:") else {"id", "src", "dst"}
        stored = {f.name: f.nullable for f in snapshot.schema(key)}
        assert set(stored) == fixed | set(entity.properties)
        assert all(stored[p.name] == p.type.nullable for p in entity.properties.values()), (key, stored)


# ---- kinds of steps --------------------------------------------------------------------------------------------------


def test_a_new_type_can_be_written_at_once(tmp_path: Path) -> None:
    graph = made(tmp_path)
    before = graph.snapshot()
    result = graph.schema.apply(PEOPLE + "node City { name: String @key }\nedge LivesIn: Person -> City\n")
    assert {t.table_key: t.action for t in result.tables} == {"node:City": "created", "edge:LivesIn": "created"}
    assert graph.snapshot().tables["node:Person"] == before.tables["node:Person"]
    graph.mutate('query m() { insert City { name: "rome" } insert LivesIn { from: "ann", to: "rome" } }')
    found = graph.query("query q() { match { $p: Person  $p livesIn $c } return { $p.name, $c.name } }")
    assert found.to_pylist() == [{"p.name": "ann", "c.name": "rome"}]
    sound(graph)


def test_new_properties_are_null_or_the_default_and_no_row_is_rewritten_for_null(tmp_path: Path) -> None:
    graph = made(tmp_path)
    kept = identities(graph, "node:Person")
    files = set(Path(graph.uri).glob(f"nodes/{fnv1a64('Person')}/data/*"))
    wider = PEOPLE.replace("kind: enum(a, b)", "kind: enum(a, b)  note: String?  tags: [String]?  v: Vector(2)?")
    graph.schema.apply(wider)
    assert set(Path(graph.uri).glob(f"nodes/{fnv1a64('Person')}/data/*")) == files
    wider = wider.replace(
        "note:",
        'lang: String @default("en")  on: Date @default("2026-01-31")  at: DateTime? @default("2026-01-31T10:00:00Z")  '
        "many: [I32] @default([1, 2])  mood: enum(up, down) @default(up)  deep: F64? @default(1.5)  note:",
    )
    graph.schema.apply(wider)
    assert identities(graph, "node:Person") == kept
    asked = "query q() { match { $p: Person { name: \"bob\" } } return { $p.lang, $p.on, $p.at, $p.many, $p.mood, $p.deep, $p.note, $p.tags, $p.age } }"  # fmt: skip # noqa: E501
    shown = json.loads("".join(map(str, graph.query(asked).render("json"))))[0]
    assert shown == {
        "p.lang": "en",
        "p.on": "2026-01-31",
        "p.at": "2026-01-31T10:00:00.000Z",
        "p.many": [1, 2],
        "p.mood": "up",
        "p.deep": 1.5,
        "p.note": None,
        "p.tags": None,
        "p.age": 40,
    }
    graph.mutate('query m() { insert Person { name: "dee", kind: "a", v: [1.0, 2.0] } update Person set { note: "n" } where name = "ann" }')  # fmt: skip # noqa: E501
    assert [(r["id"], r["lang"], r["note"]) for r in rows(graph, "node:Person")] == [
        ("ann", "en", "n"),
        ("bob", "en", None),
        ("cy", "en", None),
        ("dee", "en", None),
    ]
    sound(graph)


def test_renames_keep_the_table_the_rows_and_the_history(tmp_path: Path) -> None:
    graph = made(tmp_path)
    graph.ensure_indices()
    kept, old, location = (
        identities(graph, "node:Person"),
        graph.head().id,
        graph.snapshot().ref("node:Person").location,
    )
    renamed = (
        PEOPLE.replace("node Person {", 'node Human @rename_from("Person") {')
        .replace("mail:", 'email: String? @rename_from("mail")  x:')
        .replace("x: String?", "")
        .replace("Person ->", "Human ->")
        .replace("-> Person", "-> Human")
    )
    result = graph.schema.apply(renamed)
    assert [(t.table_key, t.was, t.action, t.rows) for t in result.tables] == [
        ("node:Human", "node:Person", "renamed", 3)
    ]
    assert identities(graph, "node:Human") == kept
    assert graph.snapshot().ref("node:Human").location == location
    assert "node:Person" not in graph.snapshot().tables
    query = "query q() { match { $p: Human  $p knows $q } return { $p.email, $q.name } order { $q.name } }"
    assert graph.query(query).to_pylist() == [
        {"p.email": "a@x", "q.name": "bob"},
        {"p.email": "a@x", "q.name": "cy"},
    ]
    then = graph.query(query.replace("Human", "Person").replace("email", "mail"), at=old).to_pylist()
    assert then[0] == {"p.mail": "a@x", "q.name": "bob"}
    graph.mutate('query m() { update Human set { email: "new" } where name = "ann" }')
    assert rows(graph, "node:Human")[0]["email"] == "new"
    graph.ensure_indices()
    sound(graph)


def test_a_name_given_away_and_given_again_is_another_table(tmp_path: Path) -> None:
    graph = made(tmp_path)
    first = graph.snapshot().ref("node:Thing").location
    both = PEOPLE.replace("node Thing {", 'node Thing { n: I32? }\nnode Item @rename_from("Thing") {')
    graph.schema.apply(both.replace("-> Thing", "-> Item"))
    assert graph.snapshot().ref("node:Item").location == first
    assert graph.snapshot().ref("node:Thing").location == f"{first}-2"
    assert [r["label"] for r in rows(graph, "node:Item")] == ["pen"]
    graph.load('{"type": "Thing", "data": {"n": 1}}')
    assert [r["n"] for r in rows(graph, "node:Thing")] == [1]
    sound(graph)


def test_a_type_dropped_and_added_again_is_another_table(tmp_path: Path) -> None:
    graph = made(tmp_path)
    old, first = graph.head().id, graph.snapshot().ref("edge:Owns").location
    less = PEOPLE.replace("edge Owns: Person -> Thing\n", "")
    ids = {t.name: t.id for t in graph.snapshot().schema_ir.types}
    graph.schema.apply(less)
    assert "edge:Owns" not in graph.snapshot().tables
    graph.schema.apply(PEOPLE)
    assert graph.snapshot().ref("edge:Owns").location == f"{first}-2"
    again = {t.name: t.id for t in graph.snapshot().schema_ir.types}
    assert again["Owns"] > max(ids.values())
    assert {n: i for n, i in again.items() if n != "Owns"} == {n: i for n, i in ids.items() if n != "Owns"}
    assert rows(graph, "edge:Owns") == []
    graph.load('{"edge": "Owns", "from": "ann", "to": "pen", "data": {}}')
    assert [r["src"] for r in rows(graph, "edge:Owns")] == ["ann"]
    assert [r["src"] for r in rows(graph, "edge:Owns", old)] == ["bob"]
    assert graph.schema.apply(PEOPLE).commit is None
    sound(graph)


def test_enum_null_default_and_descriptions_change_without_touching_rows(tmp_path: Path) -> None:
    graph = made(tmp_path, PEOPLE.replace("age: I32?", "age: I32?  @range(age, 0..100)"))
    before = dict(graph.snapshot().tables)
    wider = (
        PEOPLE.replace("enum(a, b)", "enum(a, b, c) @default(c)")
        .replace("node Thing {", 'node Thing @description("of value") {')
    )  # fmt: skip
    result = graph.schema.apply(wider)
    assert result.commit is not None
    assert result.tables == ()
    assert graph.snapshot().tables == before
    graph.mutate('query m() { insert Person { name: "zoe", age: 999 } }')
    assert rows(graph, "node:Person")[-1]["kind"] == "c"
    graph.schema.apply(wider.replace("kind: enum(a, b, c)", "kind: enum(a, b, c)?"))
    graph.mutate('query m() { update Person set { kind: null } where name = "zoe" }')
    assert rows(graph, "node:Person")[-1]["kind"] is None
    sound(graph)


def test_another_comment_is_a_commit_that_moves_no_table(tmp_path: Path) -> None:
    graph = made(tmp_path)
    graph.branches.create("draft")
    before, tables, identity = graph.head(), dict(graph.snapshot().tables), graph.snapshot().schema_ir.identity
    result = graph.schema.apply("// said anew\n" + PEOPLE)
    assert result.commit is not None
    assert result.plan.steps == ()
    assert result.tables == ()
    assert graph.head().parents == (before.id,)
    assert graph.snapshot().tables == tables
    assert graph.snapshot().schema_ir.identity == identity
    assert graph.schema.source.startswith("// said anew")
    # On another branch too; the files in the root follow main alone.
    graph.schema.apply("// on the draft\n" + PEOPLE, branch="draft")
    assert graph.snapshot("draft").catalog.source.startswith("// on the draft")
    assert (Path(graph.uri) / "_schema.pg").read_text().startswith("// said anew")
    # And both can be merged: they mean the same.
    graph.load('{"type": "Thing", "data": {"label": "cup"}}', branch="draft")
    graph.load('{"type": "Thing", "data": {"label": "pot"}}')
    graph.branches.merge("draft")
    assert [r["label"] for r in rows(graph, "node:Thing")] == ["cup", "pen", "pot"]
    graph.branches.delete("draft")
    sound(graph)


def test_applying_again_does_nothing(tmp_path: Path) -> None:
    graph = made(tmp_path)
    wider = PEOPLE.replace("age: I32?", "age: I32?  note: String?")
    first = graph.schema.apply(wider, operation_id="01J9ZC4T5E8QK3W7R2N6M1XV01", actor="ann")
    assert first.commit is not None
    assert first.commit.actor == "ann"
    head = graph.head().id
    assert graph.schema.apply(wider).commit is None
    again = graph.schema.apply(wider, operation_id="01J9ZC4T5E8QK3W7R2N6M1XV01")
    assert again.commit is not None
    assert again.commit.id == first.commit.id
    assert graph.head().id == head


def test_types_without_rows_change_freely(tmp_path: Path) -> None:
    graph = made(tmp_path, rows="")
    graph.load('{"type": "Thing", "data": {"label": "pen"}}')
    graph.mutate('query m() { delete Thing where label = "pen" }')
    edge = "edge Knows: Person -> Person { since: I32? }"
    free = (
        PEOPLE.replace("mail: String?", 'nick: String @rename_from("mail")  at: Date')
        .replace("label: String @key", "label: String  price: I64  @key(label, price)  photo: Blob?")
        .replace(edge, edge.replace("{ since: I32? }", "@card(1..2) { on: Date }"))
    )
    with pytest.raises(BadRequest) as caught:
        graph.schema.apply(free)
    assert caught.value.code == "OG-MF-104"  # what may be null can't become required, rows or not
    free = free.replace("nick: String ", "nick: String? ")
    graph.schema.apply(free)
    graph.load(
        '{"type": "Person", "data": {"name": "a", "kind": "a", "at": "2026-01-31"}}\n'
        '{"type": "Thing", "data": {"label": "pen", "price": 2, "photo": "base64:AAEC"}}\n'
        '{"edge": "Knows", "from": "a", "to": "a", "data": {"on": "2026-01-31"}}'
    )
    sound(graph)


def test_blobs_are_added_and_dropped(tmp_path: Path) -> None:
    graph = made(tmp_path)
    start = graph.head().id
    wider = PEOPLE.replace("label: String @key", "label: String @key  photo: Blob?")
    graph.schema.apply(wider)
    assert list(graph.diff(start, "main")) == []
    graph.load('{"type": "Thing", "data": {"label": "pen", "photo": "base64:AAEC"}}', mode="merge")
    assert graph.blob("Thing", "pen", "photo").read() == b"\x00\x01\x02"
    assert [(e["id"], e["op"]) for e in graph.diff(start, "main")] == [("pen", "update")]
    with_photo = graph.head().id
    graph.schema.apply(PEOPLE)
    assert graph.blob("Thing", "pen", "photo", at=with_photo).read() == b"\x00\x01\x02"
    assert list(graph.diff(with_photo, "main")) == []
    sound(graph)


# ---- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        ("age: I32?", "age: I32?  city: String", "OG-MF-103"),
        ("age: I32?", "age: I32", "OG-MF-104"),
        ("name: String @key  mail: String?", "name: String  mail: String?", "OG-MF-105"),
        ("age: I32?", "age: String?", "OG-MF-106"),
        ("enum(a, b)", "enum(a)", "OG-MF-106"),
        ("edge Owns: Person -> Thing", "edge Owns: Thing -> Person", "OG-MF-107"),
    ],
)
def test_what_cannot_be_done_is_refused_before_anything_is_touched(
    tmp_path: Path, old: str, new: str, code: str
) -> None:
    graph = made(tmp_path)
    graph.close()  # history's rows follow the answer
    before = {p: p.stat().st_mtime_ns for p in Path(graph.uri).rglob("*")}
    with pytest.raises(BadRequest) as caught:
        graph.schema.apply(PEOPLE.replace(old, new))
    assert caught.value.code == code
    assert {p: p.stat().st_mtime_ns for p in Path(graph.uri).rglob("*")} == before


def test_rows_that_break_a_new_constraint_are_all_named(tmp_path: Path) -> None:
    many = "".join(f'{{"type": "Person", "data": {{"name": "p{i}", "age": 200, "kind": "a"}}}}\n' for i in range(50))
    graph = made(tmp_path, rows=ROWS + many)
    head = graph.head().id
    strict = (
        PEOPLE.replace("age: I32?", 'years: I32? @rename_from("age")  @range(years, 0..100)')
        .replace("mail: String?", 'mail: String?  @check(mail, "[a-z]+")  note: String? @default("x") @unique')
        .replace("edge Knows: Person -> Person", "edge Knows: Person -> Person @card(0..1)")
    )
    with pytest.raises(BadRequest, match="nothing was changed") as caught:
        graph.schema.apply(strict)
    error = caught.value
    assert error.code == "constraint_violated"
    assert error.details["counts"] == {"cardinality": 2, "check": 1, "range": 50, "unique": 53}
    assert {r["id"] for r in error.details["rows"] if r["kind"] == "range"} == {f"p{i}" for i in range(50)}
    assert [r["id"] for r in error.details["rows"] if r["kind"] == "check"] == ["ann"]
    assert graph.head().id == head
    sound(graph)


def test_a_constraint_that_holds_is_accepted_and_holds_from_then_on(tmp_path: Path) -> None:
    graph = made(tmp_path)
    strict = PEOPLE.replace("age: I32?", "age: I32? @unique  @range(age, 0..50)")
    assert graph.schema.apply(strict).commit is not None
    with pytest.raises(BadRequest, match="range"):
        graph.mutate('query m() { update Person set { age: 51 } where name = "ann" }')
    with pytest.raises(BadRequest, match="unique"):
        graph.mutate('query m() { update Person set { age: 40 } where name = "ann" }')
    sound(graph)


def test_a_change_is_refused_while_another_branch_would_keep_its_schema(tmp_path: Path) -> None:
    graph = made(tmp_path)
    graph.branches.create("draft")
    wider = PEOPLE.replace("age: I32?", "age: I32?  note: String?")
    for branch in ("main", "draft"):
        with pytest.raises(Conflict, match="merge and delete them first") as caught:
            graph.schema.apply(wider, branch=branch)
        assert caught.value.code == "branches_exist"
    graph.branches.delete("draft")
    assert graph.schema.apply(wider).commit is not None


def test_only_the_plan_that_was_seen_is_carried_out(tmp_path: Path) -> None:
    graph = made(tmp_path)
    wider = PEOPLE.replace("age: I32?", "age: I32?  note: String?")
    seen = graph.schema.plan(wider).digest
    with pytest.raises(Conflict) as caught:
        graph.schema.apply(wider.replace("note", "other"), expect_plan=seen)
    assert caught.value.code == "plan_changed"
    assert graph.schema.apply(wider, expect_plan=seen).commit is not None


# ---- drops -----------------------------------------------------------------------------------------------------------


def test_a_soft_drop_forgets_and_old_commits_remember(tmp_path: Path) -> None:
    graph = made(tmp_path)
    old = graph.head().id
    result = graph.schema.apply(PEOPLE.replace("mail: String?", "").replace("edge Owns: Person -> Thing\n", ""))
    assert {t.table_key: t.action for t in result.tables} == {"node:Person": "changed", "edge:Owns": "dropped"}
    assert "mail" not in graph.snapshot().schema("node:Person").names
    assert rows(graph, "node:Person", old)[0]["mail"] == "a@x"
    assert len(rows(graph, "edge:Owns", old)) == 1
    assert graph.query("query q() { match { $p: Person  $p owns $t } return { $t.label } }", at=old).to_pylist() == [
        {"t.label": "pen"}
    ]
    sound(graph)


def test_a_hard_drop_removes_the_old_versions(tmp_path: Path) -> None:
    graph = made(tmp_path)
    old = graph.head().id
    owns = Path(graph.uri) / graph.snapshot().ref("edge:Owns").location
    less = PEOPLE.replace("mail: String?", "").replace("edge Owns: Person -> Thing\n", "")
    result = graph.schema.apply(less, allow_data_loss=True)
    assert {t.table_key: t.action for t in result.tables} == {"node:Person": "changed", "edge:Owns": "removed"}
    assert not owns.exists()
    fresh = omnigraph.open(graph.uri, read_only=True)
    for key in ("node:Person", "edge:Owns"):
        with pytest.raises(omnigraph.NotFound, match="cleanup removed it"):
            rows(fresh, key, old)
    assert [r["id"] for r in rows(fresh, "node:Person")] == ["ann", "bob", "cy"]
    assert len(rows(fresh, "edge:Knows", old)) == 2
    sound(graph)


def test_a_hard_drop_keeps_what_a_tag_names(tmp_path: Path) -> None:
    graph = made(tmp_path)
    old, ref = graph.head().id, graph.snapshot().ref("edge:Owns")
    dataset = graph.snapshot().dataset("edge:Owns")
    dataset.tags.create("kept", ref.version)
    graph.schema.apply(PEOPLE.replace("edge Owns: Person -> Thing\n", ""), allow_data_loss=True)
    assert [r["src"] for r in rows(omnigraph.open(graph.uri, read_only=True), "edge:Owns", old)] == ["bob"]


def test_a_table_whose_head_no_commit_published_is_changed_if_no_row_differs(tmp_path: Path) -> None:
    graph = made(tmp_path)
    store, ref = Repository.open(graph.uri).engine.store, graph.snapshot().ref("node:Person")
    store.latest(ref.location).create_scalar_index("age", "BTREE", name="age_idx")
    graph.schema.apply(PEOPLE.replace("age: I32?", 'years: I32? @rename_from("age")'))
    assert [r["years"] for r in rows(graph, "node:Person")] == [30, 40, None]
    sound(graph)
    store.latest(ref.location).delete("id = 'cy'")
    with pytest.raises(Conflict, match="omnigraph repair"):
        graph.schema.apply(PEOPLE.replace("age: I32?", ""))


# ---- files -----------------------------------------------------------------------------------------------------------


def test_a_graph_whose_files_are_older_is_planned_on_and_applied_to(tmp_path: Path) -> None:
    graph = made(tmp_path)
    root = Path(graph.uri)
    # As this product wrote them before: no ids anywhere, the state without a format of its own.
    for path in root.glob("_schemas/*.ir.json"):
        path.unlink()
    (root / "_schema.ir.json").write_text('{"ir_version": 1, "nodes": [], "edges": []}')
    digest = graph.snapshot().schema_hash
    (root / "__schema_state.json").write_text(json.dumps({"format_version": 1, "schema_hash": digest}))
    manifest = Repository.open(graph.uri).engine.store.latest("__manifest")
    head = manifest.to_table(filter="object_type = 'graph_head'").to_pylist()[0]
    metadata = {k: v for k, v in json.loads(head["metadata"]).items() if k != "schema_ir"}
    text = json.dumps(metadata).replace("'", "''")
    manifest.update({"metadata": f"'{text}'"}, where="object_type = 'graph_head'")
    older = omnigraph.open(graph.uri)
    assert older.head().schema_ir is None
    renamed = PEOPLE.replace("mail:", 'email: String? @rename_from("mail")  x:').replace("x: String?", "")
    older.schema.apply(renamed)
    assert rows(older, "node:Person")[0]["email"] == "a@x"
    ids = {p.name: p.id for p in older.snapshot().schema_ir.by_table_key["node:Person"].properties}
    older.schema.apply(renamed.replace("email:", 'post: String? @rename_from("email")  x:').replace('x: String? @rename_from("mail")', ""))  # fmt: skip # noqa: E501
    again = {p.name: p.id for p in older.snapshot().schema_ir.by_table_key["node:Person"].properties}
    assert again["post"] == ids["email"]
    sound(older)


def test_files_are_open_to_whoever_the_umask_lets_in(tmp_path: Path) -> None:
    graph = made(tmp_path)
    graph.schema.apply("// c\n" + PEOPLE)
    assert all(os.stat(p).st_mode & 0o044 for p in Path(graph.uri).glob("_schema*") if p.is_file())


# ---- comparing and reading back across a change ----------------------------------------------------------------------


def test_a_schema_change_is_no_change_of_any_row(tmp_path: Path) -> None:
    graph = made(tmp_path)
    start = graph.head().id
    changed = (
        PEOPLE.replace(
            "node Person {", 'node Human @rename_from("Person") { lang: String @default("en")  note: String?  '
        )
        .replace("mail: String?", 'email: String? @rename_from("mail")')
        .replace("  age: I32?", "")
        .replace("Person ->", "Human ->")
        .replace("-> Person", "-> Human")
    )
    graph.schema.apply(changed)
    applied = graph.head().id
    assert list(graph.diff(start, "main")) == []
    assert list(graph.changes(start)) == []
    assert list(graph.diff("main", start)) == []
    graph.mutate('query m() { update Human set { lang: "it" } where name = "ann"  insert Human { name: "dee", kind: "a" } }')  # fmt: skip # noqa: E501
    graph.mutate('query m() { update Human set { note: "n" } where name = "bob" }')
    graph.mutate('query m() { delete Human where name = "cy" }')
    expected = {("ann", "update"), ("bob", "update"), ("cy", "delete"), ("dee", "insert")}
    for since in (start, applied):
        found = list(graph.diff(since, "main", kinds=["node"]))
        assert {(e["id"], e["op"]) for e in found} == expected
        assert {(e["table_key"], e["type"]) for e in found} == {("node:Human", "Human")}
    assert {(e["id"], e["op"]) for e in graph.diff(start, "main", types=["Person"])} == expected
    back = {(e["id"], e["op"]) for e in graph.diff("main", start, types=["Person"])}
    assert back == {("ann", "update"), ("bob", "update"), ("cy", "insert"), ("dee", "delete")}
    assert graph.diff(start, applied).stats() == {}


def test_a_property_dropped_and_added_again_is_another_one(tmp_path: Path) -> None:
    graph = made(tmp_path)
    start = graph.head().id
    graph.schema.apply(PEOPLE.replace("mail: String?", ""))
    graph.schema.apply(PEOPLE)
    assert {r["mail"] for r in rows(graph, "node:Person")} == {None}
    assert list(graph.diff(start, "main")) == []
    graph.mutate('query m() { update Person set { mail: "b@x" } where name = "bob" }')
    assert [(e["id"], e["op"]) for e in graph.diff(start, "main")] == [("bob", "update")]


def test_every_old_commit_is_read_with_the_schema_of_its_time(tmp_path: Path) -> None:
    graph = made(tmp_path)
    exports = {graph.head().id: list(graph.export())}
    for step in (
        PEOPLE.replace("age: I32?", 'years: I32? @rename_from("age")'),
        PEOPLE.replace("age: I32?", 'years: I32?  lang: String @default("en")').replace("mail: String?", ""),
        PEOPLE.replace("age: I32?", 'years: I32?  lang: String @default("it")')
        .replace("mail: String?", "")
        .replace("node Thing {", 'node Item @rename_from("Thing") {')
        .replace("-> Thing", "-> Item"),
    ):
        graph.schema.apply(step)
        exports[graph.head().id] = list(graph.export())
        graph.mutate('query m() { insert Person { name: "p", kind: "a" } }')
        exports[graph.head().id] = list(graph.export())
        graph.mutate('query m() { delete Person where name = "p" }')
    fresh = omnigraph.open(graph.uri)
    for commit, lines in exports.items():
        assert list(fresh.export(at=commit)) == lines
    # A branch may begin before a change; it keeps that schema, and main can't be changed while it lives.
    first = next(iter(exports))
    fresh.branches.create("past", from_=first)
    assert list(fresh.export(branch="past")) == exports[first]
    fresh.mutate('query m() { update Person set { age: 1 } where name = "ann" }', branch="past")
    assert [(e["id"], e["op"]) for e in fresh.diff(first, "past")] == [("ann", "update")]
    with pytest.raises(Conflict, match="different schemas"):
        fresh.branches.merge("past")
    sound(fresh)


def test_queries_right_after_a_change_see_it(tmp_path: Path) -> None:
    graph = made(tmp_path)
    ask = "query q() { match { $p: Person  $p knows $q } return { $q.name, $q.%s } order { $q.name } }"
    before = graph.query(ask % "age").to_pylist()
    graph.query(ask % "age")
    graph.schema.apply(PEOPLE.replace("age: I32?", 'years: I32? @rename_from("age")  age: String? @default("x")'))
    assert graph.query(ask % "years").to_pylist() == [{"q.name": r["q.name"], "q.years": r["q.age"]} for r in before]
    assert graph.query(ask % "age").to_pylist() == [{"q.name": r["q.name"], "q.age": "x"} for r in before]
    old = graph.commits()[1].id
    assert graph.query(ask % "age", at=old).to_pylist() == before
    other = omnigraph.open(graph.uri)
    other.schema.apply(PEOPLE.replace("age: I32?", "years: I32?  age: String?").replace("edge Owns: Person -> Thing\n", ""))  # fmt: skip # noqa: E501
    with pytest.raises(BadRequest, match="owns"):
        graph.query("query q() { match { $p: Person  $p owns $t } return { $t.label } }")


def test_a_table_that_a_branch_reads_from_another_one_is_not_changed_there(tmp_path: Path) -> None:
    graph = made(tmp_path)
    before = graph.head()
    wider = PEOPLE.replace("label: String @key", "label: String @key  weight: I64? @default(1)")
    graph.schema.apply(wider)
    graph.branches.create("old", at=before.id)
    with pytest.raises(Conflict, match="load the export of 'old'") as caught:
        graph.schema.apply(wider, branch="old")
    assert caught.value.code == "inherited_table"
    assert graph.head("old").id == before.id
    sound(graph)


def test_a_schema_whose_regular_expression_would_be_refused_now_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = "[^" + "".join(chr(0x4E00 + 7 * i) for i in range(1000)) + "]{0,900}"
    stored = PEOPLE.replace("mail: String?", f'mail: String?  @check(mail, "{large}")')
    with monkeypatch.context() as older:
        older.setattr("omnigraph.schema.regex.refuse_regex", lambda pattern: None)
        made(tmp_path, stored, '{"type": "Person", "data": {"name": "ann", "kind": "a"}}')
    monkeypatch.setattr("omnigraph.storage.schemas._catalogs", {})
    graph = omnigraph.open(tmp_path / "graph.omni")
    assert graph.query("query q() { match { $p: Person } return { $p.name } }").table.num_rows == 1
    graph.mutate('query q() { insert Person { name: "bob", kind: "b" } }')
    for write in (
        lambda: graph.load('{"type": "Person", "data": {"name": "cy", "kind": "b", "mail": "x"}}'),
        lambda: graph.mutate('query q() { update Person set { mail: "x" } where name = "bob" }'),
    ):
        with pytest.raises(BadRequest, match="can't be matched: apply a schema that has another"):
            write()
    sound(graph)
    with pytest.raises(LanguageError, match="too large written out"):
        graph.schema.apply(stored + "node More { a: String? }")
    graph.schema.apply(PEOPLE.replace("mail: String?", 'mail: String?  @check(mail, "[a-z]*")'))
    graph.mutate('query q() { update Person set { mail: "x" } where name = "bob" }')
    with pytest.raises(BadRequest, match="doesn't match @check"):
        graph.mutate('query q() { update Person set { mail: "X" } where name = "bob" }')


def test_a_schema_whose_default_would_be_refused_now_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stored = PEOPLE.replace("mail: String?", 'mail: String? @default("é")  @check(mail, "\\\\w")')
    with monkeypatch.context() as older:
        older.setattr("omnigraph.schema.bodies._fails", lambda pattern, value: False)
        made(tmp_path, stored, '{"type": "Person", "data": {"name": "ann", "kind": "a", "mail": "x"}}')
    monkeypatch.setattr("omnigraph.storage.schemas._catalogs", {})
    graph = omnigraph.open(tmp_path / "graph.omni")
    assert graph.query("query q() { match { $p: Person } return { $p.mail } }").table.num_rows == 1
    with pytest.raises(LanguageError, match="default: 'é' doesn't match"):
        graph.schema.apply(stored + "node More { a: String? }")
