"""`make demo`: this machine's Python environment, from manifests to answers.

Collects the environment into `examples/python-env/data`, lets `omnigraph up` load, index and serve it, and asks the
server its stored queries over HTTP.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx
import yaml
from rich.console import Console
from rich.table import Table

from hack.demo.collect import collect

EXAMPLE = Path("examples/python-env")
TOKEN = "demo-token"
QUESTIONS: list[tuple[str, str, dict[str, Any]]] = [
    ("Which distributions do most others require?", "most_required", {"top": 8}),
    ("What does pydantic need, one to four steps away?", "needs", {"name": "pydantic"}),
    ("Which file types take the most space?", "biggest_file_types", {"top": 8}),
    ("Which installed distributions does nobody require?", "nobody_requires", {}),
    ("Whose summary speaks of HTTP?", "about", {"text": "HTTP"}),
    ("Which distributions take the most space?", "biggest_distributions", {"top": 8}),
    ("Who wrote most of them?", "authors", {"top": 5}),
]
ROWS_SHOWN = 10


def omnigraph(*args: str) -> int:
    """Run the command as a user would, its output shown as it comes."""
    return subprocess.run([sys.executable, "-m", "omnigraph.cli.main", *args], check=False).returncode


def ask(client: httpx.Client, console: Console, title: str, query: str, params: dict[str, Any]) -> None:
    """Ask one stored query and print its rows with the time the round trip took."""
    start = time.perf_counter()
    answer = client.post(f"/queries/{query}", json={"params": params})
    took = (time.perf_counter() - start) * 1000
    if answer.status_code != 200:
        raise SystemExit(f"{query}: HTTP {answer.status_code}: {answer.text}")
    body = answer.json()
    count = body["row_count"]
    more = f", the first {ROWS_SHOWN} shown" if count > ROWS_SHOWN else ""
    call = f"{query}({', '.join(f'{k}={v!r}' for k, v in params.items())})"
    console.print(f"[bold]{title}[/bold]\n[dim]{call}: {count} rows in {took:.1f} ms{more}[/dim]")
    table = Table()
    for column in body["columns"]:
        name = column["name"] if isinstance(column, dict) else column
        table.add_column(name, no_wrap=True, overflow="ellipsis", min_width=min(len(name), 12))
    for row in body["rows"][:ROWS_SHOWN]:
        table.add_row(*("" if v is None else f"{v:,}" if isinstance(v, int) else str(v) for v in row.values()))
    console.print(table)
    console.print()


def main() -> int:
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__)
    parser.add_argument("--keep", action="store_true", help="leave the server running")
    parser.add_argument("--collect", action="store_true", help="only make the data")
    arguments = parser.parse_args()
    keep = arguments.keep
    console = Console(highlight=False)
    begun = time.perf_counter()

    counts = collect(EXAMPLE / "data")
    rows = ", ".join(f"{n:,} {kind}" for kind, n in counts.items())
    console.print(f"[bold]This environment as data[/bold] ({sum(counts.values()):,} rows): {rows}\n")

    if arguments.collect:
        return 0
    console.print(f"[bold]omnigraph up -f {EXAMPLE} --once --keep[/bold]")
    code = omnigraph("up", "-f", str(EXAMPLE), "--once", "--keep")
    if code != 0:
        console.print("\n`make clean` takes the demo's graph and state away; then it begins anew.")
        return code
    ready = time.perf_counter()
    status = yaml.safe_load((EXAMPLE / ".omnigraph/objects/default/OmniGraph/python-env/status.yaml").read_text())
    url = status["endpoints"]["readWrite"]
    console.print()
    try:
        with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {TOKEN}"}, timeout=30) as client:
            for title, query, params in QUESTIONS:
                ask(client, console, title, query, params)
        asked = time.perf_counter()
    finally:
        if not keep:
            omnigraph("up", "-f", str(EXAMPLE), "--stop")
    console.print(
        f"Manifest to serving {ready - begun:.1f} s, {len(QUESTIONS)} questions {(asked - ready) * 1000:.0f} ms, "
        f"{asked - begun:.1f} s in all."
    )
    if keep:
        body = '{"params": {"name": "pyspark"}}'
        print(
            f"\nIt serves at {url} . Ask it:\n"
            f"  curl {url}/queries/needs -H 'Authorization: Bearer {TOKEN}' \\\n"
            f"    -H 'Content-Type: application/json' -d '{body}'\n"
            f"Stop it:\n  .venv/bin/omnigraph up -f {EXAMPLE} --stop",
        )
    else:
        console.print("make demo KEEP=1 leaves it serving.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
