"""Making a new graph. The write of `__manifest` is the moment it exists; everything before it can be done again."""

from __future__ import annotations

from datetime import UTC, datetime

import lance
import pyarrow as pa

from omnigraph.errors import Conflict
from omnigraph.schema.catalog import Catalog
from omnigraph.schema.ir import ir_of
from omnigraph.storage.arrow import table_schema
from omnigraph.storage.engine import Engine
from omnigraph.storage.history import ACTORS_SCHEMA, COMMITS_SCHEMA
from omnigraph.storage.layout import ACTORS, COMMITS, MAIN, MANIFEST, RECOVERY, check_operation_id, free_location
from omnigraph.storage.manifest import head_row, manifest_schema, manifest_table, registration_row, version_row
from omnigraph.storage.probe import refuse_lossy
from omnigraph.storage.schemas import remember, write_copies, write_schema
from omnigraph.storage.steps import Step, reach
from omnigraph.storage.store import Store, create_dataset
from omnigraph.storage.sweep import follow_head
from omnigraph.storage.translate import lance_errors
from omnigraph.storage.types import CommitInfo, TableRef
from omnigraph.ulids import new_ulid

__all__ = ["create_graph", "made_by"]


def create_graph(engine: Engine, catalog: Catalog, actor: str | None, operation_id: str | None = None) -> CommitInfo:
    """Create an empty graph with this schema.

    Args:
        operation_id: recorded in the first commit; where that commit carries it already, the creation is done.

    Raises:
        Conflict: there is a graph at this root already.
        Unavailable: the store loses commits.
    """
    store = engine.store
    if operation_id is not None:
        check_operation_id(operation_id)
    if store.latest_or_none(MANIFEST) is not None:
        return _made_before(engine, operation_id)
    refuse_lossy(store)
    ir = ir_of(catalog)
    write_schema(store.files, catalog, ir)
    reach(Step.CREATE_SCHEMA_WRITTEN)
    commit = CommitInfo(
        id=new_ulid(),
        branch=MAIN,
        manifest_version=1,
        parents=(),
        created_at=datetime.now(UTC),
        actor=actor,
        operation_id=operation_id,
        schema_hash=catalog.hash,
        schema_ir=ir.identity,
    )
    rows, taken = [], set[str]()
    for key, entity in catalog.by_table_key.items():
        location, dataset = _empty_table(store, key, table_schema(entity), taken)
        taken.add(location)
        reach(Step.CREATE_TABLE_WRITTEN)
        ref = TableRef(key, location, None, int(dataset.version), 0, commit.id)
        rows += [registration_row(key, location), version_row(ref, store.path(location))]
    with lance_errors("creating the history"):
        for location, schema in ((COMMITS, COMMITS_SCHEMA), (ACTORS, ACTORS_SCHEMA)):
            if store.latest_or_none(location) is None:
                _create_or_take(store, location, schema)
    reach(Step.CREATE_HISTORY_WRITTEN)
    if store.root.is_local:
        store.files.write(f"{RECOVERY}/.keep", b"")
    rows.append(head_row(commit))
    try:
        create_dataset(store, MANIFEST, manifest_table(rows, manifest_schema(catalog.hash)))
    except OSError as error:
        if store.latest_or_none(MANIFEST) is not None:
            raise _exists(store) from error
        with lance_errors(f"creating the graph {store.root.uri}"):
            raise
    reach(Step.CREATE_MANIFEST_WRITTEN)
    remember(catalog)
    engine.history.record(commit, MAIN)
    reach(Step.CREATE_COMMIT_RECORDED)
    write_copies(store.files, catalog, ir)
    return commit


def made_by(engine: Engine, operation_id: str) -> CommitInfo | None:
    """The graph's first commit, if this operation made it."""
    head = engine.manifest.current(MAIN).head
    first = engine.history.find_operation(MAIN, check_operation_id(operation_id), head)
    return first if first is not None and not first.parents else None


def _made_before(engine: Engine, operation_id: str | None) -> CommitInfo:
    """The first commit of a graph that this very operation made; a kill may have kept its row and copies from it."""
    first = None if operation_id is None else made_by(engine, operation_id)
    if first is None:
        raise _exists(engine.store)
    follow_head(engine)
    return first


def _exists(store: Store) -> Conflict:
    return Conflict(
        f"there is a graph at {store.root.uri} already: open it, or choose another place",
        code="already_exists",
        details={"uri": store.root.uri},
    )


def _empty_table(store: Store, key: str, schema: pa.Schema, taken: set[str]) -> tuple[str, lance.LanceDataset]:
    """An empty table for the type; one left by an unfinished creation is taken if it is what we need."""
    blocked = set(taken)
    while True:
        location = free_location(key, blocked)
        dataset = store.latest_or_none(location)
        if dataset is None:
            with lance_errors(f"creating the table of {key}"):
                dataset = _create_or_take(store, location, schema)
        if dataset.version == 1 and dataset.schema.equals(schema) and not dataset.count_rows():
            return location, dataset
        blocked.add(location)


def _create_or_take(store: Store, location: str, schema: pa.Schema) -> lance.LanceDataset:
    try:
        return create_dataset(store, location, schema.empty_table())
    except OSError:
        made = store.latest_or_none(location)  # another creation came first
        if made is None:
            raise
        return made
