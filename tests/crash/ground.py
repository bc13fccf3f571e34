"""Where the graphs of a crash test lie: in a folder, or in a bucket of an S3 server."""

from __future__ import annotations

import shutil
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from uuid import uuid4

from tests.s3 import S3, moved, names_its_place

__all__ = ["Bucket", "Folder", "Ground"]


class Ground(ABC):
    """Graphs are put on it whole, copied and dropped.

    Args:
        env: what a child needs to reach it.
        tells_the_dead: whether a sweep sees that a writer is dead; else an opening by itself only finishes writes.
        thorough: whether every step is worth a kill each time it comes.
    """

    env: Mapping[str, str] = {}
    tells_the_dead: bool
    thorough: bool

    @abstractmethod
    def new(self) -> str:
        """A root where nothing is yet."""

    @abstractmethod
    def put(self, folder: Path) -> str:
        """A graph without branches that was made in a folder."""

    @abstractmethod
    def copy(self, uri: str) -> str: ...

    @abstractmethod
    def drop(self, uri: str) -> None: ...

    @abstractmethod
    def names(self, uri: str) -> list[str]:
        """Every file below a root."""


class Folder(Ground):
    tells_the_dead = thorough = True

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def new(self) -> str:
        return str(self._folder / uuid4().hex)

    def put(self, folder: Path) -> str:
        to = self.new()
        shutil.copytree(folder, to)
        return to

    def copy(self, uri: str) -> str:
        to = self.new()

        def one(source: str, target: str) -> None:
            if names_its_place(source):
                Path(target).write_bytes(moved(source, Path(source).read_bytes(), uri, to))
            else:
                shutil.copyfile(source, target)

        shutil.copytree(uri, to, copy_function=one)
        return to

    def drop(self, uri: str) -> None:
        shutil.rmtree(uri, ignore_errors=True)

    def names(self, uri: str) -> list[str]:
        return [str(p.relative_to(uri)) for p in Path(uri).rglob("*") if p.is_file()]


class Bucket(Ground):
    tells_the_dead = thorough = False

    def __init__(self, s3: S3) -> None:
        self._s3 = s3
        self.env = s3.env()

    def new(self) -> str:
        return self._s3.uri()

    def put(self, folder: Path) -> str:
        uri = self.new()
        self._s3.upload(folder, uri)
        return uri

    def copy(self, uri: str) -> str:
        to = self.new()
        self._s3.copy(uri, to)
        return to

    def drop(self, uri: str) -> None:
        self._s3.drop(uri)

    def names(self, uri: str) -> list[str]:
        return self._s3.keys(uri)
