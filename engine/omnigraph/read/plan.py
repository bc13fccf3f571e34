"""From the IR to a flat list of steps and an output.

A plan depends on the compiled query and on the sizes of the tables only, never on parameters: it is kept per query.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Hashable, Iterable
from dataclasses import replace
from typing import cast

import pyarrow as pa

from omnigraph.errors import Internal
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
    NodeScan,
    Operator,
    Optional,
    Order,
    Param,
    Project,
    Shortest,
    Var,
)
from omnigraph.read.antijoin import AntiJoinStep
from omnigraph.read.beside import BesideEdges, beside_edges
from omnigraph.read.expand import ExpandStep
from omnigraph.read.frame import Context, Frame
from omnigraph.read.limits import UNLIMITED, current
from omnigraph.read.memory import Finish, Memory, NotInMemory, Run
from omnigraph.read.near_scan import through_vector_index
from omnigraph.read.optional import OptionalStep
from omnigraph.read.pattern import types_of
from omnigraph.read.planner import Planner
from omnigraph.read.project import Output, make_output
from omnigraph.read.scan import ScanStep
from omnigraph.read.settings import ReadSettings
from omnigraph.read.shortest import ShortestStep
from omnigraph.read.steps import FilterStep, KeepStep, Step, described, run_step
from omnigraph.read.submatch import ROW
from omnigraph.read.tables import Readable
from omnigraph.read.text_scan import through_word_index
from omnigraph.read.types import entity_properties, entity_type
from omnigraph.read.walk import aggregates_in, counts_rows, inner_expressions, properties, variables
from omnigraph.records import dataclass
from omnigraph.schema.catalog import Catalog

__all__ = ["Plan", "make_plan", "plan", "run"]

_LIGHT = 100_000  # rows whose result isn't weighed beforehand

_BEGIN = Frame(1)

_MATCH = (NodeScan, Expand, Shortest, Filter, AntiJoin, Optional)


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """Steps from an empty frame to the result table."""

    steps: tuple[Step, ...]
    output: Output
    returned: tuple[tuple[str, str], ...]  # the (variable, property) pairs of a result that isn't grouped

    def run(self, ctx: Context) -> pa.Table:
        frame = Frame(1)
        for step in self.steps:
            frame = run_step(step, ctx, frame)
        ctx.check()
        if frame.length > _LIGHT:
            self.check_weight(ctx, frame)
        if ctx.trace is None:
            return self.output.run(ctx, frame)
        begin = time.perf_counter()
        table = self.output.run(ctx, frame)
        ctx.trace.add(self.output, time.perf_counter() - begin, table.num_rows)
        return table

    def bind(self, ctx: Context) -> Bound | None:
        """The plan over what is in memory of the snapshot of an execution, for all executions there; None where
        something isn't."""
        memory = Memory(ctx)
        try:
            runs = [step.bind(memory) for step in self.steps]
            beside = self._beside(memory, runs)
        except NotInMemory:
            return None
        steps = tuple(run for run in runs if run is not None)
        finish = self.output.bind(memory)
        counted = self._counted(memory, runs, finish)
        if counted is not None:
            return Bound(self, (), counted, tuple(memory.holds))
        if beside is not None:
            finish = beside.finish(memory, Bound(self, steps[-1:], finish, ()).run)
            return Bound(self, steps[:-1], finish, tuple(memory.holds))
        return Bound(self, steps, finish, tuple(memory.holds))

    def _beside(self, memory: Memory, runs: list[Run | None]) -> BesideEdges | None:
        """The last step and the output together, where these are a hop and properties of its far ends."""
        hop = next((step for step, run in zip(reversed(self.steps), reversed(runs), strict=True) if run), None)
        out = self.output
        if not isinstance(hop, ExpandStep) or out.keys is not None or out.order or out.fused:
            return None
        return beside_edges(memory, hop, out.schema, [item.expr for item in out.items], out.bounds)

    def _counted(self, memory: Memory, runs: list[Run | None], finish: Finish) -> Finish | None:
        """A scan and the output together, where these are all there is and rows are no more than counted by values."""
        work = [(step, run) for step, run in zip(self.steps, runs, strict=True) if run is not None]
        if len(work) != 1 or not isinstance(scan := work[0][0], ScanStep):
            return None
        after, whole = Bound(self, (), finish, ()), Bound(self, (work[0][1],), finish, ())
        return self.output.counted(memory, scan, after.run, whole.run)

    def check_weight(self, ctx: Context, frame: Frame) -> None:
        """Raises BadRequest where the returned columns would take more memory than a query may."""
        ctx.check_bytes(self._weight(ctx, frame), "the result")

    def _weight(self, ctx: Context, frame: Frame) -> int:
        """About how many bytes the returned columns take."""
        rows = frame.length
        limit = None if self.output.limit is None else self.output.limit.count
        if limit is not None:
            count = ctx.params.get(limit.name) if isinstance(limit, Param) else limit
            rows = min(rows, count) if isinstance(count, int) else rows
        columns = [(frame.bound[var].rows, name) for var, name in self.returned if var in frame.bound]
        width = sum(r.column(name).nbytes / max(1, r.rows) for r, name in columns)
        return int(rows * width)

    def describe(self, ctx: Context) -> str:
        lines, _ = described(self.steps, ctx, 1.0)
        head, *rest = self.output.describe().splitlines()
        ran = "" if ctx.trace is None else f"  | {ctx.trace.of(self.output)}"
        return "\n".join([*lines, head + ran, *rest])


@dataclass(frozen=True, slots=True, eq=False)
class Bound:
    """A plan bound to a snapshot: a flat list of functions over columns, maps and adjacency in memory.

    Args:
        holds: the cache's entries these are.
    """

    plan: Plan
    steps: tuple[Run, ...]
    output: Finish
    holds: tuple[Hashable, ...]

    def run(self, ctx: Context, frame: Frame = _BEGIN) -> pa.Table:
        """As `Plan.run`, within the same limits."""
        most, limits = ctx.settings.max_bytes, current()
        for step in self.steps:
            if limits is not UNLIMITED:
                limits.check()
            frame = step(ctx, frame)
            size = 8 * frame.length * len(frame.bound)
            if size > most:
                ctx.check_bytes(size, "a step")
        if limits is not UNLIMITED:
            limits.check()
        if frame.length > _LIGHT:
            self.plan.check_weight(ctx, frame)
        return self.output(ctx, frame)


def _result_expressions(operators: Iterable[Operator]) -> list[Expr]:
    out: list[Expr] = []
    for op in operators:
        match op:
            case Project():
                out += [e for _, e in op.columns]
            case Aggregate():
                out += [e for _, e in (*op.keys, *op.columns)]
            case Order():
                out += [k.expr for k in op.keys]
    return out


def _needs(compiled: CompiledQuery, final: Project | Aggregate, catalog: Catalog) -> dict[str, set[str]]:
    """Variable → the properties the query reads of it, wherever it does."""
    needs: dict[str, set[str]] = {}
    for expr in (*inner_expressions(compiled.operators), *_result_expressions(compiled.operators)):
        for var, name in properties(expr):
            needs.setdefault(var, set()).add(name)
    keys = final.keys if isinstance(final, Aggregate) else ()
    for _, expr in (*final.columns, *keys):
        if isinstance(expr, Var) and expr.type.base in ("Node", "Edge"):
            needs.setdefault(expr.name, set()).update(entity_properties(entity_type(catalog, expr.type)))
    return needs


def make_plan(compiled: CompiledQuery, catalog: Catalog, snapshot: Readable) -> Plan:
    """Plan a read query; see `plan` for the kept form."""
    match_ops = tuple(op for op in compiled.operators if isinstance(op, _MATCH))
    final = next((op for op in compiled.operators if isinstance(op, (Project, Aggregate))), None)
    order = next((op for op in compiled.operators if isinstance(op, Order)), None)
    limit = next((op for op in compiled.operators if isinstance(op, Limit)), None)
    distinct = any(isinstance(op, Distinct) for op in compiled.operators)
    if final is None:
        raise Internal(f"query {compiled.name!r} returns nothing")
    if distinct and isinstance(final, Project):
        final, distinct = Aggregate(final.columns, final.columns), False  # distinct rows are groups of equal ones
    results = _result_expressions(compiled.operators)
    planner = Planner(catalog, snapshot, _needs(compiled, final, catalog))
    steps = planner.level(match_ops, set(), {})
    read = {v for expr in results for v in _read_by(expr)}
    if order is not None and isinstance(final, Project):
        read |= set(order.ties)
    compiler = planner.compiler(types_of(match_ops, catalog, {}))
    output = make_output(catalog, compiler, final, order, limit, compiled.columns, distinct=distinct)
    vanish = _duplicates_vanish(final)
    lean = tuple(_lean(steps, read, set_only=vanish, counted=vanish or _rows_are_counted(final)))
    returned: list[tuple[str, str]] = []
    if isinstance(final, Project):
        for _, expr in final.columns:
            if isinstance(expr, Var) and expr.type.base in ("Node", "Edge"):
                returned += [(expr.name, p) for p in entity_properties(entity_type(catalog, expr.type))]
            else:
                returned += sorted(properties(expr))
    lean = through_word_index(through_vector_index(lean, final, order, limit), final, order)
    return Plan(lean, output, tuple(returned))


def _duplicates_vanish(final: Project | Aggregate) -> bool:
    """Whether the result is the same however often a row stands in the frame."""
    aggregates = [a for _, e in final.columns for a in aggregates_in(e)]
    return isinstance(final, Aggregate) and all(a.distinct or a.fn in ("min", "max") for a in aggregates)


def _rows_are_counted(final: Project | Aggregate) -> bool:
    """Whether the result needs no more than how often each row stands in the frame."""
    aggregates = [a for _, e in final.columns for a in aggregates_in(e)]
    return isinstance(final, Aggregate) and all(a.distinct or a.fn in ("count", "min", "max") for a in aggregates)


def _read_by(expr: Expr) -> set[str]:
    """The variables whose rows a result expression reads; counting rows reads none."""
    if isinstance(expr, Agg) and counts_rows(expr):
        return set()
    if isinstance(expr, Call):
        return {v for arg in expr.args for v in _read_by(arg)}
    return set(variables(expr))


def _reads_of(step: Step) -> set[str]:
    match step:
        case FilterStep():
            return set(step.reads)
        case ExpandStep() | ShortestStep():
            return {step.source} | ({step.target} if step.bound else set())
        case AntiJoinStep() | OptionalStep():
            return set(step.outer)
    return set()


def _bound_by(step: Step) -> set[str]:
    match step:
        case ScanStep():
            return {step.var}
        case ExpandStep():
            return ({step.edge_var} if step.edge_var else set()) | (set() if step.bound else {step.target})
        case ShortestStep():
            return {step.path} | (set() if step.bound else {step.target})
        case OptionalStep():
            return set(step.binds)
    return set()


def _lean(steps: list[Step], last: set[str], *, set_only: bool, counted: bool) -> list[Step]:
    """Drop variables after their last use; walk as a set, or count, where no more matters from there on."""
    out: list[Step] = []
    live = set(last)
    after: list[set[str]] = []
    for step in reversed(steps):
        after.append(set(live))
        live = (live - _bound_by(step)) | _reads_of(step)
    for step, alive in zip(steps, reversed(after), strict=True):
        if counted and isinstance(step, ExpandStep) and step.walk.single and not step.bound and step.edge_var is None:
            if step.target not in alive:
                step = replace(step, counts=True)
            elif alive == {step.target}:
                step = replace(step, set_only=True) if set_only else replace(step, merges=True)
        if isinstance(step, ExpandStep):
            step = replace(step, carried=frozenset(alive | {ROW}))
        out.append(step)
        if isinstance(step, (ExpandStep, ScanStep, OptionalStep, ShortestStep)):
            out.append(KeepStep(frozenset(alive | {ROW})))
    return out


@dataclass(frozen=True, slots=True, eq=False)
class _Ready:
    """A bound plan, with the objects by whose identity it is found."""

    query: CompiledQuery
    state: object
    settings: ReadSettings
    bound: Bound

    @property
    def holds(self) -> tuple[Hashable, ...]:
        return self.bound.holds


def run(compiled: CompiledQuery, ctx: Context) -> pa.Table:
    """Run a read query: bound, once everything it reads is in memory, and bound once for all that follow.

    A bound plan is kept until anything it holds leaves the cache.
    """
    kept, state, settings = ctx.tables.kept, ctx.snapshot.state, ctx.settings
    key = (id(compiled), id(state), id(settings))
    ready = kept.holder(key)
    if ready is None:
        dropped = kept.dropped
        made = plan(compiled, ctx.catalog, ctx.snapshot)
        bound = made.bind(ctx)
        if bound is None:
            return made.run(ctx)
        ready = _Ready(compiled, state, settings, bound)
        kept.hold(key, ready, dropped)
    return cast("_Ready", ready).bound.run(ctx)


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
