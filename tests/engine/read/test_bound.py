"""Plans bound to a snapshot: they answer as unbound ones do, keep the limits, and keep nothing alive."""

from __future__ import annotations

import gc
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from omnigraph import read
from omnigraph.errors import BadRequest
from omnigraph.query import bind_params, compile_query
from omnigraph.read.frame import Context
from omnigraph.read.kept import BOUND, Kept
from omnigraph.read.plan import Bound, Plan, plan
from omnigraph.read.settings import read_settings
from omnigraph.read.tables import TABLES
from omnigraph.schema import compile_schema

CATALOG = compile_schema("""
node Person { name: String @key  age: I32?  city: String?  born: DateTime? }
node Company { name: String @key }
edge Knows: Person -> Person { since: I32? }
edge WorksAt: Person -> Company
""")
NAMES = [f"p{i}" for i in range(9)]
ROWS: dict[str, list[dict[str, Any]]] = {
    "node:Person": [
        {"id": n, "name": n, "age": None if i == 3 else i % 4, "city": f"c{i % 2}"} for i, n in enumerate(NAMES)
    ],
    "node:Company": [{"id": "acme", "name": "acme"}],
    "edge:Knows": [
        {"id": f"k{i}-{j}", "src": NAMES[i], "dst": NAMES[(i * j + 1) % 8], "since": j}
        for i in range(8)
        for j in range(1, 4)
    ],
    "edge:WorksAt": [{"id": f"w{i}", "src": NAMES[i], "dst": "acme"} for i in range(0, 9, 2)],
}
KEY = "query q($k: String) { match { $p: Person { name: $k } "
QUERIES = [
    KEY + "} return { $p.name, $p.age } }",
    KEY + "} return { $p.age + 1 as older, $p.city } }",
    KEY + "} return { $p } }",
    KEY + "$p.age > 1 } return { $p.city } }",
    KEY + "$p knows $f } return { $f.name, $f.age } }",
    KEY + "$p knows $f } return { $f.name, $p.name, $f.age, $f.born } }",
    KEY + "$p knows $f $f.age < 3 } return { $f.name } order { $f.age desc } limit 2 }",
    KEY + "$p knows $f } return { $f.name } limit 2 }",
    KEY + "$p $e: knows $f } return { $e.since, $f.name } }",
    KEY + "$p knows $a $a knows $b } return { count(distinct $b) as n } }",
    KEY + "$p knows $a $a knows $b } return { count(distinct $a) as n, count(distinct $b) as m, count($b) as all } }",
    KEY + "$p knows $a $a knows $b } return { $a.name, count($b) as n } }",
    KEY + "$p knows{1,3} $f } return { count($f) as n } }",
    KEY + "$p knows{2,3} $f } return { $f.name } }",
    KEY + "$p knows $f $f knows $p } return { $f.name } }",
    KEY + "$p knows $f not { $f worksAt $c } } return { $f.name } }",
    KEY + "optional { $p worksAt $c } } return { $p.name, $c.name } }",
    KEY + "$s = shortest $p knows{1,4} $f } return { $f.name, length($s) as n } }",
    KEY + "$p knows{1,2}[since < 3] $f } return { $f.name } }",
    "query q($k: String) { match { $p: Person $c: Company } return { $p.name, $c.name } limit 5 }",
    "query q($k: String) { match { $p: Person $o: Person } return { count(distinct $o) as n, count($o) as all } }",
    "query q($k: String) { match { $p: Person $o: Person } return { count(distinct $p) as n } }",
    "query q($k: String) { match { optional { $c: Person } $p: Person } return { count(distinct $p.id) as n } }",
    "query q($k: String) { match { $p knows $f $o: Person } return { count(distinct $o) as n } }",
    "query q($k: String) { match { $p: Person $p.name > $k } return { $p.city, count($p) as n } }",
]


@pytest.mark.parametrize("text", QUERIES)
def test_it_answers_as_unbound(text: str, stored_snapshot: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = stored_snapshot(CATALOG, ROWS)
    compiled = compile_query(text, CATALOG)
    asked = [bind_params(compiled, {"k": k}) for k in (*NAMES, "nobody")]
    want = [plan(compiled, CATALOG, snapshot).run(Context(snapshot, params, read_settings())) for params in asked]
    assert any(table.num_rows for table in want)
    monkeypatch.setattr(Plan, "run", lambda *_: pytest.fail("it isn't bound"))
    for params, table in zip(asked, want, strict=True):
        found = read.execute(compiled, snapshot, params)
        found.validate(full=True)
        assert found.schema == table.schema
        assert found.equals(table), f"{text} with {params}"


@pytest.mark.parametrize(("low", "high"), [(1, 1), (1, 2), (1, 4), (2, 3), (3, 3)])
def test_around_one_node(low: int, high: int, stored_snapshot: Callable[..., Any]) -> None:
    """Against a search by hand: each node at its shortest distance; the start only over its own loop."""
    snapshot = stored_snapshot(CATALOG, ROWS)
    compiled = compile_query(KEY + f"$p knows{{{low},{high}}} $f }} return {{ $f.name }} }}", CATALOG)
    follows = {name: {e["dst"] for e in ROWS["edge:Knows"] if e["src"] == name} for name in NAMES}
    for name in NAMES:
        distance, level = {name: 0}, {name}
        for hop in range(1, high + 1):
            level = {there for here in level for there in follows[here]} - set(distance)
            distance |= dict.fromkeys(level, hop)
        want = {there for there, hops in distance.items() if low <= hops <= high}
        want |= {name} if low == 1 and name in follows[name] else set()
        for _ in range(2):
            got = read.execute(compiled, snapshot, {"k": name}).column(0).to_pylist()
            assert sorted(got) == sorted(want), f"from {name}"


def test_it_is_bound_once(stored_snapshot: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot, compiled = stored_snapshot(CATALOG, ROWS), compile_query(QUERIES[4], CATALOG)
    for _ in range(2):  # what isn't in memory yet is brought there
        read.execute(compiled, snapshot, {"k": "p1"})
    monkeypatch.setattr(Plan, "bind", lambda *_: pytest.fail("it is bound again"))
    assert read.execute(compiled, snapshot, {"k": "p1"}).num_rows == 3


@pytest.mark.parametrize(
    ("match", "settings", "limits", "code"),
    [
        ("$a knows $b $b knows $c", {"max_rows": 20}, {}, "query_too_large"),
        ("$a knows $b $b knows $c", {"max_bytes": 300}, {}, "query_too_large"),
        ("$a: Person", {"max_bytes": 60}, {}, "query_too_large"),
        ("$a: Person", {}, {"deadline": 0.0}, "query_timeout"),
        ("$a: Person", {}, {"cancelled": lambda: True}, "query_cancelled"),
    ],
)
def test_limits_hold(
    match: str,
    settings: dict[str, int],
    limits: dict[str, Any],
    code: str,
    stored_snapshot: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    snapshot = stored_snapshot(CATALOG, ROWS)
    compiled = compile_query(f"query q() {{ match {{ {match} }} return {{ $a.name }} }}", CATALOG)
    for _ in range(2):
        assert read.execute(compiled, snapshot, {}).num_rows >= 9
    monkeypatch.setattr(Plan, "run", lambda *_: pytest.fail("it isn't bound"))
    chosen = replace(read_settings(), **settings)
    for _ in range(2):
        with pytest.raises(BadRequest) as refused:
            read.execute(compiled, snapshot, {}, settings=chosen, **limits)
        assert refused.value.code == code


def test_the_moment_is_that_of_each_execution(stored_snapshot: Callable[..., Any]) -> None:
    snapshot = stored_snapshot(CATALOG, ROWS)
    compiled = compile_query("query q() { match { $p: Person } return { $p.name, now() as at } }", CATALOG)
    moments = []
    for _ in range(3):
        (one,) = set(read.execute(compiled, snapshot, {}).column("at").to_pylist())
        moments.append(one)
        time.sleep(0.002)
    assert moments == sorted(set(moments))


def test_it_keeps_no_table_that_was_dropped(stored_snapshot: Callable[..., Any]) -> None:
    snapshot, compiled = stored_snapshot(CATALOG, ROWS), compile_query(QUERIES[4], CATALOG)
    for _ in range(3):
        read.execute(compiled, snapshot, {"k": "p1"})
    people = weakref.ref(TABLES.get(snapshot, "node:Person"))
    TABLES.clear()
    gc.collect()
    assert people() is None
    assert read.execute(compiled, snapshot, {"k": "p1"}).num_rows == 3


# ---- the cache below -------------------------------------------------------------------------------------------------


@dataclass
class Entry:
    nbytes: int = 1


@dataclass(frozen=True)
class Holding:
    holds: tuple[str, ...]


def test_what_is_held_counts_as_used() -> None:
    kept = Kept(limit_bytes=2)
    for name in "ab":
        kept.add(name, Entry())
    kept.hold("of a", Holding(("a",)), kept.dropped)
    kept.get("b")
    assert kept.holder("of a") == Holding(("a",))
    kept.add("c", Entry())
    kept.settle()
    assert [key for key, _ in kept.items()] == ["a", "c"]
    assert kept.holder("of a") is None  # any entry may have been one of its


def test_a_holder_made_while_an_entry_went_is_not_kept() -> None:
    kept = Kept()
    kept.add("a", Entry())
    before = kept.dropped
    kept.drop("a")
    kept.hold("of a", Holding(("a",)), before)
    assert kept.holder("of a") is None


def test_holders_are_bounded_by_number() -> None:
    kept = Kept()
    for number in range(BOUND + 1):
        kept.hold(number, Holding(()), 0)
    assert kept.holder(0) is None
    assert kept.holder(BOUND) is not None


def test_nothing_is_bound_while_it_is_looked_up(stored_snapshot: Callable[..., Any]) -> None:
    snapshot, compiled = stored_snapshot(CATALOG, ROWS), compile_query(QUERIES[4], CATALOG)
    read.execute(compiled, snapshot, {"k": "p1"})
    made = plan(compiled, CATALOG, snapshot)
    csr = Context(snapshot, {"k": "p1"}, replace(read_settings(), traversal_mode="csr"))
    made.run(csr)
    assert isinstance(made.bind(csr), Bound)
    assert made.bind(Context(snapshot, {}, replace(read_settings(), traversal_mode="indexed"))) is None
