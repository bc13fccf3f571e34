"""Where the cluster's parts come from: binaries built from Go modules into a cache, the rest from Debian packages."""

import hashlib
import os
import pathlib
import shutil
import subprocess
import time

from hack.cluster.machine import ClusterError, run

BUILD = pathlib.Path(__file__).resolve().parent / "build"
KUBERNETES_VERSION = "v1.35.4"
# binary: (module folder below build/, package to build)
BINARIES = {
    **{
        name: ("kube", f"k8s.io/kubernetes/cmd/{name}")
        for name in (
            "kube-apiserver",
            "kube-controller-manager",
            "kube-scheduler",
            "kubelet",
            "kube-proxy",
            "kubectl",
        )
    },
    "etcd": ("kube", "go.etcd.io/etcd/server/v3"),
    "coredns": ("coredns", "."),
}
# command or file that must be there: Debian package that brings it
PACKAGES = {
    "containerd": "containerd",
    "ctr": "containerd",
    "runc": "runc",
    "/usr/lib/cni/ptp": "containernetworking-plugins",
    "nft": "nftables",
    "ip": "iproute2",
    "openssl": "openssl",
    "debootstrap": "debootstrap",
    "gcc": "gcc",
    "/usr/include/stdlib.h": "libc6-dev",
}


def cache_dir() -> pathlib.Path:
    """The project's folder in the user's cache (XDG_CACHE_HOME, else ~/.cache)."""
    base = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(base, "omnigraph")


def module_dir(module: str) -> pathlib.Path:
    """Where a module's binaries are kept: a change of its go.mod, go.sum or Go files means another folder."""
    digest = hashlib.sha256(f"{KUBERNETES_VERSION} {os.uname().machine}".encode())
    for path in sorted((BUILD / module).iterdir()):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return cache_dir() / "cluster" / f"{module}-{digest.hexdigest()[:12]}"


def binary(name: str) -> pathlib.Path:
    """Path of a built binary; building comes first (`build`)."""
    return module_dir(BINARIES[name][0]) / name


def missing() -> list[str]:
    return [name for name in BINARIES if not binary(name).exists()]


def build() -> None:
    """Build what is missing: about eight minutes on two cores the first time, nothing after that."""
    names = missing()
    if not names:
        return
    go = shutil.which("go") or shutil.which("go", path="/usr/local/go/bin:/usr/lib/go/bin")
    if not go:
        raise ClusterError(
            f"{', '.join(names)} must be built and there is no Go here: install Go 1.25 or later "
            "(it fetches the newer toolchain the modules ask for), or start Docker so that kind can be used"
        )
    print(f"building {', '.join(names)} from Go modules, once for this machine; about a minute each", flush=True)
    for name in names:
        module, package = BINARIES[name]
        target, start = binary(name), time.monotonic()
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = target.with_name(f".{name}.partial")
        flags = "-s -w"
        if package.startswith("k8s.io/"):
            flags += f" -X k8s.io/component-base/version.gitVersion={KUBERNETES_VERSION}"
        run(go, "build", "-trimpath", "-ldflags", flags, "-o", partial, package, cwd=BUILD / module,
            env={**os.environ, "CGO_ENABLED": "0"})  # fmt: skip
        partial.rename(target)
        print(f"{name:<32}{time.monotonic() - start:6.1f} s", flush=True)


def install_packages() -> None:
    """Install the Debian packages whose commands are not there; needs root and apt."""
    names = sorted({package for path, package in PACKAGES.items() if not _there(path)})
    if not names:
        return
    command = f"apt-get install --no-install-recommends {' '.join(names)}"
    if os.geteuid() or not shutil.which("apt-get"):
        raise ClusterError(f"the cluster needs packages that are not installed; as root: {command}")
    print(f"installing what the cluster needs: {command}", flush=True)
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    install = ["apt-get", "install", "--yes", "--quiet", "--no-install-recommends", *names]
    if subprocess.run(install, env=environment, stdout=subprocess.DEVNULL, check=False).returncode:
        run("apt-get", "update", "--quiet", env=environment, stdout=subprocess.DEVNULL)
        run(*install, env=environment, stdout=subprocess.DEVNULL)


def _there(path: str) -> bool:
    return os.path.exists(path) if path.startswith("/") else shutil.which(path) is not None
