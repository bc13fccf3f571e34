"""Leases of coordination.k8s.io: the graph's write lease, and the one that says which operator acts."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime

from omnigraph_operator.decide.shapes import Lease
from omnigraph_operator.platform.base import Object, PlatformError
from omnigraph_operator.platform.kubernetes_api import Api, Conflict, Json
from omnigraph_operator.platform.kubernetes_names import MANAGED_BY, OWNER_UID, metadata
from omnigraph_operator.platform.kubernetes_observe import parse_time

__all__ = ["LEADER_LABELS", "Leader", "lease_name", "read_lease", "release_writer", "take_writer"]

LEADER_LABELS = {"app.kubernetes.io/managed-by": MANAGED_BY, "app.kubernetes.io/component": "leader"}


# ---- the write lease -------------------------------------------------------------------------------------------------


def lease_name(graph: str) -> str:
    return f"{graph}-writer"


def read_lease(found: Json | None) -> Lease:
    """The lease as `decide` sees it; one that doesn't exist is held by nobody."""
    if found is None:
        return Lease()
    spec = found.get("spec") or {}
    return Lease(
        holder=spec.get("holderIdentity") or None,
        owner=(found["metadata"].get("annotations") or {}).get(OWNER_UID),
        since=parse_time(spec.get("acquireTime")),
        transitions=spec.get("leaseTransitions", 0),
    )


def take_writer(api: Api, obj: Object, holder: str, now: datetime) -> bool:
    """Take the lease if nobody holds it; False when somebody was faster (the next pass sees who)."""
    meta = obj["metadata"]
    name = lease_name(meta["name"])
    found = api.get("leases", meta["namespace"], name)
    uid = {OWNER_UID: meta["uid"]}
    try:
        if found is None:
            body: Json = {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": metadata(obj, name, annotations=uid),
                "spec": {"holderIdentity": holder, "acquireTime": _micro(now), "leaseTransitions": 1},
            }
            api.create("leases", body)
            return True
        seen = read_lease(found)
        if seen.holder is not None:
            return seen.holder == holder
        found["spec"] = {
            "holderIdentity": holder,
            "acquireTime": _micro(now),
            "leaseTransitions": seen.transitions + 1,
        }
        found["metadata"]["annotations"] = {**(found["metadata"].get("annotations") or {}), **uid}
        found["metadata"]["ownerReferences"] = metadata(obj, name)["ownerReferences"]
        api.replace("leases", found)
        return True
    except Conflict:
        return False


def release_writer(api: Api, obj: Object, holder: str) -> None:
    """Give the lease back if this workload still holds it; how often it was taken stays on it."""
    meta = obj["metadata"]
    found = api.get("leases", meta["namespace"], lease_name(meta["name"]))
    seen = read_lease(found)
    if found is None or seen.holder != holder:
        return
    found["spec"] = {"leaseTransitions": seen.transitions}
    api.replace("leases", found)


def _micro(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


# ---- the operator's own ----------------------------------------------------------------------------------------------


class Leader:
    """One active operator: holds a Lease and renews it from a thread.

    Actions ask `check` first. A holder that could not renew for `duration_seconds` may have been replaced; from two
    thirds of that on it no longer acts, so that two never do. Clocks of different machines are not compared: a waiting
    operator watches the lease's renewTime stand still for the whole duration on its own clock.
    """

    def __init__(
        self,
        api: Api,
        namespace: str,
        identity: str,
        *,
        name: str = "omnigraph-operator",
        duration_seconds: float = 15,
        on_lost: Callable[[], None] = lambda: None,
    ) -> None:
        self._api, self._namespace, self._identity, self._name = api, namespace, identity, name
        self._duration_seconds = duration_seconds
        self._on_lost = on_lost
        self._renewed_at: float | None = None
        self._seen: tuple[str, float] | None = None  # another holder's renewTime, and when it was first seen here
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def check(self) -> None:
        """Raise unless this operator may act now.

        Raises:
            PlatformError: it may not (yet, or any more).
        """
        if not self.holds():
            raise PlatformError("another operator holds the lease: nothing done here", retry_after_seconds=5)

    def holds(self) -> bool:
        renewed = self._renewed_at
        return renewed is not None and time.monotonic() - renewed < self._duration_seconds * 2 / 3

    def start(self) -> None:
        """Try for the lease now and go on in a thread."""
        self._attempt()
        self._thread = threading.Thread(target=self._run, name="leader", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Give the lease back, so that a successor need not wait."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout=5)
        held, self._renewed_at = self._renewed_at is not None, None
        if not held:
            return
        found = self._api.get("leases", self._namespace, self._name)
        if found is not None and found["spec"].get("holderIdentity") == self._identity:
            found["spec"] = {"leaseTransitions": found["spec"].get("leaseTransitions", 0)}
            self._api.replace("leases", found)

    def _run(self) -> None:
        while not self._stop.wait(self._duration_seconds / 5):
            held = self._renewed_at is not None
            self._attempt()
            if held and not self.holds():
                self._renewed_at = None
                self._on_lost()

    def _attempt(self) -> None:
        began = time.monotonic()
        try:
            taken = self._take_or_renew()
        except PlatformError:
            return  # not renewed: `holds` turns false by itself if this goes on
        self._renewed_at = began if taken else None

    def _take_or_renew(self) -> bool:
        found = self._api.get("leases", self._namespace, self._name)
        now = _micro(datetime.now(UTC))
        if found is None:
            metadata_: Json = {"name": self._name, "namespace": self._namespace, "labels": LEADER_LABELS}
            fresh: Json = {"acquireTime": now, "leaseTransitions": 1, **self._holding(now)}
            self._api.create(
                "leases",
                {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata_, "spec": fresh},
            )
            return True
        spec: Json = found.get("spec") or {}
        holder = spec.get("holderIdentity")
        if holder != self._identity:
            if holder and not self._stands_still(str(spec.get("renewTime"))):
                return False
            spec["leaseTransitions"] = spec.get("leaseTransitions", 0) + 1
            spec["acquireTime"] = now
        found["spec"] = spec | self._holding(now)
        self._api.replace("leases", found)  # refused when somebody else was faster
        return True

    def _holding(self, now: str) -> Json:
        return {
            "holderIdentity": self._identity,
            "renewTime": now,
            "leaseDurationSeconds": int(self._duration_seconds),
        }

    def _stands_still(self, renewed: str) -> bool:
        now = time.monotonic()
        if self._seen is None or self._seen[0] != renewed:
            self._seen = (renewed, now)
            return False
        return now - self._seen[1] >= self._duration_seconds
