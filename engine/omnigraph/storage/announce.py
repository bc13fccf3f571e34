"""Notices on an object store of what is about to be removed, in files under `__cleanup/`.

A store has no locks. So whoever removes writes a notice first and looks then who needs what; whoever is about to need a
version or a fork makes that known first (a branch's record, a sidecar) and looks then for notices. One of the two sees
the other, whatever the order. A directory has the lock of all forks instead.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

from omnigraph.errors import NotFound
from omnigraph.storage.layout import CLEANUP
from omnigraph.storage.steps import Step, reach
from omnigraph.storage.store import Store
from omnigraph.ulids import new_ulid, ulid_seconds

__all__ = ["announced", "announcing"]

NOTICE_SECONDS = 3600.0
"""After that a notice counts as left by a killed cleanup, and the next one removes it."""

Lineage = tuple[str, str | None]


@contextmanager
def announcing(store: Store, doomed: Mapping[Lineage, Sequence[int]]) -> Iterator[None]:
    """Say which versions are about to go; no versions at all mean the whole lineage."""
    if store.root.is_local:
        yield
        return
    for name in _notices(store):  # also where nothing is doomed: a killed cleanup may have removed all it announced
        if time.time() - ulid_seconds(name) > NOTICE_SECONDS:
            store.files.delete(f"{CLEANUP}/{name}.json")
    if not doomed:
        yield
        return
    file = f"{CLEANUP}/{new_ulid()}.json"
    body = [[location, branch, list(versions)] for (location, branch), versions in doomed.items()]
    store.files.write(file, json.dumps({"removing": body}).encode())
    reach(Step.CLEANUP_ANNOUNCED)
    try:
        yield
    finally:
        store.files.delete(file)


def announced(store: Store, wanted: Mapping[Lineage, Iterable[int]]) -> list[Lineage]:
    """Which of the lineages, or of their versions, are about to go. Costs one listing where there is no notice."""
    if store.root.is_local:
        return []
    out = []
    for name in _notices(store):
        with suppress(NotFound):  # it is done
            for location, branch, versions in json.loads(store.files.read(f"{CLEANUP}/{name}.json"))["removing"]:
                asked = wanted.get((location, branch))
                if asked is not None and (not versions or not set(asked).isdisjoint(versions)):
                    out.append((location, branch))
    return out


def _notices(store: Store) -> list[str]:
    out = []
    for file in store.files.list(CLEANUP):
        with suppress(ValueError):
            name = file.removesuffix(".json")
            ulid_seconds(name)
            out.append(name)
    return out
