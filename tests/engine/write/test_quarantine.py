"""Bad records put aside: exactly they and what relied on them, each with its place, reasons and text."""

from __future__ import annotations

import base64
import datetime as dt
import errno
import gzip
import json
import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.orc as orc
import pyarrow.parquet as pq
import pytest

import omnigraph
from omnigraph import BadRequest, Conflict, Graph
from omnigraph.storage import Repository
from omnigraph.write.loader import load
from omnigraph.write.quarantine import Quarantine, finished

SCHEMA = """
node Person { slug: String @key  age: I32?  email: String? @unique  born: Date?  @range(age, 0..150) }
edge Knows: Person -> Person @card(0..2) { since: Date? }
edge Owns: Person -> Person @card(1..)
"""


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    graph = omnigraph.init(tmp_path / "g", schema=SCHEMA)
    graph.load('{"type": "Person", "data": {"slug": "old", "email": "old@x"}}')
    return graph


def person(slug: str, **data: Any) -> str:
    return json.dumps({"type": "Person", "data": {"slug": slug, **data}})


def knows(a: str, b: str) -> str:
    return json.dumps({"edge": "Knows", "from": a, "to": b})


def put_aside(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def kinds(entry: dict[str, Any]) -> list[str]:
    return sorted(r["kind"] for r in entry["reasons"])


def slugs(graph: Graph) -> list[str]:
    return sorted(graph.snapshot().scan("node:Person", ["id"]).column("id").to_pylist())


def test_each_kind_is_put_aside_with_all_that_relied_on_it(graph: Graph, tmp_path: Path) -> None:
    lines: list[tuple[bytes, list[str] | None]] = [
        (person("a", email="a@x").encode(), None),
        (b"// a comment", None),
        (b"", None),
        (b"{not json", ["syntax"]),
        (b'{"type": "Person", "data": {"slug": "\xff"}}', ["syntax"]),
        (b'{"type": "Alien", "data": {}}', ["unknown_type"]),
        (person("b", size=1).encode(), ["unknown_property"]),
        (person("c", age="old").encode(), ["type"]),
        (person("d", age=200, born="yesterday").encode(), ["range", "type"]),
        (b'{"type": "Person", "data": {"age": 1}}', ["required"]),
        (person("old").encode(), ["existing_id"]),
        (person("e", email="old@x").encode(), ["unique"]),
        (person("f", email="same@x").encode(), ["unique"]),
        (person("g", email="same@x").encode(), ["unique"]),
        (knows("a", "nobody").encode(), ["endpoint"]),
        (knows("a", "c").encode(), ["endpoint"]),  # c is put aside
        (knows("a", "old").encode(), None),
        (knows("old", "a").encode(), ["cardinality"]),
        (knows("old", "a").encode(), ["cardinality"]),
        (knows("old", "a").encode(), ["cardinality"]),
        (person("z").encode(), None),
    ]
    source = tmp_path / "all.ndjson"
    source.write_bytes(b"\r\n".join(text for text, _ in lines))
    result = graph.load(str(source), quarantine=tmp_path / "bad.ndjson")
    found = put_aside(tmp_path / "bad.ndjson")
    assert [(e["line"], kinds(e)) for e in found] == [(i + 1, bad) for i, (_, bad) in enumerate(lines) if bad]
    for entry in found:
        text = lines[entry["line"] - 1][0]
        assert entry.get("raw", "").encode() == text or base64.b64decode(entry["raw_base64"]) == text
        assert entry["source"] == f"{source}:{entry['line']}"
    assert (result.quarantined, dict(result.tables)) == (len(found), {"node:Person": 2, "edge:Knows": 1})
    assert slugs(graph) == ["a", "old", "z"]
    assert graph.verify().ok
    assert not (tmp_path / "bad.ndjson.part").exists()


def test_good_sources_leave_no_file_and_a_file_that_is_there_is_kept(graph: Graph, tmp_path: Path) -> None:
    path = tmp_path / "bad.ndjson"
    assert graph.load(person("a"), quarantine=path).quarantined == 0
    assert list(tmp_path.glob("bad*")) == []
    for name in ("bad.ndjson", "bad.ndjson.01JZZZZZZZZZZZZZZZZZZZZZZZ.part"):
        (tmp_path / name).write_text("precious")
        with pytest.raises(BadRequest, match="is there already") as caught:
            graph.load(person("b"), quarantine=path)
        assert caught.value.code == "quarantine_exists"
        assert (tmp_path / name).read_text() == "precious"
        (tmp_path / name).unlink()
    assert slugs(graph) == ["a", "old"]


def test_too_many_refuse_the_load(graph: Graph, tmp_path: Path) -> None:
    lines = "\n".join(["nonsense"] * 30 + [person("a")])
    with pytest.raises(BadRequest, match="more than 29 bad records") as caught:
        graph.load(lines, quarantine=tmp_path / "bad", max_quarantined=29)
    assert caught.value.code == "too_many_bad_records"
    assert (list(tmp_path.glob("bad*")), slugs(graph)) == ([], ["old"])
    assert graph.load(lines, quarantine=tmp_path / "bad", max_quarantined=30).quarantined == 30


def test_nothing_good_is_no_commit(graph: Graph, tmp_path: Path) -> None:
    result = graph.load("nonsense\n", quarantine=tmp_path / "bad")
    assert (result.commit, result.quarantined, len(put_aside(tmp_path / "bad"))) == (None, 1, 1)


def test_what_is_no_record_still_refuses(graph: Graph, tmp_path: Path) -> None:
    graph.load("\n".join([person("a"), person("b"), json.dumps({"edge": "Owns", "from": "a", "to": "b"})]))
    with pytest.raises(BadRequest, match="there is no Person 'b'"):
        graph.load("\n".join([person("a"), "nonsense"]), mode="overwrite", quarantine=tmp_path / "bad")
    with pytest.raises(BadRequest, match="every record of Person is bad"):
        graph.load(person("a", age="x"), mode="overwrite", quarantine=tmp_path / "bad")
    assert list(tmp_path.glob("bad*")) == []
    assert slugs(graph) == ["a", "b", "old"]


def test_a_load_that_fails_leaves_no_file(graph: Graph, tmp_path: Path) -> None:
    with pytest.raises(Conflict):
        load(
            graph._repository,
            f"nonsense\n{person('a')}",
            quarantine=str(tmp_path / "bad"),
            expect_head="01JZZZZZZZZZZZZZZZZZZZZZZZ",
        )
    assert list(tmp_path.glob("bad*")) == []


OPERATION = "01JZZZZZZZZZZZZZZZZZZZZZZZ"


@pytest.mark.parametrize("committed", [False, True])
def test_a_killed_load_runs_again_and_loses_no_record(graph: Graph, tmp_path: Path, committed: bool) -> None:
    """Killed before the commit, or after it and before the file has its name."""
    code = (
        "import os, sys, omnigraph\nfrom omnigraph.storage import Repository\ncommit = Repository.commit\n"
        "def late(*a, **k):\n    if sys.argv[4] == 'True':\n        commit(*a, **k)\n    os.kill(os.getpid(), 9)\n"
        "Repository.commit = late\n"
        "omnigraph.open(sys.argv[1]).load(sys.argv[2], quarantine=sys.argv[3], operation_id=sys.argv[5])\n"
    )
    text, bad = f"nonsense\n{person('a')}", tmp_path / "bad"
    arguments = [graph.uri, text, str(bad), str(committed), OPERATION]
    assert subprocess.run([sys.executable, "-c", code, *arguments]).returncode == -9
    assert [p.name for p in tmp_path.glob("bad*")] == [f"bad.{OPERATION}.part"]
    with pytest.raises(BadRequest, match="left by a load that was interrupted"):  # of another one
        graph.load(text, quarantine=bad)
    graph = omnigraph.open(graph.uri)
    assert slugs(graph) == (["a", "old"] if committed else ["old"])
    for _ in range(2):
        graph.load(text, quarantine=bad, operation_id=OPERATION)
        assert [p.name for p in tmp_path.glob("bad*")] == ["bad"]
        assert [e["raw"] for e in put_aside(bad)] == ["nonsense"]
        assert slugs(graph) == ["a", "old"]


def test_a_place_for_no_file_is_refused_before_anything_is_read(graph: Graph, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    places = [tmp_path / "nowhere" / "bad", "s3://bucket/bad", "", f"{tmp_path}/"]
    for place in (*places, tmp_path / ("x" * 250), "/proc/bad", tmp_path / "file" / "bad"):
        with pytest.raises(BadRequest, match="name a file in a folder of this machine") as caught:
            graph.load(person("a"), quarantine=place)
        assert caught.value.code == "quarantine_unwritable"
    for no_name in (f"{tmp_path}/a\0b", f"{tmp_path}/\ud800"):
        with pytest.raises(BadRequest, match="name a file in a folder of this machine"):
            Quarantine(no_name, OPERATION)
    assert slugs(graph) == ["old"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "g"]


def test_a_file_made_meanwhile_is_not_written_over(
    graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    commit = Repository.commit

    def late(*args: Any, **named: Any) -> Any:
        (tmp_path / "bad").write_text("precious")
        return commit(*args, **named)

    monkeypatch.setattr(Repository, "commit", late)
    graph.load(f"nonsense\n{person('a')}", quarantine=tmp_path / "bad", operation_id=OPERATION)
    assert (tmp_path / "bad").read_text() == "precious"
    assert put_aside(tmp_path / f"bad.{OPERATION}.part")[0]["raw"] == "nonsense"
    assert f"bad.{OPERATION}.part" in caplog.text


@pytest.mark.parametrize("call", ["link", "unlink"])
def test_nothing_fails_after_the_commit(
    graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, call: str
) -> None:
    """The disk fails when the file is to get its name: it is told where the records are."""

    def fails(*_: Any) -> None:
        raise OSError(errno.EIO, "the disk fails")

    @contextmanager
    def failing(*args: Any) -> Iterator[None]:
        with finished(*args):
            yield
            monkeypatch.setattr(f"omnigraph.write.quarantine.os.{call}", fails)
            monkeypatch.setattr("omnigraph.write.quarantine.os.rename", fails)

    monkeypatch.setattr("omnigraph.write.loader.finished", failing)
    result = graph.load(f"nonsense\n{person('a')}", quarantine=tmp_path / "bad", operation_id=OPERATION)
    monkeypatch.undo()
    assert result.quarantined == 1
    assert slugs(graph) == ["a", "old"]
    assert put_aside(tmp_path / f"bad.{OPERATION}.part")[0]["raw"] == "nonsense"
    assert f"bad.{OPERATION}.part" in caplog.text


def test_the_limit_counts_records_not_reasons(graph: Graph, tmp_path: Path) -> None:
    lines = "\n".join([person("a", age=999, born="x", email=1), person("b", age=999, born="x"), person("c")])
    with pytest.raises(BadRequest, match="more than 1 bad record:") as caught:
        graph.load(lines, quarantine=tmp_path / "bad", max_quarantined=1)
    assert "<text>:1: Person" in caught.value.message
    assert caught.value.details["records"][0]["source"] == "<text>:1"
    assert graph.load(lines, quarantine=tmp_path / "bad", max_quarantined=2).quarantined == 2
    assert [kinds(e) for e in put_aside(tmp_path / "bad")] == [["range", "type", "type"], ["range", "type"]]


def test_merge_puts_the_bad_record_aside_not_the_id(graph: Graph, tmp_path: Path) -> None:
    lines = [person("old", age=1), person("old", age=999), person("new", age=-1), person("old", born="2000-01-01")]
    with pytest.raises(BadRequest) as caught:
        graph.load("\n".join(lines), mode="merge")
    assert [r["source"] for r in caught.value.details["records"]] == ["<text>:2", "<text>:3"]
    graph.load("\n".join(lines), mode="merge", quarantine=tmp_path / "bad")
    found = put_aside(tmp_path / "bad")
    assert [(e["line"], kinds(e)) for e in found] == [(2, ["range"]), (3, ["range"])]
    row = graph.entity("Person", "old")
    assert row is not None
    assert (row["age"], row["born"]) == (1, dt.date(2000, 1, 1))
    assert slugs(graph) == ["old"]
    assert graph.verify().ok


def test_merge_blames_who_gave_a_value_twice_and_nobody_for_a_stored_one(graph: Graph, tmp_path: Path) -> None:
    lines = [
        person("a", email="old@x", age=1),  # stored already, at a row that another record leaves it at
        person("old", age=5),
        person("b", age=2),
        person("b", email="b@x"),
        person("b", born="2000-01-01"),
        person("c", email="b@x"),
        person("c", age=3),
        person("a", age=7),
    ]
    graph.load("\n".join(lines), mode="merge", quarantine=tmp_path / "bad")
    assert [(e["line"], kinds(e)) for e in put_aside(tmp_path / "bad")] == [(n, ["unique"]) for n in (1, 4, 6)]
    found = {slug: graph.entity("Person", slug) or {} for slug in slugs(graph)}
    assert {slug: (row["age"], row["email"], row["born"]) for slug, row in found.items()} == {
        "old": (5, "old@x", None),
        "a": (7, None, None),
        "b": (2, None, dt.date(2000, 1, 1)),
        "c": (3, None, None),
    }
    assert graph.verify().ok


def test_a_record_without_its_key_is_no_repeat_of_another(graph: Graph, tmp_path: Path) -> None:
    lines = ['{"type": "Person", "data": {"age": 1}}', person("a", age=1), person("b"), person("a"), person("b", age=2)]
    with pytest.raises(BadRequest, match="slug is required"):
        graph.load("\n".join(lines), mode="merge")
    graph.load("\n".join(lines), mode="merge", quarantine=tmp_path / "bad")
    assert [(e["line"], kinds(e)) for e in put_aside(tmp_path / "bad")] == [(1, ["required"])]
    assert slugs(graph) == ["a", "b", "old"]


def test_rows_of_tables_and_files(graph: Graph, tmp_path: Path) -> None:
    table = pa.table({"slug": ["a", "b", None], "age": [1, 500, 3]})
    pq.write_table(table, tmp_path / "p.parquet")
    (tmp_path / "p.csv").write_text('slug,age\nc,1\n"d\n",x\n')
    (tmp_path / "q.csv.gz").write_bytes(gzip.compress(b"slug,age\nq,1\nr,x\n"))
    for name in ("p.parquet", "p.csv", "q.csv.gz"):
        mapping = omnigraph.Mapping.parse(f"sources: [{{path: {tmp_path}/{name}, node: Person}}]")
        graph.load(mapping=mapping, quarantine=tmp_path / f"{name}.bad")
    assert [(e["row"], e["raw"], kinds(e)) for e in put_aside(tmp_path / "p.parquet.bad")] == [
        (2, {"slug": "b", "age": 500}, ["range"]),
        (3, {"slug": None, "age": 3}, ["required"]),
    ]
    assert [(e["row"], e["raw"]) for e in put_aside(tmp_path / "p.csv.bad")] == [(2, {"slug": "d\n", "age": "x"})]
    assert [(e["row"], e["raw"]) for e in put_aside(tmp_path / "q.csv.gz.bad")] == [(2, {"slug": "r", "age": "x"})]
    graph.load({"Person": table}, mode="merge", quarantine=tmp_path / "table.bad")
    assert [e["source"] for e in put_aside(tmp_path / "table.bad")] == ["Person row 2", "Person row 3"]
    assert slugs(graph) == ["a", "c", "old", "q"]


@pytest.mark.parametrize("suffix", ["parquet", "arrow", "orc", "table"])
def test_rows_of_tables_and_files_whose_text_is_no_utf8(graph: Graph, tmp_path: Path, suffix: str) -> None:
    """Arrow hands such bytes on unseen, and a table that holds them can't be read any more."""
    texts = [b"a", b"\xff\xfe", b"c", b"l\xe4t"]
    table = pa.table({"slug": pa.array(texts).view(pa.string()), "email": pa.array([b"a@x", b"", b"\xff", None])})
    table = table.set_column(1, "email", table["email"].chunk(0).view(pa.string()).dictionary_encode())
    mapping, source = None, {"Person": table}
    if suffix != "table":
        table = table if suffix != "orc" else table.set_column(1, "email", table["email"].chunk(0).dictionary_decode())
        path = tmp_path / f"p.{suffix}"
        write = {"parquet": pq.write_table, "arrow": feather.write_feather, "orc": orc.write_table}[suffix]
        write(table, path)
        mapping, source = omnigraph.Mapping.parse(f"sources: [{{path: {path}, node: Person}}]"), None
    for mode in ("append", "merge"):
        with pytest.raises(BadRequest, match="3 bad records") as caught:
            graph.load(source, mapping=mapping, mode=mode)
        assert [r["message"] for r in caught.value.details["records"]] == [
            f"{name}: not UTF-8" for name in ("slug", "email", "slug")
        ]
    graph.load(source, mapping=mapping, quarantine=tmp_path / "bad")
    assert [(e["row"], e["raw"], kinds(e)) for e in put_aside(tmp_path / "bad")] == [
        (2, {"slug": "base64://4=", "email": ""}, ["syntax"]),
        (3, {"slug": "c", "email": "base64:/w=="}, ["syntax"]),
        (4, {"slug": "base64:bOR0", "email": None}, ["syntax"]),
    ]
    assert slugs(graph) == ["a", "old"]
    assert len(list(graph.export())) == 2


@pytest.mark.parametrize("block", [64, 4 << 20])
def test_rows_of_csv_that_are_no_records(
    graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    """Each keeps its number, whatever stands before it, and however the file is cut into blocks."""
    monkeypatch.setattr("omnigraph.write.csv_rows.BLOCK_BYTES", block)
    good = [f"p{i},{i},p{i}@x" for i in range(40)]
    rows: list[tuple[bytes, Any]] = [(text.encode(), None) for text in good]
    put = {
        0: b"first,1,f@x,",
        3: b"few,1",
        4: b'"m\nn",1,m@x,too,many',
        20: b"w,old,w@x",
        21: b"l\xe4tin,1,",
        47: b"last",
    }
    said = {
        0: ("first,1,f@x,", "4 cells, and the header has 3"),
        3: ("few,1", "2 cells, and the header has 3"),
        4: ('"m\nn",1,m@x,too,many', "5 cells, and the header has 3"),
        20: ({"slug": "w", "age": "old", "email": "w@x"}, 'age: "old" is not I32'),
        21: ({"slug": "base64:bOR0aW4=", "age": "1", "email": None}, "slug: not UTF-8"),
        47: ("last", "1 cell, and the header has 3"),
    }
    for at in sorted(put):
        rows.insert(at, (put[at], said[at]))
    rows.insert(10, (b'"two\n\nlines",1,', None))
    rows.insert(12, (b"over,200,o@x", ({"slug": "over", "age": "200", "email": "o@x"}, "age is 200, outside")))
    (tmp_path / "p.csv").write_bytes(b"slug,age,email\n" + b"\n\n".join(text for text, _ in rows) + b"\n")
    mapping = omnigraph.Mapping.parse(f"sources: [{{path: {tmp_path}/p.csv, node: Person}}]")
    with pytest.raises(BadRequest, match="7 bad records") as caught:
        graph.load(mapping=mapping)
    wanted = [(i + 1, *what) for i, (_, what) in enumerate(rows) if what]
    assert [r["source"] for r in caught.value.details["records"]] == [f"{tmp_path}/p.csv row {n}" for n, _, _ in wanted]
    done = graph.load(mapping=mapping, quarantine=tmp_path / "bad")
    found = put_aside(tmp_path / "bad")
    assert [(e["row"], e["raw"]) for e in found] == [(n, raw) for n, raw, _ in wanted]
    for entry, (_, _, words) in zip(found, wanted, strict=True):
        assert entry["reasons"][0]["message"].startswith(words)
    assert (done.rows, done.quarantined) == (41, 7)
    assert slugs(graph) == sorted(["old", "two\n\nlines", *(f"p{i}" for i in range(40))])


def test_csv_that_holds_no_record(graph: Graph, tmp_path: Path) -> None:
    (tmp_path / "p.csv").write_text("slug,age\n1\n2,3,4\n")
    mapping = omnigraph.Mapping.parse(f"sources: [{{path: {tmp_path}/p.csv, node: Person}}]")
    done = graph.load(mapping=mapping, quarantine=tmp_path / "bad")
    assert (done.commit, done.quarantined) == (None, 2)
    with pytest.raises(BadRequest, match="every record of Person is bad"):
        graph.load(mapping=mapping, mode="overwrite", quarantine=tmp_path / "bad2")
    how = "node: Person, columns: {slug: f0, age: f1}, options: {header: false}"
    without = omnigraph.Mapping.parse(f"sources: [{{path: {tmp_path}/p.csv, {how}}}]")
    (tmp_path / "p.csv").write_text("a,1\nb\nc,3\n")
    assert graph.load(mapping=without, quarantine=tmp_path / "bad3").rows == 2
    assert [(e["row"], e["reasons"][0]["message"]) for e in put_aside(tmp_path / "bad3")] == [
        (2, "1 cell, and the first row has 2")
    ]


def test_compressed_sources_and_what_is_fixed_loads(graph: Graph, tmp_path: Path) -> None:
    source = tmp_path / "p.ndjson.gz"
    source.write_bytes(gzip.compress("\n".join([person(f"p{i}", age=i * 10) for i in range(30)]).encode()))
    graph.load(str(source), quarantine=tmp_path / "bad")
    found = put_aside(tmp_path / "bad")
    assert [e["line"] for e in found] == list(range(17, 31))
    fixed = "\n".join(
        e["raw"].replace('"age": ', '"age": 1, "email": null, "x": ').split(', "x"')[0] + "}}" for e in found
    )
    graph.load(fixed)
    assert len(slugs(graph)) == 31


def test_random_loads_hold_the_good_records_and_only_them(graph: Graph, tmp_path: Path) -> None:
    """However it began, what was loaded and what was put aside is everything, and the good ones load by themselves."""
    seed = random.randrange(1 << 30)
    print("seed", seed)
    rng = random.Random(seed)
    for turn in range(6):
        names = [f"t{turn}n{i}" for i in range(12)]
        lines = [
            person(
                rng.choice(names), email=rng.choice([None, f"{turn}-{rng.randrange(8)}@x"]), age=rng.choice([1, 200])
            )
            for _ in range(10)
        ]
        lines += [knows(rng.choice(names), rng.choice([*names, "old"])) for _ in range(12)]
        bad = tmp_path / f"bad{turn}"
        graph.branches.create(f"b{turn}")
        result = graph.load("\n".join(lines), quarantine=bad, branch=f"b{turn}")
        aside = {e["line"] for e in put_aside(bad)} if bad.exists() else set()
        assert result.rows + len(aside) == len(lines)
        good = [text for i, text in enumerate(lines) if i + 1 not in aside]
        graph.branches.create(f"c{turn}")
        if good:
            graph.load("\n".join(good), branch=f"c{turn}")
        rows = [
            sorted(
                json.dumps({k: v for k, v in json.loads(line)["data"].items() if k != "id"})
                for line in graph.export(branch=f"{b}{turn}")
            )
            for b in "bc"
        ]
        assert rows[0] == rows[1]


def test_the_command(graph: Graph, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from omnigraph.cli.main import main

    (tmp_path / "p.ndjson").write_text(f"nonsense\n{person('a')}\n")
    assert main(["load", graph.uri, f"{tmp_path}/p.ndjson", "--quarantine", f"{tmp_path}/bad", "--format", "json"]) == 0
    ran = capsys.readouterr()
    assert json.loads(ran.out)["quarantined"] == 1
    assert f"1 bad record was left out; {tmp_path}/bad has the reasons" in ran.err


PAIRS = """
node Place { country: String  town: I32  born: Date?  size: F64?  open: Bool?  level: enum(low, high)?  tags: [I32]?
             @key(country, town) }
edge Near: Place -> Place
"""


def test_what_is_said_of_a_record_does_not_depend_on_those_beside_it(tmp_path: Path) -> None:
    """A value of another JSON type sends a block's records through another reader than one that merely doesn't fit."""
    wrong = [("born", "yesterday"), ("level", 'b"oß'), ("tags", [1, 99_999_999_999]), ("born", 3.5), ("size", "x"),
             ("open", 1), ("level", 2), ("tags", "x"), ("level", ["low"]), ("open", "true")]  # fmt: skip
    lines = [json.dumps({"type": "Place", "data": {"country": "c", "town": i, k: v}}) for i, (k, v) in enumerate(wrong)]
    ends = [["c"], ["c", "x"], 5, [["c"], {}], ["c", True], "c"]
    lines += [json.dumps({"edge": "Near", "from": end, "to": end}) for end in ends]
    lines += [
        json.dumps({"edge": "Near", "from": ["c", "1"], "to": ["c", "2"], "id": 7}),
        json.dumps({"edge": "Near", "from": ["c", "1"], "to": ["c", "2"], "data": {"id": True}}),
    ]
    graph = omnigraph.init(tmp_path / "g", schema=PAIRS)

    def said(name: str, part: list[str]) -> list[tuple[str, list[str]]]:
        source = tmp_path / f"{name}.jsonl"
        source.write_text("\n".join(part))
        graph.load(source, quarantine=tmp_path / f"{name}.bad")
        return [(e["raw"], [r["message"] for r in e["reasons"]]) for e in put_aside(tmp_path / f"{name}.bad")]

    together = said("all", lines)
    assert [raw for raw, _ in together] == lines
    assert together == [one for i, line in enumerate(lines) for one in said(f"one{i}", [line])]
    assert together[0][1] == ['born: "yesterday" is not Date']
    assert together[len(wrong)][1] == ['from: ["c"] is no key of the node', 'to: ["c"] is no key of the node']
