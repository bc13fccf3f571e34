"""`omnigraph get` and `logs` on a state folder whose path and messages look like markup."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from omnigraph_operator.platform.local_inspect import show_logs, show_objects
from omnigraph_operator.platform.local_state import write_json

ODD = "it's [red]here[/b] :smile:"


@pytest.fixture
def state(tmp_path: Path) -> Path:
    place = tmp_path / "a[" / "b] :x:" / ".omnigraph"  # together `[/b]`, which closes what nothing opened
    obj = place / "objects/default/OmniGraph/g"
    obj.mkdir(parents=True)
    made = {"apiVersion": "omnigraph.io/v1alpha1", "kind": "OmniGraph", "metadata": {"name": "g"}, "spec": {}}
    write_json(obj / "object.json", made)
    return place


def test_a_path_is_shown_as_it_is(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert show_objects(state, "og", "other", "table") == 1
    assert f"OmniGraph other isn't in {state}" in capsys.readouterr().err
    assert show_objects(state / "none", "og", None, "table") == 1
    assert str(state / "none") in capsys.readouterr().err
    assert show_logs(state, ODD) == 1
    assert capsys.readouterr().out == f"{state}: no workload {ODD}\n"


def test_what_a_workload_is_for_is_shown_as_it_is(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = state / "workloads" / "one"
    folder.mkdir(parents=True)
    (folder / "command.json").write_text(json.dumps({"argv": ["true"], "env": {}, "facts": {"purpose": ODD}}))
    assert show_logs(state, None) == 0
    assert ODD in capsys.readouterr().out
