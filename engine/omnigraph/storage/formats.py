"""The shape of `__manifest`, its stamp, and the steps from an older shape to ours (01 §1.4).

| stamp | shape |
|---|---|
| none or 1 | `object_id` isn't marked as the key: two publishes of one row both win |
| 2 | it is |
| 3 | the branches `__run__*` of an old state machine are gone |

Every branch of `__manifest` has a stamp of its own. A step may be done again: a crash between its two writes is made
good by the next write. A new shape is one constant, one step and one test.
"""

from __future__ import annotations

from collections.abc import Callable

import lance

from omnigraph.errors import Conflict
from omnigraph.storage.layout import MANIFEST
from omnigraph.storage.lineage import branch_names, delete_recorded
from omnigraph.storage.steps import Step, reach
from omnigraph.storage.store import Store
from omnigraph.storage.translate import lance_errors

__all__ = ["CURRENT", "KEY", "STAMP", "check_known", "is_current", "migrate", "refuse_unstable", "stamp_of"]

CURRENT = 3
STAMP = "omnigraph:internal_schema_version"
KEY = {"lance-schema:unenforced-primary-key": "true"}
_RELOAD = "export it (`omnigraph export`) and load it into a new graph"


def stamp_of(manifest: lance.LanceDataset) -> int:
    """The stamp of an opened version of `__manifest`; none counts as 1."""
    text = manifest.schema_metadata.get(STAMP, "1")
    return int(text) if text.isdecimal() else CURRENT + 1


def check_known(manifest: lance.LanceDataset) -> None:
    """Raise Conflict for a shape newer than ours: it may mean what we can't see."""
    stamp = stamp_of(manifest)
    if stamp > CURRENT:
        raise Conflict(
            f"this graph has the internal format {stamp}, known here is up to {CURRENT}: upgrade omnigraph first",
            code="format_too_new",
            details={"stamp": stamp, "known": CURRENT},
        )


def is_current(manifest: lance.LanceDataset) -> bool:
    """Whether `migrate` would leave it as it is."""
    return stamp_of(manifest) == CURRENT and bool(manifest.has_stable_row_ids)


def migrate(store: Store, manifest: lance.LanceDataset) -> None:
    """Bring one branch of `__manifest` to our shape, in place; the handle stands at the newest version afterwards.

    Raises:
        Conflict: it is newer than ours, or can't be brought there.
    """
    check_known(manifest)
    refuse_unstable(manifest, "__manifest")
    for stamp in range(stamp_of(manifest), CURRENT):
        with lance_errors(f"bringing __manifest from format {stamp} to {stamp + 1}"):
            _STEPS[stamp](store, manifest)
            manifest.update_schema_metadata({STAMP: str(stamp + 1)})
        reach(Step.FORMAT_STAMPED)


def _mark_key(store: Store, manifest: lance.LanceDataset) -> None:
    field = manifest.schema.field("object_id")
    if field.nullable:
        raise Conflict(
            "this graph comes from an early version of omnigraph whose __manifest can't be made safe for two writers: "
            + _RELOAD,
            code="format_unmarkable",
        )
    if not (field.metadata or {}).get(b"lance-schema:unenforced-primary-key"):
        manifest.update_field_metadata({"object_id": dict(KEY)})
    reach(Step.FORMAT_KEY_MARKED)


def _drop_runs(store: Store, manifest: lance.LanceDataset) -> None:
    for name in sorted(n for n in branch_names(store, MANIFEST) if n.startswith("__run__")):
        delete_recorded(store, MANIFEST, name)
        reach(Step.FORMAT_RUN_DELETED)


_STEPS: dict[int, Callable[[Store, lance.LanceDataset], None]] = {1: _mark_key, 2: _drop_runs}


def refuse_unstable(dataset: lance.LanceDataset, name: str) -> None:
    """Raise Conflict unless rows keep their ids: changes couldn't be told from copies, nor indexes survive."""
    if not dataset.has_stable_row_ids:
        raise Conflict(
            f"{name} was made without stable row ids, so it can be read but not written: {_RELOAD}",
            code="no_stable_row_ids",
            details={"dataset": name},
        )
