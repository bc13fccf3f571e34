"""Small files beside the datasets (schemas, sidecars): whole or not at all."""

from __future__ import annotations

import os
import tempfile
from typing import Protocol

import pyarrow.fs as pafs

from omnigraph.storage.translate import lance_errors
from omnigraph.storage.uri import Root

__all__ = ["Files", "LocalFiles", "RemoteFiles", "files_of", "sync_directory"]


class Files(Protocol):
    """Files under a graph's root; every name is relative to it, with `/`."""

    def read(self, name: str) -> bytes: ...
    def write(self, name: str, data: bytes) -> None: ...
    def delete(self, name: str) -> None: ...
    def exists(self, name: str) -> bool: ...
    def list(self, folder: str) -> list[str]: ...


class LocalFiles:
    """A directory. A write is a temporary file, fsync, rename, fsync of the folder."""

    def __init__(self, root: str) -> None:
        self.root = root

    def path(self, name: str) -> str:
        return os.path.join(self.root, name)

    def read(self, name: str) -> bytes:
        with lance_errors(f"reading {self.path(name)}"), open(self.path(name), "rb") as file:
            return file.read()

    def write(self, name: str, data: bytes) -> None:
        path = self.path(name)
        with lance_errors(f"writing {path}"):
            os.makedirs(os.path.dirname(path), exist_ok=True)
            handle, temporary = tempfile.mkstemp(prefix=".", suffix=".tmp", dir=os.path.dirname(path))
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
                os.replace(temporary, path)
            except BaseException:
                os.unlink(temporary)
                raise
            sync_directory(os.path.dirname(path))

    def delete(self, name: str) -> None:
        with lance_errors(f"deleting {self.path(name)}"):
            try:
                os.unlink(self.path(name))
            except FileNotFoundError:
                return
            sync_directory(os.path.dirname(self.path(name)))

    def exists(self, name: str) -> bool:
        return os.path.exists(self.path(name))

    def list(self, folder: str) -> list[str]:
        """Plain file names in the folder, sorted; hidden ones left out. A folder that isn't there is empty."""
        with lance_errors(f"listing {self.path(folder)}"):
            try:
                return sorted(n for n in os.listdir(self.path(folder)) if not n.startswith("."))
            except FileNotFoundError:
                return []


class RemoteFiles:
    """A prefix of an object store; a put is atomic there."""

    def __init__(self, root: Root) -> None:
        self.root = root
        options = root.options
        if root.uri.startswith("s3://"):
            endpoint = options.get("aws_endpoint")
            scheme, _, host = endpoint.partition("://") if endpoint else ("https", "", "")
            self.fs: pafs.FileSystem = pafs.S3FileSystem(
                access_key=options.get("aws_access_key_id"),
                secret_key=options.get("aws_secret_access_key"),
                session_token=options.get("aws_session_token"),
                region=options.get("aws_region"),
                endpoint_override=host or None,
                scheme="http" if scheme == "http" else "https",
                force_virtual_addressing=options.get("aws_virtual_hosted_style_request") == "true",
            )
            self.prefix = root.uri.removeprefix("s3://")
        else:
            self.fs, self.prefix = pafs.FileSystem.from_uri(root.uri)

    def _path(self, name: str) -> str:
        return f"{self.prefix}/{name}"

    def read(self, name: str) -> bytes:
        with lance_errors(f"reading {self.root.join(name)}"), self.fs.open_input_stream(self._path(name)) as file:
            return bytes(file.read())

    def write(self, name: str, data: bytes) -> None:
        with lance_errors(f"writing {self.root.join(name)}"), self.fs.open_output_stream(self._path(name)) as file:
            file.write(data)

    def delete(self, name: str) -> None:
        if self.exists(name):
            with lance_errors(f"deleting {self.root.join(name)}"):
                self.fs.delete_file(self._path(name))

    def exists(self, name: str) -> bool:
        with lance_errors(f"looking for {self.root.join(name)}"):
            return bool(self.fs.get_file_info(self._path(name)).type == pafs.FileType.File)

    def list(self, folder: str) -> list[str]:
        with lance_errors(f"listing {self.root.join(folder)}"):
            found = self.fs.get_file_info(pafs.FileSelector(self._path(folder), allow_not_found=True))
            return sorted(
                f.base_name for f in found if f.type == pafs.FileType.File and not f.base_name.startswith(".")
            )


def files_of(root: Root) -> Files:
    return LocalFiles(root.uri) if root.is_local else RemoteFiles(root)


def sync_directory(path: str) -> None:
    """Make a rename or an unlink in the folder durable."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
