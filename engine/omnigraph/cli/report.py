"""The result of a task: one JSON object of at most 4096 bytes, the size of a pod's termination message.

`{"ok", "purpose", "operationId", "code"?, "message"?, "commit"?, "tables"?, "sweep"?, "seconds", …}`. Lists that
don't fit are cut and their full lengths stand in `totals`; a message that doesn't fit ends with an ellipsis.
"""

from __future__ import annotations

import copy
import errno
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

__all__ = ["MAX_BYTES", "TERMINATION_LOG", "camel_keys", "encode", "fresh_id", "sweep", "write"]

MAX_BYTES = 4096
TERMINATION_LOG = Path("/dev/termination-log")


def fresh_id() -> str:
    """A new operation id."""
    from omnigraph.ulids import new_ulid

    return new_ulid()


def sweep(mode: str, outcomes: Sequence[Mapping[str, Any]], pending: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What a sweep did, as a part of the result; counts by outcome stay whole when lists are cut.

    `pending` needs a roll-back that this sweep wasn't allowed; `live` belongs to writers at work and needs nothing.
    """
    counts: dict[str, int] = {}
    for one in outcomes:
        counts[str(one["outcome"])] = counts.get(str(one["outcome"]), 0) + 1
    return {
        "mode": mode,
        "counts": counts,
        "outcomes": [camel_keys(one) for one in outcomes],
        "pending": [camel_keys(one) for one in pending if one["reason"] != "Live"],
        "live": [camel_keys(one) for one in pending if one["reason"] == "Live"],
    }


def encode(result: Mapping[str, Any], limit: int = MAX_BYTES) -> bytes:
    """The result as one line of JSON within `limit` bytes."""
    out = copy.deepcopy(dict(result))
    data = _dump(out)
    while len(data) > limit:
        longest = max(_lists(out), key=lambda entry: len(_dump(entry[1])), default=None)
        if longest is not None:
            path, items = longest
            out.setdefault("totals", {}).setdefault(path, len(items))
            del items[len(items) // 2 :]
        else:
            message = str(out.get("message", ""))
            if len(message) < 16:
                # Nothing left to shorten: what a machine needs in any case.
                out = {key: out[key] for key in ("ok", "purpose", "operationId", "code", "seconds") if key in out}
                return _dump(out)
            out["message"] = message[: len(message) * 3 // 4].rstrip("…") + "…"
        data = _dump(out)
    return data


def write(data: bytes, target: Path | None) -> None:
    """Put the result where it belongs: whole or not at all.

    Args:
        data: one line of JSON.
        target: the file; None is a pod's termination log if there is one, else nowhere.
    """
    if target is None:
        if not os.access(TERMINATION_LOG, os.W_OK):
            return
        target = TERMINATION_LOG
    if target == TERMINATION_LOG:
        # A mount of its own: it can't be renamed onto, and a write this small is one system call.
        target.write_bytes(data)
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f".{target.name}.{os.getpid()}")
    with partial.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    try:
        partial.replace(target)
    except OSError as error:
        partial.unlink()
        if error.errno != errno.EBUSY:
            raise
        target.write_bytes(data)


def _lists(value: Any, path: str = "") -> list[tuple[str, list[Any]]]:
    """Every non-empty list in the result, with its dotted place; `totals` aside."""
    if isinstance(value, dict):
        found = []
        for key, item in value.items():
            if path or key != "totals":
                found += _lists(item, f"{path}.{key}" if path else key)
        return found
    return [(path, value)] if isinstance(value, list) and value else []


def _dump(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=_text).encode()


def _text(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float | str | list | dict):
        return value
    return str(value)


def camel_keys(entry: Mapping[str, Any]) -> dict[str, Any]:
    """An entry with its keys written as in Kubernetes objects: `table_key` becomes `tableKey`."""
    return {_camel(key): _text(value) for key, value in entry.items()}


def _camel(name: str) -> str:
    head, *rest = str(name).split("_")
    return head + "".join(part.capitalize() for part in rest)
