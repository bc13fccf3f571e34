"""Which tables and columns of two states are the same, when the schema changed between them.

A type or property is told by its id in the schema IR, so that a rename is no change of any row. A column that only one
state has, because it was added or dropped, says nothing of its rows; but once added, a row may have got a value in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field

import pyarrow as pa

from omnigraph.records import dataclass
from omnigraph.schema.catalog import EdgeType, NodeType, Property
from omnigraph.schema.ir import SchemaIR, TypeIR
from omnigraph.storage import Snapshot
from omnigraph.write.rows import default_column

__all__ = ["Pair", "pairs"]


@dataclass(frozen=True, slots=True)
class Pair:
    """One type in both states, or in one of them.

    Args:
        entity: as the later-named state declares it, or the other where it isn't there.
        before, after: its keys; None: it isn't there.
        renamed: columns that have another name in the second state, old to new.
        dropped: columns of each state that the other once had or never got: not compared.
        filled: columns of each state that the other lacks, with what its rows would have in them.
    """

    entity: NodeType | EdgeType
    before: str | None
    after: str | None
    renamed: Mapping[str, str] = field(default_factory=dict)
    dropped: tuple[frozenset[str], frozenset[str]] = (frozenset(), frozenset())
    filled: tuple[Mapping[str, Property], Mapping[str, Property]] = field(default_factory=lambda: ({}, {}))

    def align(self, before: pa.Table, after: pa.Table) -> tuple[pa.Table, pa.Table]:
        """Rows of the two states with the columns that can be compared, under the second one's names."""
        before = before.rename_columns([self.renamed.get(n, n) for n in before.column_names])
        before = before.drop_columns([n for n in before.column_names if n in self.dropped[0]])
        after = after.drop_columns([n for n in after.column_names if n in self.dropped[1]])
        return _fill(before, self.filled[1]), _fill(after, self.filled[0])


def _fill(rows: pa.Table, columns: Mapping[str, Property]) -> pa.Table:
    for name, prop in columns.items():
        if prop.type.base != "Blob":  # a Blob has no default
            rows = rows.append_column(name, default_column(prop, rows.num_rows))
    return rows


def pairs(one: Snapshot, other: Snapshot) -> Iterator[Pair]:
    """Every type of two states, in the order of declaration, those of the first alone last."""
    old, new = one.catalog.by_table_key, other.catalog.by_table_key
    if one.schema_hash == other.schema_hash and one.head.schema_ir == other.head.schema_ir:
        yield from (Pair(entity, key, key) for key, entity in new.items())
        return
    if one.head.schema_hash is None or other.head.schema_hash is None:
        # Of another maker, whose older schemas are guessed from their tables: names are all there is.
        for key, entity in (dict(old) | dict(new)).items():
            yield Pair(entity, key if key in old else None, key if key in new else None)
        return
    first, second = one.schema_ir, other.schema_ir
    for key, entity in new.items():
        mine = second.by_table_key[key]
        was = first.by_id.get(mine.id)
        if was is None:
            yield Pair(entity, None, key)
        else:
            yield _paired(first, second, was, mine, old[was.table_key], entity)
    for key, entity in old.items():
        if first.by_table_key[key].id not in second.by_id:
            yield Pair(entity, key, None)


def _paired(
    first: SchemaIR, second: SchemaIR, was: TypeIR, now: TypeIR, before: NodeType | EdgeType, after: NodeType | EdgeType
) -> Pair:
    old, new = {p.id: p.name for p in was.properties}, {p.id: p.name for p in now.properties}
    # An id is given once and in order: one that the other state's schema can't have given yet came after it.
    gone = {name for i, name in old.items() if i not in new and i < second.next_id}
    back = {name for i, name in new.items() if i not in old and i < first.next_id}
    return Pair(
        after,
        was.table_key,
        now.table_key,
        {name: new[i] for i, name in old.items() if i in new and new[i] != name},
        (frozenset(gone), frozenset(back)),
        (
            {name: before.properties[name] for i, name in old.items() if i >= second.next_id},
            {name: after.properties[name] for i, name in new.items() if i >= first.next_id},
        ),
    )
