"""One graph in several processes: what one keeps open while another removes it, and what a forked child may use."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

import omnigraph
from omnigraph.errors import BadRequest, NotFound
from omnigraph.storage import Repository

SCHEMA = "node P { slug: String @key  n: I64?  doc: Blob? }\n"
QUERY = "query q() { match { $p: P } return { $p.slug, $p.n } }"


@pytest.fixture
def graph(tmp_path: Path) -> omnigraph.Graph:
    made = omnigraph.init(tmp_path / "g", schema=SCHEMA)
    for slug in "abc":
        made.load(json.dumps({"type": "P", "data": {"slug": slug, "n": 1, "doc": "base64:aGVsbG8="}}))
    return made


def elsewhere(program: str, uri: str) -> None:
    path = os.pathsep.join(p for p in sys.path if p)
    subprocess.run([sys.executable, "-c", program, uri], env=os.environ | {"PYTHONPATH": path}, check=True)


def test_what_another_process_removed_is_told_as_that(graph: omnigraph.Graph) -> None:
    """Handles and Blobs that were opened before live on; their files don't."""
    snapshot = Repository.open(graph.uri).snapshot()
    (row_id, *_) = snapshot.scan("node:P", ["_rowid"])["_rowid"].to_pylist()
    blob = snapshot.blob("node:P", "doc", row_id)
    assert blob is not None
    elsewhere(
        "import sys, omnigraph\n"
        "graph = omnigraph.open(sys.argv[1])\n"
        "graph.optimize()\n"
        "graph.mutate('query q() { insert P { slug: \"d\" } }')\n"
        "assert graph.cleanup(keep=1, confirm=True).failed == ()\n",
        graph.uri,
    )
    reads: list[Callable[[], object]] = [
        lambda: snapshot.scan("node:P"),
        lambda: snapshot.scan_batches("node:P", ["slug"]).read_all(),
        lambda: snapshot.take("node:P", [row_id], ["slug"]),
        lambda: snapshot.count_rows("node:P", "n = 1"),
        lambda: snapshot.blobs("node:P", "doc", [row_id]),
        lambda: blob.ranges()(0, 5),
    ]
    for read in reads:
        with pytest.raises(NotFound, match=r"cleanup removed it\. Read the branch as it is now") as caught:
            read()
        assert caught.value.code == "version_removed"
    assert len(graph.query(QUERY)) == 4


def test_a_forked_child_is_refused_what_the_parent_opened(graph: omnigraph.Graph) -> None:
    """What the parent opened is refused there: a lock that one of its threads held would be held for ever."""
    snapshot = graph.snapshot()
    assert snapshot.scan("node:P").num_rows == 3
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Lance's own, at every fork
        child = os.fork()
    if not child:
        signal.alarm(60)
        refused = []
        for use in (
            lambda: graph.query(QUERY),
            lambda: graph.load("{}"),
            lambda: snapshot.scan("node:P"),
            graph.pending,
        ):
            try:
                use()
            except BadRequest as error:
                refused.append(error.code)
        graph.close()
        os.write(writing, json.dumps(refused).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as said:
        assert json.loads(said.read()) == ["forked_process"] * 3
    assert os.waitpid(child, 0)[1] == 0
