"""The parts of one opened root, bundled: what commit, sweep and index builds work with."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import field

from omnigraph.records import dataclass
from omnigraph.storage.beside import Beside
from omnigraph.storage.history import History
from omnigraph.storage.manifest import Manifest
from omnigraph.storage.sidecar import Sidecars
from omnigraph.storage.store import Store
from omnigraph.storage.uri import Root

__all__ = ["Engine"]


@dataclass
class Engine:
    """Store, manifest, history and sidecars of one root, and this process's write queues."""

    store: Store
    manifest: Manifest
    history: History
    sidecars: Sidecars
    beside: Beside = field(default_factory=Beside)
    _queues: defaultdict[tuple[str, str], threading.Lock] = field(default_factory=lambda: defaultdict(threading.Lock))
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @staticmethod
    def of(root: Root, *, read_only: bool = False) -> Engine:
        store = Store(root, read_only=read_only)
        manifest = Manifest(store)
        return Engine(store, manifest, History(store, manifest), Sidecars(store))

    @contextmanager
    def queued(self, branch: str, table_keys: Iterable[str]) -> Iterator[None]:
        """Wait for this process's other writers of the same tables. Sorted, so that none waits in a ring."""
        with ExitStack() as stack:
            for table_key in sorted(set(table_keys)):
                with self._lock:
                    queue = self._queues[branch, table_key]
                stack.enter_context(queue)
            yield
