"""Whether an opening finds nothing to settle: a few looks, which are all that most processes need of recovery."""

from __future__ import annotations

import os

from omnigraph.storage.engine import Engine
from omnigraph.storage.files import LocalFiles
from omnigraph.storage.layout import MAIN, RECOVERY, SCHEMA_LOCK, STAGING
from omnigraph.storage.schemas import copies_follow

__all__ = ["settled"]

_KEPT = frozenset({".keep"})


def settled(engine: Engine, mode: str) -> bool:
    """Whether a sweep in this mode would change nothing.

    The history may lack the newest commit after a kill: the next write adds it, and readers of the history take it from
    the head row. Only a creation that was killed leaves more, and then the newest commit is the first.
    """
    engine.manifest.prepare(MAIN)
    if mode != "full":
        return not engine.sidecars.names()
    head = engine.manifest.current(MAIN).head
    files = engine.store.files
    return (
        bool(head.parents)
        and _is_empty(engine)
        and copies_follow(files, head.schema_hash, head.schema_ir)
        and SCHEMA_LOCK not in engine.manifest.names()
    )


def _is_empty(engine: Engine) -> bool:
    """Whether no sidecar, no part of one and no working folder is there."""
    files = engine.store.files
    if not isinstance(files, LocalFiles):
        return not engine.sidecars.names()
    return _names(files.path(RECOVERY)) <= _KEPT and not _names(files.path(STAGING))


def _names(folder: str) -> set[str]:
    try:
        return set(os.listdir(folder))
    except FileNotFoundError:
        return set()
