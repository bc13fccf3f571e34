"""Reading manifests: what is accepted, and that a refusal names file and line."""

from __future__ import annotations

import copy
import os
from pathlib import Path
from typing import Any

import pytest

from omnigraph_operator.decide import Reference
from omnigraph_operator.model.crd import KINDS
from omnigraph_operator.platform.local_manifests import ManifestError, read_manifests
from omnigraph_operator.platform.local_sources import Sources
from omnigraph_operator.platform.local_state import State
from omnigraph_operator.platform.local_up import Up
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


CONFIG_MAP = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\n"
SECRET = "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\n"

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
    "load without a name": (("name: one", "name: []"), 11, "spec.loads[0].name: string is needed, not []"),
    "name of two folders": (("name: g", "name: a/../b"), 4, "metadata.name: 'a/../b': use lower-case letters"),
    "name above": (("name: g", "name: .."), 4, "metadata.name: '..': use"),
    "namespace": (("name: g", "name: g\n  namespace: [1]"), 5, "metadata.namespace: a text is needed, not [1]"),
    "labels": (("name: g", "name: g\n  labels: [1]"), 5, "metadata.labels: texts by name are needed, not list"),
    "annotation": (
        ("name: g", "name: g\n  annotations: {a: 5}"),
        5,
        "metadata.annotations.a: a text is needed, not int",
    ),
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


SHAPES = {
    "m.yaml": {
        "kind: List\nitems:\n- 1": ":3: items[0]: a manifest is a mapping, not 1",
        "kind: List\nitems: [[1]]": ":2: items[0]: a manifest is a mapping, not [1]",
        f"{CONFIG_MAP}data: [1]": ":4: data: texts by name are needed, not list",
        f"{CONFIG_MAP}data: x": ":4: data: texts by name are needed, not str",
        f"{CONFIG_MAP}data:\n  a: 5": ":5: data.a: a text is needed, not int",
        f"{SECRET}data: [1]": ":4: data: texts by name are needed, not list",
        f"{SECRET}data: {{a: null}}": ":4: data.a: a text is needed, not NoneType",
        f"{SECRET}data: {{a: é}}": ":4: data.a isn't base64 of a text",
        f"{SECRET}stringData: 7": ":4: stringData: texts by name are needed, not int",
        f"{SECRET}stringData: {{a: 1234}}": ":4: stringData.a: a text is needed, not int",  # a secret is never shown
    },
    "kustomization.yaml": {
        "x": ": a kustomization is a mapping, not 'x'",
        "[1]": ": a kustomization is a mapping, not [1]",
        "0": ": a kustomization is a mapping, not 0",
        "{1: 2, a: b}": ": only resources are understood without a cluster, not 1, a",
        "resources: 5": ": resources: a list of paths is needed, not 5",
        "resources: [5]": ": resources: a list of paths is needed, not [5]",
        f"resources: [{'x' * 300}]": f"{'x' * 300}: can't be read: File name too long",
    },
}


@pytest.mark.parametrize(("file", "text"), [(file, text) for file, texts in SHAPES.items() for text in texts])
def test_a_wrong_shape_is_named_with_file_and_field(tmp_path: Path, file: str, text: str) -> None:
    (tmp_path / file).write_text(text)
    with pytest.raises(ManifestError) as caught:
        read_manifests([str(tmp_path)])
    assert SHAPES[file][text] in str(caught.value)
    assert str(tmp_path) in str(caught.value)


def test_a_running_up_outlives_a_bad_edit(tmp_path: Path) -> None:
    path, shown = tmp_path / "g.yaml", list[str]()
    path.write_text(GOOD)
    up = Up(State(tmp_path / "state"), lambda _, line: shown.append(line))
    up.accept(read_manifests([str(path)]))
    for broken in ("kind: List\nitems: [1]", f"{GOOD}---\n{SECRET}data: [1]", GOOD.replace("file:g.omni", "5")):
        path.write_text(broken)
        up.accept_again([str(path)])
        assert shown.pop().endswith("what was accepted before stays in force")
        assert [o["metadata"]["generation"] for o in up.state.stored()] == [1]
    path.write_text(GOOD.replace("one.ndjson", "two.ndjson"))
    up.accept_again([str(path)])
    assert [o["metadata"]["generation"] for o in up.state.stored()] == [2]
    assert not shown


def test_sources_with_odd_names_are_found_or_said(tmp_path: Path) -> None:
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.ndjson")).write_text("{}")
    sources = Sources({}, {})
    assert sources.look(Reference("k", uri="."), "default", tmp_path).size_bytes == 2
    for name, why in (("x" * 300, "File name too long"), ("a\0b", "there is no such file")):
        assert (sources.look(Reference("k", uri=name), "default", tmp_path).error or "").endswith(why)


def test_nothing_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(ManifestError, match="no OmniGraph is declared here"):
        read_manifests([str(tmp_path)])
    with pytest.raises(ManifestError, match="no such file or folder"):
        read_manifests([str(tmp_path / "x.yaml")])
