"""Export and load again: whatever a graph holds, its copy holds the same rows, ids and bytes and exports the same."""

from __future__ import annotations

import datetime as dt
import json
import tempfile
from base64 import b64encode
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st

import omnigraph
from omnigraph import BadRequest, Graph
from omnigraph.cli.main import main
from omnigraph.write import exporter

EDGE_TEXTS = [
    "",
    " ",
    "a",
    "null",
    "-0",
    "NaN",
    '"\\',
    "\x00\x01\x1f\x7f",
    "\u2028\u2029",
    "ﬁ\u0301é",
    "👩‍👩‍👧",
    "\r\n\t",
    "//",
    "]",
    "base64:AA==",
]
INTEGERS = {"I32": (-(2**31), 2**31 - 1), "I64": (-(2**63), 2**63 - 1), "U32": (0, 2**32 - 1), "U64": (0, 2**64 - 1)}
DATES = [dt.date(1, 1, 1), dt.date(1582, 10, 4), dt.date(1969, 12, 31), dt.date(2000, 2, 29), dt.date(9999, 12, 31)]
TIMES = [
    dt.datetime(1, 1, 1, tzinfo=dt.UTC),
    dt.datetime(1969, 12, 31, 23, 59, 59, 999_000, tzinfo=dt.UTC),
    dt.datetime(2026, 3, 29, 1, 30, 0, 1_000, tzinfo=dt.UTC),
    dt.datetime(9999, 12, 31, 23, 59, 59, 999_000, tzinfo=dt.UTC),
]
FLOATS = [0.0, -0.0, 1.0, 0.1, 1e22, -1e-7, 123456789.0, 2.0**53 + 2]


def values(base: str) -> st.SearchStrategy[Any]:
    if base == "String":
        return st.sampled_from(EDGE_TEXTS) | st.text(st.characters(exclude_categories=("Cs",)), max_size=8)
    if base in INTEGERS:
        low, high = INTEGERS[base]
        return st.sampled_from([low, high, 0, 1]) | st.integers(low, high)
    if base == "F64":
        return st.sampled_from([*FLOATS, 5e-324, 1.7976931348623157e308]) | st.floats(
            allow_nan=False, allow_infinity=False
        )
    if base == "F32":
        plain = st.floats(allow_nan=False, allow_infinity=False, width=32)
        return st.sampled_from([0.0, -0.0, 1.0, 0.5, 2.0**24, 2.0**-149]) | plain
    return {
        "Bool": st.booleans(),
        "Date": st.sampled_from(DATES) | st.dates(),
        "DateTime": st.sampled_from(TIMES),
        "enum(red, green)": st.sampled_from(["red", "green"]),
        "Blob": st.sampled_from([b"", b"\x00", bytes(range(256)) * 40]) | st.binary(max_size=20),
        "Vector(3)": st.sampled_from([[1.0, -0.0, 0.5], [1e-30, 3e38, 0.1], [0.1, 0.2, 0.3]]),
    }[base]


SCALARS = ["String", "Bool", "F32", "F64", "Date", "DateTime", "enum(red, green)", *INTEGERS]
KEYS = ["String", "I64", "U64", "I32", "Bool", "Date", "DateTime", "enum(red, green)"]


@st.composite
def properties(draw: st.DrawFn, prefix: str) -> dict[str, str]:
    bases = draw(st.lists(st.sampled_from([*SCALARS, "Blob", "Vector(3)"]), max_size=5))
    out = {}
    for i, base in enumerate(bases):
        kind = f"[{base}]" if base in SCALARS and draw(st.booleans()) and not base.startswith("enum") else base
        out[f"{prefix}{i}"] = kind + draw(st.sampled_from(["", "?", "?"]))
    return out


def record(props: dict[str, str]) -> st.SearchStrategy[dict[str, Any]]:
    """Values of some of the properties, and of all that must have one."""
    must, may = {}, {}
    for name, kind in props.items():
        base = kind.rstrip("?")
        one = st.lists(values(base[1:-1]), max_size=3) if base.startswith("[") else values(base)
        (may if kind.endswith("?") else must)[name] = st.none() | one if kind.endswith("?") else one
    return st.fixed_dictionaries(must, optional=may)


def plain(value: Any) -> Any:
    """A value as a record writes it."""
    if isinstance(value, list):
        return [plain(v) for v in value]
    if isinstance(value, bytes):
        return f"base64:{b64encode(value).decode()}"
    return value.isoformat() if isinstance(value, dt.date) else value


@st.composite
def graphs(draw: st.DrawFn) -> tuple[str, list[dict[str, Any]], list[dict[str, Any]]]:
    """A schema, its records, and records that are merged later."""
    nodes: dict[str, tuple[dict[str, str], list[str]]] = {}
    for i in range(draw(st.integers(1, 3))):
        keys = {f"k{j}": draw(st.sampled_from(KEYS)) for j in range(draw(st.integers(0, 2)))}
        nodes[f"N{i}"] = ({"label": "String?"} | keys | draw(properties("p")), list(keys))
    lines = ["interface Named { label: String? }"]
    for name, (props, key) in nodes.items():
        text = "  ".join(f"{n}: {t}" for n, t in props.items() if n != "label")
        unique = f"@key({', '.join(key)})" if key else ""
        lines.append(f"node {name} implements Named {{ {text} {unique} }}")
    records: list[dict[str, Any]] = []
    ends: dict[str, list[Any]] = {}
    for name, (props, key) in nodes.items():
        rows = draw(st.lists(record(props), max_size=4))
        for i, row in enumerate(rows):
            end = [plain(row[k]) for k in key] if key else f"{name} {i} é"
            end = end[0] if len(key) == 1 else end
            if end in ends.setdefault(name, []):
                continue
            ends[name].append(end)
            records.append({"type": name, "data": row if key else row | {"id": end}})
    for i in range(draw(st.integers(0, 2))):
        source, target = draw(st.sampled_from(list(nodes))), draw(st.sampled_from(list(nodes)))
        props, keyed = draw(properties("e")), draw(st.booleans())
        text = "  ".join(f"{n}: {t}" for n, t in props.items())
        lines.append(f"edge E{i}: {source} -> {target} {{ {text} {'@key(src, dst)' if keyed else ''} }}")
        if not ends.get(source) or not ends.get(target):
            continue
        places = st.tuples(st.integers(0, len(ends[source]) - 1), st.integers(0, len(ends[target]) - 1))
        for j, (a, b) in enumerate(draw(st.lists(places, max_size=4, unique=keyed))):
            own = {"id": f"edge {j}"} if not keyed and draw(st.booleans()) else {}
            at = {"from": ends[source][a], "to": ends[target][b]}
            records.append({"edge": f"E{i}", **at, "data": draw(record(props)) | own})
    later = draw(st.lists(st.sampled_from(records), max_size=2)) if records else []
    return "\n".join(lines), records, later


def ndjson(records: list[dict[str, Any]]) -> str:
    def data(given: dict[str, Any]) -> dict[str, Any]:
        return {name: plain(value) for name, value in given.items()}

    return "\n".join(json.dumps(r | {"data": data(r["data"])}, ensure_ascii=len(r) % 2 == 0) for r in records)


def content(graph: Graph, at: dict[str, Any]) -> dict[str, list[str]]:
    """Every row, by id, to the bit."""
    snapshot = graph.snapshot(**at)
    out = {}
    for key, entity in snapshot.catalog.by_table_key.items():
        rows = snapshot.scan(key, [*snapshot.schema(key).names, "_rowid"]).to_pylist()
        for prop in entity.properties.values():
            if prop.type.base == "Blob":
                numbers = pa.array([r["_rowid"] for r in rows], pa.uint64())
                for row, data in zip(rows, snapshot.blobs(key, prop.name, numbers).to_pylist(), strict=True):
                    row[prop.name] = data
        for row in rows:
            del row["_rowid"]
        out[key] = [repr(row) for row in sorted(rows, key=lambda r: str(r["id"]))]
    return out


def as_stored(entity: Any, rows: list[dict[str, Any]]) -> list[str]:
    """Values in one form, whether they were given or exported."""

    def one(value: Any, base: str) -> Any:
        if isinstance(value, list):
            return [one(v, "F32" if base == "Vector" else base) for v in value]
        if value is None or base == "Blob":
            return plain(value)
        if base == "DateTime":
            return value if isinstance(value, dt.datetime) else dt.datetime.fromisoformat(value)
        if base == "Date":
            return str(value)
        return float(np.float32(value)) if base == "F32" else float(value) if base == "F64" else value

    return sorted(repr([one(row.get(n), p.type.base) for n, p in entity.properties.items()]) for row in rows)


def copied(schema: str, lines: list[str], folder: str, name: str) -> Graph:
    graph = omnigraph.init(Path(folder) / name, schema=schema)
    graph.load("\n".join(lines) + "\n")
    return graph


@settings(max_examples=15, deadline=None, phases=[Phase.reuse, Phase.generate], suppress_health_check=list(HealthCheck))
@given(graphs())
def test_a_copy_is_equal_and_exports_the_same_text(
    made: tuple[str, list[dict[str, Any]], list[dict[str, Any]]],
) -> None:
    """Of a branch, and of an old commit of main that has changed since."""
    schema, records, later = made
    note(f"{schema}\n{ndjson(records)}\n--\n{ndjson(later)}")
    with tempfile.TemporaryDirectory() as folder:
        graph = omnigraph.init(Path(folder) / "g", schema=schema)
        if records:
            graph.load(ndjson(records))
        for entity in graph.schema.catalog.by_table_key.values():  # what was given is what is there
            mine = [r["data"] for r in records if entity.name in (r.get("type"), r.get("edge"))]
            rows = [json.loads(line)["data"] for line in graph.export(types=entity.name)]
            assert as_stored(entity, rows) == as_stored(entity, mine)
        old = graph.head().id
        graph.branches.create("draft")
        if later:
            graph.load(ndjson(later), mode="merge", branch="draft")
        graph.mutate("query q() { delete N0 where true }")
        graph.optimize()
        for i, at in enumerate(({"branch": "draft"}, {"at": old}, {"branch": "main"})):
            lines = list(graph.export(**at))
            copy = copied(schema, lines, folder, f"copy{i}")
            assert content(copy, {}) == content(graph, at)
            assert list(copy.export()) == lines
            assert copy.verify().ok
            copy.close()  # else the history's rows may come while the folder goes
        graph.close()


def test_a_record_that_no_load_would_read_is_not_exported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = omnigraph.init(tmp_path / "g", schema="node P { k: String @key  a: Blob?  b: Blob?  t: String? }")
    graph.load({"P": pa.table({"k": ["fits", "long"], "a": [b"x" * 300] * 2, "b": [None, b"y" * 300]})})
    monkeypatch.setattr(exporter, "LINE_MAX_BYTES", 700)
    with pytest.raises(
        BadRequest, match=r"P 'long': its record would have 800 bytes.* at most 700.*blob get"
    ) as caught:
        list(graph.export())
    assert caught.value.code == "record_too_long"
    assert main(["export", graph.uri, "-o", str(tmp_path / "out.ndjson")]) == 1
    assert list(tmp_path.glob("out*")) == []
    graph.load({"P": pa.table({"k": ["long"], "a": [None], "b": [None], "t": ["z" * 700]})}, mode="merge")
    with pytest.raises(BadRequest, match="P 'long': its record would have 7"):
        list(graph.export())


def test_rows_are_written_a_bounded_amount_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = omnigraph.init(tmp_path / "g", schema="node P { k: String @key  t: String? }")
    texts = {f"p{i:03}": "é" * (i % 7 * 100) for i in range(300)}
    graph.load({"P": pa.table({"k": list(texts), "t": list(texts.values())})})
    whole = list(graph.export())
    for size in (1, 5000):
        monkeypatch.setattr(exporter, "PIECE_BYTES", size)
        assert list(graph.export()) == whole
    assert {json.loads(line)["data"]["k"]: json.loads(line)["data"]["t"] for line in whole} == texts
