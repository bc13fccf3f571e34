"""What the cluster's tests share: kubectl, a journal of what happened, the operator as a process, small graphs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).resolve().parents[2]

SCHEMA = """
node Person {
  name: String @key
  age: I32?
}
edge Knows: Person -> Person {
  since: I32?
}
"""
QUERIES = """
query known_by($name: String) {
  match { $p: Person { name: $name }  $p knows $f }
  return { $f.name, $f.age }
  order { $f.name asc }
}
"""
RECORDS = """\
{"type":"Person","data":{"name":"Ada","age":36}}
{"type":"Person","data":{"name":"Grace","age":45}}
{"type":"Person","data":{"name":"Linus"}}
{"edge":"Knows","from":"Ada","to":"Grace","data":{"since":1950}}
{"edge":"Knows","from":"Ada","to":"Linus"}
"""


class Kube:
    """kubectl on one cluster; every answer is JSON."""

    def __init__(self, binary: Path, kubeconfig: Path) -> None:
        self.binary, self.kubeconfig = binary, kubeconfig
        self.environment = {**os.environ, "KUBECONFIG": str(kubeconfig)}
        self.folders: dict[str, Path] = {}  # a namespace's volume, as this machine sees it

    def run(self, *arguments: str, text: str | None = None, check: bool = True) -> str:
        command = [str(self.binary), *arguments]
        done = subprocess.run(command, input=text, env=self.environment, capture_output=True, text=True, check=False)
        if check and done.returncode:
            raise AssertionError(f"kubectl {' '.join(arguments[:6])}: {done.stderr}")
        return done.stdout if done.returncode == 0 else done.stderr

    def apply(self, *objects: dict[str, Any]) -> None:
        self.run("apply", "-f", "-", text=json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))

    def get(self, namespace: str, kind: str, name: str) -> dict[str, Any] | None:
        out = self.run("get", kind, name, "-n", namespace, "-o", "json", "--ignore-not-found")
        found: dict[str, Any] | None = json.loads(out) if out.strip() else None
        return found

    def items(self, namespace: str, kind: str, selector: str = "") -> list[dict[str, Any]]:
        out = json.loads(self.run("get", kind, "-n", namespace, "-l", selector, "-o", "json"))
        items: list[dict[str, Any]] = out["items"]
        return items

    def patch(self, namespace: str, kind: str, name: str, body: dict[str, Any]) -> None:
        self.run("patch", kind, name, "-n", namespace, "--type=merge", "-p", json.dumps(body), check=False)

    def condition(self, namespace: str, name: str, type_: str) -> dict[str, Any] | None:
        graph = self.get(namespace, "omnigraph", name)
        conditions = ((graph or {}).get("status") or {}).get("conditions") or []
        return next((c for c in conditions if c["type"] == type_), None)

    def wait_condition(
        self, namespace: str, name: str, type_: str, status: str = "True", *, timeout: float = 120
    ) -> dict[str, Any]:
        """Wait until a condition of the current generation has a status; returns the whole object."""

        def check() -> dict[str, Any] | None:
            graph = self.get(namespace, "omnigraph", name)
            if graph is None:
                return None
            found = next((c for c in graph["status"].get("conditions", []) if c["type"] == type_), None)
            current = found and found["observedGeneration"] == graph["metadata"]["generation"]
            return graph if current and found and found["status"] == status else None

        try:
            return wait_for(f"{type_}={status} of {name}", check, timeout)
        except AssertionError as error:
            graph = self.get(namespace, "omnigraph", name) or {}
            seen = json.dumps(graph.get("status"), indent=1)
            pods = self.run("get", "pods,jobs", "-n", namespace, "-o", "wide")
            raise AssertionError(f"{error}\n{seen}\n{pods}") from None


def wait_for(what: str, check: Callable[[], Any], timeout: float = 60) -> Any:
    """Call `check` until it gives something true, and return that."""
    deadline = time.monotonic() + timeout
    while True:
        if found := check():
            return found
        if time.monotonic() > deadline:
            raise AssertionError(f"{what}: not within {timeout} s")
        time.sleep(0.3)


class Journal:
    """Every change of Jobs and Deployments in a namespace, in the order the API server told it."""

    def __init__(self, kube: Kube, namespace: str) -> None:
        self._kube, self._namespace = kube, namespace
        self.lines: list[tuple[str, dict[str, Any]]] = []
        self._processes: list[subprocess.Popen[str]] = []
        self._lock = threading.Lock()

    def start(self) -> None:
        command = [str(self._kube.binary), "get", "jobs.batch,deployments.apps", "-n", self._namespace]
        command += ["--watch", "-o", "json", "--output-watch-events"]
        for kind in ("jobs.batch", "deployments.apps"):  # one watch for each kind
            command[2] = kind
            process = subprocess.Popen(
                command, env=self._kube.environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
            )
            self._processes.append(process)
            threading.Thread(target=self._read, args=(process,), daemon=True).start()

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        decoder, text = json.JSONDecoder(), ""
        for line in process.stdout:
            text += line
            try:
                event, end = decoder.raw_decode(text.lstrip())
            except ValueError:
                continue
            text = text.lstrip()[end:]
            with self._lock:
                self.lines.append((event["type"], event["object"]))

    def stop(self) -> None:
        for process in self._processes:
            process.terminate()
            process.wait()

    def added(self, *purposes: str) -> list[dict[str, Any]]:
        """The objects that came, of these purposes."""
        with self._lock:
            lines = list(self.lines)
        return [o for kind, o in lines if kind == "ADDED" and purpose_of(o) in purposes]

    def check_order(self) -> list[str]:
        """Every write workload came after a sweep that had succeeded, and each has a sweep of its own.

        Times of the API server are whole seconds, so objects that came in one second may be told in either order by
        the two watches; within one watch the order is exact.

        Returns:
            The purposes in the order they came.
        """
        with self._lock:
            lines = list(self.lines)
        swept: list[tuple[str, str]] = []  # name, completionTime
        order: list[str] = []
        used = 0
        for kind, obj in lines:
            purpose = purpose_of(obj)
            if purpose is None:
                continue
            done = (obj.get("status") or {}).get("completionTime")
            name = obj["metadata"]["name"]
            if purpose == "sweep" and done and name not in [known for known, _ in swept]:
                swept.append((name, done))
            if kind != "ADDED":
                continue
            order.append(purpose)
            if purpose in ("load", "index"):
                assert len(swept) > used, f"{name} came before a sweep of its own had succeeded: {order}"
                used = len(swept)
            if purpose == "serve-rw":
                earlier = [known for known, at in swept if at <= obj["metadata"]["creationTimestamp"]]
                assert earlier, f"{name} came before any sweep had succeeded"
        return order


def purpose_of(obj: dict[str, Any]) -> str | None:
    purpose: str | None = (obj["metadata"].get("labels") or {}).get("omnigraph.io/purpose")
    return purpose


class OperatorProcess:
    """The operator, run on this machine against the cluster."""

    def __init__(self, kube: Kube, namespace: str, log: Path) -> None:
        self.log = log
        environment = {
            **kube.environment,
            "OMNIGRAPH_METRICS_PORT": "0",
            "OMNIGRAPH_HEALTH_PORT": "0",
            "OMNIGRAPH_LEASE_SECONDS": "6",  # a killed one is taken over after so long
            "PYTHONPATH": os.pathsep.join(str(CHECKOUT / root) for root in ("engine", "server", "operator")),
        }
        command = [sys.executable, "-m", "omnigraph.cli.main", "operator", "--namespace", namespace]
        with log.open("w") as out:
            self.process = subprocess.Popen(command, env=environment, stdout=out, stderr=out)

    def kill(self) -> None:
        """As a power cut would."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                self.kill()


def volume(namespace: str, name: str, claim: str, folder: Path) -> dict[str, Any]:
    """A PersistentVolume on a folder of the node, for one claim."""
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name, "labels": {"test-namespace": namespace}},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteMany"],
            "storageClassName": "",
            "persistentVolumeReclaimPolicy": "Retain",
            "claimRef": {"namespace": namespace, "name": claim},
            "hostPath": {"path": str(folder), "type": "Directory"},
        },
    }


def volume_claim(namespace: str, name: str, volume_name: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "accessModes": ["ReadWriteMany"],
            "storageClassName": "",
            "volumeName": volume_name,
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }


def config_map(namespace: str, name: str, **data: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace},
        "data": data,
    }


def graph(namespace: str, name: str = "people", **spec: Any) -> dict[str, Any]:
    """A small graph on the volume: one load from a ConfigMap, no server unless asked for."""
    given: dict[str, Any] = {
        "storage": {"uri": f"file:///graphs/{name}", "volume": {"claimName": "graphs"}},
        "schema": {"inline": SCHEMA},
        "loads": [{"name": "people", "source": {"configMapRef": {"name": "records"}}, "mode": "merge"}],
    }
    return {
        "apiVersion": "omnigraph.io/v1alpha1",
        "kind": "OmniGraph",
        "metadata": {"name": name, "namespace": namespace},
        "spec": given | spec,
    }
