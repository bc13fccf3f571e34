"""`blob get` and `blob stat`."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import omnigraph

DATA = bytes(range(256)) * 500


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("blob") / "g"
    made = omnigraph.init(path, schema="node Person { name: String @key  photo: Blob?  age: I32? }")
    add = "query add($n: String, $b: Blob?) { insert Person { name: $n, photo: $b } }"
    for name, data in (("ada", DATA), ("bob", None), ("cy", b"")):
        made.mutate(add, {"n": name, "b": data})
    made.branches.create("draft")
    made.mutate(add, {"n": "ada", "b": b"draft"}, branch="draft")
    return path


@pytest.mark.parametrize(
    ("range", "expected"),
    [(None, DATA), ("0-0", DATA[:1]), ("5-9", DATA[5:10]), ("127990-", DATA[127990:]), ("-3", DATA[-3:]),
     ("127999-999999999999", DATA[-1:])],
)  # fmt: skip
def test_get(graph: Path, command: Callable[..., Any], tmp_path: Path, range: str | None, expected: bytes) -> None:
    done = command(
        "blob", "get", graph, "Person", "ada", "photo", "-o", tmp_path / "a", *(["--range", range] if range else [])
    )
    assert done.code == 0, done.err
    assert (tmp_path / "a").read_bytes() == expected
    assert f"wrote {len(expected):,} bytes" in done.err
    assert [p.name for p in tmp_path.iterdir()] == ["a"]


def test_get_to_standard_output(graph: Path, command: Callable[..., Any], tmp_path: Path) -> None:
    run = [sys.executable, "-m", "omnigraph.cli.main", "blob", "get", str(graph), "Person", "ada", "photo"]
    done = subprocess.run(run, capture_output=True, env=os.environ, check=True)
    assert done.stdout == DATA
    command("blob", "get", graph, "Person", "ada", "photo", "--branch", "draft", "-o", tmp_path / "d")
    assert (tmp_path / "d").read_bytes() == b"draft"
    command("blob", "get", graph, "Person", "cy", "photo", "-o", tmp_path / "e")
    assert (tmp_path / "e").read_bytes() == b""


@pytest.mark.parametrize(
    ("args", "code", "says"),
    [
        (("Person", "ada", "photo", "--range", "5"), 2, "write A-B, A- or -N"),
        (("Person", "ada", "photo", "--range", "-"), 2, "write A-B, A- or -N"),
        (("Person", "ada", "photo", "--range", "9-5"), 2, "write A-B, A- or -N"),
        (("Person", "ada", "photo", "--range", "-5-9"), 2, "write A-B, A- or -N"),
        (("Person", "ada", "photo", "--range", "0x1-2"), 2, "write A-B, A- or -N"),
        (("Person", "ada", "photo", "--range", "9" * 40 + "-"), 2, "write A-B, A- or -N"),
        (("Person", "ada", "photo", "--range", "128000-"), 2, "128,000 bytes, and none of these"),
        (("Person", "ada", "photo", "--range", "-0"), 2, "none of these"),
        (("Person", "cy", "photo", "--range", "0-0"), 2, "0 bytes, and none of these"),
        (("Person", "bob", "photo"), 1, "photo of Person 'bob' is null"),
        (("Person", "eve", "photo"), 1, "there is no Person 'eve'"),
        (("Person", "ada", "age"), 1, "Person.age is I32?, no Blob; its Blobs are photo"),
        (("Person", "ada", "foto"), 1, "no property 'foto'; its Blobs are photo"),
        (("Persona", "ada", "photo"), 1, "type 'Persona' isn't declared"),
        (("Person", "ada", "photo", "--branch", "nowhere"), 1, "nowhere"),
        (("Person", "ada", "photo", "--at", "999"), 1, "999"),
    ],
)
def test_refusals(
    graph: Path, command: Callable[..., Any], tmp_path: Path, args: tuple[str, ...], code: int, says: str
) -> None:
    done = command("blob", "get", graph, *args, "-o", tmp_path / "x")
    assert (done.code, done.out) == (code, "")
    assert says in done.err
    assert list(tmp_path.iterdir()) == []


def test_stat(graph: Path, command: Callable[..., Any]) -> None:
    plain = command("blob", "stat", graph, "Person", "ada", "photo")
    assert plain.out.startswith("128,000 bytes, etag ")
    asked = command("blob", "stat", graph, "Person", "ada", "photo", "--sha256", "--format", "json")
    told = json.loads(asked.out)
    assert told["size"] == len(DATA)
    assert told["sha256"] == hashlib.sha256(DATA).hexdigest()
    assert told["etag"] in plain.out
    assert told["commit"] == omnigraph.open(graph).head().id
