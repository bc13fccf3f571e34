"""Prometheus metrics, one registry a server."""

from __future__ import annotations

from importlib.metadata import version

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, generate_latest

__all__ = ["Metrics"]


class Metrics:
    """Counts and times of one server's requests and writes."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "omnigraph_http_requests", "Requests answered", ["method", "route", "status"], registry=self.registry
        )
        self.seconds = Histogram(
            "omnigraph_http_request_seconds", "Time to answer", ["method", "route"], registry=self.registry
        )
        self.in_flight = Gauge("omnigraph_http_in_flight", "Requests being answered", registry=self.registry)
        self.rows = Counter("omnigraph_query_rows", "Rows answered by queries", registry=self.registry)
        self.commits = Counter("omnigraph_commits", "Commits made by mutations", registry=self.registry)
        self.conflicts = Counter("omnigraph_conflicts", "Writes refused by a conflict", registry=self.registry)
        Info("omnigraph_build", "Version", registry=self.registry).info({"version": version("omnigraph")})

    def render(self) -> bytes:
        """The text exposition format."""
        return generate_latest(self.registry)
