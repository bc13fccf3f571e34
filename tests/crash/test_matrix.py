"""In a folder: writers, branches and graphs are killed at every durable step, and sweeps of what that leaves."""

from __future__ import annotations

import pytest

from omnigraph.storage.steps import Step
from tests.crash import lifecycle
from tests.crash.crash_scenarios import IN_A_FOLDER, SCENARIOS
from tests.crash.matrix import Matrix, unkilled

ALL_OF_THEM = SCENARIOS | IN_A_FOLDER
IMPOSSIBLE = {
    Step.CLEANUP_ANNOUNCED,  # a lock tells it
    Step.RECOVERY_DECIDED,  # the same: nobody else rolls forward what is being undone
}


@pytest.mark.parametrize("scenario", ALL_OF_THEM)
def test_a_writer_is_killed(folders: Matrix, scenario: str) -> None:
    folders.kill_everywhere(ALL_OF_THEM[scenario])


@pytest.mark.parametrize("act", lifecycle.__all__)
def test_what_comes_and_goes_is_killed(folders: Matrix, act: str) -> None:
    getattr(lifecycle, act)(folders)


def test_no_step_is_left_out(folders: Matrix, request: pytest.FixtureRequest) -> None:
    """Last, for it asks where the tests above have killed: a new step of the code needs a scenario."""
    ran = [item for item in request.session.items if item.path == request.path]
    if len(ran) != len(ALL_OF_THEM) + len(lifecycle.__all__) + 1:
        pytest.skip("only the whole file tells")
    assert unkilled(folders, IMPOSSIBLE) == set()
