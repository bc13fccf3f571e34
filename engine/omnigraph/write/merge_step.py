"""The step of a merge: (base, ours, theirs) → result, for rows of one table. Pure.

The unit is the row: whoever changed it alone wins, equal changes agree, anything else is a conflict. Merging by
property and files that resolve conflicts belong here and nowhere else.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.read.compute import Array, pc
from omnigraph.records import dataclass
from omnigraph.write.columns import one_chunk

__all__ = ["Clash", "Step", "merge_step", "same_rows"]

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Clash:
    """Both sides changed a row, and differently. `kind`: divergent_insert, divergent_update or delete_vs_update."""

    kind: str
    id: str
    message: str


@dataclass(frozen=True, slots=True)
class Step:
    """What becomes of some rows on our side.

    Args:
        inserts: rows we lack, as they have them.
        updates: rows we have, as they have them.
        deletes: ids we have and they removed.
        clashes: what can't be decided; such rows are in none of the others.
    """

    inserts: pa.Table
    updates: pa.Table
    deletes: Array
    clashes: tuple[Clash, ...]


def merge_step(ids: Array, base: pa.Table, ours: pa.Table, theirs: pa.Table, *, unlike: Collection[str] = ()) -> Step:
    """Merge rows three ways.

    Args:
        ids: utf8, each once: the rows to decide on.
        base, ours, theirs: the rows of these ids, each id at most once; columns in any order, but equal ones.
        unlike: columns whose values say nothing across sides, so that they aren't compared.
    """
    at_base, at_ours, at_theirs = (_positions(ids, side) for side in (base, ours, theirs))
    compared = [side.drop_columns([n for n in unlike if n in side.schema.names]) for side in (base, ours, theirs)]
    they_changed = ~_same(compared[0], at_base, compared[2], at_theirs)
    we_changed = ~_same(compared[0], at_base, compared[1], at_ours)
    agree = _same(compared[1], at_ours, compared[2], at_theirs)
    take = they_changed & ~we_changed
    here, there = at_ours >= 0, at_theirs >= 0
    return Step(
        inserts=theirs.take(at_theirs[take & there & ~here]),
        updates=theirs.take(at_theirs[take & there & here]),
        deletes=ids.filter(pa.array(take & here & ~there)),
        clashes=_clashes(ids, they_changed & we_changed & ~agree, at_base >= 0, here, there),
    )


def _clashes(ids: Array, clash: Mask, before: Mask, here: Mask, there: Mask) -> tuple[Clash, ...]:
    out = []
    for i in np.flatnonzero(clash):
        if not before[i]:
            kind, said = "divergent_insert", "both sides inserted it, with different values"
        elif here[i] and there[i]:
            kind, said = "divergent_update", "both sides changed it, to different values"
        elif here[i]:
            kind, said = "delete_vs_update", "the source deleted it, the target changed it"
        else:
            kind, said = "delete_vs_update", "the target deleted it, the source changed it"
        out.append(Clash(kind, ids[i].as_py(), said))
    return tuple(out)


def _positions(ids: Array, rows: pa.Table) -> npt.NDArray[np.int64]:
    """Where each id stands among the rows; -1: nowhere."""
    found = pc.index_in(ids, value_set=one_chunk(rows.column("id")))
    out: npt.NDArray[np.int64] = np.asarray(pc.fill_null(found, -1)).astype(np.int64)
    return out


def _same(one: pa.Table, at_one: npt.NDArray[np.int64], other: pa.Table, at_other: npt.NDArray[np.int64]) -> Mask:
    """Per id: absent on both sides, or there with equal values."""
    both = (at_one >= 0) & (at_other >= 0)
    same = (at_one < 0) & (at_other < 0)
    same[both] = same_rows(one.take(at_one[both]), other.take(at_other[both]))
    return same


# ---- equality of values ----------------------------------------------------------------------------------------------


def same_rows(one: pa.Table, other: pa.Table) -> Mask:
    """Which rows have equal values, place by place. Null equals null, NaN equals NaN; columns are found by name."""
    same = np.ones(one.num_rows, dtype=bool)
    for name in one.schema.names:
        same &= _same_values(one_chunk(one.column(name)), one_chunk(other.column(name)))
    return same


def _same_values(one: Array, other: Array) -> Mask:
    if isinstance(one.type, pa.BaseExtensionType):
        one, other = one.storage, other.storage
    kind = one.type
    nulls = _bools(pc.is_null(one)), _bools(pc.is_null(other))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        same = _same_lists(one, other)
    elif pa.types.is_struct(kind):
        parts = [_same_values(pc.struct_field(one, [i]), pc.struct_field(other, [i])) for i in range(kind.num_fields)]
        same = np.logical_and.reduce(parts) if parts else np.ones(len(one), dtype=bool)
    else:
        same = _bools(pc.fill_null(pc.equal(one, other), False))
        if pa.types.is_floating(kind):
            same |= _bools(pc.fill_null(pc.and_(pc.is_nan(one), pc.is_nan(other)), False))
    valid = ~nulls[0] & ~nulls[1]
    return (valid & same) | (nulls[0] & nulls[1])


def _same_lists(one: Array, other: Array) -> Mask:
    """Equal lengths, then equal elements, all lists' elements in one comparison."""
    lengths, others = _lengths(one), _lengths(other)
    same: Mask = lengths == others
    rows = np.flatnonzero(same & (lengths > 0))
    if len(rows):
        picked = pa.array(rows)
        elements = _same_values(_elements(one.take(picked)), _elements(other.take(picked)))
        starts = np.concatenate([[0], np.cumsum(lengths[rows])[:-1]])
        same[rows] = np.logical_and.reduceat(elements, starts)
    return same


def _elements(lists: Array) -> Array:
    return pc.list_flatten(lists)


def _lengths(lists: Array) -> Any:
    return np.asarray(pc.fill_null(pc.list_value_length(lists), 0)).astype(np.int64)


def _bools(column: Sequence[Any] | Array) -> Mask:
    out: Mask = np.asarray(column).astype(bool)
    return out
