"""`/blobs`: ranges, tags, grants, and bytes that come as they are read."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from fastapi.testclient import TestClient
from httpx import Response

import omnigraph
from omnigraph.read import blob as read_blob
from omnigraph_server.app import create_app
from omnigraph_server.auth import TokenStore
from omnigraph_server.ranges import Range, matches, range_of

sys.path.insert(0, str(Path(__file__).parent))
from conftest import SHOP_TOKENS, bearer

DATA = bytes(range(256)) * 1000
SCHEMA = (
    "node Item { name: String @key  photo: Blob?  n: I32? } edge PartOf: Item -> Item { @key(src, dst)  plan: Blob? }"
)
GIVE = "query give($n: String, $b: Blob?) { update Item set { photo: $b } where name = $n }"


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("blobs") / "g"
    graph = omnigraph.init(folder, schema=SCHEMA)
    for name, data in (("bike", DATA), ("none", None), ("empty", b""), ("a/b c?%", b"odd id")):
        add = "query add($n: String, $b: Blob?) { insert Item { name: $n, photo: $b } }"
        graph.mutate(add, {"n": name, "b": data})
    graph.mutate('query q() { insert PartOf { from: "bike", to: "none", plan: "base64:cGxhbg==" } }')
    graph.close()
    return folder


@pytest.fixture
def graph(template: Path, tmp_path: Path) -> omnigraph.Graph:
    return omnigraph.open(shutil.copytree(template, tmp_path / "g"))


@pytest.fixture
def client(graph: omnigraph.Graph, tmp_path: Path) -> Iterator[TestClient]:
    (tmp_path / "tokens.yaml").write_text(SHOP_TOKENS)
    with TestClient(create_app(graph, tokens=TokenStore(tmp_path / "tokens.yaml"))) as client:
        client.headers.update(bearer("reader"))
        yield client


def get(client: TestClient, id: str = "bike", **headers: str) -> Response:
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    return client.get(f"/blobs/Item/{quote(id, safe='')}/photo", headers=given)


def test_the_whole(client: TestClient) -> None:
    whole = get(client)
    assert whole.status_code == 200
    assert whole.content == DATA
    assert whole.headers["content-length"] == str(len(DATA))
    assert whole.headers["accept-ranges"] == "bytes"
    assert whole.headers["content-type"] == "application/octet-stream"
    assert whole.headers["content-disposition"] == "attachment"
    assert whole.headers["x-content-type-options"] == "nosniff"
    assert whole.headers["x-request-id"]
    assert get(client, "empty").content == b""
    assert get(client, "empty").headers["content-length"] == "0"
    assert get(client, "a/b c?%").content == b"odd id"
    edge = quote('["bike","none"]', safe="")
    assert client.get(f"/blobs/PartOf/{edge}/plan").content == b"plan"


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ("bytes=0-0", DATA[:1]),
        ("bytes=10-19", DATA[10:20]),
        ("bytes=255990-", DATA[255990:]),
        ("bytes=255990-999999999", DATA[255990:]),
        ("bytes=-5", DATA[-5:]),
        ("bytes=-999999999", DATA),
        ("Bytes = 1-2", DATA[1:3]),
    ],
)
def test_a_range(client: TestClient, asked: str, expected: bytes) -> None:
    part = get(client, range=asked)
    assert part.status_code == 206
    assert part.content == expected
    start = DATA.index(expected) if len(expected) > 20 else int(part.headers["content-range"][6:].split("-")[0])
    assert part.headers["content-range"] == f"bytes {start}-{start + len(expected) - 1}/{len(DATA)}"
    assert DATA[start : start + len(expected)] == expected
    assert part.headers["content-length"] == str(len(expected))


@pytest.mark.parametrize("asked", ["bytes=256000-", "bytes=999999999-1999999999", "bytes=-0"])
def test_a_range_that_is_not_there(client: TestClient, asked: str) -> None:
    refused = get(client, range=asked)
    assert refused.status_code == 416
    assert refused.headers["content-range"] == "bytes */256000"
    assert refused.json()["code"] == "bad_request"
    assert get(client, "empty", range="bytes=0-0").status_code == 416


@pytest.mark.parametrize(
    "asked",
    ["", "bytes", "bytes=", "bytes=-", "bytes=5-2", "bytes=a-b", "bytes=-1-2", "bytes=0-1,5-6", "items=0-1",
     "bytes=0x1-2", "bytes=١-٢", "bytes=" + "9" * 5000 + "-", "bytes=1-" + "9" * 30],
)  # fmt: skip
def test_a_range_without_sense_is_ignored(client: TestClient, asked: str) -> None:
    whole = client.get("/blobs/Item/bike/photo", headers=[(b"range", asked.encode())])
    assert (whole.status_code, len(whole.content)) == (200, len(DATA))


def test_tags(client: TestClient, graph: omnigraph.Graph) -> None:
    tag = get(client).headers["etag"]
    assert get(client, "a/b c?%").headers["etag"] != tag
    for known in (tag, f"W/{tag}", f'"x", {tag}', "*"):
        same = get(client, if_none_match=known)
        assert (same.status_code, same.content) == (304, b"")
        assert same.headers["etag"] == tag
    for other in ('"x"', "x", "", '"x", W/"y"', tag[:-1]):
        assert get(client, if_none_match=other).status_code == 200
    assert get(client, if_match=tag).status_code == 200
    assert get(client, if_match=f"W/{tag}").status_code == 412
    assert get(client, if_match='"x"').status_code == 412
    assert get(client, range="bytes=0-1", if_range=tag).status_code == 206
    for stale in ('"x"', f"W/{tag}", "Sat, 28 Nov 2026 10:00:00 GMT"):
        assert get(client, range="bytes=0-1", if_range=stale).status_code == 200
    graph.mutate('query q() { insert Item { name: "other" } }')
    graph.ensure_indices()
    assert get(client).headers["etag"] == tag  # another row's write changes nothing here
    graph.mutate(GIVE, {"n": "bike", "b": DATA + b"!"})
    assert get(client).headers["etag"] != tag
    assert get(client, if_none_match=tag).content == DATA + b"!"


def test_head(client: TestClient) -> None:
    head, whole = client.head("/blobs/Item/bike/photo", headers={"Range": "bytes=0-1"}), get(client)
    assert (head.status_code, head.content) == (200, b"")
    for name in ("etag", "content-length", "accept-ranges", "content-type"):
        assert head.headers[name] == whole.headers[name]
    assert client.head("/blobs/Item/nobody/photo").status_code == 404


def test_branches_and_moments(client: TestClient, graph: omnigraph.Graph) -> None:
    before = graph.head().id
    graph.branches.create("draft")
    graph.mutate(GIVE, {"n": "bike", "b": b"draft"}, branch="draft")
    graph.mutate(GIVE, {"n": "bike", "b": None})
    assert client.get("/blobs/Item/bike/photo?branch=draft").content == b"draft"
    assert client.get(f"/blobs/Item/bike/photo?snapshot={before}").content == DATA
    assert get(client).status_code == 404
    assert client.get("/blobs/Item/bike/photo?branch=nowhere").status_code == 404


def test_blobs_are_given_in_json(client: TestClient) -> None:
    client.headers.update(bearer("writer"))
    done = client.post("/mutate", json={"query": GIVE, "params": {"n": "none", "b": "base64:aGVsbG8="}})
    assert done.status_code == 200, done.text
    assert get(client, "none").content == b"hello"
    for value in ("file:///etc/passwd", "base64:!", "http://127.0.0.1/"):
        refused = client.post("/mutate", json={"query": GIVE, "params": {"n": "none", "b": value}})
        assert refused.status_code == 400, refused.text
    for value in (5, ["x"], {"a": 1}, True):
        refused = client.post("/mutate", json={"query": GIVE, "params": {"n": "none", "b": value}})
        assert refused.status_code == 400, refused.text
    assert get(client, "none").content == b"hello"


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("Item/none/photo", 404, "null_blob"),
        ("Item/nobody/photo", 404, "unknown_id"),
        ("Item/' or 1=1 --/photo", 404, "unknown_id"),
        ("Nothing/bike/photo", 404, "unknown_type"),
        ("Item/bike/nothing", 404, "unknown_property"),
        ("Item/bike/id", 404, "unknown_property"),
        ("Item/bike/_rowid", 404, "unknown_property"),
        ("Item/bike/n", 400, "not_a_blob"),
        ("Item/bike/name", 400, "not_a_blob"),
        ("Item/../../etc/passwd/photo", 404, None),
    ],
)
def test_what_is_not_there(client: TestClient, path: str, status: int, code: str | None) -> None:
    refused = client.get(f"/blobs/{path}")
    assert refused.status_code == status, refused.text
    if code is not None:
        assert refused.json()["details"]["code"] == code


def test_grants(client: TestClient) -> None:
    for who, status in (("nobody", 403), ("caller", 403), ("stranger", 401), ("reader", 200)):
        client.headers.update(bearer(who))
        assert get(client).status_code == status
        assert client.head("/blobs/Item/bike/photo").status_code == status


def test_bytes_are_read_as_they_are_sent(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int | None]] = []
    real = read_blob.Blob.read

    def read(self: read_blob.Blob, start: int = 0, end: int | None = None) -> bytes:
        asked.append((start, end))
        return real(self, start, end)

    monkeypatch.setattr(read_blob.Blob, "read", read)
    monkeypatch.setattr(read_blob.Blob.chunks, "__kwdefaults__", {"size": 100_000})
    assert get(client).content == DATA
    assert asked == [(0, 100_000), (100_000, 200_000), (200_000, 256_000)]
    asked.clear()
    get(client, range="bytes=5-9")
    client.head("/blobs/Item/bike/photo")
    assert asked == [(5, 10)]


def test_reading_of_headers() -> None:
    assert range_of("bytes=0-", 0) == Range(0, 0, satisfiable=False)
    assert range_of("bytes=-1", 0) == Range(0, 0, satisfiable=False)
    assert matches('"a,b", "c"', "a,b", weak=False)
    assert matches(None, "a", weak=True) is None
    assert matches(' , "a"', "a", weak=True) is False
