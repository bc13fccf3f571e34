"""A graph of the origin takes a changed schema like one of ours: planned on, changed, its history still readable."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import omnigraph
from omnigraph.errors import Conflict
from omnigraph.graph import Graph
from omnigraph.storage import Repository, Staging, TableChange, WriterKind
from tests.engine.upstream.conftest import NAMES, unpack

Unpack = Callable[[str], Path]


def alone(graph: Graph) -> None:
    """Delete every other branch, those first that nothing began from."""
    while len(listed := graph.branches.list()) > 1:
        for branch in listed[1:]:
            try:
                graph.branches.delete(branch.name)
            except Conflict:
                continue  # others began from it


def everything(graph: Graph, at: str | None = None) -> dict[str, list[str]]:
    snapshot = graph.snapshot(at=at)
    return {key: sorted(map(repr, snapshot.scan(key).to_pylist())) for key in snapshot.catalog.by_table_key}


@pytest.mark.parametrize("name", NAMES)
def test_a_graph_of_the_origin_takes_a_changed_schema(tmp_path: Path, name: str) -> None:
    root = unpack(name, tmp_path)
    graph = omnigraph.open(root)
    source, others = graph.schema.source, graph.branches.list()[1:]
    node = next(n for n in graph.schema.catalog.nodes.values() if graph.snapshot().tables[n.table_key].row_count)
    body = re.search(rf"node {node.name}\b[^{{]*{{", source)
    assert body is not None
    renamed = body[0].replace(f"node {node.name}", f'node Renamed @rename_from("{node.name}")')
    if "@rename_from" in body[0]:
        renamed = re.sub(rf'@rename_from\("(?!{node.name}")[^"]*"\)', "", renamed)
    changed = source.replace(body[0], f'{renamed}\n  extra: String @default("new")\n  more: I32?\n')
    changed = re.sub(rf"(edge \w+: ){node.name}\b", r"\1Renamed", changed)
    changed = re.sub(rf"(edge \w+: \w+ -> ){node.name}\b", r"\1Renamed", changed)
    if others:
        with pytest.raises(Conflict) as caught:
            graph.schema.apply(changed)
        assert caught.value.code == "branches_exist"
    # Drift that may be half of a write is somebody's to look at first.
    graph.repair(confirm=True, force=True)
    alone(graph)
    old, before, ids = graph.head().id, everything(graph), graph.snapshot().scan(node.table_key, ["id", "_rowid"])
    known = [f["message"] for f in graph.verify().findings if f["severity"] == "error"]
    done = graph.schema.apply(changed)
    assert done.commit is not None
    fresh = omnigraph.open(root)
    assert fresh.snapshot().scan("node:Renamed", ["id", "_rowid"]).equals(ids)
    assert {*fresh.snapshot().scan("node:Renamed", ["extra"])["extra"].to_pylist()} == {"new"}
    assert everything(fresh, old) == before
    assert {k: len(v) for k, v in everything(fresh).items() if k.startswith("edge:")} == {
        k: len(v) for k, v in before.items() if k.startswith("edge:")
    }
    assert [f["message"] for f in fresh.verify().findings if f["severity"] == "error"] == known
    assert (root / "_schema.pg").read_text() == changed
    assert json.loads((root / "_schema.ir.json").read_text())["ir_version"] == 2
    assert fresh.schema.apply(changed).commit is None
    # What comes after knows the ids: another rename keeps the table.
    location = fresh.snapshot().ref("node:Renamed").location
    again = changed.replace("extra: String", 'other: String @rename_from("extra")')
    fresh.schema.apply(again)
    assert fresh.snapshot().ref("node:Renamed").location == location
    assert {*fresh.snapshot().scan("node:Renamed", ["other"])["other"].to_pylist()} == {"new"}


def test_a_write_prepared_before_the_first_change_of_a_graph_of_the_origin_is_told_to_retry(fresh: Unpack) -> None:
    root = fresh("branches")
    graph = omnigraph.open(root)
    alone(graph)
    repository = Repository.open(str(root))
    base = repository.snapshot()
    assert base.head.schema_hash is None
    key = "node:City"
    row = base.scan(key, limit=1).set_column(base.schema(key).get_field_index("id"), "id", pa.array(["zz"]))
    graph.schema.apply("// said anew\n" + graph.schema.source)
    with pytest.raises(Conflict) as caught:
        repository.commit(Staging("main", WriterKind.LOAD, (TableChange(key, appends=row),)), base)
    assert (caught.value.code, caught.value.retryable) == ("schema_changed", True)
