"""Keeps a table's newest files few: every write adds one, and every later write looks through those no index covers.

A writer that meets a long tail joins its files before it writes. That changes no row, so nothing announces it: the
write's own publish covers it, and if the writer dies first, the next one's does.
"""

from __future__ import annotations

from lance.optimize import Compaction

from omnigraph.storage.engine import Engine
from omnigraph.storage.index_kinds import inherited
from omnigraph.storage.steps import Step, reach
from omnigraph.storage.translate import is_commit_race, lance_errors
from omnigraph.storage.types import TableRef

__all__ = ["TAIL_FILES", "TAIL_ROWS", "join_tail"]

TAIL_FILES = 64
"""Short files of a table from which on they are joined."""

TAIL_ROWS = 10_000
"""A file with fewer rows is short. `optimize` joins longer ones."""


def join_tail(engine: Engine, ref: TableRef) -> bool:
    """Join the short files of a table at its head `ref`, if they are many: same rows, same row ids.

    Returns:
        Whether the head has moved; what moved it is for the caller to look at: another write may have been quicker.
    """
    pinned = engine.store.pinned(ref)
    if not pinned.has_stable_row_ids:
        return False
    with lance_errors(f"joining the short files of {ref.table_key}"):
        if pinned.stats.dataset_stats(max_rows_per_group=TAIL_ROWS)["num_small_files"] <= TAIL_FILES:
            return False
        if any("blob" in str(field.type).lower() for field in pinned.schema):
            return False  # joining would copy every blob of the tail again and again
        if inherited(pinned):
            return False  # Lance can't carry such an index over: `optimize` makes it anew first
        dataset = engine.store.version(ref.location, ref.branch, ref.version)
        plan = Compaction.plan(dataset, {"target_rows_per_fragment": TAIL_ROWS, "materialize_deletions": False})
        if not plan.num_tasks():
            return False
        try:
            Compaction.commit(dataset, [task.execute(dataset) for task in plan.tasks])
        except (OSError, RuntimeError) as error:
            if not is_commit_race(error):
                raise
        reach(Step.TAIL_JOINED)
    return True
