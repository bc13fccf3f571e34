"""`Graph.blob`: ranges of one Blob, its tag, and what is read for them."""

from __future__ import annotations

import hashlib
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

import omnigraph
from omnigraph import BadRequest, Graph, NotFound

SIZES = {"empty": 0, "inline": 1000, "packed": 200_000, "own file": 6_000_000}
ADD = "query add($n: String, $b: Blob?) { insert P { name: $n, b: $b } }"


def data(size: int) -> bytes:
    return random.Random(size).randbytes(size)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("blob") / "g"
    graph = omnigraph.init(folder, schema="node P { name: String @key  b: Blob?  n: I32? } edge E: P -> P { b: Blob }")
    for name, size in SIZES.items():
        graph.mutate(ADD, {"n": name, "b": data(size)})
    graph.load('{"edge": "E", "from": "inline", "to": "packed", "data": {"id": "it\'s", "b": "base64:AAEC"}}')
    graph.close()
    return folder


@pytest.fixture
def graph(template: Path, tmp_path: Path) -> Graph:
    return omnigraph.open(shutil.copytree(template, tmp_path / "g"))


@pytest.mark.parametrize("name", SIZES)
def test_any_range_is_the_slice(template: Path, name: str) -> None:
    whole, blob = data(SIZES[name]), omnigraph.open(template, read_only=True).blob("P", name, "b")
    assert blob.size == len(whole)
    assert blob.read() == whole
    assert b"".join(blob) == whole
    assert blob.sha256() == hashlib.sha256(whole).hexdigest()
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    rng = random.Random(seed)
    for _ in range(40):
        start = rng.choice([0, len(whole), rng.randint(0, len(whole))])
        end = rng.choice([None, start, len(whole), len(whole) + 7, rng.randint(start, len(whole))])
        assert blob.read(start, end) == whole[start:end]
        assert b"".join(blob.chunks(start, end, size=rng.randint(1, 9) * 300_000)) == whole[start:end]


@pytest.mark.parametrize(
    "bounds", [(-1, None), (0, -1), (5, 4), (1001, None), (1001, 2000), (True, 2), ("0", 2), (0.0, 2)]
)
def test_no_such_range(template: Path, bounds: tuple[Any, Any]) -> None:
    blob = omnigraph.open(template, read_only=True).blob("P", "inline", "b")
    for call in (blob.read, blob.chunks):
        with pytest.raises(BadRequest) as caught:
            call(*bounds)
        assert caught.value.code == "bad_range"
    with pytest.raises(BadRequest):
        blob.chunks(size=0)


def test_edges_and_odd_ids(template: Path) -> None:
    graph = omnigraph.open(template, read_only=True)
    assert graph.blob("E", "it's", "b").read() == b"\x00\x01\x02"
    assert graph.blob("e", "it's", "b").type == "E"


def test_what_is_not_there(graph: Graph) -> None:
    graph.mutate(ADD, {"n": "none", "b": None})
    for args, code in (
        (("P", "none", "b"), "null_blob"),
        (("P", "nobody", "b"), "unknown_id"),
        (("P", "x' or '1'='1", "b"), "unknown_id"),
        (("Q", "none", "b"), "unknown_type"),
        (("P", "none", "c"), "unknown_property"),
        (("P", "none", "_rowid"), "unknown_property"),
    ):
        with pytest.raises(NotFound) as caught:
            graph.blob(*args)
        assert caught.value.code == code
    with pytest.raises(BadRequest) as refused:
        graph.blob("P", "none", "n")
    assert refused.value.code == "not_a_blob"


def test_a_blob_stays_what_it_was(graph: Graph) -> None:
    before, blob = graph.head().id, graph.blob("P", "packed", "b")
    graph.mutate(ADD, {"n": "packed", "b": b"new"})
    assert blob.read() == data(200_000)
    assert graph.blob("P", "packed", "b").read() == b"new"
    then = graph.blob("P", "packed", "b", at=before)
    assert (then.read(), then.etag) == (data(200_000), blob.etag)


def test_tags_differ_wherever_bytes_do(graph: Graph, template: Path, tmp_path: Path) -> None:
    tags = {graph.blob("P", name, "b").etag for name in SIZES}
    assert len(tags) == len(SIZES)
    assert graph.blob("P", "inline", "b").etag == omnigraph.open(template).blob("P", "inline", "b").etag  # a copy
    graph.branches.create("d")
    first = graph.blob("P", "inline", "b", branch="d")
    assert first.etag in tags
    graph.mutate(ADD, {"n": "inline", "b": b"one"}, branch="d")
    one = graph.blob("P", "inline", "b", branch="d").etag
    graph.branches.delete("d")
    graph.branches.create("d")  # counts its versions anew
    graph.mutate(ADD, {"n": "inline", "b": b"two"}, branch="d")
    two = graph.blob("P", "inline", "b", branch="d").etag
    again = omnigraph.init(tmp_path / "again", schema=graph.schema.source)
    again.mutate(ADD, {"n": "empty", "b": b""})
    assert len({*tags, one, two, again.blob("P", "empty", "b").etag}) == len(SIZES) + 3


def test_verify_finds_blobs_whose_bytes_are_gone(graph: Graph) -> None:
    assert graph.verify().ok
    files = sorted(Path(graph.uri).rglob("*.blob"), key=lambda p: p.stat().st_size)
    assert [p.stat().st_size for p in files] == [200_000, 6_000_000]
    files[1].write_bytes(b"cut short")
    files[0].unlink()
    found = [(f["kind"], f["id"]) for f in omnigraph.open(graph.uri).verify().findings if f["severity"] == "error"]
    assert sorted(found) == [("unreadable_blob", "own file"), ("unreadable_blob", "packed")]
    with pytest.raises(omnigraph.OmniGraphError):
        omnigraph.open(graph.uri).blob("P", "packed", "b").read()
    assert omnigraph.open(graph.uri).blob("P", "inline", "b").read() == data(1000)
