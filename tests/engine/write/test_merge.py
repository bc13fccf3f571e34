"""Merging branches: three ways, row by row."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

import omnigraph
from omnigraph.errors import Conflict, MergeConflicts, NotFound
from omnigraph.write import merging

SCHEMA = """
node Person {
  name: String @key
  age: I64?
  mail: String? @unique
  tags: [String]?
  @range(age, 0..150)
}
node City { name: String @key }
edge Knows: Person -> Person @card(0..2) { since: I64?  @key(src, dst) }
edge Lives: Person -> City
"""


def person(name: str, age: int | None = None, **more: Any) -> dict[str, Any]:
    return {"type": "Person", "data": {"name": name, "age": age, **more}}


def knows(one: str, other: str, since: int | None = None) -> dict[str, Any]:
    return {"edge": "Knows", "from": one, "to": other, "data": {"since": since}}


def load(graph: omnigraph.Graph, branch: str, *records: dict[str, Any]) -> None:
    graph.load("\n".join(map(json.dumps, records)) + "\n", mode="merge", branch=branch)


def drop(graph: omnigraph.Graph, branch: str, *names: str) -> None:
    for name in names:
        graph.mutate("query d($n: String) { delete Person where name = $n }", {"n": name}, branch=branch)


def contents(graph: omnigraph.Graph, branch: str = "main") -> list[str]:
    return sorted(graph.export(branch=branch))


def people(graph: omnigraph.Graph, branch: str = "main") -> dict[str, int | None]:
    rows = graph.query("query q() { match { $p: Person } return { $p.name as n, $p.age as a } }", branch=branch)
    return {row["n"]: row["a"] for row in rows}


def kinds(caught: Iterable[dict[str, Any]]) -> set[tuple[str, str]]:
    return {(c["kind"], c["id"]) for c in caught}


@pytest.fixture
def graph(tmp_path: Path) -> omnigraph.Graph:
    made = omnigraph.init(tmp_path / "g", schema=SCHEMA, actor="ann")
    load(made, "main", person("a", 1), person("b", 2), person("c", 3), {"type": "City", "data": {"name": "rome"}})
    load(made, "main", knows("a", "b"))
    made.branches.create("dev")
    return made


def test_the_three_outcomes(graph: omnigraph.Graph) -> None:
    same = graph.branches.merge("dev")
    assert (same.outcome, same.commit) == ("already_up_to_date", None)
    load(graph, "dev", person("d", 4), knows("d", "a"))
    before = graph.head()
    forward = graph.branches.merge("dev")
    assert forward.outcome == "fast_forward"
    assert forward.commit is not None
    assert forward.commit.parents == (before.id, graph.head("dev").id)
    assert forward.base == before.id
    assert [(t.table_key, t.inserted, t.updated, t.deleted) for t in forward.tables] == [
        ("node:Person", 1, 0, 0),
        ("edge:Knows", 1, 0, 0),
    ]
    assert contents(graph) == contents(graph, "dev")
    assert graph.branches.merge("dev").outcome == "already_up_to_date"
    assert graph.branches.merge("main", into="dev").outcome == "fast_forward"
    load(graph, "dev", person("e", 5))
    load(graph, "main", person("a", 10))
    drop(graph, "main", "c")
    merged = graph.branches.merge("dev")
    assert merged.outcome == "merged"
    assert people(graph) == {"a": 10, "b": 2, "d": 4, "e": 5}
    assert graph.snapshot().tables["node:Person"].branch is None  # on the target's own lineage
    assert graph.verify().ok, graph.verify().findings


def test_the_source_can_be_deleted_at_once(graph: omnigraph.Graph) -> None:
    load(graph, "dev", person("d", 4))
    load(graph, "main", person("e", 5))
    tip = graph.head("dev")
    with pytest.raises(NotFound, match="no branch"):
        graph.branches.merge(tip.id, delete_source=True)
    result = graph.branches.merge("dev", delete_source=True)
    assert [b.name for b in graph.branches.list()] == ["main"]
    assert people(graph)["d"] == 4
    ids = {c.id: c for c in graph.commits()}
    assert tip.id in ids
    assert ids[tip.id].actor == "ann"
    assert all(parent in ids for c in ids.values() for parent in c.parents)
    assert graph.verify().ok, graph.verify().findings
    for read in (lambda: graph.snapshot(at=tip.id), lambda: graph.diff(tip.id, "main")):
        with pytest.raises(NotFound, match="has been deleted"):
            read()
    # Time travel goes along the branch's own line: main didn't have the merged commit's rows before the merge.
    assert result.commit is not None
    assert "d" not in people_at(graph, tip.created_at)
    # A branch of the same name is another one.
    graph.branches.create("dev")
    load(graph, "dev", person("f", 6))
    assert graph.branches.merge("dev").outcome == "fast_forward"
    assert people(graph)["f"] == 6


def people_at(graph: omnigraph.Graph, at: Any) -> set[str]:
    return {r["n"] for r in graph.query("query q() { match { $p: Person } return { $p.name as n } }", at=at)}


def test_every_kind_of_conflict_at_once(graph: omnigraph.Graph) -> None:
    load(graph, "main", person("gone"), person("mine"), person("ours"), person("k"))
    load(graph, "main", knows("k", "a"))
    graph.branches.create("x")
    load(graph, "x", person("new", 1), person("a", 7), person("gone", 9), person("u1", mail="m"))
    load(graph, "x", knows("c", "mine"), knows("k", "b"))
    drop(graph, "x", "b", "ours")
    load(graph, "main", person("new", 2), person("a", 8), person("b", 9), person("u2", mail="m"))
    load(graph, "main", knows("c", "ours"), knows("k", "c"))
    drop(graph, "main", "gone", "mine")
    head = graph.head()
    before = contents(graph)
    with pytest.raises(MergeConflicts) as caught:
        graph.branches.merge("x")
    found = kinds(caught.value.conflicts)
    assert found == {
        ("divergent_insert", "new"),
        ("divergent_update", "a"),
        ("delete_vs_update", "gone"),
        ("delete_vs_update", "b"),
        ("unique_violation", "u1"),
        ("orphan_edge", '["c","mine"]'),
        ("orphan_edge", '["c","ours"]'),
    }
    a = next(c for c in caught.value.conflicts if c["id"] == "a")
    assert [a[side]["age"] for side in ("base", "ours", "theirs")] == [1, 8, 7]
    new = next(c for c in caught.value.conflicts if c["id"] == "new")
    assert [new["base"], new["ours"]["age"], new["theirs"]["age"]] == [None, 2, 1]
    json.dumps(caught.value.details)
    assert (graph.head(), contents(graph)) == (head, before)
    assert graph.pending() == []


def test_cardinality_holds_for_both_sides_together(graph: omnigraph.Graph) -> None:
    load(graph, "dev", knows("c", "a"))
    load(graph, "main", knows("c", "b"), knows("c", "c"))
    with pytest.raises(MergeConflicts) as caught:
        graph.branches.merge("dev")
    assert kinds(caught.value.conflicts) == {("cardinality_violation", '["c","a"]')}


def test_equal_changes_are_no_conflict(graph: omnigraph.Graph) -> None:
    for branch in ("dev", "main"):
        load(graph, branch, person("a", 9, tags=["x", "y"]), person("n", 1), knows("n", "a"))
        drop(graph, branch, "c")
    before = contents(graph)
    result = graph.branches.merge("dev")
    assert result.outcome == "merged"
    assert result.tables == ()
    assert result.commit is not None
    assert contents(graph) == before == contents(graph, "dev")
    assert graph.branches.merge("dev").outcome == "already_up_to_date"


def test_changes_already_merged_are_no_changes_any_more(graph: omnigraph.Graph) -> None:
    """The next base is the merge, whichever way it went."""
    load(graph, "dev", person("a", 20))
    graph.branches.merge("dev")
    load(graph, "main", person("a", 30))
    load(graph, "dev", person("d", 4))
    assert graph.branches.merge("dev").outcome == "merged"
    assert people(graph)["a"] == 30
    assert graph.branches.merge("main", into="dev").outcome == "fast_forward"
    assert contents(graph) == contents(graph, "dev")


def test_criss_cross(graph: omnigraph.Graph) -> None:
    load(graph, "main", person("m", 1))
    load(graph, "dev", person("d", 1))
    main, dev = graph.head().id, graph.head("dev").id
    graph.branches.merge(dev, into="main")
    graph.branches.merge(main, into="dev")
    load(graph, "main", person("m2", 1))
    load(graph, "dev", person("d2", 1))
    assert graph.branches.merge("dev").outcome == "merged"
    assert set(people(graph)) == {"a", "b", "c", "m", "d", "m2", "d2"}
    assert graph.verify().ok


@pytest.mark.parametrize("first", ["main", "dev"])
@pytest.mark.parametrize("again", [{"a": 1}, {"a": None}, {}])
def test_what_was_put_back_after_branches_were_merged_crosswise_stays(
    graph: omnigraph.Graph, first: str, again: dict[str, int | None]
) -> None:
    """Of the two common ancestors one lacks the change: seen from there alone, the side that kept it has made it."""
    for branch in (first, "dev" if first == "main" else "main"):
        if branch == "main":
            load(graph, "main", person("a", 10))
        else:
            load(graph, "dev", person("d", 1))
    main, dev = graph.head().id, graph.head("dev").id
    graph.branches.merge(dev, into="main")
    graph.branches.merge(main, into="dev")
    assert people(graph) == people(graph, "dev") == {"a": 10, "b": 2, "c": 3, "d": 1}
    if again:
        load(graph, "main", person("a", again["a"]))
        expected = {"a": again["a"], "b": 2, "c": 3, "d": 1, "e": 1}
    else:
        graph.mutate("query q() { delete Knows where since is null }")
        drop(graph, "main", "a")
        expected = {"b": 2, "c": 3, "d": 1, "e": 1}
    load(graph, "dev", person("e", 1))
    graph.branches.merge("dev")
    assert people(graph) == expected
    graph.branches.merge("main", into="dev")
    assert people(graph, "dev") == expected
    assert graph.verify().ok


def test_a_change_of_both_after_branches_were_merged_crosswise_is_a_conflict(graph: omnigraph.Graph) -> None:
    load(graph, "main", person("a", 10))
    load(graph, "dev", person("d", 1))
    main, dev = graph.head().id, graph.head("dev").id
    graph.branches.merge(dev, into="main")
    graph.branches.merge(main, into="dev")
    load(graph, "main", person("a", 11), person("d", 2))
    load(graph, "dev", person("a", 12))
    before = contents(graph)
    with pytest.raises(MergeConflicts) as caught:
        graph.branches.merge("dev")
    assert kinds(caught.value.conflicts) == {("divergent_update", "a")}
    assert contents(graph) == before


def test_siblings_merge_through_their_common_parent(graph: omnigraph.Graph) -> None:
    graph.branches.create("one", from_="dev")
    graph.branches.create("two", from_="dev")
    load(graph, "one", person("x", 1))
    load(graph, "two", person("y", 1), person("b", 22))
    drop(graph, "one", "c")
    assert graph.branches.merge("two", into="one").outcome == "merged"
    assert people(graph, "one") == {"a": 1, "b": 22, "x": 1, "y": 1}
    assert people(graph, "dev") == {"a": 1, "b": 2, "c": 3}
    graph.branches.merge("one", into="main")
    assert people(graph) == people(graph, "one")
    assert graph.verify().ok


def test_a_base_of_a_deleted_branch_is_named(graph: omnigraph.Graph) -> None:
    graph.branches.create("feat")
    load(graph, "feat", person("f", 1))
    load(graph, "dev", person("d", 1))
    load(graph, "main", person("m", 1))
    graph.branches.merge("dev", into="feat")
    graph.branches.merge("dev", into="main", delete_source=True)
    with pytest.raises(Conflict, match="common ancestor") as caught:
        graph.branches.merge("feat")
    assert caught.value.code == "merge_base_gone"


def test_whole_files_are_copied(graph: omnigraph.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merging, "COPIED_FROM_ROWS", 100)
    monkeypatch.setattr("omnigraph.write.loader.FRAGMENT_ROWS", 50)
    many = [{"type": "City", "data": {"name": f"c{i}"}} for i in range(500)]
    load(graph, "dev", *many)
    load(graph, "dev", *({"edge": "Lives", "from": "b", "to": f"c{i}", "data": {}} for i in range(300)))
    load(graph, "main", person("m", 1), {"type": "City", "data": {"name": "here"}})
    result = graph.branches.merge("dev")
    assert {t.table_key: (t.inserted, t.copied) for t in result.tables} == {
        "node:City": (500, 500),
        "edge:Lives": (300, 300),
    }
    graph.branches.delete("dev")
    assert graph.snapshot().count_rows("node:City") == 502
    assert graph.snapshot().count_rows("node:City", "name = 'c77'") == 1
    assert graph.verify().ok
    graph.ensure_indices()
    assert graph.entity("City", "c123") == {"id": "c123", "name": "c123"}


def test_no_file_is_copied_where_a_row_is_known(graph: omnigraph.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merging, "COPIED_FROM_ROWS", 2)
    load(graph, "dev", *({"type": "City", "data": {"name": f"c{i}"}} for i in range(5)))
    load(graph, "main", {"type": "City", "data": {"name": "c3"}})
    result = graph.branches.merge("dev")
    assert [(t.inserted, t.copied) for t in result.tables] == [(4, 0)]
    assert graph.snapshot().count_rows("node:City") == 6


def test_copied_edges_of_a_deleted_node_are_orphans(graph: omnigraph.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merging, "COPIED_FROM_ROWS", 2)
    load(graph, "dev", *({"edge": "Lives", "from": n, "to": "rome", "data": {}} for n in "abc"))
    drop(graph, "main", "b")
    with pytest.raises(MergeConflicts) as caught:
        graph.branches.merge("dev")
    assert [c["kind"] for c in caught.value.conflicts] == ["orphan_edge"]
    assert caught.value.conflicts[0]["theirs"]["src"] == "b"


def test_a_merge_is_done_once_and_refuses_a_moved_head(graph: omnigraph.Graph) -> None:
    load(graph, "dev", person("d", 4))
    stale = graph.head().id
    load(graph, "main", person("m", 4))
    with pytest.raises(Conflict, match="read again"):
        graph.branches.merge("dev", expect_head=stale)
    first = graph.branches.merge("dev", operation_id="01J9ZC4T5E8QK3W7R2N6M1XV00")
    load(graph, "dev", person("e", 4))
    again = graph.branches.merge("dev", operation_id="01J9ZC4T5E8QK3W7R2N6M1XV00")
    assert (first.outcome, again.outcome) == ("merged", "already_up_to_date")
    assert first.commit is not None
    assert again.commit is not None
    assert again.commit.id == first.commit.id
    graph.branches.create("same")
    with pytest.raises(Conflict, match="read again"):
        graph.branches.merge("same", expect_head=stale)
    assert "e" not in people(graph)


def test_only_touched_rows_are_compared(graph: omnigraph.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    real = merging.merge_step
    monkeypatch.setattr(merging, "merge_step", lambda ids, *r, **m: (seen.append(len(ids)), real(ids, *r, **m))[1])
    load(graph, "dev", person("b", 20))
    drop(graph, "dev", "c")
    load(graph, "main", person("a", 10))
    graph.branches.merge("dev")
    assert seen == [2]
    seen.clear()
    load(graph, "main", person("b", 21))
    graph.branches.merge("main", into="dev")  # the base lies on another lineage
    assert seen[0] <= 3
    assert contents(graph) == contents(graph, "dev")


def test_portions_and_lost_versions(graph: omnigraph.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows are compared in portions; without the common version every row is, with the same outcome."""
    monkeypatch.setattr(merging, "PORTION", 2)
    monkeypatch.setattr("omnigraph.storage.delta.common_version", lambda *_: None)
    load(graph, "dev", person("b", 20), *(person(f"n{i}", i) for i in range(7)))
    drop(graph, "dev", "c")
    load(graph, "main", person("a", 10))
    graph.branches.merge("dev")
    assert people(graph) == {"a": 10, "b": 20, **{f"n{i}": i for i in range(7)}}
