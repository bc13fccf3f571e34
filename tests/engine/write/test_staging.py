"""Which of a mutation's rows are new and which differ from the stored ones, judged as Python judges them."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

from omnigraph.schema.catalog import NodeType
from omnigraph.schema.compile import compile_schema
from omnigraph.storage.arrow import loose_schema, moving_schema
from omnigraph.write.columns import shaped, values_column
from omnigraph.write.staging import _changed, _parted

SCHEMA = "node P { name: String @key  age: I64?  mass: F64?  tags: [String]?  place: Vector(2)? }"
VALUES: dict[str, list[Any]] = {
    "name": ["a", "b"],
    "age": [None, 1, 2],
    "mass": [None, 0.0, -0.0, 1.5],
    "tags": [None, [], ["x"], ["x", "y"]],
    "place": [None, [0.0, 1.0], [1.0, 0.0]],
}


@pytest.fixture(scope="module")
def entity() -> NodeType:
    return compile_schema(SCHEMA).nodes["P"]


def table(entity: NodeType, rows: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=loose_schema(entity))


def test_changed_rows_are_those_that_differ(entity: NodeType) -> None:
    chance = random.Random(7)
    for _ in range(300):
        count = chance.randint(1, 4)
        new = [{"id": str(n), **{k: chance.choice(v) for k, v in VALUES.items()}} for n in range(count)]
        old = [
            row if chance.random() < 0.4 else row | {k: chance.choice(VALUES[k])}
            for row in new
            for k in [chance.choice(list(VALUES))]
        ]
        made = _changed(entity, table(entity, new), table(entity, old), None)
        assert made.to_pylist() == [row for row, before in zip(new, old, strict=True) if row != before]


def test_rows_are_parted_by_what_is_stored(entity: NodeType) -> None:
    chance = random.Random(11)
    for _ in range(200):
        ids = chance.sample("abcdef", chance.randint(0, 4))
        there = chance.sample(ids, chance.randint(0, len(ids))) if chance.random() < 0.7 else ids
        rows = table(entity, [{"id": one, "name": one, "age": 1} for one in ids])
        stored = table(entity, [{"id": one, "name": one, "age": 2} for one in there])
        appends, known, before = _parted(rows, stored)
        assert appends.column("id").to_pylist() == [one for one in ids if one not in there]
        assert known.column("id").to_pylist() == before.column("id").to_pylist() == [o for o in ids if o in there]
        assert set(known.column("age").to_pylist()) <= {1}
        assert set(before.column("age").to_pylist()) <= {2}


def test_schemas_are_made_once_for_a_type_and_not_for_another_of_its_name(entity: NodeType) -> None:
    assert moving_schema(entity) is moving_schema(entity)
    other = compile_schema("node P { name: String @key }").nodes["P"]
    assert moving_schema(other).names == ["id", "name"]
    assert loose_schema(entity).names == moving_schema(entity).names
    assert all(field.nullable for field in loose_schema(entity))
    assert not moving_schema(entity).field("id").nullable


def test_shaped_rows_have_the_schema_and_lose_no_value() -> None:
    schema = pa.schema([("b", pa.int32()), ("a", pa.string())])
    rows = pa.table({"a": ["x", None], "b": pa.array([1, 2], pa.int64()), "c": [0, 0]})
    made = shaped(rows, schema)
    assert made.schema.equals(schema)
    assert made.to_pylist() == [{"b": 1, "a": "x"}, {"b": 2, "a": None}]
    assert shaped(made, schema) is made
    with pytest.raises(pa.ArrowInvalid):
        shaped(pa.table({"a": ["x"], "b": [2**40]}), schema)


@pytest.mark.parametrize("value", ["x", "", 1.5, float("inf"), True, None, 3, 2**63, b"x", [1.0], ["x"], [True, None]])
def test_values_have_the_type_that_arrow_takes_them_for(value: Any) -> None:
    expected = pa.array([value], pa.uint64() if value == 2**63 else None)
    assert values_column([value]).equals(expected)
