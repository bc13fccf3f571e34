"""`Graph`: one opened repository. Each method is one verb and hands over to one room.

What the command and the server do goes through here, with the same words as in a Python program::

    with omnigraph.open("graph.omni") as g:
        print(g.query("query q() { match { $p: Person } return { $p.name } }"))
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

from omnigraph import read, write
from omnigraph.actors import check_actor
from omnigraph.arguments import expect_number, expect_path, listed
from omnigraph.errors import BadRequest
from omnigraph.graph.branches import Branches
from omnigraph.graph.result import QueryResult
from omnigraph.graph.schema import Schema
from omnigraph.query import bind_params, compile_query
from omnigraph.query.ir import CompiledQuery
from omnigraph.storage import At, CommitInfo, Repository, Snapshot
from omnigraph.texts import text_and_name

if TYPE_CHECKING:
    from omnigraph.maintain import VerifyReport
    from omnigraph.read import Blob
    from omnigraph.storage import CleanupReport, OptimizeReport, RepairReport, SweepReport
    from omnigraph.write import (
        Diff,
        EmbedProgress,
        EmbedReport,
        LoadResult,
        MutationResult,
        Progress,
    )
    from omnigraph.write.mapping import Mapping as LoadMapping
    from omnigraph.write.sources import Source

__all__ = ["At", "Branches", "CommitInfo", "Graph", "QueryResult", "Recovery", "Schema", "Snapshot"]

Recovery: TypeAlias = Literal["auto", "full", "forward", "none"]
"""How interrupted writes are settled at opening; see `Graph.open`."""


class Graph:
    """One opened graph. Safe to share between threads; each query reads one snapshot from first to last."""

    def __init__(
        self, repository: Repository, *, actor: str | None = None, recovered: SweepReport | None = None
    ) -> None:
        self._repository = repository
        self.actor = check_actor(actor)
        self.recovered = recovered
        self.branches = Branches(repository, actor)
        self.schema = Schema(repository, actor)

    # ---- opening ---------------------------------------------------------------------------------------------------

    @classmethod
    def init(
        cls, uri: str | Path, *, schema: str | Path, actor: str | None = None, operation_id: str | None = None
    ) -> Graph:
        """Create an empty graph.

        Args:
            uri: a folder, or an `s3://` URI; other files that are there are left alone.
            schema: the `.pg` text, or the path of a file with it.
            actor: who creates it and writes through this object.
            operation_id: a ULID; the same one again opens the graph it made.

        Raises:
            LanguageError: the schema was refused.
            Conflict: there is a graph already.
        """
        from omnigraph.schema import compile_schema

        expect_path("uri", uri)
        text, file = text_and_name(schema, "schema.pg")
        catalog = compile_schema(text, file=file)
        return cls(Repository.create(str(uri), catalog, actor=actor, operation_id=operation_id), actor=actor)

    @classmethod
    def open(
        cls, uri: str | Path, *, read_only: bool = False, actor: str | None = None, recovery: Recovery = "auto"
    ) -> Graph:
        """Open a graph, settling writes that were interrupted.

        Args:
            uri: a folder or an `s3://` URI.
            read_only: never write, not even to settle anything.
            actor: who writes through this object.
            recovery: `auto` rolls interrupted writes forward or back in a folder, where a lock tells the dead from the
                living, and only forward on an object store; `full` does both anywhere, and whoever says it asserts that
                no writer lives; `forward` never rolls back; `none` leaves everything as it is.

        Raises:
            NotFound: there is no graph.
            RecoveryPending: a file of an interrupted write can't be read.
            BadRequest: `read_only` together with a sweep that writes, no such recovery, or an actor that isn't a text.
        """
        expect_path("uri", uri)
        if recovery not in get_args(Recovery):
            raise BadRequest(f"recovery is one of {', '.join(get_args(Recovery))}, not {recovery!r}")
        if read_only:
            if recovery in ("full", "forward"):
                raise BadRequest(
                    f"a graph opened read-only can't be recovered (recovery={recovery!r}): open it for writing"
                )
            return cls(Repository.open(str(uri), read_only=True), actor=actor)
        repository = Repository.open(str(uri), read_only=False)
        if recovery == "auto":
            recovery = "full" if _is_folder(repository.uri) else "forward"
        recovered = None if recovery == "none" else repository.sweep(mode=recovery)
        return cls(repository, actor=actor, recovered=recovered)

    @property
    def uri(self) -> str:
        return self._repository.uri

    @property
    def read_only(self) -> bool:
        return self._repository.read_only

    def made_by(self, operation_id: str) -> bool:
        """Whether this operation created the graph."""
        return self._repository.made_by(operation_id)

    def close(self) -> None:
        """Let go of the graph. Nothing is buffered, so nothing is lost without it."""
        self._repository.close()

    def __enter__(self) -> Graph:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Graph {self.uri}{' (read-only)' if self.read_only else ''}>"

    # ---- reading ---------------------------------------------------------------------------------------------------

    def query(
        self,
        query: str | Path,
        params: Mapping[str, Any] | None = None,
        *,
        name: str | None = None,
        branch: str = "main",
        at: At = None,
        timeout_seconds: float | None = None,
        cancelled: Callable[[], bool] | None = None,
    ) -> QueryResult:
        """Run a read query over one snapshot.

        Args:
            query: the `.gq` text, or the path of a file with it.
            params: values by parameter name, as Python or JSON values.
            name: which query of the text; needed where it has several.
            branch: the branch to read.
            at: the moment to read it at.
            timeout_seconds: after which the query is given up; none by default.
            cancelled: asked between blocks of work, from this thread; True gives the query up.

        Raises:
            LanguageError: the query was refused.
            BadRequest: a parameter is missing, unknown or of another type, or the query is a mutation, too large
                (`query_too_large`), out of time (`query_timeout`) or cancelled (`query_cancelled`).
            NotFound: no such branch, moment or query.
        """
        if timeout_seconds is not None:
            expect_number("timeout_seconds", timeout_seconds, fractions=True)
        if cancelled is not None and not callable(cancelled):
            raise BadRequest(f"cancelled is a function that is asked, not a {type(cancelled).__name__}")
        deadline = None if timeout_seconds is None else time.monotonic() + timeout_seconds
        snapshot = self._repository.snapshot(branch, at)
        compiled = self._read_query(query, name, snapshot)
        bound = bind_params(compiled, params or {})
        table = read.execute(compiled, snapshot, bound, deadline=deadline, cancelled=cancelled)
        return QueryResult(table, compiled.columns, compiled.name, snapshot)

    def explain(
        self,
        query: str | Path,
        params: Mapping[str, Any] | None = None,
        *,
        name: str | None = None,
        branch: str = "main",
        at: At = None,
        analyze: bool = False,
    ) -> str:
        """The plan of a read query, as text; arguments as for `query`.

        Args:
            analyze: run it too, and say of each step how many rows it gave and how long it took.
        """
        snapshot = self._repository.snapshot(branch, at)
        compiled = self._read_query(query, name, snapshot)
        return read.explain(compiled, snapshot, bind_params(compiled, params or {}), analyze=analyze)

    def snapshot(self, branch: str = "main", at: At = None) -> Snapshot:
        """A pinned state of a branch; `.tables` says which version of which table it sees."""
        return self._repository.snapshot(branch, at)

    def head(self, branch: str = "main") -> CommitInfo:
        """The newest commit of a branch."""
        return self._repository.head(branch)

    def commits(self, branch: str = "main", *, limit: int = 50, before: str | None = None) -> list[CommitInfo]:
        """The history of a branch, newest first; `before` is a commit id to go on from."""
        expect_number("limit", limit)
        if limit < 0:
            raise BadRequest(f"limit {limit}: give a number from 0 on")
        return self._repository.commits(branch, limit, before)

    def commit(self, commit_id: str) -> CommitInfo:
        """One commit of any branch. Raises NotFound."""
        return self._repository.commit_info(commit_id)

    def entity(self, type: str, id: str, *, branch: str = "main", at: At = None) -> dict[str, Any] | None:
        """One node or edge as it is, or was at a moment; None where there is none.

        Args:
            type: the name of a node or edge type.
            id: a node's rendered key or an edge's id.
        """
        return read.entity(self._repository.snapshot(branch, at), type, id)

    def blob(self, type: str, id: str, property: str, *, branch: str = "main", at: At = None) -> Blob:
        """The Blob of one node or edge, to be read by ranges; opening it reads no bytes.

        Args:
            type: the name of a node or edge type.
            id: a node's rendered key or an edge's id.
            property: a Blob property of it.
            branch: the branch to read.
            at: the moment to read it at.

        Raises:
            NotFound: no such branch, moment, type, property, node or edge; or the Blob is null (`null_blob`).
            BadRequest: the property is no Blob, or its bytes lie outside the graph (`external_blob`).
        """
        return read.open_blob(self._repository.snapshot(branch, at), type, id, property)

    def diff(
        self,
        from_: str | Snapshot | CommitInfo,
        to: str | Snapshot | CommitInfo = "main",
        *,
        kinds: str | Collection[str] | None = None,
        types: str | Collection[str] | None = None,
        ops: str | Collection[str] | None = None,
    ) -> Diff:
        """What changed from one state to another: iterate it for entries, or take `.batches()`, `.table()`, `.stats()`.

        Args:
            from_, to: a branch, `branch@moment`, a commit or its id, or a snapshot.
            kinds: `node`, `edge`.
            types: names of node and edge types.
            ops: `insert`, `update`, `delete`.

        Raises:
            NotFound: no such branch, moment or commit.
            BadRequest: no such kind, type or operation.
        """
        one, other = self._repository.point(from_), self._repository.point(to)
        return write.Diff(
            self._repository, one, other, listed("kinds", kinds), listed("types", types), listed("ops", ops)
        )

    def changes(
        self,
        since: str | int | datetime | Snapshot | CommitInfo,
        *,
        branch: str = "main",
        kinds: str | Collection[str] | None = None,
        types: str | Collection[str] | None = None,
        ops: str | Collection[str] | None = None,
    ) -> Diff:
        """What changed on a branch since a moment of its history; ask again with `.to.head.id` for what follows.

        Args:
            since: a commit or its id, a manifest version, a time or a snapshot.

        Raises:
            BadRequest: `since` is None or nothing of that kind.
            NotFound: no such branch or moment.
        """
        if since is None:  # else it would mean now, and nothing had ever changed
            raise BadRequest("since when? Give a commit or its id, a manifest version, a time or a snapshot")
        to = self._repository.snapshot(branch)
        start = self._repository.snapshot(branch, since)
        return write.Diff(
            self._repository, start, to, listed("kinds", kinds), listed("types", types), listed("ops", ops)
        )

    def export(self, *, branch: str = "main", at: At = None, types: str | Sequence[str] | None = None) -> Iterator[str]:
        """The rows of a snapshot as NDJSON lines, nodes before edges; `types` names the types to write."""
        return write.export(self._repository.snapshot(branch, at), listed("types", types))

    # ---- writing ---------------------------------------------------------------------------------------------------

    def mutate(
        self,
        query: str | Path,
        params: Mapping[str, Any] | None = None,
        *,
        name: str | None = None,
        branch: str = "main",
        expect_head: str | None = None,
        actor: str | None = None,
        operation_id: str | None = None,
        embed: Literal["now", "later"] | None = None,
    ) -> MutationResult:
        """Run a mutation as one commit.

        Args:
            query: the `.gq` text, or the path of a file with it.
            params: values by parameter name.
            name: which query of the text; needed where it has several.
            branch: the branch to change.
            expect_head: the head commit the caller saw; anything newer refuses the mutation.
            actor: who asks; default is the graph's.
            operation_id: a ULID; the same one again changes nothing.
            embed: whether vectors that `@embed` makes from new texts are made `now` or `later`; see `load`.

        Raises:
            LanguageError: the query was refused.
            BadRequest: parameters or values are wrong, or the query only reads.
            Conflict: the branch moved in a way that matters, or isn't at `expect_head`.
        """
        compiled = self.compile(query, name=name, branch=branch)
        if compiled.kind != "mutation":
            raise BadRequest(f"query {compiled.name!r} only reads: run it as a query")
        return write.mutate(
            self._repository,
            compiled,
            bind_params(compiled, params or {}),
            branch=branch,
            actor=check_actor(actor) or self.actor,
            operation_id=operation_id,
            expect_head=expect_head,
            embed=embed,
        )

    def load(
        self,
        source: Source | None = None,
        *,
        mode: Literal["append", "merge", "overwrite"] = "append",
        branch: str = "main",
        from_: str | None = None,
        mapping: LoadMapping | None = None,
        format: str | None = None,
        actor: str | None = None,
        operation_id: str | None = None,
        progress: Callable[[Progress], None] | None = None,
        embed: Literal["now", "later"] | None = None,
        quarantine: str | Path | None = None,
        max_quarantined: int = 10_000,
    ) -> LoadResult:
        """Load records as one commit. Nothing is visible if one record is bad, unless bad ones are put aside.

        Args:
            source: path(s), globs or URIs of NDJSON files, an open file or a text with NDJSON records, or tables by
                type name; not needed with a mapping, which names its own.
            mode: `append` refuses ids that exist, `merge` updates them, `overwrite` replaces the rows of these types.
            branch: the branch to load into.
            from_: the branch to make a missing `branch` from.
            mapping: how the columns of Parquet, ORC, CSV and Arrow files become properties.
            format: of all files: ndjson, parquet, orc, csv or arrow; default by their suffixes.
            actor: who asks; default is the graph's.
            operation_id: a ULID; the same one again changes nothing.
            progress: called now and then with what is done so far.
            embed: whether vectors that `@embed` makes, and records omit, are made `now` or `later` by `embed`; default
                is `OMNIGRAPH_EMBED_WRITES`, else `now`. Without an embedding provider they wait in any case.
            quarantine: a file for bad records: they are left out with all that relies on them, and the rest is loaded.
            max_quarantined: more bad records than this refuse the load all the same.

        Raises:
            BadRequest: bad sources, mapping or records, with place, counts and the first twenty.
            NotFound: the branch is missing and `from_` isn't given.
            Conflict: another write won; `retryable` says whether to try again.
            Unavailable: the embedding provider gives no vectors.
        """
        if quarantine is not None:
            expect_path("quarantine", quarantine)
        return write.load(
            self._repository,
            source,
            mode=mode,
            branch=branch,
            from_=from_,
            mapping=mapping,
            format=format,
            actor=check_actor(actor) or self.actor,
            operation_id=operation_id,
            progress=progress,
            embed=embed,
            quarantine=None if quarantine is None else str(quarantine),
            max_quarantined=max_quarantined,
        )

    def embed(
        self,
        types: str | Sequence[str] | None = None,
        *,
        branch: str = "main",
        only_missing: bool = True,
        dry_run: bool = False,
        batch_rows: int | None = None,
        actor: str | None = None,
        progress: Callable[[EmbedProgress], None] | None = None,
    ) -> EmbedReport:
        """Make the vectors of `@embed` that rows with a text lack, in batches, each its own commit.

        What was finished stays if it is interrupted; called again it goes on, and with nothing missing does nothing.

        Args:
            types: names of node and edge types; default is all.
            branch: the branch to fill.
            only_missing: False makes every vector anew, after a change of the model.
            dry_run: count what is missing, and neither ask the provider nor write.
            batch_rows: rows of one commit; default by the size of their vectors.
            actor: who asks; default is the graph's.
            progress: called after each batch.

        Raises:
            BadRequest: no provider is set up, or its model isn't the one the schema records.
            NotFound: no such branch or type.
            Unavailable: the provider gives no vectors.
        """
        return write.embed(
            self._repository,
            types=listed("types", types),
            branch=branch,
            only_missing=only_missing,
            dry_run=dry_run,
            batch_rows=batch_rows,
            actor=check_actor(actor) or self.actor,
            progress=progress,
        )

    # ---- maintenance -----------------------------------------------------------------------------------------------

    def ensure_indices(
        self, *, branch: str = "main", actor: str | None = None, operation_id: str | None = None
    ) -> list[dict[str, Any]]:
        """Build the indexes that are missing; one entry a table. Indexes change speed, never results."""
        from omnigraph.maintain import ensure_indices

        return ensure_indices(
            self._repository, branch=branch, actor=check_actor(actor) or self.actor, operation_id=operation_id
        )

    def optimize(
        self,
        *,
        branch: str = "main",
        actor: str | None = None,
        operation_id: str | None = None,
        progress: Callable[[str], None] | None = None,
    ) -> OptimizeReport:
        """Extend the branch's indexes to rows written since, and turn many small data files into few.

        No row changes, and readers and writers go on meanwhile. Doing it again moves nothing.

        Args:
            branch: tables that it hasn't written itself are skipped: their files are another branch's.
            actor: who asks; default is the graph's.
            operation_id: a ULID; the same one again changes nothing.
            progress: called with the key of each table whose new files are written.

        Returns:
            `.tables`, one entry a table: what was done, or why nothing was; `.commit`: None where nothing moved.

        Raises:
            NotFound: no such branch.
            RecoveryPending: an interrupted write on the branch must be settled first.
            Conflict: other writes kept moving a table; `retryable`.
        """
        from omnigraph.maintain import optimize

        return optimize(
            self._repository,
            branch=branch,
            actor=check_actor(actor) or self.actor,
            operation_id=operation_id,
            notice=progress,
        )

    def cleanup(
        self,
        *,
        keep: int | None = None,
        older_than: timedelta | str | None = None,
        confirm: bool = False,
        progress: Callable[[str], None] | None = None,
    ) -> CleanupReport:
        """Remove old versions, the files that only they held, and what deleted branches and killed writes left.

        What a living branch, a tag, a write in flight or a snapshot of this process reads stays, and what living
        branches need to be merged with main and with the branch they began from. A commit that isn't kept stays in the
        history, but its state can't be read any more (`version_removed`).

        Args:
            keep: the newest commits of every branch that stay readable; with fewer than 3 a reader elsewhere that began
                a moment ago may lose its version.
            older_than: younger commits stay readable, and the one that was the newest then: a timedelta, or a text such
                as `7d` or `12h`. One of the two is needed; with both a commit stays that either keeps.
            confirm: without it nothing is removed, and the report says what would be.
            progress: called with the name of each table as it is done.

        Returns:
            `.tables`, one entry a table and branch; `.failed`, those that something went wrong with (the others are
            done); `.commits_kept` and `.commits_lost` by branch.

        Raises:
            BadRequest: neither `keep` nor `older_than`, or no sensible one.
            RecoveryPending: a file of an interrupted write can't be read, so nobody knows what it needs.
        """
        from omnigraph.maintain import cleanup

        return cleanup(self._repository, keep=keep, older_than=older_than, confirm=confirm, notice=progress)

    def verify(self) -> VerifyReport:
        """Walk everything and report every inconsistency. Writes nothing."""
        from omnigraph.maintain import verify

        return verify(self._repository)

    def repair(
        self, *, branch: str | None = None, confirm: bool = False, force: bool = False, actor: str | None = None
    ) -> RepairReport:
        """Look for tables whose newest version no commit published, and publish them on demand.

        Args:
            branch: only this one; default is every branch.
            confirm: publish what provably changes no row; without it nothing is written.
            force: with `confirm`, publish the rest too; check the graph with `verify` afterwards.
            actor: who asks; default is the graph's.
        """
        return self._repository.repair(branch, confirm=confirm, force=force, actor=check_actor(actor) or self.actor)

    def recover(self, mode: Literal["full", "forward"] = "full") -> SweepReport:
        """Settle interrupted writes; `full` asserts that no writer lives where no lock can tell."""
        return self._repository.sweep(mode=mode)

    def pending(self) -> list[Any]:
        """What interrupted (or running) writes have left to settle; cheap."""
        return self._repository.pending()

    # ---- compiling -------------------------------------------------------------------------------------------------

    def compile(self, query: str | Path, *, name: str | None = None, branch: str = "main") -> CompiledQuery:
        """One query, typechecked against the branch's schema."""
        text, file = text_and_name(query, "<query>")
        return compile_query(text, self._repository.snapshot(branch).catalog, name, file=file)

    @staticmethod
    def _read_query(query: str | Path, name: str | None, snapshot: Snapshot) -> CompiledQuery:
        text, file = text_and_name(query, "<query>")
        compiled = compile_query(text, snapshot.catalog, name, file=file)
        if compiled.kind != "read":
            raise BadRequest(f"query {compiled.name!r} is a mutation: run it with mutate", code="is_mutation")
        return compiled


def _is_folder(uri: str) -> bool:
    return "://" not in uri or uri.startswith("file://")
