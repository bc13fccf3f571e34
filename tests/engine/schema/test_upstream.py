"""Schemas and queries that the original (omnigraph 0.7.0) accepted are accepted here: tests/data/lang/upstream."""

from __future__ import annotations

from pathlib import Path

import pytest

from omnigraph.errors import LanguageError
from omnigraph.query import compile_queries
from omnigraph.schema import SchemaIR, compile_schema, ir_of

FOLDER = Path(__file__).parents[2] / "data" / "lang" / "upstream"
SCHEMAS = sorted(FOLDER.glob("*.pg"))
# `schema.gq` asks older versions of its schema too; `blob_value` was refused there as it is here.
REFUSED = {
    "maintained": [("T24", 15)],
    "schema": [("T1", 1), ("T1", 2), ("T1", 3), ("T1", 4), ("T6", 5)],
}


def test_they_are_there() -> None:
    assert [p.stem for p in SCHEMAS] == ["branches", "crash", "drift", "maintained", "schema", "types"]


@pytest.mark.parametrize("path", SCHEMAS, ids=lambda p: p.stem)
def test_the_schema_compiles(path: Path) -> None:
    schema = ir_of(compile_schema(path.read_text(encoding="utf-8"), file=path.name))
    assert SchemaIR.from_json(schema.to_json()) == schema


@pytest.mark.parametrize("path", SCHEMAS, ids=lambda p: p.stem)
def test_its_queries_compile(path: Path) -> None:
    catalog = compile_schema(path.read_text(encoding="utf-8"))
    text = path.with_suffix(".gq").read_text(encoding="utf-8")
    found: list[tuple[str, int]] = []
    try:
        assert len(compile_queries(text, catalog)) == text.count("query ")
    except LanguageError as error:
        found = [(d.code, d.span.line) for d in error.diagnostics if d.span]
    assert found == REFUSED.get(path.stem, [])
