"""On S3, as in a folder: everything is killed at every durable step.

Nothing tells a dead writer from a living one there, so an opening by itself only finishes writes; `full` undoes them.
"""

from __future__ import annotations

import pytest

from omnigraph.storage.steps import Step
from tests.crash import lifecycle
from tests.crash.crash_scenarios import SCENARIOS
from tests.crash.matrix import Matrix, unkilled

IMPOSSIBLE = {
    Step.CLEANUP_TIDIED,  # no files lie beside the datasets
    Step.SIDECAR_TEMPORARY,  # an object appears whole
    Step.RECOVERY_FORK_DELETED,  # nothing tells that nobody uses the fork
}


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_writer_is_killed(buckets: Matrix, scenario: str) -> None:
    buckets.kill_everywhere(SCENARIOS[scenario])


@pytest.mark.parametrize("act", lifecycle.__all__)
def test_what_comes_and_goes_is_killed(buckets: Matrix, act: str) -> None:
    getattr(lifecycle, act)(buckets)


def test_no_step_is_left_out(buckets: Matrix, request: pytest.FixtureRequest) -> None:
    """Last, for it asks where the tests above have killed: a new step of the code needs a scenario."""
    ran = [item for item in request.session.items if item.path == request.path]
    if len(ran) != len(SCENARIOS) + len(lifecycle.__all__) + 1:
        pytest.skip("only the whole file tells")
    assert unkilled(buckets, IMPOSSIBLE) == set()
