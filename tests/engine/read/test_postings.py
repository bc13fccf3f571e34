"""A column's words: made at once and made from another version's are the same, and say what plain Python says."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from omnigraph.query import compile_query
from omnigraph.read import postings
from omnigraph.read.postings import TextIndex, refreshed
from omnigraph.read.search import phrase_rows, text_index
from omnigraph.read.tables import TableCache
from omnigraph.read.tokens import words_of
from omnigraph.schema import compile_schema
from omnigraph.storage import Repository
from omnigraph.write import load, mutate

SEEDS = range(40)


def said(texts: list[str | None], index: TextIndex) -> None:
    """The index says of every word which rows have it, how often, and where it stands."""
    want: dict[str, list[tuple[int, int]]] = {}
    cut = [words_of(t) if t is not None else [] for t in texts]
    for row, words in enumerate(cut):
        for word, times in Counter(words).items():
            want.setdefault(word, []).append((row, times))
    assert index.lengths.tolist() == [len(words) for words in cut]
    assert index.known.tolist() == [t is not None for t in texts]
    for word in {*want, "nowhere"}:
        number = index.number(word)
        if word not in want:
            assert number < 0 or not len(index.rows_of(number))
            continue
        rows, times = index.counts(number)
        assert list(zip(rows.tolist(), times.tolist(), strict=True)) == want[word]
        places = index.places(number)
        assert (np.diff(places) > 0).all()
        assert (index.codes[places] == number).all()
        assert len(places) == int(times.sum())
    for words in cut[:5]:
        if len(words) > 1:
            pair = words[:2]
            rows = [r for r, w in enumerate(cut) if any(w[i : i + 2] == pair for i in range(len(w)))]
            assert sorted(set(phrase_rows(index, pair).tolist())) == rows


def some_text(rng: random.Random) -> str | None:
    words = rng.choices(["a", "b", "Ça", "dog", "x1", "é", "zebra", "the"], k=rng.randrange(6))
    return None if rng.random() < 0.1 else rng.choice([" ", ", "]).join(words)


@pytest.mark.parametrize("seed", SEEDS)
def test_words_are_made_from_another_version(seed: int) -> None:
    rng = random.Random(seed)
    texts = [some_text(rng) for _ in range(rng.randrange(1, 25))]
    index = TextIndex.of(pa.array(texts, pa.string()))
    said(texts, index)
    for _ in range(3):
        back = [i for i in range(len(texts)) if rng.random() > 0.2]
        if rng.random() < 0.3:
            rng.shuffle(back)
        texts = [texts[i] for i in back]
        for _ in range(rng.randrange(4)):
            at = len(texts) if rng.random() < 0.7 else rng.randrange(len(texts) + 1)
            texts.insert(at, some_text(rng) if rng.random() < 0.7 else f"new{rng.randrange(3)} dog")
            back.insert(at, -1)
        index = refreshed(index, np.array(back, dtype=np.int64), pa.array(texts, pa.string()))
        said(texts, index)


def test_the_words_of_a_changed_table_are_made_from_those_before(
    stored_snapshot: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = compile_schema("node Doc { name: String @key  text: String? }")
    rows = {"node:Doc": [{"id": f"d{i}", "name": f"d{i}", "text": f"word{i % 5} of text {i}"} for i in range(40)]}
    repository = Repository.open(stored_snapshot(catalog, rows)._engine.store.root.uri)
    tables = TableCache()
    cut: list[int] = []

    def counted(texts: pa.Array[Any], real: Any = postings.tokenize) -> Any:
        cut.append(len(texts))
        return real(texts)

    monkeypatch.setattr(postings, "tokenize", counted)

    def look() -> None:
        now = repository.snapshot()
        table = tables.get(now, "node:Doc").load(now, ["id", "text"])
        said(table.column("text").to_pylist(), text_index(table, "text"))

    look()
    load(repository, '{"type": "Doc", "data": {"name": "d40", "text": "a fresh word"}}')
    look()
    for change in ('update Doc set { text: "changed" } where name = "d7"', 'delete Doc where name = "d3"'):
        mutate(repository, compile_query(f"query q() {{ {change} }}", catalog), {})
    look()
    assert cut == [40, 1, 1]
