"""The one strict commit that publishes: rows of `__manifest` come in, older rows of the same ids go (01 §1.5).

Lance's merge does that, but it reads the ids of the whole manifest, and a filter of 32 KB goes into every version. Here
the older rows are looked for only where the head row isn't known to lie. Every publish changes the fragment that holds
the head row, so that of two from one version Lance refuses the second, whichever way each of them is written. A
branch's first publish finds no head row: it is a merge, whose filter tells Lance of the other's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import lance
import numpy as np
import pyarrow as pa
from lance.fragment import RowIdSequence, write_fragments

from omnigraph.records import dataclass
from omnigraph.storage.change import apply, every_field, without
from omnigraph.storage.conditions import one_of
from omnigraph.storage.manifest import Row, RowPlace, manifest_table

__all__ = ["StagedRows", "commit_rows", "find_rows", "stage_rows"]


def find_rows(manifest: lance.LanceDataset, ids: Sequence[str]) -> dict[str, list[RowPlace]]:
    """Where rows of these ids lie; ids that have none are left out."""
    scanner = manifest.scanner(
        columns=["object_id"],
        filter=one_of("object_id", pa.array(ids, pa.string())),
        use_scalar_index=False,
        with_row_address=True,
        with_row_id=True,
    )
    found: dict[str, list[RowPlace]] = {}
    for row in scanner.to_table().to_pylist():
        found.setdefault(row["object_id"], []).append(RowPlace(row["_rowaddr"], row["_rowid"]))
    return found


@dataclass(frozen=True, slots=True)
class StagedRows:
    """Rows written but for the commit that makes them a version.

    Args:
        rows: those that replace older ones first.
        row_ids: of as many rows, the row ids that they keep.
        operation: None where Lance's merge is to write the rows.
    """

    manifest: lance.LanceDataset
    rows: Sequence[Row]
    row_ids: Sequence[int] = ()
    operation: Any = None


def stage_rows(manifest: lance.LanceDataset, rows: Sequence[Row], there: dict[str, list[RowPlace]]) -> StagedRows:
    """Write the rows, the head row last, for the handle's version. Nothing is visible.

    Args:
        there: where rows of their ids lie in it, each of them. A row keeps the row id of the one it replaces.
    """
    if rows[-1]["object_id"] not in there:
        return StagedRows(manifest, rows)
    known = sorted((r for r in rows if r["object_id"] in there), key=lambda r: there[r["object_id"]][0].row_id)
    rows = [*known, *(r for r in rows if r["object_id"] not in there)]
    addresses = [place.address for row in known for place in there[row["object_id"]]]
    updated, removed = without(manifest, np.array(addresses, dtype=np.uint64))
    new = list(write_fragments(manifest_table(rows, manifest.schema), manifest, mode="append"))
    row_ids = [there[row["object_id"]][0].row_id for row in known]
    # The rows after them are new ones: Lance numbers them.
    new[0].row_id_meta = RowIdSequence(pa.array(row_ids, pa.uint64())).to_inline_metadata()
    operation: Any = lance.LanceOperation.Update(
        removed_fragment_ids=removed, updated_fragments=updated, new_fragments=new, update_mode="rewrite_rows"
    )
    every_field(manifest, operation)
    return StagedRows(manifest, rows, row_ids, operation)


def commit_rows(staged: StagedRows) -> tuple[lance.LanceDataset, dict[str, RowPlace]]:
    """Commit staged rows. The handle may move along.

    Returns:
        The new version, and where the rows lie in it if it followed directly.
    """
    manifest, rows = staged.manifest, staged.rows
    if staged.operation is None:
        # With an index the row-level check is silently skipped; with retries the merge would be re-based unseen.
        merge = manifest.merge_insert("object_id").when_matched_update_all().when_not_matched_insert_all()
        merge.use_index(False).conflict_retries(0).execute(manifest_table(rows, manifest.schema))
        return manifest, {}
    after = apply(manifest, staged.operation)
    newest = max(after.fragment_ids())
    return after, {
        rows[offset]["object_id"]: RowPlace((newest << 32) + offset, row_id)
        for offset, row_id in enumerate(staged.row_ids)
    }
