"""From the IR to a flat list of steps.

A match is a set of conditions that must hold together, so the steps may come in any order: each traversal is the
relation of its pairs (or of its edges), whichever end it is walked from. The planner starts at the variable with the
fewest expected rows, follows edges from what is bound, the one with the least growth first, and puts every condition at
the first moment its variables are bound: into the scan or the traversal where it touches one variable.

A plan depends on the compiled query and on the sizes of the tables only, never on parameters: it is kept per query.
"""

from __future__ import annotations

import json
import threading
import weakref
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Literal

from omnigraph.errors import BadRequest, Internal
from omnigraph.query.ir import (
    Agg,
    Aggregate,
    AntiJoin,
    Call,
    CompiledQuery,
    Distinct,
    Expand,
    Expr,
    Filter,
    Limit,
    Lit,
    NodeScan,
    Operator,
    Optional,
    Order,
    Param,
    Project,
    Prop,
    Shortest,
    SubMatch,
    Var,
    Way,
)
from omnigraph.read.antijoin import ROW, AntiJoinStep, Step
from omnigraph.read.env import FrameEnv
from omnigraph.read.expand import ExpandStep
from omnigraph.read.expr import Evaluate, aggregates_in, as_mask, compile_expr, conjuncts, properties, variables
from omnigraph.read.frame import Context, Frame
from omnigraph.read.project import Output, make_output
from omnigraph.read.scan import ScanStep
from omnigraph.read.tables import Readable
from omnigraph.read.types import entity_properties, entity_type
from omnigraph.schema.catalog import Catalog, Type, table_key

__all__ = ["FilterStep", "KeepStep", "Plan", "make_plan", "plan"]

_HOLDS = {"=": 0.01, "in": 0.05, "starts_with": 0.05, "contains": 0.1, "<": 0.3, "<=": 0.3, ">": 0.3, ">=": 0.3}
_BOOL = Type("Bool")


@dataclass(frozen=True, slots=True, eq=False)
class FilterStep:
    """Keep the rows where a predicate over several variables (or none) is true."""

    test: Evaluate
    reads: frozenset[str]
    text: str

    def run(self, ctx: Context, frame: Frame) -> Frame:
        if frame.length == 0:
            return frame
        return frame.take(as_mask(self.test(FrameEnv(ctx, frame)), frame.length))

    def describe(self, ctx: Context) -> str:
        return f"filter  {self.text}"


@dataclass(frozen=True, slots=True, eq=False)
class KeepStep:
    """Drop the variables nobody reads any more."""

    names: frozenset[str]

    def run(self, ctx: Context, frame: Frame) -> Frame:
        return frame.keep(self.names)

    def describe(self, ctx: Context) -> str:
        return ""


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """Steps from an empty frame to the result table."""

    steps: tuple[Step, ...]
    output: Output

    def describe(self, ctx: Context) -> str:
        lines = [text for step in self.steps if (text := step.describe(ctx))]
        return "\n".join([*lines, self.output.describe()])


@dataclass
class _Pattern:
    """One level of a match, taken apart."""

    nodes: dict[str, str] = field(default_factory=dict)  # variable → node type, in binding order
    where: dict[str, list[Expr]] = field(default_factory=dict)
    edges: list[Expand] = field(default_factory=list)
    edge_where: dict[str, list[Expr]] = field(default_factory=dict)
    filters: list[Expr] = field(default_factory=list)
    antis: list[AntiJoin] = field(default_factory=list)


class _Planner:
    def __init__(self, catalog: Catalog, snapshot: Readable, needs: dict[str, set[str]], types: dict[str, str]) -> None:
        self._catalog = catalog
        self._snapshot = snapshot
        self._needs = needs
        self._types = types  # variable → node type, of the whole query
        self._joined: set[str] = set()

    def rows(self, key: str) -> int:
        ref = self._snapshot.tables.get(key)
        return ref.row_count if ref is not None else 0

    def level(self, operators: Iterable[Operator], bound: set[str]) -> list[Step]:
        """The steps of one level, `bound` bound before."""
        pattern = self._take_apart(operators, bound)
        steps: list[Step] = []
        known = set(bound)
        nodes, edges = dict(pattern.nodes), list(pattern.edges)
        filters, antis = list(pattern.filters), list(pattern.antis)
        while True:
            for predicate in [f for f in filters if variables(f) <= known]:
                filters.remove(predicate)
                steps.append(FilterStep(compile_expr(predicate), variables(predicate), show(predicate)))
            ready = [e for e in edges if e.source in known and e.target in known]
            if ready:
                edges.remove(ready[0])
                steps.append(self._expand(ready[0], pattern, known, bound=True))
                if ready[0].edge_var:
                    known.add(ready[0].edge_var)
                continue
            for anti in [a for a in antis if set(a.outer) <= known]:
                antis.remove(anti)
                steps.append(AntiJoinStep(tuple(self.level(anti.inner, set(anti.outer))), anti.outer))
            reachable = [e for e in edges if e.source in known or e.target in known]
            if reachable:
                chosen = min(reachable, key=lambda e: self._growth(e, pattern, known))
                edges.remove(chosen)
                if chosen.source not in known:
                    chosen = _turned(chosen, self._types)
                steps.append(self._expand(chosen, pattern, known, bound=False))
                known.add(chosen.target)
                if chosen.edge_var:
                    known.add(chosen.edge_var)
                nodes.pop(chosen.target, None)
                continue
            open_nodes = [v for v in nodes if v not in known]
            if not open_nodes:
                break
            var = min(open_nodes, key=lambda v: self._estimate(v, nodes[v], pattern))
            steps.append(self._scan(var, nodes.pop(var), pattern))
            known.add(var)
        if filters or antis or edges:
            raise Internal(f"conditions without their variables: {[*filters, *antis, *edges]}")
        return steps

    def _take_apart(self, operators: Iterable[Operator], bound: set[str]) -> _Pattern:
        pattern = _Pattern()
        loose: list[Expr] = []
        for op in operators:
            match op:
                case NodeScan(var, node, where):
                    if var not in bound:
                        pattern.nodes[var] = node
                    loose += conjuncts(where)
                case Expand():
                    pattern.edges.append(op)
                    for end in (op.source, op.target):
                        if end not in bound:
                            pattern.nodes.setdefault(end, self._types[end])
                    if op.edge_var is not None:
                        pattern.edge_where[op.edge_var] = list(conjuncts(op.edge_where))
                    loose += conjuncts(op.where)
                case Filter(predicate):
                    loose += conjuncts(predicate)
                case AntiJoin():
                    pattern.antis.append(op)
                case _:
                    raise Internal(f"no plan for {type(op).__name__} inside a match")
        for predicate in loose:
            touched = variables(predicate)
            (only,) = touched if len(touched) == 1 else ("",)
            if only in pattern.nodes:
                pattern.where.setdefault(only, []).append(predicate)
            elif only in pattern.edge_where:
                pattern.edge_where[only].append(predicate)
            else:
                pattern.filters.append(predicate)
        return pattern

    def _selectivity(self, conditions: Iterable[Expr]) -> float:
        share = 1.0
        for c in conditions:
            share *= _HOLDS.get(c.fn, 0.5) if isinstance(c, Call) else 0.5
        return share

    def _estimate(self, var: str, node: str, pattern: _Pattern) -> float:
        if _pinned_id(self._catalog, var, node, pattern.where.get(var, [])) is not None:
            return 1.0
        return max(1.0, self.rows(table_key("node", node)) * self._selectivity(pattern.where.get(var, [])))

    def _growth(self, edge: Expand, pattern: _Pattern, known: set[str]) -> float:
        """Expected rows out per row in."""
        far = edge.target if edge.source in known else edge.source
        near_type = self._types.get(edge.source if edge.source in known else edge.target, edge.target_node)
        edges = sum(self.rows(table_key("edge", w.edge)) * (2 if w.direction == "both" else 1) for w in edge.ways)
        degree = edges / max(1, self.rows(table_key("node", near_type)))
        node = pattern.nodes.get(far)
        if node is None:
            return degree**edge.max
        share = self._estimate(far, node, pattern) / max(1, self.rows(table_key("node", node)))
        return float(degree**edge.max * share)

    def _scan(self, var: str, node: str, pattern: _Pattern) -> ScanStep:
        conditions = pattern.where.get(var, [])
        key = _pinned_id(self._catalog, var, node, conditions)
        where = _conjunction(conditions)
        text = f"${var}: {node}" + (f" where {show(where)}" if where is not None else "")
        return ScanStep(
            var=var,
            table_key=table_key("node", node),
            where=where,
            test=None if where is None else compile_expr(where),
            key=None if key is None else compile_expr(key),
            columns=tuple(sorted(self._needs.get(var, set()))),
            joined=var in self._joined,
            text=text,
            estimate=self._estimate(var, node, pattern),
        )

    def _expand(self, op: Expand, pattern: _Pattern, known: set[str], *, bound: bool) -> ExpandStep:
        way = _only_way(op)
        edge = self._catalog.edges[way.edge]
        ends = (table_key("node", edge.source), table_key("node", edge.target))
        near, far = (ends[1], ends[0]) if way.direction == "in" else ends
        where = _conjunction(pattern.where.get(op.target, [])) if not bound else None
        edge_where = _conjunction(pattern.edge_where.get(op.edge_var, [])) if op.edge_var else None
        hops = "" if op.min == op.max == 1 else f"{{{op.min},{op.max}}}"
        name = f"${op.edge_var}:{way.edge}" if op.edge_var else way.edge
        arrow = {"out": f"-{name}{hops}->", "in": f"<-{name}{hops}-", "both": f"-{name}{hops}-"}[way.direction]
        text = f"${op.source} {arrow} ${op.target}: {op.target_node}"
        for predicate in (where, edge_where):
            text += f" where {show(predicate)}" if predicate is not None else ""
        return ExpandStep(
            source=op.source,
            target=op.target,
            edge=table_key("edge", edge.name),
            direction=way.direction,
            near=near,
            far=far,
            ends=ends,
            low=op.min,
            high=op.max,
            bound=bound,
            edge_var=op.edge_var,
            where=None if where is None else compile_expr(where),
            edge_where=None if edge_where is None else compile_expr(edge_where),
            target_columns=tuple(sorted(self._needs.get(op.target, set()))),
            edge_columns=tuple(sorted(self._needs.get(op.edge_var, set()))) if op.edge_var else (),
            text=text,
            estimate=1.0 if bound else self._growth(op, pattern, known),
        )

    def traversed(self, operators: Iterable[Operator]) -> None:
        """Note which variables stand at a traversal's end."""
        for op in operators:
            if isinstance(op, Expand):
                self._joined |= {op.source, op.target}
            elif isinstance(op, AntiJoin):
                self.traversed(op.inner)


def _only_way(op: Expand) -> Way:
    if len(op.ways) > 1:
        raise _unsupported("a traversal over several edge types")
    if op.hop_where is not None:
        raise _unsupported("a filter on the edges of a hop")
    return op.ways[0]


def _unsupported(what: str) -> BadRequest:
    """What the language has and this planner doesn't yet."""
    return BadRequest(f"{what} compiles but can't be run yet", code="unsupported")


_OTHER_WAY: dict[str, Literal["out", "in", "both"]] = {"out": "in", "in": "out", "both": "both"}


def _turned(op: Expand, types: dict[str, str]) -> Expand:
    """The same relation walked from its other end: distances are the same both ways."""
    ways = tuple(Way(w.edge, _OTHER_WAY[w.direction]) for w in op.ways)
    return replace(op, source=op.target, target=op.source, ways=ways, target_node=types.get(op.source, op.target_node))


def _conjunction(conditions: list[Expr]) -> Expr | None:
    if not conditions:
        return None
    return conditions[0] if len(conditions) == 1 else Call("and", tuple(conditions), _BOOL)


def _pinned_id(catalog: Catalog, var: str, node: str, conditions: list[Expr]) -> Expr | None:
    """The expression that gives the id, where an equality pins it: on `id`, or on a single-property key of text."""
    kind = catalog.nodes[node]
    names = {"id"}
    if len(kind.key) == 1 and kind.properties[kind.key[0]].type.base in ("String", "Enum", "I32", "I64", "U32", "U64"):
        names.add(kind.key[0])
    for c in conditions:
        if not isinstance(c, Call) or c.fn != "=":
            continue
        for prop, value in (c.args, c.args[::-1]):
            if isinstance(prop, Prop) and prop.name in names and isinstance(value, (Lit, Param)):
                # An integer key's id is its decimals; a float would render otherwise.
                if value.type.base in ("F32", "F64", "Null"):
                    continue
                return value
    return None


def show(expr: Expr) -> str:
    """An expression as text, for `explain`."""
    match expr:
        case Lit(value, _):
            return (
                json.dumps(value, default=str) if not isinstance(value, tuple) else json.dumps(list(value), default=str)
            )
        case Param(name, _) | Var(name, _):
            return f"${name}"
        case Prop(var, name, _):
            return f"${var}.{name}"
        case Agg(fn, arg, _, distinct):
            return f"{fn}({'distinct ' if distinct else ''}{show(arg) if arg is not None else ''})"
        case Call(fn, args, _):
            if len(args) == 2:
                joined = f" {fn} ".join(show(a) for a in args)
                return f"({joined})" if fn == "or" else joined
            if fn in ("and", "or"):
                return "(" + f" {fn} ".join(show(a) for a in args) + ")"
            return f"{fn}({', '.join(show(a) for a in args)})"
        case SubMatch(fn, _, _, _):
            return f"{fn} {{ … }}"
    return expr.name


def _types_of(operators: Iterable[Operator], out: dict[str, str], catalog: Catalog) -> dict[str, str]:
    for op in operators:
        if isinstance(op, NodeScan):
            out[op.var] = op.node
        elif isinstance(op, Expand):
            out.setdefault(op.target, op.target_node)
            edge = catalog.edges[op.ways[0].edge]
            near = edge.target if op.ways[0].direction == "in" else edge.source
            out.setdefault(op.source, near)
        elif isinstance(op, AntiJoin):
            _types_of(op.inner, out, catalog)
    return out


def _expressions(operators: Iterable[Operator]) -> list[Expr]:
    out: list[Expr] = []
    for op in operators:
        match op:
            case NodeScan():
                out += [op.where] if op.where is not None else []
            case Expand():
                out += [e for e in (op.where, op.edge_where) if e is not None]
            case Filter():
                out.append(op.predicate)
            case AntiJoin():
                out += _expressions(op.inner)
            case Project():
                out += [e for _, e in op.columns]
            case Aggregate():
                out += [e for _, e in (*op.keys, *op.columns)]
            case Order():
                out += [k.expr for k in op.keys]
            case Limit():
                pass
    return out


def make_plan(compiled: CompiledQuery, catalog: Catalog, snapshot: Readable) -> Plan:
    """Plan a read query; see `plan` for the kept form."""
    for op in compiled.operators:
        if isinstance(op, (Shortest, Optional, Distinct)):
            raise _unsupported(f"`{type(op).__name__.lower()}`")
    match_ops = [op for op in compiled.operators if isinstance(op, (NodeScan, Expand, Filter, AntiJoin))]
    final = next((op for op in compiled.operators if isinstance(op, (Project, Aggregate))), None)
    order = next((op for op in compiled.operators if isinstance(op, Order)), None)
    limit = next((op for op in compiled.operators if isinstance(op, Limit)), None)
    if final is None:
        raise Internal(f"query {compiled.name!r} returns nothing")
    needs: dict[str, set[str]] = {}
    for expr in _expressions(compiled.operators):
        for var, name in properties(expr):
            needs.setdefault(var, set()).add(name)
    for _, expr in final.columns:
        if isinstance(expr, Var) and expr.type.base in ("Node", "Edge"):
            needs.setdefault(expr.name, set()).update(entity_properties(entity_type(catalog, expr.type)))
    planner = _Planner(catalog, snapshot, needs, _types_of(match_ops, {}, catalog))
    planner.traversed(match_ops)
    steps = planner.level(match_ops, set())
    read = {v for expr in _expressions([o for o in (final, order) if o is not None]) for v in variables(expr)}
    if order is not None and isinstance(final, Project):
        read |= set(order.ties)
    output = make_output(catalog, final, order, limit, compiled.columns)
    return Plan(tuple(_lean(steps, read, set_only=_duplicates_vanish(final))), output)


def _duplicates_vanish(final: Project | Aggregate) -> bool:
    """Whether the result is the same however often a row stands in the frame."""
    aggregates = [a for _, e in final.columns for a in aggregates_in(e)]
    return isinstance(final, Aggregate) and all(a.distinct or a.fn in ("min", "max") for a in aggregates)


def _reads_of(step: Step) -> set[str]:
    match step:
        case FilterStep():
            return set(step.reads)
        case ExpandStep():
            return {step.source} | ({step.target} if step.bound else set())
        case AntiJoinStep():
            return set(step.outer)
    return set()


def _lean(steps: list[Step], last: set[str], *, set_only: bool) -> list[Step]:
    """Drop variables after their last use, and walk as a set where only the far ends matter from there on."""
    out: list[Step] = []
    live = set(last)
    after: list[set[str]] = []
    for step in reversed(steps):
        after.append(set(live))
        live |= _reads_of(step)
    for step, alive in zip(steps, reversed(after), strict=True):
        if (
            set_only
            and isinstance(step, ExpandStep)
            and step.low == step.high == 1
            and not step.bound
            and step.edge_var is None
            and alive <= {step.target}
        ):
            step = replace(step, set_only=True)
        out.append(step)
        if isinstance(step, (ExpandStep, ScanStep)):
            out.append(KeepStep(frozenset(alive | {ROW})))
    return out


_KEPT: dict[int, tuple[weakref.ref[CompiledQuery], object, Plan]] = {}
_LOCK = threading.Lock()


def plan(compiled: CompiledQuery, catalog: Catalog, snapshot: Readable) -> Plan:
    """The plan of a compiled query, made again only when the sizes of its tables change."""
    sizes = (catalog.hash, *(snapshot.tables[k].row_count for k in sorted(compiled.reads) if k in snapshot.tables))
    key = id(compiled)
    kept = _KEPT.get(key)
    if kept is not None and kept[0]() is compiled and kept[1] == sizes:
        return kept[2]
    made = make_plan(compiled, catalog, snapshot)
    with _LOCK:
        _KEPT[key] = (weakref.ref(compiled, lambda _: _KEPT.pop(key, None)), sizes, made)
    return made
