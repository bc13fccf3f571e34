"""Reads: a compiled query over one pinned snapshot, to an Arrow table, to what a person or program wants to see."""

from __future__ import annotations

from typing import TYPE_CHECKING

from omnigraph.deferred import deferred
from omnigraph.read.entity import entity, plain_rows
from omnigraph.read.execute import execute, explain
from omnigraph.read.render import FORMATS, html_table, json_array, json_rows, render

if TYPE_CHECKING:
    from omnigraph.read.blob import Blob, open_blob
    from omnigraph.read.frames import library, networkx_graph

__all__ = [
    "FORMATS",
    "Blob",
    "entity",
    "execute",
    "explain",
    "html_table",
    "json_array",
    "json_rows",
    "library",
    "networkx_graph",
    "open_blob",
    "plain_rows",
    "render",
]

__getattr__ = deferred(
    __name__,
    {
        "blob": (
            "Blob",
            "open_blob",
        ),
        "frames": (
            "library",
            "networkx_graph",
        ),
    },
)
