"""Reading manifests: what is accepted, and that a refusal names file and line."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from omnigraph_operator.model.crd import KINDS
from omnigraph_operator.platform.local_manifests import ManifestError, read_manifests
from omnigraph_operator.platform.local_validate import validate

GOOD = """\
apiVersion: omnigraph.io/v1alpha1
kind: OmniGraph
metadata:
  name: g
spec:
  storage:
    uri: file:g.omni
  schema:
    inline: "node A { name: String @key }"
  loads:
    - name: one
      source: { uri: one.ndjson }
  server:
    auth: { unauthenticated: true }
"""


def read(folder: Path, text: str) -> Any:
    (folder / "g.yaml").write_text(text)
    return read_manifests([str(folder)])


def test_defaults_are_filled_in(tmp_path: Path) -> None:
    spec = read(tmp_path, GOOD).objects[0].obj["spec"]
    assert spec["loads"][0]["mode"] == "append"
    assert spec["server"]["readWrite"] == {"enabled": True}
    assert spec["deletionPolicy"] == "Retain"


CASES = {
    "unknown kind": (("kind: OmniGraph", "kind: OmniGraf"), 2, "OmniGraf isn't understood here"),
    "unknown field": (("  storage:\n", "  storrage: 1\n  storage:\n"), 6, "there is no such field"),
    "wrong enum": (("name: one\n", "name: one\n      mode: upsert\n"), 12, "'upsert' isn't one of append"),
    "missing": (("  storage:\n    uri: file:g.omni\n", ""), 5, "spec: storage is needed"),
    "two schemas": (("  schema:\n", "  schema:\n    configMapRef: { name: x }\n"), 8, "give exactly one of inline"),
    "no auth": (("unauthenticated: true", "unauthenticated: false"), 14, "give either tokensSecretRef or"),
    "parquet alone": (("name: one\n", "name: one\n      format: parquet\n"), 11, "need a mapping"),
    "same load twice": (("  server:", "    - name: one\n      source: { uri: b }\n  server:"), 13, "given twice"),
    "long name": (("name: g", f"name: {'g' * 41}"), 1, "at most 40 characters"),
    "bad uri": (("uri: file:g.omni", "uri: ftp://x"), 7, "doesn't match"),
    "wrong type": (("{ uri: one.ndjson }", "one.ndjson"), 12, "object is needed"),
    "volume on s3": (("uri: file:g.omni", "uri: s3://b/p\n    volume: { size: 1Gi }"), 6, "a volume goes with a file"),
    "not yaml": (("metadata:", "metadata: {"), 5, "not YAML"),
    "no integer": (("name: one\n", "name: !!int one\n"), 11, "not a value of !!int"),
    "in itself": (("  storage:\n", "  storage: &a [*a]\n  old:\n"), 6, "contains itself"),
    "key twice": (("  name: g", "  name: g\n  name: h"), 5, "name is given twice"),
}


@pytest.mark.parametrize("case", CASES)
def test_refusals_name_the_line(tmp_path: Path, case: str) -> None:
    (old, new), line, message = CASES[case]
    assert old in GOOD
    with pytest.raises(ManifestError) as caught:
        read(tmp_path, GOOD.replace(old, new, 1))
    text = str(caught.value)
    assert message in text
    assert f"{tmp_path}/g.yaml:{line}:" in text, text


def test_immutable_fields_are_guarded_against_what_is_stored(tmp_path: Path) -> None:
    old = read(tmp_path, GOOD).objects[0].obj
    new = copy.deepcopy(old)
    new["spec"]["storage"]["uri"] = "file:elsewhere"
    assert [f.message for f in validate(KINDS["OmniGraph"], new, old)] == [
        "storage.uri can't be changed: a graph doesn't move; make a new OmniGraph"
    ]
    assert validate(KINDS["OmniGraph"], copy.deepcopy(old), old) == []


def test_kustomization_config_maps_secrets_and_lists(tmp_path: Path) -> None:
    (tmp_path / "base").mkdir()
    (tmp_path / "base" / "g.yaml").write_text(GOOD)
    (tmp_path / "ignored.yaml").write_text("kind: Nothing")
    (tmp_path / "more.yaml").write_text(
        "apiVersion: v1\nkind: List\nitems:\n"
        "- {apiVersion: v1, kind: ConfigMap, metadata: {name: c}, data: {a: b}}\n"
        "- {apiVersion: v1, kind: Secret, metadata: {name: s}, data: {t: c2VjcmV0}, stringData: {u: plain}}\n"
    )
    (tmp_path / "kustomization.yaml").write_text("resources: [base, more.yaml]\n")
    found = read_manifests([str(tmp_path)])
    assert [o.obj["metadata"]["name"] for o in found.objects] == ["g"]
    assert found.objects[0].folder == tmp_path / "base"
    assert found.config_maps["default", "c"] == {"a": "b"}
    assert found.secrets["default", "s"] == {"t": "secret", "u": "plain"}


def test_nothing_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(ManifestError, match="no OmniGraph is declared here"):
        read_manifests([str(tmp_path)])
    with pytest.raises(ManifestError, match="no such file or folder"):
        read_manifests([str(tmp_path / "x.yaml")])
