"""A real single-node Kubernetes as plain processes of this machine: no systemd, no registry, no container runtime
beforehand."""

import contextlib
import os
import pathlib
import shutil
import time
import urllib.request
from collections.abc import Iterator

from hack.cluster import machine, parts
from hack.cluster.certificates import NODE, make_all
from hack.cluster.components import Components
from hack.cluster.machine import ClusterError, quiet, run, step, wait_for

COMPONENTS = (
    "kubelet",
    "kube-proxy",
    "coredns",
    "kube-scheduler",
    "kube-controller-manager",
    "kube-apiserver",
    "etcd",
)  # in the order they are stopped; containerd comes last, after the pods
# What `down` removes from the state folder; log/ and containerd/ (the images) stay.
DATA = ("pki", "etc", "pid", "etcd", "kubelet", "volumeplugins", "volumes", "run", "runc", "ipam", "kubeconfig",
        "pause.tar", "containerd.sock", "containerd.sock.ttrpc")  # fmt: skip


class Node:
    """The cluster whose state is in one folder."""

    def __init__(self, directory: pathlib.Path) -> None:
        self.dir = directory
        self.kubeconfig = directory / "kubeconfig"
        self.components = Components(directory, parts.binary)

    def is_up(self) -> bool:
        marker = machine.marked()
        return marker is not None and marker["dir"] == str(self.dir)

    def build(self) -> None:
        parts.install_packages()
        parts.build()

    def up(self, replace: bool) -> None:
        """Start the cluster, or whatever of it has ended, and wait until a pod could run."""
        if os.geteuid():
            raise ClusterError("a cluster of this machine's own processes needs root (or start Docker, for kind)")
        self.build()
        self._make_way(replace)
        start = time.monotonic()
        parts_, processes = self.components, self.components.processes
        for folder in (parts_.pki, parts_.etc, processes.pids, parts_.log, self.dir / "volumes"):
            folder.mkdir(parents=True, exist_ok=True)
        parts_.pki.chmod(0o700)
        (self.dir / "volumes").chmod(0o777)
        with step("certificates, kubeconfigs"):
            make_all(parts_.pki, parts_.etc, self.kubeconfig)
        with step("network"):
            machine.network_up()
        with step("etcd, containerd, pause image"):
            parts_.etcd()
            parts_.containerd()
        with step("kube-apiserver ready"):
            parts_.apiserver()
        with step("other components started"):
            parts_.controllers()
            parts_.kubelet()
            parts_.kube_proxy()
            parts_.coredns(self.kubeconfig)
        kubectl = parts.binary("kubectl"), "--kubeconfig", self.kubeconfig
        with step("node Ready"):
            ready = ("wait", f"node/{NODE}", "--for=condition=Ready", "--timeout=10s")
            processes.wait("kubelet", lambda: quiet(*kubectl, *ready))
        with step("CoreDNS, default ServiceAccount"):
            opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
            processes.wait("coredns", lambda: opener.open("http://127.0.0.1:8181/ready", timeout=5).status == 200)
            account = ("get", "serviceaccount", "default")
            processes.wait("kube-controller-manager", lambda: quiet(*kubectl, *account))
            for name in ("kube-scheduler", "kube-proxy"):
                processes.wait(name)
        print(f"{'total':<32}{time.monotonic() - start:6.1f} s")

    def _make_way(self, replace: bool) -> None:
        """One cluster a machine: settle what another folder's cluster, or an earlier boot's, has left."""
        marker = machine.marked()
        if marker is not None and marker["dir"] == str(self.dir):
            return
        if marker is not None:
            other = Node(pathlib.Path(marker["dir"]))
            if not replace:
                raise ClusterError(
                    f"the cluster of {other.dir} is up on this machine, which holds one at a time: "
                    "bring it down there, or use `up --replace`"
                )
            print(f"bringing down the cluster of {other.dir} first", flush=True)
            other.down()
        elif quiet("ip", "link", "show", machine.LINK):
            raise ClusterError(f"the link {machine.LINK} exists but no cluster of ours is known: ip link delete it")
        self._forget()
        shutil.rmtree(self.components.log, ignore_errors=True)
        machine.mark(self.dir)

    def down(self) -> None:
        """Stop every process and give the machine back as it was; images and logs stay for the next `up`."""
        marker = machine.marked()
        if marker is None or marker["dir"] != str(self.dir):
            print(f"no cluster is up in {self.dir}")
            return
        start = time.monotonic()
        processes = self.components.processes
        for name in COMPONENTS:
            processes.kill(name)
        wait_for("pods to end", lambda: not machine.kill_all(machine.cgroup_pids("kubepods")), 30)
        if processes.pid("containerd"):
            wait_for("containerd to notice", lambda: not self.components.ctr("tasks", "ls", "-q").split(), 30)
            if containers := self.components.ctr("containers", "ls", "-q").split():
                self.components.ctr("containers", "rm", *containers)
            processes.kill("containerd")
        else:  # its containers can't be removed, so the image store goes too
            shutil.rmtree(self.dir / "containerd", ignore_errors=True)
        wait_for("everything to end", lambda: not machine.kill_all(machine.cgroup_pids()), 30)
        machine.give_back(self.dir, marker["sysctls"])
        self._forget()
        machine.MARKER.unlink()
        print(f"down in {time.monotonic() - start:.1f} s; images and logs are kept in {self.dir}")

    def _forget(self) -> None:
        for name in DATA:
            path = self.dir / name
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)

    def load(self, tar: pathlib.Path) -> None:
        """Put an OCI image tar into the node's containerd; layers it has already may be missing from the tar."""
        self._require_up()
        self.components.ctr("images", "import", "--digests=false", tar)

    def layers(self) -> set[str]:
        """Digests of the blobs the node has."""
        return set(self.components.ctr("content", "ls", "-q").split()) if self.is_up() else set()

    def status(self) -> bool:
        """Print processes, memory, nodes and pods; returns whether the cluster is up."""
        if not self.is_up():
            marker = machine.marked()
            print(f"no cluster is up in {self.dir}" + (f"; one is up in {marker['dir']}" if marker else ""))
            return False
        total = 0.0
        for name in (*COMPONENTS, "containerd"):
            pid = self.components.processes.pid(name)
            megabytes = machine.rss_mb(pid) if pid else 0
            total += megabytes
            print(f"{name:<26}{f'pid {pid}' if pid else 'not running':<14}{megabytes:6.0f} MB")
        shims = list(self._shims())
        megabytes = sum(map(machine.rss_mb, shims))
        print(f"{'containerd shims':<26}{len(shims):<14}{megabytes:6.0f} MB\n{'total':<40}{total + megabytes:6.0f} MB")
        if self.components.processes.pid("kube-apiserver"):
            run(parts.binary("kubectl"), "--kubeconfig", self.kubeconfig, "get", "nodes,pods", "--all-namespaces",
                "-o", "wide")  # fmt: skip
        return True

    def kubectl(self) -> pathlib.Path:
        return parts.binary("kubectl")

    def _require_up(self) -> None:
        if not self.is_up():
            raise ClusterError(f"no cluster is up in {self.dir}: cluster.py up")

    def _shims(self) -> Iterator[int]:
        for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                arguments = path.read_bytes().split(b"\0")
                ours = str(self.components.socket).encode() in arguments
                if ours and arguments[0].endswith(b"containerd-shim-runc-v2"):
                    yield int(path.parent.name)
