"""The loads and indexes of a graph: what is done, what is wanted next, and on which engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from omnigraph_operator.decide import names
from omnigraph_operator.decide.attempts import Track, track
from omnigraph_operator.decide.conditions import timestamp
from omnigraph_operator.decide.shapes import (
    Capabilities,
    Desired,
    Engine,
    Observed,
    Purpose,
    Source,
    SweepMode,
    Work,
    Workload,
)
from omnigraph_operator.model.omnigraph import Load, Spark

__all__ = ["Choice", "Stage", "actor", "choose_engine", "index_stage", "load_stage"]


@dataclass(frozen=True, slots=True)
class Stage:
    """Where one stage stands.

    Args:
        done: nothing of it is left.
        wanted: the workload it needs next, running or not.
        wait_seconds: until it may be started.
        problem: reason and message when it can't go on.
        records: its part of the status (`loads` or `indexes`).
        entries: failed attempts, for `status.attempts`.
        keep: names of workloads whose outcome is still of use.
        doing: what is going on, for people.
    """

    done: bool
    records: tuple[Mapping[str, Any], ...] = ()
    wanted: Work | None = None
    wait_seconds: float = 0.0
    problem: tuple[str, str] | None = None
    entries: tuple[Mapping[str, Any], ...] = ()
    keep: frozenset[str] = frozenset()
    doing: str = ""
    results: tuple[Mapping[str, Any], ...] = field(default=())


@dataclass(frozen=True, slots=True)
class Choice:
    """The engine of a load, and why; or why there is none."""

    engine: Engine
    why: str
    problem: str | None = None


def actor(desired: Desired) -> str:
    """Who the commits of this object are by."""
    return f"OmniGraph/{desired.namespace}/{desired.name}"


def choose_engine(load: Load, spark: Spark, source: Source, place: Capabilities) -> Choice:
    """Process or Spark, and which way of Spark (07 §29). The load's own word goes before the graph's."""
    limit = place.spark_min_bytes
    size = source.size_bytes
    if load.spark == "Never" or (load.spark == "Auto" and spark.mode == "Never"):
        said = f"spark: {load.spark}" if load.spark == "Never" else "spark.mode: Never"
        return Choice(Engine.PROCESS, said)
    if load.spark == "Always":
        why, forced = "spark: Always", True
    elif spark.mode in ("Job", "SparkOperator"):
        why, forced = f"spark.mode: {spark.mode}", True
    elif size is None:
        if place.spark_operator is not None:
            return Choice(Engine.PROCESS, f"the source's size is unknown and SparkApplications aren't served "
                                          f"({place.spark_operator})")  # fmt: skip
        why, forced = "the source's size is unknown", False
    elif size < limit:
        return Choice(Engine.PROCESS, f"{size} bytes are below OMNIGRAPH_SPARK_MIN_BYTES ({limit})")
    else:
        why, forced = f"{size} bytes reach OMNIGRAPH_SPARK_MIN_BYTES ({limit})", False
    if spark.mode in ("Auto", "SparkOperator") and place.spark_operator is None:
        return Choice(Engine.SPARK_APPLICATION, why)
    if spark.mode == "SparkOperator":
        return Choice(Engine.SPARK_APPLICATION, why, f"{place.spark_operator}: {why}, but none can be made here")
    if place.spark_process is None:
        return Choice(Engine.SPARK, why)
    if forced:
        return Choice(Engine.SPARK, why, f"{why}, but Spark can't run here: {place.spark_process}")
    return Choice(Engine.PROCESS, f"{why}, but Spark can't run here: {place.spark_process}")


def load_stage(desired: Desired, observed: Observed, *, sweep: SweepMode, round_: str) -> Stage:
    """The loads in their order; a later one waits for the earlier ones. Each content runs once."""
    before = {r["name"]: r for r in observed.status.get("loads", ())}
    records: list[Mapping[str, Any]] = []
    entries: list[Mapping[str, Any]] = []
    keep: set[str] = set()
    results: list[Mapping[str, Any]] = []
    ahead: Stage | None = None
    for load in desired.spec.loads:
        one = _load(desired, observed, load, before.get(load.name), sweep=sweep, round_=round_)
        records += one.records
        entries += one.entries
        keep |= one.keep
        results += one.results
        if ahead is None and not one.done:
            ahead = one
    if ahead is None:
        return Stage(True, tuple(records), entries=tuple(entries), keep=frozenset(keep), results=tuple(results))
    return Stage(
        False, tuple(records), ahead.wanted, ahead.wait_seconds, ahead.problem, tuple(entries), frozenset(keep),
        ahead.doing, tuple(results),
    )  # fmt: skip


def _load(
    desired: Desired,
    observed: Observed,
    load: Load,
    before: Mapping[str, Any] | None,
    *,
    sweep: SweepMode,
    round_: str,
) -> Stage:
    source = observed.sources.get(f"load/{load.name}", Source(error=f"load {load.name}: its source wasn't looked at"))
    loaded = before is not None and before["phase"] == "Loaded"
    if source.error is not None:
        if loaded and before is not None:
            return Stage(True, (before,))  # what was there is loaded; nothing says that it changed
        missing = {"name": load.name, "phase": "Pending", "message": source.error}
        return Stage(False, (dict(before or {}) | missing,), problem=("SourceMissing", source.error))
    mapping = load.mapping.model_dump(mode="json", by_alias=True, exclude_defaults=True) if load.mapping else None
    digest = names.digest(source.digest, load.format, mapping, load.mode, load.branch)
    if loaded and before is not None and before["digest"] == digest:
        return Stage(True, (before,), keep=frozenset({before.get("workload", "")}))
    revision = before.get("revision", 0) if before else 0
    if loaded:
        revision += 1

    def name_of(attempt: int) -> str:
        return names.workload(desired.name, Purpose.LOAD, desired.uid, load.name, digest, revision, attempt)

    tracked = track(observed, f"load/{load.name}", names.digest(digest, revision), name_of, round_=round_)
    choice = choose_engine(load, desired.spec.spark, source, observed.capabilities)
    engine = tracked.current.engine if tracked.current is not None else choice.engine
    same_engine = before is not None and before.get("engine") == engine.value and before.get("digest") == digest
    record: dict[str, Any] = {
        "name": load.name,
        "phase": "Pending",
        "digest": digest,
        "revision": revision,
        "engine": engine.value,
        "engineReason": before["engineReason"] if before and same_engine and tracked.current else choice.why,
        "workload": name_of(tracked.attempt),
    }
    if tracked.succeeded and tracked.current is not None:
        record |= {"phase": "Loaded"} | _outcome(tracked.current)
        return Stage(True, (record,), keep=frozenset({tracked.current.name}), results=(tracked.current.result or {},))
    keep = frozenset({name_of(max(0, tracked.attempt - 1)), name_of(tracked.attempt)})
    entries = (tracked.entry,) if tracked.entry else ()
    if tracked.exhausted:
        record |= {"phase": "Failed", "message": tracked.message, "workload": name_of(max(0, tracked.attempt - 1))}
        problem = ("LoadFailed", f"load {load.name} failed: {tracked.message}")
        return Stage(False, (record,), problem=problem, entries=entries, keep=keep)
    if tracked.current is None and choice.problem is not None:
        record |= {"message": choice.problem}
        return Stage(False, (record,), problem=("SparkUnavailable", f"load {load.name}: {choice.problem}"), keep=keep)
    inputs = [f"load/{load.name}"]
    if load.mapping is not None:
        inputs.append(f"mapping/{load.name}")
    work = Work(
        name=name_of(tracked.attempt),
        graph=desired.name,
        purpose=Purpose.LOAD,
        digest=digest,
        attempt=tracked.attempt,
        writes=True,
        operation_id=names.operation_id(desired.created, desired.uid, "load", load.name, digest, revision),
        sweep=sweep,
        engine=engine,
        inputs=tuple(inputs),
        flags=(
            "--name", load.name, "--format", load.format, "--mode", load.mode, "--branch", load.branch,
            "--actor", actor(desired),
        ),
    )  # fmt: skip
    if tracked.current is not None:
        record |= {"phase": "Running"}
    elif tracked.message:
        record |= {"message": f"attempt {tracked.attempt} failed: {tracked.message}"[:4096]}
    doing = f"load {load.name} ({engine.value}: {record['engineReason']})"
    return Stage(False, (record,), work, tracked.wait_seconds, entries=entries, keep=keep, doing=doing)


def _outcome(workload: Workload) -> dict[str, Any]:
    result = workload.result or {}
    out: dict[str, Any] = {"rows": rows_of(result)}
    commit = commit_of(result)
    if commit:
        out["commit"] = commit
    if isinstance(result.get("seconds"), int | float):
        out["seconds"] = result["seconds"]
    if workload.finished is not None:
        out["finishedAt"] = timestamp(workload.finished)
    return out


def commit_of(result: Mapping[str, Any]) -> str:
    """The id of the commit that a task made, "" when it changed nothing."""
    return str(result.get("commit") or "")


def rows_of(result: Mapping[str, Any]) -> int:
    """Rows over all tables of a load's result."""
    if "rows" in result:
        return int(result["rows"])
    return sum(int(table.get("rows") or 0) for table in result.get("tables") or ())


def index_stage(
    desired: Desired, observed: Observed, loads: Stage, schema_hash: str, *, sweep: SweepMode, round_: str
) -> Stage:
    """Indexes of every branch that was loaded, once for each state of its loads."""
    before = {r["branch"]: r for r in observed.status.get("indexes", ())}
    state: dict[str, list[Any]] = {}
    for load, record in zip(desired.spec.loads, loads.records, strict=True):
        state.setdefault(load.branch, []).append((load.name, record.get("digest"), record.get("revision")))
    records: list[Mapping[str, Any]] = []
    entries: list[Mapping[str, Any]] = []
    keep: set[str] = set()
    results: list[Mapping[str, Any]] = []
    for branch, contents in state.items():
        digest = names.digest(schema_hash, contents)
        stored = before.get(branch)
        if stored is not None and stored["digest"] == digest:
            records.append(stored)
            continue
        name_of = _index_names(desired, branch, digest)
        tracked: Track = track(observed, f"index/{branch}", digest, name_of, round_=round_)
        keep.add(name_of(tracked.attempt))
        if tracked.succeeded and tracked.current is not None:
            result = tracked.current.result or {}
            records.append({"branch": branch, "digest": digest, "commit": commit_of(result)})
            results.append(result)
            continue
        if tracked.entry:
            entries.append(tracked.entry)
        work = Work(
            name=name_of(tracked.attempt),
            graph=desired.name,
            purpose=Purpose.INDEX,
            digest=digest,
            attempt=tracked.attempt,
            writes=True,
            operation_id=names.operation_id(desired.created, desired.uid, "index", branch, digest),
            sweep=sweep,
            flags=("--branch", branch, "--actor", actor(desired)),
        )
        problem = ("IndexFailed", f"building indexes of {branch} failed: {tracked.message}")
        return Stage(
            False, tuple(records), None if tracked.exhausted else work, tracked.wait_seconds,
            problem if tracked.exhausted else None, tuple(entries), frozenset(keep), f"indexes of {branch}",
            tuple(results),
        )  # fmt: skip
    return Stage(True, tuple(records), entries=tuple(entries), keep=frozenset(keep), results=tuple(results))


def _index_names(desired: Desired, branch: str, digest: str) -> Any:
    def name_of(attempt: int) -> str:
        return names.workload(desired.name, Purpose.INDEX, desired.uid, branch, digest, attempt)

    return name_of
