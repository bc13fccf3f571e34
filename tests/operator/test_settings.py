"""The operator's settings from its environment."""

from __future__ import annotations

import pytest

from omnigraph_operator.main import run, settings_from
from omnigraph_operator.platform.base import PlatformError

NUMBERS = ["METRICS_PORT", "HEALTH_PORT", "LEASE_SECONDS", "SPARK_MIN_BYTES"]


@pytest.mark.parametrize("name", NUMBERS)
def test_a_setting_that_is_no_number_is_named(name: str) -> None:
    # What a cluster's links make of a Service with this very name.
    with pytest.raises(PlatformError, match=f"OMNIGRAPH_{name} is 'tcp://10.0.0.1:80', and has to be a number"):
        settings_from([], environment={f"OMNIGRAPH_{name}": "tcp://10.0.0.1:80"})


def test_the_operator_ends_with_the_reason(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr("omnigraph_operator.main._log", lambda as_json: None)  # the tests' own handlers stay
    monkeypatch.setenv("OMNIGRAPH_HEALTH_PORT", "x")
    assert run([]) == 1
    assert "OMNIGRAPH_HEALTH_PORT is 'x'" in caplog.text
