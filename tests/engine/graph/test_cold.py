"""A process that only reads loads nothing that others need: each of these costs every cold start its time."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import omnigraph

_READS = """
import sys

class WithoutPandas:  # it would load many of them
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == "pandas":
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, WithoutPandas)
import omnigraph
graph = omnigraph.open(sys.argv[1])
text = "query q($k: String) { match { $p: P { name: $k } } return { $p.name, $p.age } }"
table = graph.query(text, {"k": "ann"}).table
assert table.to_pylist() == [{"p.name": "ann", "p.age": 7}], table
print(*sys.modules)
"""
_OTHERS = {
    "concurrent.futures.thread", "hmac", "html", "httpx", "lark", "pydantic", "pyspark", "regex", "rich", "scipy",
    "secrets", "shutil", "typer", "ulid", "yaml",
    "omnigraph.embed", "omnigraph.maintain", "omnigraph.pipeline", "omnigraph.query.format", "omnigraph.read.frames",
    "omnigraph.schema.migrate", "omnigraph.schema.mistakes", "omnigraph.schema.regex", "omnigraph.storage.branch",
    "omnigraph.storage.change", "omnigraph.storage.cleanup", "omnigraph.storage.commit", "omnigraph.storage.create",
    "omnigraph.storage.optimize", "omnigraph.storage.recovery", "omnigraph.storage.repair",
    "omnigraph.storage.schema_apply", "omnigraph.storage.sweep", "omnigraph.schema.ir_json",
    "omnigraph.write.columns", "omnigraph.write.loader", "omnigraph.write.mutation",
}  # fmt: skip


def test_a_read_imports_what_it_needs(tmp_path: Path) -> None:
    graph = omnigraph.init(tmp_path / "g", schema="node P { name: String @key  age: I64 }")
    graph.load('{"type": "P", "data": {"name": "ann", "age": 7}}\n')
    graph.close()
    done = subprocess.run([sys.executable, "-c", _READS, tmp_path / "g"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert _OTHERS.isdisjoint(done.stdout.split()), sorted(_OTHERS & set(done.stdout.split()))


_ENDS = """
import atexit, gc, sys
from omnigraph.cli.main import main
atexit.register(lambda: print("frozen" if gc.get_freeze_count() > 1000 else "all is looked through", file=sys.stderr))
sys.exit(main())
"""


@pytest.mark.parametrize("text", ["query q() { match { $p: P } return { $p.name } }", "query q() { wrong }"])
def test_a_command_ends_without_looking_for_garbage(tmp_path: Path, text: str) -> None:
    omnigraph.init(tmp_path / "g", schema="node P { name: String @key }").close()
    command = [sys.executable, "-c", _ENDS, "query", str(tmp_path / "g"), "-e", text]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == int("wrong" in text), done.stderr
    assert done.stderr.splitlines()[-1] == "frozen", done.stderr


@pytest.mark.skipif(find_spec("pandas") is None, reason="pandas isn't installed")
def test_a_command_leaves_pandas_alone(tmp_path: Path) -> None:
    graph = omnigraph.init(tmp_path / "g", schema="node P { name: String @key  age: I64 }")
    graph.load('{"type": "P", "data": {"name": "ann", "age": 7}}\n')
    graph.close()
    text = "query q() { match { $p: P } return { $p.name, $p.age } }"
    command = [sys.executable, "-X", "importtime", "-m", "omnigraph.cli.main", "query", str(tmp_path / "g"), "-e", text]
    done = subprocess.run([*command, "--format", "csv"], capture_output=True, text=True, timeout=120)
    assert done.stdout.split() == ["p.name,p.age", "ann,7"], done.stderr[-2000:]
    imported = [line.rpartition("|")[2].strip() for line in done.stderr.splitlines()]
    assert (imported.count("pyarrow.lib"), imported.count("lance")) == (1, 1), "one that failed is imported again"
    assert not [name for name in imported if name.startswith("pandas.")]  # its own name is listed where it is refused
