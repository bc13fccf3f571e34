"""How long the languages take: `python hack/bench/languages.py`. Prints the median of each step in milliseconds."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

from omnigraph.query import compile as compiler
from omnigraph.query import compile_query, format_queries
from omnigraph.query.parser import parse_queries
from omnigraph.schema import compile_schema, ir_of, plan_migration
from omnigraph.schema.source import SourceText

SCHEMA = """
node Company { slug: String @key  name: String }
node Person {
  slug: String @key
  name: String @index
  age: I32?
  status: enum(active, left-us)
  @range(age, 0..150)
  @check(slug, "^[a-z0-9-]+$")
}
edge Knows: Person -> Person @card(0..500) { since: Date? }
edge WorksAt: Person -> Company
"""
QUERY = """
query friends($name: String, $min: I32?) @description("friends of friends, still looking for work") {
  match {
    $p: Person { name: $name }
    $p knows{1,3} $f
    $f.age >= $min
    not { $f worksAt $c }
  }
  return { $f.name as friend, count($f) as n }
  order { n desc, $f.name }
  limit 10
}
"""


def median(run: Callable[[], object], times: int) -> float:
    """Milliseconds."""
    took = []
    for _ in range(times):
        start = time.perf_counter()
        run()
        took.append(time.perf_counter() - start)
    return statistics.median(took) * 1e3


def compile_anew(catalog: compiler.Catalog) -> None:
    compiler._cache.clear()
    compile_query(QUERY, catalog)


def large_schema(types: int) -> str:
    """A schema of that many node types, as many edge types less one, and a few properties and constraints in each."""
    node = """
node T{0} implements Named @description("type {0}") {{
  slug: String @key  label: String?  size: U64?  state: enum(new, active, gone) @default("new")  tags: [String]
  seen: DateTime? @index  vec: Vector(8)? @embed("label")
  @range(size, 0..1000000) @check(slug, "^[a-z0-9-]+$") @unique(label, size)
}}"""
    edge = "edge E{0}: T{0} -> T{1} @card(0..9) {{ since: Date?  weight: F64?  @unique(src, dst) }}"
    nodes = [node.format(i) for i in range(types)]
    edges = [edge.format(i, i + 1) for i in range(types - 1)]
    return "\n".join(["interface Named { name: String @index }", *nodes, *edges])


def main() -> None:
    catalog = compile_schema(SCHEMA)
    large = large_schema(60)
    larger = compile_schema(large)
    accepted = ir_of(larger)
    changed = compile_schema(large.replace("weight: F64?", "weight: F64?  note: String?"))
    print(f"schema, 60 types     {median(lambda: compile_schema(large), 20):8.3f} ms   (aim: under 50)")
    print(f"schema, its IR       {median(lambda: ir_of(larger).identity, 20):8.3f} ms")
    print(f"schema, planned      {median(lambda: plan_migration(accepted, changed).digest, 20):8.3f} ms")
    print(f"schema, {len(SCHEMA.splitlines())} lines     {median(lambda: compile_schema(SCHEMA), 100):8.3f} ms")
    print(f"query, parsed        {median(lambda: parse_queries(SourceText(QUERY, 'q')), 200):8.3f} ms")
    print(f"query, compiled      {median(lambda: compile_anew(catalog), 200):8.3f} ms   (aim: under 2)")
    print(f"query, cached        {median(lambda: compile_query(QUERY, catalog), 2000):8.4f} ms   (aim: under 0.02)")
    queries = [QUERY.replace("query friends", f"query friends{n}") for n in range(450)]
    lines = sum(len(text.splitlines()) for text in queries)
    took = median(lambda: [format_queries(text) for text in queries], 3)
    print(f"formatted, {lines} lines  {took:8.0f} ms   (aim: 5,000 lines in about 1,000)")
    code = (
        "import time; t = time.perf_counter(); from omnigraph.query.parser import GRAMMAR; GRAMMAR.parser;"
        "print((time.perf_counter() - t) * 1e3)"
    )
    for name, environment in (("built", {"OMNIGRAPH_CACHE_DIR": os.devnull}), ("from the cache", {})):
        done = subprocess.run(
            [sys.executable, "-c", code], env=os.environ | environment, capture_output=True, text=True, check=True
        )
        print(f"import and grammar, {name}: {float(done.stdout):.0f} ms")


if __name__ == "__main__":
    main()
