"""Names under a graph's root (01 §1.1)."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable
from typing import Any

from omnigraph.errors import BadRequest

__all__ = [
    "ACTORS",
    "CLEANUP",
    "COMMITS",
    "MAIN",
    "MANIFEST",
    "MARK",
    "RECOVERIES",
    "RECOVERY",
    "SCHEMA_LOCK",
    "STAGING",
    "check_branch_name",
    "check_operation_id",
    "data_paths",
    "fnv1a64",
    "free_location",
    "ir_file",
    "is_branch_path",
    "is_location",
    "lance_branch",
    "quoted",
    "rows_per_file",
    "schema_file",
    "table_path",
]  # fmt: skip

MAIN = "main"
MANIFEST = "__manifest"
COMMITS = "_graph_commits.lance"
ACTORS = "_graph_commit_actors.lance"
RECOVERIES = "_graph_commit_recoveries.lance"
RECOVERY = "__recovery"
STAGING = "__staging"
CLEANUP = "__cleanup"
SCHEMA_LOCK = "__schema_apply_lock__"
NODES_PER_FILE = 1 << 17
EDGES_PER_FILE = 1 << 20  # Lance's own
MARK = "omnigraph:sidecar"
"""Transaction property that names the sidecar of the writer."""

_SEGMENT = re.compile(r"[\w.-]+")
_OPERATION = re.compile(r"[0-9A-Za-z_-]{1,64}")
_LOCATION = re.compile(r"(nodes|edges)/[0-9a-f]{16}(-[0-9]{1,9})?")


def fnv1a64(name: str) -> str:
    """FNV-1a, 64 bit, of the UTF-8 name, as 16 lower-case hex digits (http://www.isthe.com/chongo/tech/comp/fnv/)."""
    value = 0xCBF29CE484222325
    for byte in name.encode():
        value = ((value ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return f"{value:016x}"


def table_path(table_key: str) -> str:
    """`node:Person` → `nodes/{hash}`: where a new table goes, if the place is free."""
    kind, _, name = table_key.partition(":")
    return f"{kind}s/{fnv1a64(name)}"


def rows_per_file(table_key: str) -> int:
    """The most rows a data file of this table gets.

    Where a row changes, Lance goes through the row ids of the file that has held it first, 30 ns each. Nodes change one
    by one; edges come and go, and there are so many that the names of more files would make every version longer.
    """
    return NODES_PER_FILE if table_key.startswith("node:") else EDGES_PER_FILE


def free_location(table_key: str, taken: Container[str]) -> str:
    """The first of `{path}`, `{path}-2`, `{path}-3`… not taken."""
    path, n = table_path(table_key), 2
    candidate = path
    while candidate in taken:
        candidate, n = f"{path}-{n}", n + 1
    return candidate


def is_location(text: str) -> bool:
    """Whether a table of ours can lie there."""
    return _LOCATION.fullmatch(text) is not None


def data_paths(files: Iterable[Any]) -> tuple[str, ...]:
    """The paths of Lance's data files. Asked for as `path`, each makes a class of its own, which takes 20 µs."""
    return tuple([file._path for file in files])


def schema_file(schema_hash: str) -> str:
    return f"_schemas/{schema_hash}.pg"


def ir_file(identity: str) -> str:
    return f"_schemas/{identity}.ir.json"


def lance_branch(branch: str | None) -> str | None:
    """`main` is Lance's default lineage and never stored as a name."""
    return None if branch in (None, MAIN) else branch


def is_branch_path(name: str) -> bool:
    """Whether a folder of this name can hold a branch: it stays under its dataset and means itself alone."""
    return all(_SEGMENT.fullmatch(part) and part not in (".", "..") for part in name.split("/"))


def check_operation_id(text: str) -> str:
    """Raise BadRequest unless the text can be an operation's id: it becomes a file's and a folder's name."""
    if not isinstance(text, str) or not _OPERATION.fullmatch(text):
        raise BadRequest(f"operation id {text!r}: use a ULID (letters, digits, '-', '_', at most 64 characters)")
    return text


def quoted(text: str) -> str:
    """The text as a literal of Lance's SQL."""
    return "'" + text.replace("'", "''") + "'"


def check_branch_name(name: str) -> None:
    """Raise BadRequest unless the name can be a new branch (Lance's rules, and none of ours beginning with `__`)."""
    ok = (
        isinstance(name, str)
        and 0 < len(name) <= 200
        and name != MAIN
        and not name.startswith(("__", "."))
        and ".." not in name
        and not name.endswith(".lock")
        and is_branch_path(name)
    )
    if not ok:
        raise BadRequest(
            f"{name!r} can't be a branch's name: use letters, digits, '.', '-', '_' and '/', at most 200 characters, "
            "not 'main', not beginning with '__' or '.'"
        )
