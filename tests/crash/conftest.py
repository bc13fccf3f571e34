from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from omnigraph.storage import sweep as storage_sweep
from tests.crash.ground import Bucket, Folder
from tests.crash.matrix import Matrix
from tests.crash.nursery import Nursery
from tests.s3 import environment, serving


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    running = Nursery()
    yield running
    running.close()


@pytest.fixture(scope="module")
def folders(nursery: Nursery) -> Iterator[Matrix]:
    """The matrix in a folder; in memory where there is room, for hundreds of graphs come and go."""
    memory = Path("/dev/shm")
    roomy = memory.is_dir() and shutil.disk_usage(memory).free > 2**30
    place = memory if roomy else None
    with tempfile.TemporaryDirectory(prefix="omnigraph-", dir=place, ignore_cleanup_errors=True) as folder:
        yield Matrix(Folder(Path(folder)), nursery)


@pytest.fixture(scope="module")
def buckets(nursery: Nursery) -> Iterator[Matrix]:
    """The matrix on S3, where a write waits for another that may live; here it is dead."""
    with serving() as server, environment(server), pytest.MonkeyPatch.context() as patched:
        patched.setattr(storage_sweep, "LIVING_SECONDS", 0.0)
        yield Matrix(Bucket(server), nursery)
