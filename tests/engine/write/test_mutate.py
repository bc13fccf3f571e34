# ruff: noqa: E501  (records are long lines)
"""Mutations on real storage: upserts, cascades, read-your-writes, refusals, and random ones against plain Python."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ulid import ULID

from omnigraph.errors import BadRequest, Conflict, Internal
from omnigraph.maintain import verify
from omnigraph.query import bind_params, compile_query
from omnigraph.schema import compile_schema
from omnigraph.storage import Repository, Snapshot, Staging, TableChange, WriterKind
from omnigraph.storage.arrow import table_schema
from omnigraph.write import MutationResult, export, load, mutate
from omnigraph.write.staging import MutationStaging

SCHEMA = """
node Person {
  slug: String @key
  age: I32?
  email: String? @unique
  status: enum(active, left)? @default("active")
  since: DateTime?
  tags: [String]?
  big: U64?
  @range(age, 0..150)
}
node Note { text: String? }
edge Knows: Person -> Person @card(0..2) { weight: F64? }
edge Likes: Person -> Person { @key(src, dst) }
edge About: Note -> Person
edge Needs: Person -> Person @card(1..) { }
node Part { a: String  b: I32  @key(a, b) }
edge Fits: Part -> Part
"""


@pytest.fixture
def graph(tmp_path: Path) -> Repository:
    return Repository.create(str(tmp_path / "g"), compile_schema(SCHEMA))


def run(repository: Repository, text: str, params: dict[str, Any] | None = None, **options: Any) -> MutationResult:
    compiled = compile_query(text, repository.snapshot().catalog)
    return mutate(repository, compiled, bind_params(compiled, params or {}), **options)


def rows(repository: Repository, key: str) -> list[dict[str, Any]]:
    return repository.snapshot().scan(key).sort_by("id").to_pylist()


def test_insert_is_an_upsert_that_keeps_omitted_and_clears_null(graph: Repository) -> None:
    first = run(
        graph, 'query q($a: I32?) { insert Person { slug: "ada", age: $a, email: "a@x", tags: ["x"] } }', {"a": 36}
    )
    assert (first.nodes, first.edges) == (1, 0)
    assert rows(graph, "node:Person")[0]["status"] == "active"
    run(graph, 'query q($a: I32?) { insert Person { slug: "ada", age: $a } }', {"a": None})
    (ada,) = rows(graph, "node:Person")
    assert (ada["age"], ada["email"], ada["tags"]) == (None, "a@x", ["x"])


def test_a_query_that_changes_nothing_makes_no_commit(graph: Repository) -> None:
    insert = 'query q() { insert Person { slug: "ada", tags: ["x"] } }'
    assert run(graph, insert).commit is not None
    head = graph.head().id
    assert run(graph, insert) == MutationResult(1, 0, None)
    assert run(graph, 'query q() { update Person set { age: 3 } where slug = "nobody" }') == MutationResult(0, 0, None)
    assert run(graph, 'query q() { delete Person where slug = "nobody" }').commit is None
    assert graph.head().id == head


def test_later_statements_see_earlier_ones(graph: Repository) -> None:
    result = run(
        graph,
        """query q() {
          insert Person { slug: "a", age: 1 }
          insert Person { slug: "b" }
          insert Knows { from: "a", to: "b", weight: 0.5 }
          update Person set { age: 7 } where age = 1
        }""",
    )
    assert (result.nodes, result.edges) == (3, 1)
    assert len(graph.commits()) == 2
    assert [r["age"] for r in rows(graph, "node:Person")] == [7, None]
    assert rows(graph, "edge:Knows")[0]["weight"] == 0.5


def test_deleting_a_node_deletes_its_edges_of_every_type_in_one_commit(graph: Repository) -> None:
    load(graph, "\n".join(
        [json.dumps({"type": "Person", "data": {"slug": s}}) for s in "abc"]
        + ['{"type": "Note", "data": {"id": "n"}}', '{"edge": "About", "from": "n", "to": "a"}']
        + [json.dumps({"edge": e, "from": f, "to": t}) for e in ("Knows", "Likes") for f, t in ("ab", "ba", "aa", "bc")]
    ))  # fmt: skip
    result = run(graph, 'query q() { delete Person where slug = "a" }')
    assert (result.nodes, result.edges) == (1, 7)
    assert len(graph.commits()) == 3
    assert [(e["src"], e["dst"]) for k in ("Knows", "Likes") for e in rows(graph, f"edge:{k}")] == [("b", "c")] * 2
    assert rows(graph, "edge:About") == []
    assert verify(graph).ok


def test_a_composite_key_takes_parameters(graph: Repository) -> None:
    run(graph, 'query q() { insert Part { a: "x", b: 1 } insert Part { a: "y", b: 2 } }')
    text = 'query q($a: String, $b: I32) { insert Fits { from: [$a, $b], to: ["y", $b] } }'
    with pytest.raises(BadRequest, match="there is no Part"):
        run(graph, text, {"a": "x", "b": 1})
    run(graph, text.replace('"y", $b', '"y", 2'), {"a": "x", "b": 1})
    assert [(r["src"], r["dst"]) for r in rows(graph, "edge:Fits")] == [('["x","1"]', '["y","2"]')]


def test_the_largest_integer_is_stored(graph: Repository) -> None:
    run(graph, 'query q($n: U64) { insert Person { slug: "a", big: $n } }', {"n": 2**64 - 1})
    assert rows(graph, "node:Person")[0]["big"] == 2**64 - 1


def test_deleting_edges_by_their_ends(graph: Repository) -> None:
    run(
        graph,
        """query q() { insert Person { slug: "a" } insert Person { slug: "b" }
      insert Likes { from: "a", to: "b" } insert Likes { from: "b", to: "a" } insert Likes { from: "a", to: "b" } }""",
    )
    assert len(rows(graph, "edge:Likes")) == 2  # the keyed edge is one edge
    assert run(graph, 'query q() { delete Likes where from = "a" }').edges == 1
    assert [(e["src"], e["dst"]) for e in rows(graph, "edge:Likes")] == [("b", "a")]


def test_a_condition_holds_whole_numbers_beside_floats_exactly(graph: Repository) -> None:
    run(
        graph,
        'query q() { insert Person { slug: "a" } insert Knows { from: "a", to: "a", weight: 1152921504606846976 } }',
    )
    assert run(graph, "query q() { delete Knows where weight in [1152921504606846977] }").edges == 0
    assert run(graph, "query q() { delete Knows where weight in [18446744073709551615, 0.5] }").edges == 0
    assert run(graph, "query q() { delete Knows where weight in [1152921504606846976] }").edges == 1


def test_the_minimum_holds_for_sources_that_lose_edges_but_not_for_deleted_ones(graph: Repository) -> None:
    run(
        graph,
        'query q() { insert Person { slug: "a" } insert Person { slug: "b" } insert Needs { from: "a", to: "b" } }',
    )
    with pytest.raises(BadRequest, match=r"@card\(1..\) asks for 1"):
        run(graph, 'query q() { delete Needs where from = "a" }')
    with pytest.raises(BadRequest, match=r"@card\(1..\) asks for 1"):
        run(graph, 'query q() { delete Person where slug = "b" }')
    assert run(graph, 'query q() { delete Person where slug = "a" }').edges == 1


@pytest.mark.parametrize(
    ("text", "kind", "says"),
    [
        ('query q() { insert Knows { from: "a", to: "nobody" } }', "endpoint", "there is no Person 'nobody'"),
        ('query q() { insert Person { slug: "z", age: 200 } }', "range", "outside @range"),
        ('query q() { update Person set { age: 151 } where slug = "a" }', "range", "outside @range"),
        ('query q() { insert Person { slug: "z", email: "a@x" } }', "unique", "belongs to another row"),
        ('query q() { update Person set { email: "same" } where slug != "none" }', "unique", "more than once"),
        ('query q() { insert Knows { from: "a", to: "a" } insert Knows { from: "a", to: "b" } insert Knows { from: "a", to: "b" } }', "cardinality", "allows 2"),
    ],
)  # fmt: skip
def test_a_refused_mutation_leaves_nothing_behind(graph: Repository, text: str, kind: str, says: str) -> None:
    run(graph, 'query q() { insert Person { slug: "a", email: "a@x" } insert Person { slug: "b" } }')
    before, head = list(export(graph.snapshot())), graph.head().id
    with pytest.raises(BadRequest) as caught:
        run(graph, text)
    assert set(caught.value.details["counts"]) == {kind}
    assert says in str(caught.value)
    assert (list(export(graph.snapshot())), graph.head().id, graph.pending()) == (before, head, [])


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (MemoryError("malloc of size 1 failed"), "query_too_large"),
        (pa.ArrowCapacityError("array cannot contain more than 2147483646 bytes"), "query_too_large"),
        (pa.ArrowInvalid("offset overflow while concatenating arrays"), "query_too_large"),
        (pa.ArrowInvalid("anything else"), None),
    ],
)
def test_what_arrow_cannot_do_is_told_as_in_a_query_that_reads(
    graph: Repository, monkeypatch: pytest.MonkeyPatch, error: Exception, code: str | None
) -> None:
    def failing(*args: Any, **kwargs: Any) -> None:
        raise error

    monkeypatch.setattr(MutationStaging, "passing", failing)
    with pytest.raises(Internal if code is None else BadRequest, match="query `q`") as caught:
        run(graph, 'query q() { update Person set { age: 1 } where slug = "a" }')
    assert code in (None, caught.value.code)


def test_uniqueness_is_judged_on_the_state_after_the_whole_query(graph: Repository) -> None:
    run(graph, 'query q() { insert Person { slug: "a", email: "1" } insert Person { slug: "b", email: "2" } }')
    run(
        graph,
        """query q() { update Person set { email: "2" } where slug = "a" update Person set { email: "1" } where slug = "b" }""",
    )
    assert [r["email"] for r in rows(graph, "node:Person")] == ["2", "1"]


def test_the_same_operation_again_gives_the_same_commit(graph: Repository) -> None:
    operation = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
    text = 'query q() { insert Note { text: "once" } }'
    first, second = (run(graph, text, operation_id=operation) for _ in range(2))
    assert first.commit is not None
    assert second.commit is not None
    assert first.commit.id == second.commit.id
    assert len(rows(graph, "node:Note")) == 1


def test_an_expected_head_that_is_gone_is_a_conflict(graph: Repository) -> None:
    old = graph.head().id
    run(graph, 'query q() { insert Note { text: "1" } }', expect_head=old)
    with pytest.raises(Conflict):
        run(graph, 'query q() { insert Note { text: "2" } }', expect_head=old)
    with pytest.raises(Conflict):  # what changes nothing relies on the head as well
        run(graph, 'query q() { delete Note where text = "2" }', expect_head=old)


def test_where_compares_times_and_now_is_one_moment(graph: Repository) -> None:
    run(
        graph,
        'query q() { insert Person { slug: "a", since: datetime("2020-01-01T00:00:00.5Z") } insert Person { slug: "b", since: now() } }',
    )
    text = 'query q() { update Person set { age: 1 } where since = datetime("2020-01-01T00:00:00.5Z") }'
    assert run(graph, text).nodes == 1
    assert [r["age"] for r in rows(graph, "node:Person")] == [1, None]


def test_what_many_statements_wrote_waits_in_one_piece(graph: Repository) -> None:
    """Each statement goes through what is pending: in as many pieces as statements, a thousand took minutes."""
    node = graph.snapshot().catalog.nodes["Person"]
    staging = MutationStaging(graph.snapshot())
    empty = staging.pending(node)
    for at in (0, 1, 2, 1, 3):
        row = dict.fromkeys(empty.column_names) | {"id": str(at), "slug": str(at), "big": 10 + at}
        staging.put(node, pa.Table.from_pylist([row], schema=empty.schema))
    assert staging.pending(node).column("id").num_chunks == 1
    assert staging.pending(node).column("id").to_pylist() == ["0", "2", "1", "3"]
    assert staging.rows(node, pa.array(["3", "1", "9"])).column("big").to_pylist() == [11, 13]


def test_deleting_an_edge_spares_another_one_of_the_same_id(graph: Repository) -> None:
    """Omnigraph 0.7 could write ids twice; a delete goes by them, so it is refused unless it means every one."""
    for slug in "abcd":
        run(graph, "query q($s: String) { insert Person { slug: $s } }", {"s": slug})
    schema = table_schema(graph.snapshot().catalog.by_table_key["edge:Knows"])
    ends = [("e", "a", "b"), ("e", "c", "d"), ("loop", "b", "b"), ("loop", "b", "a")]
    twice = pa.Table.from_pylist([{"id": i, "src": s, "dst": d, "weight": None} for i, s, d in ends], schema=schema)
    staging = Staging("main", WriterKind.LOAD, (TableChange("edge:Knows", appends=twice),), operation_id=str(ULID()))
    graph.commit(staging, graph.snapshot())
    for text in ('delete Knows where from = "a"', 'delete Person where slug = "c"', 'delete Person where slug = "d"'):
        with pytest.raises(Conflict, match="'e' is stored several times"):
            run(graph, f"query q() {{ {text} }}")
    assert len(rows(graph, "edge:Knows")) == 4
    assert run(graph, 'query q() { delete Knows where from = "b" }').edges == 2
    assert run(graph, 'query q() { delete Person where slug in ["a", "c"] }').edges == 2
    assert rows(graph, "edge:Knows") == []


@pytest.mark.parametrize("what", ["delete Person", "update Person set { age: 1 }"])
def test_whole_rows_are_read_of_those_alone_that_a_condition_finds(
    graph: Repository, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    people = [{"slug": f"p{i}", "email": f"{i}@x", "tags": ["x"]} for i in range(300)]
    load(graph, "\n".join(json.dumps({"type": "Person", "data": p}) for p in people))
    wide = []

    def noting(read: Any) -> Any:
        def noted(self: Snapshot, key: str, columns: Any = None, *args: Any, **options: Any) -> Any:
            found = read(self, key, columns, *args, **options)
            rows = found if isinstance(found, pa.Table) else found.read_all()
            if key == "node:Person" and (columns is None or not {"id", "slug", "_rowaddr", "_rowid"} >= set(columns)):
                wide.append(rows.num_rows)
            return rows if isinstance(found, pa.Table) else rows.to_reader()

        return noted

    for name in ("scan", "scan_batches"):
        monkeypatch.setattr(Snapshot, name, noting(getattr(Snapshot, name)))
    assert run(graph, f'query q() {{ {what} where slug contains "77" }}').nodes == 3
    assert max(wide, default=0) <= 3
    monkeypatch.undo()
    left = {r["slug"]: r["age"] for r in rows(graph, "node:Person")}
    hits = dict.fromkeys(["p77", "p177", "p277"], 1) if "update" in what else {}
    assert left == {p["slug"]: None for p in people if "77" not in str(p["slug"])} | hits


def test_a_condition_is_tested_batch_by_batch_over_what_is_pending(
    graph: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that the same query deleted or wrote anew aren't asked as they are stored: their condition may fail."""
    people = [{"slug": f"p{i:03}", "age": i % 100} for i in range(300)]
    load(graph, "\n".join(json.dumps({"type": "Person", "data": p}) for p in people))
    batches = Snapshot.scan_batches

    def small(self: Snapshot, *args: Any, **options: Any) -> Any:
        read = batches(self, *args, **options)
        return pa.RecordBatchReader.from_batches(
            read.schema, (part for b in read for part in pa.Table.from_batches([b]).to_batches(max_chunksize=7))
        )

    monkeypatch.setattr(Snapshot, "scan_batches", small)
    gone = run(graph, "query q() { delete Person where age = 0  delete Person where 100 / age = 4 }")
    assert gone.nodes == 3 + 3
    written = run(
        graph,
        """query q() {
          insert Person { slug: "p301", age: 50 }
          insert Person { slug: "p005", age: 50 }
          update Person set { age: 26 } where 100 / age = 2
        }""",
    )
    assert written.nodes == 2 + 5
    ages = {r["slug"]: r["age"] for r in rows(graph, "node:Person")}
    want = {p["slug"]: p["age"] for p in people if p["age"] not in (0, 25)} | {"p301": 50, "p005": 50}
    assert ages == {slug: 26 if age == 50 else age for slug, age in want.items()}


# ---- random writes against a model in plain Python -------------------------------------------------------------------

SLUGS = st.sampled_from("abcd")
VALUES = st.one_of(st.none(), st.integers(-5, 160))
OPS = st.one_of(
    st.tuples(st.just("put"), SLUGS, VALUES),
    st.tuples(st.just("touch"), SLUGS, st.none()),
    st.tuples(st.just("older"), st.integers(0, 20), st.none()),
    st.tuples(st.just("drop"), SLUGS, st.none()),
    st.tuples(st.just("knows"), SLUGS, SLUGS),
    st.tuples(st.just("unknow"), SLUGS, st.none()),
    st.tuples(st.just("load"), SLUGS, VALUES),
    st.tuples(st.just("merge"), SLUGS, VALUES),
)


class Model:
    """What the graph should hold: ages by slug, and the pairs of Knows with repeats."""

    def __init__(self) -> None:
        self.ages: dict[str, int | None] = {}
        self.knows: list[tuple[str, str]] = []

    def apply(self, op: str, x: Any, y: Any) -> bool:
        ages, knows = dict(self.ages), list(self.knows)
        if op == "put" or op == "merge":
            ages[x] = y
        elif op == "load":
            if x in ages:
                return False
            ages[x] = y
        elif op == "touch":
            ages.setdefault(x, None)
        elif op == "older":
            ages = {s: (a + 1 if a == x else a) if a is not None else None for s, a in ages.items()}
        elif op == "drop":
            ages.pop(x, None)
            knows = [k for k in knows if x not in k]
        elif op == "knows":
            knows.append((x, y))
        else:
            knows = [k for k in knows if k[0] != x]
        good = all(a is None or 0 <= a <= 150 for a in ages.values())
        good = good and all(f in ages and t in ages for f, t in knows)
        good = good and all(sum(k[0] == s for k in knows) <= 2 for s in ages)
        if good:
            self.ages, self.knows = ages, knows
        return good


def real(repository: Repository, op: str, x: Any, y: Any) -> None:
    texts = {
        "put": "query q($x: String, $y: I32?) { insert Person { slug: $x, age: $y } }",
        "touch": "query q($x: String) { insert Person { slug: $x } }",
        "older": "query q($x: I32, $y: I32) { update Person set { age: $y } where age = $x }",
        "drop": "query q($x: String) { delete Person where slug = $x }",
        "knows": "query q($x: String, $y: String) { insert Knows { from: $x, to: $y } }",
        "unknow": "query q($x: String) { delete Knows where from = $x }",
    }
    if op in ("load", "merge"):
        record = json.dumps({"type": "Person", "data": {"slug": x, "age": y}})
        load(repository, record, mode="append" if op == "load" else "merge")
        return
    params = {"x": x} | ({"y": x + 1} if op == "older" else {"y": y} if "$y" in texts[op] else {})
    run(repository, texts[op], params)


@given(st.lists(OPS, min_size=4, max_size=10))
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_random_writes_agree_with_the_model(
    tmp_path_factory: pytest.TempPathFactory, ops: list[tuple[str, Any, Any]]
) -> None:
    repository = Repository.create(str(tmp_path_factory.mktemp("m") / "g"), compile_schema(SCHEMA))
    model = Model()
    for op in ops:
        if model.apply(*op):
            real(repository, *op)
        else:
            with pytest.raises(BadRequest):
                real(repository, *op)
        assert {r["slug"]: r["age"] for r in rows(repository, "node:Person")} == model.ages
        assert sorted((e["src"], e["dst"]) for e in rows(repository, "edge:Knows")) == sorted(model.knows)
    assert verify(repository).ok
