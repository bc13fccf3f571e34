"""Bad records put aside, so that a load may write the good ones.

One JSON line each, with its place, what the source holds there, and what is wrong with it:

    {"source": "people.ndjson:17", "file": "people.ndjson", "line": 17, "raw": "…", "reasons": [{"kind": …, …}]}

The file is whole before the load commits and gets its name after: a load that fails leaves none, and one that is killed
in between leaves `NAME.part`.
"""

from __future__ import annotations

import base64
import io
import json
import math
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa

from omnigraph.errors import BadRequest
from omnigraph.read.compute import Scalar, pc
from omnigraph.write.findings import FILE, ROW, BadRecord, Findings
from omnigraph.write.rows import Reading
from omnigraph.write.sources import SourceFile, SourcePlan, open_source
from omnigraph.write.spool import Spool
from omnigraph.write.tabular import mapped_batches

__all__ = ["QUARANTINE_LIMIT", "Quarantine"]

QUARANTINE_LIMIT = 10_000
"""Bad records a load puts aside at most by default: more mean that something is wrong with the sources as a whole."""


_ORDER = (
    frozenset({"required", "enum", "range", "check", "vector", "id"}),
    frozenset({"duplicate_id", "existing_id"}),
    frozenset({"unique"}),
    frozenset({"endpoint"}),
    frozenset({"cardinality"}),
)


class Quarantine:
    """The bad records of one load.

    Args:
        path: where they go; nothing may be there.
        limit: more of them, and the load is refused.

    Raises:
        BadRequest: there is such a file already.
    """

    def __init__(self, path: str, limit: int = QUARANTINE_LIMIT) -> None:
        self.path, self.limit = path, limit
        self.partial = f"{path}.part"
        self._reasons: dict[tuple[int, int], list[BadRecord]] = {}
        for taken, why in ((path, "name another file"), (self.partial, "left by a load that was interrupted")):
            if os.path.exists(taken):
                raise BadRequest(
                    f"{taken}: is there already ({why}): move it away first, so that no bad record is lost",
                    code="quarantine_exists",
                )

    def __len__(self) -> int:
        return len(self._reasons)

    def findings(self) -> Findings:
        """A collection that keeps as many as may be put aside."""
        return Findings(self.limit + 1)

    def take(self, findings: Findings, plan: SourcePlan, *, first_kinds: bool = False) -> bool:
        """Puts the records aside; whether there were any.

        Args:
            first_kinds: of several kinds take the first, since the others may follow from it: an edge too many may have
                been counted with edges to nowhere. The rest is to be judged again.

        Raises:
            BadRequest: there are too many, or what is wrong is no record of the sources.
        """
        if not findings:
            return False
        kinds = frozenset(findings.counts)
        if first_kinds:
            kinds = next((k for k in _ORDER if k & kinds), kinds)
        records = [r for r in findings.shown if r.kind in kinds]
        placed = [r for r in records if r.file is not None and r.row is not None]
        if len(placed) < len(records):  # stored edges that would dangle, sources with too few edges
            few = Findings()
            for record in records:
                few.add(record)
            try:
                few.refuse(plan.locate, what="row")
            except BadRequest as error:
                error.add_note("some of it is no record that could be put aside")
                raise
        for record in placed:
            assert record.file is not None
            assert record.row is not None
            self._reasons.setdefault((record.file, record.row), []).append(record)
        if len(self._reasons) > self.limit or sum(findings.counts[k] for k in kinds) > self.limit or not placed:
            counted = ", ".join(f"{n:,} {kind}" for kind, n in sorted(self.counts().items()))
            first = "\n  ".join(str(r) for r in records[:5])
            raise BadRequest(
                f"more than {self.limit:,} bad records ({counted}, …): the load is refused as a whole and nothing was "
                f"written; raise the limit if that many are to be left out. The first:\n  {first}",
                code="too_many_bad_records",
                details={"limit": self.limit, "counts": dict(self.counts())},
            )
        return True

    def counts(self) -> Counter[str]:
        """Reasons by kind."""
        return Counter(r.kind for records in self._reasons.values() for r in records)

    def without(self, rows: pa.Table, table_key: str, spool: Spool) -> pa.Table:
        """The rows that aren't put aside; batch by batch, so that memory holds a batch."""
        bad = self._by_file()
        files = set(pc.unique(rows.column(FILE)).to_pylist())
        if not files & bad.keys():
            return rows
        some = False
        for batch in rows.to_batches():
            out: Any = np.zeros(batch.num_rows, dtype=bool)
            at = np.asarray(batch.column(FILE))
            places = np.asarray(batch.column(ROW))
            for file, lines in bad.items():
                out |= (at == file) & np.isin(places, lines)
            kept = batch.filter(pa.array(~out)) if out.any() else batch
            if kept.num_rows:
                spool.append(table_key, kept)
                some = True
        return spool.table(table_key) if some else rows.slice(0, 0)

    def _by_file(self) -> dict[int, Any]:
        files: dict[int, list[int]] = {}
        for file, row in sorted(self._reasons):
            files.setdefault(file, []).append(row)
        return {file: np.array(rows, dtype=np.int64) for file, rows in files.items()}

    # ---- the file ----

    def write(self, plan: SourcePlan, reading: Reading) -> None:
        """Writes the records to `NAME.part`, durably; none where there are none."""
        if not self._reasons:
            return
        with open(self.partial, "x", encoding="utf-8") as out:
            for file, rows in self._by_file().items():
                source = plan.files[file]
                for row, entry in _raw(plan, source, rows, reading):
                    reasons = [_reason(r) for r in self._reasons[(file, row)]]
                    out.write(json.dumps(entry | {"reasons": reasons}, ensure_ascii=False) + "\n")
            out.flush()
            os.fsync(out.fileno())

    def keep(self) -> None:
        """Gives the file its name: the load is committed."""
        if self._reasons:
            os.replace(self.partial, self.path)

    def drop(self) -> None:
        """Removes what was written: the load failed."""
        if self._reasons and os.path.exists(self.partial):
            os.unlink(self.partial)


def _reason(record: BadRecord) -> dict[str, Any]:
    out: dict[str, Any] = {"kind": record.kind, "message": record.message}
    if record.table_key is not None:
        out["type"] = record.table_key.partition(":")[2]
    out |= {name: value for name in ("id", "property") if (value := getattr(record, name)) is not None}
    return out


def _raw(
    plan: SourcePlan, source: SourceFile, rows: Sequence[int], reading: Reading
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Each record as its source has it, with its place; one pass over the source."""
    if source.format == "ndjson":
        with open_source(source.path) as stream:
            for offset, line, raw in _lines(stream, rows):
                place = {"source": f"{source.label}:{line}", "file": source.label, "line": line}
                try:
                    yield offset, place | {"raw": raw.decode("utf-8")}
                except UnicodeDecodeError:
                    yield offset, place | {"raw_base64": base64.b64encode(raw).decode()}
        return
    wanted = np.asarray(rows)
    for batch, start in _tables(plan, source, reading):
        hits = wanted[(wanted > start) & (wanted <= start + batch.num_rows)]
        if len(hits):
            for row in hits.tolist():
                given = {n: _plain(c[row - start - 1]) for n, c in zip(batch.schema.names, batch.columns, strict=True)}
                yield row, {"source": f"{source.label} row {row}", "file": source.label, "row": row, "raw": given}


def _tables(plan: SourcePlan, source: SourceFile, reading: Reading) -> Iterator[tuple[pa.RecordBatch, int]]:
    assert source.mapping is not None
    if source.format == "table":
        start = 0
        for batch in plan.tables[source.mapping.label].to_batches():
            yield batch, start
            start += batch.num_rows
        return
    with open_source(source.path) as stream:
        yield from mapped_batches(stream, source.mapping, source.format, None, reading, source.label)


def _lines(stream: BinaryIO, offsets: Sequence[int]) -> Iterator[tuple[int, int, bytes]]:
    """(offset, number of the line from 1, the line without its end) of the lines that begin at these offsets."""
    raw_stream: Any = stream  # one of Arrow's, which reads like a raw one
    buffered = io.BufferedReader(raw_stream, 1 << 20)
    at, line = 0, 1
    for offset in offsets:
        while at < offset:
            piece = buffered.read(min(int(offset) - at, 1 << 20))
            if not piece:
                return
            at += len(piece)
            line += piece.count(b"\n")
        raw = buffered.readline()
        at += len(raw)
        yield int(offset), line, raw.rstrip(b"\r\n")
        line += 1


def _plain(value: Scalar) -> Any:
    """A value of a source's column for JSON; as a text where JSON, or Python, knows no such value."""
    kind = value.type
    if not value.is_valid:
        return None
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return [_plain(one) for one in value.values]
    if pa.types.is_struct(kind):
        return {name: _plain(one) for name, one in value.items()}
    try:
        plain = value.as_py()
    except (ValueError, OverflowError):
        return str(value.cast(pa.string()))
    if isinstance(plain, bytes):
        return "base64:" + base64.b64encode(plain).decode()
    if isinstance(plain, (str, int)) or (isinstance(plain, float) and math.isfinite(plain)):
        return plain
    return plain.isoformat() if hasattr(plain, "isoformat") else str(plain)
