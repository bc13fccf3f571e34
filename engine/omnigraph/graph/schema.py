"""`graph.schema`: the accepted schema, what another one would change, and accepting it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from omnigraph import write
from omnigraph.actors import check_actor
from omnigraph.errors import Conflict
from omnigraph.storage import Repository, Snapshot
from omnigraph.texts import text_and_name

if TYPE_CHECKING:
    from omnigraph.schema import Catalog, MigrationPlan
    from omnigraph.write import SchemaResult

__all__ = ["Schema"]


class Schema:
    """The accepted schema of a branch, as `graph.schema`."""

    def __init__(self, repository: Repository, actor: str | None = None) -> None:
        self._repository = repository
        self._actor = actor

    @property
    def source(self) -> str:
        """The `.pg` text."""
        return self.catalog.source

    @property
    def catalog(self) -> Catalog:
        """Every type, checked and resolved."""
        return self._repository.snapshot().catalog

    def plan(self, schema: str | Path, *, branch: str = "main", allow_data_loss: bool = False) -> MigrationPlan:
        """What accepting another schema would do, step by step. Nothing is changed.

        Args:
            schema: the desired `.pg` text, or the path of a file with it.
            branch: whose schema and rows it is compared with.
            allow_data_loss: drop for good instead of softly.

        Raises:
            LanguageError: the schema was refused.
            NotFound: no such branch.
        """
        from omnigraph.schema import compile_schema

        text, file = text_and_name(schema, "schema.pg")
        return _planned(self._repository.snapshot(branch), compile_schema(text, file=file), allow_data_loss)

    def apply(
        self,
        schema: str | Path,
        *,
        branch: str = "main",
        allow_data_loss: bool = False,
        actor: str | None = None,
        operation_id: str | None = None,
        expect_plan: str | None = None,
    ) -> SchemaResult:
        """Accept another schema, and change the data with it, as one commit. Nothing to do makes no commit.

        Every older commit keeps being read with the schema of its time.

        Args:
            schema: the desired `.pg` text, or the path of a file with it.
            branch: the branch to change; other branches must have the same schema already.
            allow_data_loss: drop for good: the old versions of what is dropped are removed right after the commit.
            actor: who asks; default is the graph's.
            operation_id: a ULID; the same one again changes nothing.
            expect_plan: the digest of the plan the caller saw; any other plan is refused.

        Raises:
            LanguageError: the schema was refused.
            BadRequest: the change can't be made (`OG-…` codes), or rows break a new constraint, with their ids.
            Conflict: the plan isn't the expected one, other branches keep another schema, another schema change is
                under way, or the branch moved; `retryable` says whether to try again.
            NotFound: no such branch.
        """
        from omnigraph.schema import compile_schema

        text, file = text_and_name(schema, "schema.pg")
        catalog = compile_schema(text, file=file)
        snapshot = self._repository.snapshot(branch)
        plan = _planned(snapshot, catalog, allow_data_loss)
        done = self._repository.done_before(branch, operation_id) if operation_id else None
        if done is not None:
            return write.SchemaResult(plan, done)
        if expect_plan is not None and expect_plan != plan.digest:
            raise Conflict(
                f"the plan is {plan.digest}, not {expect_plan}: the graph or the schema changed since; plan again",
                code="plan_changed",
                details={"expected": expect_plan, "actual": plan.digest, "plan": plan.as_dict()},
            )
        return write.apply_schema(
            self._repository,
            snapshot,
            catalog,
            plan,
            actor=check_actor(actor) or self._actor,
            operation_id=operation_id,
        )


def _planned(snapshot: Snapshot, catalog: Catalog, allow_data_loss: bool) -> MigrationPlan:
    from omnigraph.schema import plan_migration

    return plan_migration(
        snapshot.schema_ir,
        catalog,
        allow_data_loss=allow_data_loss,
        populated={key for key, table in snapshot.tables.items() if table.row_count},
    )
