"""What the image and the test cluster are made from, as far as it needs neither root nor a cluster."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest

from hack.cluster import parts
from hack.cluster.cluster import LONGEST_DIR, state_dir
from hack.image.lock import runtime_requirements
from hack.image.oci import Image, sha256, write_image

CHECKOUT = Path(__file__).resolve().parents[2]


def test_the_image_gets_what_runs_and_no_tool_of_development() -> None:
    text = runtime_requirements((CHECKOUT / "requirements.lock").read_text())
    names = {line.partition("==")[0] for line in text.splitlines() if "==" in line}
    assert {
        "pyarrow",
        "pylance",
        "pyspark",
        "py4j",
        "kopf",
        "aiohttp",
        "fastapi",
        "uvicorn",
        "kubernetes",
        "httpx",
    } <= names
    assert not {"pytest", "ruff", "mypy", "hypothesis", "import-linter", "pandas", "polars", "networkx"} & names
    assert text.count("--hash=sha256:") >= len(names)


def test_a_lock_of_another_form_is_refused() -> None:
    with pytest.raises(ValueError, match="format"):
        runtime_requirements("pyarrow==1\n    # via somebody\n")


def test_layers_the_receiver_has_are_not_sent(tmp_path: Path) -> None:
    layers = [tmp_path / "base.tar", tmp_path / "code.tar"]
    for layer in layers:
        layer.write_bytes(layer.name.encode() * 100)
    image = Image("localhost/x:1", layers, user="185:0")
    known = f"sha256:{sha256(layers[0])}"
    out = tmp_path / "out.tar"
    assert write_image(out, image, present={known}) == [f"sha256:{sha256(layers[1])}"]
    with tarfile.open(out) as tar:
        names = tar.getnames()
        (index_file,) = [tar.extractfile("index.json")]
        assert index_file is not None
        index = json.load(index_file)
        digest = index["manifests"][0]["digest"].removeprefix("sha256:")
        manifest_file = tar.extractfile(f"blobs/sha256/{digest}")
        assert manifest_file is not None
        manifest = json.load(manifest_file)
    assert known not in [f"sha256:{name.rpartition('/')[2]}" for name in names]
    assert [layer["digest"] for layer in manifest["layers"]] == [known, f"sha256:{sha256(layers[1])}"]


def test_a_changed_layer_has_another_digest_although_digests_are_remembered(tmp_path: Path) -> None:
    layer = tmp_path / "layer.tar"
    layer.write_bytes(b"one")
    first = sha256(layer)
    assert sha256(layer) == first
    newer = tmp_path / "newer.tar"
    newer.write_bytes(b"two")
    newer.rename(layer)  # as `tar_dir` does it
    assert sha256(layer) != first


def test_the_clusters_state_is_in_the_checkout_unless_its_path_is_too_long_for_a_socket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/var/cache")
    assert state_dir(Path("/home/somebody/omnigraph")) == Path("/home/somebody/omnigraph/.cluster")
    deep = Path("/home/somebody") / ("deep/" * 20)
    short = state_dir(deep)
    assert len(str(short)) <= LONGEST_DIR
    assert short.parent == Path("/var/cache/omnigraph/cluster")
    assert state_dir(deep / "other") != short
    monkeypatch.setenv("XDG_CACHE_HOME", str(deep))
    assert state_dir(deep).parent == Path("/var/tmp")


def test_binaries_are_kept_by_what_they_are_built_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = tmp_path / "kube"
    module.mkdir()
    (module / "go.mod").write_text("module x\n")
    monkeypatch.setattr(parts, "BUILD", tmp_path)
    before = parts.module_dir("kube")
    assert parts.module_dir("kube") == before
    (module / "go.mod").write_text("module x // newer\n")
    assert parts.module_dir("kube") != before
