"""The decision core: pure functions from what is desired and observed to actions and status.

`decide(obj, observed)` is the way in for every kind; `references(desired)` says what a platform has to look at.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from pydantic import ValidationError

from omnigraph_operator.decide import omnigraph
from omnigraph_operator.decide.shapes import Decision, Desired, Observed
from omnigraph_operator.decide.sources import Reference
from omnigraph_operator.decide.sources import references as _references
from omnigraph_operator.model.omnigraph import OmniGraphSpec

__all__ = ["InvalidSpec", "Reference", "decide", "desired_from", "needs_finalizer", "references"]


class InvalidSpec(ValueError):
    """A spec that passed the CRD's validation but can't be read (an older CRD is installed, most likely)."""


def desired_from(obj: Mapping[str, Any]) -> Desired:
    """The object as a typed wish.

    Args:
        obj: as the API server shows it.

    Raises:
        InvalidSpec: naming every field that is wrong.
    """
    meta = obj["metadata"]
    try:
        spec = OmniGraphSpec.model_validate(obj.get("spec") or {})
    except ValidationError as error:
        lines = [f"spec.{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors()]
        raise InvalidSpec("; ".join(lines)) from None
    created = datetime.fromisoformat(meta["creationTimestamp"]) if meta.get("creationTimestamp") else None
    return Desired(
        kind=obj["kind"],
        namespace=meta.get("namespace", "default"),
        name=meta["name"],
        uid=meta["uid"],
        generation=int(meta.get("generation", 1)),
        created=created or datetime.fromtimestamp(0, UTC),
        spec=spec,
        deleting=bool(meta.get("deletionTimestamp")),
        annotations=dict(meta.get("annotations") or {}),
    )


def references(desired: Desired) -> dict[str, Reference]:
    """Everything a pass over this object has to look at, by its key in `Observed.sources`."""
    return _references(desired.spec)


def needs_finalizer(desired: Desired) -> bool:
    """Whether something has to be done before the object may go: its data is to be removed."""
    return desired.spec.deletion_policy == "Delete"


def decide(obj: Mapping[str, Any], observed: Observed) -> Decision:
    """One pass for one object of any of our kinds."""
    try:
        desired = desired_from(obj)
    except InvalidSpec as error:
        generation = int(obj["metadata"].get("generation", 1))
        return omnigraph.stalled(generation, observed, ("SpecInvalid", str(error)))
    return omnigraph.decide(desired, observed)
