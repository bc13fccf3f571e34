"""The generated CRDs: as the models say, structural, small, described, with rules that can be evaluated."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import cel
import pytest

from omnigraph_operator.model import crd

FOLDER = Path(__file__).parents[2] / "crds"
KIND = crd.KINDS["OmniGraph"]


def tree() -> dict[str, Any]:
    schema: dict[str, Any] = crd.crd(KIND)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return schema


def nodes(node: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
    yield path, node
    for name, child in node.get("properties", {}).items():
        yield from nodes(child, f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if key in node:
            yield from nodes(node[key], f"{path}[]")


def test_the_stored_files_are_as_the_models_say(capsys: pytest.CaptureFixture[str]) -> None:
    assert crd.main(["--check", "--folder", str(FOLDER)]) == 0, capsys.readouterr().out


def test_a_difference_is_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert crd.main(["--write", "--folder", str(tmp_path)]) == 0
    path = tmp_path / "omnigraphs.yaml"
    path.write_text(path.read_text().replace("Serve everybody", "Serve nobody"))
    assert crd.main(["--check", "--folder", str(tmp_path)]) == 1
    assert "Serve everybody" in capsys.readouterr().out


def test_it_is_small_enough_for_client_side_apply() -> None:
    assert len(crd.render(KIND)) < 200_000


def test_every_field_is_described() -> None:
    missing = [p for p, n in nodes(tree()) if p and not p.endswith("[]") and not n.get("description")]
    assert missing == [".metadata"]


def test_it_is_structural() -> None:
    for path, node in nodes(tree()):
        free = node.get("x-kubernetes-preserve-unknown-fields") or node.get("x-kubernetes-int-or-string")
        assert "type" in node or free, path
        assert not {"$ref", "allOf", "oneOf", "title", "$defs", "const"} & set(node), path
        assert not ("properties" in node and "additionalProperties" in node), path
        assert "null" not in str(node.get("default")), path


def test_every_rule_compiles_and_has_a_message() -> None:
    rules = [r for _, n in nodes(tree()) for r in n.get("x-kubernetes-validations", ())]
    assert len(rules) >= 10
    for one in rules:
        cel.compile(one["rule"])
        assert one["message"]


def test_an_unreconciled_object_is_never_current() -> None:
    assert tree()["properties"]["status"]["default"] == {"observedGeneration": -1}


def test_conditions_and_loads_merge_by_key() -> None:
    found = {p: n.get("x-kubernetes-list-map-keys") for p, n in nodes(tree()) if n.get("type") == "array"}
    assert found[".status.conditions"] == ["type"]
    assert found[".spec.loads"] == ["name"]
