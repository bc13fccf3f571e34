"""Random graphs and random queries, answered in every way the product has and by a plain evaluator: all equal.

The evaluator (`oracle/meaning.py`) tries every binding in Python objects, after the language's reference. Each query
runs with edges looked up, through adjacency, as the product chooses, and by scans alone; on graphs in memory, and on
repositories before and after commits, index builds and compactions, on main and on a branch, with and without anything
kept in memory.

OMNIGRAPH_ORACLE_EXAMPLES makes it longer, OMNIGRAPH_ORACLE_SEED repeats it.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, note, seed, settings
from hypothesis import strategies as st

from omnigraph.read import beside, word_lookup
from omnigraph.read.adjacency import adjacency
from omnigraph.read.tables import TABLES
from omnigraph.schema import compile_schema
from tests.engine.read.oracle.compared import MODES, answered, apart, difference, expected
from tests.engine.read.oracle.expressions import TooMany
from tests.engine.read.oracle.graphs import Graph, Schema, schema, start, with_word_indexes
from tests.engine.read.oracle.meaning import Query
from tests.engine.read.oracle.queries import queries
from tests.engine.read.oracle.states import STEPS, states

SEED = int(os.environ.get("OMNIGRAPH_ORACLE_SEED", random.randrange(2**32)))
EXAMPLES = int(os.environ.get("OMNIGRAPH_ORACLE_EXAMPLES", 4))
"""Repositories made; graphs in memory are a hundred times as many."""
QUIET: dict[str, Any] = {
    "deadline": None,
    "database": None,
    "print_blob": True,
    "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture],
}
SIZES = st.lists(st.sampled_from([0, 1, 3, 4, 5, 5, 6, 6, 7, 7, 7, 8, 8, 8, 9, 9, 9, 12, 12]), min_size=9, max_size=9)
SEEDS = st.integers(0, 2**32 - 1)


@pytest.fixture(autouse=True, scope="module")
def _says_its_seed() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(beside, "_WORTH", 0)  # values by edge are made by the first run that can
        patch.setattr(word_lookup, "_SHARE", 2)  # in small tables most words are in more than one of ten texts
        yield
    print(f"OMNIGRAPH_ORACLE_SEED={SEED}")


def agree(snapshot: Any, schema: Schema, graph: Graph, query: Query, *, forget: bool = False) -> None:
    """Every mode answers as the evaluator, and as the others to the last bit; with `forget` nothing is kept from one to
    the next."""
    note(query.text())
    note(f"with { {name: value for name, (_, value) in query.params.items()} }")
    try:
        want = expected(query, schema, graph)
    except TooMany:
        return
    answers = []
    for mode in MODES if want or want is None else ("auto", "scan"):  # nothing found tells little
        if forget:
            TABLES.clear()
            adjacency().clear()
        answers.append(answered(snapshot, query, mode))
        wrong = difference(query, answers[-1], want) or apart(query, answers[0], answers[-1])
        assert wrong is None, f"{mode}: {wrong}"


@st.composite
def questions(draw: st.DrawFn) -> tuple[Schema, Graph, list[Query]]:
    made = schema(draw(SEEDS))
    times = draw(st.sampled_from([1, 1, 1, 4]))
    graph = start(made, draw(SEEDS), [times * size for size in draw(SIZES)])
    return made, graph, draw(st.lists(queries(made), min_size=1, max_size=4))


@pytest.mark.timeout(600 + EXAMPLES * 20)
@seed(SEED)
@settings(max_examples=EXAMPLES * 100, **QUIET)
@given(asked=questions())
def test_queries_agree_with_the_evaluator(memory_snapshot: Any, asked: tuple[Schema, Graph, list[Query]]) -> None:
    made, graph, several = asked
    rows = {k: list(v.values()) for k, v in graph.items()}
    note(f"{made.source()}\n{rows}")
    snapshot = memory_snapshot(compile_schema(made.source()), rows)
    for query in several:
        agree(snapshot, made, graph, query)


@st.composite
def histories(draw: st.DrawFn) -> tuple[Schema, Graph, list[Query], int, list[bool]]:
    made, number = schema(draw(SEEDS)), draw(SEEDS)
    kept = [draw(st.integers(0, 15)) > 0 for _ in STEPS]
    several = draw(st.lists(queries(made), min_size=5, max_size=8))
    times = draw(st.sampled_from([1, 1, 6, 6]))  # small questions to small tables aren't looked up
    return made, start(made, number, [times * size for size in draw(SIZES)]), several, number, kept


@pytest.mark.timeout(600 + EXAMPLES * 60)
@seed(SEED)
@settings(max_examples=EXAMPLES, **QUIET)
@given(history=histories())
def test_every_state_of_a_repository_agrees_with_the_evaluator(
    tmp_path_factory: pytest.TempPathFactory, history: tuple[Schema, Graph, list[Query], int, list[bool]]
) -> None:
    made, graph, several, number, kept = history
    note(made.source())
    catalog = compile_schema(made.source())
    for state in states(tmp_path_factory.mktemp("graph") / "g", catalog, made, graph, number, kept):
        note(f"{state.name}: { {k: list(v.values()) for k, v in state.graph.items()} }")
        for query in several:
            agree(state.snapshot, made, state.graph, query, forget=not state.warm)


BESIDE = [step in ("commit", "index") and at < 3 for at, step in enumerate(STEPS)]
"""A commit, an index build and a commit that the indexes don't cover."""


@st.composite
def rankings(draw: st.DrawFn) -> tuple[Schema, Graph, list[Query], int]:
    made, number = with_word_indexes(schema(draw(SEEDS))), draw(SEEDS)
    several = draw(st.lists(queries(made, ranked=True), min_size=20, max_size=25))
    return made, start(made, number, draw(SIZES)), several, number


@pytest.mark.timeout(600 + EXAMPLES * 60)
@seed(SEED)
@settings(max_examples=EXAMPLES * 2, **QUIET)
@given(asked=rankings())
def test_rankings_beside_each_other_agree_with_the_evaluator(
    tmp_path_factory: pytest.TempPathFactory, asked: tuple[Schema, Graph, list[Query], int]
) -> None:
    """With nothing kept, so that an index of words is asked where there is one, and with what that left behind."""
    made, graph, several, number = asked
    note(made.source())
    catalog = compile_schema(made.source())
    for state in states(tmp_path_factory.mktemp("graph") / "g", catalog, made, graph, number, BESIDE):
        note(f"{state.name}: { {k: list(v.values()) for k, v in state.graph.items()} }")
        for query in several:
            agree(state.snapshot, made, state.graph, query, forget=True)
            if state.warm:
                agree(state.snapshot, made, state.graph, query)
