"""A load holds some bytes a row in memory, not what the rows hold."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

CHILD = """
import json, sys, threading, time, omnigraph
from omnigraph.write.spool import Spool
Spool.__init__.__defaults__ = (8 << 20,)

def anonymous():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("RssAnon")) / 1024

peak, done = [0.0], threading.Event()
def watch():
    while not done.wait(0.005):
        peak[0] = max(peak[0], anonymous())

graph = omnigraph.init(sys.argv[1], schema="node Person { slug: String @key  name: String  about: String  age: I32? }")
threading.Thread(target=watch).start()
rows = graph.load(sys.argv[2]).rows
done.set()
print(json.dumps([rows, peak[0]]))
"""


def test_a_large_file_takes_less_memory_than_it_is_large(tmp_path: Path) -> None:
    source, rows, about = tmp_path / "large.ndjson", 1_200_000, "about " * 40
    with source.open("w") as out:
        for i in range(rows):
            out.write(f'{{"type": "Person", "data": {{"slug": "p{i}", "name": "n{i}", "about": "{about}{i}"}}}}\n')
    assert source.stat().st_size > 350e6
    args = [sys.executable, "-c", CHILD, str(tmp_path / "g"), str(source)]
    ran = subprocess.run(args, capture_output=True, text=True, check=True)
    loaded, peak = json.loads(ran.stdout)
    print("peak MB", peak)
    source.unlink()
    assert loaded == rows
    assert peak < 400
