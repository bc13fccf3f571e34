"""Every function and operator on a column of real values, and errors only from rows that are asked about."""

from __future__ import annotations

import calendar
import datetime as dt
import math
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph import read
from omnigraph.errors import BadRequest
from omnigraph.query import bind_params, compile_query
from omnigraph.read.arithmetic import binary
from omnigraph.read.compare import compare, member
from omnigraph.read.dates import add_days, add_months, days_between
from omnigraph.read.text import substring
from omnigraph.schema import compile_schema

CATALOG = compile_schema("""
node Row {
  name: String @key
  i: I64?  small: I32?  u: U64?  f: F64?  s: String?  t: String?  tags: [String]?
  d: Date?  at: DateTime?  ok: Bool?  kind: enum(big, little)?
}
""")

UTC = dt.UTC
ROWS = [
    {
        "name": "a", "i": 7, "small": -7, "u": 2**63 + 5, "f": 2.5, "s": "Héllo wörld", "t": "o", "tags": ["x", "y"],
        "d": dt.date(2024, 1, 31), "at": dt.datetime(2024, 2, 29, 13, 45, 30, 125000, tzinfo=UTC), "ok": True,
        "kind": "big",
    },
    {
        "name": "b", "i": -2, "small": 2, "u": 4, "f": -2.5, "s": "  12 ", "t": "", "tags": [],
        "d": dt.date(1969, 12, 31), "at": dt.datetime(1969, 12, 31, 23, 59, 59, 999000, tzinfo=UTC), "ok": False,
        "kind": "little",
    },
    {"name": "c"},
]  # fmt: skip


@pytest.fixture
def column(memory_snapshot: Callable[..., Any]) -> Callable[..., list[Any]]:
    snapshot = memory_snapshot(CATALOG, {"node:Row": [{"id": r["name"], **r} for r in ROWS]})

    def run(expression: str, match: str = "", declared: str = "", **params: Any) -> list[Any]:
        body = f"match {{ $r: Row {match} }} return {{ {expression} as v, $r.name as n }} order {{ n }}"
        text = f"query q({declared}) {{ {body} }}"
        compiled = compile_query(text, CATALOG)
        table = read.execute(compiled, snapshot, bind_params(compiled, params))
        assert table.schema.field("v").type == table.column("v").type
        return list(table.column("v").to_pylist())

    return run


Column = Callable[..., list[Any]]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("$r.i + 1", [8, -1, None]),
        ("$r.i - $r.small", [14, -4, None]),
        ("$r.i * 3", [21, -6, None]),
        ("$r.i / 2", [3.5, -1.0, None]),
        ("mod($r.i, 4)", [3, -2, None]),
        ("mod($r.f, 2.0)", [0.5, -0.5, None]),
        ("-$r.i", [-7, 2, None]),
        ("$r.u + 1", [2**63 + 6, 5, None]),
        ("$r.i + $r.f", [9.5, -4.5, None]),
        ("1 + 2 * 3 - $r.i", [0, 9, None]),
        ("abs($r.i)", [7, 2, None]),
        ("abs($r.f)", [2.5, 2.5, None]),
        ("round($r.f)", [3.0, -3.0, None]),
        ("floor($r.f)", [2.0, -3.0, None]),
        ("ceil($r.f)", [3.0, -2.0, None]),
        ("round($r.i)", [7, -2, None]),
        ("lower($r.s)", ["héllo wörld", "  12 ", None]),
        ("upper($r.s)", ["HÉLLO WÖRLD", "  12 ", None]),
        ("trim($r.s)", ["Héllo wörld", "12", None]),
        ("length($r.s)", [11, 5, None]),
        ("length($r.tags)", [2, 0, None]),
        ("substring($r.s, 1, 3)", ["éll", " 12", None]),
        ("substring($r.s, 4, 100)", ["o wörld", " ", None]),
        ("substring($r.s, abs($r.i), 2)", ["ör", "12", None]),
        ('substring("añb", length($r.t), 1)', ["ñ", "a", None]),
        ('replace($r.s, "l", "L")', ["HéLLo wörLd", "  12 ", None]),
        ('replace($r.s, "", "L")', ["Héllo wörld", "  12 ", None]),
        ('replace($r.s, $r.t, "0")', ["Héll0 wörld", "  12 ", None]),
        ("replace($r.s, $r.t, $r.name)", ["Hélla wörld", "  12 ", None]),
        ('starts_with($r.s, "Hé")', [True, False, None]),
        ("ends_with($r.s, $r.t)", [False, True, None]),
        ('ends_with($r.s, "ld")', [True, False, None]),
        ('contains($r.s, "12")', [False, True, None]),
        ('contains($r.tags, "x")', [True, False, None]),
        ('split($r.s, " ")', [["Héllo", "wörld"], ["", "", "12", ""], None]),
        ('coalesce($r.s, "none")', ["Héllo wörld", "  12 ", "none"]),
        ("coalesce($r.small, $r.i, 0)", [-7, 2, 0]),
        ("year($r.d)", [2024, 1969, None]),
        ("month($r.at)", [2, 12, None]),
        ("day($r.at)", [29, 31, None]),
        ('date_trunc("month", $r.d)', [dt.date(2024, 1, 1), dt.date(1969, 12, 1), None]),
        ('date_trunc("week", $r.d)', [dt.date(2024, 1, 29), dt.date(1969, 12, 29), None]),
        ('date_trunc("quarter", $r.d)', [dt.date(2024, 1, 1), dt.date(1969, 10, 1), None]),
        (
            'date_trunc("hour", $r.at)',
            [dt.datetime(2024, 2, 29, 13, tzinfo=UTC), dt.datetime(1969, 12, 31, 23, tzinfo=UTC), None],
        ),
        ("add_days($r.d, 30)", [dt.date(2024, 3, 1), dt.date(1970, 1, 30), None]),
        ("add_days($r.d, -1)", [dt.date(2024, 1, 30), dt.date(1969, 12, 30), None]),
        ("add_months($r.d, 1)", [dt.date(2024, 2, 29), dt.date(1970, 1, 31), None]),
        ("add_months($r.d, -2)", [dt.date(2023, 11, 30), dt.date(1969, 10, 31), None]),
        (
            "add_months($r.at, 12)",
            [
                dt.datetime(2025, 2, 28, 13, 45, 30, 125000, tzinfo=UTC),
                dt.datetime(1970, 12, 31, 23, 59, 59, 999000, tzinfo=UTC),
                None,
            ],
        ),
        ('days_between(date("2024-01-01"), $r.d)', [30, -19724, None]),
        ('days_between($r.at, datetime("1970-01-01T00:00:00Z"))', [-19782, 0, None]),
        ("to_string($r.i)", ["7", "-2", None]),
        ("to_string($r.f)", ["2.5", "-2.5", None]),
        ("to_string($r.f * 2)", ["5.0", "-5.0", None]),
        ("to_string($r.ok)", ["true", "false", None]),
        ("to_string($r.d)", ["2024-01-31", "1969-12-31", None]),
        ("to_string($r.at)", ["2024-02-29T13:45:30.125Z", "1969-12-31T23:59:59.999Z", None]),
        ("to_int($r.f)", [2, -2, None]),
        ("to_int($r.ok)", [1, 0, None]),
        ('to_int(case when $r.t = "" then "+7" else replace($r.t, "o", "-08") end)', [-8, 7, None]),
        ("to_float($r.i)", [7.0, -2.0, None]),
        ('matches($r.s, "H.*d")', [True, False, None]),
        ('matches($r.s, "H")', [False, False, None]),
        ("case when $r.i > 0 then 1 when $r.i < 0 then 2.5 end", [1.0, 2.5, None]),
        ('case when $r.ok then $r.s else "no" end', ["Héllo wörld", "no", "no"]),
        ("[$r.i, 1]", [[7, 1], [-2, 1], [None, 1]]),
        ("$r.i in [$r.small, -2]", [False, True, None]),
        ('$r.kind = "big"', [True, False, None]),
        ("$r.i is null", [False, False, True]),
        ("not ($r.ok or $r.i > 100)", [False, True, None]),
        ("length(trim(upper($r.s))) + 1", [12, 3, None]),
        ("$r.f > $r.i", [False, False, None]),
    ],
)  # fmt: skip
def test_values(column: Column, expression: str, expected: list[Any]) -> None:
    got = column(expression)
    assert got == expected
    assert [type(v) for v in got] == [type(v) for v in expected]


@pytest.mark.parametrize(
    ("expression", "code", "says"),
    [
        ("$r.i * 9223372036854775807", "overflow", "$r.i * 9223372036854775807"),
        ("9223372036854775807 + $r.i", "overflow", "9223372036854775807 + $r.i"),
        ("$r.u - 10", "overflow", "unsigned"),
        ("$r.f * 1e308", "overflow", "$r.f * 1e+308"),
        ("1e308 + 1e308", "overflow", "a number with fractions"),
        ("$r.f / 1e-308", "overflow", "$r.f / 1e-308"),
        ("1 / ($r.i - 7)", "division_by_zero", "1 / ($r.i - 7)"),
        ("1.0 / ($r.f - 2.5)", "division_by_zero", "1.0 / ($r.f - 2.5)"),
        ("mod($r.i, $r.i + 2)", "division_by_zero", "mod($r.i, $r.i + 2)"),
        ("to_int($r.s)", "bad_value", '"Héllo wörld"'),
        ('to_int("9223372036854775808")', "bad_value", '"9223372036854775808"'),
        ("to_int($r.u)", "bad_value", str(2**63 + 5)),
        ("to_int($r.f * 1e300)", "bad_value", "2.5e+300"),
        ("to_float($r.t)", "bad_value", '"o"'),
        ('to_float("1e999")', "bad_value", '"1e999"'),
        ('to_int("A%")', "bad_value", '`to_int("A%")`: "A%" is no 64-bit integer'),
        ('to_float("%s {0} {")', "bad_value", '`to_float("%s {0} {")`: "%s {0} {" is no number'),
        ('to_int(case when $r.s = "%d" then 1e300 else 1e19 end)', "bad_value", "1e+19 is no 64-bit integer"),
        ("substring($r.s, $r.i, 1)", "bad_value", "start below 0"),
        ('split($r.s, "")', "bad_value", "separator"),
        ("add_days($r.d, 9223372036854775807)", "overflow", "years 1 to 9999"),
        ("add_months($r.d, -40000)", "overflow", "years 1 to 9999"),
    ],
)
def test_a_row_without_a_value_is_an_error_that_names_expression_and_query(
    column: Column, expression: str, code: str, says: str
) -> None:
    with pytest.raises(BadRequest) as refused:
        column(expression)
    assert refused.value.code == code
    assert says in str(refused.value)
    assert "query `q`" in str(refused.value)


@pytest.mark.parametrize(
    ("expression", "match", "expected"),
    [
        ("case when $r.i != 7 then 1 / ($r.i - 7) end", "", [None, -1 / 9, None]),
        ("case when $r.i = 7 then 0.0 else 1 / ($r.i - 7) end", "", [0.0, -1 / 9, None]),
        ("$r.i != 7 and 1 / ($r.i - 7) < 0", "", [False, True, None]),
        ("$r.i = 7 or 1 / ($r.i - 7) < 0", "", [True, True, None]),
        ("coalesce($r.i, to_int($r.name))", "$r.i is not null", [7, -2]),
        ('coalesce($r.s, to_string(to_int("x")))', "$r.i is not null", ["Héllo wörld", "  12 "]),
        ("1 / ($r.i - 7)", "$r.i < 0", [-1 / 9]),
        ("1 / 0", '$r.name = "nobody"', []),
        ("$r.i", "1 / ($r.i - 7) < 0  $r.i != 7", [-2]),
        ("$r.i", "$r.i != 7 and 1 / ($r.i - 7) < 0", [-2]),
        ("case when false then 1 / 0 else 2.0 end", "", [2.0, 2.0, 2.0]),
    ],
)
def test_only_rows_that_count_are_asked(column: Column, expression: str, match: str, expected: list[Any]) -> None:
    assert column(expression, match) == expected


def test_an_average_is_there_where_the_sum_is_too_large(memory_snapshot: Callable[..., Any]) -> None:
    snapshot = memory_snapshot(CATALOG, {"node:Row": [{"id": n, "name": n, "f": 1e308} for n in "ab"]})

    def ask(fn: str) -> list[dict[str, Any]]:
        compiled = compile_query(f"query q() {{ match {{ $r: Row }} return {{ {fn}($r.f) as v }} }}", CATALOG)
        return read.execute(compiled, snapshot, {}).to_pylist()

    assert ask("avg") == [{"v": 1e308}]
    with pytest.raises(BadRequest, match="a sum is too large"):
        ask("sum")


def test_a_literal_in_braces_is_read_as_an_insert_reads_it(memory_snapshot: Callable[..., Any]) -> None:
    catalog = compile_schema("node Row { name: String @key  f: F64  g: F32 }")
    snapshot = memory_snapshot(catalog, {"node:Row": [{"id": "a", "name": "a", "f": 2.0**53, "g": 0.1}]})

    def found(clauses: str, **params: Any) -> int:
        text = f"query q($x: F64?, $n: I64?) {{ match {{ $r: Row {clauses} }} return {{ $r.name }} }}"
        compiled = compile_query(text, catalog)
        return read.execute(compiled, snapshot, bind_params(compiled, params)).num_rows

    assert found("{ g: 0.1 }") == found("{ f: 9007199254740993 }") == 1
    assert found("$r.g = 0.1") == found("$r.f = 9007199254740993") == 0
    assert found("{ g: $x }", x=0.1) == found("{ f: $n }", n=2**53 + 1) == 0


def test_parameters_in_expressions(column: Column) -> None:
    assert column("$r.i + $n", declared="$n: I64?", n=3) == [10, 1, None]
    assert column("$r.i + $n", declared="$n: I64?") == [None, None, None]
    assert column("contains($l, $r.name)", declared="$l: [String]", l=["a"]) == [True, False, False]
    assert column("coalesce($n, $r.i)", declared="$n: I64?") == [7, -2, None]


@pytest.mark.parametrize("op", ["=", "!=", "<", "<=", ">", ">="])
def test_numbers_of_two_types_compare_exactly(op: str) -> None:
    python = {"=": "__eq__", "!=": "__ne__", "<": "__lt__", "<=": "__le__", ">": "__gt__", ">=": "__ge__"}[op]
    integers = [0, 1, -1, 2**53, 2**53 + 1, -(2**53) - 1, 2**63 - 1, -(2**63)]
    floats = [0.0, -0.0, 0.5, -0.5, 2.0**53, 2.0**63, -(2.0**63), 1e300, -1e300, math.inf, -math.inf]
    unsigned = [0, 1, 2**53 + 1, 2**63, 2**64 - 1]
    kinds = [(integers, pa.int64()), (floats, pa.float64()), (unsigned, pa.uint64())]
    for left, a in kinds:
        for right, b in kinds:
            pairs = [(x, y) for x in left for y in right]
            got = compare(op, pa.array([x for x, _ in pairs], a), pa.array([y for _, y in pairs], b)).to_pylist()
            want = [bool(getattr(operand(x, y), python)(operand(y, x))) for x, y in pairs]
            assert got == want
    assert compare(op, pa.array([2**60], pa.int64()), pa.scalar(math.nan)).to_pylist() == [op == "!="]


def test_a_list_holds_what_equals_one_of_it() -> None:
    integers = [0, 1, -1, 2**24 + 1, 2**53 + 1, 2**60, -(2**60), 2**63 - 1, -(2**63)]
    floats = [
        0.0,
        -0.0,
        0.5,
        0.1,
        2.0**24,
        2.0**53,
        2.0**60,
        -(2.0**60),
        2.0**63,
        -(2.0**63),
        2.0**64,
        1e300,
        -math.inf,
    ]
    unsigned = [0, 2**24, 2**53 + 1, 2**60, 2**63, 2**64 - 2**11, 2**64 - 1]
    columns = [
        pa.array(values, kind)
        for values, kinds in (
            (integers, [pa.int64()]),
            ([0, 1, -1, 2**24, 2**24 + 1, -(2**31)], [pa.int32()]),
            (unsigned, [pa.uint64()]),
            ([0, 2**24, 2**32 - 1], [pa.uint32()]),
            ([*floats, math.nan], [pa.float64(), pa.float32()]),
        )
        for kind in kinds
    ]
    for asked in columns:
        for items in columns:
            equal = [compare("=", asked, item) for item in items]
            want = [any(one[row].as_py() for one in equal) for row in range(len(asked))]
            assert member(pa.scalar(items, pa.list_(items.type)), asked).to_pylist() == want
            for item, one in zip(items, equal, strict=True):  # alone, as no other item may stand in for it
                alone = pa.scalar([item.as_py()], pa.list_(items.type))
                assert member(alone, asked).to_pylist() == one.to_pylist()
                assert [member(alone, value).as_py() for value in asked] == one.to_pylist()
                assert member(pa.array([[item.as_py()]] * len(asked), alone.type), asked).to_pylist() == one.to_pylist()


@pytest.mark.parametrize(
    "mixed", ["[1152921504606846976, 0.5]", "[0.5, 9007199254740993]", "[-1.5, 18446744073709551615]"]
)
def test_whole_numbers_in_a_list_with_fractions_are_the_nearest_floats(column: Column, mixed: str) -> None:
    first, second = column(mixed)[0]
    assert [first, second] == [float(number) for number in mixed.strip("[]").split(", ")]
    assert column(f"$r.f in {mixed}") == [False, False, None]
    assert column(f"$x in {mixed}", "$r.i = 7", "$x: F64", x=max(first, second)) == [True]


def operand(value: Any, other: Any) -> Any:
    """Python compares int and float exactly only through the operator, not through one side's method."""
    from fractions import Fraction

    return Fraction(value) if math.isfinite(value) and math.isfinite(other) else float(value)


SIGNED = st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1), st.sampled_from([-(2**63), -1, 0, 1, 2**32, 2**63 - 1]))
UNSIGNED = st.one_of(st.none(), st.integers(0, 2**64 - 1), st.sampled_from([0, 1, 2**32, 2**63, 2**64 - 1]))


@settings(max_examples=200, deadline=None)
@given(st.data(), st.sampled_from(["+", "-", "*", "mod"]), st.booleans())
def test_integers_are_exact_or_refused(data: st.DataObject, fn: str, signed: bool) -> None:
    kind, low, high = (pa.int64(), -(2**63), 2**63 - 1) if signed else (pa.uint64(), 0, 2**64 - 1)
    pairs = data.draw(st.lists(st.tuples(*[SIGNED if signed else UNSIGNED] * 2), min_size=1, max_size=4))
    left, right = (pa.array([p[i] for p in pairs], kind) for i in (0, 1))
    work = {
        "+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b,
        "mod": lambda a, b: abs(a) % abs(b) * (-1 if a < 0 else 1),
    }[fn]  # fmt: skip
    known = [p for p in pairs if None not in p]
    fails = any(b == 0 for _, b in known) if fn == "mod" else any(not low <= work(a, b) <= high for a, b in known)
    if fails:
        with pytest.raises(BadRequest):
            binary(fn, left, right, kind, "x")
        return
    want = [None if None in p else work(*p) for p in pairs]
    assert binary(fn, left, right, kind, "x").to_pylist() == want
    assert binary(fn, left[0], right[0], kind, "x").as_py() == want[0]


DAYS = st.dates(dt.date(1, 1, 1), dt.date(9999, 12, 31))


@settings(max_examples=200, deadline=None)
@given(DAYS, st.integers(-130_000, 130_000))
def test_months_are_added_as_on_a_calendar(day: dt.date, months: int) -> None:
    year, month = divmod(day.year * 12 + day.month - 1 + months, 12)
    column = pa.array([day, None])
    if not 1 <= year <= 9999:
        with pytest.raises(BadRequest):
            add_months(column, pa.scalar(months), "x")
        return
    last = calendar.monthrange(year, month + 1)[1]
    want = dt.date(year, month + 1, min(day.day, last))
    assert add_months(column, pa.scalar(months), "x").to_pylist() == [want, None]
    days = (want - day).days
    assert days_between(pa.scalar(day), pa.array([want])).to_pylist() == [days]
    assert add_days(pa.array([day]), pa.array([days]), "x").to_pylist() == [want]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.text("aé€😀", max_size=6), st.integers(0, 7), st.integers(0, 7)), min_size=1, max_size=6))
def test_texts_are_cut_by_characters(rows: list[tuple[str, int, int]]) -> None:
    texts, starts, counts = (pa.array(list(column)) for column in zip(*rows, strict=True))
    want = [text[start : start + count] for text, start, count in rows]
    assert substring(texts, starts, counts, "x").to_pylist() == want
    assert substring(texts[1:], starts[1:], counts[1:], "x").to_pylist() == want[1:]
    assert substring(texts, starts[0], counts[0], "x").to_pylist()[0] == want[0]


def test_membership_is_exact_too() -> None:
    assert member(pa.scalar([2.0**53, 0.5]), pa.array([2**53 + 1, 2**53, 0])).to_pylist() == [False, True, False]
    assert member(pa.scalar([2**53 + 1, 3]), pa.array([2.0**53, 3.0, -0.0])).to_pylist() == [False, True, False]
    assert member(pa.scalar([0.0]), pa.array([-0.0, math.nan])).to_pylist() == [True, False]
    assert member(pa.scalar([0.0, math.nan]), pa.array([math.nan])).to_pylist() == [False]
