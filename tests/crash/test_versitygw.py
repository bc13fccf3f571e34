"""A second S3 server answers as the first: the main ways of a writer that is killed, and the probe at `init`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import omnigraph
from omnigraph.errors import NotFound, Unavailable
from omnigraph.storage import sweep as storage_sweep
from tests import versitygw
from tests.crash import lifecycle
from tests.crash.crash_scenarios import SCENARIOS
from tests.crash.ground import Bucket
from tests.crash.matrix import Matrix
from tests.crash.nursery import Nursery
from tests.s3 import S3, environment

SCHEMA = "node P { slug: String @key  n: I64? @index }\nedge K: P -> P\n"


@pytest.fixture(scope="module")
def server() -> Iterator[S3]:
    with versitygw.serving() as running:
        if running is None:
            pytest.skip("versitygw isn't built: `python -m tests.versitygw` does it where Go is")
        with environment(running):
            yield running


@pytest.fixture(scope="module")
def gateway(nursery: Nursery, server: S3) -> Iterator[Matrix]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(storage_sweep, "LIVING_SECONDS", 0.0)
        yield Matrix(Bucket(server), nursery)


@pytest.mark.parametrize("scenario", ["mutation", "branch"])
def test_a_writer_is_killed(gateway: Matrix, scenario: str) -> None:
    gateway.kill_everywhere(SCENARIOS[scenario])


@pytest.mark.parametrize("act", ["create_graph", "delete_branch"])
def test_what_comes_and_goes_is_killed(gateway: Matrix, act: str) -> None:
    getattr(lifecycle, act)(gateway)


def test_a_store_that_ignores_conditions_is_refused_at_init(server: S3) -> None:
    uri = server.uri()
    with versitygw.deaf(server) as spoiled, environment(spoiled):
        with pytest.raises(Unavailable, match="If-None-Match") as caught:
            omnigraph.init(uri, schema=SCHEMA)
        assert caught.value.code == "store_loses_commits"
        with pytest.raises(NotFound):
            omnigraph.open(uri)
    graph = omnigraph.init(uri, schema=SCHEMA)
    graph.load('{"type":"P","data":{"slug":"a"}}\n{"edge":"K","from":"a","to":"a"}')
    assert graph.verify().ok
