"""Which record a merged row has a value from: of several records of one id the last that mentions the property.

A merged row bears the place of its id's last record. What is wrong with a value is said of the record that gave it, so
that this one alone is put aside.
"""

from __future__ import annotations

from collections.abc import Collection

import pyarrow as pa

from omnigraph.read.compute import pc
from omnigraph.schema.catalog import EdgeType, NodeType
from omnigraph.write.findings import FILE, OMITTED, ROW, BadRecord, Findings

__all__ = ["name_givers"]


def name_givers(findings: Findings, entity: NodeType | EdgeType, given: pa.Table) -> None:
    """Findings about values of merged rows get the place of the record that gave the value.

    Args:
        given: the type's records as they were read, with the `OMITTED` columns.
    """
    shown = findings.shown
    asked = {
        at: names
        for at, record in enumerate(shown)
        if record.table_key == entity.table_key and record.id is not None and (names := _properties(entity, record))
    }
    if not asked:
        return
    ids = {str(shown[at].id) for at in asked}
    last = _last_mentions(given, ids, {name for names in asked.values() for name in names})
    places: dict[int, tuple[int, int]] = {}
    for at, names in asked.items():
        mentions = [last[shown[at].id, name] for name in names if (shown[at].id, name) in last]
        if mentions:  # else it is the default, or missing from every record
            _, file, row = max(mentions)
            places[at] = (file, row)
    findings.relocate(places)


def _properties(entity: NodeType | EdgeType, record: BadRecord) -> list[str]:
    """The properties whose last mention is to blame; none where the last record of the id is."""
    label = record.property or ""
    prop = entity.properties.get(label)
    source = [prop.embed.source] if prop is not None and prop.embed is not None else []
    if record.kind == "embed":  # the text was refused, which the vector is made from
        names = source
    elif record.kind == "required":  # a new text takes the vector away
        names = [label, *source]
    elif record.kind == "unique":
        names = label.split(", ")
    elif record.kind in ("enum", "range", "check", "vector"):
        names = [label]
    else:
        names = []
    names = [name for name in names if name not in entity.key]
    return names if all(name in entity.properties for name in names) else []  # each record gives an edge's ends


def _last_mentions(
    given: pa.Table, ids: Collection[str], names: Collection[str]
) -> dict[tuple[str | None, str], tuple[int, int, int]]:
    """By id and property: the last record that mentions it, as its number among these, its file and its row."""
    out: dict[tuple[str | None, str], tuple[int, int, int]] = {}
    wanted, count = pa.array(sorted(ids), pa.string()), 0
    for batch in given.select(["id", FILE, ROW, *(OMITTED + name for name in sorted(names))]).to_batches():
        for row in batch.filter(pc.is_in(batch.column("id"), value_set=wanted)).to_pylist():
            count += 1
            out.update({(row["id"], name): (count, row[FILE], row[ROW]) for name in names if not row[OMITTED + name]})
    return out
