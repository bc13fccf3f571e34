"""The Spark load and the in-process load: the same tables, the same refusals."""

from __future__ import annotations

import datetime as dt
import json
import os
import random
from base64 import b64encode
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import omnigraph
from omnigraph.errors import BadRequest, Conflict
from omnigraph.pipeline.load import LoadJob, run
from omnigraph.storage import CommitInfo, Repository, Snapshot, Staging
from omnigraph.write.mapping import Mapping

pytestmark = pytest.mark.spark

SCHEMA = """
node Person {
  name: String @key
  age: I32?
  email: String? @unique
  level: enum(junior, senior)?
  @range(age, 0..150)
}
node Company { name: String @key  founded: Date? }
edge Knows: Person -> Person { since: Date? }
edge WorksAt: Person -> Company @card(0..2) { role: String? }
edge Leads: Person -> Company @card(2..3) { }
"""
OPERATION = "01JZZZZZZZZZZZZZZZZZZZZZZZ"
Loader = Callable[..., None]


@pytest.fixture(scope="module")
def spark() -> Iterator[object]:
    from omnigraph.pipeline.session import session
    from omnigraph.pipeline.settings import PipelineSettings

    os.environ["OMNIGRAPH_EMBEDDINGS_MOCK"] = "1"  # workers have the environment that the session began in
    try:
        with session("tests", PipelineSettings()) as running:
            yield running
    finally:
        del os.environ["OMNIGRAPH_EMBEDDINGS_MOCK"]


def in_process(uri: str, sources: list[str], mode: str, mapping: Mapping | None, operation: str) -> None:
    with omnigraph.open(uri) as graph:
        graph.load(sources, mode=mode, mapping=mapping, operation_id=operation)  # type: ignore[arg-type]


def on_spark(uri: str, sources: list[str], mode: str, mapping: Mapping | None, operation: str) -> None:
    run(LoadJob(uri, tuple(sources), mode, "main", operation, mapping), say=lambda _: None)  # type: ignore[arg-type]


LOADERS = {"process": in_process, "spark": on_spark}


def content(uri: str) -> dict[str, list[dict[str, object]]]:
    """Every row of every table, by id."""
    with omnigraph.open(uri, read_only=True) as graph:
        snapshot = graph.snapshot()
        return {key: sorted(snapshot.scan(key).to_pylist(), key=lambda r: str(r["id"])) for key in snapshot.tables}


def ndjson(path: Path, people: int, seed: int) -> Path:
    rng = random.Random(seed)
    lines = []
    for i in range(people):
        data = {
            "name": f"p{i}",
            "age": rng.choice([None, rng.randrange(0, 150)]),
            "level": rng.choice([None, "senior"]),
        }
        lines.append(json.dumps({"type": "Person", "data": data}))
    lines.append(json.dumps({"type": "Company", "data": {"name": "acme", "founded": "1999-12-31"}}))
    for _ in range(people * 2):
        edge = {"edge": "Knows", "from": f"p{rng.randrange(people)}", "to": f"p{rng.randrange(people)}"}
        lines.append(json.dumps(edge | {"data": {"since": "2020-02-29"}}))
    works = [
        {"edge": "WorksAt", "from": f"p{i}", "to": "acme", "data": {"role": "Ingénieure"}} for i in range(0, people, 3)
    ]
    lines += [json.dumps(edge) for edge in works]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def both(tmp_path: Path, *loads: tuple[list[str], str, Mapping | None]) -> tuple[str, str]:
    """The same loads by both ways, into two graphs."""
    uris = []
    for name, loader in LOADERS.items():
        uri = str(tmp_path / f"{name}.omni")
        omnigraph.init(uri, schema=SCHEMA).close()
        for i, (sources, mode, mapping) in enumerate(loads):
            loader(uri, sources, mode, mapping, OPERATION[:-1] + str(i))
        uris.append(uri)
    return uris[0], uris[1]


def test_ndjson_in_many_splits_gives_equal_tables(
    tmp_path: Path, spark: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    source = ndjson(tmp_path / "people.ndjson", 300, seed)
    monkeypatch.setenv("OMNIGRAPH_SPARK_SPLIT_BYTES", "9000")
    one, two = both(tmp_path, ([str(source)], "append", None))
    assert content(one) == content(two)
    assert len(content(two)["edge:Knows"]) == 600


def test_parquet_with_mapping_gives_equal_tables(tmp_path: Path, spark: object) -> None:
    people = pa.table({"full_name": [f"p{i}" for i in range(500)], "years": pa.array(range(500), pa.int64())})
    people = people.set_column(1, "years", pa.array([i % 100 for i in range(500)]))
    knows = pa.table(
        {
            "a": [f"p{i}" for i in range(499)],
            "b": [f"p{i + 1}" for i in range(499)],
            "since": [dt.date(2020, 1, 1 + i % 28) for i in range(499)],
        }
    )
    pq.write_table(people, tmp_path / "people.parquet", row_group_size=100)
    pq.write_table(knows, tmp_path / "knows.parquet", row_group_size=100)
    text = """
sources:
- {path: people.parquet, node: Person, columns: {name: full_name, age: years}}
- {path: knows.parquet, edge: Knows, from: [a], to: [b]}
"""
    mapping = Mapping.parse(text, base=tmp_path)
    one, two = both(tmp_path, ([str(tmp_path)], "append", mapping))
    assert content(one) == content(two)
    assert len(content(two)["node:Person"]) == 500


def test_merge_and_overwrite_give_equal_tables(tmp_path: Path, spark: object) -> None:
    first = ndjson(tmp_path / "first.ndjson", 50, 1)
    second = tmp_path / "second.ndjson"
    second.write_text(
        '{"type": "Person", "data": {"name": "p1", "email": "p1@example.org"}}\n'
        '{"type": "Person", "data": {"name": "new", "age": 7}}\n'
        '{"edge": "Knows", "from": "new", "to": "p1"}\n'
    )
    third = tmp_path / "third.ndjson"
    third.write_text('{"edge": "Knows", "from": "p1", "to": "p2"}\n')
    one, two = both(
        tmp_path, ([str(first)], "append", None), ([str(second)], "merge", None), ([str(third)], "overwrite", None)
    )
    assert content(one) == content(two)
    assert len(content(two)["edge:Knows"]) == 1
    assert len(content(two)["node:Person"]) == 51


LEADERS = [f'{{"edge": "Leads", "from": "{p}", "to": "{c}"}}' for p in ("p1", "p2") for c in ("acme", "duff")]
PLACES = [
    *(f'{{"type": "Person", "data": {{"name": "{p}"}}}}' for p in ("p1", "p2")),
    *(f'{{"type": "Company", "data": {{"name": "{c}"}}}}' for c in ("acme", "duff")),
]


@pytest.mark.parametrize(
    ("lines", "below"),
    [
        (LEADERS[:1], ["p1", "p2"]),  # one loses an edge and is written too, the other loses all
        ([*PLACES[:1], *LEADERS[:2]], []),  # p2 itself goes
        ([*PLACES[:2], *LEADERS[:2]], ["p2"]),  # p2 is written anew
    ],
)
def test_overwritten_edges_leave_no_source_below_its_minimum(
    tmp_path: Path, spark: object, lines: list[str], below: list[str]
) -> None:
    first, second = tmp_path / "first.ndjson", tmp_path / "second.ndjson"
    first.write_text("\n".join([*PLACES, *LEADERS]))
    second.write_text("\n".join(lines))
    said = []
    for name, loader in LOADERS.items():
        uri = str(tmp_path / f"{name}.omni")
        omnigraph.init(uri, schema=SCHEMA).close()
        loader(uri, [str(first)], "append", None, OPERATION)
        before = content(uri)
        if not below:
            loader(uri, [str(second)], "overwrite", None, OPERATION[:-1] + "9")
            assert len(content(uri)["edge:Leads"]) == sum("Leads" in line for line in lines)
            continue
        with pytest.raises(BadRequest) as refused:
            loader(uri, [str(second)], "overwrite", None, OPERATION[:-1] + "9")
        assert content(uri) == before
        said.append((refused.value.message, refused.value.details))
        for person in below:
            assert f"Person {person!r} would have" in refused.value.message
        assert refused.value.details["counts"] == {"cardinality": len(below)}
    assert not below or said[0] == said[1]


BAD = {
    "endpoint": ['{"edge": "Knows", "from": "p1", "to": "nobody"}'],
    "duplicate key": ['{"type": "Person", "data": {"name": "x"}}', '{"type": "Person", "data": {"name": "x"}}'],
    "existing key": ['{"type": "Person", "data": {"name": "p1"}}'],
    "unique within": [f'{{"type": "Person", "data": {{"name": "x{i}", "email": "same"}}}}' for i in range(2)],
    "unique against committed": ['{"type": "Person", "data": {"name": "x", "email": "taken"}}'],
    "enum": ['{"type": "Person", "data": {"name": "x", "level": "boss"}}'],
    "range": ['{"type": "Person", "data": {"name": "x", "age": 151}}'],
    "syntax": ['{"type": "Person", "data": {'],
    "unknown type": ['{"type": "Robot", "data": {}}'],
    "cardinality": ['{"edge": "WorksAt", "from": "p1", "to": "acme"}'] * 2,
    "several": [
        '{"edge": "Knows", "from": "nobody", "to": "p1"}',
        '{"type": "Person", "data": {"name": "x", "age": -1}}',
        '{"type": "Person", "data": {"name": "p2"}}',
    ],
    "many": [f'{{"edge": "Knows", "from": "p1", "to": "nobody{i}"}}' for i in range(30)],
}


@pytest.mark.parametrize("case", BAD)
def test_bad_records_are_refused_with_the_same_words(tmp_path: Path, spark: object, case: str) -> None:
    good = tmp_path / "good.ndjson"
    good.write_text(
        '{"type": "Person", "data": {"name": "p1", "email": "taken"}}\n{"type": "Person", "data": {"name": "p2"}}\n'
        '{"type": "Company", "data": {"name": "acme"}}\n{"edge": "WorksAt", "from": "p1", "to": "acme"}\n'
    )
    bad = tmp_path / "bad.ndjson"
    bad.write_text("\n".join(BAD[case]) + "\n")
    refusals = []
    for name, loader in LOADERS.items():
        uri = str(tmp_path / f"{name}.omni")
        omnigraph.init(uri, schema=SCHEMA).close()
        loader(uri, [str(good)], "append", None, OPERATION)
        before = content(uri)
        with pytest.raises(BadRequest) as refused:
            loader(uri, [str(bad)], "append", None, OPERATION[:-1] + "9")
        refusals.append(refused.value)
        assert content(uri) == before
        assert not (Path(uri) / "__staging").exists() or not any((Path(uri) / "__staging").iterdir())
        assert not list((Path(uri) / "__recovery").glob("*.json"))
    process, spark_says = refusals
    assert process.message == spark_says.message
    assert process.details == spark_says.details
    assert "bad.ndjson:" in process.message


def test_the_same_operation_again_changes_nothing(tmp_path: Path, spark: object) -> None:
    source = ndjson(tmp_path / "people.ndjson", 20, 3)
    uri = str(tmp_path / "g.omni")
    omnigraph.init(uri, schema=SCHEMA).close()
    job = LoadJob(uri, (str(source),), "append", "main", OPERATION)
    first = run(job, say=lambda _: None)
    again = run(job, say=lambda _: None)
    assert first.commit is not None
    assert again.commit is not None
    assert again.commit.id == first.commit.id
    with omnigraph.open(uri, read_only=True) as graph:
        assert len(graph.commits()) == 2  # init and one load


def test_an_operation_id_cannot_name_a_folder_elsewhere(tmp_path: Path) -> None:
    graph = omnigraph.init(tmp_path / "g", schema=SCHEMA)
    (tmp_path / "a.jsonl").write_text("")
    with pytest.raises(BadRequest, match="use a ULID"):
        run(LoadJob(graph.uri, (str(tmp_path / "a.jsonl"),), "append", "main", "../nodes"))
    assert (tmp_path / "g" / "nodes").is_dir()


def test_a_missing_file_is_named(tmp_path: Path, spark: object) -> None:
    uri = str(tmp_path / "g.omni")
    omnigraph.init(uri, schema=SCHEMA).close()
    with pytest.raises(BadRequest, match=r"gone\.ndjson"):
        run(LoadJob(uri, (str(tmp_path / "gone.ndjson"),), "append", "main", OPERATION), say=lambda _: None)


EMBEDDED = """
node Doc { slug: String @key  text: String?  note: String?  vec: Vector(8)? @embed("text") }
"""


def test_both_make_the_same_vectors(spark: object, tmp_path: Path) -> None:
    """New ones, kept ones, those of changed texts, and none for a text that is missing."""

    def docs(name: str, *records: dict[str, object]) -> str:
        path = tmp_path / name
        path.write_text("\n".join(json.dumps({"type": "Doc", "data": r}) for r in records))
        return str(path)

    first = docs("first.ndjson", *({"slug": f"d{i}", "text": f"text {i}" if i % 3 else None} for i in range(50)))
    changed = [
        {"slug": "d1", "text": "text 1"},
        {"slug": "d2", "text": "new"},
        {"slug": "d4", "vec": None},
        {"slug": "n"},
    ]
    second = docs("second.ndjson", *changed, {"slug": "d5", "vec": [1, 0, 0, 0, 0, 0, 0, 0], "text": "given"})
    found = {}
    for name, loader in LOADERS.items():
        uri = str(tmp_path / name)
        omnigraph.init(uri, schema=EMBEDDED)
        loader(uri, [first], "append", None, "01JZZZZZZZZZZZZZZZZZZZZZZ1")
        loader(uri, [second], "merge", None, "01JZZZZZZZZZZZZZZZZZZZZZZ2")
        found[name] = content(uri)["node:Doc"]
    assert found["process"] == found["spark"]
    vectors = {row["id"]: row["vec"] for row in found["spark"]}
    assert {s for s, v in vectors.items() if v is None} == {f"d{i}" for i in range(0, 50, 3)} | {"d4", "n"}
    assert vectors["d5"] == [1, 0, 0, 0, 0, 0, 0, 0]


BLOBS = "node Person { name: String @key  photo: Blob?  age: I32? } edge Knows: Person -> Person { letter: Blob }"


def test_blobs_arrive_byte_for_byte(tmp_path: Path, spark: object, monkeypatch: pytest.MonkeyPatch) -> None:
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    rng = random.Random(seed)
    monkeypatch.setenv("OMNIGRAPH_SPARK_SPLIT_BYTES", "200000")
    photos = {f"p{i}": rng.choice([None, b"", rng.randbytes(rng.choice([10, 3000, 100_000]))]) for i in range(30)}
    later = {"p0": b"later", "p1": None, "new": rng.randbytes(100_000)}

    def texts(values: dict[str, bytes | None], name: str) -> str:
        path = tmp_path / name
        lines = [
            json.dumps(
                {"type": "Person", "data": {"name": n, "photo": b if b is None else f"base64:{b64encode(b).decode()}"}}
            )
            for n, b in values.items()
        ]
        lines += [json.dumps({"type": "Person", "data": {"name": "p2", "age": 5}})] if values is later else []
        path.write_text("\n".join(lines))
        return str(path)

    table = pa.table({"a": ["p0"], "b": ["p1"], "letter": pa.array([b"\x00dear"], pa.binary())})
    pq.write_table(table, tmp_path / "knows.parquet")
    mapping = Mapping.parse(
        "sources: [{path: knows.parquet, edge: Knows, from: [a], to: [b]}]", file="m.yaml", base=tmp_path
    )
    for name, loader in LOADERS.items():
        uri = str(tmp_path / f"{name}.omni")
        omnigraph.init(uri, schema=BLOBS).close()
        loader(uri, [texts(photos, "a.ndjson")], "append", None, OPERATION[:-1] + "0")
        loader(uri, [], "append", mapping, OPERATION[:-1] + "1")
        loader(uri, [texts(later, "b.ndjson")], "merge", None, OPERATION[:-1] + "2")
        with omnigraph.open(uri, read_only=True) as graph:
            rows = graph.snapshot().scan("node:Person", ["id", "_rowid"])
            stored = graph.snapshot().blobs("node:Person", "photo", rows["_rowid"].combine_chunks()).to_pylist()
            assert dict(zip(rows["id"].to_pylist(), stored, strict=True)) == photos | later, name
            (edge,) = graph.snapshot().scan("edge:Knows", ["_rowid"])["_rowid"].to_pylist()
            assert graph.snapshot().blobs("edge:Knows", "letter", [edge]).to_pylist() == [b"\x00dear"]
            assert graph.verify().ok
        bad = tmp_path / "bad.ndjson"
        bad.write_text('{"type": "Person", "data": {"name": "x", "photo": "file:///etc/passwd"}}')
        with pytest.raises(BadRequest, match="files and addresses aren't read"):
            loader(uri, [str(bad)], "append", None, OPERATION[:-1] + "3")


def test_a_load_prepared_on_the_old_schema_is_told_to_retry(
    tmp_path: Path, spark: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The executors have written their files; the schema changes before the driver commits."""
    uri, rows = str(tmp_path / "graph"), tmp_path / "rows.ndjson"
    omnigraph.init(uri, schema="node Person { name: String @key }\nnode Thing { t: String @key }\n").close()
    rows.write_text('{"type": "Thing", "data": {"t": "pen"}}\n')
    commit = Repository.commit

    def late(repository: Repository, staging: Staging, base: Snapshot) -> CommitInfo:
        with omnigraph.open(uri) as graph:
            graph.schema.apply("node Person { name: String @key  age: I32? }\nnode Thing { t: String @key }\n")
        return commit(repository, staging, base)

    with monkeypatch.context() as patch:
        patch.setattr(Repository, "commit", late)
        with pytest.raises(Conflict) as caught:
            on_spark(uri, [str(rows)], "append", None, OPERATION)
    assert (caught.value.code, caught.value.retryable) == ("schema_changed", True)
    on_spark(uri, [str(rows)], "append", None, OPERATION)
    assert content(uri)["node:Thing"] == [{"id": "pen", "t": "pen"}]
