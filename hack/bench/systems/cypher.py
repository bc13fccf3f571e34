"""ladybug and kuzu, which share their interface: prepared statements, columns as Arrow where there are many rows."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from hack.bench.lines import Line

__all__ = ["Cypher"]

CHUNK = 10_000
"""Rows of an Arrow chunk; the default reserves for so many that a single row takes two milliseconds."""

_TABLES = {
    "social": """
create node table Person(key string primary key, name string, age int32, city string, bio string, vec float[64]);
create node table Company(key string primary key);
create rel table Knows(from Person to Person);
create rel table WorksAt(from Person to Company)""",
    "study": """
create node table Person(id int64 primary key, name string, gender string, age int64);
create node table City(id int64 primary key, name string, state string, country string);
create node table State(id int64 primary key, name string, country string);
create node table Country(id int64 primary key, name string);
create node table Interest(id int64 primary key, name string);
create rel table Follows(from Person to Person);
create rel table LivesIn(from Person to City);
create rel table HasInterest(from Person to Interest);
create rel table CityIn(from City to State);
create rel table StateIn(from State to Country)""",
}
_FILES = {
    "social": {"Person": "persons", "Company": "companies", "Knows": "knows", "WorksAt": "works"},
    "study": {
        "Person": "person", "City": "city", "State": "state", "Country": "country", "Interest": "interest",
        "Follows": "follows", "LivesIn": "lives_in", "HasInterest": "has_interest", "CityIn": "city_in",
        "StateIn": "state_in",
    },
}  # fmt: skip
_UPSERT = (
    "merge (p:Person {key: $k}) "
    'on match set p.name = $n, p.age = $a, p.city = $c, p.bio = $b, p.vec = cast($v, "float[64]") '
    'on create set p.name = $n, p.age = $a, p.city = $c, p.bio = $b, p.vec = cast($v, "float[64]")'
)


class Cypher:
    def __init__(self, module: str) -> None:
        self._module = module

    def _connect(self, target: Path) -> Any:
        module = import_module(self._module)
        return module.Connection(module.Database(str(target)))

    def load(self, files: Path, target: Path, data: str) -> None:
        connection = self._connect(target)
        for statement in _TABLES[data].split(";"):
            connection.execute(statement)
        for table, file in _FILES[data].items():
            connection.execute(f'copy {table} from "{files / file}.parquet"')
        connection.execute("checkpoint")
        connection.close()

    def prepare(self, target: Path, data: str) -> None:
        """The index of the key and the adjacency are there after the load."""

    def open(self, target: Path, data: str) -> None:
        self._connection = self._connect(target)

    def reader(self, line: Line) -> Callable[[dict[str, Any]], Any] | None:
        if line.cypher is None:
            return None
        connection = self._connection
        prepared = connection.prepare(line.cypher)

        if line.rows:
            return lambda params: connection.execute(prepared, params).get_all()
        return lambda params: connection.execute(prepared, params).get_as_arrow(CHUNK)

    def rows(self, result: Any) -> list[list[Any]]:
        if isinstance(result, list):
            return [list(row) for row in result]
        return [list(row) for row in zip(*(column.to_pylist() for column in result.columns), strict=True)]

    def upsert(self, row: dict[str, Any]) -> None:
        if not hasattr(self, "_upsert"):
            self._upsert = self._connection.prepare(_UPSERT)
        self._connection.execute(self._upsert, row)
