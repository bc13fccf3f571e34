"""Indexes of a branch. Derived state: a missing or partial one changes speed, never results (03 §3.5)."""

from __future__ import annotations

from typing import Any

from omnigraph.schema.catalog import SCALARS, Catalog, EdgeType, NodeType
from omnigraph.storage import Repository

__all__ = ["ensure_indices", "label", "wanted_indices"]


def wanted_indices(entity: NodeType | EdgeType) -> list[tuple[str, str]]:
    """(column, kind of index) of one table: `id`, an edge's ends, and what a key or `@index` names.

    Every scalar gets a BTREE, a String that `@index` names also an INVERTED one of its words, a Vector a VECTOR one.
    """
    columns = ["id", *(("src", "dst") if isinstance(entity, EdgeType) else ())]
    indexed = [name for index in entity.indexes for name in index]
    wanted = [(name, "BTREE") for name in columns]
    for name in dict.fromkeys([*entity.key, *indexed]):
        prop = entity.properties.get(name)
        if prop is None or prop.type.list:
            continue
        if prop.type.base in SCALARS:
            wanted.append((name, "BTREE"))
        if prop.type.base == "String" and name in indexed and name not in entity.key:
            wanted.append((name, "INVERTED"))
        if prop.type.base == "Vector":
            wanted.append((name, "VECTOR"))
    return wanted


def label(column: str, kind: str) -> str:
    """How reports name an index: by its column, and what it is for where that isn't comparing."""
    purpose = {"INVERTED": " (words)", "VECTOR": " (nearness)"}.get(kind, "")
    return f"{column}{purpose}"


def _all_wanted(catalog: Catalog) -> dict[str, list[tuple[str, str]]]:
    return {key: wanted_indices(entity) for key, entity in catalog.by_table_key.items()}


def ensure_indices(
    repository: Repository, *, branch: str = "main", actor: str | None = None, operation_id: str | None = None
) -> list[dict[str, Any]]:
    """Builds what is missing and extends what doesn't cover every row; doing it again builds nothing.

    Returns:
        One entry for each table of the branch: `table_key`, `rows`, `built` (columns indexed anew; `bio (words)` and
        `face (nearness)` are indexes for search), `extended`, `pending` (`column`, `reason`), `seconds`.

    Raises:
        NotFound: no such branch.
        Conflict: another write kept moving a table.
    """
    snapshot = repository.snapshot(branch)
    wanted = {key: columns for key, columns in _all_wanted(snapshot.catalog).items() if snapshot.count_rows(key)}
    report = repository.build_indices(branch, wanted, actor=actor, operation_id=operation_id)
    out = []
    for key in snapshot.catalog.by_table_key:
        mine = [one for one in report.built if one["table_key"] == key]
        out.append(
            {
                "table_key": key,
                "rows": snapshot.count_rows(key),
                "built": _labels(mine, "created"),
                "extended": _labels(mine, "extended"),
                "pending": [
                    {"column": label(one["column"], one["index_type"]), "reason": one["reason"]}
                    for one in report.pending
                    if one["table_key"] == key
                ],
                "seconds": round(sum(float(one["seconds"]) for one in mine), 3),
            }
        )
    return out


def _labels(built: list[dict[str, Any]], action: str) -> list[str]:
    return [label(one["column"], one["index_type"]) for one in built if one["action"] == action]
