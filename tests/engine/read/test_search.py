"""Words, search predicates and rankings, against plain Python written from the reference."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph import read
from omnigraph.errors import BadRequest, LanguageError
from omnigraph.query import bind_params, compile_query
from omnigraph.read.postings import TextIndex
from omnigraph.read.search import near_words, phrase_rows
from omnigraph.read.settings import read_settings
from omnigraph.read.tokens import tokenize, words_of
from omnigraph.schema import compile_schema

CATALOG = compile_schema("""
node Doc { name: String @key  kind: String?  text: String?  vec: Vector(3)? }
edge Cites: Doc -> Doc { note: String? }
edge Quotes: Doc -> Doc { note: String? }
""")
TEXTS = {
    "a": "The quick brown fox jumps over the lazy dog",
    "b": "Quick, quick: a FÓX!",
    "c": "the dog sleeps",
    "d": None,
    "e": "",
    "f": "Brown foxes; brown dogs.",
}
VECTORS = {"a": [1, 0, 0], "b": [0, 2, 0], "c": [1, 1, 0], "d": None, "e": [-1, 0, 0], "f": [2, 0, 0]}
ROWS = {
    "node:Doc": [
        {"id": n, "name": n, "kind": "x" if n in "abc" else "y", "text": t, "vec": VECTORS[n]} for n, t in TEXTS.items()
    ],
    "edge:Cites": [
        {"id": "1", "src": "a", "dst": "b", "note": "see the fox"},
        {"id": "2", "src": "a", "dst": "c", "note": None},
        {"id": "3", "src": "c", "dst": "b", "note": "dog"},
    ],
}


@pytest.fixture
def ask(memory_snapshot: Callable[..., Any]) -> Callable[..., list[Any]]:
    snapshot = memory_snapshot(CATALOG, ROWS)

    def run(body: str, declared: str = "", **params: Any) -> list[Any]:
        compiled = compile_query(f"query q({declared}) {{ {body} }}", CATALOG)
        table = read.execute(compiled, snapshot, bind_params(compiled, params))
        rows = zip(*(c.to_pylist() for c in table.columns), strict=True)
        return [row[0] if len(row) == 1 else row for row in rows]

    return run


Ask = Callable[..., list[Any]]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Hello, World-42!", ["hello", "world", "42"]),
        ("snake_case a.b", ["snake", "case", "a", "b"]),
        ("Ärger Straße Œuvre Łódź ﬁn", ["arger", "strasse", "oeuvre", "lodz", "fin"]),
        ("e\u0301t\u00e9", ["ete"]),
        ("Привет МИР", ["привет", "мир"]),
        ("日本語 かが", ["日本語", "かが"]),
        ("हिन्दी", ["हिन्दी"]),
        ("x² ½", ["x2", "½"]),
        ("a\x00b", ["a", "b"]),
        ("", []),
        (" ,;!", []),
        ("😀smile😀", ["smile"]),
    ],
)
def test_words(text: str, expected: list[str]) -> None:
    assert words_of(text) == expected


def test_a_column_is_cut_as_its_texts_are() -> None:
    texts = ["one two", None, "", "thrée\x00four", "five", "  ", "Ünï six "]
    words, starts = tokenize(pa.array(texts))
    cut = [words.slice(a, b - a).to_pylist() for a, b in itertools.pairwise(starts)]
    assert cut == [words_of(t) if t else [] for t in texts]
    assert tokenize(pa.array(texts)[3:5])[0].to_pylist() == ["three", "four", "five"]
    assert tokenize(pa.array([], pa.string()))[1].tolist() == [0]


def edits(a: str, b: str) -> int:
    row = list(range(len(b) + 1))
    for i, x in enumerate(a):
        above, row = row, [i + 1]
        for j, y in enumerate(b):
            row.append(min(above[j] + (x != y), above[j + 1] + 1, row[j] + 1))
    return row[-1]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.text("abé", max_size=5), max_size=8), st.text("abé", max_size=5), st.integers(0, 2))
def test_near_words_are_those_within_the_edits(words: list[str], word: str, most: int) -> None:
    got = near_words(pa.array(words, pa.string()), word, most).tolist()
    assert got == [i for i, w in enumerate(words) if edits(w, word) <= most]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.lists(st.sampled_from("abc"), max_size=5), max_size=5), st.lists(st.sampled_from("abc"), max_size=3))
def test_a_phrase_stays_within_its_text(texts: list[list[str]], phrase: list[str]) -> None:
    index = TextIndex.of(pa.array([" ".join(t) for t in texts], pa.string()))
    want = [
        row for row, t in enumerate(texts) if phrase and any(t[i : i + len(phrase)] == phrase for i in range(len(t)))
    ]
    assert sorted(set(phrase_rows(index, phrase).tolist())) == want


@pytest.mark.parametrize(
    ("clause", "expected"),
    [
        ('search($d.text, "FOX sleeps")', ["a", "b", "c"]),
        ('match_text($d.text, "quick brown fox")', ["a"]),
        ('match_text($d.text, "dog sleeps the")', []),
        ('match_text($d.text, "brown fox quick")', []),
        ('fuzzy($d.text, "foxes")', ["f"]),
        ('fuzzy($d.text, "foxes", 2)', ["a", "b", "f"]),
        ('fuzzy($d.text, "dogs", 0)', ["f"]),
        ('search($d.text, "")', []),
        ('not search($d.text, "fox")', ["c", "e", "f"]),
        ('not (search($d.text, "fox")) and $d.kind = "y"', ["e", "f"]),
        ('search($d.text, "fox") is null', ["d"]),
        ("search($d.text, $q)", ["c"]),
        ("search($d.text, $none)", []),
        ('$d $w:cites $x  search($w.note, "FOX")', ["a"]),
        ('$d cites $x  search($x.text, "sleeps")', ["a"]),
        ('$d cites[search(note, "FOX")] $x', ["a"]),
        ('$d cites{1,2}[fuzzy(note, "dogs") or match_text(note, "the fox")] $x  $x.name = "b"', ["a", "c"]),
        ('$d cites[not search(note, "fox")] $x', ["c"]),
        ('optional { $d cites $x  $x.name = "c" } search($x.text, "dog")', ["a"]),
    ],
)
def test_search_predicates(ask: Ask, clause: str, expected: list[str]) -> None:
    body = f"match {{ $d: Doc {clause} }} return {{ $d.name as n }} order {{ n }}"
    assert ask(body, "$q: String, $none: String?", q="sleeps") == expected


def test_a_search_of_what_nothing_is_bound_to_is_unknown(memory_snapshot: Callable[..., Any]) -> None:
    catalog = compile_schema(
        "node Doc { name: String @key }  node Tag { text: String?  vec: Vector(2)? }  edge Has: Doc -> Tag"
    )
    snapshot = memory_snapshot(catalog, {"node:Doc": [{"id": "a", "name": "a"}]})
    text = """query q() { match { $d: Doc  optional { $d has $t }  search($t.text, "x") is null }
        return { $d.name as n, bm25($t.text, "x") as s, nearest($t.vec, [1, 0]) as d } }"""
    table = read.execute(compile_query(text, catalog), snapshot, {})
    assert table.to_pylist() == [{"n": "a", "s": None, "d": None}]


@pytest.mark.parametrize(
    "match",
    [
        'fuzzy($d.text, "foxes", $e)',
        '$d.name = "nobody" fuzzy($d.text, "foxes", $e)',
        '$d.name = "a" or fuzzy($d.text, "foxes", $e)',
        'not { $d cites $x fuzzy($x.text, "foxes", $e) }',
        'exists { $d cites{1,2}[fuzzy(note, "foxes", $e)] $x }',
    ],
)
def test_edits_are_judged_whatever_the_rows_are(ask: Ask, match: str) -> None:
    body = f"match {{ $d: Doc {match} }} return {{ $d.name }}"
    for e in range(3):
        assert ask(body, "$e: I64", e=e) == ask(body.replace("$e", str(e)))
    for e in (-1, 3):
        with pytest.raises(BadRequest, match=rf"parameter `e`: max_edits .* 0 to 2, and this is {e}") as refused:
            bind_params(compile_query(f"query q($e: I64) {{ {body} }}", CATALOG), {"e": e})
        assert (refused.value.code, refused.value.details) == ("bad_value", {"parameter": "e"})


def score(text: str | None, query: str) -> float | None:
    """BM25 as the reference gives it."""
    known = [words_of(t) for t in TEXTS.values() if t is not None]
    mean = sum(map(len, known)) / len(known)
    words = words_of(text or "")
    total = 0.0
    for term in set(words_of(query)):
        having = sum(term in other for other in known)
        rarity = math.log(1 + (len(known) - having + 0.5) / (having + 0.5))
        times = words.count(term)
        total += rarity * times * 2.2 / (times + 1.2 * (0.25 + 0.75 * len(words) / mean)) if times else 0.0
    return total if set(words) & set(words_of(query)) else None


def test_bm25_scores_over_the_whole_column(ask: Ask) -> None:
    for query in ("quick fox", "the dog brown", "nowhere"):
        rows = ask("match { $d: Doc } return { $d.name as n, bm25($d.text, $q) as s }", "$q: String", q=query)
        for name, got in rows:
            want = score(TEXTS[name], query)
            assert got == (want if want is None else pytest.approx(want))
    # Fewer rows, the same scores; best first; rows without a hit aren't ranked.
    ordered = 'match { $d: Doc $d.kind = "x" } return { $d.name as n, bm25($d.text, "quick fox dog") as s } order { s }'
    want = sorted(((score(TEXTS[n], "quick fox dog"), n) for n in "abc"), reverse=True)
    assert [n for n, _ in ask(ordered)] == [n for _, n in want]
    assert ask(ordered + " limit 1 skip 1")[0][1] == pytest.approx(want[1][0])


def test_bm25_of_an_edge_over_several_types_counts_all_of_them(memory_snapshot: Callable[..., Any]) -> None:
    quotes = [{"id": f"q{i}", "src": "b", "dst": "c", "note": f"fox number {i}"} for i in range(3)]
    snapshot = memory_snapshot(CATALOG, {**ROWS, "edge:Quotes": quotes})
    text = """query q() { match { $d: Doc { name: "a" } $d $w:(cites|quotes) $x }
        return { $w.id as w, bm25($w.note, "fox") as s } order { w } }"""
    # Five notes, four of them with a fox, 3 + 1 + 3 · 3 words: edge 1 has one fox in three words.
    want = math.log(1 + 1.5 / 4.5) * 2.2 / (1 + 1.2 * (0.25 + 0.75 * 3 / (13 / 5)))
    table = read.execute(compile_query(text, CATALOG), snapshot, {})
    assert table.to_pylist() == [{"w": "1", "s": pytest.approx(want)}, {"w": "2", "s": None}]


def test_bm25_of_a_few_rows_read_alone_is_that_of_the_table(
    stored_snapshot: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMNIGRAPH_READ_SMALL_TABLE_ROWS", "1")
    read_settings.cache_clear()
    try:
        filler = [{"id": f"z{i}", "name": f"z{i}", "text": None} for i in range(100)]
        snapshot = stored_snapshot(CATALOG, {"node:Doc": [*ROWS["node:Doc"], *filler]})
        text = 'query q() { match { $d: Doc { name: "b" } } return { bm25($d.text, "fox") as s } }'
        compiled = compile_query(text, CATALOG)
        assert "lance scan where `id` = 'b'" in read.explain(compiled, snapshot, {})
        table = read.execute(compiled, snapshot, {})
        assert table.column("s").to_pylist() == [pytest.approx(score(TEXTS["b"], "fox"))]
    finally:
        read_settings.cache_clear()


def test_nearest_is_the_cosine_distance(ask: Ask) -> None:
    body = "match { $d: Doc } return { $d.name as n, nearest($d.vec, $v) as d } order { d } limit 10"
    rows = ask(body, "$v: Vector(3)", v=[1, 0.5, 0])
    query = np.array([1, 0.5, 0])
    for name, distance in rows:
        vector = np.array(VECTORS[name])
        want = 1 - vector @ query / np.linalg.norm(vector) / np.linalg.norm(query)
        assert distance == pytest.approx(want)
    assert [n for n, _ in rows] == ["c", "a", "f", "b", "e"]  # a and f point the same way: by id
    filtered = 'match { $d: Doc $d.kind = "y" } return { $d.name as n } order { nearest($d.vec, [1, 0.5, 0]) } limit 1'
    assert ask(filtered) == ["f"]
    ends = (
        "match { $a: Doc $a cites $d } return { $a.name as a, $d.name as n } order { nearest($d.vec, $v) desc } limit 2"
    )
    assert ask(ends, "$v: Vector(3)", v=[1, 0, 0]) == [("a", "b"), ("c", "b")]


def test_distances_lie_between_0_and_2(memory_snapshot: Callable[..., Any]) -> None:
    """Of vectors of one direction too, where rounding alone would say a little less or more; ties then go by id."""
    catalog = compile_schema("node Doc { name: String @key  vec: Vector(3) }")
    one = np.random.default_rng(5).standard_normal((200, 3)).astype(np.float32)
    docs = [{"id": f"{i:03}", "name": f"{i:03}", "vec": v.tolist()} for i, v in enumerate([*one, *(2 * one), *-one])]
    snapshot = memory_snapshot(catalog, {"node:Doc": docs})
    columns = "$d.name as n, nearest($d.vec, $v) as x"
    asked = f"query q($v: Vector(3)) {{ match {{ $d: Doc }} return {{ {columns} }} order {{ x%s }} limit 2 }}"
    near, far = (compile_query(asked % how, catalog) for how in ("", " desc"))
    for i, vector in enumerate(one.tolist()):
        first = read.execute(near, snapshot, bind_params(near, {"v": vector})).to_pylist()
        assert [row["x"] for row in first] == pytest.approx([0, 0], abs=1e-12)
        assert all(row["x"] >= 0 for row in first)
        assert {row["n"] for row in first} == {f"{i:03}", f"{i + 200:03}"}
        last = read.execute(far, snapshot, bind_params(far, {"v": vector})).to_pylist()
        assert last[0]["n"] == f"{i + 400:03}"
        assert last[0]["x"] <= 2


def test_a_vector_without_direction_is_refused(ask: Ask) -> None:
    body = "match { $d: Doc } return { $d.name } order { nearest($d.vec, $v) } limit 1"
    with pytest.raises(BadRequest) as refused:
        ask(body, "$v: Vector(3)", v=[0, 0, 0])
    assert refused.value.code == "zero_vector"
    with pytest.raises(BadRequest) as refused:
        ask(body.replace("Doc ", 'Doc $d.name = "nobody" '), "$v: Vector(3)", v=[0, 0, 0])
    assert refused.value.code == "zero_vector"
    for zeros in ("[0, 0, 0]", "[1e-46, 0, -0.0]"):
        with pytest.raises(LanguageError, match="T15"):
            ask(body.replace("$v", zeros))


def test_rrf_joins_the_ranks_of_what_matches(ask: Ask) -> None:
    fused = 'rrf(nearest($d.vec, [1, 0.5, 0]), bm25($d.text, "quick dog"), k=10)'
    rows = ask(f"match {{ $d: Doc }} return {{ $d.name as n, {fused} as s }} order {{ s }} limit 2 skip 1")
    near = ["c", "a", "f", "b", "e"]
    text = sorted(
        (n for n in TEXTS if score(TEXTS[n], "quick dog")), key=lambda n: -(score(TEXTS[n], "quick dog") or 0)
    )
    scores = {n: sum(1 / (10 + r.index(n) + 1) for r in (near, text) if n in r) for n in "abcef"}
    want = sorted(scores.items(), key=lambda item: (-item[1], item[0]))[1:3]
    assert rows == [(n, pytest.approx(s)) for n, s in want]
    ordered = ask(f"match {{ $d: Doc }} return {{ $d.name as n }} order {{ {fused} }} limit 10")
    assert ordered == [n for n, _ in sorted(scores.items(), key=lambda item: (-item[1], item[0]))]
    narrowed = ask(f'match {{ $d: Doc $d.kind = "y" }} return {{ $d.name as n, {fused} as s }} order {{ s }} limit 1')
    assert narrowed == [("f", pytest.approx(1 / 11))]  # first of those that match


@pytest.mark.parametrize("seed", range(4))
def test_the_first_of_an_rrf_may_be_first_in_neither_ranking(seed: int, memory_snapshot: Callable[..., Any]) -> None:
    rng = random.Random(seed)
    names = [f"d{i:02}" for i in rng.sample(range(100), 60)]
    near, text = (rng.sample(range(1, 61), 60) for _ in range(2))  # the rank of each
    if seed == 0:  # the best of one is the last of the other
        near, text = list(range(1, 61)), [60, 2, *range(59, 2, -1), 1]
    rows = [
        {
            "id": name,
            "name": name,
            "text": "fox " * (61 - t) + "pad " * t,
            "vec": [math.cos(n / 50), math.sin(n / 50), 0],
        }
        for name, n, t in zip(names, near, text, strict=True)
    ]
    snapshot = memory_snapshot(CATALOG, {"node:Doc": rows})
    for k in (1, 60):
        scores = {name: 1 / (k + n) + 1 / (k + t) for name, n, t in zip(names, near, text, strict=True)}
        want = sorted(names, key=lambda name: (-scores[name], name))
        for count in (1, 2, 5, 60):
            fused = f'rrf(nearest($d.vec, [1, 0, 0]), bm25($d.text, "fox"), k={k})'
            body = f"match {{ $d: Doc }} return {{ $d.name as n }} order {{ {fused} }} limit {count}"
            compiled = compile_query(f"query q() {{ {body} }}", CATALOG)
            assert read.execute(compiled, snapshot, {}).column("n").to_pylist() == want[:count], (seed, k, count)
