"""Graphs of the origin open read-only, answer the same rows, and stay as they were to the byte."""

from __future__ import annotations

import datetime
import hashlib
import json
from base64 import b64decode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import omnigraph
from omnigraph.errors import BadRequest, LanguageError, NotFound
from omnigraph.storage.uri import parse_root
from tests.engine.upstream.conftest import NAMES, expected, fingerprint, query_text

Unpack = Callable[[str], Path]

# The origin's distance is L2 and ours the cosine; its scores differ too. What must hold is that rows come back.
RANKED = frozenset({"nearest_v", "ranked", "hybrid"})
# Its own sweep runs before every answer, so these saw the roll forward; see test_upstream_write.
AFTER_SWEEP = frozenset({"crash-all-moved"})


def plain(value: Any) -> Any:
    """A value as the origin prints it: an entity as its id, times as ISO 8601 with milliseconds and Z."""
    if isinstance(value, dict):
        return value["id"]
    if isinstance(value, datetime.datetime):
        return value.astimezone(datetime.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    if isinstance(value, datetime.date):
        return value.isoformat()
    if isinstance(value, list):
        return [plain(v) for v in value]
    if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) > 2**53:
        return float(value)  # the origin adds integers up as floats
    return float(f"{value:.6g}") if isinstance(value, float) else value


def rows_of(rows: Any) -> list[dict[str, Any]]:
    return [{k: plain(v) for k, v in row.items()} for row in rows]


def cases() -> list[Any]:
    out = []
    for name in NAMES:
        for i, q in enumerate(expected(name)["queries"]):
            out.append(pytest.param(name, i, id=f"{name}-{i}-{q['query']}"))
    return out


@pytest.mark.parametrize(("name", "number"), cases())
def test_the_same_rows(untouched: Unpack, name: str, number: int) -> None:
    q = expected(name)["queries"][number]
    graph = omnigraph.open(untouched(name), read_only=True)
    at = q.get("at_commit") or q.get("snapshot")
    text, where = query_text(name, q["query"]), {"branch": q.get("branch", "main"), "at": at}
    if q["query"] == "blob_value":
        with pytest.raises(BadRequest, match="T24"):
            graph.query(text, q["params"], **where)
        return
    if "was not foun" in q.get("error", ""):
        with pytest.raises(NotFound, match="cleanup removed it") as caught:
            graph.query(text, q["params"], **where)
        assert caught.value.code == "version_removed"
        return
    if name == "schema" and "error" in q:
        # The origin reads an old commit with the schema of now, ours with that of its time.
        kind = "Species" if q["query"] == "all_v3" else "Plant"
        if f"node:{kind}" not in graph.snapshot(at=at).tables:
            with pytest.raises(LanguageError, match=f"unknown node type `{kind}`"):
                graph.query(text, q["params"], **where)
        else:
            assert len(graph.query(text, q["params"], **where)) == graph.snapshot(at=at).tables["node:Plant"].row_count
        return
    answer = rows_of(graph.query(text, q["params"], **where))
    if q["query"] == "into0":  # the origin's index was broken
        assert [row["p.slug"] for row in answer] == q["brute_force"]
        return
    theirs = rows_of(q["rows"])
    if "cosine" in q.get("brute_force", ()):  # exact, so the origin's index, which measures L2, isn't used
        assert [row["p.slug"] for row in answer] == q["brute_force"]["cosine"]
        return
    if q["query"] in RANKED:
        assert len(answer) == len(theirs)
        return
    if name in AFTER_SWEEP:
        assert len(answer) == len(theirs) // 2
        return
    if not q["ordered"]:
        answer, theirs = (sorted(rows, key=repr) for rows in (answer, theirs))
    assert answer == theirs


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_written(untouched: Unpack, name: str) -> None:
    root = untouched(name)
    before = fingerprint(root)
    graph = omnigraph.open(root, read_only=True)
    for branch in graph.branches.list():
        graph.commits(branch.name)
        for table in graph.snapshot(branch.name).tables:
            graph.snapshot(branch.name).scan(table)
    graph.verify()
    assert fingerprint(root) == before


@pytest.mark.parametrize("name", [n for n in NAMES if "crash" not in n])
def test_snapshot_history_and_export_of_every_branch(untouched: Unpack, name: str) -> None:
    graph = omnigraph.open(untouched(name), read_only=True)
    theirs = expected(name)
    assert {b.name for b in graph.branches.list()} == set(theirs["branches"])
    for branch, said in theirs["branches"].items():
        snapshot = graph.snapshot(branch)
        tables = {
            t["table_key"]: (t["table_path"], t["table_version"], t["table_branch"], t["row_count"])
            for t in said["snapshot"]["tables"]
        }
        assert {k: (r.location, r.version, r.branch, r.row_count) for k, r in snapshot.tables.items()} == tables
        commits = {c["graph_commit_id"]: c for c in said["commits"]["commits"]}
        mine = graph.commits(branch, limit=1000)
        assert {c.id for c in mine} == set(commits)
        for commit in mine:
            other = commits[commit.id]
            parents = (other["parent_commit_id"], other["merged_parent_commit_id"])
            assert commit.parents == tuple(p for p in parents if p)
            assert commit.actor == other["actor_id"]
        assert sorted(map(record, graph.export(branch=branch))) == sorted(map(record, said["export"]))


def record(line: str) -> str:
    """An exported record without what the two write differently: the id of a keyed node, the form of times."""
    data = json.loads(line)
    values = data["data"]
    if "type" in data and data["type"] not in ("Reading",):
        values.pop("id", None)
    return json.dumps({**data, "data": {k: exported(k, v) for k, v in values.items()}}, sort_keys=True)


DAYS = frozenset({"built", "built2", "days", "day", "since"})
TIMES = frozenset({"seen", "seen2", "taken"})


def exported(name: str, value: Any) -> Any:
    if name in DAYS and value is not None:
        return [exported(name, v) for v in value] if isinstance(value, list) else day(value)
    if name in TIMES and value is not None:
        return value.rstrip("Z").removesuffix(".000")
    if isinstance(value, list):
        return [exported(name, v) for v in value]
    if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 2**53:
        return f"{value:.6g}"  # 0 or 0.0, and as many digits as a float32 has
    return value


def day(value: Any) -> str:
    if isinstance(value, int):
        return (datetime.date(1970, 1, 1) + datetime.timedelta(days=value)).isoformat()
    return str(value)


def test_an_old_version_is_read_with_the_columns_it_had(untouched: Unpack) -> None:
    graph = omnigraph.open(untouched("schema"), read_only=True)
    present = graph.schema.catalog
    assert present.source == (Path(untouched("schema")) / "_schema.pg").read_text()
    first = graph.snapshot(at=graph.commits()[-1].id).catalog
    assert set(first.nodes) == {"Bed", "Plant"}
    assert set(first.nodes["Plant"].properties) == {"slug", "name", "height", "latin", "water"}
    assert first.nodes["Plant"].properties["water"].type.base == "String"  # it was an enum: no column tells
    # No row of GrowsIn tells what its source was at first; the rows of the first load do.
    assert "GrowsIn" not in first.edges
    loaded = graph.snapshot(at=graph.commits()[-2].id).catalog
    assert (loaded.edges["GrowsIn"].source, loaded.edges["GrowsIn"].target) == ("Plant", "Bed")


def test_a_moved_branch_reads_its_own_files_never_those_it_came_from(fresh: Unpack, tmp_path: Path) -> None:
    """Lance names the absolute place in every manifest of a branch."""
    root = fresh("branches")
    graph = omnigraph.open(root, read_only=True)
    for name in ("deep", "team/three-way", "bare"):
        for table in graph.snapshot(name).tables:
            dataset = graph.snapshot(name).dataset(table)
            for base in dataset.base_paths().values():
                assert base.path.startswith(str(root))
    assert parse_root(str(root)).uri == str(root)


def test_blobs_are_bytes_or_null(untouched: Unpack) -> None:
    graph = omnigraph.open(untouched("maintained"), read_only=True)
    snapshot = graph.snapshot()
    rows = snapshot.scan("node:File", ["id", "_rowid"]).to_pylist()
    ids = [r["_rowid"] for r in rows]
    named = dict(zip([r["id"] for r in rows], snapshot.blobs("node:File", "bytes", ids).to_pylist(), strict=True))
    hashes = {k: hashlib.sha256(v).hexdigest() for k, v in named.items() if v is not None}
    assert hashes == expected("maintained")["blobs_sha256"]
    assert named["f-null"] is None
    assert named["f-empty"] == b""
    thumbs = snapshot.blobs("node:File", "thumb", ids).to_pylist()
    assert sorted(t for t in thumbs if t is not None) == [b64decode("AAH/")]
