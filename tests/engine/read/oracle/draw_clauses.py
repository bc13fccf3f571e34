"""Random clauses: bindings, traversals, blocks inside blocks."""

from __future__ import annotations

from tests.engine.read.oracle.draw_expressions import KIND, PARAM, Expressions, kind_of, shown
from tests.engine.read.oracle.expressions import E, compare, is_null, prop, search
from tests.engine.read.oracle.graphs import POOLS, EdgeT, Prop
from tests.engine.read.oracle.meaning import Bind, Block, Walk

__all__ = ["Clauses"]


class Clauses(Expressions):
    """Draws the clauses of a match."""

    def walk(self, names: list[str], *, new: bool) -> Walk:
        """From a known node, or from a new one, to a new or a known one."""
        nodes = [n for n in names if self.types.get(n, "").startswith("node:")]
        a = self.pick(nodes) if nodes and not (new and not nodes) else ""
        options: list[tuple[EdgeT, str]] = []
        for e in self.schema.edges.values():
            for direction, here in (("out", e.source), ("in", e.target)):
                if (not a or self.types[a] == f"node:{here}") and not (direction == "in" and e.source == e.target):
                    options.append((e, direction))
        if not options:  # nothing leaves from there
            a = ""
            options = [(e, "out") for e in self.schema.edges.values()]
        if not a:
            options = [(e, "out") for e in self.schema.edges.values() if e.source == e.target]
        edge, direction = self.pick(options)
        near, far = (edge.source, edge.target)[:: 1 if direction == "out" else -1]
        open_ended = not a  # nothing says which way it is read, so it is read along its direction
        a = a or self.new_node(near)
        known = [n for n in nodes if self.types[n] == f"node:{far}"]
        b = self.pick(known) if known and not new and self.often(2) else self.new_node(far)
        if b not in nodes and self.often(8):
            self.types.pop(b)
            b = self.fresh("_")
        ways = [(edge.name, direction)]
        written = edge.word
        same = near == far
        test_over = [edge]
        if self.often(4):
            every = self.schema.edges.values()
            fits = [(e, "out") for e in every if (e.source, e.target) == (near, far)]
            fits += [(e, "in") for e in every if (e.target, e.source) == (near, far) and not same]
            star = self.often(3) and b in nodes and not open_ended
            picked = fits if star else [f for f in fits if f[0] is edge or self.often(2)]
            if star:
                written = "*"
            elif len(picked) > 1:
                written = f"({'|'.join(e.word for e, _ in picked)})"
            ways = [(e.name, d) for e, d in picked]
            test_over = [e for e, _ in picked]
        if same and len(ways) == 1 and written != "*" and self.often(3):
            written, ways = f"<{edge.word}>", [(edge.name, "both")]
        turned = not same and not open_ended and self.often(4)
        out = Walk(a, b, (near, far), ways, written)
        kind = self.pick(["plain", "hops", "hops", "edge", "path"])
        if kind == "edge":
            out.var = self.fresh("e")
            if len(ways) == 1:
                self.types[out.var] = f"edge:{ways[0][0]}"
        elif same and kind in ("hops", "path"):
            out.low = self.number(1, 2)
            out.high = self.number(out.low, 4)
        if same and kind == "path":
            out.path = self.fresh("path")
        common = [p for p in test_over[0].props.values() if all(e.props.get(p.name) == p for e in test_over)]
        if common and self.often(6):
            out.test = self.hop_test(self.pick(common))
        if turned:  # `$f works $p` where people work for firms
            out.a, out.b, out.types = b, a, (far, near)
            out.edges = [(e, {"out": "in", "in": "out"}[d]) for e, d in ways]
        return out

    def hop_test(self, p: Prop) -> E:
        value = E(f"$.{p.name}", kind_of(p), lambda r, w: r[""][p.name])
        if p.text and self.often(2):
            return search(self.pick(["search", "match_text"]), value, self.question(), None)
        if kind_of(p) == "bool":
            return value
        if self.often(4):
            return is_null(value.text, value, negated=self.often(2))
        op = self.pick(["=", ">=", "<"])
        return compare(op, value, self.literal(value.kind))

    def new_node(self, type_: str) -> str:
        name = self.fresh("v")
        self.types[name] = f"node:{type_}"
        return name

    def bind(self, type_: str, var: str) -> Bind:
        out = Bind(var, type_)
        parts = []
        entity = self.schema.nodes[type_]
        usable = [p for p in entity.props.values() if kind_of(p) not in ("vector", "float")]
        picked = [entity.props[k] for k in entity.key] if entity.key and self.often(4) else []
        if self.often(2 if picked else 5):  # beside a key, which finds its row by itself
            picked.append(self.pick(usable))
        for p in picked:
            pool = POOLS["text" if p.text else p.type.strip("[]")]
            value = self.pick(pool)
            kind = KIND[p.type.strip("[]")]
            text = shown(value)
            if kind in PARAM and self.often(3):
                name = self.fresh("k")
                self.params[name] = (p.type.strip("[]") + "?", None if self.often(4) else value)
                value, text = self.params[name][1], f"${name}"
            given = E(text, kind, lambda r, w, value=value: value)
            parts.append(f"{p.name}: {text}")
            out.tests.append(
                compare("contains" if p.type.startswith("[") else "=", prop(var, p.name, kind_of(p)), given)
            )
        out.shown = ", ".join(parts)
        return out

    def block(self, outer: list[str], depth: int, *, optional: bool = False, alone: bool = False) -> Block:
        """A block that usually walks from an outer variable to a new one."""
        out = Block()
        known = list(outer)
        before = set(self.types)
        how = self.pick(["walk", "walk", "walk", "two", "bind", "test"])
        if how == "test" and (optional or not outer or alone):
            how = "walk"
        if how == "bind" and not alone:
            type_ = self.pick(self.schema.nodes)
            name = self.new_node(type_)
            out.binds.append(self.bind(type_, name))
            known.append(name)
            if self.often(2):
                out.tests.append(self.condition(known, max(0, depth)))
        elif how == "test":
            out.tests.append(self.condition(known, max(0, depth)))
        else:
            for number in range(2 if how == "two" else 1):
                walk = self.walk(known, new=optional and number == 0)
                out.walks.append(walk)
                known += [v for v in walk.names() if v in self.types and v not in known]
            if self.often(3):
                out.tests.append(self.condition(known, max(0, depth)))
        if not optional:
            for name in set(self.types) - before:
                del self.types[name]
        return out

    def match(self) -> Block:
        out = Block()
        if not self.often(5):
            type_ = self.pick(["Person", "Person", *self.schema.nodes])
            out.binds.append(self.bind(type_, self.new_node(type_)))
        if self.often(5):
            type_ = self.pick(self.schema.nodes)
            out.binds.append(self.bind(type_, self.new_node(type_)))
        for _ in range(self.pick([1, 0, 1, 2, 3]) or (not out.binds)):
            out.walks.append(self.walk(list(self.types), new=False))
        plain = list(self.types)
        loose: set[str] = set()
        for _ in range(self.pick([0, 0, 0, 0, 1, 1, 2])):
            out.tests.append(self.condition(plain, 2))
        if plain and self.often(5):
            block = self.block(plain, 1, alone=True)
            if block.reads() & set(plain):
                out.nots.append(block)
        for _ in range(self.pick([0, 0, 0, 1, 2])):
            before = set(self.types)
            block = self.block([n for n in self.types if n not in loose], 1, optional=True)
            if set(self.types) - before:
                out.optionals.append(block)
            if block.binds:  # another block could bind these as well, and be the first to do so
                loose |= set(self.types) - before
        late = [n for n in self.types if n not in plain]
        if late and self.often(2):
            out.tests.append(self.condition(list(self.types), 1))
        clauses = len(out.binds) + len(out.walks) + len(out.tests) + len(out.nots)
        if self.often(3):  # clauses may stand in any order
            out.order = sorted(range(clauses), key=lambda i: (self.number(0, 9), i))
        return out
