"""`make bench`: OmniGraph beside its peers, on the same machine and the same work, in turn.

    python -m hack.bench [--scale 10] [--only point,hop1,q8] [--systems omnigraph,kuzu] [--json FILE]

Each system runs in a process of its own. For each line all answer first, and the answers must be equal; then each is
timed for a while, then the next, several times around, so that a busy minute of the machine meets all of them. Prints
p50 and best in milliseconds, the ratio to the fastest peer, and whether the aim is met. `--only` also takes `load`,
`cold`, `upsert`, `study` (the nine questions) and the product's own programs `languages`, `commit`, `branches` and
`s3_commit`.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from hack.bench.compare import Figures, cold, compare, load, upsert
from hack.bench.data import make_social, make_study
from hack.bench.lines import social_lines, study_lines
from hack.bench.peers import peers_python
from hack.bench.table import print_table

OWN = ("languages", "commit", "branches", "s3_commit")
SYSTEMS = ("omnigraph", "ladybug", "kuzu", "duckdb", "lancedb")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=int, default=1, choices=(1, 10), help="10: ten times the social graph")
    parser.add_argument("--only", default="", help="names of lines, comma between")
    parser.add_argument("--systems", default=",".join(SYSTEMS))
    parser.add_argument("--seconds", type=float, default=1.5, help="time for each line and system")
    parser.add_argument("--keep", type=Path, help="a folder for files and databases; found there again the next time")
    parser.add_argument("--json", type=Path, help="write all figures there too")
    args = parser.parse_args()
    only = {name for name in args.only.split(",") if name}
    systems = [name for name in SYSTEMS if name in args.systems.split(",")]
    python = {name: sys.executable if name == "omnigraph" else str(peers_python()) for name in systems}
    folder = args.keep or Path(tempfile.mkdtemp(prefix="omnigraph-bench-"))
    figures: list[Figures] = []
    try:
        figures += _social(folder / f"social-{args.scale}", python, only, args.scale, args.seconds)
        figures += _study(folder / "study", python, only, args.seconds)
    finally:
        if args.keep is None:
            shutil.rmtree(folder, ignore_errors=True)
    if figures:
        print_table(figures, systems)
    if args.json:
        args.json.write_text(json.dumps([f.as_json() for f in figures], indent=1) + "\n")
    for name in OWN:
        if not only or name in only:
            print(f"\n== {name}", flush=True)
            subprocess.run([sys.executable, f"hack/bench/{name}.py"], check=True)


def _social(folder: Path, python: dict[str, str], only: set[str], scale: int, seconds: float) -> list[Figures]:
    lines = [line for line in social_lines(scale) if not only or line.name in only]
    extra = [name for name in ("load", "cold", "upsert") if not only or name in only]
    if not lines and not extra:
        return []
    files = _files(folder, lambda to: make_social(to, scale))
    out = [load("load", files, folder, python, "social", scale, again="load" in extra)]
    if "load" not in extra:
        out = []
    if lines:
        out += compare(lines, folder, python, "social", scale, seconds)
    if "cold" in extra:
        out += cold(folder, python, scale)
    if "upsert" in extra:
        out.append(upsert(folder, {k: v for k, v in python.items() if k != "lancedb"}, scale))
    return out


def _study(folder: Path, python: dict[str, str], only: set[str], seconds: float) -> list[Figures]:
    lines = [line for line in study_lines() if not only or line.name in only or "study" in only]
    if not lines:
        return []
    python = {name: path for name, path in python.items() if name != "lancedb"}
    files = _files(folder, make_study)
    loaded = load("study load", files, folder, python, "study", 1, again=not only or "study" in only)
    return [loaded, *compare(lines, folder, python, "study", 1, seconds)]


def _files(folder: Path, make: Any) -> Path:
    files = folder / "files"
    if not files.exists():
        files.mkdir(parents=True)
        make(files)
    return files


if __name__ == "__main__":
    main()
