"""Whatever compiles can be run: every mutation of the language's cases, one after another on one graph a schema."""

from __future__ import annotations

import datetime as dt
import random
import sys
from pathlib import Path
from typing import Any

import pytest

from omnigraph.errors import BadRequest, LanguageError
from omnigraph.query import compile_queries
from omnigraph.query.ir import CompiledQuery
from omnigraph.schema import Catalog, compile_schema
from omnigraph.schema.catalog import Type
from omnigraph.storage import Repository
from omnigraph.write import mutate

sys.path.insert(0, str(Path(__file__).parents[1] / "lang"))
from cases import read_cases


def value(type_: Type, rng: random.Random) -> Any:
    if type_.nullable and rng.random() < 0.3:
        return None
    if type_.list:
        return [value(Type(type_.base, enum=type_.enum), rng) for _ in range(rng.randrange(3))]
    moment = dt.datetime(2020, 1, 1, tzinfo=dt.UTC) + dt.timedelta(days=rng.randrange(900))
    return {
        "String": rng.choice(["a", "ab", "b", "7"]),
        "Enum": rng.choice(type_.enum or ("",)),
        "Bool": rng.random() < 0.5,
        "Blob": rng.randbytes(rng.randrange(5)),
        "Date": moment.date(),
        "DateTime": moment,
        "Vector": [rng.random() + 0.1 for _ in range(type_.dim)],
    }.get(type_.base, rng.randrange(5) if type_.base[0] in "IU" else rng.randrange(8) / 4)


def compiled_cases() -> list[tuple[str, Catalog, CompiledQuery]]:
    out = []
    catalogs: dict[str, Catalog] = {}
    for case in read_cases("query"):
        try:
            schema = case.schema
            catalog = catalogs.get(schema) or catalogs.setdefault(schema, compile_schema(schema))
            queries = compile_queries(case.text, catalog)
        except LanguageError:
            continue
        out += [(f"{case.id}: {q.name}", catalog, q) for q in queries.values() if q.kind == "mutation"]
    return out


@pytest.mark.parametrize("seed", range(1))
def test_every_mutation_of_the_cases_runs(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    graphs: dict[str, Repository] = {}
    changed = 0
    for title, catalog, query in compiled_cases():
        graph = graphs.get(catalog.hash)
        if graph is None:
            graph = graphs[catalog.hash] = Repository.create(str(tmp_path / str(len(graphs))), catalog)
        for _ in range(2):
            params = {p.name: value(p.type, rng) for p in query.params}
            try:
                changed += mutate(graph, query, params).commit is not None
            except Exception as error:
                if not isinstance(error, BadRequest):
                    raise AssertionError(f"{title}: {type(error).__name__}: {error}") from error
    assert changed > 10
