"""Reading one pinned table in a process that has no `Repository`, such as a Spark executor."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from omnigraph.storage.store import Store
from omnigraph.storage.translate import lance_errors
from omnigraph.storage.types import TableRef
from omnigraph.storage.uri import parse_root

__all__ = ["scan_table"]


def scan_table(uri: str, ref: TableRef, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The columns of every row that the pin sees, batch by batch, in any order of rows.

    Args:
        uri: the graph's root; credentials come from this process's environment.

    Raises:
        NotFound: the pinned version was removed by cleanup.
    """
    dataset = Store(parse_root(uri), read_only=True).pinned(ref)
    with lance_errors(f"reading {ref.table_key}"):
        yield from dataset.scanner(columns=list(columns)).to_batches()
