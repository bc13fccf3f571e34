"""Workloads as processes that outlive `up`, and of which at most one runs per workload folder.

`python -m omnigraph_operator.platform.local_process FOLDER RUN` is the runner: it takes the folder's lock, starts the
command of `command.json` with the lock's descriptor inherited, waits, and writes `exit.json`. The lock is held as long
as the runner or the command lives, whoever of `up`, runner and command is killed: a free lock proves that both are
gone, and a second runner beside a living one ends at once. RUN is the incarnation in `command.json`; a runner that
comes late finds another one, or an exit, and does nothing.

Processes that the command started (a JVM) are found by the variable OMNIGRAPH_WORKLOAD in their environment.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from omnigraph_operator.platform.local_state import lock_file, read_json, write_json

__all__ = ["GRACE_SECONDS", "MARK", "Process", "launch", "prepare"]

MARK = "OMNIGRAPH_WORKLOAD"
GRACE_SECONDS = 15.0


def prepare(folder: Path, argv: Sequence[str], environment: Mapping[str, str], facts: Mapping[str, Any]) -> str:
    """Write what is to be run; nothing runs yet. Returns the incarnation."""
    run = f"{time.time_ns():x}"
    command = {"argv": list(argv), "environment": dict(environment), "run": run, "facts": dict(facts)}
    write_json(folder / "command.json", command)
    return run


def launch(folder: Path, run: str) -> subprocess.Popen[bytes]:
    """Start the runner of a prepared folder in its own session; launching twice runs it once."""
    with open(folder / "runner.log", "ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "omnigraph_operator.platform.local_process", str(folder), run],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            env=os.environ | {MARK: str(folder)},
        )


def _main(folder: Path, run: str) -> int:
    """The runner."""
    lock = _lock(folder)
    command = read_json(folder / "command.json")
    if lock is None or command is None or command["run"] != run:
        return 0
    # Taken up before, by a runner that ended or was killed: it has an outcome already, and that one stands.
    if (folder / "process.json").exists() or (folder / "exit.json").exists():
        return 0
    # TERM is for the command, in the same process group; the runner stays to write down how it ended.
    signal.signal(signal.SIGTERM, lambda *_: None)
    signal.signal(signal.SIGINT, lambda *_: None)
    write_json(folder / "process.json", {"group": os.getpgid(0), "started": _now()})
    with open(folder / "log", "ab") as log:
        try:
            child = subprocess.Popen(
                command["argv"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(lock,),
                env=os.environ | command["environment"] | {MARK: str(folder)},
            )
            code = child.wait()
        except OSError as error:
            log.write(f"{command['argv'][0]}: {error.strerror}\n".encode())
            code = 127
    write_json(folder / "exit.json", {"code": code, "finished": _now()})
    return 0


def _lock(folder: Path) -> int | None:
    """The folder's lock; waits a little, since whoever looks at the folder holds it for a moment."""
    for _ in range(50):
        lock = lock_file(folder / "lock") if folder.is_dir() else None
        if lock is not None or not folder.is_dir():
            return lock
        time.sleep(0.02)
    return None


def _now() -> str:
    return datetime.now(UTC).isoformat()


class Process:
    """A workload's folder as it is seen now."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.command: dict[str, Any] = read_json(folder / "command.json") or {}
        self.stopping: dict[str, Any] | None = read_json(folder / "stop.json")
        # The lock before the files: what a dying process wrote last is there once its lock is free.
        settled = (folder / "gone").exists()
        self.lives = not settled and self._lock_is_held()
        self.exit: dict[str, Any] | None = read_json(folder / "exit.json")
        self.process: dict[str, Any] | None = read_json(folder / "process.json")
        self.result: dict[str, Any] | None = self._result()
        self.stragglers: list[int] = [] if settled or self.lives or not self.started else _marked(folder)
        if self.gone and not settled:
            # Final: a started workload without any living part never lives again. Looking costs a walk over /proc.
            (folder / "gone").touch()

    @property
    def facts(self) -> dict[str, Any]:
        return dict(self.command.get("facts", {}))

    @property
    def started(self) -> bool:
        """A runner has taken it up; until then one may still come."""
        return self.process is not None or self.exit is not None

    @property
    def gone(self) -> bool:
        return self.started and not self.lives and not self.stragglers

    @property
    def exit_code(self) -> int | None:
        return self.exit["code"] if self.exit else None

    def finished(self) -> datetime | None:
        """When it ended; the time of its last sign of life when nobody was left to write that down."""
        if self.lives or not self.started:
            return None
        if self.exit:
            return datetime.fromisoformat(self.exit["finished"])
        signs = [p.stat().st_mtime for n in ("result.json", "log", "process.json") if (p := self.folder / n).exists()]
        return datetime.fromtimestamp(max(signs), UTC) if signs else None

    def started_at(self) -> datetime | None:
        return datetime.fromisoformat(self.process["started"]) if self.process else None

    def stop(self, reason: str) -> None:
        """Ask it to end, and to be removed then. Again later: with force, once the grace period is over."""
        if self.stopping is None:
            self.stopping = {"reason": reason, "at": time.time()}
            write_json(self.folder / "stop.json", self.stopping)
        self.signal(signal.SIGKILL if time.time() - self.stopping["at"] > GRACE_SECONDS else signal.SIGTERM)

    def signal(self, number: signal.Signals) -> None:
        """Signal every living part. The lock (or the mark) proves that the numbers still mean this workload."""
        if self.lives and self.process is not None:
            with suppress(ProcessLookupError):
                if number is signal.SIGKILL or not self.stopping or not self.stopping.get("sent"):
                    os.killpg(self.process["group"], number)
                    if self.stopping:
                        self.stopping["sent"] = True
                        write_json(self.folder / "stop.json", self.stopping)
        for pid in self.stragglers:
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def remove(self, kept: Path | None = None) -> None:
        """Take the folder away; with `kept`, move it there so that its log can still be read."""
        if kept is None:
            shutil.rmtree(self.folder, ignore_errors=True)
            return
        kept.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(kept, ignore_errors=True)
        self.folder.rename(kept)

    def log_tail(self, lines: int = 20) -> str:
        """The end of its output."""
        try:
            with open(self.folder / "log", "rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - 16384))
                text = file.read().decode(errors="replace")
        except FileNotFoundError:
            return ""
        return "\n".join(text.splitlines()[-lines:])

    def _lock_is_held(self) -> bool:
        if not (self.folder / "lock").exists():
            return False
        descriptor = lock_file(self.folder / "lock")
        if descriptor is None:
            return True
        os.close(descriptor)
        return False

    def _result(self) -> dict[str, Any] | None:
        try:
            value = json.loads((self.folder / "result.json").read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):
            return None
        return value if isinstance(value, dict) else None


def _marked(folder: Path) -> list[int]:
    """Living processes that carry the workload's mark (Linux; elsewhere the lock alone has to do)."""
    mark = f"{MARK}={folder}".encode()
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (entry / "environ").read_bytes().split(b"\0"):
                found.append(int(entry.name))
        except (OSError, ValueError):
            continue
    return found


if __name__ == "__main__":
    raise SystemExit(_main(Path(sys.argv[1]), sys.argv[2]))
