"""One of several in a race: `maintenance_race.py URI ROLE SECONDS` writes, reads, compacts or cleans until time is up.

Prints what was acknowledged: for a writer the slugs and commits, for the others how often they got through.
"""

from __future__ import annotations

import json
import random
import sys
import time

import omnigraph


def main() -> None:
    uri, role, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
    graph = omnigraph.open(uri, actor=role)
    until = time.monotonic() + seconds
    done: list[list[str]] = []
    rounds = refused = 0
    while time.monotonic() < until:
        rounds += 1
        try:
            if role.startswith("writer"):
                slug = f"{role}-{rounds}"
                branch = random.choice(("main", "dev"))
                made = graph.mutate("query q($s: String) { insert P { slug: $s } }", {"s": slug}, branch=branch)
                done.append([branch, slug, made.commit.id if made.commit else ""])
                if rounds % 4 == 0:
                    graph.mutate(
                        "query q($s: String) { update P set { n: 1 } where slug = $s }", {"s": slug}, branch=branch
                    )
            elif role == "reader":
                snapshot = graph.snapshot(random.choice(("main", "dev")))
                first = snapshot.scan("node:P", ["slug"]).num_rows
                time.sleep(0.02)
                if snapshot.scan("node:P", ["slug"]).num_rows != first or first != snapshot.count_rows("node:P"):
                    raise AssertionError("a snapshot changed")
            elif role == "optimizer":
                graph.optimize(branch=random.choice(("main", "dev")))
                time.sleep(0.1)
            else:
                report = graph.cleanup(keep=25, confirm=True)
                if any(one.reason != "Busy" for one in report.failed):
                    raise AssertionError(report.failed)
                time.sleep(0.1)
        except omnigraph.Conflict as error:
            if not error.retryable:
                raise
            refused += 1
    graph.close()
    print(json.dumps({"done": done, "rounds": rounds, "refused": refused}))


if __name__ == "__main__":
    main()
