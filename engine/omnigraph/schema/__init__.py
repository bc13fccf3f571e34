"""The schema language (`.pg`): from a text to the catalog of types it declares. Pure; knows nothing of storage."""

from omnigraph.schema.catalog import Catalog, EdgeType, NodeType, Property, Type
from omnigraph.schema.compile import compile_schema

__all__ = ["Catalog", "EdgeType", "NodeType", "Property", "Type", "compile_schema"]
