"""Whatever compiles can be run: every query of the language's cases, over some data and over none."""

from __future__ import annotations

import datetime as dt
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from omnigraph import read
from omnigraph.errors import BadRequest, LanguageError
from omnigraph.query import compile_queries
from omnigraph.query.ir import CompiledQuery
from omnigraph.schema import Catalog, compile_schema
from omnigraph.schema.catalog import Type

sys.path.insert(0, str(Path(__file__).parents[1] / "lang"))
from cases import read_cases

ANSWERS = frozenset(
    {"overflow", "division_by_zero", "bad_value", "out_of_range", "zero_vector", "no_embedder", None}
)  # what a query may say of the data or the parameters; None: a limit that is no number


def value(type_: Type, rng: random.Random, *, null: bool = True) -> Any:
    if null and type_.nullable and rng.random() < 0.3:
        return None
    if type_.list:
        return [value(Type(type_.base, enum=type_.enum), rng) for _ in range(rng.randrange(3))]
    moment = dt.datetime(2020, 1, 1, tzinfo=dt.UTC) + dt.timedelta(days=rng.randrange(900))
    return {
        "String": rng.choice(["a", "ab", "Red fox", "7", ""]),
        "Enum": rng.choice(type_.enum or ("",)),
        "Bool": rng.random() < 0.5,
        "Date": moment.date(),
        "DateTime": moment,
        "Vector": [rng.random() + 0.1 for _ in range(type_.dim)],
    }.get(type_.base, rng.randrange(5) if type_.base[0] in "IU" else rng.randrange(8) / 4)


def rows_of(catalog: Catalog, rng: random.Random) -> dict[str, list[dict[str, Any]]]:
    out: dict[str, list[dict[str, Any]]] = {}
    for name, node in catalog.nodes.items():
        out[f"node:{name}"] = [
            {
                "id": f"{name}{i}",
                **{p.name: value(p.type, rng) for p in node.properties.values() if p.type.base != "Blob"},
            }
            for i in range(6)
        ]
    for name, edge in catalog.edges.items():
        out[f"edge:{name}"] = [
            {
                "id": f"{name}{i}",
                "src": f"{edge.source}{rng.randrange(6)}",
                "dst": f"{edge.target}{rng.randrange(6)}",
                **{p.name: value(p.type, rng) for p in edge.properties.values() if p.type.base != "Blob"},
            }
            for i in range(9)
        ]
    return out


def compiled_cases() -> list[tuple[str, Catalog, CompiledQuery]]:
    out = []
    catalogs: dict[str, Catalog] = {}
    for case in read_cases("query"):
        try:
            catalog = catalogs.get(case.schema) or catalogs.setdefault(case.schema, compile_schema(case.schema))
            queries = compile_queries(case.text, catalog)
        except LanguageError:
            continue
        out += [(f"{case.id}: {q.name}", catalog, q) for q in queries.values() if q.kind == "read"]
    return out


@pytest.mark.parametrize("seed", range(4))
def test_every_read_of_the_cases_runs(memory_snapshot: Callable[..., Any], seed: int) -> None:
    rng = random.Random(seed)
    snapshots: dict[str, Any] = {}
    ran = 0
    for title, catalog, query in compiled_cases():
        if catalog.hash not in snapshots:
            snapshots[catalog.hash] = memory_snapshot(catalog, rows_of(catalog, rng) if seed else {})
        params = {p.name: value(p.type, rng) for p in query.params}
        for p in query.params:
            if p.name in ("limit", "n", "k", "skip", "count"):
                params[p.name] = params[p.name] if not isinstance(params[p.name], int) else abs(params[p.name])
        try:
            read.explain(query, snapshots[catalog.hash], params)
            table = read.execute(query, snapshots[catalog.hash], params)
            read.json_rows(table, query.columns)
        except Exception as error:
            if not isinstance(error, BadRequest) or error.code not in ANSWERS:
                raise AssertionError(f"{title}: {type(error).__name__}: {error}") from error
        else:
            assert table.column_names == [c.name for c in query.columns], title
            ran += 1
    assert ran > 100
