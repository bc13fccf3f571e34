"""Small files beside the datasets (schemas, sidecars): whole or not at all."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from io import FileIO
from typing import Protocol

import pyarrow.fs as pafs

from omnigraph.errors import Conflict, Internal, NotFound
from omnigraph.storage.translate import lance_errors
from omnigraph.storage.uri import Root

__all__ = [
    "Files",
    "LocalFiles",
    "RemoteFiles",
    "clear_dead_folders",
    "files_of",
    "opened",
    "sync_directory",
    "unlock",
    "working_folder",
    "write_all",
]


_LOCK = ".lock"

READINGS = 5
"""How often a file of a store is read that is replaced meanwhile."""


class Files(Protocol):
    """Files under a graph's root; every name is relative to it, with `/`."""

    def read(self, name: str) -> bytes: ...
    def write(self, name: str, data: bytes) -> None: ...
    def delete(self, name: str) -> None: ...
    def exists(self, name: str) -> bool: ...
    def list(self, folder: str) -> list[str]: ...
    def copy(self, source: str, target: str) -> None: ...
    def delete_folder(self, name: str) -> None: ...


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
            # Not `mkstemp`: its files are closed to everyone but their owner, whatever the umask says.
            temporary = os.path.join(os.path.dirname(path), f".{os.urandom(8).hex()}.tmp")
            handle = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
            try:
                try:
                    write_all(handle, data)
                    os.fsync(handle)
                finally:
                    os.close(handle)
                os.replace(temporary, path)
            except BaseException:
                os.unlink(temporary)
                raise
            sync_directory(os.path.dirname(path))

    def delete(self, name: str) -> None:
        """Gone for every process at once. After a power failure it may be there again: nothing may depend on that."""
        with lance_errors(f"deleting {self.path(name)}"), contextlib.suppress(FileNotFoundError):
            os.unlink(self.path(name))

    def delete_folder(self, name: str) -> None:
        """Delete a folder and all in it; one that isn't there is gone already."""
        with lance_errors(f"deleting {self.path(name)}"):
            try:
                import shutil

                shutil.rmtree(self.path(name))
            except FileNotFoundError:
                return
            sync_directory(os.path.dirname(self.path(name)))

    def copy(self, source: str, target: str) -> None:
        """The target appears whole or not at all, as young as any new file. Both are never changed afterwards, so that
        they may share blocks."""
        path = self.path(target)
        with lance_errors(f"copying {self.path(source)} to {path}"):
            os.makedirs(os.path.dirname(path), exist_ok=True)
            temporary = os.path.join(os.path.dirname(path), f".{os.urandom(8).hex()}.tmp")
            try:
                try:
                    os.link(self.path(source), temporary)
                except OSError as error:
                    if isinstance(error, FileNotFoundError):
                        raise
                    import shutil

                    shutil.copyfile(self.path(source), temporary)  # the file system has no links
                    handle = os.open(temporary, os.O_RDONLY)
                    try:
                        os.fsync(handle)
                    finally:
                        os.close(handle)
                # A link is as old as the file, and a cleanup takes old files that no version names yet.
                os.utime(temporary)
                os.replace(temporary, path)
            finally:
                if os.path.lexists(temporary):  # a rename onto another link of the same file does nothing
                    os.unlink(temporary)
            sync_directory(os.path.dirname(path))

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
                # A small file is one request then, not the three of an upload in parts. The type stubs are older.
                allow_delayed_open=True,  # type: ignore[call-arg]
            )
            self.prefix = root.uri.removeprefix("s3://")
        else:
            self.fs, self.prefix = pafs.FileSystem.from_uri(root.uri)

    def _path(self, name: str) -> str:
        return f"{self.prefix}/{name}"

    def read(self, name: str) -> bytes:
        """Arrow asks for the size first and then for so many bytes: what is gone by then fails without saying so, and
        what was replaced by something longer or shorter comes cut off, or with bytes behind it that aren't its own."""
        for attempt in range(READINGS):
            try:
                with lance_errors(f"reading {self.root.join(name)}"):
                    with self.fs.open_input_stream(self._path(name)) as file:
                        data = bytes(file.read())
                    if self.fs.get_file_info(self._path(name)).size == len(data):
                        return data
            except Internal:
                if attempt + 1 == READINGS:
                    raise
        raise Internal(f"reading {self.root.join(name)}: it was replaced {READINGS} times meanwhile")

    def write(self, name: str, data: bytes) -> None:
        with lance_errors(f"writing {self.root.join(name)}"), self.fs.open_output_stream(self._path(name)) as file:
            file.write(data)

    def delete(self, name: str) -> None:
        if self.exists(name):
            with (
                contextlib.suppress(NotFound),
                lance_errors(f"deleting {self.root.join(name)}"),
            ):  # another may be quicker
                self.fs.delete_file(self._path(name))

    def copy(self, source: str, target: str) -> None:
        with lance_errors(f"copying {self.root.join(source)} to {self.root.join(target)}"):
            self.fs.copy_file(self._path(source), self._path(target))

    def delete_folder(self, name: str) -> None:
        with lance_errors(f"deleting {self.root.join(name)}"):
            self.fs.delete_dir(self._path(name))

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


@contextmanager
def working_folder(path: str) -> Iterator[None]:
    """A folder of this process's own, empty at first, gone at the end; a lock in it tells that its process lives.

    Raises:
        Conflict: a process that lives is working in it.
    """
    handle = None
    with lance_errors(f"making {path}"):
        while handle is None:
            os.makedirs(path, exist_ok=True)
            handle = _lock_folder(path)
        for name in os.listdir(path):
            if name != _LOCK:
                _remove(os.path.join(path, name))
    try:
        yield
    finally:
        import shutil

        shutil.rmtree(path, ignore_errors=True)
        unlock(handle)


def clear_dead_folders(parent: str) -> None:
    """Remove every working folder below `parent` whose process is dead."""
    with lance_errors(f"tidying {parent}"):
        for name in sorted(os.listdir(parent)) if os.path.isdir(parent) else ():
            try:
                handle = _lock_folder(os.path.join(parent, name))
            except Conflict:
                continue
            if handle is not None:
                _remove(os.path.join(parent, name))
                handle.close()


def _lock_folder(path: str) -> FileIO | None:
    """The lock of a working folder; None where the folder has just gone. Raises Conflict while another holds it."""
    lock = os.path.join(path, _LOCK)
    try:
        handle = opened(lock, os.O_CREAT | os.O_RDWR)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.exists(lock) and os.fstat(handle.fileno()).st_ino == os.stat(lock).st_ino:
            return handle
    except BlockingIOError as error:
        handle.close()
        raise Conflict(
            f"the load that works in {path} is in flight: wait for it", code="operation_in_flight"
        ) from error
    except FileNotFoundError:
        pass
    handle.close()
    return None


def _remove(path: str) -> None:
    if os.path.isdir(path):
        import shutil

        shutil.rmtree(path)
    else:
        os.unlink(path)


def unlock(handle: FileIO) -> None:
    """Let go of a lock and close its file. Closing alone leaves it to a child that was forked while it was held.

    Doing it again does nothing: who is interrupted in it, by Ctrl-C say, can't know how far it came. A file's number
    closed twice would be another's by then.
    """
    try:
        if not handle.closed:
            fcntl.flock(handle, fcntl.LOCK_UN)
    finally:
        handle.close()


def opened(path: str, flags: int) -> FileIO:
    """A file to lock: closed when nobody holds it any more, whatever becomes of the code that should close it."""
    return FileIO(path, "r+", opener=lambda name, _: os.open(name, flags | os.O_CLOEXEC, 0o666))


def write_all(handle: int, data: bytes) -> None:
    """Write every byte: a disk that fills up takes a part first and says so only the next time."""
    left = memoryview(data)
    while left:
        left = left[os.write(handle, left) :]


def sync_directory(path: str) -> None:
    """Make a rename or an unlink in the folder durable."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
