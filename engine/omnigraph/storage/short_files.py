"""Rows by id, though many short files aren't covered by the index on ids yet.

Each small write adds such a file, and Lance reads every one of them for each question. What is in a file never changes,
so that its ids are read once and kept. Then Lance is asked without the short files that have none of the ids: what is
found never hangs on what the index is said to cover.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence

import lance
import numpy as np
import pyarrow as pa

from omnigraph.storage.layout import data_paths

__all__ = ["ShortFiles"]

FEW_FILES = 4
"""So many files whose ids aren't known Lance reads as quickly itself."""

MOST_ROWS = 20_000
"""Of files with more rows than this together no ids are kept: Lance reads them."""

FILES_KEPT = 4096

_WHOLE = "None"
"""No row is deleted."""

_Key = tuple[tuple[str, ...], str]
"""A fragment's content: its data files, whose names are never used again, and which of their rows are deleted."""


class ShortFiles:
    """What is known of the short files of one root. Thread-safe."""

    def __init__(self) -> None:
        self._ids: OrderedDict[_Key, frozenset[str]] = OrderedDict()
        self._lock = threading.Lock()

    def holding(self, dataset: lance.LanceDataset, ids: Collection[str]) -> list[lance.LanceFragment] | None:
        """Fragments beside which no other has a row with one of the ids: those the index covers, and short ones.

        Returns:
            None where Lance finds rows as quickly in all of them.
        """
        parts = _parts(dataset)
        if parts is None:
            return None
        others, short = parts
        known = self._known(dataset, short)
        if known is None:
            return None
        hit = [fragment for fragment, key in short if not known[key].isdisjoint(ids)]
        return [*others, *hit] or [short[0][0]]  # none at all would mean all to Lance

    def learn(self, files: Sequence[str], ids: Collection[str]) -> None:
        """Take note of a fragment just written.

        Args:
            files: the paths of its data files.
            ids: those of all its rows, others perhaps too.
        """
        if len(ids) <= MOST_ROWS:
            self._keep({(tuple(files), _WHOLE): frozenset(ids)})

    def _known(
        self, dataset: lance.LanceDataset, short: Sequence[tuple[lance.LanceFragment, _Key]]
    ) -> dict[_Key, frozenset[str]] | None:
        """The ids that may stand in each fragment; None where Lance finds rows as quickly without them."""
        known: dict[_Key, frozenset[str]] = {}
        with self._lock:
            for _, key in short:
                for own in ((key[0], _WHOLE), key):  # rows that were deleted since only make it more ids
                    if own in self._ids:
                        known[key] = self._ids[own]
                        self._ids.move_to_end(own)
                        break
        unread = [(fragment, key) for fragment, key in short if key not in known]
        if unread and len(short) <= FEW_FILES:
            return None
        if unread:
            read = [fragment for fragment, _ in unread]
            rows = dataset.scanner(columns=["id", "_rowaddr"], fragments=read).to_table()
            of = rows.column("_rowaddr").to_numpy() >> np.uint64(32)
            for fragment, key in unread:
                known[key] = frozenset(rows.column("id").filter(pa.array(of == fragment.fragment_id)).to_pylist())
            self._keep({key: known[key] for _, key in unread})
        return known

    def _keep(self, new: Mapping[_Key, frozenset[str]]) -> None:
        with self._lock:
            self._ids.update(new)
            while len(self._ids) > FILES_KEPT:
                self._ids.popitem(last=False)


def _parts(
    dataset: lance.LanceDataset,
) -> tuple[list[lance.LanceFragment], list[tuple[lance.LanceFragment, _Key]]] | None:
    """(the other fragments, the short ones that the index on ids doesn't cover); None where Lance is to be asked."""
    index = next((i for i in dataset.describe_indices() if list(i.field_names) == ["id"]), None)
    if index is None:
        return None
    covered = {number for segment in index.segments for number in segment.fragment_ids}
    others: list[lance.LanceFragment] = []
    short: list[tuple[lance.LanceFragment, _Key]] = []
    rows = 0
    for fragment in dataset.get_fragments():
        if fragment.fragment_id in covered:
            others.append(fragment)
            continue
        metadata = fragment.metadata
        rows += metadata.physical_rows
        if rows > MOST_ROWS or len(short) == FILES_KEPT or metadata.overlays:
            return None
        short.append((fragment, (data_paths(metadata.files), str(metadata.deletion_file))))
    return (others, short) if short else None
