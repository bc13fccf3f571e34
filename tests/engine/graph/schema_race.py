"""One of several processes in a race. `schema_race.py URI START apply FILE DIGEST | load TAG COUNT`: waits for the file
START, then changes the schema, or loads COUNT times until each load is acknowledged; prints what came of it."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import omnigraph
from omnigraph.errors import Conflict


def main() -> None:
    uri, start, what, *rest = sys.argv[1:]
    graph = omnigraph.open(uri)
    Path(f"{start}.{rest[0].rpartition('/')[2]}").touch()
    while not Path(start).exists():
        time.sleep(0.001)
    if what == "apply":
        try:
            done = graph.schema.apply(Path(rest[0]), expect_plan=rest[1])
            print(json.dumps({"commit": done.commit.id if done.commit else None}))
        except Conflict as error:
            print(json.dumps({"code": error.code, "message": error.message}))
        return
    tag, count = rest[0], int(rest[1])
    retried: list[str] = []
    for i in range(count):
        while True:
            try:
                graph.load(f'{{"type": "Person", "data": {{"name": "{tag}{i}", "kind": "a"}}}}')
                break
            except Conflict as error:
                if not error.retryable:
                    raise
                retried.append(error.code)
    print(json.dumps({"loaded": [f"{tag}{i}" for i in range(count)], "retried": retried}))


if __name__ == "__main__":
    main()
