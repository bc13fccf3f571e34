"""Running a compiled read query over one pinned snapshot."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from omnigraph.errors import BadRequest
from omnigraph.query.ir import CompiledQuery
from omnigraph.read.adjacency import AdjacencyCache
from omnigraph.read.frame import Context
from omnigraph.read.limits import Limits, apart, limited
from omnigraph.read.plan import plan, run
from omnigraph.read.settings import ReadSettings, read_settings
from omnigraph.read.tables import TableCache
from omnigraph.read.told import told
from omnigraph.read.trace import Trace, counted

if TYPE_CHECKING:
    from omnigraph.storage import Snapshot

__all__ = ["execute", "explain"]


def _context(
    snapshot: Snapshot, params: Mapping[str, Any], settings: ReadSettings | None, trace: Trace | None = None
) -> Context:
    settings = settings or read_settings()
    if settings.traversal_mode != "scan":
        return Context(snapshot, params, settings, trace)
    tables = TableCache()  # nothing kept is used, and nothing is kept
    return Context(snapshot, params, settings, trace, tables, AdjacencyCache(tables))


def execute(
    compiled: CompiledQuery,
    snapshot: Snapshot,
    params: Mapping[str, Any],
    *,
    deadline: float | None = None,
    cancelled: Callable[[], bool] | None = None,
    settings: ReadSettings | None = None,
) -> pa.Table:
    """Run a read query.

    Args:
        compiled: from `compile_query`, against the snapshot's catalog.
        snapshot: what is read; the same from first to last.
        params: from `bind_params`; a missing one is null.
        deadline: `time.monotonic()` after which the query is given up, wherever it may be.
        cancelled: asked between blocks of work; True gives the query up.
        settings: limits and preferences other than the process's.

    Returns:
        Columns as `compiled.columns`: scalars in their Arrow type, DateTime as timestamp[ms, UTC], a whole entity as a
        struct with `id` (an edge also `src`, `dst`) and every property but vectors and blobs.

    Raises:
        BadRequest: an expression has no value (overflow, a division by zero, a text that is no number), a limit is no
            number, the query is too large or out of time.
    """
    if compiled.kind != "read":
        raise BadRequest(f"query {compiled.name!r} changes the graph: run it as a mutation")
    ctx = _context(snapshot, params, settings)
    if deadline is None and cancelled is None:
        return _answer(compiled, ctx)
    with limited(Limits(deadline, cancelled)):
        return _answer(compiled, ctx) if deadline is None else apart(lambda: _answer(compiled, ctx))


def _answer(compiled: CompiledQuery, ctx: Context) -> pa.Table:
    return told(compiled.name, lambda: run(compiled, ctx))


def explain(
    compiled: CompiledQuery,
    snapshot: Snapshot,
    params: Mapping[str, Any],
    *,
    analyze: bool = False,
    settings: ReadSettings | None = None,
) -> str:
    """The plan as text: one line a step, with pushed conditions, the way an edge is followed, and expected rows.

    Args:
        analyze: run the query too, and add to each step the rows it gave and the time it took.
        settings: limits and preferences other than the process's.

    Raises:
        BadRequest: as `execute`, where the query is run.
    """
    ctx = _context(snapshot, params, settings, Trace() if analyze else None)
    made = told(compiled.name, lambda: plan(compiled, ctx.catalog, snapshot))
    if not analyze:
        return f"query {compiled.name}\n{made.describe(ctx)}"
    begin = time.perf_counter()
    rows = told(compiled.name, lambda: made.run(ctx)).num_rows
    took = time.perf_counter() - begin
    return f"query {compiled.name}\n{made.describe(ctx)}\ntotal   {counted(rows)} rows, {took * 1000:.2f} ms"
