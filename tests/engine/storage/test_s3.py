"""Graphs on an S3 server: everything the storage does in a folder, and what only stores do."""

from __future__ import annotations

import json
import logging
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import omnigraph
from omnigraph.errors import BadRequest, Conflict, NotFound, OmniGraphError, RecoveryPending, Unavailable
from omnigraph.pipeline.splits import split_file
from omnigraph.schema import compile_schema
from omnigraph.storage import Repository
from omnigraph.storage.files import files_of
from omnigraph.storage.translate import lance_errors
from omnigraph.storage.uri import parse_root
from omnigraph.write.places import find
from omnigraph.write.rows import Reading
from omnigraph.write.sources import plan_sources, read_batches
from tests.s3 import KEY, S3, SECRET, environment, serving

SCHEMA = "node P { slug: String @key  n: I64? @index }\nedge K: P -> P\n"
DATA = '{"type":"P","data":{"slug":"a"}}\n{"type":"P","data":{"slug":"b","n":2}}\n{"edge":"K","from":"a","to":"b"}'


@pytest.fixture(scope="module")
def server() -> Iterator[S3]:
    with serving() as s3:
        yield s3


@pytest.fixture
def s3(server: S3) -> Iterator[S3]:
    server.deaf, server.broken = False, 0
    with environment(server):
        yield server
    server.deaf, server.broken = False, 0


def slugs(graph: omnigraph.Graph, branch: str = "main") -> list[str]:
    rows = graph.query("query q() { match { $p: P } return { $p.slug as s } order { s } }", branch=branch)
    return [r["s"] for r in rows.to_pylist()]


def test_a_graph_lives_on_a_store(s3: S3) -> None:
    uri = s3.uri()
    with pytest.raises(NotFound, match="omnigraph init"):
        omnigraph.open(uri)
    graph = omnigraph.init(uri, schema=SCHEMA, actor="ada")
    with pytest.raises(Conflict, match="already"):
        omnigraph.init(uri, schema=SCHEMA)
    graph.load(DATA)
    first = graph.head()
    graph.mutate('query q() { insert P { slug: "c" } insert K { from: "c", to: "a" } }')
    graph.branches.create("dev/one")
    graph.mutate('query q() { delete P where slug = "a" }', branch="dev/one")
    graph.mutate('query q() { insert P { slug: "d" } }')
    graph.ensure_indices()
    other = omnigraph.open(uri)
    assert slugs(other) == list("abcd")
    assert slugs(other, "dev/one") == list("bc")
    assert [
        r["s"] for r in other.query("query q() { match { $p: P } return { $p.slug as s } order { s } }", at=first.id)
    ] == ["a", "b"]
    walk = 'query q() { match { $c: P { slug: "c" } $c k{1,2} $p } return { $p.slug as s } order { s } }'
    assert [r["s"] for r in other.query(walk)] == ["a", "b"]
    assert other.verify().ok
    assert [c.actor for c in other.commits()][-1] == "ada"
    lines = sorted(other.export())
    copy = omnigraph.init(s3.uri(), schema=SCHEMA)
    copy.load("\n".join(lines))
    assert sorted(copy.export()) == lines
    assert not [k for k in s3.keys(uri) if k.startswith("__probe")]
    assert [k for k in s3.keys(uri) if k.startswith("__recovery/") and k.endswith(".json")] == []


def test_records_on_a_store_load_by_the_settings_that_graphs_go_by(
    s3: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "p.ndjson").write_text('{"type":"P","data":{"slug":"a"}}\nnonsense\n')
    folder = s3.uri()
    s3.upload(tmp_path, folder)
    graph = omnigraph.init(tmp_path / "g", schema=SCHEMA)
    monkeypatch.delenv("AWS_ENDPOINT_URL")
    monkeypatch.setenv("AWS_ENDPOINT", s3.endpoint)  # as Lance, and pods of the operator, name it
    assert graph.load(f"{folder}/p.ndjson", quarantine=tmp_path / "bad").quarantined == 1
    assert json.loads((tmp_path / "bad").read_text())["source"] == f"{folder}/p.ndjson:2"
    for name, says in (("none.ndjson", "may you see it"), ("x*.ndjson", "no such file"), ("", "is a folder")):
        with pytest.raises(BadRequest, match=says) as caught:
            graph.load(f"{folder}/{name}")
        assert caught.value.code == "missing_source"


def test_patterns_and_folders_on_a_store_mean_what_they_mean_here(s3: S3, tmp_path: Path) -> None:
    names = ["a.csv", "b1.csv", "b2.csv", ".h.csv", "in/c.csv", "in/deep/d.csv", "in/.no/e.csv", "b[1].csv", "all.txt"]
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"slug\n{name}\n")
    folder = s3.uri()
    s3.upload(tmp_path, folder)
    for pattern in ["*.csv", "b?.csv", "[ab]1.csv", "b[!1].csv", "**/*.csv", "in/**/*.csv", "*/*.csv", "**", names[-2]]:
        here, there = find(f"{tmp_path}/{pattern}"), find(f"{folder}/{pattern}")
        assert [f.path.removeprefix(f"{tmp_path}/") for f in here] == [f.path.removeprefix(f"{folder}/") for f in there]
        assert [f.size for f in here] == [f.size for f in there]
        assert find(f"file://{tmp_path}/b1.csv")[0].size == len("slug\nb1.csv\n")
    mapping = omnigraph.Mapping.parse("sources: [{path: 'b?.csv', node: P}, {path: 'in/**/*.csv', node: P}]")
    graph = omnigraph.init(tmp_path / "g", schema=SCHEMA)
    assert graph.load(folder, mapping=mapping).rows == 4
    other = omnigraph.Mapping.parse("sources: [{path: a.csv, node: P}]")
    assert graph.load(f"{folder}/a*.csv", mapping=other).rows == 1


def test_a_file_on_a_store_is_read_in_pieces(s3: S3, tmp_path: Path) -> None:
    (tmp_path / "p.ndjson").write_text("\n".join(f'{{"type":"P","data":{{"slug":"s{i}"}}}}' for i in range(400)))
    folder, catalog = s3.uri(), compile_schema(SCHEMA)
    s3.upload(tmp_path, folder)
    with plan_sources(f"{folder}/p.ndjson", None, catalog) as plan:
        splits = list(split_file(plan.files[0], 1000))
        assert len(splits) > 5
        reading = Reading(catalog, "01JZZZZZZZZZZZZZZZZZZZZZZZ")
        batches = [batch for split in splits for batch in read_batches(plan.files[0], reading, split)]
    rows = [one for batch in batches for one in batch.rows["id"].to_pylist()]
    assert rows == [f"s{i}" for i in range(400)]


def test_a_store_that_ignores_conditions_is_refused_at_init(s3: S3) -> None:
    s3.deaf = True
    uri = s3.uri()
    with pytest.raises(Unavailable, match="If-None-Match") as caught:
        omnigraph.init(uri, schema=SCHEMA)
    assert caught.value.code == "store_loses_commits"
    assert [k for k in s3.keys(uri) if k and not k.endswith("/")] == []
    with pytest.raises(NotFound):
        omnigraph.open(uri)
    s3.deaf = False
    omnigraph.init(uri, schema=SCHEMA)


def test_an_object_that_goes_while_it_is_looked_at_is_missing(s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sidecar is listed, and its writer or a sweep has removed it when another reads or removes it."""
    files = files_of(parse_root(s3.uri()))
    with pytest.raises(NotFound), lance_errors("reading"):  # what Arrow said of one that went between two requests
        raise OSError("AWS Error RESOURCE_NOT_FOUND during GetObject operation: ")
    monkeypatch.setattr(files, "exists", lambda _: True)
    files.delete("__recovery/x.json")


@pytest.mark.parametrize("now", [None, b"x" * 40, b"y" * 4])
def test_an_object_that_changes_between_the_two_requests_of_a_read_is_read_whole(
    s3: S3, monkeypatch: pytest.MonkeyPatch, now: bytes | None
) -> None:
    """Arrow asks how long it is and then for that much: of a longer one it gives the beginning, as if it were all."""
    files = files_of(parse_root(s3.uri()))
    files.write("a.json", b"0123456789")
    store, opened = files.fs, []

    class Between:
        def __getattr__(self, name: str) -> Any:
            return getattr(store, name)

        def open_input_stream(self, path: str) -> Any:
            stream = store.open_input_stream(path)
            if not opened:
                opened.append(path)
                if now is None:
                    files.delete("a.json")
                else:
                    files.write("a.json", now)
            return stream

    monkeypatch.setattr(files, "fs", Between())
    if now is None:
        with pytest.raises(NotFound):
            files.read("a.json")
    else:
        assert files.read("a.json") == now
    assert opened


def test_credentials_are_shown_nowhere(
    s3: S3, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.DEBUG)
    uri = s3.uri()
    graph = omnigraph.init(uri, schema=SCHEMA)
    graph.load(DATA)
    root = parse_root(uri)
    texts = [
        repr(graph),
        repr(root),
        str(root),
        repr(graph._repository),
        repr(graph.snapshot()),
        repr(graph._repository.engine),
    ]
    held = graph._repository.engine.sidecars
    seen: list[bytes] = []
    monkeypatch.setattr(
        held.store.files, "write", lambda name, data, real=held.store.files.write: (seen.append(data), real(name, data))
    )
    graph.mutate('query q() { insert P { slug: "x" } }')
    assert any(b"operation_id" in data for data in seen)
    texts += [data.decode() for data in seen]
    s3.broken = 403
    with pytest.raises(OmniGraphError) as caught:
        omnigraph.open(uri)
    texts += [
        str(caught.value),
        repr(caught.value.details),
        "".join(map(str, caught.value.__notes__ if hasattr(caught.value, "__notes__") else ())),
    ]
    s3.broken = 0
    for name in s3.keys(uri):
        data = s3.read(uri, name)
        assert SECRET.encode() not in data
        assert KEY.encode() not in data
    # The test's own client logs what it signs.
    logged = [r.getMessage() for r in caplog.records if r.name.split(".")[0] in ("omnigraph", "lance", "root")]
    for text in (*texts, *logged):
        assert SECRET not in text
        assert KEY not in text


def test_credentials_in_the_uri_are_refused_without_repeating_them() -> None:
    for uri in (f"s3://{KEY}:{SECRET}@bucket/g", f"s3://bucket/g?secret={SECRET}"):
        with pytest.raises(OmniGraphError) as caught:
            omnigraph.open(uri)
        assert SECRET not in str(caught.value)


def test_a_store_that_does_not_answer_says_so(s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
    with pytest.raises(Unavailable) as caught:
        Repository.open("s3://graphs/nowhere")
    assert caught.value.retryable


def left_behind(s3: S3, uri: str, *, moved: bool) -> str:
    """A sidecar of a writer that is gone: of a load that moved one of two tables, or none."""
    repository = Repository.open(uri)
    state = repository.snapshot().state
    tables = []
    for key in ("node:P", "edge:K"):
        ref = state.tables[key]
        tables.append(
            {
                "table_key": key,
                "table_path": ref.location,
                "expected_version": ref.version,
                "post_commit_pin": ref.version + 1,
            }
        )
    ref = state.tables["node:P"]
    if moved:
        repository.engine.store.latest(ref.location).delete("slug = 'a'")
    body = {
        "schema_version": 1,
        "operation_id": "OPX",
        "started_at": "0",
        "branch": None,
        "actor_id": "bob",
        "writer_kind": "Load",
        "tables": tables,
    }
    repository.engine.store.files.write("__recovery/OPX.json", json.dumps(body).encode())
    return "__recovery/OPX.json"


def test_auto_only_rolls_forward_and_full_rolls_back(s3: S3) -> None:
    uri = s3.uri()
    omnigraph.init(uri, schema=SCHEMA).load(DATA)
    name = left_behind(s3, uri, moved=True)
    graph = omnigraph.open(uri)
    assert graph.recovered is not None
    assert [p["reason"] for p in graph.recovered.pending] == ["NeedsRollBack"]
    assert name in s3.keys(uri)
    assert slugs(graph) == ["a", "b"]
    with pytest.raises(RecoveryPending, match=f"omnigraph recover {uri}"):
        graph.mutate('query q() { insert P { slug: "c" } }')
    graph.branches.create("dev")
    graph.mutate('query q() { insert P { slug: "c" } }', branch="dev")  # another branch isn't blocked
    settled = omnigraph.open(uri, recovery="full")
    assert settled.recovered is not None
    assert [o["outcome"] for o in settled.recovered.outcomes] == ["RolledBack"]
    assert name not in s3.keys(uri)
    settled.mutate('query q() { insert P { slug: "c" } }')
    assert slugs(settled) == list("abc")
    assert settled.verify().ok


def test_a_sidecar_whose_writer_may_live_blocks_nobody_before_it_moves_a_table(s3: S3) -> None:
    uri = s3.uri()
    omnigraph.init(uri, schema=SCHEMA).load(DATA)
    name = left_behind(s3, uri, moved=False)
    graph = omnigraph.open(uri)
    graph.mutate('query q() { insert P { slug: "c" } }')
    assert name in s3.keys(uri)
    graph.recover()
    assert name not in s3.keys(uri)
    assert slugs(graph) == list("abc")


def test_recover_settles_a_store(s3: S3, capsys: pytest.CaptureFixture[str]) -> None:
    from omnigraph.cli.main import main

    uri = s3.uri()
    omnigraph.init(uri, schema=SCHEMA).load(DATA)
    left_behind(s3, uri, moved=True)
    assert main(["recover", uri, "--forward"]) == 5
    assert "NeedsRollBack" in capsys.readouterr().out
    assert main(["recover", uri]) == 0
    assert "RolledBack" in capsys.readouterr().out
    assert main(["recover", uri]) == 0
    assert "nothing to settle" in capsys.readouterr().out


def test_a_copy_on_a_store_is_its_own_graph(s3: S3, tmp_path: Path) -> None:
    uri, copy = s3.uri(), s3.uri()
    graph = omnigraph.init(uri, schema=SCHEMA)
    graph.load(DATA)
    graph.branches.create("dev")
    graph.mutate('query q() { insert P { slug: "c" } }', branch="dev")
    graph.close()
    s3.copy(uri, copy, literally=True)
    with pytest.raises(Conflict, match=f"omnigraph recover {copy}") as caught:
        slugs(omnigraph.open(copy, read_only=True), "dev")
    assert caught.value.code == "graph_moved"
    moved = omnigraph.open(copy, recovery="full")
    moved.mutate('query q() { insert P { slug: "d" } }', branch="dev")
    assert slugs(omnigraph.open(copy, read_only=True), "dev") == list("abcd")
    assert slugs(omnigraph.open(uri), "dev") == list("abc")
    # From a folder to a store, too.
    folder = omnigraph.init(tmp_path / "g", schema=SCHEMA)
    folder.load(DATA)
    folder.branches.create("dev")
    folder.mutate('query q() { insert P { slug: "e" } }', branch="dev")
    up = s3.uri()
    s3.upload(tmp_path / "g", up)
    assert slugs(omnigraph.open(up), "dev") == list("abe")


def test_two_writers_of_one_table_both_get_in(s3: S3) -> None:
    uri = s3.uri()
    Repository.create(uri, compile_schema(SCHEMA))
    one, two = omnigraph.open(uri), omnigraph.open(uri)
    stale = two.snapshot()
    one.load('{"type":"P","data":{"slug":"a"}}')
    two.load('{"type":"P","data":{"slug":"b"}}')
    assert stale.count_rows("node:P") == 0
    assert slugs(one) == slugs(two) == ["a", "b"]
