"""The test cluster for tests, as `CLUSTER` says: `auto` uses one that is up, `require` brings it up, `off` skips."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hack.cluster.cluster import cluster
from tests.cluster.support import CHECKOUT, Journal, Kube, OperatorProcess, volume, volume_claim


@pytest.fixture(scope="session")
def kube() -> Kube:
    """kubectl on the test cluster, with the current CRDs installed."""
    wish = os.environ.get("CLUSTER", "auto")
    if wish not in ("auto", "require", "off"):
        pytest.fail(f"CLUSTER={wish}: auto, require or off")
    if wish == "off":
        pytest.skip("CLUSTER=off")
    node = cluster()
    if wish == "require":
        # Also repairs one whose processes were killed, and takes the machine over from another checkout.
        command = [sys.executable, str(CHECKOUT / "hack/cluster/cluster.py"), "up", "--replace"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.fail(f"CLUSTER=require, and the cluster can't be brought up:\n{done.stdout}{done.stderr}")
    elif not node.is_up():
        pytest.skip("no cluster is up (make cluster-up)")
    out = Kube(node.kubectl(), node.kubeconfig)
    out.run("apply", "--server-side", "--force-conflicts", "-f", str(CHECKOUT / "crds"))
    out.run("wait", "--for=condition=Established", "crd/omnigraphs.omnigraph.io", "--timeout=30s")
    return out


@pytest.fixture(scope="session")
def image(kube: Kube) -> str:
    """The image of the code as it is, in the cluster."""
    command = [sys.executable, "-m", "hack.image", "--load"]
    done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.fail(f"the image can't be built:\n{done.stdout}{done.stderr}")
    return "localhost/omnigraph:dev"


@pytest.fixture
def namespace(kube: Kube) -> Iterator[str]:
    """A namespace of its own, with a volume `graphs` for the graph and its sources."""
    name = f"test-{uuid.uuid4().hex[:8]}"
    kube.run("create", "namespace", name)
    folder = cluster().dir / "volumes" / name
    (folder / "incoming").mkdir(parents=True)
    for path in (folder, folder / "incoming"):
        path.chmod(0o777)  # the pods' user isn't ours
    kube.apply(volume(name, name, "graphs", folder), volume_claim(name, "graphs", name))
    kube.folders[name] = folder
    yield name
    kube.run("delete", "omnigraphs", "--all", "-n", name, "--wait=false")
    for graph in kube.items(name, "omnigraphs"):  # an operator that is gone by now can't take its finalizer off
        kube.patch(name, "omnigraph", graph["metadata"]["name"], {"metadata": {"finalizers": []}})
    kube.run("delete", "namespace", name, "--wait=false")
    kube.run("delete", "persistentvolume", "-l", f"test-namespace={name}", "--wait=false")
    shutil.rmtree(folder, ignore_errors=True)  # pods on their way out may still write


@pytest.fixture
def journal(kube: Kube, namespace: str) -> Iterator[Journal]:
    """Everything that happened to Jobs and Deployments of the namespace, in order."""
    out = Journal(kube, namespace)
    out.start()
    yield out
    out.stop()


@pytest.fixture
def start_operator(kube: Kube, namespace: str, tmp_path: Path) -> Iterator[Callable[[], OperatorProcess]]:
    """Starts the operator as a process of this machine, for the test's namespace; any number of times."""
    started: list[OperatorProcess] = []
    lock = threading.Lock()

    def start() -> OperatorProcess:
        with lock:
            process = OperatorProcess(kube, namespace, tmp_path / f"operator-{len(started)}.log")
            started.append(process)
        return process

    yield start
    for process in started:
        process.stop()
        sys.stdout.write(f"--- operator log\n{process.log.read_text()[-6000:]}\n")


@pytest.fixture
def operator(start_operator: Callable[[], OperatorProcess]) -> OperatorProcess:
    """One operator process."""
    return start_operator()
