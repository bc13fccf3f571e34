#!/usr/bin/env python3
"""A real one-node Kubernetes for the tests, on any Linux machine.

    cluster.py up [--replace]      start it, or repair it; waits until pods can run (10 seconds)
    cluster.py down                stop it; logs and images stay for the next time
    cluster.py status              processes, memory, nodes and pods; ends with 1 when it is down
    cluster.py load IMAGE.tar …    put images in the node's container store
    cluster.py build               fetch and build the parts without starting anything
    cluster.py env                 print KUBECONFIG and the kubectl to use, for `eval`

Where Docker or Podman answers, kind makes the cluster. Elsewhere (root needed) the control plane, kubelet and DNS are
built once from their Go modules into the user's cache and run as plain processes, with Debian's containerd.
Standard library only.
"""

import argparse
import fcntl
import hashlib
import pathlib
import sys

CHECKOUT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(CHECKOUT))

from hack.cluster import kind, parts  # noqa: E402
from hack.cluster.machine import ClusterError  # noqa: E402
from hack.cluster.node import Node  # noqa: E402

# The name of a Unix socket holds 107 bytes; the longest below the folder is containerd.sock.ttrpc.
LONGEST_DIR = 80


def state_dir(checkout: pathlib.Path) -> pathlib.Path:
    """`.cluster` in the checkout, or a short folder of its own when that path is too long for a Unix socket."""
    inside = checkout / ".cluster"
    if len(str(inside)) <= LONGEST_DIR:
        return inside
    own = hashlib.sha256(str(checkout).encode()).hexdigest()[:8]
    for base in (parts.cache_dir() / "cluster", pathlib.Path("/var/tmp")):
        if len(str(base)) + 15 <= LONGEST_DIR:
            return base / f"state-{own}"
    raise ClusterError(f"no folder with a short enough path for the cluster's state: {inside}; use --dir")


def cluster(directory: pathlib.Path | None = None) -> Node | kind.Kind:
    """The cluster of this checkout, in the form this machine allows."""
    directory = (directory or state_dir(CHECKOUT)).resolve()
    if engine := kind.provider():
        return kind.Kind(directory, engine)
    return Node(directory)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["up", "down", "status", "load", "build", "env"])
    parser.add_argument("images", nargs="*", metavar="IMAGE.tar", type=pathlib.Path)
    parser.add_argument("--dir", type=pathlib.Path, help="state folder (default: .cluster in the checkout)")
    parser.add_argument("--replace", action="store_true", help="bring down another checkout's cluster first")
    options = parser.parse_intermixed_args()
    try:
        target = cluster(options.dir)
        match options.command:
            case "up":
                lock = parts.cache_dir() / "cluster.lock"
                lock.parent.mkdir(parents=True, exist_ok=True)
                with lock.open("w") as held:  # two `up` at once would start everything twice
                    fcntl.flock(held, fcntl.LOCK_EX)
                    target.up(options.replace)
                print(f"export KUBECONFIG={target.kubeconfig}")
            case "down":
                target.down()
            case "status":
                sys.exit(0 if target.status() else 1)
            case "load":
                for image in options.images:
                    target.load(image)
            case "build":
                target.build()
            case "env":
                print(f"export KUBECONFIG={target.kubeconfig}\nexport PATH={target.kubectl().parent}:$PATH")
    except ClusterError as error:
        sys.exit(f"cluster: {error}")


if __name__ == "__main__":
    main()
