"""What a schema apply and the sweep that finishes one have in common: the lock, what is published, what follows it.

Everything here may be done again: a kill between two of its steps is made good by the next sweep.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from omnigraph.errors import NotFound, OmniGraphError
from omnigraph.storage.drift import transaction_of
from omnigraph.storage.engine import Engine
from omnigraph.storage.forks import drop_lineage
from omnigraph.storage.layout import MAIN, MANIFEST, MARK, SCHEMA_LOCK
from omnigraph.storage.lineage import branch_names, delete_recorded, while_branches_go
from omnigraph.storage.manifest import ManifestState
from omnigraph.storage.needed import needed_now
from omnigraph.storage.schemas import (
    clear_staged,
    copies_current,
    load_catalog,
    load_ir,
    staged_copies,
    write_copies,
)
from omnigraph.storage.sidecar import Sidecar
from omnigraph.storage.steps import Step, reach
from omnigraph.storage.translate import lance_errors
from omnigraph.storage.types import TableRef, WriterKind

__all__ = [
    "applies",
    "drop_lock",
    "finish",
    "follow_schema",
    "promotable",
    "purge",
    "scrap",
    "take_lock",
    "to_publish",
]


# --- the lock --------------------------------------------------------------------------------------------------------


def applies(engine: Engine, but: str | None = None) -> list[str]:
    """Names of the sidecars of schema applies, but one."""
    read = ((name, engine.sidecars.read(name)) for name in engine.sidecars.names() if name != but)
    return [name for name, sidecar in read if sidecar is not None and sidecar.writer_kind is WriterKind.SCHEMA_APPLY]


def take_lock(engine: Engine, own: str) -> bool:
    """Make the branch of `__manifest` that stands for the one schema apply at a time. False: another has it.

    Whoever has it has a sidecar; a lock without one was left by a kill.
    """
    for last in (False, True):
        try:
            with lance_errors("taking the lock of schema applies"):
                source = engine.store.latest(MANIFEST)
                source.create_branch(SCHEMA_LOCK, source.version)
            reach(Step.SCHEMA_LOCKED)
            return True
        except OmniGraphError:
            if applies(engine, own):
                return False
            if last or not (
                engine.manifest.exists(SCHEMA_LOCK) or engine.store.latest_or_none(MANIFEST, SCHEMA_LOCK) is not None
            ):
                raise
            drop_lineage(engine.store, MANIFEST, SCHEMA_LOCK)
    return False


def drop_lock(engine: Engine, own: str | None = None) -> None:
    """Remove the lock, unless another schema apply may hold it."""
    if SCHEMA_LOCK not in branch_names(engine.store, MANIFEST) or applies(engine, own):
        return
    delete_recorded(engine.store, MANIFEST, SCHEMA_LOCK)
    engine.manifest.forget(SCHEMA_LOCK)
    reach(Step.SCHEMA_UNLOCKED)


# --- what is published -----------------------------------------------------------------------------------------------


def promotable(engine: Engine, sidecar: Sidecar) -> bool:
    """Whether all that a roll forward needs lies ready: the new schema, its staged copies, the new tables."""
    note = sidecar.schema_change
    if note is None:
        return False
    files = engine.store.files
    try:
        catalog = load_catalog(files, note.schema_hash)
        ir = load_ir(files, catalog, note.schema_ir)
    except NotFound:
        return False
    if sidecar.branch == MAIN and not staged_copies(files, catalog, ir):
        return False
    return all(engine.store.latest_or_none(path) is not None for path in note.registrations.values())


def to_publish(
    engine: Engine, state: ManifestState, sidecar: Sidecar, versions: Mapping[str, int | None]
) -> tuple[list[TableRef], Mapping[str, str], list[TableRef]]:
    """The tables, the registrations and the tombstones that one publish makes visible.

    Args:
        versions: table key → the version that the change has made of it, for each table of the sidecar.
    """
    note = sidecar.schema_change
    assert note is not None
    moved: dict[str, TableRef] = {}
    for table in sidecar.tables:
        location = state.tables[table.table_key].location
        moved[location] = _at(engine, table.table_key, location, table.table_branch, versions[table.table_key])
    gone = [ref for ref in moved.values() if ref.table_key in note.tombstones]
    refs = [ref for ref in moved.values() if ref.table_key not in note.tombstones]
    for key, location in note.registrations.items():
        if location in moved:
            refs.append(replace(moved[location], table_key=key))
        else:
            refs.append(_at(engine, key, location, None, None))
    return refs, note.registrations, gone


def _at(engine: Engine, table_key: str, location: str, branch: str | None, version: int | None) -> TableRef:
    store = engine.store
    dataset = store.latest(location, branch) if version is None else store.version(location, branch, version)
    return TableRef(table_key, location, branch, int(dataset.version), dataset.count_rows())


# --- after the publish, or instead of it -----------------------------------------------------------------------------


def finish(engine: Engine, sidecar: Sidecar) -> None:
    """The change is published: the copies follow, what was dropped for good goes, and the lock."""
    if sidecar.branch == MAIN:
        follow_schema(engine)
        clear_staged(engine.store.files)
        reach(Step.SCHEMA_PROMOTED)
    if sidecar.schema_change is not None:
        for location in sidecar.schema_change.purged:
            purge(engine, location, sidecar.name)
            reach(Step.SCHEMA_PURGED)
    drop_lock(engine, sidecar.name)


def follow_schema(engine: Engine) -> None:
    """Bring the copies of main's schema up to its head."""
    head = engine.manifest.current(MAIN).head
    if head.schema_hash is None:
        return
    files = engine.store.files
    catalog = load_catalog(files, head.schema_hash)
    ir = load_ir(files, catalog, head.schema_ir)
    if not copies_current(files, catalog, ir):
        write_copies(files, catalog, ir)


def scrap(engine: Engine, sidecar: Sidecar) -> None:
    """The change isn't published and won't be: remove what it laid down."""
    note = sidecar.schema_change
    if note is not None:
        state = engine.manifest.current(MAIN)
        for location in note.registrations.values():
            if location not in state.locations.values() and _made_by(engine, location, sidecar.name):
                engine.store.files.delete_folder(location)
                reach(Step.SCHEMA_SCRAPPED)
    if not applies(engine, sidecar.name):
        clear_staged(engine.store.files)
    drop_lock(engine, sidecar.name)


def _made_by(engine: Engine, location: str, name: str) -> bool:
    """Whether a dataset was created by the writer of this sidecar."""
    if engine.store.latest_or_none(location) is None:
        return False
    try:
        with lance_errors(f"reading who made {location}"):
            transaction = transaction_of(engine.store.version(location, None, 1), 1)
    except NotFound:
        return False
    return transaction is not None and (transaction.transaction_properties or {}).get(MARK) == name


def purge(engine: Engine, location: str, own: str | None) -> None:
    """Remove what nothing needs any more of a table, what this process reads too; all of it, if nothing needs any.

    Args:
        own: the sidecar of the change, which needs none of them.
    """
    dataset = engine.store.latest_or_none(location)
    if dataset is None:
        return
    needed = needed_now(engine, [location], but=own, snapshots=False)
    with lance_errors(f"removing old versions of {location}"):
        if not needed.names(location) and not dataset.tags.list():
            engine.store.files.delete_folder(location)
            return
        old = needed.removable((location, None), [int(v["version"]) for v in dataset.versions()])
        if old:
            while_branches_go(lambda: dataset.cleanup_old_versions(versions=old, error_if_tagged_old_versions=False))
