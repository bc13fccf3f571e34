"""The state folder of `omnigraph up`: what the API server is on a cluster. Every file appears whole or not at all.

objects/<namespace>/<kind>/<name>/   object.json  status.yaml  lease.json  ensured.json
workloads/<name>/                    command.json  log  exit.json  result.json  ready.json  inputs/
stopped/<name>/                      the same, of workloads that were stopped on purpose
up.lock                              held by the living `up`, with its process id
"""

from __future__ import annotations

import fcntl
import json
import os
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from omnigraph.yaml_text import NotYaml, read_yaml
from omnigraph_operator.platform.errors import PlatformError

__all__ = ["State", "lock_file", "read_json", "write_atomically", "write_json"]


def write_atomically(path: Path, text: str, *, mode: int = 0o644) -> None:
    """Write a file through a neighbour and a rename, so that no reader and no crash sees half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    neighbour = path.with_name(f".{path.name}.{os.getpid()}.{uuid.uuid4().hex[:6]}")
    with open(neighbour, "w", encoding="utf-8", opener=lambda p, f: os.open(p, f, mode)) as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    neighbour.replace(path)


def write_json(path: Path, value: Any) -> None:
    """`write_atomically` of a value as JSON."""
    write_atomically(path, json.dumps(value, indent=1, ensure_ascii=False) + "\n")


def read_json(path: Path) -> Any:
    """The value in a JSON file, None when there is none.

    Raises:
        PlatformError: the file holds something else; somebody edited it.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except NotADirectoryError:
        return None
    except (ValueError, RecursionError) as error:
        raise PlatformError(f"{path}: not JSON ({error}); remove the file or restore it") from error


def lock_file(path: Path) -> int | None:
    """An exclusive lock on a file as an open descriptor, None when another process holds it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


class State:
    """One state folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        self._lock: int | None = None

    # -- who may use it

    def acquire(self) -> None:
        """Be the only `up` on this folder until the process ends.

        Raises:
            PlatformError: another one lives; its process id is named.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        self._lock = lock_file(self.folder / "up.lock")
        if self._lock is None:
            raise PlatformError(
                f"{self.folder}: another `omnigraph up`{self.holder()} works on this state folder; "
                "stop it, or give this one its own with --state",
                permanent=True,
            )
        os.ftruncate(self._lock, 0)
        os.pwrite(self._lock, f"{os.getpid()}\n".encode(), 0)

    def holder(self) -> str:
        """Who holds the folder, as a part of a message."""
        try:
            return f" (process {(self.folder / 'up.lock').read_text(encoding='utf-8').strip()})"
        except OSError:
            return ""

    def release(self) -> None:
        """Let others have the folder."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    # -- objects

    def object_folder(self, namespace: str, kind: str, name: str) -> Path:
        return self.folder / "objects" / namespace / kind / name

    def folder_of(self, obj: Mapping[str, Any]) -> Path:
        meta = obj["metadata"]
        return self.object_folder(meta.get("namespace", "default"), obj["kind"], meta["name"])

    def stored(self, kind: str | None = None) -> list[dict[str, Any]]:
        """Every stored object of a kind (any without), as it was accepted last."""
        paths = sorted((self.folder / "objects").glob(f"*/{kind or '*'}/*/object.json"))
        return [value for path in paths if (value := read_json(path)) is not None]

    def status(self, obj: Mapping[str, Any]) -> dict[str, Any]:
        """The stored status, {} when there is none."""
        path = self.folder_of(obj) / "status.yaml"
        try:
            text = path.read_text(encoding="utf-8")
            return dict(read_yaml(text, str(path)) or {})
        except FileNotFoundError:
            return {}
        except (NotYaml, ValueError, TypeError) as error:
            raise PlatformError(f"{path}: not a status ({error})") from error

    def write_status(self, obj: Mapping[str, Any], status: Mapping[str, Any]) -> None:
        # A message may quote a file's name that isn't UTF-8, and then says ? there.
        plain = json.loads(json.dumps(status, ensure_ascii=False).encode("utf-8", "replace"))
        text = yaml.safe_dump(plain, sort_keys=False, allow_unicode=True, width=110)
        write_atomically(self.folder_of(obj) / "status.yaml", text)

    # -- workloads

    def workload_folder(self, name: str) -> Path:
        return self.folder / "workloads" / name
