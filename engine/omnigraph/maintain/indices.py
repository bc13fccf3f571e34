"""Indexes of a branch. Derived state: a missing or partial one changes speed, never results (03 §3.5)."""

from __future__ import annotations

from typing import Any

from omnigraph.schema.catalog import SCALARS, Catalog, EdgeType, NodeType
from omnigraph.storage import Repository

__all__ = ["ensure_indices", "wanted_indices"]


def wanted_indices(entity: NodeType | EdgeType) -> list[tuple[str, str]]:
    """(column, index type) of one table: `id`, an edge's ends, and each scalar that a key or `@index` names."""
    columns = ["id", *(("src", "dst") if isinstance(entity, EdgeType) else ())]
    declared = [*entity.key, *(name for index in entity.indexes for name in index)]
    for name in declared:
        prop = entity.properties.get(name)
        if prop is not None and not prop.type.list and prop.type.base in SCALARS:
            columns.append(name)
    return [(name, "BTREE") for name in dict.fromkeys(columns)]


def _all_wanted(catalog: Catalog) -> dict[str, list[tuple[str, str]]]:
    return {key: wanted_indices(entity) for key, entity in catalog.by_table_key.items()}


def ensure_indices(
    repository: Repository, *, branch: str = "main", actor: str | None = None, operation_id: str | None = None
) -> list[dict[str, Any]]:
    """Builds what is missing and extends what doesn't cover every row; doing it again builds nothing.

    Returns:
        One entry for each table of the branch: `table_key`, `rows`, `built` (columns indexed anew), `extended`,
        `seconds`.

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
                "built": [one["column"] for one in mine if one["action"] == "created"],
                "extended": [one["column"] for one in mine if one["action"] == "extended"],
                "seconds": round(sum(float(one["seconds"]) for one in mine), 3),
            }
        )
    return out
