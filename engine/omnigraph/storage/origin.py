"""What graphs written by the origin (omnigraph 0.7) lack: head rows in `__manifest`, and schemas by hash (01 §1.10).

Their newest commit is taken from the history. Their schema is the present `_schema.pg` where it fits the tables that a
snapshot pins; for versions from before the last schema apply it is derived from the tables' own columns, so enums are
Strings there, and keys and constraints are unknown. The first write of ours adds both; then nothing here is needed.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator, Mapping
from datetime import UTC
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.errors import Conflict, NotFound
from omnigraph.schema import compile_schema
from omnigraph.schema.catalog import Catalog, EdgeType
from omnigraph.storage.arrow import table_schema
from omnigraph.storage.layout import ACTORS, COMMITS, MAIN, lance_branch, quoted
from omnigraph.storage.schemas import write_schema
from omnigraph.storage.store import Store
from omnigraph.storage.translate import lance_errors
from omnigraph.storage.types import CommitInfo, TableRef

__all__ = ["adopt_schema", "catalog_of", "head_from_history"]

CATALOGS_KEPT = 64
_catalogs: dict[tuple[TableRef, ...], Catalog] = {}
_lock = threading.Lock()

_NAMES: dict[pa.DataType, str] = {
    pa.string(): "String",
    pa.bool_(): "Bool",
    pa.int32(): "I32",
    pa.int64(): "I64",
    pa.uint32(): "U32",
    pa.uint64(): "U64",
    pa.float32(): "F32",
    pa.float64(): "F64",
    pa.date32(): "Date",
    pa.date64(): "DateTime",
}


# --- the head -------------------------------------------------------------------------------------------------------


def head_from_history(
    store: Store, branches: Mapping[str, Mapping[str, Any]], branch: str, version: int
) -> CommitInfo | None:
    """The newest commit of a branch that a manifest version holds, as `_graph_commits` knows it.

    Args:
        branches: Lance's record of every branch of `__manifest`; a branch without a commit table reads its parent's.
    """
    lineage = branch
    while lance_branch(lineage) is not None and store.latest_or_none(COMMITS, lineage) is None:
        version = min(version, branches[lineage]["parent_version"]) if lineage in branches else version
        lineage = (branches.get(lineage) or {}).get("parent_branch") or MAIN
    with lance_errors("reading the commit history"):
        rows = store.latest(COMMITS, lineage).scanner(filter=f"manifest_version <= {version}").to_table().to_pylist()
        if not rows:
            return None
        row = max(rows, key=lambda r: (r["manifest_version"], r["created_at"], r["graph_commit_id"]))
        actors = store.latest(ACTORS).scanner(filter=f"graph_commit_id = {quoted(row['graph_commit_id'])}").to_table()
    return CommitInfo(
        id=row["graph_commit_id"],
        branch=row["manifest_branch"] or MAIN,
        manifest_version=row["manifest_version"],
        parents=tuple(p for p in (row["parent_commit_id"], row["merged_parent_commit_id"]) if p),
        created_at=row["created_at"].replace(tzinfo=UTC),
        actor=actors["actor_id"][0].as_py() if actors.num_rows else None,
    )


# --- the schema -----------------------------------------------------------------------------------------------------


def catalog_of(store: Store, tables: Mapping[str, TableRef]) -> Catalog:
    """The schema of a snapshot whose commit names none."""
    key = tuple(sorted(tables.values(), key=lambda ref: ref.table_key))
    with _lock:
        known = _catalogs.get(key)
    if known is not None:
        return known
    columns = _columns(store, tables)
    catalog = next((c for c in _accepted(store) if fits(c, columns)), None)
    if catalog is None:
        text = _derived(store, tables, columns, _accepted(store))
        catalog = compile_schema(text, file="<the tables>", accepted=True)
    with _lock:
        _catalogs[key] = catalog
        while len(_catalogs) > CATALOGS_KEPT:
            _catalogs.pop(next(iter(_catalogs)))
    return catalog


def adopt_schema(store: Store, tables: Mapping[str, TableRef]) -> str:
    """Before the first write: keep the present schema by its hash.

    Returns:
        The hash, for the commit.

    Raises:
        Conflict: the tables have other columns than `_schema.pg` says.
    """
    catalog = next(_accepted(store))
    if not fits(catalog, _columns(store, tables)):
        raise Conflict(
            "the tables of this graph don't have the columns that its _schema.pg declares (an interrupted schema "
            "apply?): finish it with the version of omnigraph that began it; or export, and load into a new graph",
            code="schema_mismatch",
        )
    write_schema(store.files, catalog)
    return catalog.hash


def _accepted(store: Store) -> Iterator[Catalog]:
    """The schemas this root holds, the present one first."""
    yield compile_schema(store.files.read("_schema.pg").decode(), file="_schema.pg", accepted=True)
    for name in store.files.list("_schemas"):
        source = store.files.read(f"_schemas/{name}")
        if f"{hashlib.sha256(source).hexdigest()}.pg" == name:
            yield compile_schema(source.decode(), file=f"_schemas/{name}", accepted=True)


def _columns(store: Store, tables: Mapping[str, TableRef]) -> dict[str, pa.Schema | None]:
    """The columns of every table; None where cleanup removed the version, which only its own readers must hear."""
    out: dict[str, pa.Schema | None] = {}
    for key, ref in tables.items():
        try:
            out[key] = store.pinned(ref).schema
        except NotFound:
            out[key] = None
    return out


def fits(catalog: Catalog, columns: Mapping[str, pa.Schema | None]) -> bool:
    """Whether the tables have exactly the columns that the schema declares, in any order."""
    if catalog.by_table_key.keys() != columns.keys():
        return False
    return all(
        schema is None or _shape(table_schema(catalog.by_table_key[key])) == _shape(schema)
        for key, schema in columns.items()
    )


def _shape(schema: pa.Schema) -> dict[str, tuple[str, bool]]:
    # Extension types of equal meaning aren't equal objects, but have one name.
    return {field.name: (str(field.type), field.nullable) for field in schema}


def _derived(
    store: Store, tables: Mapping[str, TableRef], columns: Mapping[str, pa.Schema | None], accepted: Iterator[Catalog]
) -> str:
    """A schema text made of the tables' columns. An edge type whose ends can't be told is left out."""
    present = next(accepted)
    lines = []
    for key in sorted(tables, key=lambda k: (not k.startswith("node:"), k)):
        kind, _, name = key.partition(":")
        schema = columns[key]
        if schema is None:
            continue
        properties = " ".join(
            f"{f.name}: {written}{'?' if f.nullable else ''}"
            for f in schema
            if f.name not in (("id",) if kind == "node" else ("id", "src", "dst"))
            and (written := _written(f.type)) is not None
        )
        ends = ""
        if kind == "edge":
            known = present.edges.get(name)
            pair = [_end(store, tables, columns, key, column, known) for column in ("src", "dst")]
            if None in pair:
                continue
            ends = f": {pair[0]} -> {pair[1]}"
        lines.append(f"{kind} {name}{ends} {{ {properties} }}")
    return "\n".join(lines) + "\n"


def _written(type_: pa.DataType) -> str | None:
    """The type as a schema writes it; None for one that no schema can declare."""
    if "blob" in str(type_).lower():
        return "Blob"
    if pa.types.is_fixed_size_list(type_) and type_.value_type == pa.float32():
        return f"Vector({type_.list_size})"
    if pa.types.is_list(type_):
        element = _NAMES.get(type_.value_type)
        return f"[{element}]" if element else None
    return _NAMES.get(type_)


def _end(
    store: Store,
    tables: Mapping[str, TableRef],
    columns: Mapping[str, pa.Schema | None],
    edge: str,
    column: str,
    known: EdgeType | None,
) -> str | None:
    """The node type at an end: the declared one if it was there already, else the one type that holds all its ids."""
    if known is not None:
        name = known.source if column == "src" else known.target
        if f"node:{name}" in tables:
            return name
    with lance_errors(f"reading the ends of {edge}"):
        ids = pc.unique(store.pinned(tables[edge]).to_table(columns=[column])[column])
        if not len(ids):
            return None
        found = []
        for key, ref in tables.items():
            if key.startswith("node:") and columns[key] is not None:
                there = store.pinned(ref).to_table(columns=["id"])["id"].combine_chunks()
                if pc.all(pc.is_in(ids, value_set=there)).as_py():
                    found.append(key.removeprefix("node:"))
    return found[0] if len(found) == 1 else None
