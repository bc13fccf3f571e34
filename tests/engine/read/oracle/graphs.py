"""Random schemas and random graphs, as Python objects, and what a commit may change in them."""

from __future__ import annotations

import copy
import datetime as dt
import json
import random
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

__all__ = [
    "QUERY_VECTORS", "Change", "EdgeT", "Graph", "NodeT", "Prop", "Row", "Schema", "change", "schema", "start",
    "with_word_indexes",
]  # fmt: skip

Row = dict[str, Any]
Graph = dict[str, dict[str, Row]]
"""Table key → id → row."""

DAY = dt.date(2020, 2, 28)
MOMENT = dt.datetime(2020, 1, 1, 12, 30, 0, 5000, tzinfo=dt.UTC)
FIRST = dt.datetime.min.replace(tzinfo=dt.UTC)
LAST = dt.datetime.max.replace(tzinfo=dt.UTC, microsecond=999_000)
VECTORS = [[1, 0, 0], [0, 1, 0], [1, 1, 0], [-1, 0, 2], [0, 0, -1], [3, 1, 2]]
QUERY_VECTORS = [[1, 0, 0], [1, 2, 3], [-1, 1, 0]]
"""No two stored vectors are equally far from one of these but for equal sums of products: ties are exact or none."""
ROUNDED = [float(np.float32(x)) for x in (0.1, 0.2, 0.3)]
"""As F32 holds them: sums of them are rounded."""

POOLS: dict[str, list[Any]] = {
    "I32": [-2, 0, 1, 2, 3, 3, 2**31 - 1],
    "I64": [-(2**63), -(2**60), -1, 0, 1, 2, 2**53 + 1, 2**62, 2**62],
    "U32": [0, 1, 2, 2**32 - 1],
    "U64": [0, 1, 5, 2**63 + 1, 2**64 - 1],
    "F32": [-1.5, 0.0, 0.25, 2.0, *ROUNDED],
    "F64": [-2.5, -0.0, 0.0, 0.5, 3.0, 0.1, 0.2, 0.3],
    "Bool": [True, False],
    "Date": [DAY, DAY + dt.timedelta(1), DAY + dt.timedelta(400), dt.date(1969, 12, 31), dt.date.min, dt.date.max],
    "DateTime": [MOMENT, MOMENT + dt.timedelta(milliseconds=1), MOMENT + dt.timedelta(days=40, hours=9), FIRST, LAST],
    "String": ["", "a", "b", "ab", "é", "A%", "x y", "o'x", "12", "zebra", " a ", "😀", "e\u0301", "\0z", "a\nb", "ﬁ"],
    "enum(x, y, z-1)": ["x", "y", "z-1"],
    "text": [
        "Red fox",
        "red, RED fóx!",
        "a fox is red",
        "",
        "blue fox",
        "fux box, blue box",
        "STRASSE straße",
        "红 fox",
        "lone wolf",
        "İ grey wolf",
        "cafe\u0301 wolf, red",
        "😀 ﬁsh, fox\0red",
    ],
    "Vector(3)": VECTORS,
}


@dataclass(frozen=True)
class Prop:
    """A property: `type` without its `?`; `text` marks a String that is searched."""

    name: str
    type: str
    nullable: bool = True
    indexed: bool = False
    text: bool = False

    @property
    def written(self) -> str:
        return f"{self.name}: {self.type}{'?' if self.nullable else ''}{' @index' if self.indexed else ''}"

    def value(self, rng: random.Random) -> Any:
        if self.nullable and rng.randrange(4) == 0:
            return None
        if self.type.startswith("["):
            pool = POOLS[self.type[1:-1]]
            return [rng.choice(pool) for _ in range(rng.choice([0, 1, 1, 2, 3]))]
        return rng.choice(POOLS["text" if self.text else self.type])


@dataclass(frozen=True)
class NodeT:
    name: str
    key: tuple[str, ...]
    props: dict[str, Prop]
    interface: bool = False


@dataclass(frozen=True)
class EdgeT:
    name: str
    source: str
    target: str
    props: dict[str, Prop]

    @property
    def word(self) -> str:
        return self.name[0].lower() + self.name[1:]


@dataclass(frozen=True)
class Schema:
    nodes: dict[str, NodeT]
    edges: dict[str, EdgeT]

    def source(self) -> str:
        lines = ["interface Named { name: String }"]
        for node in self.nodes.values():
            head = f"node {node.name}{' implements Named' if node.interface else ''} {{ "
            body = "  ".join(p.written for p in node.props.values() if not (node.interface and p.name == "name"))
            lines.append(head + body + (f"  @key({', '.join(node.key)})" if node.key else "") + " }")
        for e in self.edges.values():
            body = "  ".join(p.written for p in e.props.values())
            lines.append(f"edge {e.name}: {e.source} -> {e.target} {{ {body} }}")
        return "\n".join(lines)

    def tables(self) -> list[str]:
        return [*(f"node:{n}" for n in self.nodes), *(f"edge:{e}" for e in self.edges)]


_KINDS = {
    "i": "I32", "l": "I64", "u": "U32", "ul": "U64", "f": "F32", "d": "F64", "ok": "Bool", "born": "Date",
    "seen": "DateTime", "s": "String", "city": "String", "kind": "enum(x, y, z-1)", "bio": "String",
    "tags": "[String]", "nums": "[I64]", "days": "[Date]", "vec": "Vector(3)",
}  # fmt: skip
_REQUIRED = ("tags",)
_INDEXABLE = frozenset(_KINDS) - {"tags", "nums", "days", "vec"}


def _props(rng: random.Random, names: list[str]) -> dict[str, Prop]:
    out = {}
    for name in names:
        nullable = name not in _REQUIRED and (name == "vec" or rng.randrange(5) > 0)
        indexed = name in _INDEXABLE and rng.randrange(3) == 0
        out[name] = Prop(name, _KINDS[name], nullable, indexed, text=name == "bio")
    return out


def schema(seed: int) -> Schema:
    """Two to four node types, of which one has nearly every kind of property, and edges among them."""
    rng = random.Random(f"schema {seed}")
    nodes, edges = {}, {}
    for number, name in enumerate(["Person", "Firm", "Place", "Note"][: rng.choice([2, 2, 3, 4])]):
        names = [n for n in _KINDS if number == 0 or rng.randrange(2)]
        props = _props(rng, names)
        key = ("name",) if number == 0 else rng.choice([("name",), ("code",), ("code", "part"), ("date",), (), ()])
        types = {"code": "I64", "part": "String", "date": "Date"}
        props = {k: Prop(k, types.get(k, "String"), nullable=False) for k in key} | props
        interface = number > 0 and rng.randrange(2) == 0
        if interface or number == 0:
            props["name"] = Prop("name", "String", nullable=False)
        nodes[name] = NodeT(name, key, props, interface or number == 0)
    others = list(nodes)
    wanted = [("Knows", "Person", "Person"), ("Likes", "Person", "Person"), ("Works", "Person", others[1])]
    wanted += [(name, rng.choice(others), rng.choice(others)) for name in ("Owns", "About")[: rng.choice([0, 1, 2])]]
    for name, source, target in wanted:
        known = ["i", "born", "bio", "d"]
        some = known if name == "Knows" else [n for n in ("i", "bio", "kind", "ok") if rng.randrange(2)]
        edges[name] = EdgeT(name, source, target, _props(rng, some))
    return Schema(nodes, edges)


def with_word_indexes(made: Schema) -> Schema:
    """The same, where every text that is searched has an index of its words."""
    nodes = {
        name: replace(node, props={k: replace(p, indexed=p.indexed or p.text) for k, p in node.props.items()})
        for name, node in made.nodes.items()
    }
    return replace(made, nodes=nodes)


# ---- graphs ----------------------------------------------------------------------------------------------------------


class _Maker:
    """Makes the row of a table with a number: the same one whatever other rows there are, so that fewer rows are fewer
    of the same."""

    def __init__(self, schema: Schema, seed: object) -> None:
        self.schema, self.seed = schema, seed

    def node(self, kind: NodeT, serial: int) -> Row:
        rng = random.Random(f"{self.seed} {kind.name} {serial}")
        row = {p.name: p.value(rng) for p in kind.props.values()}
        if kind.key:
            row[kind.key[0]] = _numbered(row[kind.key[0]], serial // 9)
        if not kind.key:
            row["id"] = f"{'zmb'[serial % 3]}{serial}"
        elif len(kind.key) == 1:
            value = row[kind.key[0]]
            row["id"] = value.isoformat() if isinstance(value, dt.date) else str(value)
        else:
            row["id"] = json.dumps([row[k] for k in kind.key], separators=(",", ":"), ensure_ascii=False)
        return row

    def edge(self, kind: EdgeT, graph: Graph, serial: int) -> Row | None:
        rng = random.Random(f"{self.seed} {kind.name} {serial}")
        near, far = list(graph[f"node:{kind.source}"]), list(graph[f"node:{kind.target}"])
        if not near or not far:
            return None
        src = near[rng.randrange(2**16) % len(near)]
        other = far[rng.randrange(2**16) % len(far)]
        dst = src if near == far and rng.randrange(5) == 0 else other  # loops among them
        row = {p.name: p.value(rng) for p in kind.props.values()}
        return row | {"id": f"{kind.name}-{'cab'[serial % 3]}{serial}", "src": src, "dst": dst}


def _numbered(value: Any, number: int) -> Any:
    """Another value for another number; itself for 0."""
    if isinstance(value, str):
        return value + str(number) if number else value
    more = dt.timedelta(1000 * number) if isinstance(value, dt.date) else number * 10
    return value - more if value == dt.date.max else value + more


def start(schema: Schema, seed: int, sizes: list[int]) -> Graph:
    """So many rows for every table (twice as many edges), as far as their ids differ."""
    maker = _Maker(schema, seed)
    graph: Graph = {key: {} for key in schema.tables()}
    size = dict(zip(graph, sizes, strict=False))
    for kind in schema.nodes.values():
        rows = graph[f"node:{kind.name}"]
        for serial in range(size[f"node:{kind.name}"]):
            row = maker.node(kind, serial)
            rows.setdefault(row["id"], row)
    for edge in schema.edges.values():
        rows = graph[f"edge:{edge.name}"]
        for serial in range(size[f"edge:{edge.name}"] * 2):
            made = maker.edge(edge, graph, serial)
            if made is not None:
                rows[made["id"]] = made
    return graph


@dataclass
class Change:
    """What one commit does to the tables, whole rows by id."""

    appends: dict[str, list[Row]]
    upserts: dict[str, list[Row]]
    deletes: dict[str, list[str]]


def change(schema: Schema, graph: Graph, seed: object) -> tuple[Graph, Change]:
    """A few rows deleted (nodes with their edges), a few written again, a few new ones, old ids among them.

    About half the tables are left alone, so that what is kept of them goes on beside what changes.
    """
    rng = random.Random(f"change {seed}")
    touched = {key for key in schema.tables() if rng.randrange(2)}
    maker = _Maker(schema, seed)
    after = copy.deepcopy(graph)
    done = Change({}, {}, {})
    for kind in schema.nodes.values():
        rows = after[f"node:{kind.name}"]
        for gone in _some(rng, list(rows), 2 if f"node:{kind.name}" in touched else 0):
            del rows[gone]
            for edge in schema.edges.values():
                table = after[f"edge:{edge.name}"]
                for e in [e for e in table.values() if gone in _ends(edge, e, kind.name)]:
                    del table[e["id"]]
    for edge in schema.edges.values():
        for gone in _some(rng, list(after[f"edge:{edge.name}"]), 2 if f"edge:{edge.name}" in touched else 0):
            del after[f"edge:{edge.name}"][gone]
    for key in schema.tables():
        entity = schema.nodes.get(key[5:]) or schema.edges[key[5:]]
        fixed = entity.key if isinstance(entity, NodeT) else ()
        rows, before = after[key], graph[key]
        for old in _some(rng, list(rows), 3 if key in touched else 0):
            new = {p.name: p.value(rng) for p in entity.props.values() if p.name not in fixed}
            rows[old] = rows[old] | new
            done.upserts.setdefault(key, []).append(rows[old])
        for _ in range(rng.choice([0, 1, 2, 3]) if key in touched else 0):
            serial = rng.randrange(40)
            made = maker.node(entity, serial) if isinstance(entity, NodeT) else maker.edge(entity, after, serial)
            if made is not None and made["id"] not in rows:
                rows[made["id"]] = made
                again = made["id"] in before  # deleted and written again in one commit is written over
                (done.upserts if again else done.appends).setdefault(key, []).append(made)
        done.deletes[key] = [i for i in before if i not in rows]
    return after, done


def _ends(edge: EdgeT, row: Row, kind: str) -> set[str]:
    ends = {row["src"]} if edge.source == kind else set()
    return ends | ({row["dst"]} if edge.target == kind else set())


def _some(rng: random.Random, items: list[str], most: int) -> list[str]:
    return rng.sample(items, min(len(items), rng.randrange(most + 1)))
