"""Columns whose texts are together too long for one array: the same rows, refusals and findings as of short ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import omnigraph
from omnigraph.errors import BadRequest, Internal
from omnigraph.storage import change, whole
from omnigraph.write import committed, constraints, loader, merge_rows
from omnigraph.write.columns import one_chunk

SCHEMA = """
node P { slug: String @key  email: String? @unique  n: I32?  country: String?  town: String?  @unique(country, town) }
edge K: P -> P @card(1..3) { w: I32? }
edge L: P -> P { @key(src, dst)  w: I32?  note: String? @unique }
"""
LONG = "long" * 10


def table(**columns: list[Any]) -> pa.Table:
    """In batches of ten rows."""
    rows = pa.table(columns)
    return pa.concat_tables([rows.slice(at, 10) for at in range(0, rows.num_rows, 10)])


def slugs(first: int, end: int) -> list[str]:
    return [f"{LONG}{i}" for i in range(first, end)]


def people(first: int, end: int) -> pa.Table:
    names = slugs(first, end)
    return table(slug=names, email=[f"{s}@x" for s in names], country=[LONG] * len(names), town=names)


def ring(first: int, end: int, step: int = 1) -> dict[str, list[str]]:
    names = slugs(first, end)
    return {"from": names, "to": names[step:] + names[:step]}


def loads() -> list[tuple[str, dict[str, pa.Table]]]:
    stranger = {"from": [*slugs(0, 60), "a"], "to": [*slugs(0, 60), "b"]}
    notes = [f"{LONG} note {i}" for i in range(60)]
    return [
        ("append", {"P": people(0, 60), "K": table(**ring(0, 60)), "L": table(**ring(0, 60), note=notes)}),
        ("append", {"P": people(60, 100), "K": table(**ring(60, 100))}),
        ("append", {"P": people(95, 130)}),
        ("append", {"P": table(slug=slugs(200, 260), email=[f"{s}@x" for s in slugs(0, 60)])}),
        ("append", {"P": table(slug=slugs(200, 260), country=[LONG] * 60, town=slugs(40, 100))}),
        ("append", {"P": table(slug=[*slugs(200, 260), *slugs(200, 260)])}),
        ("append", {"K": table(**stranger)}),
        ("append", {"K": table(**{k: v * 3 for k, v in ring(0, 60, 2).items()})}),
        ("merge", {"P": table(slug=slugs(50, 170), n=list(range(120))), "L": table(**ring(0, 60), w=[1] * 60)}),
        ("merge", {"P": table(slug=slugs(0, 60) * 2, email=[*[None] * 60, *[f"{s}@y" for s in slugs(0, 60)]])}),
        ("merge", {"P": table(slug=slugs(0, 60), email=[f"{s}@y" for s in slugs(30, 90)])}),
        ("merge", {"P": table(slug=slugs(0, 60), email=[f"{s}@x" for s in slugs(60, 120)])}),
        ("merge", {"L": table(**ring(0, 100, 3), w=[2] * 100, note=[*notes, *[None] * 40])}),
        ("overwrite", {"P": people(0, 90)}),
        ("overwrite", {"K": table(**ring(0, 60))}),
        ("overwrite", {"K": table(**ring(0, 100)), "P": people(0, 100), "L": table(**ring(0, 70, 5))}),
    ]


def answers(folder: Path) -> list[Any]:
    graph = omnigraph.init(folder, schema=SCHEMA)
    out: list[Any] = []
    for number, (mode, tables) in enumerate(loads()):
        operation = f"01JZZZZZZZZZZZZZZZZZZZZZ{number:02d}"
        try:
            out.append(graph.load(tables, mode=mode, operation_id=operation).tables)  # type: ignore[arg-type]
        except BadRequest as error:
            out.append(error.message)
        assert graph.verify().ok
        out.append(sorted(graph.export()))
    return out


@pytest.mark.parametrize("indexed", [False, True])
def test_long_columns_are_taken_as_short_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, indexed: bool) -> None:
    monkeypatch.setattr(loader, "FRAGMENT_ROWS", 50)
    monkeypatch.setattr(loader, "MERGE_BYTES", 1)
    monkeypatch.setattr(loader, "MERGE_ROWS", 10)
    monkeypatch.setattr(committed, "TAKE_LIMIT", 0)
    monkeypatch.setattr(committed, "LOOKUP_LIMIT", 20)  # a portion is looked up, a table's column is scanned for
    monkeypatch.setattr(change, "INDEX_BELOW_ROWS", 20)
    if indexed:
        monkeypatch.setattr(constraints, "INDEX_FROM", 0)
    short = answers(tmp_path / "short")
    refused = [said for said in short if isinstance(said, str)]
    assert len(refused) == 10, refused
    wide: set[str] = set()
    join = whole.joined

    def noted(place: str) -> Any:
        def one(*columns: Any) -> Any:
            out = join(*columns)
            wide.update([place] if out.type == pa.large_string() else [])
            return out

        return one

    for module in (change, committed, constraints, loader, whole):
        monkeypatch.setattr(module, "joined", noted(module.__name__.rpartition(".")[2]))
    monkeypatch.setattr(whole, "LONGEST", 1000)
    for module in (loader, merge_rows):
        monkeypatch.setattr(module, "MOST_BYTES", 1000)
    assert answers(tmp_path / "long") == short
    assert wide == {"change", "committed", "constraints", "loader", "whole"}


def test_a_table_is_no_portion(monkeypatch: pytest.MonkeyPatch) -> None:
    column = people(0, 60).column("slug")
    assert one_chunk(column).equals(whole.joined(column))
    monkeypatch.setattr(whole, "LONGEST", 1000)
    with pytest.raises(Internal, match="no portion"):
        one_chunk(column)
    assert whole.joined(column).type == pa.large_string()
    assert whole.joined(pa.chunked_array([[1, 2], [3] * 1000])).type == pa.int64()
    assert whole.joined(pa.chunked_array([], pa.int32())).type == pa.int32()


def test_many_long_ids_are_deleted_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = omnigraph.init(tmp_path / "g", schema=SCHEMA)
    graph.load({"P": people(0, 90), "L": table(**ring(0, 90, 2))})
    monkeypatch.setattr(whole, "LONGEST", 1000)
    gone = graph.mutate('query q() { delete L where to contains "8"  delete P where slug contains "7" or n > 0 }')
    sevens = {i for i in range(90) if "7" in str(i)}
    edges = {i for i in range(90) if "8" in str((i + 2) % 90) or i in sevens or (i + 2) % 90 in sevens}
    assert (gone.nodes, gone.edges) == (len(sevens), len(edges))
    monkeypatch.undo()
    assert graph.verify().ok
