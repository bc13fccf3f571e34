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
    from omnigraph.graph import Graph, QueryResult, Recovery
    from omnigraph.query.lint import LintReport, QueryReport
    from omnigraph.read.blob import Blob
    from omnigraph.schema.catalog import Catalog
    from omnigraph.schema.migrate import MigrationPlan
    from omnigraph.write.evolving import SchemaResult
    from omnigraph.write.mapping import Mapping

    __version__: str

__all__ = [
    "BadRequest",
    "Blob",
    "Catalog",
    "Conflict",
    "Diagnostic",
    "ExpectedVersionMismatch",
    "Forbidden",
    "Graph",
    "Internal",
    "LanguageError",
    "LintReport",
    "Mapping",
    "MergeConflicts",
    "MigrationPlan",
    "NotFound",
    "OmniGraphError",
    "QueryReport",
    "QueryResult",
    "RecoveryPending",
    "RowLevelCasContention",
    "SchemaResult",
    "Span",
    "Unavailable",
    "__version__",
    "init",
    "lint",
    "open",
]

_HOMES = (
    {"Blob": "omnigraph.read.blob", "Catalog": "omnigraph.schema.catalog", "Mapping": "omnigraph.write.mapping"}
    | {"MigrationPlan": "omnigraph.schema.migrate", "SchemaResult": "omnigraph.write.evolving"}
    | dict.fromkeys(("Graph", "QueryResult"), "omnigraph.graph")
    | dict.fromkeys(("LintReport", "QueryReport"), "omnigraph.query.lint")
)


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

    (queries, file), (declared, schema_file) = _text_and_name(text, "<query>"), _text_and_name(schema, "schema.pg")
    return lint_queries(queries, compile_schema(declared, file=schema_file), file=file)


def _text_and_name(source: str | Path, default: str) -> tuple[str, str]:
    """The text of a source and the file name for messages about it."""
    return (source, default) if isinstance(source, str) else (source.read_text(encoding="utf-8"), str(source))


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("omnigraph")
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES.get(name, "omnigraph.errors")), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
