"""Writing: mutations, loads, merges and exports.

Each verb fills a `Staging` that `Repository.commit` makes visible at once.

Names are imported at first use, since `omnigraph.write.mapping` serves programs that have neither pyarrow nor lance.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

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

_HOME = {
    "Diff": "diffing",
    "EmbedProgress": "backfill",
    "EmbedReport": "backfill",
    "LoadResult": "loader",
    "MergeResult": "merging",
    "MutationResult": "mutation",
    "Progress": "loader",
    "SchemaResult": "evolving",
    "TableOutcome": "evolving",
    "apply_schema": "evolving",
    "embed": "backfill",
    "export": "exporter",
    "load": "loader",
    "merge": "merging",
    "mutate": "mutation",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
