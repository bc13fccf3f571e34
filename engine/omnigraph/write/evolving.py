"""`apply_schema`: from a migration plan to one commit (02 "Apply").

The steps of the plan become what happens to each table; a new constraint is judged on the rows that are there, and what
breaks it refuses the whole change. Storage does the rest.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field, replace
from typing import Any

import pyarrow as pa

from omnigraph.errors import BadRequest, Conflict
from omnigraph.records import dataclass
from omnigraph.schema import Catalog, MigrationPlan, apply_plan
from omnigraph.schema.catalog import EdgeType, NodeType
from omnigraph.schema.ir import Constraint, TypeIR
from omnigraph.schema.steps import (
    AddConstraint,
    AddProperty,
    AddType,
    AllowNull,
    DropProperty,
    DropType,
    RenameProperty,
    RenameType,
)
from omnigraph.storage import CommitInfo, Repository, SchemaChange, Snapshot, TableEvolution
from omnigraph.storage.arrow import table_schema
from omnigraph.ulids import new_ulid
from omnigraph.write import constraints
from omnigraph.write.findings import SHOWN, Findings
from omnigraph.write.rows import default_column

__all__ = ["SchemaResult", "TableOutcome", "apply_schema"]

LISTED = 10_000
"""Rows that break a new constraint and are listed in an error's details; the rest is counted."""

_NONE = pa.array([], pa.string())


@dataclass(frozen=True, slots=True)
class TableOutcome:
    """What a schema change did to one table.

    Args:
        table_key: its key now, or the last one it had.
        action: `created`, `renamed`, `changed`, `dropped` (soft) or `removed` (with its old versions).
        was: its key before, where it was renamed.
        rows: how many rows it has, or had.
    """

    table_key: str
    action: str
    rows: int
    was: str | None = None


@dataclass(frozen=True, slots=True)
class SchemaResult:
    """What a schema apply did.

    Args:
        plan: the steps.
        commit: the branch's new commit, or the one that this very operation made before; None where there was nothing
            to do.
        tables: one entry for each table that was made, changed or dropped.
    """

    plan: MigrationPlan
    commit: CommitInfo | None
    tables: tuple[TableOutcome, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """The result as plain JSON."""
        return {
            "plan": self.plan.as_dict(),
            "commit": None if self.commit is None else self.commit.id,
            "branch": None if self.commit is None else self.commit.branch,
            "schema_hash": None if self.commit is None else self.commit.schema_hash,
            "tables": [
                {"table_key": t.table_key, "action": t.action, "rows": t.rows} | ({"was": t.was} if t.was else {})
                for t in self.tables
            ],
        }


def apply_schema(
    repository: Repository,
    base: Snapshot,
    catalog: Catalog,
    plan: MigrationPlan,
    *,
    actor: str | None = None,
    operation_id: str | None = None,
) -> SchemaResult:
    """Change a branch's schema to the desired one, as one commit.

    Args:
        base: the snapshot the plan was made on.
        catalog: the desired schema.
        plan: the steps that lead there.

    Raises:
        BadRequest: the plan holds an unsupported change (its code), or rows break a new constraint.
        Conflict: other branches have another schema, another change is under way, or the state moved.
    """
    target = apply_plan(base.schema_ir, plan)
    if catalog.hash == base.schema_hash:
        return SchemaResult(plan, None)
    work = _Change(base, catalog, plan)
    reads = work.judge()
    change = SchemaChange(
        branch=base.branch,
        catalog=catalog,
        ir=target,
        tables=tuple(work.evolutions()),
        new={t.table_key: table_schema(catalog.by_table_key[t.table_key]) for t in work.added},
        reads=reads,
        operation_id=operation_id or new_ulid(),
        actor=actor,
    )
    commit = repository.apply_schema(change, base)
    return SchemaResult(plan, commit, tuple(work.outcomes()))


@dataclass(slots=True)
class _Table:
    """One table that is there, while the steps are read."""

    before: str
    after: str
    renamed: dict[str, str] = field(default_factory=dict)
    nullable: list[str] = field(default_factory=list)
    added: list[str] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)
    constraints: list[Constraint] = field(default_factory=list)
    gone: bool = False
    purge: bool = False

    @property
    def moves(self) -> bool:
        return (
            self.gone or self.before != self.after or bool(self.renamed or self.nullable or self.added or self.dropped)
        )


class _Change:
    """The steps of a plan, table by table."""

    def __init__(self, base: Snapshot, catalog: Catalog, plan: MigrationPlan) -> None:
        self.base, self.catalog = base, catalog
        self.added: list[TypeIR] = []
        self.tables = {key: _Table(key, key) for key in base.catalog.by_table_key}
        for step in plan.steps:
            if isinstance(step, AddType):
                self.added.append(step.type)
                continue
            if isinstance(step, RenameType):
                table = self.tables.pop(step.entity)
                table.after = f"{step.entity.partition(':')[0]}:{step.to}"
                self.tables[table.after] = table
                continue
            table = self.tables[step.entity]
            match step:
                case RenameProperty(_, name, to):
                    table.renamed[name] = to
                case AddProperty(_, prop):
                    table.added.append(prop.name)
                case AllowNull(_, name):
                    table.nullable.append(name)
                case AddConstraint(_, constraint, validate):
                    if validate:
                        table.constraints.append(constraint)
                case DropProperty(_, name, mode):
                    table.dropped.append(name)
                    table.purge |= mode == "hard"
                case DropType(_, mode):
                    table.gone, table.purge = True, mode == "hard"

    def evolutions(self) -> Iterator[TableEvolution]:
        for table in self.tables.values():
            if not table.moves:
                continue
            if table.before not in self.base.tables:
                raise Conflict(
                    f"the graph has no table of {table.before}, which its schema declares: run `omnigraph verify`",
                    code="missing_table",
                    details={"table_key": table.before},
                )
            if table.gone:
                schema = self.base.schema(table.before)
                yield TableEvolution(table.before, schema, gone=True, purge=table.purge)
                continue
            entity = self.catalog.by_table_key[table.after]
            yield TableEvolution(
                table.before,
                table_schema(entity),
                renamed_to=table.after if table.after != table.before else None,
                renamed=table.renamed,
                nullable=tuple(table.nullable),
                added=_fill(entity, table.added) if table.added else None,
                dropped=tuple(table.dropped),
                purge=table.purge,
            )

    def outcomes(self) -> Iterator[TableOutcome]:
        for made in self.added:
            yield TableOutcome(made.table_key, "created", 0)
        for table in self.tables.values():
            if not table.moves:
                continue
            action = ("removed" if table.purge else "dropped") if table.gone else "changed"
            was = table.before if table.before != table.after else None
            if was:
                action = "renamed"
            yield TableOutcome(table.after, action, self.base.tables[table.before].row_count, was)

    # ---- constraints ------------------------------------------------------------------------------------------------

    def judge(self) -> frozenset[str]:
        """Judge the rows by the new constraints.

        Returns:
            The keys, before the change, of the tables that were read.

        Raises:
            BadRequest: with the rows that break one.
        """
        found = Findings(LISTED)
        read: set[str] = set()
        for table in self.tables.values():
            ref = self.base.tables.get(table.before)
            if not table.constraints or ref is None:
                continue
            read.add(table.before)  # rows that come meanwhile haven't been judged
            if ref.row_count:
                self._judge(table, found)
        if found:
            raise _broken(found)
        return frozenset(read)

    def _judge(self, table: _Table, found: Findings) -> None:
        entity = self.catalog.by_table_key[table.after]
        kinds = {c.kind for c in table.constraints}
        if isinstance(entity, NodeType) and kinds & {"range", "check"}:
            names = {c.properties[0] for c in table.constraints if c.kind in ("range", "check")}
            bare = replace(
                entity,
                properties={},
                ranges=tuple(r for r in entity.ranges if _is(table, "range", r.property)),
                checks=tuple(c for c in entity.checks if _is(table, "check", c.property)),
            )
            for batch in self._rows(table, ["id", *sorted(names)]):
                constraints.check_values(bare, batch, found)
        for constraint in table.constraints:
            if constraint.kind == "unique":
                rows = pa.concat_tables(self._rows(table, list(dict.fromkeys(["id", *constraint.properties]))))
                constraints.check_unique(entity, constraint.properties, rows, None, found)
        if isinstance(entity, EdgeType) and "card" in kinds:
            # As commits judge it: a source without any edge may still get its first.
            rows = pa.concat_tables(self._rows(table, ["id", "src"]))
            constraints.check_cardinality(entity, rows, _NONE, found)

    def _rows(self, table: _Table, names: list[str]) -> Iterator[pa.Table]:
        """The rows with the columns as they are after the change."""
        entity = self.catalog.by_table_key[table.after]
        before = {new: old for old, new in table.renamed.items()}
        stored = [before.get(n, n) for n in names if n not in table.added]
        fill = {n: entity.properties[n] for n in names if n in table.added}
        for batch in self.base.scan_batches(table.before, stored):
            rows = pa.Table.from_batches([batch])
            rows = rows.rename_columns([table.renamed.get(n, n) for n in rows.column_names])
            for name, prop in fill.items():
                rows = rows.append_column(name, default_column(prop, rows.num_rows))
            yield rows.select(names)


def _is(table: _Table, kind: str, name: str) -> bool:
    return any(c.kind == kind and c.properties == (name,) for c in table.constraints)


def _fill(entity: NodeType | EdgeType, names: list[str]) -> pa.Table:
    """One row: what the rows that are there get in the new columns."""
    schema = table_schema(entity)
    fields = [schema.field(name) for name in names]
    columns: list[Any] = []
    for name, wanted in zip(names, fields, strict=True):
        prop = entity.properties[name]
        if prop.has_default and prop.default is not None:
            columns.append(default_column(prop, 1).cast(wanted.type))
        else:
            nulls: Any = pa.nulls
            columns.append(nulls(1, wanted.type))
    # A required column without a default is there only where the table has no rows: then nothing is filled in.
    return pa.Table.from_arrays(columns, schema=pa.schema([f.with_nullable(True) if columns[i].null_count else f
                                                          for i, f in enumerate(fields)]))  # fmt: skip


def _broken(found: Findings) -> BadRequest:
    total = sum(found.counts.values())
    lines = [str(record) for record in found.shown[:SHOWN]]
    if total > len(lines):
        lines.append(f"and {total - len(lines)} more")
    by_kind: Mapping[str, int] = dict(sorted(found.counts.items()))
    counted = ", ".join(f"{n} {kind}" for kind, n in by_kind.items())
    rows = "row breaks" if total == 1 else "rows break"
    return BadRequest(
        "\n  ".join([f"{total} {rows} a constraint that the new schema adds ({counted}); nothing was changed", *lines]),
        code="constraint_violated",
        details={"counts": by_kind, "rows": [record.as_dict() for record in found.shown]},
    )
