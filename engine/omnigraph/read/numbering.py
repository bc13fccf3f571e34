"""Which position a row of a table has, and how the positions of a later version come from those of an earlier one.

A table that is read from end to end numbers its rows as they come. A version that has grown from one whose positions
are known keeps them: updated rows stay where they are, removed ones are closed up, new ones come at the end. So what
was made of the earlier version (columns, id map, adjacency) is changed in a few places instead of made again.
"""

from __future__ import annotations

from dataclasses import field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.read.builds import built
from omnigraph.read.compute import Array, together
from omnigraph.records import dataclass

__all__ = ["Numbering", "RowIds", "Splice", "through"]

RowIds = npt.NDArray[np.uint64]
Longs = npt.NDArray[np.int64]

_PIECES = 64  # changed places up to which a column is put together from slices; above, its rows are taken one by one
_REMEMBERED = 64  # changes that lead back to earlier versions


@dataclass(frozen=True, eq=False)
class Splice:
    """One change of positions.

    Args:
        before: the mark of the numbering it starts from.
        size: rows before.
        removed: their positions before, ascending.
        updated: positions before, ascending, of rows with other values now; none of them is removed.
        appended: how many new rows stand at the end.
    """

    before: object
    size: int
    removed: Longs
    updated: Longs
    appended: int

    @property
    def kept(self) -> int:
        """How many rows stay; new ones begin there."""
        return self.size - len(self.removed)

    def moved(self, at: Longs) -> Longs:
        """Positions afterwards of rows that stay."""
        return at - np.searchsorted(self.removed, at) if len(self.removed) else at

    def came_from(self, at: Longs) -> Longs:
        """Positions before of rows that stay."""
        return at + np.searchsorted(self.removed - np.arange(len(self.removed)), at, side="right")

    def column(self, old: Array, new: Array) -> Array:
        """A column afterwards; `new` has the values of the updated rows and then of the appended ones."""
        if new.type != old.type:
            new = new.cast(old.type)
        written = len(self.updated)
        places = np.concatenate([self.updated, self.removed])
        if len(places) > _PIECES:
            index: Longs = np.arange(self.size)
            index[self.updated] = self.size + np.arange(written)
            index = np.concatenate([np.delete(index, self.removed), self.size + np.arange(written, len(new))])
            return together([old, new]).take(pa.array(index))
        source = np.concatenate([np.arange(written), np.full(len(self.removed), -1)])
        parts, done = [], 0
        for i in np.argsort(places):
            parts.append(old.slice(done, int(places[i]) - done))
            if source[i] >= 0:
                parts.append(new.slice(int(source[i]), 1))
            done = int(places[i]) + 1
        return together([*parts, old.slice(done), new.slice(written)])


@dataclass(frozen=True, eq=False)
class Numbering:
    """The positions of one version's rows.

    Args:
        row_ids: the row id at each position.
        files: what the version is made of.
        natural: whether rows stand as a scan gives them.
        steps: how positions came from those of earlier versions, oldest first.
        mark: tells it from any other numbering: a version dropped and read again may be numbered another way.
    """

    row_ids: RowIds
    files: frozenset[str]
    natural: bool = True
    steps: tuple[Splice, ...] = ()
    mark: object = field(default_factory=object)

    @property
    def rows(self) -> int:
        return len(self.row_ids)

    @property
    def nbytes(self) -> int:
        order = self.__dict__.get("_order")
        changes = sum(step.removed.nbytes + step.updated.nbytes for step in self.steps)
        return int(self.row_ids.nbytes + changes + (0 if order is None else order.nbytes))

    @built(lambda self: self.rows)
    def _order(self) -> Longs | None:
        """The order that sorts the row ids; None where they ascend as they are."""
        if bool((self.row_ids[1:] > self.row_ids[:-1]).all()):
            return None
        return np.argsort(self.row_ids)

    def places(self, row_ids: RowIds) -> Longs:
        """The positions of rows; −1 where a row isn't there."""
        if not len(self.row_ids):
            return np.full(len(row_ids), -1, dtype=np.int64)
        order = self._order
        spot = np.minimum(np.searchsorted(self.row_ids, row_ids, sorter=order), len(self.row_ids) - 1)
        at = spot if order is None else order[spot]
        return np.where(self.row_ids[at] == row_ids, at, -1)

    def since(self, earlier: Numbering) -> tuple[Splice, ...] | None:
        """The changes from earlier positions to these; None where these didn't come from them, or long ago."""
        if earlier is self:
            return ()
        for i, step in enumerate(self.steps):
            if step.before is earlier.mark:
                return self.steps[i:]
        return None

    def spliced(self, removed: RowIds, written: RowIds, files: frozenset[str]) -> Numbering:
        """The numbering of a version in which rows are gone, and others inserted or updated."""
        gone = self.places(removed)
        at = self.places(written)
        order = np.argsort(at, kind="stable")  # new rows first
        new = int((at < 0).sum())
        removed_at = np.sort(gone[gone >= 0])
        step = Splice(self.mark, self.rows, removed_at, at[order][new:], new)
        appended = np.sort(written[at < 0])
        kept = np.delete(self.row_ids, removed_at) if len(removed_at) else self.row_ids
        row_ids = np.concatenate([kept, appended]) if new else kept
        return Numbering(row_ids, files, natural=False, steps=(*self.steps, step)[-_REMEMBERED:])

    def written(self) -> RowIds:
        """The rows of the last change, as `Splice.column` wants their values."""
        step = self.steps[-1]
        return np.concatenate([self.row_ids[step.moved(step.updated)], self.row_ids[step.kept :]])

    def unchanged(self, files: frozenset[str]) -> Numbering:
        """The numbering of a version with the same rows, wherever a scan finds them."""
        none: Longs = np.zeros(0, dtype=np.int64)
        step = Splice(self.mark, self.rows, none, none, 0)
        natural = self.natural and files == self.files
        return Numbering(self.row_ids, files, natural, (*self.steps, step)[-_REMEMBERED:])


def through(steps: tuple[Splice, ...], size: int) -> Splice:
    """Several changes as one; `size` is the number of rows before them."""
    none: Longs = np.zeros(0, dtype=np.int64)
    whole = Splice(None, size, none, none, 0)
    for step in steps:
        kept = whole.kept
        removed, updated = step.removed, step.updated
        gone = whole.came_from(removed[removed < kept])
        touched = whole.came_from(updated[updated < kept])
        all_gone = np.union1d(whole.removed, gone)
        all_touched = np.setdiff1d(np.union1d(whole.updated, touched), all_gone)
        appended = whole.appended - int((removed >= kept).sum()) + step.appended
        whole = Splice(None, size, all_gone, all_touched, appended)
    return whole
