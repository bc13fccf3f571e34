"""Loads that write their data files while they read: the same outcome as without, and nothing left of a refused one."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from omnigraph.errors import BadRequest, Internal
from omnigraph.maintain import verify
from omnigraph.schema import compile_schema
from omnigraph.storage import Repository, whole
from omnigraph.write import ahead as ahead_module
from omnigraph.write import constraints, load, tabular
from omnigraph.write import loader as loader_module
from omnigraph.write.ahead import Ahead
from omnigraph.write.mapping import Mapping
from omnigraph.write.sources import plan_sources
from omnigraph.write.spool import Spool

SCHEMA = """
node Person { slug: String @key  name: String  age: I32  email: String? @unique  @range(age, 0..150) }
node City { slug: String @key }
edge Knows: Person -> Person
edge Likes: Person -> Person @card(0..1)
edge Pays: Person -> Person { @key(src, dst) }
edge LivesIn: Person -> City
"""
MAPPING = """
sources:
- {path: people.parquet, node: Person}
- {path: cities.parquet, node: City}
- {path: knows.parquet, edge: Knows, from: a, to: b}
- {path: likes.parquet, edge: Likes, from: a, to: b}
- {path: pays.parquet, edge: Pays, from: a, to: b}
- {path: lives.parquet, edge: LivesIn, from: a, to: b}
"""
OPERATION = "01ARZ3NDEKTSV4RRFFQ69G5FAV"  # ids of edges come from it
N = 900
SLUGS = [f"p{i}" for i in range(N)]
NEXT = SLUGS[1:] + SLUGS[:1]


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loader_module, "FRAGMENT_ROWS", 200)
    monkeypatch.setattr(tabular, "BATCH_ROWS", 100)


@pytest.fixture
def graph(tmp_path: Path) -> Repository:
    return Repository.create(str(tmp_path / "g"), compile_schema(SCHEMA))


def write_sources(folder: Path, change: Callable[[dict[str, dict[str, list[Any]]]], None] | None = None) -> Mapping:
    emails = [f"{s}@x" if i % 3 else None for i, s in enumerate(SLUGS)]
    columns: dict[str, dict[str, list[Any]]] = {
        "people": {"slug": list(SLUGS), "name": list(SLUGS), "age": [i % 100 for i in range(N)], "email": emails},
        "cities": {"slug": ["rome", "oslo"]},
        "knows": {"a": SLUGS * 2, "b": SLUGS + NEXT},
        "likes": {"a": list(SLUGS), "b": list(NEXT)},
        "pays": {"a": list(SLUGS), "b": list(NEXT)},
        "lives": {"a": list(SLUGS), "b": ["rome", "oslo"] * (N // 2)},
    }
    if change is not None:
        change(columns)
    for name, values in columns.items():
        pq.write_table(pa.table(values), folder / f"{name}.parquet")
    return Mapping.parse(MAPPING, base=folder)


def data_files(repository: Repository) -> list[Path]:
    return sorted(Path(repository.uri).rglob("data/*.lance"))


def contents(repository: Repository) -> dict[str, list[Any]]:
    snapshot = repository.snapshot()
    return {k: snapshot.scan(k).sort_by("id").to_pylist() for k in snapshot.catalog.by_table_key}


def waiting_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Ahead, "takes", lambda *_: False)


@pytest.mark.parametrize("mode", ["append", "overwrite"])
@pytest.mark.parametrize("indexed", [False, True])
def test_the_graph_is_the_same_as_without(
    graph: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: Any, indexed: bool
) -> None:
    if indexed:
        monkeypatch.setattr(constraints, "INDEX_FROM", 0)
    mapping = write_sources(tmp_path)
    spooled: dict[str, set[str]] = {}
    append = Spool.append

    def noted(spool: Spool, key: str, rows: pa.RecordBatch) -> None:
        spooled.setdefault(key, set()).update(rows.schema.names)
        append(spool, key, rows)

    monkeypatch.setattr(Spool, "append", noted)
    result = load(graph, None, mode=mode, mapping=mapping, operation_id=OPERATION)
    assert verify(graph).ok
    # What waited is what is judged across rows: not a property more, and nothing of edges whose ends are known.
    assert {k: v - {"__file", "__row"} for k, v in spooled.items()} == {
        "node:Person": {"id", "email"},
        "node:City": {"id"},
        "edge:Likes": {"id", "src", "dst"},
        "edge:Pays": {"id", "src", "dst"},
    }
    other = Repository.create(str(tmp_path / "other"), compile_schema(SCHEMA))
    waiting_whole(monkeypatch)
    assert load(other, None, mode=mode, mapping=mapping, operation_id=OPERATION).tables == result.tables
    assert contents(graph) == contents(other)


def _bad_age(columns: Any) -> None:
    columns["people"]["age"][850] = 151


def _twice(columns: Any) -> None:
    columns["people"]["slug"][850] = "p3"


def _email_twice(columns: Any) -> None:
    columns["people"]["email"][850] = "p1@x"


def _no_end(columns: Any) -> None:
    columns["knows"]["b"][850] = "nobody"
    columns["lives"]["b"][3] = None


def _too_many(columns: Any) -> None:
    columns["likes"]["a"][850] = "p3"


def _pays_twice(columns: Any) -> None:
    columns["pays"]["a"][850], columns["pays"]["b"][850] = "p3", "p4"


def _everything(columns: Any) -> None:
    for change in (_bad_age, _twice, _email_twice, _no_end, _too_many, _pays_twice):
        change(columns)


BAD = [_bad_age, _twice, _email_twice, _no_end, _too_many, _pays_twice, _everything]


@pytest.mark.parametrize("change", BAD)
@pytest.mark.parametrize("spill", [False, True])
def test_a_refused_load_says_the_same_and_leaves_no_file(
    graph: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Any, spill: bool
) -> None:
    if spill:
        monkeypatch.setattr(loader_module, "Spool", lambda: Spool(1024))
    mapping = write_sources(tmp_path, change)
    before = data_files(graph)
    written: list[int] = []
    drop = graph.drop_fragments

    def dropped(base: Any, key: str, files: Sequence[str]) -> None:
        written.append(len(files))
        drop(base, key, files)

    monkeypatch.setattr(graph, "drop_fragments", dropped)
    with pytest.raises(BadRequest) as caught:
        load(graph, None, mapping=mapping, operation_id=OPERATION)
    assert sum(written)
    assert data_files(graph) == before
    assert len(graph.commits()) == 1
    waiting_whole(monkeypatch)
    with pytest.raises(BadRequest) as other:
        load(graph, None, mapping=mapping, operation_id=OPERATION)
    assert caught.value.message == other.value.message
    assert caught.value.details == other.value.details


def test_ends_that_come_later_or_are_committed_already(graph: Repository, tmp_path: Path) -> None:
    load(graph, '{"type": "Person", "data": {"slug": "old", "name": "o", "age": 1}}\n')
    edges = [{"edge": "Knows", "from": s, "to": "old" if i % 2 else t} for i, (s, t) in enumerate(zip(SLUGS, NEXT))]  # noqa: B905
    people = [{"type": "Person", "data": {"slug": s, "name": s, "age": 1}} for s in SLUGS]
    for records, name in (([*edges, *people], "first"), ([*people[:450], *edges, *people[450:]], "between")):
        text = "".join(json.dumps(r) + "\n" for r in records)
        mode: Any = "append" if name == "first" else "overwrite"
        if mode == "overwrite":  # then nobody committed counts
            with pytest.raises(BadRequest) as caught:
                load(graph, text, mode=mode)
            assert caught.value.details["counts"] == {"endpoint": N // 2}
            text = text.replace('"to": "old"', '"to": "p0"')
        load(graph, text, mode=mode)
        assert graph.snapshot().count_rows("edge:Knows") == N
        assert verify(graph).ok
    missing = '{"edge": "Knows", "from": "p1", "to": "nobody"}\n' + json.dumps(people[0]).replace("p0", "new") + "\n"
    with pytest.raises(BadRequest, match="there is no Person 'nobody'"):
        load(graph, missing)


def test_a_writer_that_fails_ends_the_load(graph: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mapping, before = write_sources(tmp_path), data_files(graph)
    write = graph.write_fragments

    def fails(base: Any, key: str, data: Any, **options: Any) -> Any:
        if key == "edge:Knows":
            data.read_next_batch()
            raise Internal("no space left")
        return write(base, key, data, **options)

    monkeypatch.setattr(graph, "write_fragments", fails)
    with pytest.raises(Internal, match="no space left"):
        load(graph, None, mapping=mapping)
    assert data_files(graph) == before
    monkeypatch.setattr(graph, "write_fragments", write)
    assert load(graph, None, mapping=mapping).commit is not None


@pytest.mark.parametrize("key", ["node:Person", "edge:LivesIn"])
def test_a_writer_that_fails_at_its_end_leaves_no_file(
    graph: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    mapping, before = write_sources(tmp_path), data_files(graph)
    write = graph.write_fragments

    def fails(base: Any, table_key: str, data: Any, **options: Any) -> Any:
        if table_key != key:
            return write(base, table_key, data, **options)
        for _ in data:  # what is written last may be what has no room
            pass
        raise Internal("no space left")

    monkeypatch.setattr(graph, "write_fragments", fails)
    with pytest.raises(Internal, match="no space left"):
        load(graph, None, mapping=mapping)
    assert data_files(graph) == before


def test_a_load_that_is_interrupted_leaves_no_file(graph: Repository, tmp_path: Path) -> None:
    mapping, before = write_sources(tmp_path), data_files(graph)

    def interrupted(progress: Any) -> None:
        if progress.rows > 2 * N:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        load(graph, None, mapping=mapping, progress=interrupted)
    assert data_files(graph) == before


@pytest.mark.parametrize("indexed", [False, True])
def test_ids_that_are_too_long_for_one_array(
    graph: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, indexed: bool
) -> None:
    # Ids and ends of 60 million records may together be longer than 2 GiB, as here all longer than a few bytes.
    monkeypatch.setattr(whole, "LONGEST", 100)
    if indexed:
        monkeypatch.setattr(constraints, "INDEX_FROM", 0)
    joined: list[Any] = []
    join = whole.joined

    def noted(*given: Any) -> Any:
        joined.append(join(*given).type)
        return join(*given)

    for module in (ahead_module, constraints):
        monkeypatch.setattr(module, "joined", noted)
    load(graph, None, mapping=write_sources(tmp_path))
    assert pa.large_string() in joined
    assert verify(graph).ok
    edges = "".join(json.dumps({"edge": "Knows", "from": s, "to": t}) + "\n" for s, t in zip(SLUGS, NEXT, strict=True))
    with pytest.raises(BadRequest) as caught:
        load(graph, edges + '{"edge": "Knows", "from": "p1", "to": "nobody"}\n')
    assert caught.value.details["counts"] == {"endpoint": 1}
    load(graph, edges)
    assert verify(graph).ok


def test_many_small_sources_are_each_looked_at_once(
    graph: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(60):
        people = [{"type": "Person", "data": {"slug": f"{number}-{i}", "name": "x", "age": 1}} for i in range(5)]
        (tmp_path / f"{number}.jsonl").write_text("".join(json.dumps(p) + "\n" for p in people))
    looks: list[int] = []
    of = ahead_module._of

    def noted(*given: Any) -> Any:
        looks.append(1)
        return of(*given)

    monkeypatch.setattr(ahead_module, "_of", noted)
    load(graph, str(tmp_path / "*.jsonl"))
    assert graph.snapshot().count_rows("node:Person") == 300
    assert len(looks) == 1  # for the table, and not again after every source


def test_each_batch_that_waits_is_weighed_once(graph: Repository) -> None:
    weighed: list[int] = []

    class Small:
        num_rows = 1

        @property
        def nbytes(self) -> int:
            weighed.append(1)
            return 100

    base = graph.snapshot()
    text = '{"type": "Person", "data": {"slug": "a", "name": "x", "age": 1}}\n'
    with (
        plan_sources(text, None, base.catalog) as plan,
        Spool() as spool,
        Ahead(graph, base, plan.files, spool, 1000) as ahead,
    ):
        assert ahead.takes("node:Person")
        waiting: Any = Small()
        for _ in range(50):
            ahead._write(ahead["node:Person"], waiting)
        assert len(weighed) == 50
