"""Graphs as older versions made them."""

from __future__ import annotations

import shutil
from pathlib import Path

import lance
import pyarrow as pa

from omnigraph.storage.formats import KEY, STAMP

__all__ = ["SHAPES", "older"]

UPDATED = "_row_last_updated_at_version"


def older(
    root: Path, *, marked: bool, stamp: str | None, runs: int = 0, nullable: bool = False, stable: bool = True
) -> None:
    """Make `__manifest` anew as an older version made it: the same rows at the same versions."""
    path = root / "__manifest"
    now = lance.dataset(str(path))
    rows = now.scanner(columns=[*now.schema.names, UPDATED]).to_table()
    fields = [
        f.with_nullable(nullable).with_metadata(KEY if marked else {}) if f.name == "object_id" else f
        for f in now.schema
    ]
    schema = pa.schema(fields, metadata={STAMP: stamp} if stamp is not None else None)
    shutil.rmtree(path)
    made = None
    for version in range(1, now.version + 1):
        at = rows.filter(pa.compute.equal(rows[UPDATED], version)).drop_columns([UPDATED])
        batch = pa.table(at.columns, schema=schema)
        if made is None:
            made = lance.write_dataset(batch, str(path), enable_stable_row_ids=stable, data_storage_version="2.2")
        elif batch.num_rows:
            made = lance.write_dataset(batch, made, mode="append")
        else:
            made.update_config({"nothing": str(version)})
    assert made is not None
    assert made.version == now.version
    for i in range(runs):
        made.create_branch(f"__run__{i}", made.version)


SHAPES = {
    "none": {"marked": False, "stamp": None, "runs": 2},
    "1": {"marked": False, "stamp": "1", "runs": 1},
    "2": {"marked": True, "stamp": "2", "runs": 2},
    "2 without runs": {"marked": True, "stamp": "2"},
    "3": {"marked": True, "stamp": "3"},
}
