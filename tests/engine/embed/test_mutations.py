"""A vector follows its text through inserts and updates."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import omnigraph
from omnigraph import BadRequest, Graph, Unavailable
from tests.engine.embed import provider as p
from tests.engine.embed.test_loads import asked, person, rows, unit

SCHEMA = """
node Person { slug: String @key  age: I32?  bio: String?  vec: Vector(4)? @embed("bio", model="m") }
node Note { n: I32?  text: String @default("none")  must: Vector(3) @embed(text) }
"""


@pytest.fixture
def graph(tmp_path: Path, configured: p.Provider) -> Graph:
    graph = omnigraph.init(tmp_path / "g", schema=SCHEMA)
    graph.load("\n".join(person(s, bio=s * 3, age=i) for i, s in enumerate("abc")))
    configured.requests.clear()
    return graph


def run(graph: Graph, body: str, **params: Any) -> Any:
    declared = ", ".join(f"${n}: {'Vector(4)' if isinstance(v, list) else 'String'}?" for n, v in params.items())
    return graph.mutate(f"query m({declared}) {{ {body} }}", params)


def vec(graph: Graph, slug: str) -> Any:
    return rows(graph)[slug]["vec"]


def test_an_insert_makes_its_vector(graph: Graph, configured: p.Provider) -> None:
    run(graph, 'insert Person { slug: "d", bio: $t }  insert Person { slug: "e" }', t="new text")
    assert asked(configured) == ["new text"]
    assert (vec(graph, "d"), vec(graph, "e")) == (unit("new text"), None)
    run(graph, 'insert Note { n: 1 }  insert Note { text: "other" }')
    assert asked(configured) == ["none", "other"]
    assert graph.verify().ok


def test_an_upsert_or_update_makes_the_vectors_of_texts_that_change(graph: Graph, configured: p.Provider) -> None:
    run(graph, 'update Person set { vec: $v } where slug = "a"', v=[1, 0, 0, 0])
    run(graph, 'insert Person { slug: "a", bio: "aaa", age: 9 }')  # the same text
    run(graph, 'update Person set { age: 7 } where slug = "b"')
    run(graph, "update Person set { bio: lower(bio) } where age > -1")  # changes nothing
    assert asked(configured) == []
    run(graph, 'update Person set { bio: concat_me } where slug = "b"'.replace("concat_me", 'upper("more")'))
    assert asked(configured) == ["MORE"]
    assert (vec(graph, "a"), vec(graph, "b"), vec(graph, "c")) == ([1, 0, 0, 0], unit("MORE"), unit("ccc"))
    run(graph, "update Person set { bio: $t } where age > -1", t="for all")
    assert asked(configured) == ["for all"], "one text, one vector"
    assert {tuple(r["vec"]) for r in rows(graph).values()} == {tuple(unit("for all"))}
    run(graph, 'update Person set { bio: null } where slug = "c"')
    assert (vec(graph, "c"), asked(configured)) == (None, [])
    assert graph.verify().ok


def test_a_given_vector_is_taken_as_it_is(graph: Graph, configured: p.Provider) -> None:
    run(graph, 'update Person set { bio: "x", vec: $v } where slug = "a"', v=[1, 0, 0, 0])
    run(graph, 'insert Person { slug: "b", bio: "x", vec: null }')
    run(
        graph,
        'update Person set { bio: "y" } where slug = "c"  update Person set { vec: $v } where slug = "c"',
        v=[0, 1, 0, 0],
    )
    assert asked(configured) == []
    assert [vec(graph, s) for s in "abc"] == [[1, 0, 0, 0], None, [0, 1, 0, 0]]
    run(
        graph,
        'update Person set { vec: $v } where slug = "a"  update Person set { bio: "z" } where slug = "a"',
        v=[0, 1, 0, 0],
    )
    assert (vec(graph, "a"), asked(configured)) == (unit("z"), ["z"])


def test_without_a_provider_the_old_vector_goes(
    graph: Graph, configured: p.Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph.mutate('query m() { update Person set { bio: "x" } where slug = "a" }', embed="later")
    monkeypatch.setenv("OMNIGRAPH_EMBED_PROVIDER", "none")
    run(graph, 'update Person set { bio: "x" } where slug = "b"')
    assert ([vec(graph, s) for s in "abc"], configured.requests) == ([None, None, unit("ccc")], [])
    with pytest.raises(BadRequest, match="must is required and has no value: give it, or a text in text and an emb"):
        run(graph, 'insert Note { text: "other" }')
    assert graph.verify().ok


def test_a_provider_that_fails_changes_nothing(
    graph: Graph, configured: p.Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = graph.head().id
    configured.default = p.status(503)
    with pytest.raises(Unavailable):
        run(graph, 'update Person set { bio: "x" } where slug = "a"')
    configured.default = p.status(400, b'{"error": "too long"}')
    with pytest.raises(BadRequest, match=r"Person 'a': vec: .*too long") as caught:
        run(graph, 'update Person set { bio: "x" } where slug = "a"')
    assert caught.value.details["counts"] == {"embed": 1}
    monkeypatch.setenv("OMNIGRAPH_EMBED_MODEL", "other")
    with pytest.raises(BadRequest) as caught:
        run(graph, 'update Person set { bio: "x" } where slug = "a"')
    assert caught.value.code == "embed_model"
    assert (graph.head().id, graph.pending(), vec(graph, "a")) == (head, [], unit("aaa"))
