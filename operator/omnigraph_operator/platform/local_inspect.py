"""Reading a state folder: what `omnigraph get|logs|delete` show and do."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console
from rich.table import Table
from rich.text import Text

from omnigraph_operator.model.crd import KINDS, Kind
from omnigraph_operator.platform.base import PlatformError
from omnigraph_operator.platform.local_process import Process
from omnigraph_operator.platform.local_state import State, write_json

__all__ = ["delete_object", "printer", "show_logs", "show_objects"]

_STYLES = {"good": "green", "bad": "red", "phase": "cyan", "plain": ""}


def printer() -> Callable[[str, str], None]:
    """Prints lines with the time; colours only on a terminal."""
    console = _console(soft_wrap=True)

    def show(style: str, text: str) -> None:
        stamp = f"{datetime.now().astimezone():%H:%M:%S} "
        console.print(Text(stamp, style="dim") + Text(text, style=_STYLES.get(style, "")))

    return show


def show_objects(folder: Path, kind: str, name: str | None, output: str) -> int:
    """Objects with the CRD's printer columns, or whole."""
    known = _kind(kind)
    console = _console()
    errors = _console(stderr=True, soft_wrap=True)
    if known is None:
        errors.print(f"there is no kind {kind}; known: {', '.join(k.plural for k in KINDS.values())}")
        return 1
    if not folder.is_dir():
        errors.print(f"{folder}: there is no state folder; name the one of `omnigraph up` with --state")
        return 1
    state = State(folder)
    objects = [
        {k: v for k, v in o.items() if k != "origin"} | {"status": state.status(o)}
        for o in state.stored(known.kind)
        if name is None or o["metadata"]["name"] == name
    ]
    if name is not None and not objects:
        errors.print(f"{known.kind} {name} isn't in {folder}")
        return 1
    if output in ("yaml", "json"):
        value: Any = objects[0] if name is not None else {"apiVersion": "v1", "kind": "List", "items": objects}
        text = json.dumps(value, indent=2) if output == "json" else yaml.safe_dump(value, sort_keys=False)
        console.out(text.rstrip(), highlight=False)
        return 0
    if output == "name":
        for obj in objects:
            console.out(f"{known.kind.lower()}/{obj['metadata']['name']}")
        return 0
    columns = [c for c in known.columns if output == "wide" or c[3] == 0]
    table = Table("NAME", *(c[0].upper() for c in columns), box=None, pad_edge=False)
    for obj in objects:
        table.add_row(obj["metadata"]["name"], *(_cell(obj, path) for _, _, path, _ in columns))
    # Cut to the terminal for people; whole for whatever reads a pipe.
    console.print(table, width=None if console.is_terminal else 10_000, no_wrap=not console.is_terminal)
    return 0


def show_logs(folder: Path, workload: str | None) -> int:
    """One workload's log, or the list of workloads."""
    console = _console(soft_wrap=True)
    folders = sorted([*folder.glob("workloads/*/command.json"), *folder.glob("stopped/*/command.json")])
    found = [f.parent for f in folders if workload is None or f.parent.name.startswith(workload)]
    if not found:
        console.print(f"{folder}: no workload {workload or ''}".rstrip())
        return 1
    if workload is None:
        for path in found:
            process = Process(path)
            state = "running" if process.lives else f"exit {process.exit_code}"
            console.print(f"{path.name}  {process.facts['purpose']}  {state}")
        return 0
    for path in found:
        log = path / "log"
        if log.exists():
            console.out(log.read_text(encoding="utf-8", errors="replace").rstrip(), highlight=False)
    return 0


def delete_object(folder: Path, kind: str, name: str, show: Callable[[str, str], None]) -> int:
    """Ask a living `up` to delete an object, or do it here."""
    from omnigraph_operator.platform.local_up import Up

    known = _kind(kind)
    state = State(folder)
    found = [o for o in state.stored(known.kind if known else None) if o["metadata"]["name"] == name]
    if known is None or not found:
        show("bad", f"{kind} {name} isn't in {folder}")
        return 1
    obj = found[0]
    place = state.folder_of(obj)
    try:
        state.acquire()
    except PlatformError:
        (place / "delete").touch()
        while (place / "object.json").exists():
            time.sleep(0.1)
        show("good", f"{known.kind}/{name} deleted")
        return 0
    obj["metadata"]["deletionTimestamp"] = datetime.now(UTC).replace(microsecond=0).isoformat()
    write_json(place / "object.json", obj)
    worker = Up(state, show)
    worker.take_up(obj)
    while (place / "object.json").exists():
        worker.step()
        time.sleep(0.05)
        status = state.status(obj)
        if status.get("phase") == "Stalled":
            return 1
    state.release()
    return 0


def _console(*, stderr: bool = False, soft_wrap: bool = False) -> Console:
    """Shows paths, names and messages as they are: `[` and `:` in them mean nothing."""
    return Console(stderr=stderr, soft_wrap=soft_wrap, highlight=False, markup=False, emoji=False)


def _kind(word: str) -> Kind | None:
    word = word.lower()
    return next((k for k in KINDS.values() if word in (k.kind.lower(), k.plural, k.short)), None)


def _cell(obj: Mapping[str, Any], path: str) -> str:
    """The value at a printer column's path: fields, and one filter over conditions."""
    if path == ".metadata.creationTimestamp":
        return ""
    value: Any = obj
    for part in path.strip(".").replace("[?(@.type=='", ".?").replace("')]", "").split("."):
        if part.startswith("?"):
            value = next((c for c in value or () if c["type"] == part[1:]), None)
        else:
            value = value.get(part) if isinstance(value, Mapping) else None
    return "" if value is None else str(value)
