"""The same commands with kind, where Docker or Podman runs."""

import json
import os
import pathlib
import shutil
import subprocess

from hack.cluster.machine import ClusterError, quiet, run
from hack.cluster.parts import cache_dir

NAME = "omnigraph"
KIND_MODULE = "sigs.k8s.io/kind@v0.33.0"


def provider() -> str | None:
    """The container engine that answers, if one does; a client without its daemon doesn't count."""
    for engine in ("docker", "podman"):
        if shutil.which(engine) and quiet(engine, "info"):
            return engine
    return None


class Kind:
    """A cluster in containers of Docker or Podman; its kubeconfig is where the other form has its own."""

    def __init__(self, directory: pathlib.Path, engine: str) -> None:
        self.dir = directory
        self.kubeconfig = directory / "kubeconfig"
        self.engine = engine
        self.environment = {**os.environ, "KIND_EXPERIMENTAL_PROVIDER": engine}

    def _kind(self) -> str:
        built = cache_dir() / "cluster" / "kind" / "kind"
        if found := shutil.which("kind"):
            return found
        if not built.exists():
            if not shutil.which("go"):
                raise ClusterError(f"{self.engine} runs here but kind is not installed, and there is no Go to build it")
            print(f"building {KIND_MODULE}", flush=True)
            run("go", "install", KIND_MODULE, env={**os.environ, "GOBIN": str(built.parent), "CGO_ENABLED": "0"})
        return str(built)

    def build(self) -> None:
        self._kind()

    def is_up(self) -> bool:
        listed = subprocess.run(
            [self._kind(), "get", "clusters"], env=self.environment, capture_output=True, text=True, check=False
        )
        return NAME in listed.stdout.split()

    def up(self, replace: bool) -> None:
        self.dir.mkdir(parents=True, exist_ok=True)
        volumes = self.dir / "volumes"
        volumes.mkdir(exist_ok=True)
        volumes.chmod(0o777)
        if self.is_up() and not replace:
            run(self._kind(), "export", "kubeconfig", "--name", NAME, "--kubeconfig", self.kubeconfig,
                env=self.environment)  # fmt: skip
            return
        self.down()
        mount = {"hostPath": str(volumes), "containerPath": str(volumes)}
        config = {
            "kind": "Cluster",
            "apiVersion": "kind.x-k8s.io/v1alpha4",
            "nodes": [{"role": "control-plane", "extraMounts": [mount]}],
        }
        run(self._kind(), "create", "cluster", "--name", NAME, "--kubeconfig", self.kubeconfig, "--wait", "120s",
            "--config", "-", input=json.dumps(config), env=self.environment)  # fmt: skip

    def down(self) -> None:
        if self.is_up():
            run(self._kind(), "delete", "cluster", "--name", NAME, env=self.environment)
        self.kubeconfig.unlink(missing_ok=True)

    def load(self, tar: pathlib.Path) -> None:
        run(self._kind(), "load", "image-archive", tar, "--name", NAME, env=self.environment)

    def layers(self) -> set[str]:
        """Unknown: every image is loaded whole."""
        return set()

    def kubectl(self) -> pathlib.Path:
        if found := shutil.which("kubectl"):
            return pathlib.Path(found)
        raise ClusterError("kind is used here, and kubectl is not installed")

    def status(self) -> bool:
        if not self.is_up():
            print(f"kind has no cluster {NAME}")
            return False
        run(self.kubectl(), "--kubeconfig", self.kubeconfig, "get", "nodes,pods", "--all-namespaces", "-o", "wide")
        return True
