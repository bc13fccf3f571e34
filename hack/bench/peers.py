"""The peers' own environment: `.bench/` of the working tree, from `requirements.txt` beside this file."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

__all__ = ["peers_python"]

_REQUIREMENTS = Path(__file__).with_name("requirements.txt")
_FOLDER = Path(".bench/peers")


def peers_python() -> Path:
    """Its interpreter; made or renewed when the locked requirements differ from what it was made of."""
    python, stamp = _FOLDER / "bin/python", _FOLDER / "stamp"
    wanted = hashlib.sha256(_REQUIREMENTS.read_bytes()).hexdigest()
    if stamp.exists() and stamp.read_text() == wanted:
        return python
    print("installing the peers into .bench/peers (once)", file=sys.stderr, flush=True)
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(_FOLDER)], check=True)
    pip = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", "--require-hashes"]
    subprocess.run([*pip, "-r", str(_REQUIREMENTS)], check=True)
    stamp.write_text(wanted)
    return python
