"""`optimize`: indexes cover every row again, many small data files become few. Changes no row (03 §3.5).

Indexes come first: Lance compacts rows that an index covers and rows it doesn't apart, so that the other order would
leave work for the next run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from omnigraph.maintain.indices import label, wanted_indices
from omnigraph.storage import OptimizeReport, Repository
from omnigraph.storage.indices import index_name

__all__ = ["optimize"]


def optimize(
    repository: Repository,
    *,
    branch: str = "main",
    actor: str | None = None,
    operation_id: str | None = None,
    notice: Callable[[str], None] | None = None,
) -> OptimizeReport:
    """Extend the indexes that there are, then compact. An index that is missing altogether is left to `ensure_indices`.

    Raises:
        NotFound: no such branch.
        RecoveryPending: an interrupted write on the branch must be settled first.
        Conflict: other writes kept moving a table.
    """
    snapshot = repository.snapshot(branch)
    wanted: dict[str, list[tuple[str, str]]] = {}
    for key, entity in snapshot.catalog.by_table_key.items():
        ref = snapshot.tables.get(key)
        if ref is None or (ref.branch or "main") != branch:
            continue
        drift = repository.drift(snapshot, key)
        if drift is not None and drift.kind == "MayChangeRows":
            continue  # reported by the compaction
        there = {index.name for index in snapshot.dataset(key).describe_indices()}
        wanted[key] = [(column, kind) for column, kind in wanted_indices(entity) if index_name(column, kind) in there]
    built = repository.build_indices(branch, wanted, actor=actor, own=True).built
    report = repository.optimize(branch, actor=actor, operation_id=operation_id, notice=notice)
    extended: dict[str, list[str]] = {}
    for one in built:
        extended.setdefault(one["table_key"], []).append(label(one["column"], one["index_type"]))
    tables = tuple(replace(t, extended=tuple(extended.get(t.table_key, ()))) for t in report.tables)
    return replace(report, tables=tables)
