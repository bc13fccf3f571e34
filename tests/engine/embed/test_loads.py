# ruff: noqa: E501  (texts are long lines)
"""Vectors made while loading, by a real server: which texts are asked for, which vectors stay, what a failure leaves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import omnigraph
from omnigraph import BadRequest, Graph, Unavailable
from omnigraph.write.spool import Spool
from tests.engine.embed import provider as p

SCHEMA = """
node Person { slug: String @key  age: I32?  bio: String?  vec: Vector(4)? @embed("bio", model="m") }
node Note { text: String @default("none")  must: Vector(3) @embed(text) }
edge Knows: Person -> Person
"""


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    return omnigraph.init(tmp_path / "g", schema=SCHEMA)


def person(slug: str, **data: Any) -> str:
    return json.dumps({"type": "Person", "data": {"slug": slug, **data}})


def rows(graph: Graph, key: str = "node:Person", branch: str = "main") -> dict[str, Any]:
    return {r["id"]: r for r in graph.snapshot(branch).scan(key).to_pylist()}


def unit(text: str, dim: int = 4) -> list[float]:
    vector = np.array(p.vector_of(text, dim))
    return list((vector / np.linalg.norm(vector)).astype(np.float32))


def asked(server: p.Provider) -> list[str]:
    texts = [t for r in server.requests for t in r.texts]
    server.requests.clear()
    return sorted(texts)


def test_missing_vectors_are_made_and_given_ones_kept(graph: Graph, configured: p.Provider) -> None:
    lines = [
        person("a", bio="one"),
        person("b", bio="two", vec=[0, 0, 3, 4]),
        person("c", bio="three", vec=None),
        person("d"),
        person("e", bio=" \t\n"),
        person("f", bio="one"),
    ]
    result = graph.load("\n".join(lines))
    assert asked(configured) == ["one"]
    found = {slug: row["vec"] for slug, row in rows(graph).items()}
    assert found == {"a": unit("one"), "b": [0, 0, 3, 4], "c": None, "d": None, "e": None, "f": unit("one")}
    assert (result.vectors, result.unfilled) == (2, (("Person.vec", 1),))
    assert graph.verify().ok


def test_tables_and_files_through_a_mapping_get_vectors_too(
    graph: Graph, configured: p.Provider, tmp_path: Path
) -> None:
    table = pa.table({"slug": ["a", "b", "c"], "bio": ["x", None, "y"]})
    graph.load({"Person": table})
    (tmp_path / "more.csv").write_text("slug,bio\nd,z\ne,\n")
    mapping = omnigraph.Mapping.parse(f"sources: [{{path: {tmp_path}/more.csv, node: Person}}]")
    graph.load(mapping=mapping, mode="append")
    found = {slug: row["vec"] for slug, row in rows(graph).items()}
    assert found == {"a": unit("x"), "b": None, "c": unit("y"), "d": unit("z"), "e": None}


def test_merge_keeps_the_vectors_of_unchanged_texts(graph: Graph, configured: p.Provider) -> None:
    graph.load(
        "\n".join(
            [
                person("a", bio="one", vec=[1, 0, 0, 0]),
                person("b", bio="two"),
                person("c", bio="three"),
                person("d", bio="four"),
            ]
        )
    )
    asked(configured)
    before = rows(graph)
    assert before["a"]["vec"] == [1, 0, 0, 0], "one that no provider would make of this text"
    lines = [
        person("a", bio="one", age=1),  # the same text
        person("b", bio="TWO"),  # another one
        person("c", age=3),  # the text isn't mentioned
        person("d", bio=None),  # no text any more
        person("e", bio="five"),  # new
    ]
    graph.load("\n".join(lines), mode="merge")
    assert asked(configured) == ["TWO", "five"]
    found = rows(graph)
    assert [found[s]["vec"] for s in "abcde"] == [
        before["a"]["vec"],
        unit("TWO"),
        before["c"]["vec"],
        None,
        unit("five"),
    ]
    assert found["a"]["age"] == 1
    graph.load(person("b", bio="TWO", vec=[1, 0, 0, 0]), mode="merge")
    graph.load(person("a", vec=None), mode="merge")
    assert asked(configured) == []
    assert rows(graph)["b"]["vec"] == [1, 0, 0, 0]
    assert rows(graph)["a"]["vec"] is None
    graph.load(person("a", bio="one"), mode="merge")
    assert rows(graph)["a"]["vec"] == unit("one"), "the text is given and its vector missing"
    assert graph.verify().ok


def test_of_repeated_records_the_last_text_counts(graph: Graph, configured: p.Provider) -> None:
    lines = [
        person("a", bio="one", vec=[1, 0, 0, 0]),
        person("a", bio="two"),
        person("b", bio="same", vec=[1, 0, 0, 0]),
        person("b", bio="same", age=2),
        person("c", bio="x"),
        person("c", vec=[0, 1, 0, 0]),
    ]
    graph.load("\n".join(lines), mode="merge")
    assert asked(configured) == ["two"]
    assert [rows(graph)[s]["vec"] for s in "abc"] == [unit("two"), [1, 0, 0, 0], [0, 1, 0, 0]]


def test_a_vector_that_must_be_there_is_made_or_asked_for(
    graph: Graph, configured: p.Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OMNIGRAPH_EMBED_MODEL", raising=False)
    graph.load('{"type": "Note", "data": {"text": "n"}}\n{"type": "Note", "data": {}}')
    assert asked(configured) == ["n", "none"]
    for record in ('{"text": " "}', '{"text": "x", "must": null}'):
        with pytest.raises(BadRequest, match="must is required"):
            graph.load(f'{{"type": "Note", "data": {record}}}')
    with pytest.raises(BadRequest, match="must is required"):
        graph.load('{"type": "Note", "data": {"text": "x"}}', embed="later")
    assert asked(configured) == []


def test_without_a_provider_or_later_vectors_wait_and_are_counted(
    graph: Graph, configured: p.Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph.load(person("a", bio="one"))
    asked(configured)
    result = graph.load(
        "\n".join([person("a", bio="two"), person("b", bio="b"), person("c")]), mode="merge", embed="later"
    )
    assert (result.vectors, result.unfilled) == (0, (("Person.vec", 2),))
    assert rows(graph)["a"]["vec"] is None, "the vector of another text would be found by it"
    monkeypatch.setenv("OMNIGRAPH_EMBED_PROVIDER", "none")
    assert graph.load(person("d", bio="d")).unfilled == (("Person.vec", 1),)
    monkeypatch.setenv("OMNIGRAPH_EMBED_WRITES", "sometimes")
    with pytest.raises(BadRequest, match="now or later"):
        graph.load(person("e"))
    assert asked(configured) == []


def test_a_refused_load_asks_for_nothing(graph: Graph, configured: p.Provider) -> None:
    for bad in (person("b", age="x"), '{"edge": "Knows", "from": "a", "to": "nobody"}'):
        with pytest.raises(BadRequest):
            graph.load(person("a", bio="one") + "\n" + bad)
    assert configured.requests == []


def test_a_provider_that_fails_leaves_the_graph_as_it_was(graph: Graph, configured: p.Provider) -> None:
    head = graph.head().id
    configured.default = p.status(500)
    with pytest.raises(Unavailable, match="status 500"):
        graph.load(person("a", bio="one"))
    configured.default = p.raw(lambda r: {"data": []})
    with pytest.raises(Unavailable, match="0 vectors for 1 texts"):
        graph.load(person("a", bio="one"), branch="draft", from_="main")
    assert ([b.name for b in graph.branches.list()], graph.head().id, graph.pending()) == (["main"], head, [])
    configured.default = None
    graph.load(person("a", bio="one"))
    assert rows(graph)["a"]["vec"] == unit("one")


def test_a_text_the_provider_refuses_is_named_with_its_line(graph: Graph, configured: p.Provider) -> None:
    configured.default = p.refusing(lambda text: text.startswith("bad"))
    lines = [person(f"p{i}", bio="bad " + str(i) if i in (3, 7) else f"good {i}") for i in range(12)]
    with pytest.raises(BadRequest, match="too long") as caught:
        graph.load("\n".join(lines))
    assert caught.value.details["counts"] == {"embed": 2}
    assert [r["source"] for r in caught.value.details["records"]] == ["<text>:4", "<text>:8"]
    assert len(graph.commits()) == 1
    configured.requests.clear()
    again = [
        person("p0", bio="good"),
        person("p1", bio="bad 1"),
        person("p1", age=1),
        person("p1", bio="bad 2"),
        person("p1", age=2),
    ]
    with pytest.raises(BadRequest, match="too long") as caught:
        graph.load("\n".join(again), mode="merge")
    assert [r["source"] for r in caught.value.details["records"]] == ["<text>:4"]  # of several, who gave the text


@pytest.mark.parametrize("bad", [{3}, set(range(6))])  # the first batch has nothing but bad texts
def test_a_text_the_provider_refuses_is_put_aside(
    graph: Graph, configured: p.Provider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bad: set[int]
) -> None:
    monkeypatch.setenv("OMNIGRAPH_EMBED_BATCH", "4")
    configured.default = p.refusing(lambda text: text.startswith("bad"))
    lines = [person(f"p{i}", bio=f"{'bad' if i in bad else 'good'} {i}") for i in range(12)]
    result = graph.load("\n".join(lines), quarantine=str(tmp_path / "bad.ndjson"))
    assert (result.rows, result.quarantined, result.vectors) == (12 - len(bad), len(bad), 12 - len(bad))
    assert {row["id"]: row["vec"] for row in rows(graph).values()} == {
        f"p{i}": unit(f"good {i}") for i in set(range(12)) - bad
    }
    assert len((tmp_path / "bad.ndjson").read_text().splitlines()) == len(bad)


@pytest.mark.parametrize("aside", [False, True])
def test_a_provider_that_refuses_every_text_blames_no_record(
    graph: Graph, configured: p.Provider, tmp_path: Path, aside: bool
) -> None:
    configured.default = p.status(400, b'{"error": {"message": "no such model"}}')
    lines = [person(f"p{i}", bio=f"text {i}") for i in range(600)]
    with pytest.raises(Unavailable, match=r"a harmless text is refused as well.*no such model") as caught:
        graph.load("\n".join(lines), quarantine=str(tmp_path / "bad.ndjson") if aside else None)
    assert (caught.value.code, caught.value.retryable) == ("embed_refused", False)
    assert len(configured.requests) <= 4 * 4
    assert (len(graph.commits()), list(tmp_path.glob("bad*"))) == (1, [])


def test_another_model_is_refused_before_anything_is_asked(
    graph: Graph, configured: p.Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMNIGRAPH_EMBED_MODEL", "other")
    with pytest.raises(BadRequest) as caught:
        graph.load(person("a", bio="one"))
    assert (caught.value.code, configured.requests) == ("embed_model", [])
    graph.load(person("b", bio="one"), embed="later")
    query = 'query q() { match { $p: Person } return { $p.slug } order { nearest($p.vec, "one") } limit 1 }'
    with pytest.raises(BadRequest) as caught:
        graph.query(query)
    assert caught.value.code == "embed_model"


def test_nearest_takes_a_text(graph: Graph, configured: p.Provider, monkeypatch: pytest.MonkeyPatch) -> None:
    graph.load("\n".join(person(t, bio=t) for t in ("alpha", "beta", "gamma")))
    asked(configured)
    query = "query q($t: String?) { match { $p: Person } return { $p.slug as s, nearest($p.vec, $t) as d } order { d } limit 2 }"
    assert graph.query(query, {"t": "beta"}).to_pylist()[0] == {"s": "beta", "d": pytest.approx(0, abs=1e-6)}
    assert configured.requests == [], "the vector of a stored text is known"
    graph.query(query, {"t": "delta"})
    assert [(r.texts, r.json["model"]) for r in configured.requests] == [(["delta"], "m")]
    assert len(graph.query(query, {})) == 0, "nothing is near a null"
    with pytest.raises(BadRequest, match="blank"):
        graph.query(query, {"t": "  "})
    configured.default = p.status(503)
    with pytest.raises(Unavailable):
        graph.query(query, {"t": "epsilon"})
    monkeypatch.setenv("OMNIGRAPH_EMBED_PROVIDER", "none")
    with pytest.raises(BadRequest) as caught:
        graph.query(query, {"t": "beta"})
    assert caught.value.code == "no_embedder"


def test_more_rows_than_are_held_at_a_time(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMNIGRAPH_EMBED_PROVIDER")
    monkeypatch.setenv("OMNIGRAPH_EMBEDDINGS_MOCK", "1")
    monkeypatch.setattr(Spool.__init__, "__defaults__", (100_000,))
    texts = {f"p{i}": f"text {i % 3000}" if i % 7 else None for i in range(10_000)}
    result = graph.load("\n".join(person(s, bio=t) for s, t in texts.items()))
    assert result.vectors == sum(t is not None for t in texts.values())
    found = rows(graph)
    assert all((found[s]["vec"] is None) == (t is None) for s, t in texts.items())
    same = [s for s, t in texts.items() if t == "text 17"]
    assert len({tuple(found[s]["vec"]) for s in same}) == 1
    assert graph.verify().ok
