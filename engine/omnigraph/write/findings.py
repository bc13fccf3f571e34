"""Bad records as data: counted per kind, the first few kept with their place, so that one refusal names them all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa

from omnigraph.errors import BadRequest
from omnigraph.read.compute import Array, Chunked, pc
from omnigraph.records import dataclass
from omnigraph.write.keys import render_key

__all__ = ["FILE", "OMITTED", "ROW", "SHOWN", "BadRecord", "Findings"]

SHOWN = 20  # how many bad records a refusal spells out

# Columns that accompany a row until it is written: which source it came from (int32) and where in it (int64: the byte
# offset of an NDJSON line, else the row's number from 1). `__omitted:<property>` (bool) stands beside a property that
# an upsert must leave as it is.
FILE, ROW, OMITTED = "__file", "__row", "__omitted:"


@dataclass(frozen=True, slots=True)
class BadRecord:
    """One reason why a record can't be written.

    `kind` is one of syntax, unknown_type, unknown_property, type, required, enum, range, check, vector, key, id,
    duplicate_id, existing_id, unique, endpoint, cardinality. `source` is `file:line` or `file row n` once located;
    before that `file` and `row` say it as numbers.
    """

    kind: str
    message: str
    table_key: str | None = None
    id: str | None = None
    property: str | None = None
    file: int | None = None
    row: int | None = None
    source: str | None = None

    def as_dict(self) -> dict[str, Any]:
        names = ("kind", "source", "table_key", "id", "property", "message")
        return {name: getattr(self, name) for name in names if getattr(self, name) is not None}

    def __str__(self) -> str:
        where = f"{self.source}: " if self.source else ""
        what = "" if self.table_key is None else self.table_key.partition(":")[2]
        name = f"{what} {self.id!r}" if self.id is not None else what
        return f"{where}{name}: {self.message}" if name else f"{where}{self.message}"


class Findings:
    """Collects bad records. Picklable, so that tasks elsewhere can send theirs; `merge` is order-free.

    Args:
        kept: how many are kept with their place; the rest is counted.
        whole: keep every reason of that many records, instead of that many reasons.
    """

    def __init__(self, kept: int = SHOWN, *, whole: bool = False) -> None:
        self.kept, self.whole = kept, whole
        self.counts: Counter[str] = Counter()
        self._found: list[BadRecord] = []
        self._room = 2 * kept

    def like(self) -> Findings:
        """An empty one that keeps as much."""
        return Findings(self.kept, whole=self.whole)

    @property
    def shown(self) -> list[BadRecord]:
        """The first ones by place, at most `kept`."""
        self._trim()
        return self._found

    @property
    def full(self) -> bool:
        """Whether, of whole records, all are found that are kept."""
        if not self.whole or self.counts.total() < self.kept:
            return False
        return len({_place(r)[:2] for r in self._found}) >= self.kept

    def __bool__(self) -> bool:
        return bool(self.counts)

    def add(self, record: BadRecord) -> None:
        self.counts[record.kind] += 1
        self._show([record])

    def add_rows(
        self,
        kind: str,
        table_key: str,
        rows: pa.RecordBatch | pa.Table,
        mask: Array | Chunked,
        message: Callable[[dict[str, Any]], str],
        *,
        property: str | None = None,
    ) -> int:
        """Records every row where `mask` (bool, null counts as false) is true; returns how many.

        Args:
            message: makes the text from the row as a dict, in which days and times are texts; for shown rows only.
        """
        hits = pc.indices_nonzero(mask)  # null is not nonzero
        if len(hits) == 0:
            return 0
        self.counts[kind] += len(hits)
        some = _readable(rows.take(hits[: self.kept])).to_pylist()
        self._show(
            BadRecord(kind, message(row), table_key, row.get("id"), property, row.get(FILE), row.get(ROW))
            for row in some
        )
        return len(hits)

    def merge(self, other: Findings) -> None:
        self.counts.update(other.counts)
        self._show(other.shown)

    def relocate(self, places: Mapping[int, tuple[int, int]]) -> None:
        """Gives records another place, as (file, row) by their position in `shown`."""
        for at, (file, row) in places.items():
            self._found[at] = replace(self._found[at], file=file, row=row)

    def _show(self, records: Iterable[BadRecord]) -> None:
        self._found.extend(records)
        if len(self._found) > self._room:  # not at each one: a source may hold nothing but bad records
            self._trim()
            self._room = 2 * max(self.kept, len(self._found))

    def _trim(self) -> None:
        if len(self._found) <= self.kept:
            return
        self._found.sort(key=_place)
        end = self.kept
        if self.whole:
            places = dict.fromkeys(_place(r)[:2] for r in self._found)
            if len(places) <= self.kept:
                return
            last = list(places)[self.kept - 1]
            end = next(i for i, r in enumerate(self._found) if _place(r)[:2] > last)
        del self._found[end:]

    def refuse(self, locate: Callable[[int, int], str] | None = None, *, what: str = "record") -> None:
        """Raises BadRequest when there is anything to report.

        Args:
            locate: turns (file, row) into `file:line` or `file row n`.
            what: what a bad thing is called, `record` or `row`.
        """
        if not self.counts:
            return
        records = sorted(self.shown, key=_place)
        if locate is not None:
            records = [
                replace(r, source=locate(r.file, r.row)) if r.file is not None and r.row is not None else r
                for r in records
            ]
        total = sum(self.counts.values())
        by_kind = ", ".join(f"{n} {kind}" for kind, n in sorted(self.counts.items()))
        lines = [str(r) for r in records]
        if total > len(records):
            lines.append(f"and {total - len(records)} more")
        head = f"{total} bad {what}{'s' if total != 1 else ''} ({by_kind}); nothing was written"
        raise BadRequest(
            "\n  ".join([head, *lines]),
            code="bad_records",
            details={"counts": dict(sorted(self.counts.items())), "records": [r.as_dict() for r in records]},
        )


def _readable(rows: pa.RecordBatch | pa.Table) -> pa.RecordBatch | pa.Table:
    """With days and times as the languages write them: Python has a DateTime column's values without their time."""
    for at, field in enumerate(rows.schema):
        if pa.types.is_date(field.type):
            rows = rows.set_column(at, field.name, render_key([rows.column(at)]))
    return rows


def _place(record: BadRecord) -> tuple[int, int, str, str, str]:
    unknown = -1
    return (
        unknown if record.file is None else record.file,
        unknown if record.row is None else record.row,
        record.kind,
        record.property or "",
        record.id or "",
    )
