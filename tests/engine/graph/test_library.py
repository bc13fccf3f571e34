"""The library as a user meets it: `import omnigraph`."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import omnigraph

SCHEMA_OF_TOWNS = """\
node Town { name: String @key  people: I64? }
edge Road: Town -> Town { km: F64 }
"""
TOWNS = """\
{"type": "Town", "data": {"name": "Alba", "people": 31000}}
{"type": "Town", "data": {"name": "Bra"}}
{"edge": "Road", "from": "Alba", "to": "Bra", "data": {"km": 17.5}}
"""
ALL_TOWNS = "query q() { match { $t: Town } return { $t.name as name, $t.people as people } order { name } }"
FOUND = "query found($name: String) { insert Town { name: $name } }"


@pytest.fixture
def towns(tmp_path: Path) -> omnigraph.Graph:
    graph = omnigraph.init(tmp_path / "towns.omni", schema=SCHEMA_OF_TOWNS, actor="tests")
    graph.load(TOWNS)
    return graph


@pytest.fixture(scope="module")
def same_towns(tmp_path_factory: pytest.TempPathFactory) -> omnigraph.Graph:
    """For tests that change nothing."""
    graph = omnigraph.init(tmp_path_factory.mktemp("same") / "towns.omni", schema=SCHEMA_OF_TOWNS, actor="tests")
    graph.load(TOWNS)
    return graph


def test_every_public_name_is_there() -> None:
    assert sorted(omnigraph.__all__) == sorted(set(omnigraph.__all__))
    for name in omnigraph.__all__:
        assert getattr(omnigraph, name) is not None, name
        assert name in dir(omnigraph)
    with pytest.raises(AttributeError, match="nothing_such"):
        omnigraph.nothing_such  # noqa: B018


def test_importing_costs_nothing() -> None:
    code = "import omnigraph, sys; print('lance' in sys.modules, 'pyarrow' in sys.modules, 'pydantic' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert ran.stdout.split() == ["False", "False", "False"]


def test_query_result(towns: omnigraph.Graph) -> None:
    result = towns.query(ALL_TOWNS)
    assert len(result) == 2
    assert [c.name for c in result.columns] == ["name", "people"]
    assert result.to_pylist() == [{"name": "Alba", "people": 31000}, {"name": "Bra", "people": None}]
    assert list(result) == result.to_pylist()
    assert "Alba" in repr(result)
    assert result.snapshot.manifest_version == towns.snapshot().manifest_version


def test_mutate_and_time_travel(towns: omnigraph.Graph) -> None:
    before = towns.head()
    done = towns.mutate(FOUND, {"name": "Cuneo"})
    assert (done.nodes, done.edges) == (1, 0)
    assert done.commit is not None
    assert towns.head().id == done.commit.id
    assert done.commit.actor == "tests"
    assert len(towns.query(ALL_TOWNS)) == 3
    assert len(towns.query(ALL_TOWNS, at=before.id)) == 2
    assert len(towns.query(ALL_TOWNS, at=before.manifest_version)) == 2
    assert len(towns.query(ALL_TOWNS, at=towns.snapshot(at=before.id))) == 2
    assert [c.id for c in towns.commits(limit=2)] == [done.commit.id, before.id]


def test_expect_head_refuses_a_moved_branch(towns: omnigraph.Graph) -> None:
    head = towns.head().id
    towns.mutate(FOUND, {"name": "Cuneo"}, expect_head=head)
    with pytest.raises(omnigraph.Conflict) as caught:
        towns.mutate(FOUND, {"name": "Dronero"}, expect_head=head)
    assert caught.value.code == "head_moved"
    assert len(towns.query(ALL_TOWNS)) == 3


def test_branches(towns: omnigraph.Graph) -> None:
    made = towns.branches.create("draft")
    assert made.name == "draft"
    towns.mutate(FOUND, {"name": "Cuneo"}, branch="draft")
    assert len(towns.query(ALL_TOWNS, branch="draft")) == 3
    assert len(towns.query(ALL_TOWNS)) == 2
    assert [b.name for b in towns.branches.list()] == ["main", "draft"]
    with pytest.raises(omnigraph.NotFound):
        towns.query(ALL_TOWNS, branch="nowhere")


def test_reopen_and_read_only(towns: omnigraph.Graph) -> None:
    with omnigraph.open(towns.uri) as again:
        assert again.recovered is not None
        assert again.recovered.outcomes == ()
        assert again.schema.source == SCHEMA_OF_TOWNS
        assert set(again.schema.catalog.nodes) == {"Town"}
        assert not again.pending()
        assert again.verify().ok
    towns.close()  # history's rows follow the answer
    before = _tree(Path(towns.uri))
    with omnigraph.open(towns.uri, read_only=True) as reader:
        assert len(reader.query(ALL_TOWNS)) == 2
        assert reader.verify().ok
        with pytest.raises(omnigraph.OmniGraphError, match="for reading only"):
            reader.mutate(FOUND, {"name": "Cuneo"})
    assert _tree(Path(towns.uri)) == before
    with pytest.raises(omnigraph.BadRequest, match="read-only"):
        omnigraph.open(towns.uri, read_only=True, recovery="full")


def test_a_reader_sees_new_commits(towns: omnigraph.Graph) -> None:
    reader = omnigraph.open(towns.uri, read_only=True)
    assert len(reader.query(ALL_TOWNS)) == 2
    towns.mutate(FOUND, {"name": "Cuneo"})
    assert len(reader.query(ALL_TOWNS)) == 3


def test_refusals(towns: omnigraph.Graph, tmp_path: Path) -> None:
    with pytest.raises(omnigraph.BadRequest) as caught:
        towns.query(FOUND, {"name": "x"})
    assert caught.value.code == "is_mutation"
    with pytest.raises(omnigraph.BadRequest):
        towns.mutate(ALL_TOWNS)
    with pytest.raises(omnigraph.BadRequest, match="nme"):
        towns.mutate(FOUND, {"nme": "x"})
    with pytest.raises(omnigraph.LanguageError):
        towns.query("query q() { match { $t: Twon } return { $t.name } }")
    with pytest.raises(omnigraph.Conflict):
        omnigraph.init(towns.uri, schema=SCHEMA_OF_TOWNS)
    with pytest.raises(omnigraph.NotFound):
        omnigraph.open(tmp_path / "nowhere.omni")


@pytest.mark.parametrize(
    ("said", "ask"),
    [
        ("recovery is one of", lambda g: omnigraph.open(g.uri, recovery="foward")),
        ("'full' or 'forward'", lambda g: g.recover("foward")),
        ("since when", lambda g: g.changes(None)),
        ("by its name", lambda g: g.mutate(FOUND, {"name": "x"}, branch=None)),
        ("by its name", lambda g: g.query(ALL_TOWNS, branch=3)),
        ("number of commits", lambda g: g.cleanup(keep="3")),
        ("timedelta", lambda g: g.cleanup(older_than=7)),
        ("isn't known", lambda g: g.load(TOWNS, format="parq")),
        ("are for files", lambda g: g.load(TOWNS, format="csv")),
        ("max_quarantined", lambda g: g.load(TOWNS, max_quarantined=-1)),
        ("mapping is an omnigraph.Mapping", lambda g: g.load(mapping={"sources": []})),
        ("quarantine is a path", lambda g: g.load(TOWNS, quarantine=5)),
        ("max_quarantined is a whole number", lambda g: g.load(TOWNS, max_quarantined="3")),
        ("branch is a text", lambda g: g.load(TOWNS, branch=["main"])),
        ("name is a text", lambda g: g.query(ALL_TOWNS, name=5)),
        ("name is a text", lambda g: g.mutate(FOUND, {"name": "x"}, name=["q"])),
        ("timeout_seconds is a number", lambda g: g.query(ALL_TOWNS, timeout_seconds="3")),
        ("cancelled is a function", lambda g: g.query(ALL_TOWNS, cancelled=True)),
        ("name of a parameter is a text", lambda g: g.query(ALL_TOWNS, {1: 2})),
        ("`name` and as `\\$name`", lambda g: g.mutate(FOUND, {"name": "x", "$name": "y"})),
        ("operation id 5", lambda g: g.mutate(FOUND, {"name": "x"}, operation_id=5)),
        ("actor is a text", lambda g: g.mutate(FOUND, {"name": "x"}, actor=5)),
        ("actor .*not UTF-8 text", lambda g: g.mutate(FOUND, {"name": "x"}, actor="\ud800")),
        ("actor is a text", lambda g: g.branches.create("b", actor=5)),
        ("type is a text", lambda g: g.entity(None, "Alba")),
        ("id is a text", lambda g: g.entity("Town", None)),
        ("property is a text", lambda g: g.blob("Town", "Alba", None)),
        ("by its name", lambda g: g.head(5)),
        ("by its name", lambda g: g.repair(branch=5)),
        ("by its name", lambda g: g.branches.delete(None)),
        ("by its name", lambda g: g.branches.create(None)),
        ("limit is a whole number", lambda g: g.commits(limit="3")),
        ("kinds is a text or several", lambda g: g.diff("main", kinds=5)),
        ("each of types is a text", lambda g: g.export(types=[5])),
        ("uri is a path", lambda g: omnigraph.open(5)),
        ("no file can have this name", lambda g: omnigraph.init("a\0b", schema=SCHEMA_OF_TOWNS)),
        ("no file can have this name", lambda g: g.query(Path("a\0b"))),
        ("Is a directory", lambda g: g.query(Path(g.uri))),
        ("Not a directory", lambda g: omnigraph.lint(Path(__file__) / "x", schema=SCHEMA_OF_TOWNS)),
        ("not UTF-8", lambda g: g.load(TOWNS.replace("Alba", "\ud800"))),
    ],
)
def test_wrong_use_is_told_and_changes_nothing(same_towns: omnigraph.Graph, said: str, ask: Any) -> None:
    head = same_towns.head().id
    with pytest.raises(omnigraph.BadRequest, match=said):
        ask(same_towns)
    assert same_towns.head().id == head


@pytest.mark.parametrize("id", ["nowhere", "\ud800", "o'x\0"])
def test_an_id_that_nothing_has_is_no_error(tmp_path: Path, id: str) -> None:
    towns = omnigraph.init(tmp_path / "towns.omni", schema="node Town { name: String @key  map: Blob? }")
    assert towns.entity("Town", id) is None
    with pytest.raises(omnigraph.NotFound) as missing:
        towns.blob("Town", id, "map")
    with pytest.raises(omnigraph.BadRequest, match="id is a text"):
        towns.blob("Town", 5, "map")  # type: ignore[arg-type]
    assert missing.value.code == "unknown_id"


def test_below_a_file_there_is_no_graph() -> None:
    with pytest.raises(omnigraph.NotFound, match="no graph"):
        omnigraph.open(Path(__file__) / "graph")
    with pytest.raises(omnigraph.Conflict, match="is a file"):
        omnigraph.init(Path(__file__) / "graph", schema=SCHEMA_OF_TOWNS)


def test_a_snapshot_of_another_graph_is_refused(towns: omnigraph.Graph, tmp_path: Path) -> None:
    other = omnigraph.init(tmp_path / "other.omni", schema=SCHEMA_OF_TOWNS)
    for ask in (
        lambda at: towns.query(ALL_TOWNS, at=at),
        lambda at: towns.diff(at, "main"),
        lambda at: towns.changes(at),
        lambda at: towns.branches.create("b", at=at),
    ):
        with pytest.raises(omnigraph.BadRequest) as caught:
            ask(other.snapshot())
        assert caught.value.code == "foreign_snapshot"
    assert len(towns.query(ALL_TOWNS, at=omnigraph.open(towns.uri).snapshot())) == 2


def test_a_file_is_no_place_for_a_graph(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(omnigraph.Conflict, match="is a file"):
        omnigraph.init(tmp_path / "file", schema=SCHEMA_OF_TOWNS)


def test_threads_share_a_graph(towns: omnigraph.Graph) -> None:
    errors: list[BaseException] = []

    def work(number: int) -> None:
        try:
            towns.mutate(FOUND, {"name": f"Town {number}"})
            towns.query(ALL_TOWNS)
        except BaseException as error:  # noqa: BLE001  (shown below)
            errors.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [e for e in errors if not getattr(e, "retryable", False)] == []
    assert len(towns.query(ALL_TOWNS)) == 6 - len(errors)


def _tree(root: Path) -> dict[str, int]:
    return {str(p.relative_to(root)): p.stat().st_mtime_ns for p in root.rglob("*") if p.is_file()}
