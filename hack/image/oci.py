"""Container images without a registry or an image builder: layer tars in, an OCI layout tar out."""

import hashlib
import io
import json
import os
import pathlib
import subprocess
import tarfile
import tempfile
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

PAUSE_NAME = "localhost/pause:1"
PAUSE_C = r"""
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
static void stop(int s) { _exit(0); }
static void reap(int s) { while (waitpid(-1, NULL, WNOHANG) > 0); }
int main(void) {
  signal(SIGINT, stop); signal(SIGTERM, stop); signal(SIGCHLD, reap);
  for (;;) pause();
}
"""


@dataclass(frozen=True)
class Image:
    """What a container starts from.

    Attributes:
        name: Full reference, for example ``localhost/omnigraph:dev``.
        layers: Uncompressed layer tars, lowest first.
        env: ``NAME=value`` entries.
    """

    name: str
    layers: Sequence[pathlib.Path]
    entrypoint: Sequence[str] = ()
    command: Sequence[str] = ()
    env: Sequence[str] = ()
    workdir: str = "/"
    user: str = ""
    labels: dict[str, str] = field(default_factory=dict)


def sha256(path: pathlib.Path) -> str:
    """Hex digest of a file, remembered beside it as ``NAME.sha256`` for as long as it is the same file."""
    memo = path.with_name(path.name + ".sha256")
    status = path.stat()
    same = f"{status.st_ino} {status.st_size} {status.st_mtime_ns} "
    if memo.exists() and (known := memo.read_text()).startswith(same):
        return known.removeprefix(same)
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    memo.write_text(same + digest)
    return digest


def machine() -> str:
    """This machine's processor as OCI and Go name it."""
    return {"x86_64": "amd64", "aarch64": "arm64"}[os.uname().machine]


def write_image(out: pathlib.Path, image: Image, present: Collection[str] = ()) -> list[str]:
    """Write an OCI layout tar.

    Args:
        out: The tar to write.
        image: What goes in.
        present: ``sha256:…`` digests the receiver has already; those layers are left out of the tar.

    Returns:
        The digests of the layers that are in the tar.
    """
    digests = [sha256(layer) for layer in image.layers]
    config = json.dumps(
        {
            "architecture": machine(),
            "os": "linux",
            "config": {
                "Entrypoint": list(image.entrypoint),
                "Cmd": list(image.command),
                "WorkingDir": image.workdir,
                "User": image.user,
                "Env": list(image.env),
                "Labels": image.labels,
            },
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}" for digest in digests]},
        }
    ).encode()
    blobs: dict[str, bytes] = {}

    def blob(kind: str, data: bytes) -> dict[str, object]:
        digest = hashlib.sha256(data).hexdigest()
        blobs[digest] = data
        return {
            "mediaType": f"application/vnd.oci.image.{kind}.v1+json",
            "digest": f"sha256:{digest}",
            "size": len(data),
        }

    manifest = json.dumps(
        {
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": blob("config", config),
            "layers": [
                {
                    "mediaType": "application/vnd.oci.image.layer.v1.tar",
                    "digest": f"sha256:{digest}",
                    "size": layer.stat().st_size,
                }
                for digest, layer in zip(digests, image.layers, strict=True)
            ],
        }
    ).encode()
    # containerd names the image from the first annotation, other tools read the second.
    annotations = {
        "io.containerd.image.name": image.name,
        "org.opencontainers.image.ref.name": image.name.rpartition(":")[2],
    }
    index = json.dumps({"schemaVersion": 2, "manifests": [{**blob("manifest", manifest), "annotations": annotations}]})
    written: list[str] = []
    with tarfile.open(out, "w") as tar:

        def add(path: str, data: bytes) -> None:
            info = tarfile.TarInfo(path)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))

        add("oci-layout", b'{"imageLayoutVersion":"1.0.0"}')
        add("index.json", index.encode())
        for digest, data in blobs.items():
            add(f"blobs/sha256/{digest}", data)
        for digest, layer in zip(digests, image.layers, strict=True):
            if f"sha256:{digest}" not in present and f"sha256:{digest}" not in written:
                tar.add(layer, f"blobs/sha256/{digest}")
                written.append(f"sha256:{digest}")
    return written


def tar_dir(
    directory: pathlib.Path, out: pathlib.Path, names: Sequence[str] = (".",), exclude: Sequence[str] = ()
) -> None:
    """A reproducible layer tar of a directory (GNU tar keeps hard links, modes and extended attributes)."""
    partial = out.with_name(out.name + ".partial")
    subprocess.run(
        ["tar", "--sort=name", "--mtime=@0", "--numeric-owner", "--xattrs"]
        + [f"--exclude={pattern}" for pattern in exclude]
        + ["-C", str(directory), "-cf", str(partial), *names],
        check=True,
    )
    partial.rename(out)


def write_pause(out: pathlib.Path) -> None:
    """The image of the pod sandbox, compiled here: a process that sleeps and reaps."""
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder, "root")
        root.mkdir()
        subprocess.run(
            ["gcc", "-static", "-Os", "-s", "-x", "c", "-", "-o", str(root / "pause")],
            input=PAUSE_C.encode(),
            check=True,
        )
        layer = pathlib.Path(folder, "layer.tar")
        tar_dir(root, layer)
        write_image(out, Image(PAUSE_NAME, [layer], entrypoint=["/pause"]))
