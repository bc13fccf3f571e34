"""`omnigraph up`: keeps a state folder's objects as the manifests have them, for as long as it runs, or once."""

from __future__ import annotations

import json
import signal
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Any

import watchfiles

from omnigraph_operator.decide.conditions import condition
from omnigraph_operator.decide.omnigraph import RECONCILE_AT
from omnigraph_operator.decide.shapes import Decision, Emit
from omnigraph_operator.model.common import GROUP, VERSION
from omnigraph_operator.model.crd import KINDS
from omnigraph_operator.platform.base import Object, PlatformError, reconcile
from omnigraph_operator.platform.local import LocalPlatform
from omnigraph_operator.platform.local_manifests import Manifest, ManifestError, Manifests, read_manifests
from omnigraph_operator.platform.local_state import State, write_json
from omnigraph_operator.platform.local_validate import validate

__all__ = ["Up", "default_state", "run", "stop_processes"]

BUSY_SECONDS = 0.1  # between two looks while processes come and go
IDLE_SECONDS = 2.0  # between two looks at sources and servers when all is well
STOP_SECONDS = 40.0  # to wait for processes to end

Print = Callable[[str, str], None]
"""Prints one line; the first argument is its style: `phase`, `good`, `bad`, `plain`."""


def default_state(paths: Sequence[str]) -> Path:
    """`.omnigraph` beside the first manifest."""
    first = Path(paths[0]) if paths and paths[0] != "-" else Path.cwd()
    return (first if first.is_dir() else first.parent) / ".omnigraph"


def run(
    paths: Sequence[str],
    state_folder: Path,
    *,
    once: bool,
    keep: bool,
    show: Print,
    platform: LocalPlatform | None = None,
) -> int:
    """The whole command. Returns the exit code."""
    state = platform.state if platform is not None else State(state_folder)
    try:
        manifests = read_manifests(paths)
        state.acquire()
    except (ManifestError, PlatformError) as error:
        show("bad", str(error))
        return 1
    up = Up(state, show, platform)
    stop = threading.Event()
    handlers = {number: signal.signal(number, _stopper(stop)) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        up.accept(manifests)
        return up.once(stop, keep=keep) if once else up.watch(paths, manifests, stop)
    except (ManifestError, PlatformError) as error:
        show("bad", str(error))
        return 1
    finally:
        state.release()
        for number, handler in handlers.items():
            signal.signal(number, handler)


def stop_processes(state_folder: Path, *, show: Print) -> int:
    """`omnigraph up --stop`: end every process that the folder knows, gracefully. Returns the exit code."""
    if not state_folder.is_dir():
        show("bad", f"{state_folder}: there is no state folder; was `omnigraph up` run with other -f or --state?")
        return 1
    state = State(state_folder)
    try:
        state.acquire()
    except PlatformError as error:
        show("bad", str(error))
        return 1
    try:
        up = Up(state, show)
        living = [p for p in up.platform.processes() if not p.gone]
        for obj in state.stored():
            up.take_up(obj)
        up.stop_all("`omnigraph up --stop`")
        show("good" if living else "plain", f"stopped {len(living)} processes" if living else "nothing was running")
        return 0
    finally:
        state.release()


def _stopper(stop: threading.Event) -> Callable[[int, FrameType | None], None]:
    def on_signal(_number: int, _frame: FrameType | None) -> None:
        stop.set()

    return on_signal


@dataclass(slots=True)
class _Watched:
    """One object and when it is looked at next (monotonic seconds)."""

    obj: dict[str, Any]
    due: float = 0.0
    decision: Decision | None = None
    shown: Mapping[str, Any] | None = None


class Up:
    """The loop over one state folder. Its lock must be held."""

    def __init__(self, state: State, show: Print, platform: LocalPlatform | None = None) -> None:
        self.state = state
        self.platform = platform or LocalPlatform(state, say=self._say)
        self._show = show
        self._objects: dict[str, _Watched] = {}

    # -- what is declared

    def accept(self, manifests: Manifests) -> None:
        """Store the objects as the API server would: identity and generation kept, immutable fields guarded.

        Raises:
            ManifestError: a rule about a change is broken; nothing is stored then.
        """
        stored = {_key(o): o for o in self.state.stored()}
        problems: list[str] = []
        accepted: list[tuple[Manifest, dict[str, Any]]] = []
        for manifest in manifests.objects:
            old = stored.get(_key(manifest.obj))
            findings = validate(KINDS[manifest.obj["kind"]], manifest.obj, old)
            problems += [manifest.at(f.place, f.message) for f in findings]
            accepted.append((manifest, self._stored_form(manifest, old)))
        if problems:
            raise ManifestError(problems)
        self.platform.sources.config_maps = manifests.config_maps
        self.platform.sources.secrets = manifests.secrets
        objects: dict[str, _Watched] = {}
        for manifest, obj in accepted:
            uid = obj["metadata"]["uid"]
            self.platform.folders[uid] = manifest.folder
            if stored.get(_key(obj)) != obj:
                write_json(self.state.folder_of(obj) / "object.json", obj)
            known = self._objects.get(uid)
            objects[uid] = _Watched(obj, shown=known.shown if known else None)
        for obj in stored.values():
            if obj["metadata"].get("deletionTimestamp") and obj["metadata"]["uid"] not in objects:
                self._watch_stored(objects, obj)
        self._objects = objects

    def _stored_form(self, manifest: Manifest, old: Mapping[str, Any] | None) -> dict[str, Any]:
        meta = manifest.obj["metadata"]
        spec = json.loads(json.dumps(manifest.obj["spec"]))
        generation = 1
        if old is not None:
            generation = old["metadata"]["generation"] + (1 if old["spec"] != spec else 0)
        kept = {
            "name": meta["name"],
            "namespace": meta["namespace"],
            # Made of what it is, so that a state folder that was lost leads to the same operations, which then
            # find themselves done.
            "uid": str(uuid.uuid5(uuid.NAMESPACE_URL, f"{manifest.folder}#{'/'.join(_key(manifest.obj))}")),
            "generation": generation,
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": meta.get("labels") or {},
            "annotations": self._annotations(meta, old),
        }
        if old is not None and old["metadata"].get("deletionTimestamp"):
            kept["deletionTimestamp"] = old["metadata"]["deletionTimestamp"]
        origin = {"file": manifest.file, "folder": str(manifest.folder)}
        kind = manifest.obj["kind"]
        return {
            "apiVersion": f"{GROUP}/{VERSION}", "kind": kind, "metadata": kept, "spec": spec, "origin": origin,
        }  # fmt: skip

    def _annotations(self, meta: Mapping[str, Any], old: Mapping[str, Any] | None) -> dict[str, str]:
        """The manifest's, and a call for another round: whoever starts `up` again wants failed work tried again."""
        given = dict(meta.get("annotations") or {})
        if old is None or RECONCILE_AT in given:
            return given
        asked = (old["metadata"].get("annotations") or {}).get(RECONCILE_AT)
        stalled = condition(self.state.status(old), "Stalled") is not None
        if stalled and old["metadata"]["uid"] not in self._objects:
            asked = datetime.now(UTC).isoformat(timespec="seconds")
        return given | ({RECONCILE_AT: asked} if asked else {})

    def _watch_stored(self, objects: dict[str, _Watched], obj: dict[str, Any]) -> None:
        uid = obj["metadata"]["uid"]
        self.platform.folders[uid] = Path(obj["origin"]["folder"])
        known = self._objects.get(uid)
        objects[uid] = _Watched(obj, shown=known.shown if known else None)

    def take_up(self, obj: dict[str, Any]) -> None:
        """Look after a stored object that no manifest here declares: one to be deleted, or to be stopped."""
        self._watch_stored(self._objects, obj)

    # -- the loop

    def step(self) -> None:
        """One pass over every object that is due."""
        now = time.monotonic()
        for uid, watched in list(self._objects.items()):
            if watched.due > now:
                continue
            try:
                watched.decision = reconcile(self.platform, watched.obj)
                again = watched.decision.again_in
            except PlatformError as error:
                if error.permanent:
                    raise
                self._show("bad", f"{_title(watched.obj)}  {error.message}; trying again")
                again = error.retry_after_seconds or 1.0
            if not (self.state.folder_of(watched.obj) / "object.json").exists():
                self._show("good", f"{_title(watched.obj)}  deleted")
                del self._objects[uid]
                continue
            self._show_changes(watched)
            pause = BUSY_SECONDS if self._busy(watched) else IDLE_SECONDS
            watched.due = now + min(pause, again if again is not None else pause)

    def once(self, stop: threading.Event, *, keep: bool) -> int:
        """Until every object has converged (0) or can't (1)."""
        while not stop.is_set():
            self.step()
            if all(self._settled(w) for w in self._objects.values()):
                break
            stop.wait(0.02 if any(w.due <= time.monotonic() for w in self._objects.values()) else BUSY_SECONDS / 2)
        failed = [w for w in self._objects.values() if not _is_ready(w)]
        if not keep or stop.is_set():
            self.stop_all("`omnigraph up --once` has ended" if not stop.is_set() else "stopped by a signal")
        if stop.is_set():
            self._show("plain", "stopped; run the same command again to go on")
            return 1
        for watched in failed:
            self._show_failure(watched)
        return 1 if failed else 0

    def watch(self, paths: Sequence[str], manifests: Manifests, stop: threading.Event) -> int:
        """Until a signal comes."""
        changed = threading.Event()
        folders = {file.parent for file in manifests.files} | {Path(p).resolve() for p in paths if Path(p).is_dir()}
        watcher = threading.Thread(target=_watch_files, args=(folders, changed, stop), daemon=True)
        watcher.start()
        while not stop.is_set():
            if changed.is_set():
                changed.clear()
                self.accept_again(paths)
            self._take_up_deleted()
            self.step()
            stop.wait(BUSY_SECONDS)
        self._show("plain", "stopping")
        self.stop_all("`omnigraph up` has ended")
        watcher.join(timeout=2)
        return 0

    def accept_again(self, paths: Sequence[str]) -> None:
        """Take up manifests that were edited; what is wrong with them is shown and changes nothing."""
        try:
            self.accept(read_manifests(paths))
        except ManifestError as error:
            self._show("bad", f"{error}\nwhat was accepted before stays in force")

    def _take_up_deleted(self) -> None:
        for uid, watched in self._objects.items():
            if watched.obj["metadata"].get("deletionTimestamp"):
                continue
            if (self.state.folder_of(watched.obj) / "delete").exists():
                watched.obj["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
                write_json(self.state.folder_of(watched.obj) / "object.json", watched.obj)
                self._objects[uid].due = 0.0

    def stop_all(self, reason: str) -> None:
        """End every process of the folder gracefully and wait for it."""
        until = time.monotonic() + STOP_SECONDS
        while time.monotonic() < until:
            living = [p for p in self.platform.processes() if not p.gone]
            if not living:
                break
            for process in living:
                process.stop(reason)
            time.sleep(0.05)
        for watched in self._objects.values():
            status = self.state.status(watched.obj)
            if status.get("phase") == "Serving":
                self.state.write_status(watched.obj, _stopped(status, reason))

    # -- judging and showing

    def _busy(self, watched: _Watched) -> bool:
        decision = watched.decision
        if decision is None:
            return True
        settled = condition(decision.status, "Ready"), condition(decision.status, "Stalled")
        calm = any(c is not None and c["status"] == "True" for c in settled) or decision.status["phase"] == "Paused"
        return not calm or bool(decision.actions)

    def _settled(self, watched: _Watched) -> bool:
        """Nothing more will happen by itself."""
        if self._busy(watched):
            return False
        if _is_ready(watched) or (watched.decision and watched.decision.status["phase"] == "Paused"):
            return True
        uid = watched.obj["metadata"]["uid"]
        return not any(p.lives and not p.facts["purpose"].startswith("serve") for p in self.platform.processes(uid))

    def _say(self, _obj: Object, _event: Emit) -> None:
        """Events are the changes of conditions, which are shown anyway."""

    def _show_changes(self, watched: _Watched) -> None:
        decision = watched.decision
        if decision is None:
            return
        before, status = watched.shown or {}, decision.status
        if _essence(before) == _essence(status):
            return
        watched.shown = status
        title = _title(watched.obj)
        ready = condition(status, "Ready")
        message = (ready or {}).get("message", "")
        if (before.get("phase"), (condition(before, "Ready") or {}).get("message")) != (status.get("phase"), message):
            style = {"Serving": "good", "Ready": "good", "Stalled": "bad", "Failed": "bad"}.get(
                status["phase"], "phase"
            )
            self._show(style, f"{title}  {status['phase']}{': ' if message else ''}{message}")
        for fact in status["conditions"]:
            old = condition(before, fact["type"])
            said = fact["type"] in ("Ready", "Reconciling", "Stalled")
            if said or (old is not None and old["status"] == fact["status"]) or fact["status"] != "True":
                continue
            self._show("plain", f"{title}    {fact['type']}: {fact['message'] or fact['reason']}")
        for load in status.get("loads", ()):
            known = [r["phase"] for r in before.get("loads", ()) if r["name"] == load["name"]]
            if load["phase"] == "Loaded" and known != ["Loaded"]:
                took = f" in {load['seconds']:.1f} s" if "seconds" in load else ""
                engine = f"{load['engine']} ({load['engineReason']})"
                self._show("plain", f"{title}    load {load['name']}: {load['rows']} rows{took} by {engine}")

    def _show_failure(self, watched: _Watched) -> None:
        status = watched.decision.status if watched.decision else {}
        ready = condition(status, "Ready") or {}
        self._show("bad", f"{_title(watched.obj)} isn't as declared: {ready.get('reason')}: {ready.get('message')}")
        failed = [w for w in self.platform.processes(watched.obj["metadata"]["uid"]) if w.gone and not _ok(w.result)]
        if ready.get("reason", "").endswith("Failed") and failed:
            last = max(failed, key=lambda p: str(p.finished()))
            self._show("plain", f"the end of {last.folder / 'log'}:")
            self._show("plain", last.log_tail())


def _ok(result: Mapping[str, Any] | None) -> bool:
    return bool((result or {}).get("ok"))


def _key(obj: Mapping[str, Any]) -> tuple[str, str, str]:
    return obj["metadata"].get("namespace", "default"), obj["kind"], obj["metadata"]["name"]


def _title(obj: Object) -> str:
    return f"{obj['kind']}/{obj['metadata']['name']}"


def _is_ready(watched: _Watched) -> bool:
    if watched.decision is None:
        return False
    ready = condition(watched.decision.status, "Ready")
    return ready is not None and ready["status"] == "True"


def _essence(status: Mapping[str, Any]) -> Any:
    """What people want to see a change of."""
    facts = [(c["type"], c["status"], c["message"]) for c in status.get("conditions", ())]
    loads = [(r["name"], r["phase"]) for r in status.get("loads", ())]
    return status.get("phase"), facts, loads


def _stopped(status: Mapping[str, Any], reason: str) -> dict[str, Any]:
    """The status of a graph whose servers went with `up`."""
    out = {k: v for k, v in status.items() if k != "endpoints"} | {"phase": "Stopped"}
    out["conditions"] = [
        dict(c) | {"status": "False", "reason": "Stopped", "message": f"{reason}; its servers were stopped"}
        if c["type"] in ("Ready", "Serving")
        else dict(c)
        for c in status.get("conditions", ())
    ]
    return out


def _watch_files(folders: Iterable[Path], changed: threading.Event, stop: threading.Event) -> None:
    for changes in watchfiles.watch(*folders, stop_event=stop, recursive=False, debounce=200):
        if any(Path(path).suffix in (".yaml", ".yml", ".json", "") for _, path in changes):
            changed.set()
