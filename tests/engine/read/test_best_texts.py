"""The best rows by `bm25` without a score for every row, against a score for every row."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from omnigraph import read
from omnigraph.query import bind_params, compile_query
from omnigraph.read import best_texts
from omnigraph.read.best_texts import best_rows, weighed
from omnigraph.read.postings import TextIndex
from omnigraph.read.ranking import bm25_scores
from omnigraph.schema import compile_schema


def _text(rng: random.Random, words: int) -> str | None:
    if rng.random() < 0.05:
        return None
    return " ".join(f"w{int(words * rng.random() ** 3)}" for _ in range(rng.choice([0, 1, 3, 8])))


@pytest.mark.parametrize("seed", range(40))
def test_they_are_the_first_of_all_with_the_same_scores(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(seed)
    monkeypatch.setattr(best_texts, "_FEW", 0)
    words = rng.choice([3, 30, 300])
    index = TextIndex.of(pa.array([_text(rng, words) for _ in range(rng.choice([1, 40, 700]))], pa.string()))
    for _ in range(30):
        question = [f"w{rng.randrange(words + 2)}" for _ in range(rng.choice([0, 1, 2, 2, 4]))]
        few = rng.choice([None, 0.0, 0.3, 1.0])
        among = None if few is None else np.flatnonzero(np.array([rng.random() < few for _ in range(index.rows)]))
        count = rng.choice([1, 2, 10, 1000])
        scores = bm25_scores(index, question)
        asked = np.arange(index.rows) if among is None else among
        ranked = asked[scores[asked] > 0]
        edge = np.sort(scores[ranked])[-count] if count <= len(ranked) else 0.0
        want = ranked[scores[ranked] >= edge]
        known = weighed(index, question, index.texts, len(index.codes))
        found = best_rows(known, count, among)
        assert found is not None
        assert found[0].tolist() == want.tolist(), (seed, question, count)
        assert found[1].tolist() == scores[want].tolist(), "other scores"


def test_rows_with_a_common_word_alone_are_not_scored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(best_texts, "_FEW", 0)
    monkeypatch.setattr(best_texts, "once", lambda _: pytest.fail("the rows of both words are scored"))
    texts = ["common and rare"] * 3 + ["rare"] * 2 + ["common"] * 500 + ["other"] * 500
    index = TextIndex.of(pa.array(texts, pa.string()))
    found = best_rows(weighed(index, ["common", "rare"], index.texts, len(index.codes)), 3, None)
    assert found is not None
    assert found[0].tolist() == np.flatnonzero(bm25_scores(index, ["common", "rare"]) >= found[1].min()).tolist()


def test_of_words_that_many_rows_have_all_are_scored() -> None:
    index = TextIndex.of(pa.array(["a b"] * 64 + ["b"] * 64 + ["c"], pa.string()))
    common = weighed(index, ["c", "a"], index.texts, len(index.codes))
    assert best_rows(common, 2, None) is None
    assert best_rows(common, 0, None) is None
    found = best_rows(common, 1, None)
    assert found is not None
    assert found[0].tolist() == [128]


@pytest.mark.parametrize("tail", ["limit $n", "limit $n skip 1"])
def test_a_query_answers_as_if_all_were_scored(
    tail: str, memory_snapshot: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(len(tail))
    catalog = compile_schema("node D { key: String @key  text: String?  kind: I32 }")
    rows = [{"id": f"d{i}", "key": f"d{i}", "text": _text(rng, 60), "kind": rng.randrange(4)} for i in range(500)]
    snapshot = memory_snapshot(catalog, {"node:D": rows})
    for where in ("", "$d.kind >= 2", "$d.kind = 1", "$d.kind > 9"):
        text = (
            f"query q($q: String?, $n: I64) {{ match {{ $d: D {where} }} return {{ $d.key, bm25($d.text, $q) as s }} "
            f"order {{ bm25($d.text, $q) }} {tail} }}"
        )
        for direction in ("", " asc"):
            compiled = compile_query(text.replace("$q) }", f"$q){direction} }}"), catalog)
            for question in ("w1 w50", "w0", "w40 w41 w2", "nowhere", "", None):
                params = bind_params(compiled, {"q": question, "n": rng.choice([1, 5, 100])})
                answers = []
                for few in (0, 1 << 40):
                    monkeypatch.setattr(best_texts, "_FEW", few)
                    answers += [read.execute(compiled, snapshot, params) for _ in range(2)]
                assert all(answer.equals(answers[0]) for answer in answers), (where, question)
