"""Blobs of a graph on an S3 server: every write, and ranges that read no more than is asked for."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pyarrow as pa
import pytest

import omnigraph
from omnigraph.write import merging
from tests.s3 import S3, environment, serving


@pytest.fixture(scope="module")
def s3() -> Iterator[S3]:
    with serving() as server, environment(server):
        yield server


def test_blobs_on_a_store(s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merging, "COPIED_FROM_ROWS", 2)
    rng = random.Random(7)
    photos = {
        "none": None, "empty": b"", "small": rng.randbytes(100), "packed": rng.randbytes(90_000),
        "own file": rng.randbytes(6_000_000)
    }  # fmt: skip
    graph = omnigraph.init(s3.uri(), schema="node P { name: String @key  photo: Blob?  n: I32? }")
    graph.load({"P": pa.table({"name": list(photos), "photo": pa.array(photos.values(), pa.large_binary())})})
    graph.mutate('query q($b: Blob) { update P set { photo: $b } where name = "small" }', {"b": b"changed"})
    graph.mutate('query q() { update P set { n: 1 } where name = "own file" }')
    graph.branches.create("draft")
    more = {"a": rng.randbytes(80_000), "b": b"", "c": rng.randbytes(5_000_000)}
    graph.load(
        {"P": pa.table({"name": list(more), "photo": pa.array(more.values(), pa.large_binary())})}, branch="draft"
    )
    (merged,) = graph.branches.merge("draft").tables
    assert merged.copied == 3
    graph.branches.delete("draft")
    expected = photos | {"small": b"changed"} | more
    other = omnigraph.open(graph.uri, read_only=True)
    for name, data in expected.items():
        if data is None:
            with pytest.raises(omnigraph.NotFound):
                other.blob("P", name, "photo")
        else:
            assert other.blob("P", name, "photo").read() == data, name
    assert other.verify().ok
    again = omnigraph.init(s3.uri(), schema=graph.schema.source)
    again.load("\n".join(graph.export()))
    assert again.blob("P", "c", "photo").sha256() == graph.blob("P", "c", "photo").sha256()


def test_a_range_reads_that_range(s3: S3) -> None:
    data = random.Random(3).randbytes(8_000_000)
    graph = omnigraph.init(s3.uri(), schema="node P { name: String @key  photo: Blob? }")
    graph.mutate('query q($b: Blob) { insert P { name: "a", photo: $b } }', {"b": data})
    blob = omnigraph.open(graph.uri, read_only=True).blob("P", "a", "photo")
    s3.reset()
    assert blob.read(5_000_000, 5_000_100) == data[5_000_000:5_000_100]
    assert s3.ranges == ["bytes=5000000-5000099"]
    s3.reset()
    assert next(blob.chunks(size=1000)) == data[:1000]
    asked = [int(end) - int(start) + 1 for start, end in (r.removeprefix("bytes=").split("-") for r in s3.ranges)]
    assert sum(asked) == 1000
