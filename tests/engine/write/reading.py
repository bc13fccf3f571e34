"""Reading sources of a small schema, for the tests of every format."""

from __future__ import annotations

from typing import Any

from omnigraph.errors import BadRequest
from omnigraph.schema import compile_schema
from omnigraph.write.findings import FILE, ROW, Findings
from omnigraph.write.mapping import Mapping
from omnigraph.write.rows import Reading
from omnigraph.write.sources import plan_sources

OPERATION = "01ARZ3NDEKTSV4RRFFQ69G5FAV"

CATALOG = compile_schema("""
node Person {
  slug: String @key
  age: I32?
  born: Date?
  seen: DateTime?
  status: enum(active, left)? @default("active")
  tags: [String]?
  vec: Vector(2)?
  big: U64?
  score: F32?
  @range(age, 0..150)
  @check(slug, "[a-z]+")
}
node Note { text: String? }
node Part { a: String  b: I32  @key(a, b) }
edge Knows: Person -> Person { since: Date? }
edge Uses: Part -> Part { n: I64? }
""")


def read_all(
    source: Any, mapping: Mapping | None = None, *, merge: bool = False
) -> tuple[dict[str, list[dict[str, Any]]], Findings, list[str]]:
    reading = Reading(CATALOG, OPERATION, merge=merge)
    out: dict[str, list[dict[str, Any]]] = {}
    with plan_sources(source, mapping, CATALOG) as plan:
        for file in plan.files:
            for batch in plan.read(file, reading):
                out.setdefault(batch.table_key, []).extend(batch.rows.to_pylist())
        lines: list[str] = []
        try:
            reading.findings.refuse(plan.locate)
        except BadRequest as error:
            lines = str(error).splitlines()
    return out, reading.findings, lines


def plain(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{k: v for k, v in row.items() if k not in (FILE, ROW) and v is not None} for row in rows]
