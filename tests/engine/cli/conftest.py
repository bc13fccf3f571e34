"""A small graph on disk, made through the command itself, and a way to run the command in process."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from omnigraph.cli.main import main

PEOPLE_SCHEMA = """\
node Person {
  name: String @key
  age: I32?
  @range(age, 0..150)
}
edge Knows: Person -> Person { since: Date? }
"""
PEOPLE_ROWS = [
    {"type": "Person", "data": {"name": "Ada", "age": 36}},
    {"type": "Person", "data": {"name": "Bob", "age": 25}},
    {"type": "Person", "data": {"name": "Cleo"}},
    {"edge": "Knows", "from": "Ada", "to": "Bob", "data": {"since": "2020-05-01"}},
    {"edge": "Knows", "from": "Bob", "to": "Cleo", "data": {}},
]
PEOPLE_QUERIES = """\
query everyone() { match { $p: Person } return { $p.name as name, $p.age as age } order { name } }
query known_by($name: String) {
  match { $p: Person { name: $name } $p knows $q }
  return { $q.name as name }
}
query add($name: String, $age: I32?) { insert Person { name: $name, age: $age } }
"""


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str

    def json(self) -> object:
        return json.loads(self.out)


Command = Callable[..., Ran]


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Command:
    def run(*args: object) -> Ran:
        capsys.readouterr()
        code = main([str(arg) for arg in args])
        captured = capsys.readouterr()
        return Ran(code, captured.out, captured.err)

    return run


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "schema.pg").write_text(PEOPLE_SCHEMA)
    (tmp_path / "queries.gq").write_text(PEOPLE_QUERIES)
    (tmp_path / "people.ndjson").write_text("".join(json.dumps(row) + "\n" for row in PEOPLE_ROWS))
    return tmp_path


@pytest.fixture
def graph(files: Path, command: Command) -> Path:
    path = files / "graph.omni"
    assert command("init", path, "--schema", files / "schema.pg").code == 0
    loaded = command("load", path, files / "people.ndjson")
    assert loaded.code == 0, loaded.err
    return path
