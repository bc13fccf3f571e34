"""A hop that is asked again and again reads its far ends' properties by edge: with the same answers and limits, never
those of another version, and within a part of the cache."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import omnigraph
from omnigraph import read
from omnigraph.errors import BadRequest
from omnigraph.query import bind_params, compile_query
from omnigraph.read import beside
from omnigraph.read.adjacency import Adjacency
from omnigraph.read.beside import Pages
from omnigraph.read.frame import Context
from omnigraph.read.plan import plan
from omnigraph.read.settings import ReadSettings, read_settings
from omnigraph.read.tables import TABLES
from omnigraph.schema import compile_schema

CATALOG = compile_schema("""
node Person { name: String @key  age: I32?  tags: [String]?  born: DateTime?  fit: Bool? }
edge Knows: Person -> Person
""")
NAMES = [f"p{i}" for i in range(6)]
PAIRS = [(0, 1), (0, 4), (0, 0), (0, 1), (1, 0), (2, 4), (4, 2), (4, 3), (4, 1)]
ROWS: dict[str, list[dict[str, Any]]] = {
    "node:Person": [
        {"id": n, "name": n, "age": None if i == 3 else i, "tags": ["a"] * i if i % 2 else None}
        for i, n in enumerate(NAMES)
    ],
    "edge:Knows": [{"id": f"k{i}", "src": NAMES[s], "dst": NAMES[d]} for i, (s, d) in enumerate(PAIRS)],
}
KEY = "query q($k: String, $n: I64) { match { $p: Person { name: $k } "
HOP = KEY + "$p knows $f } return { $f.name, $f.age } }"


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The first run over what is in memory makes the page."""
    monkeypatch.setattr(beside, "_WORTH", 0)
    TABLES.clear()
    yield
    TABLES.clear()


def kept() -> dict[Hashable, Pages]:
    return {key: entry for key, entry in TABLES.kept.items() if isinstance(entry, Pages)}


def made() -> list[str]:
    """The columns of which there are pages."""
    names: Any = {key: key[-2] for key in kept()}  # type: ignore[index]
    return [name for key, pages in kept().items() if any(pages._made) for name in names[key]]


def asked(text: str, snapshot: Any, k: str) -> pa.Table:
    compiled = compile_query(text, CATALOG)
    for _ in range(4):  # brings it into memory, makes the values, reads them
        table = read.execute(compiled, snapshot, bind_params(compiled, {"k": k, "n": 1}))
    return table


@pytest.mark.parametrize(
    ("tail", "columns"),
    [
        ("$p knows $f } return { $f.name, $f.age } }", ["name", "age"]),
        ("$p <knows> $f } return { $f.born, $f.fit, $f.name } }", ["born", "fit", "name"]),
        ("$f knows $p } return { $f.age, $f.age as again } }", ["age", "age"]),
        ("$p knows $f } return { $f.name } limit 2 skip 1 }", ["name"]),
        ("$p knows $f } return { $f.name } limit $n }", ["name"]),
        ("$p knows $a $a knows $f } return { $f.name } }", ["name"]),
        ("$p knows $f } return { $f.name, $f.tags } }", []),
        ("$p knows $f } return { $p.name, $f.age } }", []),
        ("$p knows $f $f.age > 0 } return { $f.name } }", []),
        ("$p knows{1,2} $f } return { $f.name } }", []),
        ("$p $e: knows $f } return { $f.name } }", []),
        ("$p knows $f } return { $f.name } order { $f.age desc } }", []),
        ("$p knows $f } return distinct { $f.name } }", []),
    ],
)
def test_it_answers_as_unbound(tail: str, columns: list[str], stored_snapshot: Callable[..., Any]) -> None:
    snapshot, compiled = stored_snapshot(CATALOG, ROWS), compile_query(KEY + tail, CATALOG)
    rows = 0
    for name in (*NAMES, "nobody"):
        params = bind_params(compiled, {"k": name, "n": 1})
        want = plan(compiled, CATALOG, snapshot).run(Context(snapshot, params, read_settings()))
        for _ in range(3):
            found = read.execute(compiled, snapshot, params)
            found.validate(full=True)
            assert found.equals(want), f"from {name}"
        rows += want.num_rows
    assert rows
    assert sorted(made()) == sorted(columns)


def test_a_slice_is_what_a_hop_takes(stored_snapshot: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """That the values by edge are read, not only made."""
    snapshot = stored_snapshot(CATALOG, ROWS)
    assert asked(HOP, snapshot, "p0").num_rows == 3
    monkeypatch.setattr("omnigraph.read.finish.rows_of", lambda *_: pytest.fail("rows are taken one by one"))
    assert asked(HOP, snapshot, "p4")["f.name"].to_pylist() == ["p1", "p2", "p3"]


def test_limits_stay(stored_snapshot: Callable[..., Any]) -> None:
    snapshot, compiled = stored_snapshot(CATALOG, ROWS), compile_query(HOP, CATALOG)
    few = replace(read_settings(), max_rows=2)
    for _ in range(4):
        assert read.execute(compiled, snapshot, {"k": "p1"}, settings=few).num_rows == 1
    assert made()
    with pytest.raises(BadRequest) as refused:
        read.execute(compiled, snapshot, {"k": "p0"}, settings=few)
    assert refused.value.code == "query_too_large"


def test_long_texts_at_many_edges_are_not_repeated(stored_snapshot: Callable[..., Any]) -> None:
    """The size is that of the values at the edges, not of the column."""
    catalog = compile_schema("node P { name: String @key  text: String? }\nedge Likes: P -> P")
    names = [f"p{i}" for i in range(40)]
    persons = [{"id": n, "name": n, "text": None if i else "x" * 10_000} for i, n in enumerate(names)]
    likes = [{"id": f"l{n}", "src": n, "dst": "p0"} for n in names]
    snapshot = stored_snapshot(catalog, {"node:P": persons, "edge:Likes": likes})
    text = "query q($k: String) { match { $p: P { name: $k } $p likes $f } return { $f.text } }"
    compiled = compile_query(text, catalog)
    for size in (39 * 10_000, 41 * 10_000):
        settings = replace(read_settings(), cache_bytes=16 * size)
        assert not made()
        for _ in range(4):
            assert read.execute(compiled, snapshot, {"k": "p1"}, settings=settings).num_rows == 1
    assert made() == ["text"]


def test_a_page_is_made_once_it_was_asked_often_enough(
    stored_snapshot: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a page for each node those alone, and no more than there is room for."""
    monkeypatch.setattr(beside, "_WORTH", 3)
    monkeypatch.setattr(beside, "_PAGE", 1)
    snapshot, compiled = stored_snapshot(CATALOG, ROWS), compile_query(HOP, CATALOG)
    want = {k: read.execute(compiled, snapshot, {"k": k}) for k in NAMES}

    def there(k: str, settings: ReadSettings | None = None) -> list[bool]:
        assert read.execute(compiled, snapshot, {"k": k}, settings=settings).equals(want[k])
        (pages,) = kept().values()
        return [page is not None for page in pages._made[: len(NAMES)]]

    for _ in range(3):
        assert not any(there("p0"))
    first = there("p0")
    assert sum(first) == 1
    (pages,) = kept().values()
    before = pages.nbytes
    tight = replace(read_settings(), cache_bytes=16 * before)
    for _ in range(9):
        assert there("p4", tight) == first
    assert pages.nbytes == before
    for _ in range(9):
        both = there("p4")
    assert sum(both) == 2
    assert pages.nbytes > before
    for name in (*NAMES, *NAMES):
        assert there(name) >= both


def test_a_page_of_many_edges_or_of_long_texts_is_not_made(
    stored_snapshot: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshot = stored_snapshot(CATALOG, ROWS)
    for name, few, enough in (("_LARGE", 7, 8), ("_HEAVY", 79, 80)):  # eight edges, of a text of two bytes and a number
        with monkeypatch.context() as patch:
            patch.setattr(beside, name, few)
            assert asked(HOP, snapshot, "p0").num_rows == 3
            assert not made()
            patch.setattr(beside, name, enough)
            assert asked(HOP, snapshot, "p0").num_rows == 3
            assert made()
        TABLES.clear()


def test_values_of_other_edges_of_the_same_tables_are_not_read(stored_snapshot: Callable[..., Any]) -> None:
    """Adjacency made anew may number nodes another way, and its edges stand in another order then."""
    snapshot = stored_snapshot(CATALOG, ROWS)
    want = asked(HOP, snapshot, "p4")
    before = kept()
    (edges,) = [key for key, entry in TABLES.kept.items() if isinstance(entry, Adjacency)]
    TABLES.kept.drop(edges)
    assert asked(HOP, snapshot, "p4").equals(want)
    after = kept()
    assert before
    assert all(after[key] is not entry for key, entry in before.items())


def test_what_another_writer_commits_is_read_at_once(tmp_path: Path) -> None:
    schema = "node Person { name: String @key  age: I32? }\nedge Knows: Person -> Person\n"
    ages = "query q($k: String) { match { $p: Person { name: $k } $p knows $f } return { $f.name, $f.age } }"
    older = "query u($n: String) { update Person set { age: 9 } where name = $n }"
    with omnigraph.Graph.init(tmp_path / "g", schema=schema) as graph, omnigraph.open(tmp_path / "g") as other:
        persons = [f'{{"type": "Person", "data": {{"name": "{name}", "age": 1}}}}' for name in "abc"]
        graph.load("\n".join([*persons, '{"edge": "Knows", "from": "a", "to": "b", "data": {}}']))
        for _ in range(4):
            assert graph.query(ages, {"k": "a"}).to_pylist() == [{"f.name": "b", "f.age": 1}]
        assert made()
        other.mutate(older, {"n": "b"})
        assert graph.query(ages, {"k": "a"}).to_pylist() == [{"f.name": "b", "f.age": 9}]
        other.load('{"edge": "Knows", "from": "a", "to": "c", "data": {}}')
        for _ in range(4):
            found = graph.query(ages, {"k": "a"}).to_pylist()
            assert sorted(row["f.name"] for row in found) == ["b", "c"]
