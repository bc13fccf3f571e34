"""The order of a match's steps.

A match is a set of conditions that must hold together, so the steps may come in any order: each traversal is the
relation of its pairs (or of its edges), whichever end it is walked from. The planner starts at the variable with the
fewest expected rows, follows edges from what is bound, the one with the least growth first, and puts every condition at
the first moment its variables are bound. Then come conditions that may fail, then optional blocks, which multiply rows,
and what depends on them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from typing import Literal

from omnigraph.errors import Internal
from omnigraph.query.ir import AntiJoin, Expand, Expr, Operator, Optional, Shortest, SubMatch, Way
from omnigraph.read.antijoin import AntiJoinStep
from omnigraph.read.expand import ExpandStep
from omnigraph.read.expr import Compiler, compile_expr
from omnigraph.read.hops import HopFilter, HopWay
from omnigraph.read.optional import OptionalStep
from omnigraph.read.pattern import Pattern, conjunction, pinned_id, selectivity, take_apart, types_of
from omnigraph.read.scan import ScanStep
from omnigraph.read.shortest import ShortestStep
from omnigraph.read.show import Later, show
from omnigraph.read.steps import FilterStep, Step
from omnigraph.read.submatch import BlockValue
from omnigraph.read.tables import Readable
from omnigraph.read.traversal import Traversal
from omnigraph.read.types import property_names
from omnigraph.read.value_positions import by_value
from omnigraph.read.walk import may_fail, properties, variables
from omnigraph.records import dataclass
from omnigraph.schema.catalog import Catalog, table_key

__all__ = ["Planner"]


@dataclass
class _Level:
    """A level while its steps are chosen."""

    pattern: Pattern
    known: set[str]
    compiler: Compiler
    steps: list[Step] = field(default_factory=list)


@dataclass(frozen=True)
class Planner:
    """Plans levels of one query.

    Args:
        needs: variable → properties the query reads of it.
    """

    catalog: Catalog
    snapshot: Readable
    needs: Mapping[str, set[str]]

    def compiler(self, types: Mapping[str, str]) -> Compiler:
        """Compiles expressions over variables of these types, blocks included."""
        return Compiler(block=lambda expr: self._block(expr, types))

    def _block(self, expr: Expr, types: Mapping[str, str]) -> BlockValue:
        if not isinstance(expr, SubMatch):
            raise Internal(f"{expr!r} is no block")
        inner = tuple(self.level(expr.inner, set(expr.outer), types))
        return BlockValue(expr.fn == "exists", inner, expr.outer)

    def level(self, operators: Iterable[Operator], bound: set[str], outer: Mapping[str, str]) -> list[Step]:
        """The steps of one level, `bound` bound before; `outer` has the node types of the variables around it."""
        operators = tuple(operators)
        types = types_of(operators, self.catalog, outer)
        level = _Level(take_apart(operators, bound, types), set(bound), self.compiler(types))
        while self._conditions(level) or self._edge(level) or self._node(level) or self._rest(level):
            pass
        left = level.pattern
        waiting = [*left.filters, *left.antis, *left.edges, *left.paths, *left.late, *left.optionals]
        if waiting:
            raise Internal(f"conditions without their variables: {waiting}")
        return level.steps

    # ---- what can be done next, each in turn; True where something was ----

    def _conditions(self, level: _Level) -> bool:
        """Filters, semi-joins and negations whose variables are bound."""
        pattern = level.pattern
        for predicate in [f for f in pattern.filters if variables(f) <= level.known]:
            pattern.filters.remove(predicate)
            level.steps.append(self._filter(predicate, level))
        for edge in pattern.edges:
            if edge.source in level.known and edge.target in level.known:
                pattern.edges.remove(edge)
                level.steps.append(self._expand(edge, level, bound=True))
                level.known |= {edge.edge_var} if edge.edge_var else set()
                return True
        for anti in [a for a in pattern.antis if set(a.outer) <= level.known]:
            pattern.antis.remove(anti)
            level.steps.append(self._anti(anti, level))
        return False

    def _edge(self, level: _Level) -> bool:
        """The traversal with the least growth from what is bound."""
        pattern, known = level.pattern, level.known
        waiting = pattern.later - known
        reachable = [
            e for e in pattern.edges if (e.source in known or e.target in known) and not {e.source, e.target} & waiting
        ]
        if not reachable:
            return False
        chosen = min(reachable, key=lambda e: self._growth(e, level))
        pattern.edges.remove(chosen)
        if chosen.source not in known:
            chosen = _turned(chosen, pattern.types)
        level.steps.append(self._expand(chosen, level, bound=False))
        known |= {chosen.target} | ({chosen.edge_var} if chosen.edge_var else set())
        pattern.nodes.pop(chosen.target, None)
        return True

    def _node(self, level: _Level) -> bool:
        """A path between bound ends or to an open one, or else a scan of the open node with the fewest rows."""
        pattern, known = level.pattern, level.known
        for path in pattern.paths:
            if path.source in known and path.target in known:
                return self._path(path, level, bound=True)
        waiting = pattern.later - known
        late = {v for e in pattern.edges for v in (e.source, e.target) if {e.source, e.target} & waiting}
        ends = {p.target for p in pattern.paths if p.source in known}
        open_nodes = [v for v in pattern.nodes if v not in known and (v not in late or not pattern.optionals)]
        if open_nodes:
            var = min(open_nodes, key=lambda v: self._estimate(v, level))
            few = self._estimate(var, level) * 10 <= self._rows("node", pattern.nodes[var])
            if var not in ends or few:
                level.steps.append(self._scan(var, pattern.nodes.pop(var), level))
                known.add(var)
                return True
        for path in pattern.paths:
            if path.source in known and path.target in pattern.nodes:
                return self._path(path, level, bound=False)
        return False

    def _rest(self, level: _Level) -> bool:
        """Conditions that may fail, then the next optional block."""
        pattern, known = level.pattern, level.known
        for item in list(pattern.late):
            needed = set(item.outer) if isinstance(item, AntiJoin) else variables(item)
            if needed <= known:
                pattern.late.remove(item)
                level.steps.append(self._anti(item, level) if isinstance(item, AntiJoin) else self._filter(item, level))
        for optional in pattern.optionals:
            if set(optional.outer) <= known:
                pattern.optionals.remove(optional)
                level.steps.append(self._optional(optional, level))
                known |= set(optional.binds)
                return True
        return False

    # ---- steps ----

    def _filter(self, predicate: Expr, level: _Level) -> FilterStep:
        blocks: list[tuple[Step, ...]] = []

        def block(expr: Expr) -> object:
            made = self._block(expr, level.pattern.types)
            blocks.append(made.inner)
            return made

        test = replace(level.compiler, block=block)(predicate)
        return FilterStep(
            test, variables(predicate), Later(lambda: show(predicate)), selectivity([predicate]), tuple(blocks)
        )

    def _anti(self, anti: AntiJoin, level: _Level) -> AntiJoinStep:
        return AntiJoinStep(tuple(self.level(anti.inner, set(anti.outer), level.pattern.types)), anti.outer)

    def _optional(self, op: Optional, level: _Level) -> OptionalStep:
        inner = tuple(self.level(op.inner, set(op.outer), level.pattern.types))
        return OptionalStep(inner, op.outer, op.binds)

    def _columns(self, var: str | None, *entities: str) -> tuple[str, ...]:
        """The properties the query reads of a variable, of those that its types have."""
        read = self.needs.get(var, set()) if var else set()
        for entity in entities:
            read = read & property_names(self.catalog.by_table_key[entity])
        return tuple(sorted(read))

    def _scan(self, var: str, node: str, level: _Level) -> ScanStep:
        conditions = level.pattern.where.get(var, [])
        pinned = pinned_id(self.catalog, node, conditions)
        where = conjunction(conditions)
        rest = conjunction([c for c in conditions if pinned is None or c is not pinned[0]])
        columns = self._columns(var, table_key("node", node))
        return ScanStep(
            var=var,
            table_key=table_key("node", node),
            where=where,
            test=None if where is None else compile_expr(where),
            key=None if pinned is None else pinned[1],
            rest=None if rest is None else compile_expr(rest),
            by_value=by_value(where),
            columns=columns,
            needed=tuple(sorted({*columns, "id"})),
            text=Later(lambda: f"${var}: {node}" + _where(where)),
            estimate=_estimated(self, var, node, conditions),
        )

    def _ways(self, ways: tuple[Way, ...]) -> tuple[tuple[HopWay, ...], str, str]:
        """(the ways with their tables, the table key of the near end, of the far end)."""
        out = []
        near = far = ""
        for way in ways:
            edge = self.catalog.edges[way.edge]
            ends = (table_key("node", edge.source), table_key("node", edge.target))
            out.append(HopWay(edge.table_key, way.direction, ends))
            near, far = ends[::-1] if way.direction == "in" else ends
        return tuple(out), near, far

    def _hop_filter(self, where: Expr | None) -> HopFilter | None:
        if where is None:
            return None
        columns = tuple(sorted({name for var, name in properties(where) if var == ""}))
        return HopFilter(compile_expr(where), columns, may_fail(where))

    def _expand(self, op: Expand, level: _Level, *, bound: bool) -> ExpandStep:
        ways, near, far = self._ways(op.ways)
        where = conjunction(level.pattern.where.get(op.target, [])) if not bound else None
        edge_where = conjunction(level.pattern.edge_where.get(op.edge_var, [])) if op.edge_var else None
        return ExpandStep(
            source=op.source,
            target=op.target,
            walk=Traversal(
                ways=ways,
                near=near,
                far=far,
                low=op.min,
                high=op.max,
                where=self._hop_filter(op.hop_where),
                edge_columns=self._columns(op.edge_var, *(way.edge for way in ways)),
                far_columns=() if bound else self._columns(op.target, far),
            ),
            bound=bound,
            edge_var=op.edge_var,
            where=None if where is None else compile_expr(where),
            edge_where=None if edge_where is None else compile_expr(edge_where),
            text=Later(lambda: _arrow(op, op.edge_var) + _where(where) + _where(edge_where)),
            estimate=1.0 if bound else self._growth(op, level),
        )

    def _path(self, op: Shortest, level: _Level, *, bound: bool) -> bool:
        level.pattern.paths.remove(op)
        ways, near, far = self._ways(op.ways)
        where = conjunction(level.pattern.where.get(op.target, [])) if not bound else None
        level.steps.append(
            ShortestStep(
                path=op.path,
                source=op.source,
                target=op.target,
                walk=Traversal(
                    ways=ways,
                    near=near,
                    far=far,
                    low=op.min,
                    high=op.max,
                    where=self._hop_filter(op.hop_where),
                    edge_columns=(),
                    far_columns=() if bound else self._columns(op.target, far),
                ),
                bound=bound,
                where=None if where is None else compile_expr(where),
                text=Later(lambda: f"${op.path} = shortest {_arrow(op, None)}" + _where(where)),
                estimate=1.0 if bound else self._growth(op, level),
            )
        )
        level.pattern.nodes.pop(op.target, None)
        level.known |= {op.path, op.target}
        return True

    # ---- estimates ----

    def _rows(self, kind: str, name: str) -> int:
        ref = self.snapshot.tables.get(table_key(kind, name))
        return ref.row_count if ref is not None else 0

    def _estimate(self, var: str, level: _Level) -> float:
        return _estimated(self, var, level.pattern.nodes[var], level.pattern.where.get(var, []))

    def _growth(self, edge: Expand | Shortest, level: _Level) -> float:
        """Expected rows out per row in."""
        pattern = level.pattern
        far = edge.target if edge.source in level.known else edge.source
        near_type = pattern.types.get(edge.source if edge.source in level.known else edge.target, edge.target_node)
        edges = sum(self._rows("edge", w.edge) * (2 if w.direction == "both" else 1) for w in edge.ways)
        degree = edges / max(1, self._rows("node", near_type))
        node = pattern.nodes.get(far)
        reached = float(min(degree, 1e6) ** min(edge.max, 20))
        if node is None:
            return reached
        return reached * self._estimate(far, level) / max(1, self._rows("node", node))


def _estimated(planner: Planner, var: str, node: str, conditions: list[Expr]) -> float:
    if pinned_id(planner.catalog, node, conditions) is not None:
        return 1.0
    return max(1.0, planner._rows("node", node) * selectivity(conditions))


_OTHER_WAY: dict[str, Literal["out", "in", "both"]] = {"out": "in", "in": "out", "both": "both"}


def _turned(op: Expand, types: Mapping[str, str]) -> Expand:
    """The same relation walked from its other end: distances are the same both ways."""
    ways = tuple(Way(w.edge, _OTHER_WAY[w.direction]) for w in op.ways)
    return replace(op, source=op.target, target=op.source, ways=ways, target_node=types.get(op.source, op.target_node))


def _where(predicate: Expr | None) -> str:
    return f" where {show(predicate)}" if predicate is not None else ""


def _arrow(op: Expand | Shortest, edge_var: str | None) -> str:
    hops = "" if op.min == op.max == 1 else f"{{{op.min},{op.max}}}"
    same = len({w.direction for w in op.ways}) == 1
    shape = {"out": "-{}->", "in": "<-{}-", "both": "-{}-"}
    names = "|".join(w.edge if same else shape[w.direction].format(w.edge) for w in op.ways)
    names = f"({names})" if len(op.ways) > 1 else names
    text = (f"${edge_var}:" if edge_var else "") + names + hops
    text += f"[{show(op.hop_where)}]" if op.hop_where is not None else ""
    arrow = shape[op.ways[0].direction if same else "both"].format(text)
    return f"${op.source} {arrow} ${op.target}: {op.target_node}"
