"""What a schema change does to one table, as a fixed number of Lance commits (01 §1.6, 07 §8).

The first is the guarded update that every writer makes, with nothing in it: of two that began at one version exactly
one wins, and the rest happens under its shield. Renames, optional columns and drops are metadata; a column of nulls has
no file either; a default is written into a file of its own. A table without rows is overwritten with its new shape.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any, TypeAlias

import lance
import numpy as np
import pyarrow as pa

from omnigraph.errors import ExpectedVersionMismatch, OmniGraphError
from omnigraph.records import dataclass
from omnigraph.storage.change import apply, stage
from omnigraph.storage.steps import Step, reach
from omnigraph.storage.translate import is_commit_race, lance_errors
from omnigraph.storage.types import TableChange, TableRef

__all__ = ["TableEvolution", "commits_of", "evolve"]

Commit: TypeAlias = Callable[[lance.LanceDataset, str], lance.LanceDataset]
"""One commit on a handle that stands at the head; the str is the sidecar's name. Returns a handle after it."""


@dataclass(frozen=True)
class TableEvolution:
    """One table's part of a schema change. Where nothing but the key changes, or the type goes, only the guard is made.

    Args:
        table_key: what the table is called before.
        schema: the columns it would be made with after it.
        renamed_to: its key after it, where that is another one.
        renamed: columns that get another name, old to new.
        nullable: columns, by their new names, that may be null from here on.
        added: one row with the new columns and what the rows there are get in them.
        dropped: columns that go, by the names they have before.
        gone: the type is dropped.
        purge: remove old versions after the publish.
    """

    table_key: str
    schema: pa.Schema
    renamed_to: str | None = None
    renamed: Mapping[str, str] = field(default_factory=dict)
    nullable: tuple[str, ...] = ()
    added: pa.Table | None = None
    dropped: tuple[str, ...] = ()
    gone: bool = False
    purge: bool = False

    @property
    def key_after(self) -> str:
        return self.renamed_to or self.table_key


def commits_of(dataset: lance.LanceDataset, evolution: TableEvolution) -> list[Commit]:
    """The commits that lead a table from its pinned version to its new shape. The same version gives as many."""
    if not dataset.count_rows():
        shape = dataset.lance_schema if evolution.gone else evolution.schema
        return [lambda handle, mark: apply(handle, lance.LanceOperation.Overwrite(shape, []), mark)]
    out: list[Commit] = [lambda handle, mark: apply(handle, stage(handle, TableChange(evolution.table_key)), mark)]
    if evolution.gone:
        return out
    # Indexes are found by the column's name, and the name may be given to another column.
    out += [_without_index(name) for name in _indices_on(dataset, set(evolution.renamed))]
    if alterations := _alterations(evolution):
        out.append(_in_place(lambda handle: handle.alter_columns(*alterations)))
    nulls, filled = _added(evolution)
    if len(nulls):
        out.append(_in_place(lambda handle: handle.add_columns(nulls)))
    if filled is not None:
        out.append(_in_place(lambda handle: handle.add_columns(_constant(filled), read_columns=["id"])))
    if evolution.dropped:
        out.append(_in_place(lambda handle: handle.drop_columns(list(evolution.dropped))))
    return out


def evolve(dataset: lance.LanceDataset, ref: TableRef, evolution: TableEvolution, mark: str) -> lance.LanceDataset:
    """Carry the commits out, each exactly one version after the last.

    Args:
        dataset: a handle of this writer's own, at the pinned version.

    Raises:
        ExpectedVersionMismatch: another write came first, or between.
    """
    with lance_errors(f"reading {ref.table_key}"):
        commits = commits_of(dataset, evolution)
    version = ref.version
    for commit in commits:
        try:
            with lance_errors(f"changing the columns of {ref.table_key}"):
                dataset = commit(dataset, mark)
        except OmniGraphError as error:
            if error.__cause__ is not None and is_commit_race(error.__cause__):
                raise ExpectedVersionMismatch(
                    ref.table_key, [ref.branch, version], "another write in flight"
                ) from error
            raise
        reach(Step.TABLE_COMMITTED)
        version += 1
        if int(dataset.version) != version:
            raise ExpectedVersionMismatch(
                ref.table_key, [ref.branch, version - 1], [ref.branch, int(dataset.version) - 1]
            )
    return dataset


def _in_place(change: Callable[[Any], None]) -> Commit:
    def commit(handle: lance.LanceDataset, mark: str) -> lance.LanceDataset:
        change(handle)
        return handle

    return commit


def _without_index(name: str) -> Commit:
    return _in_place(lambda handle: handle.drop_index(name))


def _indices_on(dataset: lance.LanceDataset, columns: set[str]) -> list[str]:
    return sorted(i.name for i in dataset.describe_indices() if columns & set(i.field_names)) if columns else []


def _alterations(evolution: TableEvolution) -> list[dict[str, Any]]:
    before = {new: old for old, new in evolution.renamed.items()}
    out: dict[str, dict[str, Any]] = {old: {"path": old, "name": new} for old, new in sorted(evolution.renamed.items())}
    for name in evolution.nullable:
        old = before.get(name, name)
        out.setdefault(old, {"path": old})["nullable"] = True
    return list(out.values())


def _added(evolution: TableEvolution) -> tuple[pa.Schema, pa.Table | None]:
    """New columns of nulls, and those with a value."""
    if evolution.added is None:
        return pa.schema([]), None
    names = evolution.added.column_names
    empty = [n for n in names if evolution.added.column(n).null_count]
    filled = [n for n in names if n not in empty]
    nulls = pa.schema([evolution.added.schema.field(n) for n in empty])
    return nulls, evolution.added.select(filled) if filled else None


def _constant(values: pa.Table) -> Any:
    schema = values.schema

    def repeat(batch: pa.RecordBatch) -> pa.RecordBatch:
        rows = values.take(np.zeros(batch.num_rows, dtype=np.int64))
        return pa.record_batch([rows.column(name).combine_chunks() for name in schema.names], schema=schema)

    made: Any = lance.batch_udf(output_schema=schema)(repeat)
    return made
