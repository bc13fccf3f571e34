"""The writer beside an open reader. `busy_writer.py URI SCHEMA GRAPH STEPS`: changes the graph, its schema, its files.

Prints a line of JSON after each step: how many changes are in, and the commit that is the head.
"""

from __future__ import annotations

import json
import random
import sys

from omnigraph.graph import Graph
from omnigraph.storage import Repository
from tests.engine.read.oracle.graphs import change, schema, start
from tests.engine.read.oracle.states import commit

KEPT = 3
"""Commits that a cleanup keeps."""


def main() -> None:
    uri, kinds, seed, steps = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    rng = random.Random(seed)
    made = schema(kinds)
    graph = start(made, seed, [6] * 9)
    repository = Repository.open(uri)
    opened = Graph(repository)
    done = added = 0
    for _ in range(steps):
        step = rng.choice(["commit"] * 4 + ["optimize", "index", "schema", "cleanup"])
        if step == "commit":
            graph, changes = change(made, graph, f"{seed} {done}")
            commit(repository, repository.snapshot().catalog, "main", changes)
            done += 1
        elif step == "optimize":
            opened.optimize()
        elif step == "index":
            opened.ensure_indices()
        elif step == "schema":
            added += 1
            head = "node Person implements Named {"
            more = "".join(f"  extra{i}: I64?" for i in range(added))
            opened.schema.apply(made.source().replace(head, head + more))
        else:
            opened.cleanup(keep=KEPT, confirm=True)
        print(json.dumps([done, repository.snapshot().head.id, step]), flush=True)


if __name__ == "__main__":
    main()
