"""The demo's data: the same bytes for the same environment, and every edge's ends are there."""

import json
from pathlib import Path

import pyarrow.parquet as pq

from hack.demo.collect import collect


def test_collect_is_stable_and_closed(tmp_path: Path) -> None:
    counts = collect(tmp_path / "a")
    collect(tmp_path / "b")
    for name in ("packages.ndjson", "files.parquet"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()

    keys: dict[str, set[str]] = {}
    edges = []
    for line in (tmp_path / "a/packages.ndjson").read_text().splitlines():
        record = json.loads(line)
        if "type" in record:
            data = record["data"]
            key = data.get("name") if record["type"] != "EntryPoint" else data["ref"]
            assert key not in keys.setdefault(record["type"], set()), f"{record['type']} {key} twice"
            keys[record["type"]].add(key)
        else:
            edges.append(record)
    target = {
        "Requires": "Distribution",
        "Provides": "Module",
        "Offers": "EntryPoint",
        "ClassifiedAs": "Classifier",
        "WrittenBy": "Author",
    }
    for edge in edges:
        assert edge["from"] in keys["Distribution"], edge
        assert edge["to"] in keys[target[edge["edge"]]], edge

    files = pq.read_table(tmp_path / "a/files.parquet")
    assert files.num_rows == counts["File"] > 1000
    assert len(set(files["full_path"].to_pylist())) == files.num_rows
    assert set(files["distribution"].to_pylist()) <= keys["Distribution"]
