"""Searches through the index of words say what reading everything says: before it is built and after, behind its back,
on branches, and with characters that it cuts otherwise than we do."""

from __future__ import annotations

import json
import random
import unicodedata
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import omnigraph
from omnigraph import read
from omnigraph.query import bind_params, compile_query
from omnigraph.read.compute import pc
from omnigraph.read.settings import ReadSettings
from omnigraph.read.tables import TABLES
from omnigraph.read.tokens import count_words, tokenize, words_of
from omnigraph.read.word_lookup import COMMON
from omnigraph.storage import Snapshot

SCHEMA = "node Doc { name: String @key  kind: I32 @index  text: String? @index }"
COLD = ReadSettings(small_table_rows=0)
STRANGE = ["e\u0301te\u0301", "ΟΔΟΣ", "Ɔ", "हिन्दी"]  # the index cuts these otherwise
VOCABULARY = [*(f"w{i}" for i in range(40)), "Ünï", "foo_bar", "naïve", "οδος", "日本語", "x²"]


def text_of(rng: random.Random) -> str | None:
    if rng.random() < 0.05:
        return None
    words = rng.choices(VOCABULARY, k=rng.randrange(1, 4)) + ([rng.choice(STRANGE)] if rng.random() < 0.03 else [])
    return rng.choice([" ", ", ", "-", "\n"]).join(words)


def line(name: str, rng: random.Random) -> str:
    data = {"name": name, "kind": rng.randrange(3), "text": text_of(rng)}
    return json.dumps({"type": "Doc", "data": data})


def says(fn: str, text: str | None, query: str) -> bool:
    have, want = words_of(text or ""), words_of(query)
    if fn == "search":
        return bool(set(have) & set(want))
    return bool(want) and any(have[i : i + len(want)] == want for i in range(len(have)))


def ask(snapshot: Snapshot, clauses: str, **params: Any) -> list[str]:
    TABLES.clear()
    declared = ", ".join(f"${name}: {'String' if isinstance(v, str) else 'I32'}" for name, v in params.items())
    text = f"query q({declared}) {{ match {{ $d: Doc {clauses} }} return {{ $d.name as n }} order {{ n }} }}"
    compiled = compile_query(text, snapshot.catalog)
    table = read.execute(compiled, snapshot, bind_params(compiled, params), settings=COLD)
    return list(table.column("n").to_pylist())


def ranked(snapshot: Snapshot, clauses: str, order: str, query: str, settings: ReadSettings) -> list[tuple[Any, ...]]:
    """Names, scores for the query and for another one, by a process that holds nothing."""
    TABLES.clear()
    text = (
        f"query q($q: String) {{ match {{ $d: Doc {clauses} }} return {{ $d.name as n, bm25($d.text, $q) as s, "
        f'bm25($d.text, "w3 w4") as other }} order {{ {order} }} }}'
    )
    compiled = compile_query(text, snapshot.catalog)
    table = read.execute(compiled, snapshot, bind_params(compiled, {"q": query}), settings=settings)
    return list(zip(*table.to_pydict().values(), strict=True))


def check_ranked(snapshot: Snapshot, rng: random.Random) -> None:
    """Scores through the index are those over columns in memory to the last bit, and all the rows that have one."""
    queries = (
        rng.choice(VOCABULARY),
        " ".join(rng.sample(VOCABULARY, 2)),
        rng.choice(STRANGE),
        "οδος w1 w1",
        "never",
        "?",
    )
    for query in queries:
        for clauses in ("", "$d.kind = 1", 'search($d.text, "w5 w6 w7 w8")'):
            order = rng.choice(["bm25($d.text, $q) desc", "bm25($d.text, $q)", "$d.kind, s desc", "s desc"])
            want = ranked(snapshot, clauses, order, query, ReadSettings())
            assert ranked(snapshot, clauses, order, query, COLD) == want, (query, clauses, order)


def check(snapshot: Snapshot, rng: random.Random) -> None:
    check_ranked(snapshot, rng)
    rows = snapshot.scan("node:Doc", ["name", "kind", "text"]).to_pylist()
    for fn in ("search", "match_text"):
        pair = next((row["text"] for row in rng.sample(rows, len(rows)) if row["text"] and " " in row["text"]), "?")
        for query in (rng.choice(VOCABULARY), pair, rng.choice(STRANGE), "οδος w1", "?"):
            want = sorted(row["name"] for row in rows if says(fn, row["text"], query))
            assert ask(snapshot, f"{fn}($d.text, $q)", q=query) == want, (fn, query)
            want = sorted(row["name"] for row in rows if says(fn, row["text"], query) and row["kind"] == 1)
            assert ask(snapshot, f"{fn}($d.text, $q) $d.kind = $k", q=query, k=1) == want, (fn, query)


def test_the_index_changes_no_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    asked: list[int] = []
    find = Snapshot.find_words

    def found(*args: Any, **how: Any) -> Any:
        out = find(*args, **how)
        asked.append(len(out))
        return out

    monkeypatch.setattr(Snapshot, "find_words", found)
    graph = omnigraph.init(tmp_path / "g", schema=SCHEMA)
    graph.load("\n".join(line(f"d{i:03}", rng) for i in range(300)))
    check(graph.snapshot(), rng)
    assert not asked
    graph.ensure_indices()
    check(graph.snapshot(), rng)
    graph.branches.create("draft", from_="main")
    for branch in ("main", "draft"):
        names = [f"d{rng.randrange(330):03}" for _ in range(25)]
        graph.load("\n".join(line(n, rng) for n in dict.fromkeys(names)), mode="merge", branch=branch)
        forget = "query q($n: String) { delete Doc where name = $n }"
        for n in rng.sample(range(300), 4):
            graph.mutate(forget, {"n": f"d{n:03}"}, branch=branch)
        check(graph.snapshot(branch), rng)
    graph.ensure_indices(branch="draft")
    graph.optimize(branch="draft")
    check(graph.snapshot("draft"), rng)
    check(graph.snapshot("main"), rng)
    assert len(asked) > 40
    assert any(asked)


def test_explain_says_that_the_index_answers(tmp_path: Path) -> None:
    graph = omnigraph.init(tmp_path / "g", schema=SCHEMA)
    graph.load("\n".join(line(f"d{i:03}", random.Random(i)) for i in range(50)))
    graph.ensure_indices()
    snapshot = graph.snapshot()
    text = 'query q() { match { $d: Doc match_text($d.text, "w1 w2") $d.kind = 1 } return { $d.name } }'
    compiled = compile_query(text, snapshot.catalog)
    TABLES.clear()
    assert "words through text_inverted_idx where `kind` = 1" in read.explain(compiled, snapshot, {}, settings=COLD)
    read.execute(compiled, snapshot, {})
    assert "filter, cached" in read.explain(compiled, snapshot, {}, settings=COLD)


def test_a_first_ranking_reads_the_rows_with_its_words_alone(tmp_path: Path) -> None:
    graph = omnigraph.init(tmp_path / "g", schema=SCHEMA)
    graph.load("\n".join(line(f"d{i:03}", random.Random(i)) for i in range(400)))
    graph.ensure_indices()
    snapshot = graph.snapshot()
    text = "query q($q: String) { match { $d: Doc } return { $d.name } order { bm25($d.text, $q) desc } limit 3 }"
    compiled = compile_query(text, snapshot.catalog)
    through = "words through text_inverted_idx, not cached"
    TABLES.clear()
    assert through in read.explain(compiled, snapshot, {"q": "w1"}, settings=COLD)
    assert through in read.explain(compiled, snapshot, {"q": "w1"}, settings=COLD, analyze=True)
    assert not TABLES.get(snapshot, "node:Doc").loaded
    everywhere = " ".join(VOCABULARY)
    TABLES.clear()
    assert through not in read.explain(compiled, snapshot, {"q": everywhere}, settings=COLD, analyze=True)
    assert through not in read.explain(compiled, snapshot, {"q": "w1"}, settings=COLD)  # its words are in memory now


@pytest.mark.parametrize("seed", range(8))
def test_words_are_counted_as_they_are_cut(seed: int) -> None:
    rng = random.Random(seed)
    pieces = ["a", "Z9", " ", "  ", ".", "\0", "_", *(["é", "e\u0301", "日本", "ß x"] if seed % 2 else [])]
    texts = [None if rng.random() < 0.1 else "".join(rng.choices(pieces, k=rng.randrange(6))) for _ in range(200)]
    for kind in (pa.string(), pa.large_string()):
        column: Any = pa.array(texts, kind)
        for part in (column, column.slice(17, 50), column.slice(3, 0)):
            words, starts = tokenize(part)
            assert count_words(part) == len(words) == int(starts[-1])


def test_of_common_characters_the_index_makes_what_we_make(tmp_path: Path) -> None:
    """Each stands between two letters; the words we cut must be found by the index alone."""
    graph = omnigraph.init(tmp_path / "g", schema=SCHEMA)
    every = [chr(c) for c in range(1, 0x1F650) if not 0xD800 <= c <= 0xDFFF]
    common = pc.match_substring_regex(pa.array(every), pattern=f"[{COMMON}]").to_numpy(zero_copy_only=False)
    seen = [c for c, known in zip(every, common, strict=True) if known]
    assert all(unicodedata.category(c) not in ("Cn", "Mn", "Mc") for c in seen)
    assert not {"Σ", "\u0301", "Ɔ", "İ"} & set(seen)
    some = [c for i, c in enumerate(seen) if ord(c) < 0x400 or i % 90 == 0]
    texts = {f"d{ord(c)}": f"a{c}b{ord(c)}z" for c in some}
    lines = [json.dumps({"type": "Doc", "data": {"name": n, "kind": 0, "text": t}}) for n, t in texts.items()]
    graph.load("\n".join(lines))
    graph.ensure_indices()
    snapshot = graph.snapshot()
    row_ids = dict(zip(*snapshot.scan("node:Doc", ["name", "_rowid"]).to_pydict().values(), strict=True))
    missed = [
        (name, text)
        for name, text in texts.items()
        if row_ids[name] not in snapshot.find_words("node:Doc", "text", [words_of(text)[-1]], every=True, most=9)
    ]
    assert not missed
    assert len(some) > 800
