"""What the operator counts, for Prometheus."""

from __future__ import annotations

from prometheus_client import Counter, Gauge, Histogram

from omnigraph_operator.decide.shapes import Action, Emit, Forget, Start, Stop, TakeWriter

__all__ = ["LEADER", "LEASES_TAKEN", "PASSES", "PASS_SECONDS", "QUEUE_DEPTH", "count_actions"]

PASSES = Counter("omnigraph_operator_passes_total", "Passes over an object", ["kind", "outcome"])
PASS_SECONDS = Histogram(
    "omnigraph_operator_pass_seconds", "Duration of a pass", ["kind"], buckets=(0.01, 0.05, 0.1, 0.5, 1, 5, 30)
)
QUEUE_DEPTH = Gauge("omnigraph_operator_queue_depth", "Objects due now or being worked on")
LEADER = Gauge("omnigraph_operator_leader", "1 while this process may act")
WORKLOADS = Counter("omnigraph_operator_workloads_started_total", "Workloads started", ["purpose", "engine"])
STOPPED = Counter("omnigraph_operator_workloads_stopped_total", "Workloads stopped before their end")
FORGOTTEN = Counter("omnigraph_operator_workloads_settled_total", "Workloads whose result is in a status")
LEASES_TAKEN = Counter("omnigraph_operator_write_leases_total", "Write leases asked for")
EVENTS = Counter("omnigraph_operator_events_total", "Events emitted", ["type", "reason"])


def count_actions(actions: tuple[Action, ...]) -> None:
    """Count what a decision asked for and the platform carried out."""
    for action in actions:
        match action:
            case Start(work):
                WORKLOADS.labels(work.purpose.value, work.engine.value).inc()
            case Stop():
                STOPPED.inc()
            case Forget():
                FORGOTTEN.inc()
            case TakeWriter():
                LEASES_TAKEN.inc()
            case Emit():
                EVENTS.labels(action.type, action.reason).inc()
