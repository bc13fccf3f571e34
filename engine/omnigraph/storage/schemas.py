"""The accepted schemas under a graph's root, and what is compiled from them (01 §1.1, 07 §8).

The authority is the head row: `schema_hash` names the text in `_schemas/{hash}.pg`, `schema_ir` the ids of its types
and properties in `_schemas/{identity}.ir.json`. One text may come with several ids, because what was dropped and added
again is something new; so each file is named by its own content. A head of an older graph names no IR: its ids are
those that the text gives by itself.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from omnigraph.errors import Internal
from omnigraph.schema.catalog import Catalog
from omnigraph.schema.ir import SchemaIR, ir_of
from omnigraph.storage.files import Files
from omnigraph.storage.layout import ir_file, schema_file

__all__ = [
    "clear_staged",
    "compiling_beside",
    "copies_current",
    "copies_follow",
    "load_catalog",
    "load_ir",
    "remember",
    "stage_copies",
    "staged_copies",
    "write_copies",
    "write_schema",
]

CATALOGS_KEPT = 64
IRS_KEPT = 64
STAGED = ".staging"
_SOURCE, _IR, _STATE = "_schema.pg", "_schema.ir.json", "__schema_state.json"

_catalogs: dict[str, Catalog] = {}
_irs: dict[str, SchemaIR] = {}
_lock = threading.Lock()


# --- the authority ---------------------------------------------------------------------------------------------------


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
    catalog = compile_schema(_read(files, name, schema_hash).decode(), file=name, accepted=True)
    remember(catalog)
    return catalog


@contextmanager
def compiling_beside(files: Files) -> Iterator[None]:
    """Compile the copy of main's schema in a thread meanwhile: the authority's text is found by the same hash.

    Whatever is wrong with the copy is left to those who read the authority.
    """

    def compile_copy() -> None:
        with suppress(Exception):
            source = files.read(_SOURCE)
            with _lock:
                known = hashlib.sha256(source).hexdigest() in _catalogs
            if not known:
                from omnigraph.schema import compile_schema

                remember(compile_schema(source.decode(), accepted=True))

    thread = threading.Thread(target=compile_copy, name="omnigraph-schema", daemon=True)
    thread.start()
    try:
        yield
    finally:
        thread.join()


def load_ir(files: Files, catalog: Catalog, identity: str | None) -> SchemaIR:
    """The ids of a schema's types and properties.

    Args:
        catalog: the schema.
        identity: what the head row names; None: the ids that the text gives by itself.

    Raises:
        Internal: the kept file doesn't have the hash it is named by.
        MalformedIR: a newer version of the product wrote it.
    """
    key = identity or f"text:{catalog.hash}"
    with _lock:
        known = _irs.get(key)
    if known is None:
        known = ir_of(catalog) if identity is None else SchemaIR.from_json(_read(files, ir_file(identity), identity))
        with _lock:
            _irs[key] = known
            while len(_irs) > IRS_KEPT:
                _irs.pop(next(iter(_irs)))
    return known


def _read(files: Files, name: str, digest: str) -> bytes:
    content = files.read(name)
    if hashlib.sha256(content).hexdigest() != digest:
        raise Internal(f"{name} was changed after it was accepted: its content has another hash than its name")
    return content


def write_schema(files: Files, catalog: Catalog, ir: SchemaIR | None = None) -> None:
    """Keep the source by its hash, and the ids by theirs, before anything refers to them."""
    source = catalog.source.encode()
    if hashlib.sha256(source).hexdigest() != catalog.hash:
        raise Internal("the catalog's hash isn't that of its source")
    files.write(schema_file(catalog.hash), source)
    if ir is not None:
        files.write(ir_file(ir.identity), ir.to_json().encode())


# --- the copies that people and other tools read ----------------------------------------------------------------------


def _copies(catalog: Catalog, ir: SchemaIR) -> dict[str, bytes]:
    """The state comes last, so that it speaks for the others."""
    return {
        _SOURCE: catalog.source.encode(),
        _IR: ir.to_json().encode(),
        _STATE: json.dumps(_state(catalog.hash, ir.identity), sort_keys=True, indent=1).encode(),
    }


def _state(schema_hash: str, identity: str) -> dict[str, Any]:
    return {"format_version": 2, "schema_hash": schema_hash, "schema_ir_hash": f"sha256:{identity}"}


def write_copies(files: Files, catalog: Catalog, ir: SchemaIR) -> None:
    """They follow main's head row and are derived from it."""
    for name, content in _copies(catalog, ir).items():
        files.write(name, content)


def copies_follow(files: Files, schema_hash: str | None, identity: str | None) -> bool:
    """Whether the copies are known to follow a head row; False too where it takes more than their state to tell."""
    if schema_hash is None or identity is None or not files.exists(_STATE):
        return False
    return bool(json.loads(files.read(_STATE)) == _state(schema_hash, identity))


def copies_current(files: Files, catalog: Catalog, ir: SchemaIR) -> bool:
    """Whether the copies follow this schema. Those of another maker are left as they are while they do."""
    if not files.exists(_STATE):
        return False
    state = json.loads(files.read(_STATE))
    if isinstance(state, dict) and "schema_hash" in state:
        return bool(state == _state(catalog.hash, ir.identity))
    return files.exists(_SOURCE) and hashlib.sha256(files.read(_SOURCE)).hexdigest() == catalog.hash


def stage_copies(files: Files, catalog: Catalog, ir: SchemaIR) -> None:
    """Lay the copies of a schema that is about to be accepted beside the present ones."""
    for name, content in _copies(catalog, ir).items():
        files.write(name + STAGED, content)


def staged_copies(files: Files, catalog: Catalog, ir: SchemaIR) -> bool:
    """Whether the copies of just this schema lie there whole."""
    return all(
        files.exists(name + STAGED) and files.read(name + STAGED) == content
        for name, content in _copies(catalog, ir).items()
    )


def clear_staged(files: Files) -> None:
    """Remove staged copies; the state goes first, so that half of them never looks whole."""
    for name in (_STATE, _IR, _SOURCE):
        files.delete(name + STAGED)
