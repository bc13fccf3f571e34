"""A reader stays open while another process writes, changes the schema, compacts and cleans up.

Each answer is that of the commit its snapshot is of, and no snapshot is older than what was acknowledged before it was
taken.

OMNIGRAPH_ORACLE_EXAMPLES makes it longer, OMNIGRAPH_ORACLE_SEED repeats the writer and the queries.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from omnigraph.errors import NotFound
from omnigraph.schema import compile_schema
from omnigraph.storage import Repository
from tests.engine.read.oracle.compared import MODES, answered, difference, expected
from tests.engine.read.oracle.expressions import TooMany
from tests.engine.read.oracle.graphs import Change, change, schema, start
from tests.engine.read.oracle.queries import Drawing
from tests.engine.read.oracle.states import commit

PROGRAM = Path(__file__).with_name("busy_writer.py")
SEED = int(os.environ.get("OMNIGRAPH_ORACLE_SEED", random.randrange(2**32)))
STEPS = int(os.environ.get("OMNIGRAPH_ORACLE_EXAMPLES", 4)) * 6


def test_every_answer_is_that_of_some_commit(tmp_path: Path) -> None:
    print(f"OMNIGRAPH_ORACLE_SEED={SEED}")
    rng = random.Random(SEED)
    made, uri = schema(SEED), str(tmp_path / "g")
    catalog = compile_schema(made.source())
    graph = start(made, SEED, [6] * 9)
    repository = Repository.create(uri, catalog)
    commit(repository, catalog, "main", Change({k: list(v.values()) for k, v in graph.items()}, {}, {}))
    first = repository.snapshot()
    several = [Drawing(rng.randint, made).query() for _ in range(25)]

    said: list[tuple[int, str]] = [(0, first.head.id)]  # changes, and the commit that has them
    path = os.pathsep.join(p for p in sys.path if p)
    arguments = [str(PROGRAM), uri, str(SEED), str(SEED), str(STEPS)]
    writer = subprocess.Popen(
        [sys.executable, *arguments], env=os.environ | {"PYTHONPATH": path}, stdout=subprocess.PIPE, text=True
    )

    def listen() -> None:
        assert writer.stdout is not None
        for line in writer.stdout:
            done, head, _ = json.loads(line)
            said.append((done, head))

    listener = threading.Thread(target=listen)
    listener.start()
    asked: list[tuple[int, str, int, str, Any]] = []  # acknowledged before, commit, query, mode, answer
    gone = False
    while writer.poll() is None:
        before = len(said) - 1
        snapshot = repository.snapshot()
        for number in rng.sample(range(len(several)), 5):
            mode = rng.choice(list(MODES))
            try:
                asked.append((before, snapshot.head.id, number, mode, answered(snapshot, several[number], mode)))
            except NotFound:  # older than what a cleanup keeps by now
                break
            if not gone:  # until a cleanup takes its files away, the first state answers as ever
                try:
                    asked.append((0, first.head.id, number, mode, answered(first, several[number], mode)))
                except NotFound:
                    gone = True
    listener.join()
    assert writer.returncode == 0
    graphs = [graph]
    for number in range(said[-1][0]):
        graphs.append(change(made, graphs[-1], f"{SEED} {number}")[0])
    reported = {head: done for done, head in said}
    changes: dict[str, int] = {}  # a step that changes no row may make several commits, and reports the last
    for made_by in reversed(repository.commits(limit=10 * STEPS)):
        changes[made_by.id] = reported.get(made_by.id, max(changes.values(), default=0))
    for before, head, number, mode, got in asked:
        assert head in changes, "a snapshot of a commit that nobody made"
        assert changes[head] >= said[before][0], "a snapshot older than what was acknowledged"
        try:
            want = expected(several[number], made, graphs[changes[head]])
        except TooMany:
            continue
        wrong = difference(several[number], got, want)
        assert wrong is None, f"{mode}, after {changes[head]} changes: {several[number].text()}\n{wrong}"
    print(f"{len(asked)} answers of {len({head for _, head, *_ in asked})} commits; the first state gone: {gone}")
    assert len({head for _, head, *_ in asked}) > 1
