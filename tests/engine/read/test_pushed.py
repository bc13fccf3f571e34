"""Conditions that go into the scan of a table: the right rows, with an index and without, and the index is asked."""

from __future__ import annotations

import datetime as dt
import itertools
import operator
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from ulid import ULID

from omnigraph import read
from omnigraph.maintain import ensure_indices
from omnigraph.query import compile_query
from omnigraph.read.scan import pushed_filter
from omnigraph.read.settings import read_settings
from omnigraph.read.tables import TABLES
from omnigraph.schema import compile_schema
from omnigraph.storage import Repository, Snapshot, Staging, TableChange, WriterKind

CATALOG = compile_schema(
    "node Doc { slug: String @key  city: String? @index  at: DateTime? @index  mass: F64? @index }"
)
KEY = "node:Doc"
LAST = "\U0010ffff"
CITIES = [
    "", "a", "ab", "b", "\0", "\0z", "é", "e\u0301", "\ud7ff", "\ud7ffz", "\ue000", "\uffff", "\U00010000", "😀", "😀a",
    LAST, LAST * 2, f"a{LAST}", f"a{LAST}z", "o'x", "o'y", "a%", "a_", "a\nb", None,
]  # fmt: skip
PREFIXES = [
    "a", f"a{LAST}", "\ud7ff", "\ue000", "\uffff", "\U00010000", "😀", LAST, LAST * 2, "o'", "\0", "é", "a%", "zz",
]  # fmt: skip
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
TIMES = [
    EPOCH + dt.timedelta(milliseconds=ms)
    for ms in (-62_135_596_800_000, -86_400_001, -86_400_000, -1, 0, 1, 1_577_881_800_005, 253_402_300_799_999)
]
OPS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
ROWS: list[dict[str, Any]] = [
    {"id": f"d{i:02}", "slug": f"d{i:02}", "city": city, "at": at}
    for i, (city, at) in enumerate(zip(CITIES, itertools.cycle([*TIMES, None]), strict=False))
]


@pytest.fixture(scope="module", params=[False, True], ids=["bare", "indexed"])
def docs(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, table_maker: Callable[..., Any]
) -> tuple[Snapshot, bool]:
    repository = Repository.create(str(tmp_path_factory.mktemp("docs") / "g"), CATALOG)
    change = TableChange(KEY, appends=table_maker(CATALOG, KEY, ROWS))
    repository.commit(Staging("main", WriterKind.LOAD, (change,), operation_id=str(ULID())), repository.snapshot())
    if request.param:
        ensure_indices(repository)
    return repository.snapshot(), request.param


def pushed(query: str, value: Any) -> tuple[Any, str | None]:
    """A compiled query and what of it goes into the scan."""
    compiled = compile_query(query, CATALOG)
    scan: Any = compiled.operators[0]
    return compiled, pushed_filter(scan.where, {"v": value})


def check(docs: tuple[Snapshot, bool], kind: str, condition: str, value: Any, want: list[str], *, alone: bool) -> None:
    """Lance finds the rows, through the index where there is one, and the query answers with them.

    Args:
        alone: few enough rows are expected for them to be read alone.
    """
    snapshot, indexed = docs
    text = f"query q($v: {kind}) {{ match {{ $d: Doc {condition} }} return {{ $d.slug as s }} order {{ s }} }}"
    compiled, filter = pushed(text, value)
    assert filter is not None
    assert sorted(snapshot.scan(KEY, ["slug"], filter).column("slug").to_pylist()) == want, filter
    plan = snapshot.dataset(KEY).scanner(columns=["slug"], filter=filter, prefilter=True).explain_plan()
    assert ("ScalarIndexQuery" in plan) == indexed, plan
    TABLES.clear()
    settings = replace(read_settings(), small_table_rows=0)
    shown = read.explain(compiled, snapshot, {"v": value}, settings=settings)
    assert (f"lance scan where {filter}" in shown) == alone
    assert read.execute(compiled, snapshot, {"v": value}, settings=settings).column("s").to_pylist() == want


@pytest.mark.parametrize("prefix", PREFIXES)
def test_a_prefix_is_a_range_of_texts(docs: tuple[Snapshot, bool], prefix: str) -> None:
    want = [row["slug"] for row in ROWS if row["city"] is not None and row["city"].startswith(prefix)]
    check(docs, "String", "$d.city starts_with $v", prefix, want, alone=True)


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("time", [*TIMES, TIMES[0] + dt.timedelta(milliseconds=1)])
def test_times_are_compared_to_the_millisecond(docs: tuple[Snapshot, bool], op: str, time: dt.datetime) -> None:
    want = [row["slug"] for row in ROWS if row["at"] is not None and OPS[op](row["at"], time)]
    check(docs, "DateTime", f"$d.at {op} $v", time, want, alone=op == "=")


def test_times_of_a_list(docs: tuple[Snapshot, bool]) -> None:
    some = [TIMES[0], TIMES[3], None, TIMES[6] + dt.timedelta(milliseconds=1)]
    want = [row["slug"] for row in ROWS if row["at"] in (TIMES[0], TIMES[3])]
    check(docs, "[DateTime]", "$d.at in $v", some, want, alone=True)


def test_what_bounds_a_prefix() -> None:
    text = "query q($v: String) { match { $d: Doc $d.city starts_with $v } return { $d.slug } }"
    bounds = {
        "ab": "`city` >= 'ab' AND `city` < 'ac'",
        "o'": "`city` >= 'o''' AND `city` < 'o('",
        "\ud7ff": "`city` >= '\ud7ff' AND `city` < '\ue000'",
        f"a{LAST}": f"`city` >= 'a{LAST}' AND `city` < 'b'",
        LAST: f"`city` >= '{LAST}'",
        "": None,
    }
    assert {prefix: pushed(text, prefix)[1] for prefix in bounds} == bounds


def test_floats_stay_behind() -> None:
    compiled = compile_query("query q($v: F64) { match { $d: Doc $d.mass = $v } return { $d.slug } }", CATALOG)
    scan: Any = compiled.operators[0]
    assert pushed_filter(scan.where, {"v": 0.0}) is None
