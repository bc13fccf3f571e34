"""Writing: mutations, loads, merges and exports.

Each verb fills a `Staging` that `Repository.commit` makes visible at once. `omnigraph.write.mapping` serves programs
that have neither pyarrow nor lance.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from omnigraph.deferred import deferred

if TYPE_CHECKING:
    from omnigraph.write.backfill import EmbedProgress, EmbedReport, embed
    from omnigraph.write.diffing import Diff
    from omnigraph.write.evolving import SchemaResult, TableOutcome, apply_schema
    from omnigraph.write.exporter import export
    from omnigraph.write.loader import LoadResult, Progress, load
    from omnigraph.write.merging import MergeResult, merge
    from omnigraph.write.mutation import MutationResult, mutate

__all__ = [
    "Diff",
    "EmbedProgress",
    "EmbedReport",
    "LoadResult",
    "MergeResult",
    "MutationResult",
    "Progress",
    "SchemaResult",
    "TableOutcome",
    "apply_schema",
    "embed",
    "export",
    "load",
    "merge",
    "mutate",
]

__getattr__ = deferred(
    __name__,
    {
        "backfill": (
            "EmbedProgress",
            "EmbedReport",
            "embed",
        ),
        "diffing": ("Diff",),
        "evolving": (
            "SchemaResult",
            "TableOutcome",
            "apply_schema",
        ),
        "exporter": ("export",),
        "loader": (
            "LoadResult",
            "Progress",
            "load",
        ),
        "merging": (
            "MergeResult",
            "merge",
        ),
        "mutation": (
            "MutationResult",
            "mutate",
        ),
    },
)
