"""`embed`: vectors of rows that are stored already, batch by batch, through the library and the command."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest

import omnigraph
from omnigraph import BadRequest, Graph, NotFound, Unavailable
from omnigraph.cli.main import main
from tests.engine.embed import provider as p
from tests.engine.embed.test_loads import asked, person, rows, unit

SCHEMA = """
node Person {
  slug: String @key  age: I32?
  bio: String?  vec: Vector(4)? @embed("bio", model="m")
  fullName: String?  nameVec: Vector(3)? @embed("fullName")
}
node Plain { n: I32 }
node File { path: String @key  body: Blob?  about: String?  v: Vector(2)? @embed(about) }
edge Knows: Person -> Person { why: String?  v: Vector(2)? @embed(why) }
"""


@pytest.fixture
def graph(tmp_path: Path, configured: p.Provider) -> Graph:
    graph = omnigraph.init(tmp_path / "g", schema=SCHEMA)
    lines = [
        person(f"p{i}", bio=f"bio {i}" if i % 3 else None, fullName=f"name {i}" if i % 2 else " ") for i in range(10)
    ]
    lines += [
        json.dumps({"edge": "Knows", "from": "p0", "to": "p1", "data": {"why": "w"}}),
        '{"type": "Plain", "data": {"n": 1}}',
    ]
    graph.load("\n".join(lines), embed="later")
    return graph


def test_missing_vectors_are_made_in_batches_and_then_none_is_missing(graph: Graph, configured: p.Provider) -> None:
    graph.branches.create("draft")
    dry = graph.embed(branch="draft", dry_run=True)
    assert {one.property: one.missing for one in dry.properties if one.missing} == {
        "Person.vec": 6,
        "Person.nameVec": 5,
        "Knows.v": 1,
    }
    assert (configured.requests, dry.made) == ([], 0)
    steps: list[Any] = []
    report = graph.embed(branch="draft", batch_rows=3, progress=steps.append)
    assert {one.property: one.made for one in report.properties if one.made} == {
        "Person.vec": 6,
        "Person.nameVec": 5,
        "Knows.v": 1,
    }
    assert (steps[-1].done, steps[-1].total) == (9, 9)
    assert [c.id for c in report.commits] == [c.id for c in graph.commits("draft")][: len(report.commits)][::-1]
    assert len(report.commits) == 4
    found = rows(graph, branch="draft")
    for i in range(10):
        assert found[f"p{i}"]["vec"] == (unit(f"bio {i}") if i % 3 else None)
        assert found[f"p{i}"]["nameVec"] == (unit(f"name {i}", 3) if i % 2 else None)
    assert all(row["vec"] is None for row in rows(graph).values()), "main has nothing of it"
    again = graph.embed(branch="draft")
    assert (again.missing, again.made, again.commits) == (0, 0, ())
    assert graph.verify().ok


def test_chosen_types_and_everything_anew(graph: Graph, configured: p.Provider) -> None:
    graph.embed(["knows"])
    assert asked(configured) == ["w"]
    graph.embed()
    asked(configured)
    graph.load(person("p1", vec=[1, 0, 0, 0]), mode="merge")
    assert graph.embed().made == 0
    report = graph.embed(["Person"], only_missing=False)
    assert report.made == 11
    assert rows(graph)["p1"]["vec"] == unit("bio 1")
    assert asked(configured) == [], "known texts cost nothing"
    assert len(report.commits) == 1
    with pytest.raises(NotFound, match="'Nope'"):
        graph.embed(["Nope"])
    with pytest.raises(BadRequest, match="Plain has no vector"):
        graph.embed(["Plain"])


def test_what_was_finished_stays_when_the_provider_fails(graph: Graph, configured: p.Provider) -> None:
    configured.script = [p.good, p.good, p.status(403)]
    with pytest.raises(Unavailable):
        graph.embed(["Person"], batch_rows=3)
    left = graph.embed(dry_run=True).missing
    assert 0 < left < 12
    graph.embed()
    assert graph.embed(dry_run=True).missing == 0
    assert graph.verify().ok


def test_refused_texts_are_left_and_named(graph: Graph, configured: p.Provider) -> None:
    refuses = configured.default = p.refusing(lambda text: text in ("bio 4", "name 5"))
    report = graph.embed()
    assert (report.refused_count, report.made, report.missing) == (2, 10, 12)
    assert {(r.id, r.property) for r in report.refused} == {("p4", "vec"), ("p5", "nameVec")}
    assert rows(graph)["p5"]["vec"] == unit("bio 5")
    configured.default = None
    graph.load(person("p4", vec=[1, 0, 0, 0]), mode="merge")
    configured.default = refuses
    graph.embed(only_missing=False)
    assert rows(graph)["p4"]["vec"] == [1, 0, 0, 0], "it keeps the vector it had"


def test_a_provider_that_refuses_every_text_ends_the_run(graph: Graph, configured: p.Provider) -> None:
    configured.default = p.status(400, b'{"error": "no such model"}')
    with pytest.raises(Unavailable, match=r"a harmless text is refused as well.*no such model") as caught:
        graph.embed(["Person"], batch_rows=3)
    assert (caught.value.code, caught.value.retryable) == ("embed_refused", False)
    assert len(configured.requests) == 4
    assert graph.embed(dry_run=True).missing == 12


def test_writers_beside_it_lose_nothing(graph: Graph, configured: p.Provider) -> None:
    """A writer changes the same table while texts are with the provider: the batch is done again over what it wrote."""
    busy = threading.Event()

    def behave(handler: p.Handler, request: p.Request) -> None:
        if not busy.is_set():
            busy.set()
            omnigraph.open(graph.uri).load(person("p1", bio="new", age=7), mode="merge", embed="later")
        p.good(handler, request)

    configured.default = behave
    graph.embed(["Person"])
    row = rows(graph)["p1"]
    assert (row["age"], row["bio"], row["vec"]) == (7, "new", unit("new"))
    assert graph.embed(["Person"], dry_run=True).missing == 0
    assert graph.verify().ok


def test_blobs_stay_beside_new_vectors(graph: Graph, configured: p.Provider) -> None:
    graph.load('{"type": "File", "data": {"path": "f", "body": "base64:AAEC", "about": "bytes"}}', embed="later")
    before = list(graph.export(types=["File"]))
    assert graph.embed(["File"]).made == 1
    graph.mutate('query m() { update File set { about: "x" } where path = "f" }')
    assert rows(graph, "node:File")["f"]["v"] == unit("x", 2)
    after = json.loads(next(iter(graph.export(types=["File"]))))["data"]
    assert after["body"] == json.loads(before[0])["data"]["body"] == "base64:AAEC"


def test_the_command(
    graph: Graph,
    configured: p.Provider,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    assert main(["embed", graph.uri, "--dry-run"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "12 vectors are missing on main", "  Person.vec: 6", "  Person.nameVec: 5", "  Knows.v: 1",
    ]  # fmt: skip
    monkeypatch.setattr("omnigraph.cli.output.COUNTER_SECONDS", 0.0)
    assert main(["embed", graph.uri, "--batch-rows", "4", "--format", "json"]) == 0
    ran = capsys.readouterr()
    assert json.loads(ran.out)["made"] == 12
    assert "making vectors: 4 of 9 rows" in ran.err
    assert main(["embed", graph.uri]) == 0
    assert capsys.readouterr().out == "no vector is missing on main\n"
    (tmp_path / "more.ndjson").write_text(person("q", bio="x"))
    assert main(["load", graph.uri, f"{tmp_path}/more.ndjson", "--embed", "later"]) == 0
    assert "texts without their vector: 1 of Person.vec; omnigraph embed" in capsys.readouterr().err
    configured.default = p.status(400, b'{"error": "no"}')
    assert main(["embed", graph.uri]) == 1
    assert "the provider refuses 1 text;" in capsys.readouterr().err
    assert main(["task", "embed", "--uri", graph.uri, "--result", f"{tmp_path}/result"]) == 1
    ran = json.loads(capsys.readouterr().out)
    assert (ran["ok"], ran["code"], ran["refusedCount"], ran["missing"], ran["made"]) == (
        False,
        "text_refused",
        1,
        1,
        0,
    )
    assert "whose rows stay as they are: Person 'q'" in ran["message"]
    monkeypatch.setenv("OMNIGRAPH_EMBED_PROVIDER", "none")
    assert main(["embed", graph.uri]) == 1
    assert "no embedding provider is set up" in capsys.readouterr().err
