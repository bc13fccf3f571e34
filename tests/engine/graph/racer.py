"""One of many in a race: `racer.py URI ROLE TAG SEED SECONDS` writes until the time is over.

It prints a line of JSON for every answer: what it is about, and the id of the commit.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Callable
from typing import Any

import omnigraph
from omnigraph.errors import BadRequest, Conflict, RecoveryPending

HUBS = 6
KEPT = 40
"""Commits that a cleanup keeps readable."""
PATIENCE = 100
"""Seconds past the end after which a refusal counts as one for ever."""


class Racer:
    def __init__(self, uri: str, tag: str, seed: int, seconds: float) -> None:
        self.graph = omnigraph.open(uri)
        self.tag, self.random, self.until = tag, random.Random(seed), time.monotonic() + seconds
        self.number = 0

    def name(self) -> str:
        self.number += 1
        return f"{self.tag}-{self.number}"

    def insist(self, action: Callable[[], Any]) -> Any:
        """Until it is done; only a refusal that says that the same call may succeed is tried again."""
        while True:
            try:
                return action()
            except RecoveryPending:
                # On an object store a writer half way through its tables looks like a dead one.
                if "://" not in self.graph.uri or time.monotonic() > self.until + PATIENCE:
                    raise
            except Conflict as error:
                if not error.retryable or time.monotonic() > self.until + PATIENCE:
                    raise
                time.sleep(self.random.uniform(0, 0.03))

    def mutate(self, text: str, branch: str = "main") -> Any:
        return self.insist(lambda: self.graph.mutate(f"query q() {{ {text} }}", branch=branch).commit)

    def said(self, kind: str, what: str, commit: Any) -> None:
        print(json.dumps([kind, what, None if commit is None else commit.id]), flush=True)

    # ---- roles ----

    def nodes(self) -> None:
        name = self.name()
        self.said("A", name, self.mutate(f'insert A {{ name: "{name}" }}'))

    def others(self) -> None:
        name = self.name()
        self.said("B", name, self.mutate(f'insert B {{ name: "{name}" }} insert F {{ from: "first", to: "{name}" }}'))

    def edges(self) -> None:
        one, other = (f"hub{self.random.randrange(HUBS)}" for _ in range(2))
        try:
            self.said("E", f"{one} {other}", self.mutate(f'insert E {{ from: "{one}", to: "{other}" }}'))
        except BadRequest as error:
            if "there is no A" not in error.message:  # one of them is gone at the moment
                raise

    def deletes(self) -> None:
        hub = f"hub{self.random.randrange(HUBS)}"
        self.said("gone", hub, self.mutate(f'delete A where name = "{hub}"'))
        self.said("back", hub, self.mutate(f'insert A {{ name: "{hub}" }}'))

    def branches(self) -> None:
        name, branch = self.name(), f"{self.tag}/{self.number}"
        self.insist(lambda: self.graph.branches.create(branch))
        self.mutate(f'insert A {{ name: "{name}" }}', branch)
        merged = self.insist(lambda: self.graph.branches.merge(branch))
        self.said("A", name, merged.commit)
        self.insist(lambda: self.graph.branches.delete(branch))

    def upkeep(self) -> None:
        self.insist(lambda: self.graph.ensure_indices())
        self.insist(lambda: self.graph.optimize())
        report = self.insist(lambda: self.graph.cleanup(keep=KEPT, confirm=True))
        self.said("cleanup", "; ".join(f"{t.table}: {t.reason}: {t.message}" for t in report.failed), None)
        time.sleep(0.5)


def main() -> None:
    uri, role, tag, seed, seconds = sys.argv[1:]
    racer = Racer(uri, tag, int(seed), float(seconds))
    while time.monotonic() < racer.until:
        getattr(racer, role)()
    racer.graph.close()


if __name__ == "__main__":
    main()
