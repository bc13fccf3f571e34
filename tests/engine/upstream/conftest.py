"""Graphs written by the origin (omnigraph 0.7.0), unpacked from `tests/data/upstream`; see the README there."""

from __future__ import annotations

import hashlib
import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

DATA = Path(__file__).parents[2] / "data" / "upstream"
NAMES = sorted(p.name.removesuffix(".tar.xz") for p in DATA.glob("*.tar.xz"))


def expected(name: str) -> dict[str, Any]:
    """What the origin answered."""
    read: dict[str, Any] = json.loads((DATA / f"{name}.expected.json").read_text())
    return read


def query_text(name: str, query: str) -> str:
    """One query of the fixture's file; each stands on a line of its own."""
    lines = (DATA / f"{name}.gq").read_text().splitlines()
    (found,) = [line for line in lines if line.startswith(f"query {query}(")]
    return found


def unpack(name: str, folder: Path) -> Path:
    with tarfile.open(DATA / f"{name}.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    return folder / f"{name}.omni"


def fingerprint(root: Path) -> dict[str, str]:
    """Every file and folder, with the hash of what is in it."""
    return {
        str(p.relative_to(root)): hashlib.sha256(p.read_bytes()).hexdigest() if p.is_file() else "folder"
        for p in sorted(root.rglob("*"))
    }


@pytest.fixture(scope="session")
def untouched(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Unpacked once, for tests that only read."""
    folder = tmp_path_factory.mktemp("upstream")
    return lambda name: folder / f"{name}.omni" if (folder / f"{name}.omni").exists() else unpack(name, folder)


@pytest.fixture
def fresh(tmp_path: Path) -> Callable[[str], Path]:
    """Unpacked anew, for tests that write."""
    return lambda name: unpack(name, tmp_path)
