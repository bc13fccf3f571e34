"""The pure half of recovery as tables of cases."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from omnigraph.errors import RecoveryPending
from omnigraph.storage.recovery import Action, Observed, TableClass, classify, decide
from omnigraph.storage.sidecar import SchemaChangeNote, Sidecar, SidecarTable, parse, render
from omnigraph.storage.types import WriterKind

MAIN = SidecarTable("node:T", "nodes/x", 4, 5)
FORK = SidecarTable("node:T", "nodes/x", 4, 5, None, "dev")
MANY = SidecarTable("node:T", "nodes/x", 4, 8)  # a schema change: several commits
C = TableClass


@pytest.mark.parametrize(
    ("table", "pin", "head", "ours", "expected"),
    [
        (MAIN, (None, 4), 4, None, C.NO_MOVEMENT),
        (MAIN, (None, 4), 5, True, C.ROLLED_PAST),
        (MAIN, (None, 4), 5, None, C.ROLLED_PAST),
        (MAIN, (None, 4), 5, False, C.MOVED_BY_OTHER),
        (MAIN, (None, 4), 6, True, C.UNEXPECTED_MULTISTEP),
        (MAIN, (None, 4), 3, None, C.INVARIANT_VIOLATION),
        (MAIN, (None, 4), None, None, C.INVARIANT_VIOLATION),
        (MAIN, (None, 5), 5, None, C.ALREADY_PUBLISHED),
        (MAIN, (None, 5), 6, False, C.ALREADY_PUBLISHED),
        (MAIN, (None, 7), 9, None, C.ALREADY_PUBLISHED),
        (MAIN, (None, 3), 4, None, C.UNEXPECTED_AT_P1),
        (MAIN, None, None, None, C.MOVED_BY_OTHER),
        (MANY, (None, 4), 4, None, C.NO_MOVEMENT),
        (MANY, (None, 4), 5, True, C.UNEXPECTED_AT_P1),
        (MANY, (None, 4), 7, True, C.UNEXPECTED_MULTISTEP),
        (MANY, (None, 4), 8, True, C.ROLLED_PAST),
        (MANY, (None, 4), 8, False, C.MOVED_BY_OTHER),
        (MANY, (None, 4), 9, True, C.UNEXPECTED_MULTISTEP),
        (MANY, (None, 8), 8, None, C.ALREADY_PUBLISHED),
        (FORK, (None, 4), None, None, C.NO_MOVEMENT),
        (FORK, (None, 4), 4, None, C.NO_MOVEMENT),
        (FORK, (None, 4), 5, True, C.ROLLED_PAST),
        (FORK, (None, 4), 6, None, C.UNEXPECTED_MULTISTEP),
        (FORK, ("dev", 5), 5, None, C.ALREADY_PUBLISHED),
        (FORK, ("other", 4), 5, None, C.MOVED_BY_OTHER),
    ],
)
def test_classify(
    table: SidecarTable, pin: tuple[str | None, int] | None, head: int | None, ours: bool | None, expected: TableClass
) -> None:
    assert classify(table, Observed(pin, head, ours)) is expected


@pytest.mark.parametrize(
    ("kind", "classes", "published", "tellable", "valid", "action", "tables"),
    [
        (WriterKind.LOAD, [C.ROLLED_PAST, C.ROLLED_PAST], False, True, True, Action.ROLL_FORWARD, "ab"),
        (WriterKind.LOAD, [C.ROLLED_PAST, C.ROLLED_PAST], False, True, False, Action.ROLL_BACK, "ab"),
        (WriterKind.LOAD, [C.ROLLED_PAST, C.NO_MOVEMENT], False, True, True, Action.ROLL_BACK, "a"),
        (WriterKind.LOAD, [C.ROLLED_PAST, C.MOVED_BY_OTHER], False, True, True, Action.ROLL_BACK, "a"),
        (WriterKind.LOAD, [C.NO_MOVEMENT, C.NO_MOVEMENT], False, True, True, Action.ROLL_BACK, ""),
        (WriterKind.LOAD, [C.UNEXPECTED_MULTISTEP, C.ROLLED_PAST], False, True, True, Action.ROLL_BACK, "ab"),
        (WriterKind.LOAD, [C.UNEXPECTED_AT_P1], False, True, True, Action.ROLL_BACK, "a"),
        (WriterKind.MUTATION, [C.ALREADY_PUBLISHED], True, True, True, Action.NOTHING, ""),
        (WriterKind.MUTATION, [C.ALREADY_PUBLISHED], False, False, True, Action.NOTHING, ""),
        # Another write was published in its place; a writer of ours would stand in history.
        (WriterKind.MUTATION, [C.ALREADY_PUBLISHED], False, True, True, Action.ROLL_BACK, ""),
        (WriterKind.MUTATION, [C.ALREADY_PUBLISHED, C.ROLLED_PAST], False, True, True, Action.ROLL_BACK, "b"),
        (
            WriterKind.ENSURE_INDICES,
            [C.UNEXPECTED_MULTISTEP, C.NO_MOVEMENT],
            False,
            True,
            True,
            Action.ROLL_FORWARD,
            "a",
        ),
        (WriterKind.ENSURE_INDICES, [C.NO_MOVEMENT, C.NO_MOVEMENT], False, True, True, Action.ROLL_BACK, ""),
        (WriterKind.OPTIMIZE, [C.ALREADY_PUBLISHED, C.ROLLED_PAST], False, True, True, Action.ROLL_FORWARD, "b"),
        (WriterKind.LOAD, [C.INVARIANT_VIOLATION, C.ROLLED_PAST], False, True, True, Action.ABORT, ""),
        (WriterKind.OPTIMIZE, [C.INVARIANT_VIOLATION], True, True, True, Action.ABORT, ""),
    ],
)
def test_decide(
    kind: WriterKind,
    classes: list[TableClass],
    published: bool,
    tellable: bool,
    valid: bool,
    action: Action,
    tables: str,
) -> None:
    decision = decide(
        kind, dict(zip("ab", classes, strict=False)), published=published, tellable=tellable, still_valid=valid
    )
    assert (decision.action, "".join(decision.tables)) == (action, tables)


SIDECAR = Sidecar(
    "01X", "01X", "2026-01-01T00:00:00", "dev", "alice", WriterKind.LOAD, (FORK,), {"edge:E": (None, 3)}, "h", True
)


@pytest.mark.parametrize(
    ("classes", "promotable", "action"),
    [
        ([C.ROLLED_PAST, C.ROLLED_PAST], True, Action.ROLL_FORWARD),
        ([C.ROLLED_PAST, C.ROLLED_PAST], False, Action.ROLL_BACK),
        ([C.ROLLED_PAST, C.UNEXPECTED_AT_P1], True, Action.ROLL_BACK),
        ([], True, Action.ROLL_BACK),
    ],
)
def test_a_schema_change_goes_forward_only_with_its_schema(
    classes: list[TableClass], promotable: bool, action: Action
) -> None:
    decision = decide(
        WriterKind.SCHEMA_APPLY,
        dict(zip("ab", classes, strict=False)),
        published=False,
        tellable=True,
        still_valid=True,
        promotable=promotable,
    )
    assert decision.action is action


CHANGE = replace(
    SIDECAR,
    writer_kind=WriterKind.SCHEMA_APPLY,
    schema_change=SchemaChangeNote(
        "h2", "i2", {"node:U": "nodes/0123456789abcdef-2"}, {"node:T": 5}, ("nodes/0123456789abcdef",)
    ),
)


@pytest.mark.parametrize("sidecar", [SIDECAR, CHANGE])
def test_a_sidecar_is_read_as_written(sidecar: Sidecar) -> None:
    assert parse("01X", render(sidecar)) == sidecar


@pytest.mark.parametrize("path", ["../nodes/0123456789abcdef", "__manifest", "nodes", "", "nodes/0123456789abcdef/.."])
@pytest.mark.parametrize("where", ["additional_registrations", "purged_paths"])
def test_a_sidecar_names_nothing_but_places_of_tables(where: str, path: str) -> None:
    """A sweep may remove what lies there."""
    raw = json.loads(render(CHANGE))
    raw[where] = [path] if where == "purged_paths" else [{"table_key": "node:U", "table_path": path}]
    with pytest.raises(RecoveryPending, match="no table's place"):
        parse("01X", json.dumps(raw).encode())


def test_a_sidecar_of_another_maker_is_read() -> None:
    text = {
        "schema_version": 1,
        "operation_id": "01Y",
        "started_at": "1764292800000000",
        "actor_id": "bob",
        "writer_kind": "BranchMerge",
        "tables": [{"table_key": "node:T", "table_path": "/abs/nodes/x", "expected_version": 4, "post_commit_pin": 5}],
        "merge_source_commit_id": "01Z",
    }
    sidecar = parse("name", json.dumps(text).encode())
    assert (sidecar.branch, sidecar.marked, sidecar.reads) == ("main", False, {})
    assert sidecar.tables[0].table_branch is None


@pytest.mark.parametrize(
    "change",
    [
        {"schema_version": 2},
        {"schema_version": None},
        {"operation_id": ""},
        {"operation_id": 5},
        {"writer_kind": "Teleport"},
        {"tables": None},
        {"tables": [{}]},
        {"tables": [{"table_key": "a", "table_path": "b", "expected_version": "4", "post_commit_pin": 5}]},
        {"tables": [{"table_key": "a", "table_path": "b", "expected_version": 4, "post_commit_pin": -5}]},
        {"branch": 7},
        {"branch": "../x"},
        {
            "tables": [
                {
                    "table_key": "a",
                    "table_path": "b",
                    "expected_version": 4,
                    "post_commit_pin": 5,
                    "table_branch": "..",
                }
            ]
        },
    ],
)
def test_a_damaged_sidecar_is_refused_by_its_file_name(change: dict[str, object]) -> None:
    data = json.dumps(json.loads(render(SIDECAR)) | change).encode()
    with pytest.raises(RecoveryPending, match=r"__recovery/odd\.json"):
        parse("odd", data)


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"\xff\xfe", b"null", b"[" * 100_000])
def test_a_torn_sidecar_is_refused(data: bytes) -> None:
    with pytest.raises(RecoveryPending):
        parse("odd", data)
