"""What becomes of an OmniGraph: init, sweep, loads, indexes, servers; pause and deletion.

Each stage says whether it is done, and which workload it needs next. The first that isn't done decides; the writer
(`decide.writer`) brings its workload to life in the only order that is safe.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any

from omnigraph.errors import BadRequest, LanguageError
from omnigraph.query import compile_queries
from omnigraph.schema import compile_schema
from omnigraph.schema.catalog import Catalog
from omnigraph.write.mapping import check_mapping
from omnigraph_operator.decide import names, writer
from omnigraph_operator.decide.attempts import track
from omnigraph_operator.decide.conditions import Fact, conditions, events, timestamp
from omnigraph_operator.decide.loads import Stage, actor, index_stage, load_stage
from omnigraph_operator.decide.servers import Serving, serving
from omnigraph_operator.decide.shapes import (
    Action,
    Decision,
    Desired,
    Finalize,
    Forget,
    Observed,
    Phase,
    Purpose,
    ReleaseWriter,
    Source,
    Stop,
    SweepMode,
    Work,
)

__all__ = ["PAUSED", "RECONCILE_AT", "decide"]

PAUSED = "omnigraph.io/paused"
RECONCILE_AT = "omnigraph.io/reconcile-at"
STEADY_AGAIN_SECONDS = 300.0  # drift of what no event tells of: sources behind a URI, a lease taken from outside
BUSY_AGAIN_SECONDS = 30.0

Problem = tuple[str, str]  # reason, message


@dataclass(frozen=True, slots=True)
class _Init:
    """What is known of the graph itself."""

    done: bool
    facts: Mapping[str, Any]
    wanted: Work | None = None
    wait_seconds: float = 0.0
    problem: Problem | None = None
    entries: tuple[Mapping[str, Any], ...] = ()
    keep: frozenset[str] = frozenset()
    results: tuple[Mapping[str, Any], ...] = ()


def decide(desired: Desired, observed: Observed) -> Decision:
    """One pass over one OmniGraph."""
    if desired.deleting:
        return _delete(desired, observed)
    reason = _paused(desired)
    if reason is not None:
        return _pause(desired, observed, reason)

    round_ = _round(desired)
    problem, catalog = _check(desired, observed)
    sweep: SweepMode = "forward" if writer.server_lives(observed) else "full"
    init = _init(desired, observed, catalog, sweep=sweep, round_=round_)
    problem = problem or init.problem or _schema_changed(desired, init, catalog)
    loads = load_stage(desired, observed, sweep=sweep, round_=round_)
    problem = problem or loads.problem
    schema_hash = str(init.facts.get("schemaHash", ""))
    index = Stage(False, tuple(observed.status.get("indexes", ())))
    if init.done and loads.done:
        index = index_stage(desired, observed, loads, schema_hash, sweep=sweep, round_=round_)
        problem = problem or index.problem
    ready_to_serve = init.done and loads.done and index.done and problem is None
    servers = serving(desired, observed, may_start=ready_to_serve, round_=round_)

    wanted, wait = None, 0.0
    if problem is None:  # a server that can't be started keeps no load from being done
        ahead = (s for s in (init, loads, index) if not s.done)
        stage: _Init | Stage | Serving = next(ahead, servers)
        wanted, wait = stage.wanted, stage.wait_seconds
        if wait > 0:
            wanted = None
    problem = problem or servers.problem
    step = writer.step(desired, observed, wanted, round_=round_)
    problem = problem or step.stalled

    doing = step.doing or (f"waiting for {step.waiting_for} to finish writing" if step.waiting_for else "")
    doing = doing or init_doing(init) or loads.doing or index.doing or servers.doing
    view = _View(init, loads, index, servers, step, problem, doing)
    status, facts = _status(desired, observed, view)
    keep = init.keep | loads.keep | index.keep | servers.keep
    actions: list[Action] = [*step.actions, *servers.actions, *_forget(observed, keep, problem is None)]
    actions += events(observed.status, facts)
    again = _again_in(step.again_in, wait, busy=not servers.ready or not ready_to_serve)
    return Decision(tuple(actions), status, again)


def init_doing(init: _Init) -> str:
    """What is going on while the graph isn't there yet."""
    return "" if init.done else "making the graph"


def _round(desired: Desired) -> str:
    return f"{desired.generation}/{desired.annotations.get(RECONCILE_AT, '')}"


def _paused(desired: Desired) -> Problem | None:
    if desired.annotations.get(PAUSED, "").lower() == "true":
        return "Annotated", f"the annotation {PAUSED} is true: nothing is done until it is taken away"
    if desired.spec.suspend:
        return "Suspended", "spec.suspend is true: nothing is done until it is false"
    return None


# ---- before anything starts ------------------------------------------------------------------------------------------


@lru_cache(maxsize=64)
def _compiled(text: str, file: str) -> Catalog:
    return compile_schema(text, file=file)


def _check(desired: Desired, observed: Observed) -> tuple[Problem | None, Catalog | None]:
    """All that can be judged without running anything: texts compile, mappings fit, sources are there."""
    schema = observed.sources.get("schema", Source(error="the schema wasn't looked at"))
    if schema.error is not None or schema.text is None:
        return ("SourceMissing", schema.error or f"{schema.file}: the schema is empty"), None
    try:
        catalog = _compiled(schema.text, schema.file or "schema.pg")
    except LanguageError as error:
        return ("SchemaInvalid", str(error)), None
    for load in desired.spec.loads:
        if load.mapping is not None:
            try:
                check_mapping(load.mapping, catalog)
            except BadRequest as error:
                return ("MappingInvalid", f"load {load.name}: {error}"), catalog
    for key, source in sorted(observed.sources.items()):
        if key.startswith("load/"):
            continue  # a source that was loaded may go away: the load stage knows
        if source.error is not None:
            return ("SourceMissing", source.error), catalog
        if key.startswith("queries/") and source.text is not None:
            try:
                compile_queries(source.text, catalog, file=source.file or key)
            except LanguageError as error:
                return ("QueryInvalid", str(error)), catalog
    return None, catalog


def _schema_changed(desired: Desired, init: _Init, catalog: Catalog | None) -> Problem | None:
    known = init.facts.get("schemaHash")
    if not init.done or catalog is None or not known or known == catalog.hash:
        return None
    if desired.spec.schema_policy.apply == "InitOnly":
        return None
    return (
        "SchemaChanged",
        f"the schema here ({catalog.hash[:12]}) isn't the graph's ({str(known)[:12]}), and changing the schema of a "
        "graph that is there isn't supported yet: restore the text, or set schemaPolicy.apply to InitOnly",
    )


def _init(desired: Desired, observed: Observed, catalog: Catalog | None, *, sweep: SweepMode, round_: str) -> _Init:
    known = {k: observed.status[k] for k in ("schemaHash", "formatVersion", "created") if k in observed.status}
    spec = desired.spec
    digest = names.digest(spec.storage.uri, catalog.hash if catalog else "", spec.adopt)

    def name_of(attempt: int) -> str:
        return names.workload(desired.name, Purpose.INIT, desired.uid, digest, attempt)

    if known.get("schemaHash"):
        return _Init(True, known, keep=frozenset({name_of(0)}))
    tracked = track(observed, "init", digest, name_of, round_=round_)
    keep = frozenset({name_of(max(0, tracked.attempt - 1)), name_of(tracked.attempt)})
    entries = (tracked.entry,) if tracked.entry else ()
    if tracked.succeeded and tracked.current is not None and catalog is not None:
        result = tracked.current.result or {}
        facts: dict[str, Any] = {
            "schemaHash": str(result.get("schemaHash") or catalog.hash),
            "created": not result.get("adopted", False),
        }
        if result.get("formatVersion"):
            facts["formatVersion"] = result["formatVersion"]
        return _Init(True, facts, keep=keep, results=(result,))
    if tracked.exhausted:
        message = f"the graph can't be made at {spec.storage.uri}: {tracked.message}"
        return _Init(False, known, problem=("InitFailed", message), entries=entries, keep=keep)
    work = Work(
        name=name_of(tracked.attempt),
        graph=desired.name,
        purpose=Purpose.INIT,
        digest=digest,
        attempt=tracked.attempt,
        writes=True,
        operation_id=names.operation_id(desired.created, desired.uid, "init", digest),
        inputs=("schema",),
        flags=("--adopt", spec.adopt, "--actor", actor(desired)),
    )
    return _Init(False, known, work, tracked.wait_seconds, entries=entries, keep=keep)


# ---- the status ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _View:
    """Everything a pass found out, for the status."""

    init: _Init
    loads: Stage
    index: Stage
    servers: Serving
    step: writer.Step
    problem: Problem | None
    doing: str


def _status(desired: Desired, observed: Observed, view: _View) -> tuple[dict[str, Any], list[Fact]]:
    before = observed.status
    status = _base(desired) | {"uri": desired.spec.storage.uri, **view.init.facts}
    status |= _latest(before, (*view.init.results, *view.loads.results, *view.index.results))
    if view.loads.records:
        status["loads"] = list(view.loads.records)
    if view.index.records:
        status["indexes"] = list(view.index.records)
    if view.servers.endpoints:
        status["endpoints"] = dict(view.servers.endpoints)
    if observed.lease.holder:
        status["writer"] = {"holder": observed.lease.holder} | _given(since=timestamp(observed.lease.since))
    recovery = _recovery(observed, view.step)
    if recovery:
        status["recovery"] = recovery
    entries = [*view.init.entries, *view.loads.entries, *view.index.entries, *view.servers.entries]
    if view.step.entry:
        entries.append(view.step.entry)
    if entries:
        status["attempts"] = [dict(e) for e in entries]
    facts = _facts(desired, observed, view, recovery)
    status["phase"] = _phase(view)
    status["conditions"] = conditions(
        facts, before.get("conditions", ()), generation=desired.generation, now=observed.now
    )
    return status, facts


def _base(desired: Desired) -> dict[str, Any]:
    out: dict[str, Any] = {"observedGeneration": desired.generation}
    if desired.annotations.get(RECONCILE_AT):
        out["lastHandledReconcileAt"] = desired.annotations[RECONCILE_AT]
    return out


def _given(**values: Any) -> dict[str, Any]:
    return {k: v for k, v in values.items() if v is not None}


def _latest(before: Mapping[str, Any], results: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Head and size of main as the newest result tells them."""
    out = _given(head=before.get("head"), tables=before.get("tables"))
    newest = int((out.get("head") or {}).get("manifestVersion") or 0)
    for result in results:
        head, size = result.get("head"), result.get("graph")
        if not isinstance(head, Mapping) or result.get("branch", "main") != "main":
            continue
        if int(head.get("manifestVersion") or 0) < newest:
            continue
        newest = int(head.get("manifestVersion") or 0)
        out["head"] = _given(**{k: head.get(k) for k in ("commit", "manifestVersion", "time")})
        if isinstance(size, Mapping):
            out["tables"] = {"count": int(size.get("tables", 0)), "rows": int(size.get("rows", 0))}
    return out


def _recovery(observed: Observed, step: writer.Step) -> Mapping[str, Any] | None:
    before: Mapping[str, Any] | None = observed.status.get("recovery")
    ended = [w for w in observed.workloads.values() if w.purpose is Purpose.SWEEP and w.ended and w.finished]
    if not ended:
        return before
    last = max(ended, key=_finished)
    when = timestamp(last.finished) or ""
    if before and (before.get("lastSweep") or "") > when:
        return before
    report = (last.result or {}).get("sweep") or {}
    recovered = [writer.describe(o) for o in report.get("outcomes", ()) or ()][:20]
    pending = writer.pending_of(last)[:20]
    if last.phase is Phase.FAILED and not pending:
        outcome = "Failed"
    else:
        outcome = "Pending" if pending else "Recovered" if recovered else "Clean"
    out: dict[str, Any] = {"lastSweep": when, "outcome": outcome}
    # A later sweep that found nothing leaves what an earlier one settled to be read.
    kept = recovered or (before or {}).get("recovered")
    return out | _given(recovered=kept or None, pending=pending or None)


def _finished(workload: Any) -> datetime:
    return workload.finished  # type: ignore[no-any-return]


def _facts(desired: Desired, observed: Observed, view: _View, recovery: Mapping[str, Any] | None) -> list[Fact]:
    problem, doing = view.problem, view.doing
    init, loads, index, servers = view.init, view.loads, view.index, view.servers
    ready = init.done and loads.done and index.done and servers.ready and problem is None
    out = []
    if ready:
        out.append(Fact("Ready", True, "Serving" if servers.asked else "Converged", _summary(desired, view)))
    elif problem is not None:
        out.append(Fact("Ready", False, *problem))
    else:
        out.append(Fact("Ready", False, "Progressing", doing))
    if not ready and problem is None:
        out.append(Fact("Reconciling", True, "Progressing", doing))
    if problem is not None:
        out.append(Fact("Stalled", True, *problem))
    out.append(_staged("Initialized", init.done, "GraphThere", problem, ("InitFailed",), desired.spec.storage.uri))
    out.append(_schema_fact(init, problem))
    out.append(_recovery_fact(recovery, view.step))
    rows = sum(int(r.get("rows", 0)) for r in loads.records)
    count = len(desired.spec.loads)
    said = f"{rows} rows by {count} load{'' if count == 1 else 's'}" if count else "no loads are asked for"
    out.append(_staged("Loaded", init.done and loads.done, "LoadsDone", problem, ("LoadFailed",), said))
    out.append(_staged("IndexesReady", init.done and loads.done and index.done, "IndexesBuilt", problem,
                       ("IndexFailed",), ""))  # fmt: skip
    if servers.asked:
        where = ", ".join((servers.endpoints or {}).values())
        # A server that answers keeps serving whatever else is stalled.
        out.append(_staged("Serving", servers.ready, "ServersAnswer", problem, ("ServerFailed",), where))
    spark = observed.capabilities
    if spark.spark_operator is None:
        out.append(Fact("SparkAvailable", True, "SparkApplications", "loads may run as SparkApplications"))
    elif spark.spark_process is None:
        out.append(Fact("SparkAvailable", True, "SparkSubmit", f"loads may run with spark-submit in one task "
                                                               f"({spark.spark_operator})"))  # fmt: skip
    else:
        out.append(Fact("SparkAvailable", False, spark.spark_operator, spark.spark_process))
    if view.step.waiting_for:
        out.append(Fact("WaitingForWriter", True, "LeaseHeld", f"{view.step.waiting_for} holds the write lease"))
    return out


def _staged(type_: str, done: bool, reason: str, problem: Problem | None, own: tuple[str, ...], message: str) -> Fact:
    if done:
        return Fact(type_, True, reason, message)
    if problem is not None and problem[0] in own:
        return Fact(type_, False, *problem)
    return Fact(type_, False, "Blocked" if problem else "Pending", "")


def _schema_fact(init: _Init, problem: Problem | None) -> Fact:
    if problem is not None and problem[0] in ("SchemaChanged", "SchemaInvalid"):
        return Fact("SchemaInSync", False, *problem)
    if not init.done:
        return Fact("SchemaInSync", False, "Pending", "")
    return Fact("SchemaInSync", True, "SameSchema", f"schema {str(init.facts.get('schemaHash', ''))[:12]}")


def _recovery_fact(recovery: Mapping[str, Any] | None, step: writer.Step) -> Fact:
    if step.stalled is not None:
        return Fact("RecoveryClean", False, *step.stalled)
    if recovery is None:
        return Fact("RecoveryClean", None, "NotSwept", "no sweep has run yet")
    if recovery.get("pending"):
        return Fact("RecoveryClean", False, "Pending", "; ".join(recovery["pending"]))
    if recovery["outcome"] == "Failed":
        return Fact("RecoveryClean", False, "SweepFailed", "the last sweep failed and is tried again")
    return Fact("RecoveryClean", True, "Clean", "the last sweep left nothing behind")


def _summary(desired: Desired, view: _View) -> str:
    where = ", ".join((view.servers.endpoints or {}).values())
    return f"answering at {where}" if where else f"the graph at {desired.spec.storage.uri} is as declared"


_FAILED = frozenset({"InitFailed", "LoadFailed", "IndexFailed", "ServerFailed"})


def _phase(view: _View) -> str:
    if view.problem is not None:
        return "Failed" if view.problem[0] in _FAILED else "Stalled"
    if not view.init.done:
        return "Initializing"
    if not view.loads.done:
        return "Loading"
    if not view.index.done:
        return "Indexing"
    if not view.servers.ready:
        return "Starting"
    return "Serving" if view.servers.asked else "Ready"


def _again_in(step: float | None, wait: float, *, busy: bool) -> float:
    times = [t for t in (step, wait if wait > 0 else None) if t is not None]
    return min(times, default=BUSY_AGAIN_SECONDS if busy else STEADY_AGAIN_SECONDS)


def _forget(observed: Observed, keep: frozenset[str], calm: bool) -> list[Forget]:
    """What has ended, is of no further use, and is in the stored status if it was a sweep."""
    if not calm:
        return []
    swept = (observed.status.get("recovery") or {}).get("lastSweep") or ""
    out = []
    for w in sorted(observed.workloads.values(), key=lambda w: w.name):
        if not w.ended or w.name in keep or w.name == observed.lease.holder:
            continue
        if w.purpose is Purpose.SWEEP:
            when = timestamp(w.finished) or ""
            # The newest stays for whoever wants to read its log.
            if observed.lease.holder is None and when < swept:
                out.append(Forget(w.name))
        elif w.purpose in (Purpose.LOAD, Purpose.INDEX) or w.purpose.serves:
            out.append(Forget(w.name))
    return out


# ---- pause and deletion ----------------------------------------------------------------------------------------------


def _pause(desired: Desired, observed: Observed, reason: Problem) -> Decision:
    before = observed.status
    facts = [Fact("Ready", False, "Paused", reason[1]), Fact("Paused", True, *reason)]
    carried = [
        Fact(c["type"], {"True": True, "False": False}.get(c["status"]), c["reason"], c["message"])
        for c in before.get("conditions", ())
        if c["type"] not in ("Ready", "Paused", "Reconciling", "Stalled", "WaitingForWriter")
    ]
    status = dict(before) | _base(desired)
    status["phase"] = "Paused"
    status["conditions"] = conditions(
        [*facts, *carried], before.get("conditions", ()), generation=desired.generation, now=observed.now
    )
    return Decision(tuple(events(before, facts)), status)


def _delete(desired: Desired, observed: Observed) -> Decision:
    """Stop what runs, remove the data if asked and ours, let go."""
    if observed.namespace_terminating:
        return Decision((Finalize(),), observed.status)
    ours = [w for w in observed.workloads.values() if not w.ended]
    deletes = desired.spec.deletion_policy == "Delete" and observed.status.get("created", False) is True
    digest = names.digest("delete", desired.uid)

    def name_of(attempt: int) -> str:
        return names.workload(desired.name, Purpose.DELETE, desired.uid, attempt)

    tracked = track(observed, "delete", digest, name_of, round_=_round(desired))
    stops = [Stop(w.name, "the graph is being deleted") for w in ours if w.purpose is not Purpose.DELETE]
    if observed.dependents:
        waits = ", ".join(observed.dependents)
        return _deleting(desired, observed, [], f"waiting for {waits} to be deleted", None, 30.0)
    if stops:
        return _deleting(desired, observed, list(stops), "stopping what runs", None, 2.0)
    if not deletes or tracked.succeeded:
        release = [ReleaseWriter(observed.lease.holder)] if observed.lease.holder else []
        return Decision((*release, Finalize()), observed.status)
    if tracked.exhausted:
        problem = ("DeleteFailed", f"the data at {desired.spec.storage.uri} can't be removed: {tracked.message}")
        return _deleting(desired, observed, [], problem[1], problem, None, tracked.entry)
    work = Work(
        name=name_of(tracked.attempt),
        graph=desired.name,
        purpose=Purpose.DELETE,
        digest=digest,
        attempt=tracked.attempt,
        writes=True,
        operation_id=names.operation_id(desired.created, desired.uid, "delete"),
    )
    step = writer.step(desired, observed, None if tracked.wait_seconds else work, round_=_round(desired))
    again = step.again_in if step.again_in is not None else tracked.wait_seconds or BUSY_AGAIN_SECONDS
    return _deleting(desired, observed, list(step.actions), "removing the data", None, again, tracked.entry)


def _deleting(
    desired: Desired,
    observed: Observed,
    actions: list[Action],
    doing: str,
    problem: Problem | None,
    again: float | None,
    entry: Mapping[str, Any] | None = None,
) -> Decision:
    facts = [Fact("Ready", False, "Deleting", doing)]
    facts.append(Fact("Stalled", True, *problem) if problem else Fact("Reconciling", True, "Deleting", doing))
    before = observed.status
    status = dict(before) | _base(desired)
    status.pop("endpoints", None)
    if entry:
        status["attempts"] = [dict(entry)]
    status["phase"] = "Stalled" if problem else "Deleting"
    status["conditions"] = conditions(
        facts, before.get("conditions", ()), generation=desired.generation, now=observed.now
    )
    return Decision((*actions, *events(before, facts)), status, again)


def stalled(desired_generation: int, observed: Observed, problem: Problem) -> Decision:
    """A spec that can't even be read."""
    facts = [Fact("Ready", False, *problem), Fact("Stalled", True, *problem)]
    before = observed.status
    status = dict(before) | {"observedGeneration": desired_generation, "phase": "Stalled"}
    status["conditions"] = conditions(
        facts, before.get("conditions", ()), generation=desired_generation, now=observed.now
    )
    return Decision(tuple(events(before, facts)), status)
