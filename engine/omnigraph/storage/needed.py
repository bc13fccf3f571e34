"""What of a graph's files is still needed: by living branches, tags, writes in flight, snapshots of this process.

Everything here is asked again right before anything is removed, so it is read anew each time.
"""

from __future__ import annotations

import threading
import weakref
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import field
from typing import TYPE_CHECKING

from omnigraph.errors import NotFound
from omnigraph.records import dataclass
from omnigraph.storage.engine import Engine
from omnigraph.storage.layout import MAIN, MANIFEST, SCHEMA_LOCK, lance_branch
from omnigraph.storage.lineage import branch_names, parent_of
from omnigraph.storage.manifest import ManifestState
from omnigraph.storage.translate import lance_errors

if TYPE_CHECKING:
    from omnigraph.storage.snapshot import Snapshot

__all__ = ["Lineage", "Needed", "locations_of", "needed_now", "open_snapshots", "remember_snapshot"]

Lineage = tuple[str, str | None]
"""A dataset's location and one of its Lance branches; None is its default lineage."""

_snapshots: weakref.WeakSet[Snapshot] = weakref.WeakSet()
_lock = threading.Lock()


def remember_snapshot(snapshot: Snapshot) -> None:
    """Take note of a snapshot for as long as somebody holds it."""
    with _lock:
        _snapshots.add(snapshot)


def open_snapshots(uri: str) -> list[ManifestState]:
    """The states that snapshots of one graph in this process read."""
    with _lock:
        held = list(_snapshots)
    return [s.state for s in held if s.uri == uri]


@dataclass
class Needed:
    """Versions of lineages that must stay.

    Args:
        versions: the single versions that something reads.
        floors: from this version on everything stays: the branch's own pin and what a write may have put on top of it.
        busy: lineages that a write in flight names; they may not be removed as a whole.
    """

    versions: defaultdict[Lineage, set[int]] = field(default_factory=lambda: defaultdict(set))
    floors: dict[Lineage, int] = field(default_factory=dict)
    busy: set[Lineage] = field(default_factory=set)

    def pin(self, location: str, branch: str | None, version: int) -> None:
        self.versions[location, lance_branch(branch)].add(version)

    def floor(self, location: str, branch: str | None, version: int) -> None:
        lineage = (location, lance_branch(branch))
        self.floors[lineage] = min(version, self.floors.get(lineage, version))

    def state(self, state: ManifestState) -> None:
        """Every table version that a state sees."""
        for ref in state.tables.values():
            self.pin(ref.location, ref.branch, ref.version)

    def add(self, other: Needed) -> None:
        for lineage, versions in other.versions.items():
            self.versions[lineage] |= versions
        for (location, branch), version in other.floors.items():
            self.floor(location, branch, version)
        self.busy |= other.busy

    def removable(self, lineage: Lineage, listed: Iterable[int]) -> list[int]:
        """Those of the versions there are that nothing needs. The newest one is never among them."""
        there = sorted(listed)
        floor = min(self.floors.get(lineage, there[-1]), there[-1]) if there else 0
        kept = self.versions.get(lineage, set())
        return [v for v in there if v < floor and v not in kept]

    def names(self, location: str) -> bool:
        """Whether anything needs any version of a dataset."""
        return any(at == location and found for (at, _), found in self.versions.items()) or any(
            at == location for at, _ in (*self.floors, *self.busy)
        )


def locations_of(engine: Engine) -> dict[str, str]:
    """Location → table key of every table that a living branch's manifest has ever registered."""
    out: dict[str, str] = {}
    for name in (MAIN, *sorted(engine.manifest.names())):
        try:
            state = engine.manifest.current(name)
        except NotFound:
            continue
        out |= {location: key for key, location in state.locations.items()}
        out |= {ref.location: key for key, ref in state.tables.items()}
    return out


def needed_now(engine: Engine, locations: Iterable[str], *, but: str | None = None, snapshots: bool = True) -> Needed:
    """What living branches, tags, writes in flight, forks and this process's snapshots need at this moment.

    Args:
        locations: the datasets whose forks are looked at.
        but: a sidecar that isn't asked.
        snapshots: whether this process's are asked.

    Raises:
        RecoveryPending: a sidecar can't be read, so nobody knows what it needs.
    """
    needed = Needed()
    for name in (MAIN, *sorted(engine.manifest.names() - {SCHEMA_LOCK})):
        try:
            state = engine.manifest.current(name)
        except NotFound:
            continue  # deleted since it was listed
        needed.state(state)
        for ref in state.tables.values():
            if ref.branch == lance_branch(name):
                needed.floor(ref.location, ref.branch, ref.version)
    for state in open_snapshots(engine.store.root.uri) if snapshots else ():
        needed.state(state)
    for location in locations:
        for name in branch_names(engine.store, location):
            try:
                parent, version = parent_of(engine.store, location, name)
            except NotFound:
                continue
            needed.pin(location, parent, version)
    _tags(engine, needed)
    _writes(engine, needed, but)
    return needed


def _tags(engine: Engine, needed: Needed) -> None:
    """A tag of `__manifest` keeps the whole state it names. Tags of tables are kept by Lance itself."""
    with lance_errors("reading the tags"):
        tags = engine.store.latest(MANIFEST).tags.list()
    for tag in tags.values():
        branch, version = tag["branch"] or MAIN, int(tag["version"])
        needed.pin(MANIFEST, branch, version)
        try:
            needed.state(engine.manifest.at(branch, version))
        except NotFound:
            continue


def _writes(engine: Engine, needed: Needed, but: str | None) -> None:
    for name in engine.sidecars.names():
        sidecar = engine.sidecars.read(name) if name != but else None
        if sidecar is None:
            continue
        try:
            state = engine.manifest.current(sidecar.branch)
        except NotFound:
            continue  # its branch is gone: there is nothing it could still publish
        # Whichever version it is about to publish upon: Lance refuses that by the versions which have followed.
        needed.floor(MANIFEST, sidecar.branch, 1)
        for table in sidecar.tables:
            location = state.locations.get(table.table_key, table.table_path)
            needed.pin(location, table.expected_branch, table.expected_version)
            needed.floor(location, table.table_branch, table.expected_version)
            needed.busy.add((location, lance_branch(table.table_branch)))
        for key, pin in sidecar.reads.items():
            if pin is not None and key in state.locations:
                needed.pin(state.locations[key], *pin)
