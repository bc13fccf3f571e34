"""The platform without a cluster: workloads are processes, the lease is a file, a service is a loopback port.

One `LocalPlatform` works on one state folder, whose lock its process holds; so what a pass reads nobody else changes,
but for the processes themselves (`local_process`).
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from omnigraph_operator import decide
from omnigraph_operator.decide.shapes import (
    Action,
    Capabilities,
    CreateChild,
    Emit,
    Engine,
    Ensure,
    Finalize,
    Forget,
    Lease,
    Observed,
    Phase,
    Purpose,
    ReleaseWriter,
    Start,
    Stop,
    TakeWriter,
    Work,
    Workload,
)
from omnigraph_operator.platform.base import Object, PlatformError, command_arguments
from omnigraph_operator.platform.local_process import GRACE_SECONDS, Process, launch, prepare
from omnigraph_operator.platform.local_sources import Sources, local_path, resolve_uri
from omnigraph_operator.platform.local_state import State, read_json, write_json

__all__ = ["LocalPlatform", "Say", "command"]

SPARK_MIN_BYTES = 256 * 1024 * 1024
Say = Callable[[Object, Emit], None]
Command = Callable[[Work, list[str]], list[str]]


def command(_work: Work, arguments: list[str]) -> list[str]:
    """The command line of a workload: this interpreter with the arguments of `omnigraph`."""
    return [sys.executable, "-m", "omnigraph.cli.main", *arguments]


class LocalPlatform:
    """See `platform.base.Platform`.

    Args:
        state: its lock must be held.
        say: told of every event.
        build: makes a workload's command line; a test's way to run something else.
        spark_min_bytes: from this source size on a load takes Spark by itself.
    """

    def __init__(
        self, state: State, *, say: Say | None = None, build: Command = command, spark_min_bytes: int | None = None
    ) -> None:
        self.state = state
        self.sources = Sources({}, {})
        self.folders: dict[str, Path] = {}  # of the manifest, by the object's uid
        self._say = say
        self._build = build
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        given = os.environ.get("OMNIGRAPH_SPARK_MIN_BYTES", str(SPARK_MIN_BYTES))
        self._capabilities = Capabilities(
            spark_operator="NoCluster",
            spark_process=_why_no_spark(),
            spark_min_bytes=spark_min_bytes if spark_min_bytes is not None else int(given),
        )

    # -- seeing

    def observe(self, obj: Object) -> Observed:
        desired = None
        try:
            desired = decide.desired_from(obj)
        except decide.InvalidSpec:
            references = {}
        else:
            references = decide.references(desired)
        namespace, folder = obj["metadata"]["namespace"], self._folder(obj)
        lease = read_json(self.state.folder_of(obj) / "lease.json") or {}
        ensured = read_json(self.state.folder_of(obj) / "ensured.json") or {}
        return Observed(
            now=datetime.now(UTC),
            status=self.state.status(obj),
            workloads={w.name: w for w in self._workloads(obj["metadata"]["uid"])},
            lease=Lease(
                lease.get("holder"),
                lease.get("owner"),
                datetime.fromisoformat(lease["since"]) if lease.get("since") else None,
                lease.get("transitions", 0),
            ),
            sources={key: self.sources.look(ref, namespace, folder) for key, ref in references.items()},
            capabilities=self._capabilities,
            ensured={(e["kind"], e["name"]): e["digest"] for e in ensured.values()},
        )

    def processes(self, uid: str | None = None) -> list[Process]:
        """Every workload folder, of one object or all, with what is stopped and gone already cleared away."""
        out = []
        for folder in sorted((self.state.folder / "workloads").glob("*/command.json")):
            process = Process(folder.parent)
            if uid is not None and process.facts.get("owner") != uid:
                continue
            if not process.started and not process.lives:
                if process.stopping is not None:
                    process.remove()
                    continue
                self._launch(process.folder, process.command["run"])
            elif process.stopping is not None:
                if process.gone and not (process.result or {}).get("ok"):
                    process.remove(self.state.folder / "stopped" / process.folder.name)
                    continue
                if not process.gone:
                    process.stop(process.stopping["reason"])
            else:
                self._end_overdue(process)
            out.append(process)
        return out

    def _end_overdue(self, process: Process) -> None:
        limit, started = process.facts.get("deadlineSeconds"), process.started_at()
        if limit is None or started is None or not process.lives:
            return
        over = (datetime.now(UTC) - started).total_seconds() - limit
        if over > 0:
            process.signal(signal.SIGKILL if over > GRACE_SECONDS else signal.SIGTERM)

    def _workloads(self, uid: str) -> list[Workload]:
        for name, child in list(self._children.items()):
            if child.poll() is not None:
                del self._children[name]
        return [self._see(process) for process in self.processes(uid)]

    def _see(self, process: Process) -> Workload:
        facts = process.facts
        purpose = Purpose(facts["purpose"])
        ready = read_json(process.folder / "ready.json") if purpose.serves else None
        phase = _phase(process, purpose)
        return Workload(
            name=process.folder.name,
            purpose=purpose,
            digest=facts["digest"],
            attempt=facts["attempt"],
            writes=facts["writes"],
            phase=phase,
            gone=process.gone,
            engine=Engine(facts["engine"]),
            ready=process.lives and ready is not None and process.stopping is None,
            result=process.result,
            exit_code=process.exit_code,
            message=_message(process) if phase is Phase.FAILED else "",
            endpoint=ready.get("url") if ready else None,
            started=process.started_at(),
            finished=process.finished(),
        )

    # -- doing

    def act(self, obj: Object, actions: Sequence[Action]) -> None:
        for action in actions:
            try:
                self._do(obj, action)
            except (OSError, ValueError) as error:
                raise PlatformError(f"{type(action).__name__} for {obj['metadata']['name']}: {error}") from error

    def _do(self, obj: Object, action: Action) -> None:
        match action:
            case Start(work):
                self._start(obj, work)
            case Stop(name, reason):
                self._stop(name, reason)
            case Forget(name):
                Process(self.state.workload_folder(name)).remove()
            case TakeWriter(holder):
                self._lease(obj, None, holder)
            case ReleaseWriter(holder):
                self._lease(obj, holder, None)
            case Ensure():
                self._ensure(obj, action)
            case Emit():
                if self._say is not None:
                    self._say(obj, action)
            case Finalize():
                shutil.rmtree(self.state.folder_of(obj), ignore_errors=True)
                for process in self.processes(obj["metadata"]["uid"]):
                    process.remove()
            case CreateChild():
                raise PlatformError("children aren't made without a cluster yet", permanent=True)

    def write_status(self, obj: Object, status: Mapping[str, Any]) -> None:
        folder = self.state.folder_of(obj)
        # A finalized object is gone; writing would bring it back.
        if (folder / "object.json").exists():
            self.state.write_status(obj, status)

    def _start(self, obj: Object, work: Work) -> None:
        folder = self.state.workload_folder(work.name)
        if (folder / "command.json").exists():
            return
        desired = decide.desired_from(obj)
        namespace, base = desired.namespace, self._folder(obj)
        references = decide.references(desired)
        paths = {key: self.sources.place(references[key], namespace, base, folder / "inputs") for key in work.inputs}
        port = self._port(obj, work) if work.purpose.serves else None
        uri = resolve_uri(desired.spec.storage.uri, base)
        arguments = command_arguments(work, uri=uri, paths=paths, port=port)
        arguments += ["--ready-file" if work.purpose.serves else "--result"]
        arguments += [str(folder / ("ready.json" if work.purpose.serves else "result.json"))]
        if work.purpose is Purpose.DELETE:
            path = local_path(desired.spec.storage.uri, base)
            argv = [sys.executable, "-m", "omnigraph_operator.platform.local_delete", str(path or uri), arguments[-1]]
        else:
            argv = self._build(work, arguments)
        environment = {"PYTHONUNBUFFERED": "1"}
        if "storage" in references:
            environment |= self.sources.environment(references["storage"], namespace)
        server = desired.spec.server
        if server is not None and server.embedding is not None:
            environment |= server.embedding.environment
        if "embedding" in references:
            key = "".join(self.sources.environment(references["embedding"], namespace).values())
            environment["OMNIGRAPH_EMBED_API_KEY"] = key.strip()
        facts = {
            "owner": desired.uid, "graph": work.graph, "purpose": work.purpose.value, "digest": work.digest,
            "attempt": work.attempt, "writes": work.writes, "engine": work.engine.value,
            "operationId": work.operation_id, "deadlineSeconds": work.deadline_seconds,
        }  # fmt: skip
        run = prepare(folder, argv, environment, facts)
        self._launch(folder, run)

    def _launch(self, folder: Path, run: str) -> None:
        if folder.name not in self._children:
            self._children[folder.name] = launch(folder, run)

    def _stop(self, name: str, reason: str) -> None:
        folder = self.state.workload_folder(name)
        if not folder.exists():
            return
        process = Process(folder)
        if process.started and not process.lives and process.stragglers:
            process.signal(signal.SIGKILL)  # it has ended by itself; what lingers goes, its outcome stays
            return
        if not process.gone:
            process.stop(reason)

    def _lease(self, obj: Object, expected: str | None, holder: str | None) -> None:
        path = self.state.folder_of(obj) / "lease.json"
        lease = read_json(path) or {}
        if lease.get("holder") != expected:
            return
        transitions = lease.get("transitions", 0) + (1 if holder else 0)
        now = datetime.now(UTC).isoformat() if holder else None
        owner = obj["metadata"]["uid"] if holder else None
        write_json(path, {"holder": holder, "owner": owner, "since": now, "transitions": transitions})

    def _ensure(self, obj: Object, action: Ensure) -> None:
        path = self.state.folder_of(obj) / "ensured.json"
        ensured = read_json(path) or {}
        ensured[f"{action.kind}/{action.name}"] = {
            "kind": action.kind, "name": action.name, "digest": action.digest, "data": dict(action.data),
        }  # fmt: skip
        write_json(path, ensured)

    def _port(self, obj: Object, work: Work) -> int:
        """The port asked for; else the one it had before, if that is free; else a free one, kept for the next time."""
        if work.port is not None:
            return work.port
        path = self.state.folder_of(obj) / "ports.json"
        ports = read_json(path) or {}
        known = ports.get(work.purpose.value)
        if known is None or not _is_free(known):
            ports[work.purpose.value] = known = _free_port()
            write_json(path, ports)
        return int(known)

    def _folder(self, obj: Object) -> Path:
        return self.folders.get(obj["metadata"]["uid"], self.state.folder.parent)


def _phase(process: Process, purpose: Purpose) -> Phase:
    if process.lives:
        return Phase.RUNNING
    if not process.started:
        return Phase.PENDING
    if not purpose.serves and process.result is not None:
        return Phase.SUCCEEDED if process.result.get("ok") else Phase.FAILED
    return Phase.FAILED


def _message(process: Process) -> str:
    """How it ended and the last line it said; the whole log is in its folder."""
    last = process.log_tail(1).strip()
    code = process.exit_code
    if code is None:
        ending = "it was killed"
    else:
        ending = f"it ended by signal {-code}" if code < 0 else f"it ended with exit code {code}"
    return f"{ending}: {last}" if last else ending


def _why_no_spark() -> str | None:
    if find_spec("pyspark") is None:
        return "pyspark isn't installed (pip install 'omnigraph[spark]')"
    home = os.environ.get("JAVA_HOME")
    if shutil.which("java") is None and not (home and Path(home, "bin", "java").exists()):
        return "no Java is found (JAVA_HOME or java on the path)"
    return None


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
