"""What the cluster asks of the machine: processes with their own cgroup, a link, sysctls, names in /run."""

import contextlib
import functools
import json
import os
import pathlib
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from typing import IO, Any

NODE_IP = "10.245.0.1"  # on a link of our own, so that nothing depends on the machine's network
POD_CIDR = "10.244.0.0/24"
LINK = "kube0"  # holds NODE_IP (a bridge without ports stands in for a dummy interface)
CGROUP = "kube0"  # our processes are in kube0/system, the pods in kube0/kubepods
TABLES = [("ip", "kube0"), ("ip", "kube-proxy"), ("ip6", "kube-proxy")]
# Settings of the machine that pods need (or that kubelet would change); `down` puts them back.
SYSCTLS = {
    "net/ipv4/ip_forward": "1",
    "fs/inotify/max_user_instances": "1024",
    "vm/overcommit_memory": "1",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
}
MARKER = pathlib.Path("/run/omnigraph-cluster.json")  # which folder's cluster is up on this machine


class ClusterError(Exception):
    """The cluster can't be brought where it should be; the message says what to do."""


def run(*command: object, **options: Any) -> "subprocess.CompletedProcess[str]":
    """Run a command; its failure is a ClusterError with the end of what it wrote."""
    try:
        return subprocess.run([str(part) for part in command], check=True, text=True, **options)
    except subprocess.CalledProcessError as error:
        written = (error.stderr or error.stdout or "").strip()
        raise ClusterError(f"{' '.join(map(str, command[:3]))} ended with {error.returncode}\n{written}") from error


def quiet(*command: object) -> bool:
    """Whether the command succeeds; nothing is shown."""
    return subprocess.run([str(part) for part in command], capture_output=True, check=False).returncode == 0


def wait_for(what: str, check: Callable[[], object], timeout: float = 90) -> None:
    """Call `check` until it is true; the last error it raised explains a time-out."""
    deadline = time.monotonic() + timeout
    while True:
        problem: object = "not yet"
        try:
            if check():
                return
        except (OSError, subprocess.SubprocessError) as error:
            problem = error
        if time.monotonic() > deadline:
            raise ClusterError(f"{what}: {problem} after {timeout} s")
        time.sleep(0.1)


@contextlib.contextmanager
def step(name: str) -> Iterator[None]:
    """Print a line with the time the block took."""
    start = time.monotonic()
    yield
    print(f"{name:<32}{time.monotonic() - start:6.1f} s", flush=True)


# ---- which cluster is up ----


def marked() -> dict[str, Any] | None:
    """The marker of the cluster that is up: its folder and the sysctls as they were before."""
    with contextlib.suppress(FileNotFoundError, json.JSONDecodeError):
        marker: dict[str, Any] = json.loads(MARKER.read_text())
        return marker
    return None


def mark(directory: pathlib.Path) -> None:
    sysctls = {name: pathlib.Path("/proc/sys", name).read_text().strip() for name in SYSCTLS}
    partial = MARKER.with_suffix(".partial")
    partial.write_text(json.dumps({"dir": str(directory), "sysctls": sysctls}))
    partial.rename(MARKER)


# ---- processes ----


def start_time(pid: int) -> str | None:
    """Field 22 of /proc/PID/stat: tells a process from a later one with the same number."""
    try:
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] == "Z" else fields[19]


class Processes:
    """The components as processes: one file with pid and start time, and one log, for each name."""

    def __init__(self, pids: pathlib.Path, logs: pathlib.Path, workdir: pathlib.Path) -> None:
        self.pids, self.logs, self.workdir = pids, logs, workdir

    def pid(self, name: str) -> int | None:
        """The number of a component's process, or None when that process is gone."""
        try:
            pid, started = (self.pids / name).read_text().split()
        except (FileNotFoundError, ValueError):
            return None
        return int(pid) if start_time(int(pid)) == started else None

    def start(self, name: str, *command: object) -> None:
        if self.pid(name):
            return
        with (self.logs / f"{name}.log").open("ab") as log:
            process = _spawn([str(part) for part in command], log, self.workdir)
        (self.pids / name).write_text(f"{process.pid} {start_time(process.pid)}")

    def wait(self, name: str, check: Callable[[], object] = lambda: True, timeout: float = 90) -> None:
        """Wait until a component is ready; when it ends or takes too long, show the end of its log."""

        def alive_and_ready() -> object:
            if not self.pid(name):
                raise ClusterError(f"{name} has stopped")
            return check()

        try:
            wait_for(name, alive_and_ready, timeout)
        except ClusterError as error:
            path = self.logs / f"{name}.log"
            tail = path.read_text(errors="replace").splitlines()[-15:]
            raise ClusterError("\n".join([*tail, f"{error} (log: {path})"])) from error

    def kill(self, name: str) -> None:
        """SIGKILL: the data is thrown away afterwards, so an orderly end gains nothing."""
        if pid := self.pid(name):
            os.kill(pid, signal.SIGKILL)
            wait_for(f"end of {name}", lambda: not self.pid(name), 30)
        (self.pids / name).unlink(missing_ok=True)


def _spawn(command: list[str], log: IO[bytes], workdir: pathlib.Path) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        cwd=workdir,
        start_new_session=True,
        preexec_fn=_enter_cgroup,
    )


def rss_mb(pid: int) -> float:
    """Resident memory in MB, private and shared pages."""
    with contextlib.suppress(FileNotFoundError):
        for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmRSS"):
                return int(line.split()[1]) / 1024
    return 0


# ---- cgroups ----


def _cgroup_mounts() -> list[str]:
    """Where the hierarchies are: one for each controller (v1), one for all (v2), or both."""
    lines = [line.split() for line in pathlib.Path("/proc/mounts").read_text().splitlines()]
    return [fields[1] for fields in lines if fields[2] in ("cgroup", "cgroup2")]


def _enter_cgroup() -> None:
    """In the child: leave the caller's cgroups for our own.

    kubelet wants to be in the same cgroup in every hierarchy, and the cluster must not count for, or end with, the
    session that started it.
    """
    for root in _cgroup_mounts():
        for folder in (f"{root}/{CGROUP}", f"{root}/{CGROUP}/system"):
            pathlib.Path(folder).mkdir(parents=True, exist_ok=True)
            for name in ("cpuset.cpus", "cpuset.mems"):
                mine, parent = pathlib.Path(folder, name), pathlib.Path(root, name)
                if parent.exists() and not mine.read_text().strip():
                    mine.write_text(parent.read_text())
        pathlib.Path(root, CGROUP, "system", "cgroup.procs").write_text(str(os.getpid()))


def cgroup_dirs(below: str = "") -> Iterator[str]:
    """Our cgroups, the innermost first."""
    for root in _cgroup_mounts():
        for folder, _, _ in os.walk(f"{root}/{CGROUP}/{below}".rstrip("/"), topdown=False):
            yield folder


def cgroup_pids(below: str = "") -> set[int]:
    pids: set[int] = set()
    for folder in cgroup_dirs(below):
        with contextlib.suppress(FileNotFoundError):
            pids.update(map(int, pathlib.Path(folder, "cgroup.procs").read_text().split()))
    return pids


def kill_all(pids: Iterable[int]) -> int:
    """SIGKILL to all; returns how many were still there."""
    count = 0
    for pid in list(pids):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            count += 1
    return count


# ---- network and mounts ----


def network_up() -> None:
    """Our link with NODE_IP, forwarding, and one nft table that masquerades what pods send out."""
    for name, value in SYSCTLS.items():
        path = pathlib.Path("/proc/sys", name)
        if name != "fs/inotify/max_user_instances" or int(path.read_text()) < int(value):
            path.write_text(value)
    if not quiet("ip", "link", "show", LINK):
        run("ip", "link", "add", LINK, "type", "bridge")
    run("ip", "addr", "replace", f"{NODE_IP}/32", "dev", LINK)
    run("ip", "link", "set", LINK, "up")
    run(
        "nft",
        "-f",
        "-",
        input=f"""
        table ip kube0 {{}}
        delete table ip kube0
        table ip kube0 {{
            chain postrouting {{
                type nat hook postrouting priority srcnat;
                ip saddr {POD_CIDR} ip daddr != {{ {POD_CIDR}, {NODE_IP} }} masquerade
            }}
        }}""",
    )


def _removed(folder: str) -> bool:
    os.rmdir(folder)  # refused as long as a process is still ending in it
    return True


def give_back(directory: pathlib.Path, sysctls: dict[str, str]) -> None:
    """Take away mounts, cgroups, nft tables and the link, and put the sysctls back."""
    mounts = [line.split()[1] for line in pathlib.Path("/proc/mounts").read_text().splitlines()]
    for mount in reversed([mount for mount in mounts if mount.startswith(f"{directory}/")]):
        run("umount", "--lazy", mount)
    for folder in list(cgroup_dirs()):
        wait_for(f"removal of {folder}", functools.partial(_removed, folder), 10)
    for family, table in TABLES:
        quiet("nft", "delete", "table", family, table)
    quiet("ip", "link", "delete", LINK)
    for name, value in sysctls.items():
        pathlib.Path("/proc/sys", name).write_text(value)
    for link in pathlib.Path("/var/log/containers").glob("*"):
        if link.is_symlink() and str(link.readlink()).startswith(f"{directory}/"):
            link.unlink()
