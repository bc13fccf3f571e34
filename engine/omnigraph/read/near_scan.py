"""The rows nearest to a vector, found through the table's vector index: approximately, as the query or the size asks.

The index names candidates, rows written since it was built among them; their distances are then computed exactly, and
conditions tested on them. Where conditions leave too few of them, more are asked for; where that doesn't help either,
all rows are read, and the answer is exact.
"""

from __future__ import annotations

from omnigraph.query.ir import Call, Column, Limit, Lit, Order, Param, Project, Prop
from omnigraph.read.env import rows_where
from omnigraph.read.frame import Binding, Context, Frame
from omnigraph.read.memory import Memory, Run
from omnigraph.read.ranking import Nearest, is_ranking, make_ranking
from omnigraph.read.scan import ScanStep, pushed_filter
from omnigraph.read.steps import KeepStep, Step
from omnigraph.read.tables import ROW_ID, one_array
from omnigraph.read.walk import parts_of
from omnigraph.records import dataclass

__all__ = ["NearScanStep", "through_vector_index"]

_MARGIN = 8  # how many more candidates than rows are asked for
_WIDER = 4
_MOST = 20  # more than one in so many rows is no job for an index


@dataclass(frozen=True, slots=True, eq=False)
class NearScanStep:
    """Bind a variable to the rows that may be the nearest, or to all rows where the index can't tell.

    Args:
        scan: the scan it stands for.
        asked: the query allows an approximate answer; else the size of the table decides.
    """

    scan: ScanStep
    ranking: Nearest
    limit: Limit
    asked: bool

    def run(self, ctx: Context, frame: Frame) -> Frame:
        found = self._found(ctx)
        if ctx.trace is not None and found is None:
            ctx.trace.modes[id(self)] = "exact"
        return self.scan.run(ctx, frame) if found is None else found

    def _index(self, ctx: Context) -> str | None:
        rows = ctx.snapshot.tables[self.scan.table_key].row_count
        if ctx.settings.traversal_mode == "scan":
            return None
        if not self.asked and rows < ctx.settings.ann_min_rows:
            return None
        return ctx.snapshot.vector_index(self.scan.table_key, self.ranking.prop.name)

    def _found(self, ctx: Context) -> Frame | None:
        if self._index(ctx) is None:
            return None
        table_key, prop, var = self.scan.table_key, self.ranking.prop, self.scan.var
        rows = ctx.partial(table_key)
        empty = Frame(0, {var: Binding(rows, rows.row_ids()[:0].astype("int64"))})
        query = self.ranking.vector(ctx, empty)
        wanted = sum(_count(value, ctx) for value in (self.limit.count, self.limit.skip))
        if query is None or not wanted:
            return empty
        pushed = pushed_filter(self.scan.where, ctx.params)
        names = sorted({*self.scan.columns, prop.name, "id"})
        ask = wanted + _MARGIN
        size = ctx.snapshot.tables[table_key].row_count
        while ask * _MOST <= size:
            ctx.check()
            found = ctx.snapshot.near(table_key, prop.name, query, ask, names, pushed)
            columns = {name: one_array(found.column(name)) for name in names}
            at = rows.absorb(found.column(ROW_ID).to_numpy(), columns)
            if self.scan.test is not None:
                at = at[rows_where(ctx, rows, var, self.scan.test, at, may_fail=True)]
            if len(at) >= wanted:
                return Frame(len(at), {var: Binding(rows, at)})
            ask *= _WIDER
        return None

    def bind(self, memory: Memory) -> Run:
        if self._index(memory.ctx) is None:
            return self.scan.bind(memory)
        memory.bind(self.scan.var, None)
        memory.once = None
        return self.run

    def expected(self, rows: float) -> float:
        return rows * self.scan.estimate

    def describe(self, ctx: Context, rows: float) -> str:
        index = self._index(ctx)
        if index is None or (ctx.trace is not None and id(self) in ctx.trace.modes):
            return f"{self.scan.describe(ctx, rows)}, nearest exact"
        pushed = pushed_filter(self.scan.where, ctx.params)
        return f"scan    {self.scan.text}  approximate ({index}){f' where {pushed}' if pushed else ''}"


def _count(value: int | Param | None, ctx: Context) -> int:
    number = ctx.params.get(value.name) if isinstance(value, Param) else value
    return number if isinstance(number, int) and number > 0 else 0


def through_vector_index(
    steps: tuple[Step, ...], final: object, order: Order | None, limit: Limit | None
) -> tuple[Step, ...]:
    """The steps, with a lone scan whose rows are ordered by `nearest` first and cut by a limit as a `NearScanStep`."""
    scan, *rest = steps
    lone = isinstance(scan, ScanStep) and scan.key is None and all(isinstance(step, KeepStep) for step in rest)
    if not (lone and isinstance(scan, ScanStep) and isinstance(final, Project) and order is not None):
        return steps
    if limit is None or limit.count is None or order.keys[0].descending:
        return steps
    columns = dict(final.columns)
    lead, *others = (columns.get(k.expr.name, k.expr) if isinstance(k.expr, Column) else k.expr for k in order.keys)
    if any(map(is_ranking, others)):
        return steps  # they leave out rows, so that any may be among the first
    results = [*columns.values(), lead, *others]
    if any(isinstance(part, Call) and part.fn == "rrf" for expr in results for part in parts_of(expr)):
        return steps  # its ranks are those among all rows
    match lead:
        case Call(fn="nearest", args=(Prop(), _, Lit(bool() as asked, _))) if is_ranking(lead):
            ranking = make_ranking(lead)
            if isinstance(ranking, Nearest):
                return (NearScanStep(scan, ranking, limit, asked), *rest)
    return steps
