"""Bad records put aside, so that a load may write the good ones.

One JSON line each, with its place, what the source holds there, and what is wrong with it:

    {"source": "people.ndjson:17", "file": "people.ndjson", "line": 17, "raw": "…", "reasons": [{"kind": …, …}]}

The file is whole before the load commits and gets its name after: a load that fails leaves none, and one that is killed
in between leaves `NAME.{operation}.part`. Run again with its operation id, it writes that anew or, when the commit was
made, gives it its name.
"""

from __future__ import annotations

import base64
import fcntl
import glob
import io
import json
import logging
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any, BinaryIO, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.errors import BadRequest, Conflict
from omnigraph.read.compute import Scalar, pc
from omnigraph.schema.catalog import EdgeType, NodeType
from omnigraph.write.csv_rows import NoRecord
from omnigraph.write.findings import FILE, ROW, BadRecord, Findings
from omnigraph.write.mapping import SourceMapping
from omnigraph.write.rows import Reading, arrow_text
from omnigraph.write.sources import SourceFile, SourcePlan, open_source, open_tabular
from omnigraph.write.spool import Spool
from omnigraph.write.tabular import mapped_batches, mapped_csv

__all__ = ["QUARANTINE_LIMIT", "Places", "Quarantine", "finish", "finished", "nothing_left", "without"]

QUARANTINE_LIMIT = 10_000
"""Bad records a load puts aside at most by default: more mean that something is wrong with the sources as a whole."""

Places: TypeAlias = Mapping[int, npt.NDArray[np.int64]]
"""Where bad records stand: the rows (`ROW`, ascending) of each source (`FILE`)."""

_Rows: TypeAlias = tuple[pa.RecordBatch, npt.NDArray[np.int64], Sequence[NoRecord]]

_log = logging.getLogger(__name__)

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
        operation: the load's id.
        limit: more of them, and the load is refused.

    Raises:
        BadRequest: there is such a file already, or there can't be one.
    """

    def __init__(self, path: str, operation: str, limit: int = QUARANTINE_LIMIT) -> None:
        self.path, self.limit = path, limit
        self._partial = _partial(path, operation)
        self._held: int | None = None
        self._reasons: dict[tuple[int, int], list[BadRecord]] = {}
        if "://" in path or not os.path.basename(path):
            raise _unwritable(path, "it names no file of this machine")
        try:  # not the file itself: one left by a kill would keep other loads from running
            tried = f"{self._partial.removesuffix('.part')}.test"
            os.close(os.open(tried, os.O_WRONLY | os.O_CREAT, 0o666))
            os.unlink(tried)
        except (OSError, ValueError) as error:
            raise _unwritable(path, _why(error)) from error
        others = sorted(p for p in glob.glob(f"{glob.escape(path)}.*.part") if p != self._partial)
        taken = [(path, "name another file")] if os.path.lexists(path) else []
        taken += [(other, "left by a load that was interrupted") for other in others]
        for there, why in taken:
            raise BadRequest(
                f"{there}: is there already ({why}): move it away first, so that no bad record is lost",
                code="quarantine_exists",
            )

    def __len__(self) -> int:
        return len(self._reasons)

    def findings(self) -> Findings:
        """A collection that keeps all reasons of as many records as may be put aside."""
        return Findings(self.limit + 1, whole=True)

    def watch(self, findings: Findings, plan: SourcePlan) -> None:
        """Ends the reading of sources that hold too many bad records, instead of reading them to their end.

        Raises:
            BadRequest: there are too many.
        """
        if findings.full:
            self.take(findings, plan)

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
        all_kept = len(records) == sum(findings.counts[k] for k in kinds)
        if len(self._reasons) > self.limit or not all_kept:
            raise self._too_many(findings, plan)
        return True

    def _too_many(self, findings: Findings, plan: SourcePlan) -> BadRequest:
        first = [r for place in sorted(self._reasons)[:5] for r in self._reasons[place]] or findings.shown
        first = [
            replace(r, source=plan.locate(r.file, r.row)) if r.file is not None and r.row is not None else r
            for r in first[:5]
        ]
        few = "1 bad record" if self.limit == 1 else f"{self.limit:,} bad records"
        return BadRequest(
            f"more than {few}: the load is refused as a whole and nothing was written; raise the limit if that many "
            "are to be left out. The first:\n  " + "\n  ".join(map(str, first)),
            code="too_many_bad_records",
            details={"limit": self.limit, "records": [r.as_dict() for r in first]},
        )

    @property
    def places(self) -> Places:
        """Where the records put aside stand."""
        files: dict[int, list[int]] = {}
        for file, row in sorted(self._reasons):
            files.setdefault(file, []).append(row)
        return {file: np.array(rows, dtype=np.int64) for file, rows in files.items()}

    def without(self, rows: pa.Table, table_key: str, spool: Spool) -> pa.Table:
        """The rows that aren't put aside; batch by batch, so that memory holds a batch."""
        bad = self.places
        if not set(pc.unique(rows.column(FILE)).to_pylist()) & bad.keys():
            return rows
        some = False
        for batch in rows.to_batches():
            kept = without(batch, bad)
            if kept.num_rows:
                spool.append(table_key, kept)
                some = True
        return spool.table(table_key) if some else rows.slice(0, 0)

    # ---- the file ----

    def write(self, plan: SourcePlan, reading: Reading) -> None:
        """Writes the records durably, not under their file's name yet; nothing where there are none.

        Raises:
            BadRequest: the file can't be written.
            Conflict: another process is at it with the same operation id.
        """
        if not self._reasons:
            return
        try:
            self._write(plan, reading)
        except OSError as error:
            raise _unwritable(self.path, _why(error)) from error

    def _write(self, plan: SourcePlan, reading: Reading) -> None:
        self._held = os.open(self._partial, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(self._held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._release()
            raise Conflict(f"{self._partial}: another process is writing it for the same operation") from error
        os.ftruncate(self._held, 0)  # what a killed run of this operation left
        with open(self._held, "w", encoding="utf-8", closefd=False) as out:
            for file, rows in self.places.items():
                source = plan.files[file]
                for row, entry in _raw(plan, source, rows, reading):
                    reasons = [_reason(r) for r in sorted(self._reasons[(file, row)], key=_by_name)]
                    out.write(json.dumps(entry | {"reasons": reasons}, ensure_ascii=False) + "\n")
            out.flush()
            os.fsync(out.fileno())

    def keep(self) -> None:
        """Gives the file its name: the load is committed."""
        if self._held is not None:
            _name(self._partial, self.path)
            self._release()

    def drop(self) -> None:
        """Removes what was written: the load failed."""
        if self._held is not None:
            with suppress(OSError):
                os.unlink(self._partial)
            self._release()

    def _release(self) -> None:
        if self._held is not None:
            held, self._held = self._held, None
            with suppress(OSError):  # what was written is on disk
                os.close(held)


def without(rows: pa.RecordBatch, bad: Places) -> pa.RecordBatch:
    """The rows that stand elsewhere."""
    out: Any = np.zeros(rows.num_rows, dtype=bool)
    at, places = np.asarray(rows.column(FILE)), np.asarray(rows.column(ROW))
    for file, lines in bad.items():
        out |= (at == file) & np.isin(places, lines)
    return rows.filter(pa.array(~out)) if out.any() else rows


def nothing_left(entity: NodeType | EdgeType) -> BadRequest:
    """What an overwrite says when all records of a type were put aside."""
    return BadRequest(f"every record of {entity.name} is bad: nothing is left to overwrite it with")


@contextmanager
def finished(aside: Quarantine | None, plan: SourcePlan, reading: Reading) -> Iterator[None]:
    """The bad records are on disk before the commit inside, and have their file's name after it."""
    if aside is None:
        yield
        return
    try:
        aside.write(plan, reading)
        yield
    except BaseException:
        aside.drop()
        raise
    aside.keep()


def finish(path: str, operation: str) -> None:
    """Gives the records of a committed load their file's name, if it was killed before it could."""
    partial = _partial(path, operation)
    if os.path.exists(partial):
        _name(partial, path)


def _partial(path: str, operation: str) -> str:
    return f"{path}.{operation}.part"


def _name(partial: str, path: str) -> None:
    """Renames, and never over another file: the load is committed, so that nothing may be lost or refused now."""
    try:
        try:
            os.link(partial, path)
        except FileExistsError:
            raise
        except OSError:  # a file system without hard links
            os.rename(partial, path)
        else:
            os.unlink(partial)
    except OSError as error:
        why = (
            "made by somebody else meanwhile" if isinstance(error, FileExistsError) else f"not named so: {_why(error)}"
        )
        _log.warning("%s was %s: the bad records of this load are in %s", path, why, partial)


def _unwritable(path: str, why: str) -> BadRequest:
    shown = path if path and path.isprintable() else repr(path)
    return BadRequest(
        f"{shown}: bad records can't be put there ({why}): name a file in a folder of this machine that is there and "
        "may be written",
        code="quarantine_unwritable",
    )


def _why(error: OSError | ValueError) -> str:
    return (isinstance(error, OSError) and error.strerror) or str(error)


def _by_name(record: BadRecord) -> tuple[str, str, str]:
    return record.kind, record.property or "", record.message


def _reason(record: BadRecord) -> dict[str, Any]:
    out: dict[str, Any] = {"kind": record.kind, "message": record.message}
    if record.table_key is not None:
        out["type"] = record.table_key.partition(":")[2]
    out |= {name: value for name in ("id", "property") if (value := getattr(record, name)) is not None}
    return out


def _raw(
    plan: SourcePlan, source: SourceFile, rows: npt.NDArray[np.int64], reading: Reading
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Each record as its source has it, with its place; one pass over the source."""
    if source.format == "ndjson":
        with open_source(source.path) as stream:
            for offset, line, raw in _lines(stream, rows.tolist()):
                place = {"source": f"{source.label}:{line}", "file": source.label, "line": line}
                try:
                    yield offset, place | {"raw": raw.decode("utf-8")}
                except UnicodeDecodeError:
                    yield offset, place | {"raw_base64": base64.b64encode(raw).decode()}
        return
    wanted = set(rows.tolist())
    for batch, numbers, others in _tables(plan, source, reading):
        found: dict[int, Any] = {other.row: _json_of(other.raw) for other in others if other.row in wanted}
        for at in np.flatnonzero(np.isin(numbers, rows)).tolist():
            cells = zip(batch.schema.names, batch.columns, strict=True)
            found[int(numbers[at])] = {name: _plain(column[at]) for name, column in cells}
        for row in sorted(found):
            yield row, {"source": f"{source.label} row {row}", "file": source.label, "row": row, "raw": found[row]}


def _tables(plan: SourcePlan, source: SourceFile, reading: Reading) -> Iterator[_Rows]:
    """A source's rows with their numbers, and those that are no records."""
    assert source.mapping is not None
    if source.format == "csv":
        with open_tabular(source.path, source.label, source.format) as stream:
            for _, part in mapped_csv(stream, source.mapping, reading, source.label):
                yield part.batch, part.numbers, part.others
        return
    for batch, start in _batches(plan, source, source.mapping, reading):
        yield batch, np.arange(start + 1, start + 1 + batch.num_rows, dtype=np.int64), ()


def _batches(
    plan: SourcePlan, source: SourceFile, mapping: SourceMapping, reading: Reading
) -> Iterator[tuple[pa.RecordBatch, int]]:
    if source.format == "table":
        start = 0
        for batch in plan.tables[mapping.label].to_batches():
            yield batch, start
            start += batch.num_rows
        return
    with open_tabular(source.path, source.label, source.format) as stream:
        for _, batch, before in mapped_batches(stream, mapping, source.format, None, reading, source.label):
            yield batch, before


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


def _json_of(raw: str | Mapping[str, bytes | None]) -> Any:
    """What a file has in place of a record, for JSON: bytes that are no text as base64."""
    return raw if isinstance(raw, str) else {name: None if v is None else _text(v) for name, v in raw.items()}


def _text(value: bytes) -> str:
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        return "base64:" + base64.b64encode(value).decode()


def _plain(value: Scalar) -> Any:
    """A value of a source's column for JSON; as a text where JSON, or Python, knows no such value."""
    kind = value.type
    if not value.is_valid:
        return None
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return [_plain(one) for one in value.values]
    if pa.types.is_struct(kind) and len(set(kind.names)) == kind.num_fields:
        return {name: _plain(one) for name, one in value.items()}
    if pa.types.is_dictionary(kind):
        return _plain(value.value)
    if pa.types.is_date64(kind):
        return arrow_text(value)
    try:
        plain = value.as_py()
    except UnicodeDecodeError:
        return _text(value.as_buffer().to_pybytes()) if hasattr(value, "as_buffer") else arrow_text(value)
    except (ValueError, OverflowError):
        return arrow_text(value)
    if isinstance(plain, bytes):
        return "base64:" + base64.b64encode(plain).decode()
    if isinstance(plain, (str, int)) or (isinstance(plain, float) and math.isfinite(plain)):
        return plain
    return plain.isoformat() if hasattr(plain, "isoformat") else str(plain)
