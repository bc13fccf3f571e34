"""The library's surface, line by line as it is promised (03 §3.6)."""

from __future__ import annotations

import inspect
import sys
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import networkx
import pandas
import polars
import pyarrow as pa
import pytest

import omnigraph

SCHEMA = """\
node Person { name: String @key  age: I32?  photo: Blob?  type: String? }
edge Knows: Person -> Person { since: Date? }
"""
ADA = "query one($name: String) { match { $p: Person { name: $name } } return { $p.name as name, $p.age as age } }"
ALL = "query all() { match { $p: Person } return { $p.name as name } order { name } }"
ADD = "query add($name: String) { insert Person { name: $name } }"


@pytest.fixture
def g(tmp_path: Path) -> omnigraph.Graph:
    (tmp_path / "schema.pg").write_text(SCHEMA)
    graph = omnigraph.init(str(tmp_path / "graph.omni"), schema=tmp_path / "schema.pg")
    graph.load(
        {
            "Person": pa.table({"name": ["ada", "bob"], "age": [36, None], "photo": [b"bytes", None]}),
            "Knows": pa.table({"from": ["ada"], "to": ["bob"], "since": ["2020-01-31"]}),
        }
    )
    return graph


def names(graph: omnigraph.Graph, **where: Any) -> list[str]:
    return [row["name"] for row in graph.query(ALL, **where)]


def test_the_listing_runs_as_written(g: omnigraph.Graph, tmp_path: Path) -> None:
    with omnigraph.open(g.uri, read_only=False, actor="ci") as again:
        assert again.mutate(ADD, params={"name": "cy"}, branch="main", expect_head=None).nodes == 1
        assert again.head("main").actor == "ci"
    r = g.query(ADA, params={"name": "ada"}, name=None, branch="main", at=None)
    assert (r.table.num_rows, [c.name for c in r.columns], len(r)) == (1, ["name", "age"], 1)
    assert r.to_pylist() == [{"name": "ada", "age": 36}]
    assert "ada" in repr(r)
    assert "<td>ada</td>" in r._repr_html_()
    m = g.mutate(ADD, params={"name": "dee"}, branch="main", expect_head=g.head("main").id)
    assert m.commit is not None
    assert (m.nodes, m.edges, m.commit.id) == (1, 0, g.head("main").id)
    loaded = g.load(
        '{"type": "Person", "data": {"name": "eve"}}', mode="append", branch="draft", from_="main", mapping=None
    )
    assert loaded.branch_created
    assert len(list(g.export(branch="main", at=None, types=None))) == 5
    assert [b.name for b in g.branches.list()] == ["main", "draft"]
    assert [entry["id"] for entry in g.diff("main", "draft", types=None, ops=None)] == ["eve"]
    before = g.head("main").id
    x = g.branches.merge("draft", into="main", delete_source=False)
    assert x.outcome == "fast_forward"
    assert x.commit is not None
    assert [entry["id"] for entry in g.changes(since=before)] == ["eve"]
    assert len(g.commits(branch="main", limit=50, before=None)) == 6
    g.branches.create("old", from_="main", at=2)
    assert names(g, branch="old") == ["ada", "bob"]
    g.branches.delete("old")
    g.branches.delete("draft")
    assert g.schema.source == SCHEMA
    assert set(g.schema.catalog.nodes) == {"Person"}
    wider = SCHEMA.replace("age: I32?", "age: I32?  city: String?")
    assert g.schema.plan(wider).supported
    assert g.schema.apply(wider, allow_data_loss=False).commit is not None
    assert set(g.snapshot(branch="main", at=None).tables) == {"node:Person", "edge:Knows"}
    assert g.ensure_indices(branch="main")
    assert g.optimize(branch="main").tables
    assert not g.cleanup(keep=10, older_than=None).confirmed
    assert g.repair(confirm=False).tables == ()
    assert g.verify().ok
    assert g.recover().outcomes == ()
    assert g.embed().made == 0
    assert g.blob("Person", "ada", "photo", at=None).read(1, 3) == b"yt"
    report = omnigraph.lint("query q() { match { $p: Persn } return { $p.name } }", schema=SCHEMA)
    (found,) = report.queries[0].errors
    assert (found.code, found.span.column if found.span else 0) == ("T1", 25)
    assert [c.name for c in omnigraph.lint(ADA, schema=SCHEMA).queries[0].columns] == ["name", "age"]


def test_frames_and_graphs_of_other_libraries(g: omnigraph.Graph) -> None:
    r = g.query(ADA, {"name": "ada"})
    frame = r.to_pandas()
    assert isinstance(frame, pandas.DataFrame)
    assert frame.to_dict("records") == [{"name": "ada", "age": 36}]
    assert isinstance(r.to_polars(), polars.DataFrame)
    assert r.to_polars().to_dicts() == r.to_pylist()
    whole = g.query("query q() { match { $p: Person optional { $p $e:knows $f } } return { $p, $e } }")
    made = whole.to_networkx()
    assert isinstance(made, networkx.MultiDiGraph)
    assert dict(made.nodes(data=True)) == {
        ("Person", "ada"): {"type": "Person", "name": "ada", "age": 36},
        ("Person", "bob"): {"type": "Person", "name": "bob"},
    }
    ((start, end, data),) = made.edges(data=True)
    assert (start[1], end[1], data) == ("ada", "bob", {"type": "Knows", "since": date(2020, 1, 31)})
    with pytest.raises(omnigraph.BadRequest, match="whole nodes or edges"):
        r.to_networkx()


def test_frames_are_loaded(g: omnigraph.Graph) -> None:
    g.load({"Person": pandas.DataFrame({"name": ["cy"]})})
    g.load({"Person": polars.DataFrame({"name": ["dee"]})})
    g.load({"Person": [{"name": "eve", "age": 3}, {"name": "fay"}]})
    assert names(g) == ["ada", "bob", "cy", "dee", "eve", "fay"]


@pytest.mark.parametrize("library", ["pandas", "polars", "networkx"])
def test_a_library_that_is_missing_is_named(g: omnigraph.Graph, library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(omnigraph.BadRequest, match=rf"pip install 'omnigraph\[{library}\]'") as caught:
        getattr(g.query(ADA, {"name": "ada"}), f"to_{library}")()
    assert (caught.value.code, caught.value.details, caught.value.retryable) == (
        "missing_extra",
        {"package": library},
        False,
    )


def test_every_kind_of_moment(g: omnigraph.Graph) -> None:
    then = g.head()
    g.mutate(ADD, {"name": "cy"})
    for at in (then.id, then, then.manifest_version, g.snapshot(at=then.id), then.created_at):
        assert names(g, at=at) == ["ada", "bob"], at
        assert [entry["id"] for entry in g.changes(since=at)] == ["cy"], at
    assert names(g, at=datetime.now(UTC) + timedelta(hours=1)) == ["ada", "bob", "cy"]
    assert [entry["id"] for entry in g.diff(then, g.head())] == ["cy"]
    for wrong in (2.5, True, date(2026, 1, 31), ["x"]):
        with pytest.raises(omnigraph.BadRequest, match="a moment is"):
            g.query(ALL, at=wrong)  # type: ignore[arg-type]
    with pytest.raises(omnigraph.BadRequest, match="a point is"):
        g.diff(1, 2)  # type: ignore[arg-type]


def test_one_name_needs_no_list(g: omnigraph.Graph) -> None:
    assert len(list(g.export(types="Person"))) == 2
    assert {e["type"] for e in g.diff("main@1", "main", types="Knows", ops="insert", kinds="edge")} == {"Knows"}
    with pytest.raises(omnigraph.BadRequest, match="Person has no vector"):
        g.embed("Person")


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda g: g.load(5), "can't load a int"),
        (lambda g: g.load([{"type": "Person"}]), "can't load a dict"),
        (lambda g: g.load({"Person": 5}), "a int is no table"),
        (lambda g: g.load("."), "is a folder"),
        (lambda g: g.load("/dev/null"), "a pipe or a device and no file"),
        (lambda g: g.query(ADA, ["ada"]), "params is a list"),
        (lambda g: g.query("queries.gq"), r"give Path\('queries.gq'\)"),
        (lambda g: g.query(Path("none.gq")), "none.gq: there is no such file"),
        (lambda g: g.query(b"query"), "expected a text or a pathlib.Path, got bytes"),
        (lambda g: g.commits(limit=-1), "limit -1"),
        (lambda g: omnigraph.lint("none.gq", schema=SCHEMA), r"give Path\('none.gq'\)"),
        (lambda g: omnigraph.lint(ADA, schema=Path("none.pg")), "none.pg: there is no such file"),
        (lambda g: omnigraph.init(g.uri + "2", schema=Path("none.pg")), "none.pg: there is no such file"),
    ],
)
def test_a_wrong_argument_is_refused_with_a_typed_error(g: omnigraph.Graph, wrong: Any, said: str) -> None:
    with pytest.raises(omnigraph.BadRequest, match=said):
        wrong(g)


def test_a_file_is_no_graph(tmp_path: Path) -> None:
    (tmp_path / "schema.pg").write_text(SCHEMA)
    with pytest.raises(omnigraph.NotFound, match="is a file") as caught:
        omnigraph.open(tmp_path / "schema.pg")
    assert caught.value.code == "graph_not_found"


def test_everything_public_is_documented_and_typed() -> None:
    for name in set(omnigraph.__all__) - {"__version__", "At", "Recovery"}:
        thing = getattr(omnigraph, name)
        assert inspect.getdoc(thing), name
        functions = [thing] if inspect.isfunction(thing) else [f for n, f in vars(thing).items() if n[0] != "_"]
        for function in filter(inspect.isfunction, functions):
            assert inspect.getdoc(function), (name, function)
            untyped = [
                p.name
                for p in inspect.signature(function).parameters.values()
                if p.annotation is p.empty and p.name != "self"
            ]
            assert not untyped, (name, function, untyped)
