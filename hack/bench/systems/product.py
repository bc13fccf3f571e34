"""OmniGraph, as a program uses it: `omnigraph.Graph`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from hack.bench.lines import Line

__all__ = ["Product"]

_SCHEMAS = {
    "social": """
node Person {
  key: String @key
  name: String
  age: I32
  city: String @index
  bio: String @index
  vec: Vector(64)
}
node Company { key: String @key }
edge Knows: Person -> Person
edge WorksAt: Person -> Company
""",
    "study": """
node Person { num: I64 @key  name: String  gender: String  age: I64 }
node City { num: I64 @key  name: String  state: String  country: String }
node State { num: I64 @key  name: String  country: String }
node Country { num: I64 @key  name: String }
node Interest { num: I64 @key  name: String }
edge Follows: Person -> Person
edge LivesIn: Person -> City
edge HasInterest: Person -> Interest
edge CityIn: City -> State
edge StateIn: State -> Country
""",
}
_MAPPINGS = {
    "social": """
sources:
- {path: persons.parquet, node: Person}
- {path: companies.parquet, node: Company}
- {path: knows.parquet, edge: Knows, from: src, to: dst}
- {path: works.parquet, edge: WorksAt, from: src, to: dst}
""",
    "study": """
sources:
- {path: person.parquet, node: Person, columns: {num: id}}
- {path: city.parquet, node: City, columns: {num: id}}
- {path: state.parquet, node: State, columns: {num: id}}
- {path: country.parquet, node: Country, columns: {num: id}}
- {path: interest.parquet, node: Interest, columns: {num: id}}
- {path: follows.parquet, edge: Follows, from: src, to: dst}
- {path: lives_in.parquet, edge: LivesIn, from: src, to: dst}
- {path: has_interest.parquet, edge: HasInterest, from: src, to: dst}
- {path: city_in.parquet, edge: CityIn, from: src, to: dst}
- {path: state_in.parquet, edge: StateIn, from: src, to: dst}
""",
}
_UPSERT = """
query put($k: String, $n: String, $a: I32, $c: String, $b: String, $v: Vector(64)) {
  insert Person { key: $k, name: $n, age: $a, city: $c, bio: $b, vec: $v }
}"""


class Product:
    def load(self, files: Path, target: Path, data: str) -> None:
        import omnigraph
        from omnigraph.write.mapping import Mapping

        graph = omnigraph.Graph.init(target, schema=_SCHEMAS[data])
        graph.load(mapping=Mapping.parse(_MAPPINGS[data], base=files))

    def prepare(self, target: Path, data: str) -> None:
        import omnigraph

        omnigraph.Graph.open(target).ensure_indices()

    def open(self, target: Path, data: str) -> None:
        import omnigraph

        self._graph = omnigraph.Graph.open(target)

    def reader(self, line: Line) -> Callable[[dict[str, Any]], Any]:
        graph, text = self._graph, line.gq
        if line.rows:
            return lambda params: graph.query(text, params).to_pylist()
        return lambda params: graph.query(text, params).table

    def rows(self, result: Any) -> list[list[Any]]:
        found = result if isinstance(result, list) else result.to_pylist()
        return [list(row.values()) for row in found]

    def upsert(self, row: dict[str, Any]) -> None:
        self._graph.mutate(_UPSERT, row)
