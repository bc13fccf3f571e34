"""What clauses and queries mean: for each row in Python objects, the rows that come of it, by trying everything."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.engine.read.oracle.expressions import E, Ranking, TooMany, World, at
from tests.engine.read.oracle.graphs import Row

__all__ = ["Bind", "Block", "Column", "Key", "Query", "Walk", "counted", "exists", "fold"]

MOST_ROWS = 4_000


# ---- clauses ---------------------------------------------------------------------------------------------------------


@dataclass
class Walk:
    """`$a edge $b`. `edges` are (edge type, direction out, in or both); `path` makes it a shortest path."""

    a: str
    b: str
    types: tuple[str, str]
    edges: list[tuple[str, str]]
    written: str
    low: int = 1
    high: int = 1
    test: E | None = None  # over the row {"": edge}
    var: str | None = None
    path: str | None = None

    @property
    def text(self) -> str:
        hops = "" if self.low == self.high == 1 and not self.path else f"{{{self.low},{self.high}}}"
        where = "" if self.test is None else f"[{self.test.text.replace('$.', '')}]"
        edge = f"${self.var}:" if self.var else ""
        shortest = f"${self.path} = shortest " if self.path else ""
        return f"{shortest}{_end(self.a)} {edge}{self.written}{hops}{where} {_end(self.b)}"

    def names(self) -> list[str]:
        return [v for v in (self.a, self.b, self.var, self.path) if v]

    def steps(self, world: World) -> Iterator[tuple[str, str, Row]]:
        for edge, direction in self.edges:
            for e in world.graph[f"edge:{edge}"].values():
                if self.test is not None and self.test.of({"": e}, world) is not True:
                    continue
                if direction != "in":
                    yield e["src"], e["dst"], e
                if direction == "in" or (direction == "both" and e["src"] != e["dst"]):
                    yield e["dst"], e["src"], e

    def paths(self, steps: list[tuple[str, str, Row]], start: str) -> dict[str, tuple[list[str], list[str]]]:
        """Far end → the first of the shortest paths, by node ids and then by edge ids; its own loop for the start."""
        best: dict[str, tuple[list[str], list[str]]] = {start: ([start], [])}
        level = dict(best)
        out: dict[str, tuple[list[str], list[str]]] = {}
        for hop in range(1, self.high + 1):
            reached: dict[str, tuple[list[str], list[str]]] = {}
            for s, d, e in steps:
                loop = s == d == start and hop == self.low == 1
                if s in level and (d not in best or loop):
                    nodes, edges = level[s]
                    new = ([*nodes, d], [*edges, e["id"]])
                    if loop:
                        out[start] = min(out.get(start, new), new)
                    else:
                        reached[d] = min(reached.get(d, new), new)
            best |= reached
            level = reached
            if hop >= self.low:
                out |= reached
        return out

    def rows(self, rows: list[Row], world: World) -> list[Row]:
        near, far = (world.graph[f"node:{t}"] for t in self.types)
        steps = [(s, d, e) for s, d, e in self.steps(world) if s in near and d in far]
        made: dict[str, list[tuple[str, Any]]] = {}
        out = []
        for row in rows:
            starts = near if self.a not in row else [row[self.a]["id"]] if row[self.a] else []
            for a in starts:
                if a not in made:
                    if self.var:
                        made[a] = [(d, e) for s, d, e in steps if s == a]
                    elif self.types[0] == self.types[1]:
                        made[a] = list(self.paths(steps, a).items())
                    else:
                        made[a] = [(d, None) for d in dict.fromkeys(d for s, d, _ in steps if s == a)]
                for b, extra in made[a]:
                    if self.b in row and (row[self.b] is None or row[self.b]["id"] != b):
                        continue
                    if self.a == self.b and a != b:
                        continue
                    new = {**row, self.a: near[a], self.b: far[b]}
                    if self.var or self.path:
                        new[self.var or self.path or ""] = extra
                    out.append(new)
            if len(out) > MOST_ROWS:
                raise TooMany
        return out


def _end(name: str) -> str:
    return "$_" if name.startswith("_") else f"${name}"


@dataclass
class Bind:
    """`$v: Type { property: value }`."""

    var: str
    type: str
    shown: str = ""
    tests: list[E] = field(default_factory=list)

    @property
    def text(self) -> str:
        return f"${self.var}: {self.type}{f' {{ {self.shown} }}' if self.shown else ''}"

    def names(self) -> list[str]:
        return [self.var]


@dataclass
class Block:
    """Clauses that hold together. `order` is the order in which they are written, and in which they bind for ties."""

    binds: list[Bind] = field(default_factory=list)
    walks: list[Walk] = field(default_factory=list)
    tests: list[E] = field(default_factory=list)
    nots: list[Block] = field(default_factory=list)
    optionals: list[Block] = field(default_factory=list)
    order: list[int] = field(default_factory=list)

    @property
    def fails(self) -> bool:
        return any(t.fails for t in self.tests) or any(b.fails for b in (*self.nots, *self.optionals))

    @property
    def doubtful(self) -> bool:
        """Whether which of two conditions is asked first may decide whether there is an error."""
        late = sum(t.fails for t in self.tests) + sum(b.fails for b in (*self.nots, *self.optionals))
        return late > 1 or any(b.doubtful for b in (*self.nots, *self.optionals))

    def text(self) -> str:
        clauses = [c.text for c in (*self.binds, *self.walks)] + [f"({t.text})" for t in self.tests]
        clauses += [f"not {{ {b.text()} }}" for b in self.nots]
        clauses += [f"optional {{ {b.text()} }}" for b in self.optionals]
        order = sorted(range(len(clauses)), key=lambda i: (self.order[i] if i < len(self.order) else i, i))
        return "  ".join(clauses[i] for i in order)

    def bound(self) -> list[str]:
        """What it binds, in the order of ties: as first written."""
        clauses: list[list[str]] = [c.names() for c in (*self.binds, *self.walks)]
        clauses += [[] for _ in (*self.tests, *self.nots)] + [b.bound() for b in self.optionals]
        order = sorted(range(len(clauses)), key=lambda i: (self.order[i] if i < len(self.order) else i, i))
        return list(dict.fromkeys(name for i in order for name in clauses[i]))

    def reads(self) -> set[str]:
        """The variables it needs, from outside or its own."""
        out = set(self.bound()).union(*(t.names for t in (*self.tests, *(t for b in self.binds for t in b.tests))))
        return out.union(*(b.reads() for b in (*self.nots, *self.optionals)))

    def rows(self, row: Row, world: World) -> list[Row]:
        rows = [row]
        for bind in self.binds:
            nodes = list(world.graph[f"node:{bind.type}"].values())
            if bind.var in row:
                rows = [r for r in rows if r[bind.var] is not None]
            else:
                rows = [{**r, bind.var: n} for r in rows for n in nodes]
            _within(rows)
            rows = [r for r in rows if all(t.of(r, world) is True for t in bind.tests)]
        optional = {name for b in self.optionals for name in b.bound()} - set(row)
        walks = list(self.walks)
        waiting: list[tuple[set[str], bool, Any]] = [(set(t.names), t.fails, t) for t in self.tests]
        waiting += [(b.reads(), b.fails, b) for b in self.nots]
        own = {n for b in (*self.binds, *self.walks) for n in b.names()}
        later = set(optional) - own
        todo = list(self.optionals)
        while True:
            for walk in [w for w in walks if not {w.a, w.b} & later]:
                rows = walk.rows(rows, world)
                walks.remove(walk)
            for late in (False, True):
                for item in [w for w in waiting if not w[0] & later and w[1] == late]:
                    waiting.remove(item)
                    rows = [r for r in rows if _holds(item[2], r, world)]
            if not todo:
                return rows
            block = todo.pop(0)
            null = dict.fromkeys(block.bound())
            rows = [new for r in rows for new in (block.rows(r, world) or [{**null, **r}])]
            _within(rows)
            later -= set(block.bound())


def _within(rows: list[Row]) -> None:
    if len(rows) > MOST_ROWS:
        raise TooMany


def _holds(condition: E | Block, row: Row, world: World) -> bool:
    if isinstance(condition, Block):
        return not condition.rows(row, world)
    return condition.of(row, world) is True


def exists(block: Block) -> E:
    of = lambda r, w: bool(block.rows(r, w))  # noqa: E731
    return E(f"exists {{ {block.text()} }}", "bool", of, frozenset(block.reads()), block.fails)


def counted(block: Block) -> E:
    of = lambda r, w: len(block.rows(r, w))  # noqa: E731
    return E(f"count {{ {block.text()} }}", "int", of, frozenset(block.reads()), block.fails)


# ---- queries ---------------------------------------------------------------------------------------------------------


@dataclass
class Column:
    """A returned column. `fold` makes an aggregate of `value`; `ranking` stands for a value."""

    name: str
    text: str
    value: E
    fold: Callable[[list[Any]], Any] | None = None
    ranking: Ranking | None = None


@dataclass
class Key:
    """An order key: a column by its place, an expression, or a ranking."""

    text: str
    column: int | None
    value: E | None
    ranking: Ranking | None
    descending: bool


@dataclass
class Query:
    match: Block
    columns: list[Column]
    distinct: bool = False
    keys: list[Key] = field(default_factory=list)
    skip: int = 0
    limit: int | None = None
    shown_limit: str = ""
    params: dict[str, tuple[str, Any]] = field(default_factory=dict)  # name → (type, value)

    def text(self) -> str:
        head = ", ".join(f"${n}: {t}" for n, (t, _) in self.params.items())
        items = ", ".join(f"{c.text} as {c.name}" for c in self.columns)
        distinct = "distinct " if self.distinct else ""
        out = f"query q({head}) {{\n match {{ {self.match.text()} }}\n return {distinct}{{ {items} }}"
        if self.keys:
            out += f"\n order {{ {', '.join(k.text for k in self.keys)} }}"
        return f"{out}\n{self.shown_limit}\n}}"

    @property
    def grouped(self) -> bool:
        return any(c.fold for c in self.columns)

    @property
    def doubtful(self) -> bool:
        """Whether an error may or may not show: in a row that a limit cuts, or behind another condition."""
        return self.match.doubtful or self.limit is not None or bool(self.skip) or any(k.ranking for k in self.keys)

    def answer(self, world: World) -> list[tuple[Any, ...]]:
        """All rows in order, before the limit."""
        rows = self.match.rows({}, world)
        if self.grouped:
            return self._groups(rows, world)
        ranked = {r: r.values(rows, world) for r in self._rankings()}
        made = []
        ties = sorted((v for v in self.match.bound() if not v.startswith("path")), key=lambda v: v.startswith("_"))
        for i, row in enumerate(rows):
            cells = tuple(ranked[c.ranking][i] if c.ranking else c.value.of(row, world) for c in self.columns)
            keys = [
                cells[k.column] if k.column is not None else ranked[k.ranking][i] if k.ranking
                else k.value.of(row, world) if k.value else None for k in self.keys
            ]  # fmt: skip
            if any(k.ranking and v is None for k, v in zip(self.keys, keys, strict=True)):
                continue
            made.append((cells, keys, [row[v] and row[v]["id"] for v in ties]))
        if self.distinct:
            once = {_hashable(c): (c, k, [_ordered(x) for x in c]) for c, k, _ in reversed(made)}
            made = list(once.values())
        return [cells for cells, _, _ in self._sorted(made)]

    def _rankings(self) -> set[Ranking]:
        return {r for r in (*(c.ranking for c in self.columns), *(k.ranking for k in self.keys)) if r is not None}

    def _groups(self, rows: list[Row], world: World) -> list[tuple[Any, ...]]:
        plain = [c for c in self.columns if c.fold is None]
        groups: dict[Any, tuple[list[Any], list[Row]]] = {}
        for row in rows:
            key = [c.value.of(row, world) for c in plain]
            groups.setdefault(_hashable(key), (key, []))[1].append(row)
        if not plain:
            groups.setdefault((), ([], []))
        made = []
        for key, members in groups.values():
            parts = iter(key)
            cells = tuple(
                next(parts) if c.fold is None else c.fold([c.value.of(m, world) for m in members]) for c in self.columns
            )
            ties = cells if self.distinct else key
            made.append(
                (cells, [cells[k.column] for k in self.keys if k.column is not None], [_ordered(t) for t in ties])
            )
        if self.distinct:
            made = list({_hashable(m[0]): m for m in made}.values())
        return [cells for cells, _, _ in self._sorted(made)]

    def _sorted(self, made: list[Any]) -> list[Any]:
        if self.keys:
            made.sort(key=lambda m: [(t is not None, t if t is not None else 0) for t in m[2]])
            for at, key in reversed(list(enumerate(self.keys))):
                known = [m for m in made if m[1][at] is not None]
                nulls = [m for m in made if m[1][at] is None]
                known.sort(key=lambda m, at=at: _ordered(m[1][at]), reverse=False)  # type: ignore[misc]
                if key.descending:
                    known = _turned(known, at)
                made = known + nulls if key.descending else nulls + known
        return made


def _turned(rows: list[Any], at: int) -> list[Any]:
    """Greatest first; equal ones stay in their order."""
    out: list[Any] = []
    for row in rows:
        if out and _ordered(out[0][0][1][at]) == _ordered(row[1][at]):
            out[0].append(row)
        else:
            out.insert(0, [row])
    return [row for group in out for row in group]


def _ordered(value: Any) -> Any:
    """Something that sorts as the value does."""
    if isinstance(value, dict):
        return value["id"]
    return tuple(value) if isinstance(value, list) else value


def _hashable(value: Any) -> Any:
    if isinstance(value, dict):
        return value["id"]
    return tuple(map(_hashable, value)) if isinstance(value, (list, tuple)) else value


def _mean(known: list[float]) -> float:
    try:
        return math.fsum(known) / len(known)
    except OverflowError:  # of the sum; the average is no larger than what it is of
        return math.fsum(v / 2**64 for v in known) / len(known) * 2**64


def fold(fn: str, kind: str, *, distinct: bool) -> Callable[[list[Any]], Any]:
    """An aggregate over the values of a group."""

    def work(values: list[Any]) -> Any:
        known = [v for v in values if v is not None]
        if distinct:
            known = list({_hashable(v): v for v in known}.values())
        if fn == "count":
            return len(known)
        if fn == "collect":
            return sorted(known)
        if not known:
            return None
        if fn == "sum":
            return at("float", math.fsum(known)) if kind == "float" else at("int", sum(known))
        if fn == "avg":
            return _mean(known) if kind == "float" else sum(known) / len(known)
        return {"min": min, "max": max}[fn](known)

    return work
