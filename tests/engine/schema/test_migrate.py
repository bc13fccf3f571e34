"""The IR and migration plans, over random schemas and random edits of them. A failure prints how to see it again."""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, assume, given, note, settings
from hypothesis import strategies as st

from omnigraph.errors import BadRequest
from omnigraph.schema import SchemaIR, apply_plan, compile_schema, ir_of, plan_migration
from omnigraph.schema.ir_json import MalformedIR, canonical_json
from omnigraph.schema.steps import AddConstraint, DropProperty, DropType, RenameProperty, RenameType, UnsupportedChange
from tests.engine.schema.generate import Model, edited, models, shuffled

LIMITS = settings(
    max_examples=40,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def ir(text: str) -> SchemaIR:
    return ir_of(compile_schema(text))


@st.composite
def changes(draw: st.DrawFn) -> tuple[Model, Model]:
    before = draw(models())
    return before, draw(edited(before))


# ---- the IR ----------------------------------------------------------------------------------------------------------


@LIMITS
@given(st.data())
def test_order_comments_and_white_space_leave_no_trace(data: st.DataObject) -> None:
    model = data.draw(models())
    one, other = ir(model.text()), ir(data.draw(shuffled(model)))
    assert one == other
    assert one.identity == other.identity


@LIMITS
@given(models())
def test_json_there_and_back(model: Model) -> None:
    schema = ir(model.text())
    back = SchemaIR.from_json(schema.to_json())
    assert back == schema
    assert back.to_json() == schema.to_json() == canonical_json(json.loads(schema.to_json()))
    assert SchemaIR.from_json(schema.to_json().encode()) == schema


@LIMITS
@given(models(), models())
def test_ids_are_given_once(a: Model, b: Model) -> None:
    first = ir(a.text())
    second = ir_of(compile_schema(b.text()), first)
    ids = [i for t in second.types for i in (t.id, *(p.id for p in t.properties))]
    assert len(ids) == len(set(ids))
    assert second.next_id > max(ids)
    old = {i: (t.kind, t.name) for t in first.types for i in [t.id]}
    assert all(old[t.id] == (t.kind, t.name) for t in second.types if t.id < first.next_id)


@settings(LIMITS, max_examples=30)
@given(models(), st.data())
def test_damaged_json_is_refused_or_another_schema(model: Model, data: st.DataObject) -> None:
    text = ir(model.text()).to_json()
    at = data.draw(st.integers(0, len(text) - 1))
    damaged = text[:at] + data.draw(st.sampled_from(["", "x", "0", "null", '"', "}", "-"])) + text[at + 1 :]
    try:
        read = SchemaIR.from_json(damaged)
    except MalformedIR:
        return
    assert read.to_json() == canonical_json(json.loads(read.to_json()))


MALFORMED = {
    "": ("", "not JSON"),
    "[]": ("", "expected an object"),
    '{"ir_version":2,"next_id":1}': ("types", "is missing"),
    '{"ir_version":2,"next_id":1,"types":[],"more":1}': ("more", "is unknown"),
    '{"ir_version":3,"next_id":1,"types":[]}': ("ir_version", "upgrade omnigraph"),
    '{"ir_version":1,"next_id":1,"types":[]}': ("ir_version", "has no ids"),
    '{"ir_version":2,"next_id":0,"types":[]}': ("next_id", "from 1 on"),
    '{"ir_version":2,"ir_version":2,"next_id":1,"types":[]}': ("", "twice"),
    '{"ir_version":2,"next_id":1,"types":[{"kind":"node"}]}': ("types[0].id", "is missing"),
}


@pytest.mark.parametrize("text", MALFORMED)
def test_malformed_json_says_where(text: str) -> None:
    where, words = MALFORMED[text]
    with pytest.raises(MalformedIR) as caught:
        SchemaIR.from_json(text)
    assert caught.value.details["place"] == where
    assert words in caught.value.message


EVERYTHING = ir(
    "node A { k: String @key  e: enum(a, b)? @default(null)  v: Vector(2)  n: I32 @default(1)  @range(n, 0..2) }"
    ' edge E: A -> A @card(1..2) { x: [Date] @default([date("2026-01-01")]) @unit("d") }'
).to_json()


@pytest.mark.parametrize(
    ("change", "to", "where"),
    [
        ('"source":"A"', '"source":"B"', "types[0].source"),
        ('"base":"I32"', '"base":"I33"', "types[1].properties[2].type.base"),
        ('"enum":["a","b"]', '"enum":["b","a"]', "types[1].properties[0].type.enum"),
        ('"dim":2', '"dim":0', "types[1].properties[3].type.dim"),
        ('"default":1', '"default":"1"', "types[1].properties[2].default"),
        ('"default":["2026-01-01"]', '"default":["2026-13-01"]', "types[0].properties[0].default"),
        ('"properties":["k"]', '"properties":["q"]', "types[1].constraints[0]"),
        ('"kind":"range"', '"kind":"rang"', "types[1].constraints[1].kind"),
        ('"nullable":true', '"nullable":false', "types[1].properties[0].type.nullable"),
        ('"id":2,', '"id":1,', "types"),
        ('"next_id":8', '"next_id":7', "next_id"),
    ],
)
def test_what_contradicts_itself_is_refused_at_its_place(change: str, to: str, where: str) -> None:
    assert EVERYTHING.count(change) == 1
    with pytest.raises(MalformedIR) as caught:
        SchemaIR.from_json(EVERYTHING.replace(change, to))
    assert caught.value.details["place"] == where


# ---- plans -----------------------------------------------------------------------------------------------------------


@LIMITS
@given(st.data())
def test_a_plan_to_the_same_is_empty(data: st.DataObject) -> None:
    model = data.draw(models())
    planned = plan_migration(ir(model.text()), compile_schema(data.draw(shuffled(model))))
    assert planned.steps == ()
    assert planned.supported
    assert planned.accepted == planned.desired


@LIMITS
@given(changes())
def test_applying_a_plan_gives_the_desired_schema(change: tuple[Model, Model]) -> None:
    before, after = (m.text() for m in change)
    note(f"{before}\n--- to\n{after}")
    accepted, desired = ir(before), compile_schema(after)
    for populated in (set(), None):
        planned = plan_migration(accepted, desired, populated=populated)
        if not planned.supported:
            continue
        result = apply_plan(accepted, planned)
        assert result == ir_of(desired, accepted)
        assert result.identity == planned.desired
        assert plan_migration(result, desired).steps == ()


@LIMITS
@given(changes())
def test_renames_keep_identity(change: tuple[Model, Model]) -> None:
    before, after = change
    accepted = ir(before.text())
    new = ir_of(compile_schema(after.text()), accepted)
    for name, declared in after.types.items():
        kind = "node" if declared.ends is None else "edge"
        old = accepted.by_table_key.get(f"{kind}:{declared.old or name}")
        if old is None or (not declared.old and any(d.old == name for d in after.types.values())):
            assert new.by_table_key[f"{kind}:{name}"].id >= accepted.next_id
            continue
        assert new.by_table_key[f"{kind}:{name}"].id == old.id
        for prop, written in declared.props.items():
            taken = not written.old and any(p.old == prop for p in declared.props.values())
            known = None if taken else old.property(written.old or prop)
            found = new.by_table_key[f"{kind}:{name}"].property(prop)
            assert found is not None
            assert (found.id == known.id) if known else (found.id >= accepted.next_id)


@LIMITS
@given(changes())
def test_the_digest_is_of_the_plan_alone(change: tuple[Model, Model]) -> None:
    accepted, desired = ir(change[0].text()), compile_schema(change[1].text())
    one, other = plan_migration(accepted, desired), plan_migration(ir(change[0].text()), desired)
    assert one == other
    assert one.digest == other.digest
    assert json.loads(json.dumps(one.as_dict())) == one.as_dict()
    hard = plan_migration(accepted, desired, allow_data_loss=True)
    drops = any(isinstance(s, (DropType, DropProperty)) for s in one.steps)
    assert (hard.digest != one.digest) == drops


@LIMITS
@given(changes())
def test_no_rows_no_losses(change: tuple[Model, Model]) -> None:
    accepted, desired = ir(change[0].text()), compile_schema(change[1].text())
    empty = plan_migration(accepted, desired, populated=lambda _: False)
    assert not any(getattr(s, "code", "").startswith("OG-DS") for s in empty.steps)
    assert not any(getattr(s, "code", "") in ("OG-MF-103", "OG-MF-105") for s in empty.steps)
    full = plan_migration(accepted, desired, populated={t.table_key for t in accepted.types})
    assert full == plan_migration(accepted, desired)


@LIMITS
@given(models(), models())
def test_two_schemas_that_have_nothing_to_do_with_each_other(a: Model, b: Model) -> None:
    accepted, desired = ir(a.text()), compile_schema(b.text())
    planned = plan_migration(accepted, desired, populated=())
    assume(planned.supported)
    assert apply_plan(accepted, planned) == ir_of(desired, accepted)


def test_a_plan_of_another_schema_is_not_applied() -> None:
    one, other = ir("node A { x: I32 }"), ir("node A { y: I32 }")
    planned = plan_migration(one, compile_schema("node A { x: I32  z: I32? }"))
    with pytest.raises(BadRequest, match="plan again") as caught:
        apply_plan(other, planned)
    assert caught.value.code == "plan_outdated"


def test_an_unsupported_plan_is_not_applied() -> None:
    one = ir("node A { x: I32 }")
    planned = plan_migration(one, compile_schema("node A { x: String }"))
    assert [type(s) for s in planned.steps] == [UnsupportedChange]
    with pytest.raises(BadRequest, match=r"node:A\.x") as caught:
        apply_plan(one, planned)
    assert caught.value.code == "OG-MF-106"


def test_populated_goes_by_the_accepted_name() -> None:
    one = ir("node A { x: I32 } node C { x: I32 }")
    desired = compile_schema('node B @rename_from("A") { x: I32  y: I32 } node C { x: I32  y: I32 }')
    planned = plan_migration(one, desired, populated={"node:C"})
    assert [s.entity for s in planned.steps if isinstance(s, UnsupportedChange)] == ["node:C.y"]


def test_a_new_key_on_a_type_without_rows() -> None:
    one = ir("node A { x: I32 @key  y: I32 }")
    planned = plan_migration(one, compile_schema("node A { x: I32  y: I32 @key }"), populated=set())
    assert planned.supported
    assert apply_plan(one, planned).types[0].key == ("y",)


def test_renames_in_an_order_that_keeps_names_free() -> None:
    one = ir("node A { a: I32  b: I32  c: I32 }")
    text = 'node A { b: I32 @rename_from("a")  c: I32 @rename_from("b")  d: I32 @rename_from("c") }'
    planned = plan_migration(one, compile_schema(text))
    assert [(s.property, s.to) for s in planned.steps if isinstance(s, RenameProperty)] == [
        ("c", "d"),
        ("b", "c"),
        ("a", "b"),
    ]
    assert not any(isinstance(s, (RenameType, AddConstraint)) for s in planned.steps)
