"""Indexes for search, on real storage: built once, extended, replaced where another maker's stands in the way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from omnigraph.maintain import ensure_indices, verify
from omnigraph.maintain.indices import wanted_indices
from omnigraph.schema import compile_schema
from omnigraph.storage import Repository, index_kinds
from omnigraph.storage.index_kinds import extend, text_index, vector_index
from omnigraph.write import load

SCHEMA = """
node Doc { slug: String @key  title: String? @index  text: String?  vec: Vector(4)? @index  n: I32? @index }
edge Cites: Doc -> Doc { why: String? @index }
"""
KEY = "node:Doc"


def docs(start: int, count: int, *, without: int = 0) -> dict[str, pa.Table]:
    """`count` nodes, the first `without` of them with neither title nor vector."""
    numbers = range(start, start + count)
    rng = np.random.default_rng(start)
    vectors: list[Any] = [None if i < without else rng.normal(size=4).astype(np.float32).tolist() for i in range(count)]
    return {
        "Doc": pa.table(
            {
                "slug": [f"d{i}" for i in numbers],
                "title": [None if i < without else f"Running the café {n % 7}" for i, n in enumerate(numbers)],
                "vec": pa.array(vectors, pa.list_(pa.float32(), 4)),
                "n": pa.array(numbers, pa.int32()),
            }
        )
    }


@pytest.fixture
def graph(tmp_path: Path) -> Repository:
    return Repository.create(str(tmp_path / "g"), compile_schema(SCHEMA))


def entry(graph: Repository, **how: Any) -> dict[str, Any]:
    return next(one for one in ensure_indices(graph, **how) if one["table_key"] == KEY)


def plan(graph: Repository, condition: str) -> str:
    return str(graph.snapshot().dataset(KEY).scanner(columns=["id"], filter=condition, prefilter=True).explain_plan())


def test_what_is_declared_is_built_and_what_has_too_few_rows_waits(graph: Repository) -> None:
    load(graph, docs(0, 300, without=60))
    done = entry(graph)
    assert done["built"] == ["id", "slug", "title", "title (words)", "n"]
    assert done["pending"] == [{"column": "vec (nearness)", "reason": "240 vectors, and an index takes 256"}]
    assert entry(graph)["built"] == []
    assert entry(graph)["pending"] == done["pending"]
    assert not [f for f in verify(graph).findings if f["kind"] == "index_coverage"]
    load(graph, docs(300, 100))
    assert entry(graph) | {"seconds": 0} == {
        "table_key": KEY,
        "rows": 400,
        "built": ["vec (nearness)"],
        "extended": ["id", "slug", "title", "title (words)", "n"],
        "pending": [],
        "seconds": 0,
    }
    dataset = graph.snapshot().dataset(KEY)
    assert vector_index(dataset, "vec") is not None
    assert text_index(dataset, "title") is not None
    load(graph, docs(390, 20), mode="merge")
    (finding,) = [f for f in verify(graph).findings if f["kind"] == "index_coverage" and f["table_key"] == KEY]
    assert finding["message"].startswith("the indexes on id, slug, title, title (words), vec (nearness), n cover 390")
    assert sorted(entry(graph)["extended"]) == sorted([*done["built"], "vec (nearness)"])


def test_conditions_are_answered_by_the_index_for_comparing_whatever_was_extended(graph: Repository) -> None:
    load(graph, docs(0, 300))
    entry(graph)
    assert "title_idx(BTree)" in plan(graph, "title = 'x'")
    load(graph, docs(300, 10))
    entry(graph)
    assert "title_idx(BTree)" in plan(graph, "title = 'x'")
    assert "title_idx(BTree)" in plan(graph, "starts_with(title, 'Run')")
    entity = graph.snapshot().catalog.nodes["Doc"]
    load(graph, docs(310, 10))
    dataset = graph.engine.store.latest(graph.snapshot().ref(KEY).location)
    assert len(extend(dataset, wanted_indices(entity))) == 6
    assert extend(dataset, wanted_indices(entity)) == []


def test_indexes_of_another_maker_are_replaced(graph: Repository) -> None:
    """Stemmed words, another metric, and the name of our BTREE taken: as graphs of 0.7 have them."""
    load(graph, docs(0, 300))
    dataset = graph.engine.store.latest(graph.snapshot().ref(KEY).location)
    dataset.create_scalar_index("slug", "INVERTED", name="slug_idx")
    dataset.create_scalar_index("title", "INVERTED", name="title_idx")
    dataset.create_index("vec", "IVF_FLAT", name="vec_idx", metric="L2", num_partitions=1)
    assert text_index(dataset, "title") is None
    assert vector_index(dataset, "vec") is None
    assert set(entry(graph)["built"]) == {"id", "slug", "title", "title (words)", "vec (nearness)", "n"}
    made = {i.name: i.index_type for i in graph.snapshot().dataset(KEY).describe_indices()}
    assert made == {
        "id_idx": "BTree", "slug_idx": "BTree", "title_idx": "BTree", "title_inverted_idx": "Inverted",
        "vec_vector_idx": "IVF_SQ", "n_idx": "BTree",
    }  # fmt: skip
    assert "slug_idx(BTree)" in plan(graph, "slug = 'd1'")
    assert entry(graph)["built"] == []


def test_a_vector_index_is_sized_by_the_vectors_and_not_by_the_rows(
    graph: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_kinds, "PARTITION_ROWS", 4)
    monkeypatch.setattr(index_kinds, "PQ_MIN_ROWS", 400)

    def made() -> tuple[str, int]:
        stats = graph.snapshot().dataset(KEY).stats.index_stats("vec_vector_idx")
        return stats["index_type"], stats["indices"][0]["num_partitions"]

    load(graph, docs(0, 2000, without=1700))
    assert "vec (nearness)" in entry(graph)["built"]
    assert made() == ("IVF_SQ", 75)
    load(graph, docs(2000, 1000, without=990))
    assert "vec (nearness)" in entry(graph)["extended"], "many more rows, but few more vectors"
    monkeypatch.setattr(index_kinds, "PARTITION_ROWS", 2)
    load(graph, docs(3000, 1000))
    assert "vec (nearness)" in entry(graph)["built"], "1310 vectors are too many for 75 partitions of 2"
    assert made() == ("IVF_PQ", 5), "Lance makes no more for the codes of so few"


def test_rows_without_a_vector_leave_the_index_of_vectors_as_it_is(
    graph: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lance can't extend an index of several partitions by nothing."""
    monkeypatch.setattr(index_kinds, "PARTITION_ROWS", 100)
    load(graph, docs(0, 300))
    entry(graph)
    load(graph, docs(300, 10, without=10))
    done = entry(graph)
    assert sorted(done["extended"]) == ["id", "n", "slug", "title", "title (words)"]
    assert done["built"] == done["pending"] == []
    assert not [f for f in verify(graph).findings if f["kind"] == "index_coverage" and f["table_key"] == KEY]
    assert entry(graph)["extended"] == []
    graph.optimize()
    load(graph, docs(310, 10, without=9))
    assert "vec (nearness)" in entry(graph)["extended"]
    near = graph.snapshot().near(KEY, "vec", docs(310, 10, without=9)["Doc"]["vec"][9].values.to_numpy(), 1, ["id"])
    assert near["id"].to_pylist() == ["d319"]
