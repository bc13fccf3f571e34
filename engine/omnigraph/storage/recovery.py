"""What to do with an interrupted write: pure tables of cases (01 §1.6, 07 §1–7). `sweep` carries them out."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from omnigraph.records import dataclass
from omnigraph.storage.manifest import Pin
from omnigraph.storage.sidecar import SidecarTable
from omnigraph.storage.types import WriterKind

__all__ = ["CHANGES_NO_ROW", "Action", "Decision", "Observed", "TableClass", "classify", "decide"]


class TableClass(StrEnum):
    ALREADY_PUBLISHED = "AlreadyPublished"
    NO_MOVEMENT = "NoMovement"
    ROLLED_PAST = "RolledPastExpected"
    UNEXPECTED_AT_P1 = "UnexpectedAtP1"
    UNEXPECTED_MULTISTEP = "UnexpectedMultistep"
    MOVED_BY_OTHER = "MovedByOther"
    INVARIANT_VIOLATION = "InvariantViolation"


MOVED = frozenset({TableClass.ROLLED_PAST, TableClass.UNEXPECTED_AT_P1, TableClass.UNEXPECTED_MULTISTEP})


CHANGES_NO_ROW = frozenset({WriterKind.ENSURE_INDICES, WriterKind.OPTIMIZE})
"""Writers whose work may be published by halves and never needs undoing (07 §7)."""


class Action(StrEnum):
    NOTHING = "Nothing"
    ROLL_FORWARD = "RollForward"
    ROLL_BACK = "RollBack"
    ABORT = "Abort"


@dataclass(frozen=True, slots=True)
class Observed:
    """A table as a sweep finds it.

    Args:
        pin: what the manifest says, or a later version of that lineage with the same rows; None: the table is gone.
        head: newest version of the lineage `table_branch`, without what others did below the writer's own; None: there
            is no such fork.
        ours: whether the commit after the pin carries this sidecar's mark; None: can't be told.
        version: the newest version as it is numbered.
    """

    pin: Pin | None
    head: int | None
    ours: bool | None = None
    version: int | None = None


def classify(table: SidecarTable, seen: Observed) -> TableClass:
    """Compare a table's head with the manifest's pin."""
    if seen.pin is None:
        return TableClass.MOVED_BY_OTHER
    branch, pinned = seen.pin
    if branch != table.table_branch:
        if branch != table.expected_branch:
            return TableClass.MOVED_BY_OTHER
        pinned = table.expected_version  # first write on a branch: the fork begins at the inherited version
        if seen.head is None or seen.head <= pinned:
            return TableClass.NO_MOVEMENT
    elif seen.head is None or seen.head < pinned:
        return TableClass.INVARIANT_VIOLATION
    elif pinned >= table.post_commit_pin and not seen.ours:  # with ours above it, others' compactions alone got there
        return TableClass.ALREADY_PUBLISHED
    if seen.head == pinned:
        return TableClass.NO_MOVEMENT
    if seen.ours is False:
        return TableClass.MOVED_BY_OTHER
    if table.expected_version == pinned and table.post_commit_pin == seen.head:
        return TableClass.ROLLED_PAST
    if seen.head > pinned + 1:
        return TableClass.UNEXPECTED_MULTISTEP
    return TableClass.UNEXPECTED_AT_P1


@dataclass(frozen=True, slots=True)
class Decision:
    """`tables`: those the action publishes (forward) or restores (back); `outcome` for the audit."""

    action: Action
    outcome: str
    tables: tuple[str, ...] = ()


def decide(
    kind: WriterKind,
    classes: Mapping[str, TableClass],
    *,
    published: bool,
    tellable: bool,
    still_valid: bool,
    promotable: bool = True,
) -> Decision:
    """Decide over a whole sidecar.

    Args:
        published: history holds the operation.
        tellable: history would hold it if it had been published (a writer of ours).
        still_valid: schema and every pin the write relied on stand as it saw them.
        promotable: of a schema apply, whether the new schema lies ready to follow the publish.
    """
    found = frozenset(classes.values())
    moved = tuple(sorted(key for key, c in classes.items() if c in MOVED))
    if TableClass.INVARIANT_VIOLATION in found:
        return Decision(Action.ABORT, "InvariantViolation")
    if published:
        return Decision(Action.NOTHING, "AlreadyPublished")
    if kind in CHANGES_NO_ROW and moved:
        return Decision(Action.ROLL_FORWARD, "RolledForward", moved)  # they change no row, so half of it is as good
    if found == {TableClass.ALREADY_PUBLISHED} and not tellable:
        return Decision(Action.NOTHING, "AlreadyPublished")
    if found == {TableClass.ROLLED_PAST} and still_valid and promotable:
        return Decision(Action.ROLL_FORWARD, "RolledForward", moved)
    return Decision(Action.ROLL_BACK, "RolledBack", moved)
