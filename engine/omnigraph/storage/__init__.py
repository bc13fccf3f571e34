"""Storage: tables, manifest, commits, branches, sidecars and recovery. The only room that knows Lance."""

from __future__ import annotations

from typing import TYPE_CHECKING

from omnigraph.deferred import deferred

if TYPE_CHECKING:
    from omnigraph.storage.arrow import arrow_type, table_schema
    from omnigraph.storage.cleanup import CleanupReport
    from omnigraph.storage.evolution import TableEvolution
    from omnigraph.storage.files import working_folder
    from omnigraph.storage.fragments import write_fragments
    from omnigraph.storage.index_kinds import index_coverage
    from omnigraph.storage.indices import IndexReport
    from omnigraph.storage.layout import check_operation_id
    from omnigraph.storage.optimize import OptimizeReport, TableOptimized
    from omnigraph.storage.remote import scan_table
    from omnigraph.storage.removal import Removed
    from omnigraph.storage.repair import Drift, RepairReport
    from omnigraph.storage.repository import At, Repository
    from omnigraph.storage.schema_apply import SchemaChange
    from omnigraph.storage.snapshot import Snapshot
    from omnigraph.storage.types import BranchInfo, CommitInfo, Staging, SweepReport, TableChange, TableRef, WriterKind

__all__ = [
    "At",
    "BranchInfo",
    "CleanupReport",
    "CommitInfo",
    "Drift",
    "IndexReport",
    "OptimizeReport",
    "Removed",
    "RepairReport",
    "Repository",
    "SchemaChange",
    "Snapshot",
    "Staging",
    "SweepReport",
    "TableChange",
    "TableEvolution",
    "TableOptimized",
    "TableRef",
    "WriterKind",
    "arrow_type",
    "check_operation_id",
    "index_coverage",
    "scan_table",
    "table_schema",
    "working_folder",
    "write_fragments",
]

__getattr__ = deferred(
    __name__,
    {
        "arrow": (
            "arrow_type",
            "table_schema",
        ),
        "cleanup": ("CleanupReport",),
        "evolution": ("TableEvolution",),
        "files": ("working_folder",),
        "fragments": ("write_fragments",),
        "index_kinds": ("index_coverage",),
        "indices": ("IndexReport",),
        "layout": ("check_operation_id",),
        "optimize": (
            "OptimizeReport",
            "TableOptimized",
        ),
        "remote": ("scan_table",),
        "removal": ("Removed",),
        "repair": (
            "Drift",
            "RepairReport",
        ),
        "repository": (
            "At",
            "Repository",
        ),
        "schema_apply": ("SchemaChange",),
        "snapshot": ("Snapshot",),
        "types": (
            "BranchInfo",
            "CommitInfo",
            "Staging",
            "SweepReport",
            "TableChange",
            "TableRef",
            "WriterKind",
        ),
    },
)
