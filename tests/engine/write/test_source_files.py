"""Files, streams and addresses: damaged, unreadable, missing, and read by threads."""

from __future__ import annotations

import gzip
import io
import json
import os
import random
import threading
import zlib
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.orc as orc
import pyarrow.parquet as pq
import pytest

from omnigraph.errors import BadRequest
from omnigraph.schema import compile_schema
from omnigraph.write import ndjson
from omnigraph.write.csv_rows import csv_rows
from omnigraph.write.findings import ROW, Findings
from omnigraph.write.mapping import Mapping, SourceMapping
from omnigraph.write.ndjson import read_ndjson
from omnigraph.write.rows import Reading
from omnigraph.write.sources import plan_sources
from tests.engine.write.reading import CATALOG, OPERATION, read_all


@pytest.mark.parametrize(
    "data", [b"not gzip", gzip.compress(b'{"type":"Note","data":{}}\n' * 1000)[:-20]], ids=["no", "cut"]
)
def test_damaged_compression_says_so(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "a.jsonl.gz").write_bytes(data)
    with pytest.raises(BadRequest, match=r"a\.jsonl\.gz: can't be read as ndjson"):
        read_all(str(tmp_path / "a.jsonl.gz"))


@pytest.mark.parametrize("suffix", ["csv.gz", "parquet.gz", "arrow.zst"])
def test_a_damaged_packed_table_says_so(tmp_path: Path, suffix: str) -> None:
    (tmp_path / f"p.{suffix}").write_bytes(gzip.compress(b"slug\n" + bytes(range(97, 120)) * 999)[:-20])
    with pytest.raises(BadRequest) as caught:
        read_all(None, Mapping.parse(f"sources: [{{path: p.{suffix}, node: Person}}]", base=tmp_path))
    assert f"p.{suffix}: can't be read as {suffix.partition('.')[0]}" in str(caught.value)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (gzip.compress(b"x"), "compressed with gzip: give it the suffix .gz"),
        (pa.compress(b"x", codec="zstd", asbytes=True), "the suffix .zst"),
        ('{"type":"Note","data":{}}\n'.encode("utf-16"), "UTF-16: write it as UTF-8"),
        (b"PAR1....", "Parquet"),
        (b"PK\x03\x04....", "a ZIP archive"),
    ],
    ids=["gzip", "zstd", "utf-16", "parquet", "zip"],  # gzip writes the second down: two workers wouldn't agree
)
def test_a_file_that_is_no_text_is_told_what_it_is(tmp_path: Path, data: bytes, says: str) -> None:
    (tmp_path / "a.jsonl").write_bytes(data)
    with pytest.raises(BadRequest, match=rf"a\.jsonl: is no NDJSON but .*{says}") as caught:
        read_all(str(tmp_path / "a.jsonl"))
    assert caught.value.code == "unreadable_source"


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_json_in_another_layout_is_told_how_to_write_it(tmp_path: Path, suffix: str) -> None:
    for text, says in (
        ('[{"type":"Note","data":{}},\n{"type":"Note"}]', "an array isn't read"),
        ("{\n}", "on one line"),
    ):
        data = text.encode()
        (tmp_path / f"a.json{suffix}").write_bytes(gzip.compress(data) if suffix else data)
        _, _, lines = read_all(str(tmp_path / f"a.json{suffix}"))
        assert f"a.json{suffix}:1: not one JSON record" in lines[1]
        assert says in lines[1]


def test_a_line_of_csv_that_is_too_long_says_how_long_it_may_be(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b'slug\n"' + b"z" * 9_000_000 + b'"\n')
    with pytest.raises(BadRequest, match="a line is longer than 4 MiB"):
        read_all(None, Mapping.parse("sources: [{path: a.csv, node: Person}]", base=tmp_path))


@pytest.mark.parametrize("suffix", ["parquet", "orc"])
def test_an_unreadable_file_says_so(tmp_path: Path, suffix: str) -> None:
    (tmp_path / f"p.{suffix}").write_bytes(b"nothing of the kind at all")
    with pytest.raises(BadRequest) as caught:
        read_all(None, Mapping.parse(f"sources: [{{path: p.{suffix}, node: Person}}]", base=tmp_path))
    assert f"p.{suffix}: can't be read as {suffix}" in str(caught.value)


def test_orc_rows_are_numbered_over_all_stripes(tmp_path: Path) -> None:
    table = pa.table({"slug": ["abc"] * 30_000, "age": [1] * 29_999 + [999]})
    orc.write_table(table, tmp_path / "p.orc", stripe_size=1024, batch_size=1024)
    assert orc.ORCFile(str(tmp_path / "p.orc")).nstripes > 1
    rows, findings, _ = read_all(None, Mapping.parse("sources: [{path: p.orc, node: Person}]", base=tmp_path))
    assert (len(rows["node:Person"]), [r.row for r in findings.shown]) == (30_000, [30_000])


@pytest.mark.parametrize("suffix", ["parquet", "arrow", "orc", "csv", "ndjson"])
def test_constants_alone_make_a_row_of_each_row(tmp_path: Path, suffix: str) -> None:
    table = pa.table({"a": [1, 2], "b": [3, 4]})
    path = tmp_path / f"n.{suffix}"
    write: dict[str, Any] = {"parquet": pq.write_table, "arrow": feather.write_feather, "orc": orc.write_table}
    if suffix in write:
        write[suffix](table, path)
    else:
        path.write_text("a,b\n1,3\n2,4\n" if suffix == "csv" else '{"a": 1}\n{"b": 4}\n')
    how = f'sources: [{{path: {path.name}, node: Note, constants: {{text: q}}, ignore: ["*"]}}]'
    rows, _, _ = read_all(None, Mapping.parse(how, base=tmp_path))
    assert [row["text"] for row in rows["node:Note"]] == ["q", "q"]


def test_a_short_csv_is_read_once_and_whole() -> None:
    """Where Arrow refuses a stream, a thread of its own may go on reading it: it then isn't ours to read again."""

    class Sparing(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            threads.add(threading.get_ident())
            return super().read(min(size or 3, 3))

    threads: set[int] = set()
    source = SourceMapping(path="p.csv", node="Person")
    for text in (b"slug,age", b"slug,age\nada,1\nbob,2\n"):
        read = csv_rows(Sparing(text), source, ["slug", "age"], ["slug", "age"])
        assert [row["slug"] for rows in read for row in rows.batch.to_pylist()] == (
            ["ada", "bob"] if b"ada" in text else []
        )
    assert threads == {threading.get_ident()}


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "latin-1"])
def test_csv_of_one_line_without_an_end(tmp_path: Path, encoding: str) -> None:
    for name, text in (
        ("header", "slug,age"),
        ("record", "zoé,1"),
        ("quoted", '"slug","age"'),
        ("blank", "\n\nslug,age"),
    ):
        (tmp_path / f"{name}.csv").write_bytes(text.encode(encoding))
        how = f"options: {{encoding: {encoding}, header: {str(name != 'record').lower()}}}"
        columns = ", columns: {slug: f0, age: f1}" if name == "record" else ""
        mapping = Mapping.parse(f"sources: [{{path: {name}.csv, node: Person, {how}{columns}}}]", base=tmp_path)
        rows, _, _ = read_all(None, mapping)
        assert [(r["slug"], r["age"]) for r in rows.get("node:Person", [])] == (
            [("zoé", 1)] if name == "record" else []
        )


def test_a_missing_file_says_where_it_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(BadRequest, match=r"nowhere\.jsonl: there is no such file"):
        read_all(str(tmp_path / "nowhere.jsonl"))
    pq.write_table(pa.table({"slug": ["a"]}), tmp_path / "p.parquet")
    with pytest.raises(BadRequest, match="need a mapping"):
        read_all(str(tmp_path / "p.parquet"))


@pytest.mark.parametrize(
    "address",
    [
        "https://h.invalid/x.ndjson",
        "xx://y",
        "file:///%zz",
        "file://host/x",
        "://",
        "a://b c",
        "\udce9://x",
        "s3://\ud800",
    ],
)
def test_an_address_that_cannot_be_read_says_which_can(address: str) -> None:
    for mapping in (None, Mapping.parse("sources: [{path: x.csv, node: Person}]")):
        with pytest.raises(BadRequest, match=r"s3://, .* can\.|can't be looked at") as caught:
            plan_sources(address, mapping, CATALOG)
        assert caught.value.code == "unreadable_source"
        str(caught.value).encode()


def test_a_file_whose_name_is_no_utf8_is_refused_and_its_stream_is_read(tmp_path: Path) -> None:
    path = os.fsencode(tmp_path) + b"/caf\xe9.ndjson"
    Path(os.fsdecode(path)).write_text('{"type": "Note"}\n')
    for name in (os.fsdecode(path), f"{tmp_path}/*.ndjson"):
        with pytest.raises(BadRequest, match="no UTF-8: rename the file"):
            plan_sources(name, None, CATALOG)
    with pytest.raises(BadRequest, match="there is no such file"):
        plan_sources(os.fsdecode(path) + "x", None, CATALOG)
    with open(path, "rb") as file:
        assert len(read_all(file)[0]["node:Note"]) == 1


class Broken:
    """A stream that gives something and then fails, or gives what it shouldn't."""

    def __init__(self, then: Any) -> None:
        self.gives = [b'{"type": "Person"}\n', then]

    def read(self, _size: int) -> Any:
        given = self.gives.pop(0)
        if isinstance(given, Exception):
            raise given
        return given


@pytest.mark.parametrize(
    ("then", "says"),
    [
        (OSError(5, "it broke"), "<stream>: can't be read: .*it broke"),
        (EOFError(), "<stream>: can't be read: EOFError"),
        (zlib.error("bad block"), "<stream>: can't be read: bad block"),
        (5, "<stream>: can't be read: .*int"),
        (None, "<stream>: can't be read: .*None"),
        (b"\xe9", r"l.ndjson: can't be read: .*utf-8"),
    ],
)
def test_a_stream_that_fails_is_named_and_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, then: Any, says: str
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "spool"))
    (tmp_path / "spool").mkdir()
    (tmp_path / "l.ndjson").write_bytes(then if isinstance(then, bytes) else b"")
    with (tmp_path / "l.ndjson").open(encoding="utf-8") as file, pytest.raises(BadRequest, match=says) as caught:
        plan_sources(file if isinstance(then, bytes) else cast("Any", Broken(then)), None, CATALOG)
    assert caught.value.code == "unreadable_source"
    assert list((tmp_path / "spool").iterdir()) == []


def test_threads_change_neither_rows_nor_findings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of a few lines, types mixed, some bad: one thread and four give the same, in the order of the lines."""
    seed = random.randrange(1 << 30)
    print("seed", seed)
    rng = random.Random(seed)
    lines = []
    for i in range(400):
        kind = rng.random()
        if kind < 0.5:
            lines.append(json.dumps({"type": "Person", "data": {"slug": "p", "age": rng.choice([1, 200, "x"])}}))
        elif kind < 0.8:
            lines.append(json.dumps({"type": "Note", "data": {"text": f"n{i}"}}))
        else:
            lines.append(rng.choice(["", "// hm", "nonsense", '{"edge": "Knows", "from": "a", "to": 1}']))
    text = "\n".join(lines).encode()
    monkeypatch.setattr(ndjson, "BLOCK_BYTES", 300)
    seen = []
    for threads in (1, 4):
        reading = Reading(CATALOG, OPERATION, findings=Findings(1000))
        batches = list(read_ndjson(io.BytesIO(text), reading, file=0, label="x", threads=threads))
        rows = {
            key: [r for b in batches if b.table_key == key for r in b.rows.to_pylist()] for key in CATALOG.by_table_key
        }
        seen.append((rows, sorted(map(str, reading.findings.shown)), reading.findings.counts))
        for held in rows.values():
            assert [r[ROW] for r in held] == sorted(r[ROW] for r in held)
    assert seen[0] == seen[1]


def test_a_reader_that_is_left_early_leaves_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ndjson, "BLOCK_BYTES", 100)
    text = ('{"type": "Note", "data": {"text": "x"}}\n' * 500).encode()
    reader = read_ndjson(io.BytesIO(text), Reading(CATALOG, OPERATION), file=0, label="x", threads=3)
    next(reader)
    reader.close()
    assert not [t for t in threading.enumerate() if t.name.startswith("omnigraph-ndjson")]


def test_cells_of_csv_may_be_empty_whatever_their_type(tmp_path: Path) -> None:
    given = {
        "ok": "True",
        "i": "1",
        "u": "2",
        "f": "1.5",
        "d": "2020-02-29",
        "t": "2020-02-29T00:00:00Z",
        "e": "x",
        "s": "s",
    }
    types = ["Bool", "I32", "U64", "F64", "Date", "DateTime", "enum(x, y)", "String"]
    catalog = compile_schema(f"node P {{ {' '.join(f'{n}: {kind}?' for n, kind in zip(given, types, strict=True))} }}")
    text = "\n".join([",".join(given), ",".join(given.values()), "," * (len(given) - 1)])
    (tmp_path / "p.csv").write_text(text)
    (tmp_path / "p.tsv").write_text(text.replace(",", "\t"))  # tabs without being told
    for name in ("p.csv", "p.tsv"):
        mapping = Mapping.parse(f"sources: [{{path: {name}, node: P}}]", base=tmp_path)
        reading = Reading(catalog, "01JZZZZZZZZZZZZZZZZZZZZZZZ")
        with plan_sources(None, mapping, catalog) as plan:
            (batch,) = plan.read(plan.files[0], reading)
        assert reading.findings.shown == []
        first, second = batch.rows.select(list(given)).to_pylist()
        assert [str(v) for v in first.values()][:4] == ["True", "1", "2", "1.5"]
        assert set(second.values()) == {None}


@pytest.mark.parametrize(
    ("data", "options"),
    [
        (b"sl\xe4ug\nq\n", ""),
        ("slug\nq\n".encode("utf-16"), ""),
        (b"slug,n\nq\xe4,1,2\n", ""),
        (b"slug\nq\xe4\n", ", options: {encoding: ascii}"),
        ("slug\nq\n".encode("utf-16-le"), ", options: {encoding: utf-16}"),
    ],
)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # Arrow's, of the third
def test_csv_of_another_encoding_says_so(tmp_path: Path, data: bytes, options: str) -> None:
    (tmp_path / "p.csv").write_bytes(data)
    catalog = compile_schema("node P { slug: String @key n: I32? }")
    mapping = Mapping.parse(f"sources: [{{path: p.csv, node: P{options}}}]", base=tmp_path)
    with plan_sources(None, mapping, catalog) as plan, pytest.raises(BadRequest, match="encoding") as caught:
        list(plan.read(plan.files[0], Reading(catalog, "01JZZZZZZZZZZZZZZZZZZZZZZZ")))
    assert caught.value.code == "unreadable_source"
