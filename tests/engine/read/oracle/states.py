"""The states a repository may be read in: one history of commits, index builds, compactions and a branch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from ulid import ULID

from omnigraph.graph import Graph as Opened
from omnigraph.schema import Catalog
from omnigraph.storage import Repository, Snapshot, Staging, TableChange, WriterKind, table_schema
from tests.engine.read.oracle.graphs import Change, Graph, Row, Schema, change

__all__ = ["STEPS", "State", "commit", "states", "table_of"]

STEPS = (
    "commit", "index", "commit", "branch", "commit on branch", "optimize", "commit", "commit on branch",
    "optimize branch", "index branch", "commit on branch", "optimize", "index",
)  # fmt: skip
"""What happens to a repository, in this order; a test may leave some out."""


@dataclass(frozen=True)
class State:
    """`warm` says whether something of earlier states may be kept in this process."""

    name: str
    snapshot: Snapshot
    graph: Graph
    warm: bool


def table_of(schema: pa.Schema, rows: list[Row]) -> pa.Table:
    """Rows as a table; Arrow would cut a datetime to its day, so DateTime goes in as milliseconds."""
    columns = []
    for f in schema:
        values = [row.get(f.name) for row in rows]
        if pa.types.is_date64(f.type):
            millis = [None if v is None else round(v.timestamp() * 1000) for v in values]
            columns.append(pa.array(millis, pa.int64()).view(pa.date64()))
        else:
            columns.append(pa.array(values, f.type))
    return pa.table(columns, schema=schema)


def commit(repository: Repository, catalog: Catalog, branch: str, done: Change) -> None:
    """Write a change as one commit."""
    changes = []
    for key, entity in catalog.by_table_key.items():
        schema = table_schema(entity)
        new, old, gone = done.appends.get(key), done.upserts.get(key), done.deletes.get(key)
        if new or old or gone:
            table: dict[str, Any] = {
                "appends": table_of(schema, new) if new else None,
                "upserts": table_of(schema, old) if old else None,
                "delete_ids": pa.array(gone, pa.string()) if gone else None,
            }
            changes.append(TableChange(key, **table))
    if changes:
        staging = Staging(branch, WriterKind.LOAD, tuple(changes), operation_id=str(ULID()))
        repository.commit(staging, repository.snapshot(branch))


def states(
    folder: Path, catalog: Catalog, schema: Schema, graph: Graph, seed: int, kept: list[bool]
) -> Iterator[State]:
    """The states of a history, warm; and each that an index build or a compaction left once more, opened anew.

    Args:
        kept: which of `STEPS` happen.
    """
    repository = Repository.create(str(folder), catalog)
    opened = Opened(repository)
    rows = {k: list(v.values()) for k, v in graph.items()}
    commit(repository, catalog, "main", Change(rows, {}, {}))
    yield State("new", repository.snapshot(), graph, warm=False)
    here = {"main": graph}
    for number, (step, happens) in enumerate(zip(STEPS, kept, strict=True)):
        branch = "draft" if "branch" in step else "main"
        if not happens or (branch not in here and step != "branch"):
            continue
        name = f"{number} {step}"
        if step == "branch":
            opened.branches.create("draft")
            here["draft"] = here["main"]
        elif step.startswith("commit"):
            here[branch], done = change(schema, here[branch], f"{seed} {number}")
            commit(repository, catalog, branch, done)
        elif step.startswith("optimize"):
            opened.optimize(branch=branch)
        else:
            opened.ensure_indices(branch=branch)
        yield State(name, repository.snapshot(branch), here[branch], warm=True)
        if step.startswith(("optimize", "index")):
            again = Repository.open(str(folder))
            yield State(f"{name}, opened anew", again.snapshot(branch), here[branch], warm=False)
    for branch, last in here.items():
        yield State(f"{branch} at the end", repository.snapshot(branch), last, warm=True)
