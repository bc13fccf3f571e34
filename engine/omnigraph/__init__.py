"""OmniGraph: typed property graphs as data you can branch, review and declare.

Everything public is here. Names are looked up at first use, so that `import omnigraph` costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from omnigraph.errors import (
        BadRequest,
        Conflict,
        Diagnostic,
        ExpectedVersionMismatch,
        Forbidden,
        Internal,
        LanguageError,
        MergeConflicts,
        NotFound,
        OmniGraphError,
        RecoveryPending,
        RowLevelCasContention,
        Span,
        Unavailable,
    )
    from omnigraph.graph import At, Branches, Graph, QueryResult, Recovery, Schema
    from omnigraph.maintain import VerifyReport
    from omnigraph.query.ir import ResultColumn
    from omnigraph.query.lint import LintReport, QueryReport
    from omnigraph.read.blob import Blob
    from omnigraph.schema.catalog import Catalog
    from omnigraph.schema.migrate import MigrationPlan
    from omnigraph.storage import (
        BranchInfo,
        CleanupReport,
        CommitInfo,
        OptimizeReport,
        RepairReport,
        Snapshot,
        SweepReport,
    )
    from omnigraph.write import (
        Diff,
        EmbedProgress,
        EmbedReport,
        LoadResult,
        MergeResult,
        MutationResult,
        Progress,
    )
    from omnigraph.write.evolving import SchemaResult
    from omnigraph.write.mapping import Mapping

    __version__: str

__all__ = [
    "At",
    "BadRequest",
    "Blob",
    "BranchInfo",
    "Branches",
    "Catalog",
    "CleanupReport",
    "CommitInfo",
    "Conflict",
    "Diagnostic",
    "Diff",
    "EmbedProgress",
    "EmbedReport",
    "ExpectedVersionMismatch",
    "Forbidden",
    "Graph",
    "Internal",
    "LanguageError",
    "LintReport",
    "LoadResult",
    "Mapping",
    "MergeConflicts",
    "MergeResult",
    "MigrationPlan",
    "MutationResult",
    "NotFound",
    "OmniGraphError",
    "OptimizeReport",
    "Progress",
    "QueryReport",
    "QueryResult",
    "Recovery",
    "RecoveryPending",
    "RepairReport",
    "ResultColumn",
    "RowLevelCasContention",
    "Schema",
    "SchemaResult",
    "Snapshot",
    "Span",
    "SweepReport",
    "Unavailable",
    "VerifyReport",
    "__version__",
    "init",
    "lint",
    "open",
]

_HOMES = {
    name: home
    for home, names in {
        "omnigraph.graph": (
            "At",
            "Branches",
            "Graph",
            "QueryResult",
            "Recovery",
            "Schema",
        ),
        "omnigraph.maintain": ("VerifyReport",),
        "omnigraph.query.ir": ("ResultColumn",),
        "omnigraph.query.lint": (
            "LintReport",
            "QueryReport",
        ),
        "omnigraph.read.blob": ("Blob",),
        "omnigraph.schema.migrate": ("MigrationPlan",),
        "omnigraph.schema.catalog": ("Catalog",),
        "omnigraph.storage": (
            "BranchInfo",
            "CleanupReport",
            "CommitInfo",
            "OptimizeReport",
            "RepairReport",
            "Snapshot",
            "SweepReport",
        ),
        "omnigraph.write": (
            "Diff",
            "EmbedProgress",
            "EmbedReport",
            "LoadResult",
            "MergeResult",
            "MutationResult",
            "Progress",
            "SchemaResult",
        ),
        "omnigraph.write.mapping": ("Mapping",),
    }.items()
    for name in names
}


def init(uri: str | Path, *, schema: str | Path, actor: str | None = None, operation_id: str | None = None) -> Graph:
    """Create an empty graph; see `Graph.init`."""
    from omnigraph.graph import Graph

    return Graph.init(uri, schema=schema, actor=actor, operation_id=operation_id)


def open(uri: str | Path, *, read_only: bool = False, actor: str | None = None, recovery: Recovery = "auto") -> Graph:
    """Open a graph; see `Graph.open`."""
    from omnigraph.graph import Graph

    return Graph.open(uri, read_only=read_only, actor=actor, recovery=recovery)


def lint(text: str | Path, *, schema: str | Path) -> LintReport:
    """Check a `.gq` text against a `.pg` text without running anything.

    Args:
        text: the queries; a path is read, and named in messages.
        schema: the schema; likewise.

    Raises:
        LanguageError: the schema was refused. What is wrong with a query stands in the report.
    """
    from omnigraph.query.lint import lint_queries
    from omnigraph.schema import compile_schema
    from omnigraph.texts import text_and_name

    (queries, file), (declared, schema_file) = text_and_name(text, "<query>"), text_and_name(schema, "schema.pg")
    return lint_queries(queries, compile_schema(declared, file=schema_file), file=file)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("omnigraph")
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES.get(name, "omnigraph.errors")), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
