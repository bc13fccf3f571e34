"""Where the files of a load lie: folders of this machine and object stores, by path, URI or pattern."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.fs as pafs

from omnigraph.errors import BadRequest
from omnigraph.records import dataclass

__all__ = ["Found", "file_system", "find", "is_folder", "missing"]

T = TypeVar("T")

_WILD = re.compile(r"[*?[]")
_REFUSALS = (OSError, pa.ArrowException, ValueError)  # what Arrow raises of addresses and stores


@dataclass(frozen=True, slots=True)
class Found:
    """A file that is there: its path or URI, and its size in bytes."""

    path: str
    size: int


def find(pattern: str) -> list[Found]:
    """The file of this name, or all files that a pattern means, in the order of their names.

    `*`, `?` and `[…]` stand for characters of one name but `/` and a leading dot, `**` for any folders in between.

    Raises:
        BadRequest: there is none, or the store doesn't show it.
    """
    if "://" in pattern:
        return _find_objects(pattern)
    if os.path.isfile(pattern):
        return [Found(_utf8(pattern), os.path.getsize(pattern))]
    found = sorted(_utf8(p) for p in glob.glob(pattern, recursive=True) if os.path.isfile(p))
    if not found:
        if os.path.isdir(pattern):
            raise _folder(pattern)
        raise _no_file(pattern) if os.path.exists(pattern) else missing(pattern)
    return [Found(p, os.path.getsize(p)) for p in found]


def is_folder(path: str) -> bool:
    """Whether paths of a mapping may start from it."""
    if "://" not in path:
        return os.path.isdir(path)
    system, inner = file_system(path)
    kind = _look(path, lambda: system.get_file_info(inner.rstrip("/")).type)
    return kind == pafs.FileType.Directory


def file_system(path: str) -> tuple[pafs.FileSystem, str]:
    """Arrow's way to a path or URI, and its name there.

    Raises:
        BadRequest: it is a URI that nothing here can read.
    """
    if "://" not in path:
        return pafs.LocalFileSystem(), path
    try:
        return _addressed(path)
    except _REFUSALS as error:
        why = str(error).partition("\n")[0]
        raise BadRequest(
            f"{_shown(path)}: can't be read from there ({why}): s3://, gs://, abfs://, hdfs:// and file:/// can. "
            "Download it first, or name - and send its records to standard input",
            code="unreadable_source",
            details={"file": path},
        ) from error


def _addressed(path: str) -> tuple[pafs.FileSystem, str]:
    if path.startswith("s3://"):
        # The names that a graph in an object store goes by as well, so that one setting serves both.
        named = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
        endpoint = next((os.environ[name] for name in named if os.environ.get(name)), None)
        options: dict[str, Any] = {"region": os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")}
        if os.environ.get("AWS_VIRTUAL_HOSTED_STYLE_REQUEST", "").lower() == "true":
            options["force_virtual_addressing"] = True
        if endpoint:
            scheme, _, host = endpoint.partition("://")
            options |= {"endpoint_override": host, "scheme": scheme}
        return pafs.S3FileSystem(**options), path.removeprefix("s3://")
    system, inner = pafs.FileSystem.from_uri(path)
    return system, inner


def _utf8(path: str) -> str:
    """The path. Raises BadRequest where its name isn't UTF-8, which Arrow doesn't open."""
    if path.isascii() or _shown(path) == path:
        return path
    raise BadRequest(
        f"{_shown(path)}: the name is no UTF-8: rename the file, or name - and send its records to standard input",
        code="unreadable_source",
    )


def _shown(path: str) -> str:
    return path.encode("utf-8", "backslashreplace").decode()


def missing(path: str) -> BadRequest:
    where = f"Relative paths start at {_shown(str(Path.cwd()))}, in a mapping at its own folder"
    if "://" in path:
        where = "Is it spelled so, and may you see it?"
    return BadRequest(
        f"{_shown(path)}: there is no such file. {where}",
        code="missing_source",
        details={"file": path},
    )


def _folder(path: str) -> BadRequest:
    some = _shown(path).rstrip("/") + "/*.ndjson"
    return BadRequest(f"{_shown(path)}: is a folder: name its files, such as {some}", code="missing_source")


def _no_file(path: str) -> BadRequest:
    return BadRequest(
        f"{_shown(path)}: is a pipe or a device and no file: name - and send its records to standard input",
        code="missing_source",
        details={"file": path},
    )


# ---- object stores ---------------------------------------------------------------------------------------------------


def _find_objects(pattern: str) -> list[Found]:
    scheme, _, rest = pattern.partition("://")
    system, inner = file_system(pattern)
    named = _look(pattern, lambda: system.get_file_info(inner.rstrip("/")))
    if named.type == pafs.FileType.File:
        return [Found(pattern, named.size)]
    first = _WILD.search(inner)
    if first is None:
        raise _folder(pattern) if named.type == pafs.FileType.Directory else missing(pattern)
    folder = inner[: first.start()].rpartition("/")[0]
    deep = "/" in inner[first.start() :] or "**" in inner
    chosen = pafs.FileSelector(folder, recursive=deep, allow_not_found=True)
    wanted = re.compile(_expression(inner))
    before = rest.removesuffix(inner)  # what a URI has before the name on its file system
    found = [
        Found(f"{scheme}://{before}{info.path}", info.size)
        for info in _look(pattern, lambda: system.get_file_info(chosen))
        if info.type == pafs.FileType.File and wanted.fullmatch(info.path)
    ]
    if not found:
        raise missing(pattern)
    return sorted(found, key=lambda one: one.path)


def _look(path: str, asked: Callable[[], T]) -> T:
    try:
        return asked()
    except _REFUSALS as error:
        raise BadRequest(
            f"{_shown(path)}: can't be looked at: {error}", code="unreadable_source", details={"file": path}
        ) from error


def _expression(pattern: str) -> str:
    """A glob as a regular expression."""
    *folders, name = pattern.split("/")
    out = "".join("(?:[^/.][^/]*/)*" if part == "**" else f"{_part(part)}/" for part in folders)
    return out + ("(?:[^/.][^/]*/)*[^/.][^/]*" if name == "**" else _part(name))


def _part(part: str) -> str:
    out, at = ("(?!\\.)" if part[:1] in ("*", "?", "[") else ""), 0
    while at < len(part):
        char, end = part[at], part.find("]", at + 2)
        at += 1
        if char == "[" and end > 0:
            inside = part[at:end].replace("\\", "\\\\")
            out += f"[^{inside[1:]}]" if inside.startswith("!") else f"[{inside}]"
            at = end + 1
        else:
            out += {"*": "[^/]*", "?": "[^/]"}.get(char, re.escape(char))
    return out
