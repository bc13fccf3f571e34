"""Where this user's caches lie. What is kept there may be deleted at any time."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["cache_folder"]


def cache_folder() -> Path:
    """This user's caches: `$OMNIGRAPH_CACHE_DIR`, else `$XDG_CACHE_HOME/omnigraph`, else `~/.cache/omnigraph`."""
    own = os.environ.get("OMNIGRAPH_CACHE_DIR")
    if own:
        return Path(own)
    base = os.environ.get("XDG_CACHE_HOME")
    if base and os.path.isabs(base):
        return Path(base) / "omnigraph"
    return Path(os.path.expanduser("~")) / ".cache" / "omnigraph"
