"""The accepted schemas under a graph's root and the catalogs compiled from them (01 §1.1, 07 §8)."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import threading
from typing import Any

from omnigraph.errors import Internal
from omnigraph.schema.catalog import Catalog
from omnigraph.storage.files import Files
from omnigraph.storage.layout import schema_file

__all__ = ["catalog_ir", "copies_current", "load_catalog", "remember", "schema_state", "write_copies", "write_schema"]

CATALOGS_KEPT = 64
_catalogs: dict[str, Catalog] = {}
_lock = threading.Lock()


def remember(catalog: Catalog) -> None:
    """Keep a compiled catalog; it is found again by its hash, whatever the graph."""
    with _lock:
        _catalogs[catalog.hash] = catalog
        while len(_catalogs) > CATALOGS_KEPT:
            _catalogs.pop(next(iter(_catalogs)))


def load_catalog(files: Files, schema_hash: str) -> Catalog:
    """The catalog of an accepted schema.

    Raises:
        Internal: the kept source doesn't have the hash it is named by.
    """
    with _lock:
        known = _catalogs.get(schema_hash)
    if known is not None:
        return known
    from omnigraph.schema import compile_schema  # the grammar is loaded where it is first needed

    name = schema_file(schema_hash)
    source = files.read(name)
    if hashlib.sha256(source).hexdigest() != schema_hash:
        raise Internal(f"{name} was changed after it was accepted: its content has another hash than its name")
    catalog = compile_schema(source.decode(), file=name)
    remember(catalog)
    return catalog


def catalog_ir(catalog: Catalog) -> str:
    """The catalog as canonical JSON: keys sorted, the source left out. Types keep their declaration order."""
    body = {
        "ir_version": 1,
        "nodes": [_plain(n) for n in catalog.nodes.values()],
        "edges": [_plain(e) for e in catalog.edges.values()],
    }
    return json.dumps(body, sort_keys=True, indent=1, default=str)


def _plain(entity: Any) -> dict[str, Any]:
    fields = {f.name: getattr(entity, f.name) for f in dataclasses.fields(entity)}
    fields["properties"] = [dataclasses.asdict(p) for p in entity.properties.values()]
    for name in ("ranges", "checks"):
        if name in fields:
            fields[name] = [dataclasses.asdict(v) for v in fields[name]]
    if "cardinality" in fields:
        fields["cardinality"] = dataclasses.asdict(fields["cardinality"])
    return fields


def schema_state(catalog: Catalog) -> str:
    ir_hash = hashlib.sha256(catalog_ir(catalog).encode()).hexdigest()
    state = {"format_version": 1, "schema_hash": catalog.hash, "schema_ir_hash": f"sha256:{ir_hash}"}
    return json.dumps(state, sort_keys=True, indent=1)


def write_schema(files: Files, catalog: Catalog) -> None:
    """Keep the source by its hash, before anything refers to it."""
    source = catalog.source.encode()
    if hashlib.sha256(source).hexdigest() != catalog.hash:
        raise Internal("the catalog's hash isn't that of its source")
    files.write(schema_file(catalog.hash), source)


def write_copies(files: Files, catalog: Catalog) -> None:
    """The copies that people and other tools read. They follow the head row and are derived from it."""
    files.write("_schema.pg", catalog.source.encode())
    files.write("_schema.ir.json", catalog_ir(catalog).encode())
    files.write("__schema_state.json", schema_state(catalog).encode())


def copies_current(files: Files, schema_hash: str) -> bool:
    """Whether the copies follow this schema. The state file is written last, so it speaks for the others."""
    if not files.exists("__schema_state.json"):
        return False
    state = json.loads(files.read("__schema_state.json"))
    # A graph of another maker has no schema_hash in it: its files are left as they are.
    return isinstance(state, dict) and state.get("schema_hash", schema_hash) == schema_hash
