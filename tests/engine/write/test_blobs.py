"""Blobs through every write: what is given is what is read, byte for byte, and nothing bad gets half way."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from base64 import b64encode
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pcsv
import pyarrow.parquet as pq
import pytest

import omnigraph
from omnigraph import BadRequest, Graph, Mapping
from omnigraph.storage import blobs as storage_blobs
from omnigraph.write import blobs as write_blobs
from omnigraph.write import loader, merging, ndjson

SCHEMA = """
node Person { name: String @key  age: I32?  photo: Blob?  seal: Blob? }
node Must { name: String @key  data: Blob }
edge Knows: Person -> Person { @key(src, dst)  letter: Blob?  since: I32? }
"""
SIZES = {"none": None, "empty": 0, "one": 1, "small": 300, "packed": 90_000, "own file": 5_000_000}


def data(size: int | None, salt: str = "") -> bytes | None:
    """Bytes that differ from place to place."""
    if size is None:
        return None
    line = f"{salt}{size}|".encode()
    return b"".join(line + str(i).encode() for i in range(size // len(line) + 1))[:size]


def text(value: bytes | None) -> str | None:
    return None if value is None else f"base64:{b64encode(value).decode()}"


def record(name: str, **values: Any) -> str:
    return json.dumps({"type": "Person", "data": {"name": name, **values}})


def stored(graph: Graph, branch: str = "main", column: str = "photo", key: str = "node:Person") -> dict[str, Any]:
    snapshot = graph.snapshot(branch)
    rows = snapshot.scan(key, ["id", "_rowid"])
    values = snapshot.blobs(key, column, rows["_rowid"].combine_chunks()).to_pylist()
    return dict(zip(rows["id"].to_pylist(), values, strict=True))


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    return omnigraph.init(tmp_path / "g", schema=SCHEMA)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("template") / "g"
    graph = omnigraph.init(folder, schema=SCHEMA)
    graph.load("\n".join(record(n, age=1, photo=text(data(s)), seal=text(b"seal")) for n, s in SIZES.items()))
    graph.close()
    return folder


@pytest.fixture
def people(template: Path, tmp_path: Path) -> Graph:
    """Everyone of `SIZES`."""
    return omnigraph.open(shutil.copytree(template, tmp_path / "people"))


EXPECTED = {name: data(size) for name, size in SIZES.items()}


def test_every_size_and_null_and_empty(people: Graph) -> None:
    assert stored(people) == EXPECTED
    assert people.verify().ok


def parquet(folder: Path, table: pa.Table) -> str:
    pq.write_table(table, folder / "p.parquet", row_group_size=2)
    return "parquet"


def arrow(folder: Path, table: pa.Table) -> str:
    with pa.ipc.new_file(folder / "p.arrow", table.schema) as out:
        out.write_table(table)
    return "arrow"


def comma(folder: Path, table: pa.Table) -> str:
    texts = pa.array([text(v) for v in table["photo"].to_pylist()])
    pcsv.write_csv(table.set_column(1, "photo", texts), folder / "p.csv")
    return "csv"


@pytest.mark.parametrize("write", [parquet, arrow, comma])
@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.binary_view()])
def test_files_and_tables(graph: Graph, tmp_path: Path, write: Callable[[Path, pa.Table], str], kind: Any) -> None:
    names, values = list(EXPECTED), list(EXPECTED.values())
    table = pa.table({"name": names, "photo": pa.array(values, pa.binary()).cast(kind)})
    suffix = write(tmp_path, table)
    (tmp_path / "m.yaml").write_text(f"sources: [{{path: p.{suffix}, node: Person}}]")
    graph.load(mapping=Mapping.read(tmp_path / "m.yaml"))
    assert stored(graph) == EXPECTED
    graph.load({"Person": table.slice(0, 3)}, mode="overwrite")
    assert stored(graph) == {n: EXPECTED[n] for n in names[:3]}


def test_fixed_size_bytes_and_sliced_tables(graph: Graph) -> None:
    fixed = pa.table({"name": ["a", "b", "c"], "photo": pa.array([b"xx", None, b"yy"], pa.binary(2))})
    graph.load({"Person": fixed.slice(1)})
    assert stored(graph) == {"b": None, "c": b"yy"}


@pytest.mark.parametrize("rows_of_files", [1, 50_000])
def test_a_merge_load_keeps_what_is_omitted_and_clears_what_is_null(
    people: Graph, rows_of_files: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loader, "FRAGMENT_ROWS", rows_of_files)
    ids = people.snapshot().scan("node:Person", ["id", "_rowid"]).to_pylist()
    lines = [
        record("own file", age=2),
        record("packed", photo=None),
        record("one", photo=text(b"other")),
        record("new", photo=text(b"n" * 100_000)),
        record("new too"),
        record("small", photo=text(b"first")),
        record("small", age=3),
    ]
    people.load("\n".join(lines), mode="merge")
    changed = {"packed": None, "one": b"other", "new": b"n" * 100_000, "new too": None, "small": b"first"}
    assert stored(people) == EXPECTED | changed
    seals = stored(people, column="seal")
    assert seals == dict.fromkeys(EXPECTED, b"seal") | {"new": None, "new too": None}
    after = {r["id"]: r["_rowid"] for r in people.snapshot().scan("node:Person", ["id", "_rowid"]).to_pylist()}
    assert {r["id"]: r["_rowid"] for r in ids}.items() <= after.items()  # an update keeps the row's id
    assert people.verify().ok


def test_mutations(people: Graph) -> None:
    give = "query give($n: String, $b: Blob?) { update Person set { photo: $b } where name = $n }"
    people.mutate(give, {"n": "one", "b": b"\x00\xff"})
    people.mutate(give, {"n": "none", "b": bytearray(b"array")})
    people.mutate(give, {"n": "small", "b": text(b"as JSON has it")})
    people.mutate(give, {"n": "packed", "b": None})
    people.mutate('query q() { insert Person { name: "lit", photo: "base64:bGl0" } }')
    people.mutate('query q() { insert Person { name: "own file", age: 9 } }')  # an upsert by key
    people.mutate('query q() { update Person set { age: 5 } where name = "empty" }')
    changed = {"one": b"\x00\xff", "none": b"array", "small": b"as JSON has it", "packed": None, "lit": b"lit"}
    assert stored(people) == EXPECTED | changed
    assert stored(people, column="seal")["own file"] == b"seal"
    insert = "insert Person { name: $n, photo: $a }"
    two = f"query q($a: Blob, $n: String) {{ {insert} update Person set {{ age: 4 }} where name = $n }}"
    people.mutate(two, {"a": b"two statements", "n": "two"})
    assert stored(people)["two"] == b"two statements"
    people.mutate('query q() { delete Person where name = "own file" }')
    assert "own file" not in stored(people)
    assert people.verify().ok


def test_the_same_bytes_again_are_no_change(people: Graph) -> None:
    give = "query give($n: String, $b: Blob?) { update Person set { photo: $b } where name = $n }"
    for name, value in EXPECTED.items():
        assert people.mutate(give, {"n": name, "b": value}).commit is None, name
    other = bytes([data(90_000)[0] ^ 1]) + data(90_000)[1:]  # type: ignore[index]
    assert people.mutate(give, {"n": "packed", "b": other}).commit is not None


def test_edges(people: Graph) -> None:
    edge = {"edge": "Knows", "from": "one", "to": "small", "data": {"letter": text(b"dear"), "since": 1}}
    people.load(json.dumps(edge))
    people.load(json.dumps({"edge": "Knows", "from": "one", "to": "small", "data": {"since": 2}}), mode="merge")
    people.mutate(
        'query q($b: Blob) { insert Knows { from: "small", to: "one", letter: $b } }', {"b": b"back" * 30_000}
    )
    assert sorted(stored(people, column="letter", key="edge:Knows").values()) == [b"back" * 30_000, b"dear"]


BAD = [
    ("base64:a", "no base64"),
    ("base64:aGVsbG8", "padding"),
    ("base64:aGVs bG8=", "no base64"),
    ("base64:aGVs\nbG8=", "no base64"),
    ("base64:aGVsbG8=x", "no base64"),
    ("base64:_-__", "no base64"),
    ("base64:häää", "no base64"),
    ("BASE64:aGVs", "files and addresses aren't read"),
    ("aGVsbG8=", "files and addresses aren't read"),
    ("", "files and addresses aren't read"),
    ("file:///etc/passwd", "files and addresses aren't read"),
    ("/etc/passwd", "files and addresses aren't read"),
    ("s3://bucket/key", "files and addresses aren't read"),
    ("http://169.254.169.254/", "files and addresses aren't read"),
    (5, "not Blob"),
    ([1, 2], "not Blob"),
    ({"uri": "x"}, "not Blob"),
    (True, "not Blob"),
]


@pytest.mark.parametrize(("value", "says"), BAD)
def test_what_is_no_blob_is_refused_with_its_place(template: Path, value: Any, says: str) -> None:
    people = omnigraph.open(template)  # nothing gets in
    head = people.head().id
    with pytest.raises(BadRequest, match=says) as caught:
        people.load(record("good", photo=text(b"x")) + "\n" + record("bad", photo=value))
    assert caught.value.details["counts"] == {"type": 1}
    assert caught.value.details["records"][0] | {"message": ""} == {
        "kind": "type", "source": "<text>:2", "table_key": "node:Person", "property": "photo", "message": ""
    }  # fmt: skip
    if isinstance(value, str):
        with pytest.raises(BadRequest, match=says):
            people.mutate('query q($b: Blob) { insert Person { name: "bad", photo: $b } }', {"b": value})
        with pytest.raises(BadRequest, match=says):
            people.load({"Person": pa.table({"name": ["bad"], "photo": [value]})})
    else:
        with pytest.raises(BadRequest):
            people.mutate('query q($b: Blob) { insert Person { name: "bad", photo: $b } }', {"b": value})
    assert people.head().id == head


def test_the_limit_of_size(people: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write_blobs, "blob_max_bytes", lambda: 10)
    for value in (text(b"x" * 11), text(b"x" * 1000)):
        with pytest.raises(BadRequest, match="at most 10 "):
            people.load(record("large", photo=value))
    with pytest.raises(BadRequest, match="has 11 bytes"):
        people.load({"Person": pa.table({"name": ["large"], "photo": [b"x" * 11]})})
    with pytest.raises(BadRequest, match="has 11 bytes"):
        people.mutate('query q($b: Blob) { insert Person { name: "large", photo: $b } }', {"b": b"x" * 11})
    people.load(record("fits", photo=text(b"x" * 10)))
    assert stored(people)["fits"] == b"x" * 10


def test_no_room_for_waiting_blobs_is_said(people: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    head = people.head().id
    monkeypatch.setattr(write_blobs.BlobSpool, "_path", lambda self, part: "/dev/full")
    with pytest.raises(omnigraph.Unavailable, match=r"No space left on device\. Make room") as caught:
        people.load(record("x", photo=text(b"x")))
    assert caught.value.code == "no_room_for_blobs"
    assert people.head().id == head


def test_a_record_too_long(people: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ndjson, "BLOCK_BYTES", 1000)
    monkeypatch.setattr(ndjson, "LINE_MAX_BYTES", 20_000)
    file = tmp_path / "long.ndjson"
    file.write_text(record("fits", photo=text(b"f" * 14_000)) + "\n" + record("long", photo=text(b"l" * 20_000)))
    with pytest.raises(BadRequest, match=r"long.ndjson: the record at byte \d+ is longer than 20,000 bytes") as caught:
        people.load(file)
    assert caught.value.code == "line_too_long"
    monkeypatch.setattr(ndjson, "LINE_MAX_BYTES", 40_000)
    people.load(file)
    assert stored(people)["long"] == b"l" * 20_000


def test_queries_leave_blobs_out(people: Graph) -> None:
    people.load(json.dumps({"edge": "Knows", "from": "one", "to": "small", "data": {"letter": text(b"dear")}}))
    asked = 'query q() { match { $p: Person { name: "one" } $p $k:knows $q } return { $p, $k, $q.name as name } }'
    (row,) = people.query(asked).to_pylist()
    assert row["p"] == {"id": "one", "name": "one", "age": 1}
    assert row["k"].keys() == {"id", "src", "dst", "since"}
    assert people.entity("Person", "one") == {"id": "one", "name": "one", "age": 1}
    for expression in (
        "$p.photo",
        "$p.photo is null",
        "count($p.photo)",
        'coalesce($p.photo, "")',
        "collect($p.photo)",
    ):
        with pytest.raises(omnigraph.LanguageError) as caught:
            people.query(f"query q() {{ match {{ $p: Person }} return {{ {expression} as x }} }}")
        assert caught.value.code == "T24", expression
    with pytest.raises(omnigraph.LanguageError) as caught:
        people.mutate('query q() { update Person set { age: 1 } where photo = "base64:" }')
    assert caught.value.code == "T11"


def test_a_graph_that_was_moved_keeps_the_blobs_of_its_branches(people: Graph, tmp_path: Path) -> None:
    people.branches.create("draft")
    people.mutate('query q() { update Person set { photo: "base64:AAAA" } where name = "one" }', branch="draft")
    moved = shutil.move(people.uri, tmp_path / "moved")
    for read_only in (True, False):
        graph = omnigraph.open(moved, read_only=read_only)
        assert stored(graph, "draft") == EXPECTED | {"one": b"\x00\x00\x00"}
        assert graph.blob("Person", "own file", "photo", branch="draft").read(4_999_999) == data(5_000_000)[4_999_999:]  # type: ignore[index]


def test_a_required_blob(graph: Graph) -> None:
    with pytest.raises(BadRequest, match="data is required"):
        graph.load('{"type": "Must", "data": {"name": "a", "data": null}}')
    with pytest.raises(BadRequest, match="data is required"):
        graph.load({"Must": pa.table({"name": ["a"]})})
    graph.load('{"type": "Must", "data": {"name": "a", "data": "base64:"}}')
    graph.load('{"type": "Must", "data": {"name": "a"}}', mode="merge")
    assert stored(graph, column="data", key="node:Must") == {"a": b""}


def test_export_and_reload(people: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    people.load(json.dumps({"edge": "Knows", "from": "one", "to": "one", "data": {"letter": text(b"\x00")}}))
    lines = sorted(people.export())
    again = omnigraph.init(tmp_path / "again", schema=SCHEMA)
    again.load("\n".join(lines))
    assert stored(again) == EXPECTED
    assert sorted(again.export()) == lines
    monkeypatch.setattr(storage_blobs, "PIECE_BYTES", 1)  # one Blob at a time
    assert sorted(people.export()) == lines
    file = tmp_path / "x.ndjson"
    file.write_text("\n".join(lines))
    again.load(file, mode="overwrite")
    assert sorted(again.export()) == lines


def test_branches_and_time_travel_and_diff(people: Graph) -> None:
    before = people.head().id
    people.branches.create("draft")
    give = "query give($n: String, $b: Blob?) { update Person set { photo: $b } where name = $n }"
    people.mutate(give, {"n": "packed", "b": b"draft"}, branch="draft")
    assert stored(people) == EXPECTED
    assert stored(people, "draft") == EXPECTED | {"packed": b"draft"}
    assert [(e["id"], e["op"]) for e in people.diff("main", "draft")] == [("packed", "update")]
    people.mutate(give, {"n": "packed", "b": data(90_000)}, branch="draft")
    assert list(people.diff("main", "draft")) == []  # changed and changed back
    people.mutate(give, {"n": "packed", "b": b""}, branch="main")
    people.mutate(give, {"n": "none", "b": b""}, branch="main")
    assert sorted((e["id"], e["op"]) for e in people.changes(before)) == [("none", "update"), ("packed", "update")]
    then = people.snapshot(at=before)
    row = then.scan("node:Person", ["_rowid"], filter="id = 'packed'")["_rowid"].combine_chunks()
    assert then.blobs("node:Person", "photo", row).to_pylist() == [data(90_000)]


def test_merges_row_by_row(people: Graph) -> None:
    give = "query give($n: String, $b: Blob?) { update Person set { photo: $b } where name = $n }"
    people.branches.create("draft")
    for branch, n, b in (
        ("draft", "one", b"theirs"),
        ("main", "small", b"ours"),
        ("draft", "packed", b"both"),
        ("main", "packed", b"both"),
        ("draft", "own file", None),
        ("draft", "none", b""),
    ):
        people.mutate(give, {"n": n, "b": b}, branch=branch)
    people.mutate('query q($b: Blob) { insert Person { name: "in", photo: $b } }', {"b": b"i" * 70_000}, branch="draft")
    people.mutate('query q() { update Person set { age: 8 } where name = "empty" }', branch="draft")
    done = people.branches.merge("draft")
    assert done.outcome == "merged"
    assert stored(people) == EXPECTED | {
        "one": b"theirs", "small": b"ours", "packed": b"both", "own file": None, "none": b"", "in": b"i" * 70_000
    }  # fmt: skip
    people.branches.delete("draft")
    assert stored(people)["in"] == b"i" * 70_000
    assert people.verify().ok


def test_divergent_blobs_are_a_conflict(people: Graph) -> None:
    give = "query give($n: String, $b: Blob?) { update Person set { photo: $b } where name = $n }"
    people.branches.create("draft")
    people.mutate(give, {"n": "packed", "b": b"a" * 80_000}, branch="draft")
    people.mutate(give, {"n": "packed", "b": b"b" * 80_000})
    people.mutate(give, {"n": "one", "b": b""}, branch="draft")
    people.mutate(give, {"n": "one", "b": None})
    with pytest.raises(omnigraph.MergeConflicts) as caught:
        people.branches.merge("draft")
    assert sorted((c["kind"], c["id"]) for c in caught.value.conflicts) == [
        ("divergent_update", "one"),
        ("divergent_update", "packed"),
    ]
    (one,) = [c for c in caught.value.conflicts if c["id"] == "one"]
    assert one["base"]["photo"]["size"] == 1
    assert one["ours"]["photo"] is None
    assert one["theirs"]["photo"] == {"size": 0, "sha256": sha256(b"").hexdigest()}
    json.dumps(caught.value.conflicts)


@pytest.mark.parametrize(
    ("write", "changed"),
    [
        ('insert Person { name: "in" }', {"in": None}),
        ('update Person set { photo: null } where name = "one"', {"one": None}),
    ],
)
def test_merges_that_only_insert_or_only_update(people: Graph, write: str, changed: dict[str, None]) -> None:
    people.branches.create("draft")
    people.mutate(f"query q() {{ {write} }}", branch="draft")
    people.mutate('query q() { insert Person { name: "ours" } }')
    assert people.branches.merge("draft").outcome == "merged"
    assert stored(people) == EXPECTED | {"ours": None} | changed


@pytest.mark.parametrize("forward", [True, False])
def test_merges_take_whole_files_with_their_blobs(
    people: Graph, forward: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merging, "COPIED_FROM_ROWS", 3)
    people.branches.create("draft")
    many = {f"{n}!": data(s, "!") for n, s in SIZES.items()}
    people.load("\n".join(record(n, photo=text(b)) for n, b in many.items()), branch="draft")
    if not forward:
        people.mutate('query q() { update Person set { age: 8 } where name = "empty" }')
    done = people.branches.merge("draft")
    assert [t.copied for t in done.tables] == [len(many)]
    people.branches.delete("draft")
    assert stored(people) == EXPECTED | many


def test_compaction_keeps_bytes_nulls_and_empties(people: Graph) -> None:
    for i in range(3):
        people.load(record(f"x{i}", photo=text([b"", None, b"x"][i])))
    assert len(people.snapshot().dataset("node:Person").get_fragments()) == 4
    people.optimize()
    assert len(people.snapshot().dataset("node:Person").get_fragments()) == 1
    assert stored(people) == EXPECTED | {"x0": b"", "x1": None, "x2": b"x"}


def test_cleanup_keeps_what_is_read_and_removes_the_rest(people: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merging, "COPIED_FROM_ROWS", 3)
    people.branches.create("old")
    people.branches.create("draft")
    many = {f"{n}!": data(s, "!") for n, s in SIZES.items()}
    people.load("\n".join(record(n, photo=text(b)) for n, b in many.items()), branch="draft")
    people.branches.merge("draft")
    people.branches.delete("draft")
    give = "query give($b: Blob?) { update Person set { photo: $b } where name != 'one' and name != 'one!' }"
    for i in range(3):
        people.mutate(give.replace("'", '"'), {"b": bytes([i]) * 100_000})
    people.load(record("last", photo=text(b"last")))
    now = stored(people)
    assert len(now) == 13

    def blob_files() -> int:
        return len(list(Path(people.uri).rglob("*.blob")))

    before = blob_files()
    assert people.cleanup(keep=1, confirm=True).failed == ()
    assert stored(people) == now
    assert stored(people, "old") == EXPECTED
    people.branches.delete("old")
    people.optimize()
    people.cleanup(keep=1, confirm=True)
    assert stored(people) == now
    assert blob_files() < before
    assert people.verify().ok


def test_schema_changes_keep_blobs_and_add_them(people: Graph) -> None:
    changed = SCHEMA.replace("photo: Blob?", 'picture: Blob? @rename_from("photo")  more: Blob?')
    changed = changed.replace("seal: Blob? ", "")
    people.schema.apply(changed, allow_data_loss=True)
    assert stored(people, column="picture") == EXPECTED
    assert set(stored(people, column="more").values()) == {None}
    people.load('{"type": "Person", "data": {"name": "one", "more": "base64:bW9yZQ=="}}', mode="merge")
    assert stored(people, column="picture") == EXPECTED
    assert {n for n, v in stored(people, column="more").items() if v} == {"one"}


def test_a_load_killed_before_it_commits_leaves_the_blobs_as_they_were(people: Graph, tmp_path: Path) -> None:
    (tmp_path / "more.ndjson").write_text(record("one", photo=text(b"k" * 100_000)))
    code = (
        "import os, omnigraph\n"
        "from omnigraph.storage import commit\n"
        "commit._Write._publish = lambda *_: os._exit(9)\n"
        f"omnigraph.open({people.uri!r}).load({str(tmp_path / 'more.ndjson')!r}, mode='merge')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], env={**os.environ, "TMPDIR": str(tmp_path)}, check=False)
    assert done.returncode == 9
    assert stored(people) == EXPECTED
    again = omnigraph.open(people.uri)  # rolls the write forward: its table had moved
    assert stored(again) == EXPECTED | {"one": b"k" * 100_000}
    assert again.verify().ok
    again.mutate('query q($b: Blob) { update Person set { photo: $b } where name = "one" }', {"b": b"next"})
    assert stored(again)["one"] == b"next"


def test_many_blobs_are_never_held_together(tmp_path: Path) -> None:
    """100 MB of Blobs, loaded, updated and exported within half of that above the start."""
    code = """
import json, resource, sys, threading
from base64 import b64encode
import omnigraph
from omnigraph.storage import blobs
from omnigraph.write import ndjson
blobs.PIECE_BYTES = 4 << 20
ndjson.BLOCK_BYTES = 1 << 20
folder, count, size = sys.argv[1], 50, 2_000_000
g = omnigraph.init(folder + "/g", schema="node P { name: String @key  n: I32?  b: Blob? }")
with open(folder + "/p.ndjson", "w") as out:
    for i in range(count):
        line = (b"%d " % i) * (size // 3)
        data = b64encode(line).decode()
        out.write(json.dumps({"type": "P", "data": {"name": f"p{i}", "n": 1, "b": "base64:" + data}}) + "\\n")
def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
g.load('{"type": "P", "data": {"name": "warm", "b": "base64:AAAA"}}')
g.mutate('query q() { update P set { n: 3 } where name = "warm" }')
start = peak()
g.load(folder + "/p.ndjson")
loaded = peak() - start
g.mutate("query q() { update P set { n: 2 } where n = 1 }")
updated = peak() - start
total = sum(len(line) for line in g.export())
print(json.dumps({"loaded": loaded, "updated": updated, "exported": peak() - start, "total": total >> 20}))
"""
    ran = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    grown = json.loads(ran.stdout)
    assert grown["total"] > 110
    assert max(grown["loaded"], grown["updated"], grown["exported"]) < 50, grown
