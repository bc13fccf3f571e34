"""What goes into a decision and what comes out, as data.

`decide(desired, observed) -> Decision` is the whole operator; everything else collects an `Observed` or carries out a
`Decision`. An action is allowed only by what is observed, never by what an earlier pass remembers. Names are
deterministic, so that doing an action twice is doing it once.

What a platform promises, so that the decisions are right:

- `Observed.workloads` holds every workload of the graph that exists in any form. One whose controlling object is away
  while a pod or process of it may still live is reported with `gone=False`; only what is proven to have no living part
  may be left out.
- `Observed.lease.transitions` grows with every successful `TakeWriter`, also over releases, and is never reset while
  the object exists.
- A server that ends by itself is FAILED, whatever its exit code.
- A terminal workload stays observable until a `Forget` names it, or until the object's own status holds its result.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

if TYPE_CHECKING:
    from omnigraph_operator.model.omnigraph import OmniGraphSpec

__all__ = [
    "Action",
    "Capabilities",
    "CreateChild",
    "Decision",
    "Desired",
    "Emit",
    "Engine",
    "Ensure",
    "Finalize",
    "Forget",
    "Lease",
    "Observed",
    "Phase",
    "Purpose",
    "ReleaseWriter",
    "Source",
    "Start",
    "Stop",
    "SweepMode",
    "TakeWriter",
    "Work",
    "Workload",
]

SweepMode: TypeAlias = Literal["full", "forward", "none"]


class Purpose(StrEnum):
    """What a workload is for. The value is part of its name and the `omnigraph.io/purpose` label."""

    INIT = "init"
    SWEEP = "sweep"
    LOAD = "load"
    INDEX = "index"
    SCHEMA = "schema"
    MERGE = "merge"
    MAINTENANCE = "maint"
    DELETE = "delete"
    SERVE_RW = "serve-rw"
    SERVE_RO = "serve-ro"

    @property
    def serves(self) -> bool:
        """A server: runs until it is stopped, and is useful once `Workload.ready`."""
        return self in (Purpose.SERVE_RW, Purpose.SERVE_RO)


class Phase(StrEnum):
    """How far a workload is. Succeeded and Failed are terminal; whether its parts are gone is a separate fact."""

    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"

    @property
    def terminal(self) -> bool:
        return self in (Phase.SUCCEEDED, Phase.FAILED)


class Engine(StrEnum):
    """What carries a task: the image's own process, `spark-submit` in one Job or process, or a SparkApplication."""

    PROCESS = "process"
    SPARK = "spark"
    SPARK_APPLICATION = "spark-application"


# ---- what is wanted --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Desired:
    """One object as its owner wrote it.

    Args:
        annotations: of the object; `omnigraph.io/paused` and `omnigraph.io/reconcile-at` matter.
        created: the object's creation time, the time part of its operation ids.
        deleting: deletion was asked for.
        spec: the parsed spec.
    """

    kind: str
    namespace: str
    name: str
    uid: str
    generation: int
    created: datetime
    spec: OmniGraphSpec
    deleting: bool = False
    annotations: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Work:
    """A workload to start: all that doesn't depend on where it runs. The platform adds URI, paths and result file.

    Args:
        name: deterministic, at most 58 characters, a DNS label.
        digest: of what it is made from (source, schema, server's settings), 32 hex digits.
        attempt: counts from 0 over failed attempts of the same digest.
        writes: it can move a table head. Every sweep does.
        operation_id: the ULID its commit carries; the same for every attempt, so that a second run changes nothing.
        sweep: the sweep in the workload's own entry point; for a SWEEP its own mode.
        engine: who runs it.
        inputs: keys into `Observed.sources`: what must be readable where it runs (`schema`, `load/NAME`,
            `mapping/NAME`, `queries/0`, `tokens`).
        flags: arguments of `omnigraph task PURPOSE` or `omnigraph serve` that hold no path and no address.
        replicas: of a server.
        port: of a server; None leaves it to the platform.
        deadline_seconds: after which the platform ends it as Failed; None for no limit.
    """

    name: str
    graph: str
    purpose: Purpose
    digest: str
    attempt: int
    writes: bool
    operation_id: str
    sweep: SweepMode = "none"
    engine: Engine = Engine.PROCESS
    inputs: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    replicas: int = 1
    port: int | None = None
    deadline_seconds: int | None = None


# ---- what is seen ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Workload:
    """A workload as it is seen.

    Args:
        phase: of the task as a whole. A server whose process lives is RUNNING; one that isn't reachable as an object
            but may have living parts is FAILED with `gone=False`.
        gone: proven that no pod or process of it lives (driver and executors too).
        ready: a server that answers `/readyz`; for a Deployment, all its replicas.
        result: the task's result object (`ok`, `code`, `message`, `commit`, `tables`, `sweep`, …), or None.
        exit_code: of the process, when it has ended and is known.
        message: for people, why it is in its phase; the result's own message is preferred to it.
        endpoint: a server's address for clients, `http://host:port`.
        started, finished: times of the first process and of the end.
    """

    name: str
    purpose: Purpose
    digest: str
    attempt: int
    writes: bool
    phase: Phase
    gone: bool
    engine: Engine = Engine.PROCESS
    ready: bool = False
    result: Mapping[str, Any] | None = None
    exit_code: int | None = None
    message: str = ""
    endpoint: str | None = None
    started: datetime | None = None
    finished: datetime | None = None

    @property
    def ended(self) -> bool:
        """Terminal, and no part of it lives: its outcome can't change any more."""
        return self.phase.terminal and self.gone


@dataclass(frozen=True, slots=True)
class Source:
    """Something the spec refers to.

    Args:
        digest: 32 hex digits over its bytes, or over the reference where the bytes can't be read from here.
        size_bytes: None when unknown.
        text: the content of schemas, queries and mappings (small texts), else None.
        file: how messages call it (`schema.pg`, `ConfigMap/x key y`).
        error: why it can't be had, naming it; None when all is well. The other fields mean nothing then.
    """

    digest: str = ""
    size_bytes: int | None = None
    text: str | None = None
    file: str = ""
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Lease:
    """The graph's write lease. `holder` is a workload's name or None; `owner` the uid of the object that took it."""

    holder: str | None = None
    owner: str | None = None
    since: datetime | None = None
    transitions: int = 0


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What the place offers.

    Args:
        spark_operator: None when SparkApplications are served and may be made, else the reason they aren't
            (`SparkCRDMissing`, `SparkOperatorNotResponding`, `SparkForbidden`, `NoCluster`).
        spark_process: None when `spark-submit` can run in a task, else why not (`no Java 17 found`).
        spark_min_bytes: from this source size on `Auto` takes Spark (`OMNIGRAPH_SPARK_MIN_BYTES`).
    """

    spark_operator: str | None = "NoCluster"
    spark_process: str | None = None
    spark_min_bytes: int = 256 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Observed:
    """Everything seen in one pass.

    Args:
        now: time-zone aware, whole seconds.
        status: the object's status as stored, {} when there is none.
        workloads: by name; see the module's promises.
        lease: of this graph.
        sources: by key, every key that `decide.needed_sources(desired)` names.
        ensured: digest by (kind, name) of the services and configs that stand, as last given to `Ensure`.
        dependents: names (`Branch/x`) of objects that need this one and are still there.
        namespace_terminating: the whole namespace is going away.
    """

    now: datetime
    status: Mapping[str, Any] = field(default_factory=dict)
    workloads: Mapping[str, Workload] = field(default_factory=dict)
    lease: Lease = field(default_factory=Lease)
    sources: Mapping[str, Source] = field(default_factory=dict)
    capabilities: Capabilities = field(default_factory=Capabilities)
    ensured: Mapping[tuple[str, str], str] = field(default_factory=dict)
    dependents: tuple[str, ...] = ()
    namespace_terminating: bool = False


# ---- what to do ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Start:
    """Create the workload, or adopt the one of this name. Never edits, never starts a second one beside it."""

    work: Work


@dataclass(frozen=True, slots=True)
class Stop:
    """End a workload gracefully (TERM, then KILL after the grace period) and remove it.

    Returns at once. It is observed with `gone=False` until no part of it lives, then not at all, so that it may be
    started again under its name. What has ended by itself keeps its outcome; only its lingering parts are ended.
    """

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class Forget:
    """Remove what is left of an ended workload. Only for one whose result the stored status already holds."""

    name: str


@dataclass(frozen=True, slots=True)
class TakeWriter:
    """Take the graph's lease for a workload if nobody holds it; losing the race is no error (the next pass sees it)."""

    holder: str


@dataclass(frozen=True, slots=True)
class ReleaseWriter:
    """Give the lease back if this workload still holds it."""

    holder: str


@dataclass(frozen=True, slots=True)
class Ensure:
    """Make a small object be there with exactly this content.

    Args:
        kind: `service` (data: `purpose`, the workloads it leads to, and `port`) or `config` (a ConfigMap's data).
        digest: of the data; the platform stores it and reports it in `Observed.ensured`.
    """

    kind: Literal["service", "config"]
    name: str
    data: Mapping[str, str]
    digest: str


@dataclass(frozen=True, slots=True)
class CreateChild:
    """Create an object of one of our kinds, owned by this one; one of that name that is ours already is success."""

    object: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Emit:
    """An Event for people. `type` is Normal or Warning."""

    type: Literal["Normal", "Warning"]
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Finalize:
    """Nothing holds the object any more: take the finalizer off (or, without a cluster, drop its state)."""


Action: TypeAlias = Start | Stop | Forget | TakeWriter | ReleaseWriter | Ensure | CreateChild | Emit | Finalize


@dataclass(frozen=True, slots=True)
class Decision:
    """What one pass came to.

    Args:
        actions: to carry out in this order; any prefix of them followed by a new pass leads to the same end.
        status: whole and JSON-serialisable; equal to `Observed.status` when nothing changed.
        again_in: seconds after which to look again without any event, or None.
    """

    actions: tuple[Action, ...]
    status: Mapping[str, Any]
    again_in: float | None = None
