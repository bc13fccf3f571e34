"""duckdb on a file: primary and foreign keys, which check what a graph checks, and an index for each look-up."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hack.bench.lines import Line

__all__ = ["Duck"]

_TABLES = {
    "social": """
create table person(key varchar primary key, name varchar not null, age integer not null, city varchar not null,
  bio varchar not null, vec float[64] not null);
create table company(key varchar primary key);
create table knows(src varchar not null references person(key), dst varchar not null references person(key));
create table works(src varchar not null references person(key), dst varchar not null references company(key))""",
    "study": """
create table person(id bigint primary key, name varchar, gender varchar, age bigint);
create table city(id bigint primary key, name varchar, state varchar, country varchar);
create table state(id bigint primary key, name varchar, country varchar);
create table country(id bigint primary key, name varchar);
create table interest(id bigint primary key, name varchar);
create table follows(src bigint references person(id), dst bigint references person(id));
create table lives_in(src bigint references person(id), dst bigint references city(id));
create table has_interest(src bigint references person(id), dst bigint references interest(id));
create table city_in(src bigint references city(id), dst bigint references state(id));
create table state_in(src bigint references state(id), dst bigint references country(id))""",
}
_FILES = {"person": "persons", "company": "companies"}  # of the social graph; all others are named as their tables
_UPSERT = (
    "insert into person select $k, $n, $a, $c, $b, $v::float[64] on conflict (key) do update set "
    "name = excluded.name, age = excluded.age, city = excluded.city, bio = excluded.bio"
)


class Duck:
    def _connect(self, target: Path) -> Any:
        import duckdb  # type: ignore[import-not-found, unused-ignore]  # a peer to measure against, no dependency

        return duckdb.connect(str(target))

    def load(self, files: Path, target: Path, data: str) -> None:
        connection = self._connect(target)
        connection.execute(_TABLES[data])
        for table in [words.split("(")[0].split()[-1] for words in _TABLES[data].split(";")]:
            name = _FILES.get(table, table) if data == "social" else table
            connection.execute(f"insert into {table} select * from read_parquet('{files / name}.parquet')")
        connection.execute("checkpoint")
        connection.close()

    def prepare(self, target: Path, data: str) -> None:
        connection = self._connect(target)
        if data == "social":
            connection.execute("create index knows_src on knows(src)")
        try:
            connection.execute("load fts")
            connection.execute("pragma create_fts_index('person', 'key', 'bio')")
        except Exception:  # noqa: BLE001  # not every duckdb comes with its search extension: then the line has no figure
            self._search = False
        connection.close()

    def open(self, target: Path, data: str) -> None:
        self._connection = self._connect(target)
        try:
            self._connection.execute("load fts")
            self._search = True
        except Exception:  # noqa: BLE001  # as above
            self._search = False

    def reader(self, line: Line) -> Callable[[dict[str, Any]], Any] | None:
        if line.sql is None or (line.name.startswith("bm25") and not self._search):
            return None
        connection, sql = self._connection, line.sql
        warnings.filterwarnings("ignore", message="Arrow output on a DB-API result")  # 3 % of it; a statement with
        # parameters has no other way
        if line.rows:
            return lambda params: connection.execute(sql, params).fetchall()
        return lambda params: connection.execute(sql, params).to_arrow_table()

    def rows(self, result: Any) -> list[list[Any]]:
        if isinstance(result, list):
            return [list(row) for row in result]
        return [list(row) for row in zip(*(column.to_pylist() for column in result.columns), strict=True)]

    def upsert(self, row: dict[str, Any]) -> None:
        self._connection.execute(_UPSERT, row)
