"""Whether an object store keeps two writers apart. Some ignore `If-None-Match`, and lose acknowledged commits."""

from __future__ import annotations

import logging

import lance
import pyarrow as pa

from omnigraph.errors import OmniGraphError, Unavailable
from omnigraph.storage.files import RemoteFiles
from omnigraph.storage.store import Store, create_dataset
from omnigraph.storage.translate import is_commit_race, lance_errors
from omnigraph.ulids import new_ulid

__all__ = ["refuse_lossy"]

log = logging.getLogger(__name__)

_ROWS = pa.table({"n": [1]})


def refuse_lossy(store: Store) -> None:
    """Make two versions of a scratch dataset, then try to put another second one over it.

    Raises:
        Unavailable: the store let it happen.
    """
    files = store.files
    if not isinstance(files, RemoteFiles):
        return
    name = f"__probe-{new_ulid()}"
    try:
        with lance_errors(f"trying the store of {store.root.uri}"):
            stale = create_dataset(store, name, _ROWS)
            lance.write_dataset(_ROWS, store.latest(name), mode="append")
            operation = lance.LanceOperation.Overwrite(stale.lance_schema, [])
            try:
                lance.LanceDataset.commit(
                    stale, operation, read_version=1, max_retries=0, storage_options=dict(store.root.options) or None
                )
            except OSError as error:
                if not is_commit_race(error):
                    raise
                return
    finally:
        try:
            files.delete_folder(name)
        except OmniGraphError as error:
            log.warning("%s can be deleted: %s", store.root.join(name), error.message)
    raise Unavailable(
        f"the object store of {store.root.uri} ignores If-None-Match: two writers at once would lose commits there "
        "without a word. Use one with conditional writes, such as Amazon S3, Google Cloud Storage, Azure or Ceph",
        code="store_loses_commits",
        details={"uri": store.root.uri},
    )
