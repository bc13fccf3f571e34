"""The query language (`.gq`): from a text to typed IR, checked against a catalog. Pure; knows nothing of storage."""

from __future__ import annotations

from typing import TYPE_CHECKING

from omnigraph.deferred import deferred

if TYPE_CHECKING:
    from omnigraph.query.compile import compile_queries, compile_query
    from omnigraph.query.format import format_queries
    from omnigraph.query.ir import CompiledQuery
    from omnigraph.query.params import bind_params

__all__ = ["CompiledQuery", "bind_params", "compile_queries", "compile_query", "format_queries"]

__getattr__ = deferred(
    __name__,
    {
        "compile": (
            "compile_queries",
            "compile_query",
        ),
        "format": ("format_queries",),
        "ir": ("CompiledQuery",),
        "params": ("bind_params",),
    },
)
