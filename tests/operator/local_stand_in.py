"""A stand-in for the `omnigraph` command, fast enough to be killed often. It keeps the engine's promises: one writer at
a time is noticed, an operation id that is published changes nothing, a write that died needs a sweep.

Run as `python local_stand_in.py task|serve …`; as `python local_stand_in.py up MANIFESTS STATE [--once] [--keep]` it is
`omnigraph up` with this file in the place of the command.
"""

from __future__ import annotations

import fcntl
import glob
import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path


def option(arguments: Sequence[str], name: str) -> str | None:
    return arguments[arguments.index(name) + 1] if name in arguments else None


def note(root: Path, **facts: object) -> None:
    with open(root / "journal", "a") as journal:
        journal.write(json.dumps(facts) + "\n")


def task(arguments: list[str]) -> int:
    purpose = arguments[0]
    root = Path(option(arguments, "--uri") or "")
    operation = option(arguments, "--operation-id") or ""
    root.mkdir(exist_ok=True)
    (root / "__manifest").mkdir(exist_ok=True)
    lock = open(root / "writer", "w")  # noqa: SIM115  (held until the process ends)
    result: dict[str, object] = {"ok": True, "purpose": purpose, "operationId": operation}
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        note(root, problem=f"{purpose} ran beside another writer")
    sidecar = root / "sidecar"
    if purpose == "sweep":
        time.sleep(0.05)
        sidecar.unlink(missing_ok=True)
        result["sweep"] = {"outcomes": [], "pending": []}
    else:
        if sidecar.exists() and purpose != "init":
            if option(arguments, "--sweep") == "none":
                note(root, problem=f"{purpose} began on an unswept graph")
            sidecar.unlink()
        published = root / "commits" / operation
        if not published.exists():
            sidecar.write_text(operation)
            time.sleep(0.15)
            published.parent.mkdir(exist_ok=True)
            published.touch()
            note(root, commit=operation, purpose=purpose)
            sidecar.unlink()
        count = len(list((root / "commits").iterdir()))
        result |= {"commit": operation, "rows": 7, "head": {"commit": operation, "manifestVersion": count}}
        source = option(arguments, "--source")
        if source is not None and any("bad" in Path(p).read_text() for p in glob.glob(source)):
            result = {"ok": False, "purpose": purpose, "code": "T12", "message": f"{source}:1: bad record"}
            print("reading", source)
    path = Path(option(arguments, "--result") or "")
    neighbour = path.with_suffix(f".{os.getpid()}")
    neighbour.write_text(json.dumps(result))
    neighbour.replace(path)
    return 0 if result["ok"] else 1


def serve(arguments: list[str]) -> int:
    root = Path(arguments[0])
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    if "--read-only" not in arguments:
        lock = open(root / "server", "w")  # noqa: SIM115
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            note(root, problem="two servers")
    ready = Path(option(arguments, "--ready-file") or "")
    ready.write_text(json.dumps({"url": f"http://127.0.0.1:{option(arguments, '--port')}", "pid": os.getpid()}))
    note(root, serving=os.getpid())
    while True:
        time.sleep(60)


def up(arguments: list[str]) -> int:
    from omnigraph_operator.platform.local import LocalPlatform
    from omnigraph_operator.platform.local_state import State
    from omnigraph_operator.platform.local_up import run

    state = State(Path(arguments[1]))
    platform = LocalPlatform(state, build=lambda _work, rest: [sys.executable, __file__, *rest])
    return run(
        [arguments[0]],
        state.folder,
        once="--once" in arguments,
        keep="--keep" in arguments,
        show=lambda _style, text: print(text, flush=True),
        platform=platform,
    )


if __name__ == "__main__":
    raise SystemExit({"task": task, "serve": serve, "up": up}[sys.argv[1]](sys.argv[2:]))
