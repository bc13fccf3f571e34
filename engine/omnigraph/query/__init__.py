"""The query language (`.gq`): from a text to typed IR, checked against a catalog. Pure; knows nothing of storage."""

from omnigraph.query.compile import compile_queries, compile_query
from omnigraph.query.format import format_queries
from omnigraph.query.ir import CompiledQuery
from omnigraph.query.params import bind_params

__all__ = ["CompiledQuery", "bind_params", "compile_queries", "compile_query", "format_queries"]
