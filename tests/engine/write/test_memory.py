"""A load holds some bytes a row in memory, not what the rows hold."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

CHILD = """
import json, os, sys, threading, time, omnigraph
from omnigraph.write.spool import Spool
Spool.__init__.__defaults__ = (8 << 20,)

def anonymous():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("RssAnon")) / 1024

peak, done = [0.0], threading.Event()
def watch():
    while not done.wait(0.005):
        peak[0] = max(peak[0], anonymous())

SCHEMA = "node Person { slug: String @key  name: String  about: String  age: I32? }"
graph = omnigraph.open(sys.argv[1]) if os.path.exists(sys.argv[1]) else omnigraph.init(sys.argv[1], schema=SCHEMA)
threading.Thread(target=watch).start()
rows = graph.load(sys.argv[2], mode=sys.argv[3]).rows
done.set()
print(json.dumps([rows, peak[0]]))
"""


def test_a_large_file_takes_less_memory_than_it_is_large(tmp_path: Path) -> None:
    source, rows, about = tmp_path / "large.ndjson", 1_200_000, "about " * 40
    with source.open("w") as out:
        for i in range(rows):
            out.write(f'{{"type": "Person", "data": {{"slug": "p{i}", "name": "n{i}", "about": "{about}{i}"}}}}\n')
    assert source.stat().st_size > 350e6
    args = [sys.executable, "-c", CHILD, str(tmp_path / "g"), str(source), "append"]
    ran = subprocess.run(args, capture_output=True, text=True, check=True)
    loaded, peak = json.loads(ran.stdout)
    print("peak MB", peak)
    source.unlink()
    assert loaded == rows
    assert peak < 400


MERGE = """
from omnigraph.storage import change
from omnigraph.write import loader
change.WRITE_BYTES = 8 << 20
loader.MERGE_BYTES, loader.MERGE_ROWS = 8 << 20, 1000
"""


def test_a_merge_of_stored_and_new_rows_takes_less_memory_than_they_are_large(tmp_path: Path) -> None:
    rows, about = 45_000, "about " * 500
    lines = [f'{{"type": "Person", "data": {{"slug": "p{i}", "name": "n{i}"' for i in range(rows)]
    first, second = tmp_path / "first.ndjson", tmp_path / "second.ndjson"
    first.write_text("".join(f'{line}, "about": ""}}}}\n' for line in lines[::2]))
    with second.open("w") as out:
        for i, line in enumerate(lines):
            out.write(f'{line}, "about": "{about}{i}"}}}}\n')
        out.writelines(f'{line}, "age": 7}}}}\n' for line in lines[::100])  # a second time
    assert second.stat().st_size > 135e6
    env = os.environ | {"MALLOC_ARENA_MAX": "2"}  # what is held, rather than what the C library keeps for each thread
    for source, mode, count in ((first, "append", rows // 2), (second, "merge", rows + rows // 100)):
        args = [sys.executable, "-c", MERGE + CHILD, str(tmp_path / "g"), str(source), mode]
        ran = subprocess.run(args, capture_output=True, text=True, check=True, env=env)
        loaded, peak = json.loads(ran.stdout)
        print("peak MB", peak)
        source.unlink()
        assert loaded == count
    assert peak < 320
