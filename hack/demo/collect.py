"""This Python environment as graph data, through `importlib.metadata`: what is installed, its files, what needs what.

Writes two files into a folder:

- `packages.ndjson`: every node and edge but files, one record a line.
- `files.parquet`: one row a file: `distribution, full_path: string, size: int64, suffix, hash: string`.

Both are the same bytes for the same environment, so a second run changes nothing and loads nothing again.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator
from email.message import Message
from email.utils import getaddresses
from importlib.metadata import Distribution, distributions
from pathlib import Path, PurePosixPath
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

Record = dict[str, Any]

_EXTRA = re.compile(r"""extra\s*==\s*['"]([^'"]+)['"]""")
_FIELDS: list[pa.Field[Any]] = [
    pa.field("distribution", pa.string(), nullable=False),
    pa.field("full_path", pa.string(), nullable=False),
    pa.field("size", pa.int64()),
    pa.field("suffix", pa.string()),
    pa.field("hash", pa.string()),
]
_FILES = pa.schema(_FIELDS)


def collect(folder: Path) -> dict[str, int]:
    """Write the two files; return how many rows each kind of record has."""
    found: dict[str, Distribution] = {
        canonicalize_name(d.name): d for d in sorted(distributions(), key=lambda d: (d.name, d.version))
    }
    records = list(_packages(found))
    files = _files(found)
    folder.mkdir(parents=True, exist_ok=True)
    _replace(folder / "packages.ndjson", "".join(json.dumps(r, ensure_ascii=False) + "\n" for r in records).encode())
    sink = pa.BufferOutputStream()
    pq.write_table(files, sink, compression="zstd")
    _replace(folder / "files.parquet", sink.getvalue().to_pybytes())
    counts: dict[str, int] = {}
    for record in records:
        kind = record.get("type") or record["edge"]
        counts[kind] = counts.get(kind, 0) + 1
    return counts | {"File": files.num_rows, "ContainsFile": files.num_rows}


def _replace(path: Path, data: bytes) -> None:
    """Write only when the content differs, and never half a file."""
    if path.exists() and path.read_bytes() == data:
        return
    temporary = path.with_suffix(path.suffix + ".tmp")
    temporary.write_bytes(data)
    temporary.replace(path)


def _packages(found: dict[str, Distribution]) -> Iterator[Record]:
    """Nodes first, then edges; each node once."""
    requirements = list({(name, str(r)): (name, r) for name, d in found.items() for r in _requirements(d)}.values())
    for name, d in found.items():
        yield {"type": "Distribution", "data": _distribution(name, d)}
    for name in sorted({canonicalize_name(r.name) for _, r in requirements} - found.keys()):
        yield {"type": "Distribution", "data": {"name": name, "installed": False}}

    nodes: dict[tuple[str, str], Record] = {}
    edges: list[Record] = []
    for name, d in found.items():
        for node_type, edge_type, key, data in _parts(name, d):
            nodes.setdefault((node_type, key), {"type": node_type, "data": data})
            edges.append({"edge": edge_type, "from": name, "to": key})
    yield from nodes.values()
    for name, r in requirements:
        marker = str(r.marker) if r.marker else None
        extra = _EXTRA.search(marker or "")
        data = {
            "text": str(r),
            "specifier": str(r.specifier) or None,
            "marker": marker,
            "extra": extra[1] if extra else None,
        }
        yield {"edge": "Requires", "from": name, "to": canonicalize_name(r.name), "data": data}
    yield from edges


def _distribution(name: str, d: Distribution) -> Record:
    meta = cast("Message", d.metadata)
    licence: str | None = meta.get("License-Expression") or (meta.get("License") or "").strip().split("\n")[0][:80]
    if not licence:
        named = [c.rsplit(" :: ", 1)[1] for c in meta.get_all("Classifier", []) if c.startswith("License :: ")]
        licence = named[0] if named else None
    return {
        "name": name,
        "version": d.version,
        "installed": True,
        "summary": meta.get("Summary"),
        "licence": licence,
        "requires_python": meta.get("Requires-Python"),
        "home_page": meta.get("Home-page"),
    }


def _requirements(d: Distribution) -> Iterator[Requirement]:
    for text in d.requires or ():
        try:
            yield Requirement(text)
        except InvalidRequirement:
            print(f"{d.name}: requirement not understood, left out: {text!r}")


def _parts(name: str, d: Distribution) -> Iterator[tuple[str, str, str, Record]]:
    """(node type, edge type, key, data) of everything a distribution brings but its files."""
    for module in _modules(d):
        yield "Module", "Provides", module, {"name": module}
    seen: set[str] = set()
    for point in d.entry_points:
        ref = f"{name}/{point.group}/{point.name}"
        if ref not in seen:
            seen.add(ref)
            data = {"ref": ref, "group": point.group, "name": point.name, "target": point.value}
            yield "EntryPoint", "Offers", ref, data
    for text in dict.fromkeys(cast("Message", d.metadata).get_all("Classifier", [])):
        yield "Classifier", "ClassifiedAs", text, {"name": text, "area": text.split(" :: ", 1)[0]}
    for author in _authors(d):
        yield "Author", "WrittenBy", author, {"name": author}


def _modules(d: Distribution) -> Iterable[str]:
    """Top-level names that `import` finds, in order, each once."""
    names = dict.fromkeys(
        PurePosixPath(f).parts[0].removesuffix(".py")
        for f in d.files or ()
        if f.suffix == ".py" and not f.parts[0].startswith("..")
    )
    return [n for n in names if n.isidentifier()]


def _authors(d: Distribution) -> Iterable[str]:
    meta = cast("Message", d.metadata)
    plain = [n.strip() for field in ("Author", "Maintainer") for n in (meta.get(field) or "").split(",")]
    mails = getaddresses([meta.get("Author-email") or "", meta.get("Maintainer-email") or ""])
    return dict.fromkeys(n for n in [*plain, *(name for name, _ in mails)] if n and len(n) < 80)


def _files(found: dict[str, Distribution]) -> pa.Table:
    """One row a file; a path that two distributions name belongs to the first."""
    rows: dict[str, tuple[str, str, int | None, str | None, str | None]] = {}
    for name, d in found.items():
        for f in d.files or ():
            path = str(f)
            if path not in rows:
                size = f.size
                if size is None:
                    try:
                        size = os.stat(f.locate()).st_size
                    except OSError:  # recorded, but no longer there
                        size = None
                rows[path] = (name, path, size, f.suffix or None, f.hash.value if f.hash else None)
    columns = list(zip(*rows.values(), strict=True))
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, _FILES, strict=True)], schema=_FILES)
