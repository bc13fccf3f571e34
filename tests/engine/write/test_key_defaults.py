"""A property of a key may have a default: a record or an insert that leaves it out names its row with the default."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from omnigraph.errors import BadRequest
from omnigraph.maintain import verify
from omnigraph.query import bind_params, compile_query
from omnigraph.schema import compile_schema
from omnigraph.storage import Repository
from omnigraph.write import export, load, mutate
from omnigraph.write.mapping import Mapping
from tests.engine.write.test_sources import write_rows

SCHEMA = """
node Doc { path: String  lang: String @default("en")  title: String?  @key(path, lang) }
edge Cites: Doc -> Doc { kind: String @default("plain")  note: String?  @key(src, dst, kind) }
"""
A, B = '["a","en"]', '["b","en"]'
CITES = json.dumps([A, B, "plain"], separators=(",", ":"))


@pytest.fixture
def graph(tmp_path: Path) -> Repository:
    return Repository.create(str(tmp_path / "g"), compile_schema(SCHEMA))


def run(repository: Repository, text: str) -> None:
    compiled = compile_query(f"query q() {{ {text} }}", repository.snapshot().catalog)
    mutate(repository, compiled, bind_params(compiled, {}))


def rows(repository: Repository, key: str) -> list[dict[str, Any]]:
    return repository.snapshot().scan(key).sort_by("id").to_pylist()


def test_an_insert_without_the_part_goes_over_the_row_of_the_default(graph: Repository) -> None:
    for title in ("one", "two"):
        run(graph, f'insert Doc {{ path: "a", title: "{title}" }}')
    run(graph, 'insert Doc { path: "a", lang: "de" }')
    run(graph, 'insert Doc { path: "b", lang: "en" }')
    found = [(r["id"], r["lang"], r["title"]) for r in rows(graph, "node:Doc")]
    assert found == [('["a","de"]', "de", None), (A, "en", "two"), (B, "en", None)]
    for _ in range(2):
        run(graph, 'insert Cites { from: ["a", "en"], to: ["b", "en"], note: "n" }')
    run(graph, 'insert Cites { from: ["a", "en"], to: ["b", "en"], kind: "other" }')
    assert [(r["kind"], r["note"]) for r in rows(graph, "edge:Cites")] == [("other", None), ("plain", "n")]
    assert CITES in {r["id"] for r in rows(graph, "edge:Cites")}
    with pytest.raises(BadRequest, match="lang"):
        run(graph, 'insert Doc { path: "c", lang: null }')
    assert verify(graph).ok


RECORDS = """
{"type": "Doc", "data": {"path": "a", "title": "TITLE"}}
{"type": "Doc", "data": {"path": "b", "lang": "en"}}
{"edge": "Cites", "from": ["a", "en"], "to": ["b", "en"], "data": {"note": "n"}}
"""


@pytest.mark.parametrize("mode", ["append", "merge", "overwrite"])
def test_records_without_the_part(graph: Repository, mode: Any) -> None:
    load(graph, RECORDS, mode=mode)
    assert [(r["id"], r["lang"], r["title"]) for r in rows(graph, "node:Doc")] == [(A, "en", "TITLE"), (B, "en", None)]
    assert [(r["id"], r["kind"]) for r in rows(graph, "edge:Cites")] == [(CITES, "plain")]
    before = sorted(export(graph.snapshot()))
    load(graph, RECORDS, mode="merge")
    assert sorted(export(graph.snapshot())) == before
    load(graph, '{"type": "Doc", "data": {"path": "a", "title": "new"}}', mode="merge")
    assert [r["title"] for r in rows(graph, "node:Doc")] == ["new", None]
    with pytest.raises(BadRequest, match="lang is required and has no value"):
        load(graph, '{"type": "Doc", "data": {"path": "c", "lang": null}}', mode=mode)


MAPPING = """
sources:
- {path: docs.SUFFIX, node: Doc}
- {path: cites.SUFFIX, edge: Cites, from: [a, al], to: [b, bl], columns: {note: said}}
"""
DOCS = {"path": ["a", "b"], "title": ["TITLE", None]}
LINKS = {"a": ["a"], "al": ["en"], "b": ["b"], "bl": ["en"], "said": ["n"]}


@pytest.mark.parametrize("suffix", ["parquet", "csv", "orc", "arrow", "ndjson"])
def test_files_without_the_column(graph: Repository, tmp_path: Path, suffix: str) -> None:
    write_rows(tmp_path / f"docs.{suffix}", pa.table(DOCS))
    write_rows(tmp_path / f"cites.{suffix}", pa.table(LINKS))
    mapping = Mapping.parse(MAPPING.replace("SUFFIX", suffix), base=tmp_path)
    for _ in range(2):
        load(graph, None, mapping=mapping, mode="merge")
    assert [(r["id"], r["lang"], r["title"]) for r in rows(graph, "node:Doc")] == [(A, "en", "TITLE"), (B, "en", None)]
    assert [(r["id"], r["kind"]) for r in rows(graph, "edge:Cites")] == [(CITES, "plain")]
    assert verify(graph).ok


def test_tables_in_memory_without_the_column_and_lines_of_which_some_have_it(graph: Repository, tmp_path: Path) -> None:
    load(graph, {"Doc": pa.table(DOCS)})
    (tmp_path / "docs.ndjson").write_text('{"path": "a", "lang": "de"}\n{"path": "a", "title": "x"}\n{"path": "c"}\n')
    mapping = Mapping.parse("sources: [{path: docs.ndjson, node: Doc}]", base=tmp_path)
    load(graph, None, mapping=mapping, mode="merge")
    found = [(r["id"], r["title"]) for r in rows(graph, "node:Doc")]
    assert found == [('["a","de"]', None), (A, "x"), (B, None), ('["c","en"]', None)]


def test_a_part_without_a_default_is_still_asked_for(tmp_path: Path, graph: Repository) -> None:
    pq.write_table(pa.table({"lang": ["en"]}), tmp_path / "docs.parquet")
    mapping = Mapping.parse("sources: [{path: docs.parquet, node: Doc}]", base=tmp_path)
    with pytest.raises(BadRequest, match="no column for the key property 'path'"):
        load(graph, None, mapping=mapping)
