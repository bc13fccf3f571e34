"""Removes a graph's folder: `python -m omnigraph_operator.platform.local_delete FOLDER RESULT`.

The folder is renamed first, so that half a graph is never seen under its name; only what looks like a graph is touched.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

from omnigraph_operator.platform.local_state import write_json

__all__ = ["delete"]


def delete(folder: Path) -> dict[str, Any]:
    """The result object of the work."""
    out: dict[str, Any] = {"ok": True, "purpose": "delete"}
    doomed = folder.with_name(f".{folder.name}.deleted")
    try:
        if folder.exists():
            if not (folder / "__manifest").exists():
                message = f"{folder} holds no graph (there is no __manifest in it); nothing was removed"
                return out | {"ok": False, "code": "not_a_graph", "message": message}
            folder.rename(doomed)
        if doomed.exists():
            shutil.rmtree(doomed)
    except OSError as error:
        return out | {"ok": False, "code": "os_error", "message": f"{folder}: {error.strerror}"}
    return out


if __name__ == "__main__":
    outcome = delete(Path(sys.argv[1]))
    write_json(Path(sys.argv[2]), outcome)
    print(outcome.get("message", f"{sys.argv[1]} removed"))
    raise SystemExit(0 if outcome["ok"] else 1)
