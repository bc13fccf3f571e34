"""Which rows of a table may differ between two of its versions, without reading the others (03 §3.4).

Two pins of one table have grown from a common version. A row that neither side has touched since is the same in both.
Touched rows are found by Lance's row-version columns, removed ones by the stable row ids that are missing; fragments
that a side still has as they were are not looked at.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from typing import Any, TypeAlias

import lance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.errors import NotFound
from omnigraph.records import dataclass
from omnigraph.storage.layout import data_paths
from omnigraph.storage.lineage import common_version, parent_of
from omnigraph.storage.store import Store
from omnigraph.storage.translate import is_missing, lance_errors
from omnigraph.storage.types import TableRef

__all__ = ["RowChanges", "file_names", "row_changes", "touched_ids", "whole_fragments"]

_UPDATED = "_row_last_updated_at_version"
_CREATED = "_row_created_at_version"
_TAKE = 50_000
"""Removed rows whose ids are read at a time."""

Ids: TypeAlias = "pa.Array[Any]"


def touched_ids(
    store: Store, one: TableRef | None, other: TableRef | None, *, without: Collection[int] = frozenset()
) -> Ids:
    """Ids (utf8, each once) of the rows that may differ; every other row is equal in both.

    Args:
        one, other: two pins of one table; None: it isn't there.
        without: numbers of fragments of `other` whose rows are left out, because they are known.
    """
    table_key = (one or other or _nothing()).table_key
    with lance_errors(f"comparing two versions of {table_key}"):
        base = _base(store, one, other)
        if base is None:
            found = [part for ref in (one, other) if ref is not None for part in _every_id(store.pinned(ref))]
        else:
            found = _since(store, base, one, frozenset()) + _since(store, base, other, without)
    return pc.unique(pa.concat_arrays(found)) if found else pa.array([], pa.string())


@dataclass(frozen=True, slots=True, eq=False)
class RowChanges:
    """What became of a table since one of its earlier versions, by row ids (uint64).

    Args:
        removed: rows that were there and are gone.
        written: rows inserted or updated since, as far as they are there now; in no order.
    """

    removed: np.ndarray[Any, Any]
    written: np.ndarray[Any, Any]


def file_names(dataset: lance.LanceDataset) -> frozenset[str]:
    """What a table's rows are made of: data files and deletion files. Each is written once, so equal names are equal
    rows, in whichever branch or version."""
    out: set[str] = set()
    for fragment in dataset.get_fragments():
        deleted = fragment.metadata.deletion_file
        out.update(f"{fragment.fragment_id}:{path}" for path in data_paths(fragment.data_files()))
        if deleted is not None:
            out.add(f"{fragment.fragment_id}:{deleted.read_version}:{deleted.id}")
    return frozenset(out)


def row_changes(store: Store, old: TableRef, files: frozenset[str], new: TableRef, *, most: int) -> RowChanges | None:
    """The rows that differ from an earlier version of the table; None where nothing tells, or too many do.

    Args:
        old: the version the caller knows.
        files: that version's `file_names`, as the caller saw them: a branch made again may count the same versions.
        new: a version that has grown from it.
        most: rows.
    """
    try:
        return _row_changes(store, old, files, new, most)
    except NotFound:
        return None  # the earlier version was cleaned away


def _row_changes(store: Store, old: TableRef, files: frozenset[str], new: TableRef, most: int) -> RowChanges | None:
    with lance_errors(f"comparing two versions of {new.table_key}"):
        common = common_version(store, old, new)
        if common is None or (common.branch, common.version) != (old.branch, old.version):
            return None
        base = store.version(old.location, old.branch, old.version)
        now = store.pinned(new)
        if not (now.has_stable_row_ids and _columns(base) == _columns(now) and file_names(base) == files):
            return None
        before, after = _fragments(base), _fragments(now)
        same = before.keys() & after.keys()
        gone = [f for key, f in before.items() if key not in same]
        come = [f for key, f in after.items() if key not in same]
        known = {_written(f) for f in gone}
        fresh = [f for f in come if _written(f) not in known]
        written = np.zeros(0, dtype=np.uint64)
        if fresh:
            rows = now.scanner(columns=[], with_row_id=True, filter=f"{_UPDATED} > {base.version}", fragments=fresh)
            written = rows.to_table()["_rowid"].to_numpy()
        removed = np.zeros(0, dtype=np.uint64)
        if gone and len(written) <= most:
            removed = _removed_row_ids(store, base, new, gone, now, come)
        return RowChanges(removed, written) if len(written) + len(removed) <= most else None


def _columns(dataset: lance.LanceDataset) -> list[tuple[str, int]]:
    """Names with the field each one means: a name may be given to another column."""
    return [(field.name(), field.id()) for field in dataset.lance_schema.fields()]


def _nothing() -> TableRef:
    return TableRef("", "", None, 0, 0)


def _base(store: Store, one: TableRef | None, other: TableRef | None) -> lance.LanceDataset | None:
    """The table at the version both pins grew from; None where there is none any more."""
    if one is None or other is None:
        return None
    try:
        base = common_version(store, one, other)
        return None if base is None else store.version(base.location, base.branch, base.version)
    except NotFound:
        return None  # cleaned away, or of a lineage that is gone


def _every_id(dataset: lance.LanceDataset) -> list[Ids]:
    return list(dataset.scanner(columns=["id"]).to_table()["id"].chunks)


def _since(store: Store, base: lance.LanceDataset, ref: TableRef | None, without: Collection[int]) -> list[Ids]:
    """Ids of the rows that were inserted, updated or removed between the base and the pin."""
    if ref is None:
        return []
    now = store.pinned(ref)
    before, after = _fragments(base), _fragments(now)
    same = before.keys() & after.keys()
    old = [f for key, f in before.items() if key not in same]
    new = [f for key, f in after.items() if key not in same]
    rewritten = [f for f in new if _written(f) not in {_written(o) for o in old} and f.fragment_id not in without]
    out: list[Ids] = []
    if rewritten:
        rows = now.scanner(columns=["id"], filter=f"{_UPDATED} > {base.version}", fragments=rewritten).to_table()
        out += rows["id"].chunks
    if old:
        out += _removed(base, _removed_row_ids(store, base, ref, old, now, new))
    return out


def _fragments(dataset: lance.LanceDataset) -> dict[str, Any]:
    """The fragments by all that makes up their rows: files, deleted rows, row ids and row versions."""
    return {_key(f.metadata, ("files", "deletion_file")): f for f in dataset.get_fragments()}


def _written(fragment: Any) -> str:
    """What was written once, whatever was deleted from it since."""
    return _key(fragment.metadata, ("files",))


def _key(metadata: Any, fields: Sequence[str]) -> str:
    data = metadata.to_json()
    files = [file["path"] for file in data["files"]]
    deleted = data["deletion_file"] if "deletion_file" in fields else None
    # Where a file lies says nothing: a fork names its parent's files by a base.
    deleted = None if deleted is None else {k: v for k, v in deleted.items() if k != "base_id"}
    versions = data["last_updated_at_version_meta"]
    return json.dumps([files, deleted, data["row_id_meta"], versions, data["overlays"]], sort_keys=True, default=str)


def _removed_row_ids(
    store: Store, base: lance.LanceDataset, ref: TableRef, old: list[Any], now: lance.LanceDataset, new: list[Any]
) -> np.ndarray[Any, Any]:
    """Row ids that the old fragments held and that no new one holds."""
    if ref.branch is None or parent_of(store, ref.location, ref.branch)[1] <= base.version:
        # Lance reads only what was deleted, but knows no version from before a branch began.
        delta = now.delta(begin_version=int(base.version), end_version=int(now.version))
        try:
            listed: np.ndarray[Any, Any] = delta.get_deleted_row_ids().read_all()["_rowid"].to_numpy()
            return listed
        except (OSError, ValueError, RuntimeError) as error:
            if not is_missing(error):
                raise
            # It asks for every version in between, and cleanup has removed some: the row ids of both ends tell as well.
    before = _row_ids(base, old)
    after = _row_ids(now, new) if new else np.array([], np.uint64)
    if not len(before):
        return before
    known = np.zeros(int(max(before.max(), after.max() if len(after) else 0)) + 1, dtype=bool)
    known[after] = True
    gone: np.ndarray[Any, Any] = before[~known[before]]
    return gone


def _removed(base: lance.LanceDataset, gone: np.ndarray[Any, Any]) -> list[Ids]:
    out: list[Ids] = []
    for start in range(0, len(gone), _TAKE):
        rows = base._take_rows(gone[start : start + _TAKE].tolist(), columns=["id"])
        out += rows["id"].chunks
    return out


def _row_ids(dataset: lance.LanceDataset, fragments: list[Any]) -> np.ndarray[Any, Any]:
    rows = dataset.scanner(columns=[], with_row_id=True, fragments=fragments).to_table()
    ids: np.ndarray[Any, Any] = rows["_rowid"].to_numpy()
    return ids


def whole_fragments(store: Store, base: TableRef, ref: TableRef, rows: int) -> dict[int, dict[str, Any]]:
    """Fragments of the pin, by number, that hold nothing but rows inserted since the base, none deleted since.

    Only those count that lie in the lineage's own folder. The metadata is Lance's, as JSON.

    Args:
        base: the version that `ref` has grown from.
        rows: the least rows a fragment must have.
    """
    with lance_errors(f"looking at the files of {ref.table_key}"):
        now = store.pinned(ref)
        before = {_written(f) for f in store.version(base.location, base.branch, base.version).get_fragments()}
        out = {}
        for fragment in now.get_fragments():
            data = fragment.metadata.to_json()
            own = all(file["base_id"] is None for file in data["files"])
            if _written(fragment) in before or not own or data["deletion_file"] or data["overlays"]:
                continue
            if data["physical_rows"] < rows:
                continue
            older = now.scanner(
                columns=[], with_row_id=True, filter=f"{_CREATED} <= {base.version}", fragments=[fragment], limit=1
            )
            if not older.to_table().num_rows:
                out[int(fragment.fragment_id)] = data
        return out
