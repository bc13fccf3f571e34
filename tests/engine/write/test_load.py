# ruff: noqa: E501  (records are long lines)
"""Loads into real storage: modes, constraints against what is committed, branches, and nothing half-visible."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import omnigraph
from omnigraph.errors import BadRequest, Conflict, NotFound
from omnigraph.maintain import verify
from omnigraph.schema import compile_schema
from omnigraph.storage import Repository, change
from omnigraph.storage import branch as branch_module
from omnigraph.storage.steps import Step
from omnigraph.write import export, load
from omnigraph.write import loader as loader_module
from omnigraph.write.mapping import Mapping
from omnigraph.write.spool import Spool

SCHEMA = """
node Person {
  slug: String @key
  name: String
  age: I32?
  email: String? @unique
  status: enum(active, left)? @default("active")
  tags: [String]?
  vec: Vector(2)?
  seen: DateTime?
}
node Note { text: String? }
node Part { a: String  b: I32  @key(a, b)  n: F64?  ok: Bool? }
edge Knows: Person -> Person @card(0..2) { since: Date?  @unique(src, dst) }
edge Owns: Person -> Part @card(1..) { @key(src, dst)  share: F32? }
edge About: Note -> Person
"""
PEOPLE = """
{"type": "Person", "data": {"slug": "ada", "name": "Ada", "age": 36, "email": "a@x", "tags": ["x", "y\\""], "vec": [1, 0.5]}}
{"type": "Person", "data": {"slug": "bob", "name": "Bob", "status": null, "seen": "2020-01-02T03:04:05.678Z"}}
{"type": "Part", "data": {"a": "w\\"1", "b": 3, "n": 1.5, "ok": true}}
{"edge": "Knows", "from": "ada", "to": "bob", "data": {"since": "2020-01-01"}}
{"edge": "Owns", "from": "ada", "to": ["w\\"1", 3], "data": {"share": 0.25}}
{"type": "Note", "data": {"text": "hi"}}
"""


@pytest.fixture
def graph(tmp_path: Path) -> Repository:
    repository = Repository.create(str(tmp_path / "g"), compile_schema(SCHEMA))
    load(repository, PEOPLE)
    return repository


def state(repository: Repository, branch: str = "main") -> list[str]:
    return sorted(export(repository.snapshot(branch)))


def person(repository: Repository, slug: str, branch: str = "main") -> dict[str, Any]:
    (row,) = repository.snapshot(branch).scan("node:Person", filter=f"id = '{slug}'").to_pylist()
    return dict(row)


def test_one_load_is_one_commit_and_sound(graph: Repository) -> None:
    assert len(graph.commits()) == 2  # the creation and the load
    assert graph.snapshot().count_rows("node:Person") == 2
    assert person(graph, "bob")["status"] is None
    assert verify(graph).ok


def test_export_and_reload_give_an_equal_graph(graph: Repository, tmp_path: Path) -> None:
    lines = list(export(graph.snapshot()))
    assert [json.loads(line) for line in lines]
    first_edge = next(i for i, line in enumerate(lines) if line.startswith('{"edge"'))
    assert all(line.startswith('{"type"') == (i < first_edge) for i, line in enumerate(lines))
    again = Repository.create(str(tmp_path / "again"), graph.snapshot().catalog)
    load(again, "\n".join(lines))
    assert state(again) == sorted(lines)
    for key in graph.snapshot().tables:
        old, new = (r.snapshot().scan(key).sort_by("id") for r in (graph, again))
        assert old.equals(new), key


def test_export_of_chosen_types(graph: Repository) -> None:
    assert {line[:9] for line in export(graph.snapshot(), types=["knows"])} == {'{"edge":"'}
    with pytest.raises(NotFound, match="'Nope' isn't declared"):
        list(export(graph.snapshot(), types=["Nope"]))


BAD = [
    ('{"type": "Person", "data": {"slug": "ada", "name": "x"}}', "existing_id", "load with mode merge"),
    ('{"type": "Person", "data": {"slug": "n", "name": "x"}}\n{"type": "Person", "data": {"slug": "n", "name": "y"}}', "duplicate_id", "occurs more than once"),
    ('{"type": "Person", "data": {"slug": "n", "name": "x", "email": "a@x"}}', "unique", "belongs to another row"),
    ('{"type": "Person", "data": {"slug": "n", "name": "x", "email": "q"}}\n{"type": "Person", "data": {"slug": "m", "name": "x", "email": "q"}}', "unique", "occurs more than once"),
    ('{"edge": "Knows", "from": "ada", "to": "nobody"}', "endpoint", "to: there is no Person 'nobody'"),
    ('{"edge": "Knows", "from": "ada", "to": "bob"}', "unique", "@unique(src, dst)"),
    ('{"edge": "Knows", "from": "ada", "to": "ada"}\n{"edge": "Knows", "from": "ada", "to": "ada2"}\n{"type": "Person", "data": {"slug": "ada2", "name": ""}}', "cardinality", "@card(0..2) allows 2"),
    ('{"edge": "Owns", "from": "ada", "to": ["w\\"1", 3]}', "existing_id", "exists already"),
    ('{"type": "Person", "data": {"slug": "n"}}', "required", "name is required"),
    ('{"type": "Person", "data": {"slug": "n", "name": "x", "status": "odd"}}', "enum", "not one of active, left"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "kind", "says"), BAD)
def test_a_bad_record_leaves_nothing_behind(graph: Repository, text: str, kind: str, says: str) -> None:
    before, head = state(graph), graph.head().id
    good = '{"type": "Person", "data": {"slug": "good", "name": "Good"}}\n'
    with pytest.raises(BadRequest) as caught:
        load(graph, good + text)
    assert caught.value.code == "bad_records"
    assert set(caught.value.details["counts"]) == {kind}
    assert says in str(caught.value)
    assert "<text>:2: " in str(caught.value)
    assert (state(graph), graph.head().id, graph.pending()) == (before, head, [])
    assert verify(graph).ok


def test_merge_keeps_what_is_omitted_and_clears_what_is_null(graph: Repository) -> None:
    created = graph.snapshot().scan("node:Person", ["id", "_rowid"]).to_pylist()
    load(
        graph,
        """
{"type": "Person", "data": {"slug": "ada", "email": null, "age": 37}}
{"type": "Person", "data": {"slug": "cy", "name": "Cy"}}
{"edge": "Knows", "from": "ada", "to": "cy"}
{"edge": "Owns", "from": "ada", "to": ["w\\"1", 3], "data": {"share": 0.5}}
""",
        mode="merge",
    )
    ada = person(graph, "ada")
    assert (ada["name"], ada["age"], ada["email"], ada["tags"]) == ("Ada", 37, None, ["x", 'y"'])
    assert person(graph, "cy")["status"] == "active"
    assert graph.snapshot().scan("edge:Owns").column("share").to_pylist() == [0.5]
    ids = {r["id"]: r["_rowid"] for r in graph.snapshot().scan("node:Person", ["id", "_rowid"]).to_pylist()}
    assert all(ids[r["id"]] == r["_rowid"] for r in created)
    assert verify(graph).ok


def test_merge_of_repeats_takes_the_last_value_of_each_property(graph: Repository) -> None:
    text = "\n".join(
        json.dumps({"type": "Person", "data": {"slug": "ada", **given}})
        for given in ({"age": 1, "name": "One"}, {"age": 2}, {"email": "new@x"}, {"name": "Four"})
    )
    load(graph, text, mode="merge")
    ada = person(graph, "ada")
    assert (ada["name"], ada["age"], ada["email"], ada["tags"]) == ("Four", 2, "new@x", ["x", 'y"'])


def test_merge_judges_the_merged_row(graph: Repository) -> None:
    before = state(graph)
    for data, kind in (({"slug": "new"}, "required"), ({"slug": "bob", "name": None}, "required"), ({"slug": "bob", "email": "a@x"}, "unique")):  # fmt: skip
        with pytest.raises(BadRequest) as caught:
            load(graph, json.dumps({"type": "Person", "data": data}), mode="merge")
        assert set(caught.value.details["counts"]) == {kind}
    assert state(graph) == before


def test_merge_names_the_record_that_cleared_a_required_value(graph: Repository) -> None:
    """Where no record mentions it, the last record of the id is named."""
    given: list[dict[str, Any]] = [{"slug": "bob", "name": "B"}, {"slug": "bob", "name": None}, {"slug": "bob", "age": 3}]  # fmt: skip
    given += [{"slug": "new", "age": 1}, {"slug": "new", "age": 2}]
    with pytest.raises(BadRequest) as caught:
        load(graph, "\n".join(json.dumps({"type": "Person", "data": data}) for data in given), mode="merge")
    found = [(r["source"], r["kind"], r["id"]) for r in caught.value.details["records"]]
    assert found == [("<text>:2", "required", "bob"), ("<text>:5", "required", "new")]


def test_merge_may_swap_unique_values(graph: Repository) -> None:
    rows = [{"slug": "ada", "email": "b@x"}, {"slug": "bob", "email": "a@x"}]
    load(graph, "\n".join(json.dumps({"type": "Person", "data": r}) for r in rows), mode="merge")
    assert (person(graph, "ada")["email"], person(graph, "bob")["email"]) == ("b@x", "a@x")


def test_days_and_times_are_named_as_they_are_written(tmp_path: Path) -> None:
    graph = omnigraph.init(tmp_path / "g", schema="node A { d: Date? @unique  t: DateTime? @unique }")
    record = json.dumps({"type": "A", "data": {"d": "2020-02-29", "t": "2020-02-29T07:30:00.5Z"}})
    for _ in range(2):
        with pytest.raises(BadRequest) as caught:
            graph.load(f"{record}\n{record}")
        assert "@unique(d): the value '2020-02-29' " in str(caught.value)
        assert "@unique(t): the value '2020-02-29T07:30:00.500Z' " in str(caught.value)
        graph.load(record, mode="overwrite")


def test_overwrite_replaces_touched_tables_only(graph: Repository) -> None:
    text = PEOPLE.replace('"slug": "bob", "name": "Bob"', '"slug": "bob", "name": "Robert"')
    load(graph, "\n".join(line for line in text.splitlines() if '"Person"' in line), mode="overwrite")
    assert person(graph, "bob")["name"] == "Robert"
    assert graph.snapshot().count_rows("edge:Knows") == 1
    assert verify(graph).ok


def test_overwrite_never_leaves_edges_dangling(graph: Repository) -> None:
    before = state(graph)
    with pytest.raises(BadRequest) as caught:
        load(graph, '{"type": "Person", "data": {"slug": "ada", "name": "Ada"}}', mode="overwrite")
    assert caught.value.details["counts"] == {"endpoint": 1}
    assert "there is no Person 'bob'" in str(caught.value)
    assert state(graph) == before


ADA_OWNS = '{"edge": "Owns", "from": "ada", "to": ["w\\"1", 3]}'
BOB_OWNS = ADA_OWNS.replace("ada", "bob")


def test_overwritten_edges_leave_no_source_below_its_minimum(graph: Repository) -> None:
    before = state(graph)
    with pytest.raises(BadRequest) as caught:
        load(graph, BOB_OWNS, mode="overwrite")
    assert caught.value.details["counts"] == {"cardinality": 1}
    assert "Person 'ada' would have 0 edges, @card(1..) asks for 1" in str(caught.value)
    assert state(graph) == before
    load(graph, f"{BOB_OWNS}\n{ADA_OWNS}", mode="overwrite")
    assert graph.snapshot().count_rows("edge:Owns") == 2


def test_a_minimum_binds_no_source_that_is_overwritten_away(graph: Repository) -> None:
    bob = '{"type": "Person", "data": {"slug": "bob", "name": "Bob"}}'
    knows = '{"edge": "Knows", "from": "bob", "to": "bob"}'
    load(graph, "\n".join([bob, knows, BOB_OWNS]), mode="overwrite")
    assert graph.snapshot().scan("edge:Owns")["src"].to_pylist() == ["bob"]
    assert verify(graph).ok


def test_a_missing_branch_is_forked_only_when_asked_and_only_by_good_records(graph: Repository) -> None:
    good = '{"type": "Note", "data": {"text": "draft"}}'
    with pytest.raises(NotFound, match="'draft' doesn't exist"):
        load(graph, good, branch="draft")
    with pytest.raises(BadRequest):
        load(graph, '{"edge": "Knows", "from": "x", "to": "y"}', branch="draft", from_="main")
    assert [b.name for b in graph.branches()] == ["main"]
    result = load(graph, good, branch="draft", from_="main")
    assert result.branch_created
    assert graph.snapshot("draft").count_rows("node:Note") == 2
    assert graph.snapshot().count_rows("node:Note") == 1
    assert verify(graph).ok


@pytest.mark.parametrize("operation_id", ["x'y", "../nodes", "ok\n"])
def test_a_crafted_operation_id_is_refused(graph: Repository, operation_id: str) -> None:
    with pytest.raises(BadRequest, match="use a ULID"):
        load(graph, '{"type":"Note","data":{}}\n', operation_id=operation_id)


def test_the_same_operation_again_changes_nothing(graph: Repository) -> None:
    operation = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
    first = load(graph, '{"type": "Note"}', operation_id=operation)
    second = load(graph, '{"type": "Note"}', operation_id=operation)
    assert first.commit is not None
    assert second.commit is not None
    assert first.commit.id == second.commit.id
    assert graph.snapshot().count_rows("node:Note") == 2


@pytest.mark.parametrize("spill", [False, True])
def test_many_rows_become_data_files_with_or_without_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spill: bool
) -> None:
    monkeypatch.setattr(loader_module, "FRAGMENT_ROWS", 1000)
    if spill:
        monkeypatch.setattr(loader_module, "Spool", lambda: Spool(1024))
    repository = Repository.create(str(tmp_path / "g"), compile_schema(SCHEMA))
    n = 5000
    slugs = [f"p{i}" for i in range(n)]
    pq.write_table(pa.table({"slug": slugs, "name": slugs}), tmp_path / "people.parquet")
    pq.write_table(pa.table({"a": slugs, "b": slugs[1:] + slugs[:1]}), tmp_path / "knows.parquet")
    mapping = Mapping.parse(
        "sources:\n- {path: knows.parquet, edge: Knows, from: a, to: b}\n- {path: people.parquet, node: Person}",
        base=tmp_path,
    )
    seen: list[int] = []
    result = load(repository, None, mapping=mapping, progress=lambda p: seen.append(p.rows))
    assert result.tables == (("node:Person", n), ("edge:Knows", n))
    assert seen[-1] == 2 * n
    assert len(repository.commits()) == 2
    report = verify(repository)
    assert report.ok, report.findings
    with pytest.raises(BadRequest) as caught:
        load(repository, None, mapping=mapping)
    assert caught.value.details["counts"] == {"existing_id": n, "unique": n}
    assert "people.parquet row 1: " in str(caught.value)
    assert repository.snapshot().count_rows("edge:Knows") == n


@pytest.mark.parametrize(
    "make",
    [
        lambda p: str(p / "missing.jsonl"),
        lambda p: [str(p / "ok.jsonl"), str(p / "missing.jsonl")],
        lambda p: str(p / "*.nothing"),
    ],
)
def test_a_missing_file_is_refused_before_anything_is_written(
    graph: Repository, tmp_path: Path, make: Callable[[Path], Any]
) -> None:
    (tmp_path / "ok.jsonl").write_text('{"type": "Note"}\n')
    before = state(graph)
    with pytest.raises(BadRequest, match="there is no such file"):
        load(graph, make(tmp_path))
    assert state(graph) == before


def test_a_file_named_twice_is_refused_and_one_read_by_two_sources_gives_ids_of_their_own(
    graph: Repository, tmp_path: Path
) -> None:
    (tmp_path / "notes.jsonl").write_text('{"type":"Note","data":{"text":"x"}}\n')
    before = state(graph)
    with pytest.raises(BadRequest, match="named twice"):
        load(graph, [str(tmp_path / "notes.jsonl"), str(tmp_path / "*.jsonl")])
    assert state(graph) == before
    (tmp_path / "pairs.csv").write_text("one,two\nhi,ho\n")
    mapping = Mapping.model_validate(
        {
            "sources": [
                {"path": "pairs.csv", "node": "Note", "columns": {"text": "one"}, "ignore": ["*"]},
                {"path": "pairs.csv", "node": "Note", "columns": {"text": "two"}, "ignore": ["*"]},
            ]
        }
    )
    load(graph, str(tmp_path), mapping=mapping)
    assert graph.snapshot().count_rows("node:Note") == 3
    assert verify(graph).ok


def test_a_branch_forked_for_a_load_that_fails_is_taken_back(
    graph: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = '{"type":"Note","data":{"text":"x"}}\n'
    with pytest.raises(Conflict, match="not at"):
        load(graph, record, branch="dev", from_="main", expect_head="01J9ZC4T5E8QK3W7R2N6M1XVYZ")
    assert [b.name for b in graph.branches()] == ["main"]

    commit = graph.commit

    def another_first(staging: Any, base: Any) -> Any:
        monkeypatch.setattr(graph, "commit", commit)
        load(graph, record, branch="dev")
        return commit(staging, base)

    monkeypatch.setattr(graph, "commit", another_first)
    with pytest.raises(Conflict) as caught:
        load(graph, record, branch="dev", from_="main")
    assert "stays" in caught.value.__notes__[-1]
    assert graph.snapshot("dev").count_rows("node:Note") == 2  # the other writer's is kept
    assert load(graph, record, branch="new", from_="main").branch_created
    assert verify(graph).ok


@pytest.mark.parametrize("returned", [False, True])
def test_a_write_on_a_branch_just_made_for_a_load_is_no_part_of_what_was_judged(
    graph: Repository, monkeypatch: pytest.MonkeyPatch, returned: bool
) -> None:
    record = '{"type": "Person", "data": {"slug": "cy", "name": "Cy"}}'
    make, others = graph.create_branch, [record]

    def made(*args: Any, **more: Any) -> Any:
        info = make(*args, **more)
        load(Repository.open(graph.uri), others.pop(), branch="dev")
        return info

    def reached(step: Step) -> None:
        if step is Step.BRANCH_CREATED:
            load(Repository.open(graph.uri), others.pop(), branch="dev")

    if returned:
        monkeypatch.setattr(graph, "create_branch", made)
    else:
        monkeypatch.setattr(branch_module, "reach", reached)
    with pytest.raises(Conflict) as caught:
        load(graph, record, branch="dev", from_="main")
    assert (caught.value.code, caught.value.retryable) == ("expected_version_mismatch", True)
    assert "stays" in caught.value.__notes__[-1]
    assert person(graph, "cy", "dev")["name"] == "Cy", "the other writer's is kept, once"
    assert verify(graph).ok


def test_a_branch_is_made_where_there_is_no_record_too(graph: Repository, tmp_path: Path) -> None:
    bad = '{"type": "Person", "data": {"slug": "cy"}}'
    results = [
        load(graph, "// nothing\n", branch="none", from_="main"),
        load(graph, bad, branch="bad", from_="main", quarantine=str(tmp_path / "bad.ndjson")),
        load(graph, "// nothing\n", branch="none", from_="main"),
    ]
    assert [(r.branch_created, r.quarantined) for r in results] == [(True, 0), (True, 1), (False, 0)]
    assert {(r.commit, r.tables, r.unfilled) for r in results} == {(None, (), ())}
    assert graph.head("none").id == graph.head("bad").id == graph.head().id


@pytest.mark.parametrize(("mode", "found"), [("append", set()), ("merge", set()), ("overwrite", {"edge:About"})])
def test_replacing_nodes_relies_on_the_edges_at_them(graph: Repository, mode: Any, found: set[str]) -> None:
    assert loader_module.reads_of(graph.snapshot().catalog, ["node:Note"], mode) == found


def test_an_open_file_and_many_paths(graph: Repository, tmp_path: Path) -> None:
    for i in range(3):
        (tmp_path / f"n{i}.jsonl").write_text('{"type": "Note"}\n' * (i + 1))
    assert load(graph, str(tmp_path / "n*.jsonl")).rows == 6
    with (tmp_path / "n2.jsonl").open("rb") as binary, (tmp_path / "n1.jsonl").open() as text:
        assert load(graph, binary).rows == 3
        assert load(graph, text).rows == 2
    assert load(graph, "// nothing\n").commit is None


def test_progress_tells_how_far_into_a_file_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("omnigraph.write.ndjson.BLOCK_BYTES", 2000)
    repository = Repository.create(str(tmp_path / "g"), compile_schema(SCHEMA))
    lines = [json.dumps({"type": "Person", "data": {"slug": f"p{i}", "name": f"n{i}"}}) for i in range(300)]
    for name in ("a.ndjson", "b.ndjson"):
        half = lines[:150] if name == "a.ndjson" else lines[150:]
        (tmp_path / name).write_text("\n".join(half))
    size = sum((tmp_path / name).stat().st_size for name in ("a.ndjson", "b.ndjson"))
    seen: list[tuple[int, int]] = []
    load(
        repository,
        [str(tmp_path / "a.ndjson"), str(tmp_path / "b.ndjson")],
        progress=lambda p: seen.append((p.bytes, p.total_bytes)),
    )
    done = [at for at, _ in seen]
    assert done == sorted(done)
    assert len(set(done)) > 8
    assert seen[-1] == (size, size)


def row_ids(graph: omnigraph.Graph, table_key: str) -> dict[str, int]:
    """What Lance knows the row of each id by; it stays for as long as the row does."""
    rows = graph.snapshot().scan(table_key, ["id", "_rowid"])
    return dict(zip(rows["id"].to_pylist(), rows["_rowid"].to_pylist(), strict=True))


def test_a_merge_in_portions_is_the_merge_as_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stored and new rows, repeats, omitted and cleared properties, Blobs and vectors, edges with and without key."""
    monkeypatch.setenv("OMNIGRAPH_EMBEDDINGS_MOCK", "1")
    schema = """
node P { slug: String @key  n: I32? @default(3)  email: String? @unique  bio: String?  vec: Vector(4)? @embed("bio")
         photo: Blob? }
edge K: P -> P { w: I32?  @key(src, dst) }
edge L: P -> P @card(0..9)
"""
    first = [
        {"slug": f"p{i}", "email": f"{i}@x", "bio": f"bio {i}", "photo": f"base64:{'AAAA' * i}"} for i in range(40)
    ]
    changes: list[dict[str, Any]] = [{"n": None}, {"bio": "new"}, {"photo": None}]
    second = [{"slug": f"p{i}", **changes[i % 3]} for i in range(20, 60)]
    second += [{"slug": f"p{i}", "email": f"{i + 1}@x" if i < 39 else "0@x"} for i in range(40)]  # handed round
    edges = [{"edge": "K", "from": f"p{i}", "to": f"p{i % 7}"} for i in range(40)]
    lines = [json.dumps({"type": "P", "data": data}) for data in second]
    lines += [json.dumps({**edge, "data": {"w": i}}) for i, edge in enumerate(edges)] + [json.dumps(edges[3])]
    lines += [json.dumps({"edge": "L", "from": "p1", "to": "p2"})] * 3
    said = []
    for portions in (False, True):
        graph = omnigraph.init(tmp_path / f"g{portions}", schema=schema)
        graph.load("\n".join(json.dumps({"type": "P", "data": data}) for data in first))
        graph.load("\n".join(json.dumps(edge) for edge in edges[:20]))
        before = {key: row_ids(graph, key) for key in ("node:P", "edge:K")}
        if portions:
            monkeypatch.setattr(loader_module, "MERGE_BYTES", 1)
            monkeypatch.setattr(loader_module, "MERGE_ROWS", 7)
            monkeypatch.setattr(change, "WRITE_ROWS", 5)
        done = graph.load("\n".join(lines), mode="merge", operation_id="01JZZZZZZZZZZZZZZZZZZZZZZ2")
        after = {key: row_ids(graph, key) for key in before}
        assert all(after[key].items() >= rows.items() for key, rows in before.items())
        wrong = [json.dumps({"type": "P", "data": {"slug": f"p{i}", "email": "7@x"}}) for i in (3, 50)]
        with pytest.raises(BadRequest) as refused:
            graph.load("\n".join([*lines[:-3], *wrong]), mode="merge")
        said.append((done.tables, done.vectors, sorted(graph.export()), after, str(refused.value)))
        assert graph.verify().ok
    assert said[0] == said[1]
