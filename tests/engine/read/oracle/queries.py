"""Random queries over a schema: everything a read query may be made of, always well typed."""

from __future__ import annotations

from functools import cache
from typing import Any

from hypothesis import strategies as st

from tests.engine.read.oracle import meaning as m
from tests.engine.read.oracle.draw_clauses import Clauses
from tests.engine.read.oracle.draw_expressions import SCALARS, SEARCHES, kind_of, shown
from tests.engine.read.oracle.expressions import E, Ranking, at, prop
from tests.engine.read.oracle.graphs import QUERY_VECTORS, Schema
from tests.engine.read.oracle.meaning import Block, Query

__all__ = ["Drawing", "queries"]

ORDERED = ("date", "enum", "float", "int", "text", "time", "unsigned")


class Drawing(Clauses):
    """Draws a whole query."""

    def query(self) -> Query:
        match = self.match()
        names = list(self.types)
        paths = [w.path for b in (match, *match.optionals) for w in b.walks if w.path]
        query = Query(match, [])
        return self.results(query, names, paths, self.pick(["rows", "rows", "distinct", "groups", "groups", "ranked"]))

    def ranked(self) -> Query:
        """Rows ordered by rankings with others beside them; most often those of a single variable, which an index may
        find."""
        if self.often(4):
            match = self.match()
        else:
            match = Block()
            types = [n for n, t in self.schema.nodes.items() if any(p.text for p in t.props.values())]
            type_ = self.pick(types or self.schema.nodes)
            match.binds.append(self.bind(type_, self.new_node(type_)))
            if self.often(3):
                match.tests.append(self.condition(list(self.types), 1))
        how = self.pick(["ranked", "ranked", "ranked", "ranked", "distinct"])
        return self.results(Query(match, []), list(self.types), [], how)

    def results(self, query: Query, names: list[str], paths: list[str], how: str) -> Query:
        """What is returned of a match, in which order and how many rows."""
        ranked = self.ranking(names) if how == "ranked" else None
        for i in range(self.number(*((0, 2) if how == "groups" else (1, 3)))):
            query.columns.append(self.returned(f"c{i}", names, paths))
        if how == "groups":
            for i in range(self.number(2, 4)):
                query.columns.append(self.aggregate(f"g{i}", names))
        self.scores(query, names, how, ranked)
        query.distinct = how == "distinct" or (how == "groups" and self.often(8))
        if ranked is not None:
            down = self.pick([None, True, False])
            word = {None: "", True: " desc", False: " asc"}[down]
            query.keys.append(
                m.Key(ranked.text + word, None, None, ranked, ranked.descending if down is None else down)
            )
            if self.often(4) and (second := self.ranking(names)) is not None:
                query.keys.append(m.Key(f"{second.text} desc", None, None, second, True))
        scored = [i for i, c in enumerate(query.columns) if c.ranking is not None]
        if scored and how != "ranked" and self.often(2):
            i = self.pick(scored)
            ranked = query.columns[i].ranking
            assert ranked is not None
            query.keys.append(m.Key(query.columns[i].name, i, None, ranked, ranked.descending))
        self.order(query, names, ranked)
        if any(k.ranking for k in query.keys) or self.often(3):
            query.limit, query.shown_limit = self.count("limit", self.pick([1, 2, 1, 2, 3, 5, 0]))
        if self.often(4):
            query.skip, text = self.count("skip", self.pick([1, 1, 2, 0, 3]))
            query.shown_limit += f" {text}"
        query.params = self.params
        return query

    def scores(self, query: Query, names: list[str], how: str, ranked: Ranking | None) -> None:
        """Columns of rankings: of the one that orders, and of others."""
        if how == "groups":
            return
        found = [ranked if ranked is not None and self.often(2) else None]
        beside = self.pick([0, 1, 1, 2]) if ranked is not None else int(self.often(6))
        found += [self.ranking(names, fused_in=2) for _ in range(beside)]
        for i, ranking in enumerate(r for r in found if r is not None):
            value = E("", "float", lambda r, w: None)
            query.columns.append(m.Column(f"score{i}", ranking.text, value, ranking=ranking))

    def count(self, word: str, value: int) -> tuple[int, str]:
        if self.often(4):
            name = self.fresh("k")
            self.params[name] = ("I64", value)
            return value, f"{word} ${name}"
        return value, f"{word} {value}"

    def returned(self, name: str, names: list[str], paths: list[str]) -> m.Column:
        how = self.pick(["value", "value", "entity", "id", "list"])
        if paths and self.often(2):
            z = self.pick(paths)
            fn, at = self.pick([("length", 1), ("nodes", 0), ("edges", 1)])
            work = lambda v: len(v[1]) if fn == "length" else list(v[at])  # noqa: E731
            of = lambda r, w: None if r[z] is None else work(r[z])  # noqa: E731
            value = E(f"{fn}(${z})", "int" if fn == "length" else "[text]", of, frozenset({z}))
            return m.Column(name, value.text, value)
        if how in ("entity", "id") and names:
            var = self.pick(names)
            key = self.types[var]
            entity = self.schema.nodes.get(key[5:]) if key.startswith("node:") else self.schema.edges.get(key[5:])
            ends = ["id"] if key.startswith("node:") else ["id", "src", "dst"]
            if how == "id" or entity is None:
                value = prop(var, self.pick(ends), "text")
                return m.Column(name, value.text, value)
            kept = [*ends, *(p.name for p in entity.props.values() if kind_of(p) != "vector")]
            of = lambda r, w: None if r[var] is None else {k: r[var][k] for k in kept}  # noqa: E731
            return m.Column(name, f"${var}", E(f"${var}", "entity", of, frozenset({var})))
        value = self.a_list(names) if how == "list" else self.value(names, self.pick(SCALARS), 2)
        if value.kind == "enum" and "$" not in value.text:
            value = self.value(names, "int", 1)
        return m.Column(name, value.text, value)

    def aggregate(self, name: str, names: list[str]) -> m.Column:
        fn = self.pick(["count", "count", "count", "sum", "avg", "min", "max", "collect"])
        distinct = "distinct " if self.often(3) else ""
        if fn == "count" and names and self.often(3):
            var = self.pick(names)
            whole = E(f"${var}", "entity", lambda r, w: r[var] and r[var]["id"])
            return m.Column(
                name, f"count({distinct}{whole.text})", whole, m.fold("count", "entity", distinct=bool(distinct))
            )
        kinds = {"sum": ["int", "float", "unsigned"], "avg": ["int", "float", "unsigned"]}.get(
            fn, ["int", "text", "float", "date", "time", "enum"] + (["bool"] if fn in ("count", "collect") else [])
        )
        kind = self.pick(kinds)
        value = self.column(names, kind) if kind in ("float", "enum") or self.often(2) else self.value(names, kind, 1)
        folded = m.fold(fn, kind, distinct=bool(distinct))
        if fn in ("sum", "count") and self.often(4) and kind != "unsigned":
            number = float if fn == "sum" and kind == "float" else int
            both = lambda v: at("float" if number is float else "int", number(folded(v) or 0) * 2)  # noqa: E731
            return m.Column(name, f"coalesce({fn}({distinct}{value.text}), 0) * 2", value, both)
        return m.Column(name, f"{fn}({distinct}{value.text})", value, folded)

    def ranking(self, names: list[str], *, fused_in: int = 3) -> Ranking | None:
        """One, once in so many times `rrf` of two."""
        texts = [(v, p) for v, p in self.props(names, "text") if p.text]
        vectors = self.props(names, "vector")
        one = self.simple(vectors, texts)
        if one is None or not self.often(fused_in):
            return one
        other = self.simple(vectors, texts)
        assert other is not None
        k = self.pick([60, 1])
        text = f"rrf({one.text}, {other.text}{', k=1' if k == 1 else ''})"
        return Ranking("rrf", text, parts=(one, other), k=k)

    def simple(self, vectors: list[Any], texts: list[Any]) -> Ranking | None:
        if not vectors and not texts:
            return None
        if vectors and (not texts or self.often(2)):
            var, p = self.pick(vectors)
            vector = self.pick(QUERY_VECTORS)
            shown_vector = shown(vector)
            if self.often(3):
                name = self.fresh("k")
                self.params[name] = ("Vector(3)", vector)
                shown_vector = f"${name}"
            return Ranking(
                "nearest", f"nearest(${var}.{p.name}, {shown_vector})", var, p.name, self.types[var], tuple(vector)
            )
        var, p = self.pick(texts)
        query = self.pick(SEARCHES)
        return Ranking("bm25", f"bm25(${var}.{p.name}, {shown(query)})", var, p.name, self.types[var], query)

    def order(self, query: Query, names: list[str], ranked: Ranking | None) -> None:
        columns = query.columns
        sortable = [
            i for i, c in enumerate(columns)
            if c.ranking is None and "collect" not in c.text and c.value.kind != "entity"
            and (c.fold is not None or not c.value.kind.startswith("["))
        ]  # fmt: skip
        sortable += [i for i, c in enumerate(columns) if c.fold and c.value.kind == "entity"]
        if not self.often(4):
            nearest = any(k.ranking is not None and "nearest" in k.ranking.text for k in query.keys)
            for _ in range(self.number(0 if ranked else 1, 2)):
                down = self.often(2)
                word = " desc" if down else self.pick(["", " asc"])
                if not query.grouped and not query.distinct and (nearest or not sortable or self.often(3)):
                    kind = self.pick(ORDERED)
                    value = self.value(names, kind, 1)
                    if kind != "enum":
                        query.keys.append(m.Key(f"({value.text}){word}", None, value, None, down))
                elif sortable and not nearest:
                    i = self.pick(sortable)
                    query.keys.append(m.Key(f"{columns[i].name}{word}", i, None, None, down))


@cache
def _between(low: int, high: int) -> st.SearchStrategy[int]:
    return st.integers(low, high)


@st.composite
def queries(draw: st.DrawFn, schema: Schema, *, ranked: bool = False) -> Query:
    """A read query over the schema.

    Args:
        ranked: one with rankings.
    """
    drawing = Drawing(lambda low, high: draw(_between(low, high)), schema)
    return drawing.ranked() if ranked else drawing.query()
