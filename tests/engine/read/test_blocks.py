"""Optional and counting blocks, several edge types, filters on hops, shortest paths: what each gives on one graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from omnigraph import read
from omnigraph.errors import BadRequest
from omnigraph.query import compile_query
from omnigraph.schema import compile_schema

CATALOG = compile_schema("""
node Person { name: String @key  age: I32? }
node Firm { name: String @key }
edge Knows: Person -> Person { weight: I32?  since: Date?  why: String? }
edge Likes: Person -> Person { weight: I32?  since: I32? }
edge Works: Person -> Firm { weight: I32? }
edge Owns: Firm -> Person
""")


def edge(id_: str, src: str, dst: str, weight: int | None = None) -> dict[str, Any]:
    return {"id": id_, "src": src, "dst": dst, "weight": weight}


# Two shortest ways from a to d (over b and over c), a loop at a, two parallel edges from b to d.
ROWS = {
    "node:Person": [{"id": n, "name": n, "age": a} for n, a in (("a", 1), ("b", None), ("c", 3), ("d", 0), ("e", 5))],
    "node:Firm": [{"id": "x", "name": "x"}],
    "edge:Knows": [
        edge("k5", "a", "a", 1), edge("k4", "a", "c", 2), edge("k3", "a", "b", 1), edge("k2", "b", "d", 1),
        edge("k1", "c", "d", 2),
    ],
    "edge:Likes": [edge("k0", "b", "d", 7), edge("l1", "d", "e", None), edge("l2", "e", "a", 0)],
    "edge:Works": [edge("w1", "d", "x", 0)],
    "edge:Owns": [{"id": "o1", "src": "x", "dst": "e"}],
}  # fmt: skip


@pytest.fixture
def ask(memory_snapshot: Callable[..., Any]) -> Callable[[str], list[Any]]:
    snapshot = memory_snapshot(CATALOG, ROWS)

    def run(body: str) -> list[Any]:
        table = read.execute(compile_query(f"query q() {{ {body} }}", CATALOG), snapshot, {})
        rows = zip(*(c.to_pylist() for c in table.columns), strict=True)
        return [row[0] if len(row) == 1 else row for row in rows]

    return run


Ask = Callable[[str], list[Any]]


@pytest.mark.parametrize(
    ("clause", "expected"),
    [
        ("$p (knows|likes) $q", "aa ab ac bd cd de ea"),
        ("$p (knows|likes){2,2} $q", "ad be ce da eb ec"),
        ("$p knows[weight >= 2] $q", "ac cd"),
        ("$p knows{1,2}[weight >= 2] $q", "ac ad cd"),
        ("$p likes[weight > 0] $q", "bd"),
        ("$p (knows|likes){1,4}[weight < 7] $q", "aa ab ac ad bd cd ea eb ec ed"),
        ("$p knows{1,2} $q  $q likes $p", ""),
        ("$p knows{1,2} $q  $q likes{2,2} $p", "ad"),
        ("$p *{1,2} $q  $q: Person", "aa ab ac ad bd be cd ce da de ea eb ec"),
        ("$p <knows>{1,2}[weight = 1] $q", "aa ab ad ba bd da db"),
        ("$q: Person  $p: Person  $p (knows|likes){3,3} $q", "ae ba ca db dc ed"),
    ],
)
def test_traversals(ask: Ask, clause: str, expected: str) -> None:
    rows = ask(f"match {{ {clause} }} return {{ $p.name as p, $q.name as q }} order {{ p, q }}")
    assert " ".join("".join(row) for row in rows) == expected


def test_any_edge_takes_those_that_fit(ask: Ask) -> None:
    assert ask("match { $f: Firm $f * $p } return { $p.name as n } order { n }") == ["d", "e"]
    body = 'match { $p: Person { name: "d" } $p * $q $q: Firm } return { $q.name as n }'
    assert ask(body) == ["x"]


def test_an_edge_of_several_types_has_what_they_share(ask: Ask) -> None:
    body = "match { $p: Person $p $w:(knows|likes) $q  $w.weight > 1 } return { $w, $q.name as q } order { q, $w.id }"
    rows = ask(body)
    assert [(w["id"], q) for w, q in rows] == [("k4", "c"), ("k0", "d"), ("k1", "d")]
    assert set(rows[0][0]) == {"id", "src", "dst", "weight"}
    both = ask("match { $p: Person $p $w:(knows|likes) $q } return { count($w) as n, count(distinct $w) as d }")
    assert both == [(8, 8)]


def test_optional_keeps_rows_without_a_match(ask: Ask) -> None:
    body = (
        "match { $p: Person optional { $p knows $q  $q.age > 0 } } return { $p.name as p, $q.name as q } order { p, q }"
    )
    assert ask(body) == [("a", "a"), ("a", "c"), ("b", None), ("c", None), ("d", None), ("e", None)]
    whole = 'match { $p: Person { name: "e" } optional { $p $w:knows $q } } return { $q, $w, $q is null as none }'
    assert ask(whole) == [(None, None, True)]
    nested = """match { $p: Person { name: "a" } optional { $p knows $q  optional { $q likes $r } } }
        return { $q.name as q, $r.name as r } order { q }"""
    assert ask(nested) == [("a", None), ("b", "d"), ("c", None)]
    chained = """match { $p: Person { name: "d" } optional { $p knows $q } optional { $q likes $r } }
        return { $q.name as q, $r.name as r }"""
    assert ask(chained) == [(None, None)]
    filtered = 'match { $p: Person optional { $p likes $q } $q.name != "a" } return { $p.name as p } order { p }'
    assert ask(filtered) == ["b", "d"]


def test_groups_over_what_may_be_missing(ask: Ask) -> None:
    body = """match { $p: Person optional { $p knows $q } }
        return { $q.name as q, count($p) as n, count($q) as k, collect($p.name) as who } order { q desc }"""
    assert ask(body) == [
        ("d", 2, 2, ["b", "c"]),
        ("c", 1, 1, ["a"]),
        ("b", 1, 1, ["a"]),
        ("a", 1, 1, ["a"]),
        (None, 2, 0, ["d", "e"]),
    ]
    entities = "match { $p: Person optional { $p likes $q } } return distinct { $q, $q.name as n } order { n }"
    assert [q and q["id"] for q, _ in ask(entities)] == [None, "a", "d", "e"]


@pytest.mark.parametrize(
    ("clause", "expected"),
    [
        ("exists { $p likes $q }", "b d e"),
        ("exists { $p likes $q } or $p.age = 1", "a b d e"),
        ("not exists { $p likes $q }", "a c"),
        ("count { $p knows $q } > 1", "a"),
        ("count { $p (knows|likes) $q } = 1", "b c d e"),
        ("count { $p $w:(knows|likes) $q } = 2", "b"),
        ("count { $p knows{1,3} $q } = $p.age + 3", "a"),
        ("exists { $f: Firm }", "a b c d e"),
        ("not exists { $f: Firm { name: \"y\" } }", "a b c d e"),
        ("exists { $p knows $q  exists { $q likes $r  $r.age = $p.age - 1 } }", "a"),
        ("not { $p knows $q  not { $q likes $r } }", "b c d e"),
    ],
)  # fmt: skip
def test_blocks_as_conditions(ask: Ask, clause: str, expected: str) -> None:
    body = f"match {{ $p: Person {clause} }} return {{ $p.name as p }} order {{ p }}"
    assert " ".join(ask(body)) == expected


def test_blocks_as_columns(ask: Ask) -> None:
    body = """match { $p: Person } return { $p.name as p, count { $p knows $q } as n, exists { $p works $f } as w,
        case when exists { $p likes $q } then 1 / count { $p likes $r } end as share } order { n desc, p } limit 3"""
    assert ask(body) == [("a", 3, False, None), ("b", 1, False, 1.0), ("c", 1, False, None)]
    assert ask("match { $p: Person } return { count { $p knows $q } as n, count($p) as k } order { n }") == [
        (0, 2),
        (1, 2),
        (3, 1),
    ]


def test_shortest_paths_and_their_ties(ask: Ask) -> None:
    body = """match { $a: Person { name: "a" } $z = shortest $a (knows|likes){1,4} $b }
        return { $b.name as b, length($z) as n, nodes($z) as via, edges($z) as by } order { b }"""
    assert ask(body) == [
        ("a", 1, ["a", "a"], ["k5"]),
        ("b", 1, ["a", "b"], ["k3"]),
        ("c", 1, ["a", "c"], ["k4"]),
        ("d", 2, ["a", "b", "d"], ["k3", "k0"]),
        ("e", 3, ["a", "b", "d", "e"], ["k3", "k0", "l1"]),
    ]
    bound = """match { $a: Person $b: Person { name: "d" } $z = shortest $a knows{2,4}[weight != 1] $b }
        return { $a.name as a, edges($z) as e }"""
    assert ask(bound) == [("a", ["k4", "k1"])]
    missing = """match { $a: Person optional { $z = shortest $a likes{1,2} $b  $b.name = "e" } }
        return { $a.name as a, length($z) as n, nodes($z) as v, length($z) is null as none } order { a }"""
    assert ask(missing) == [
        ("a", None, None, True),
        ("b", 2, ["b", "d", "e"], False),
        ("c", None, None, True),
        ("d", 1, ["d", "e"], False),
        ("e", None, None, True),
    ]
    both = (
        'match { $a: Person { name: "e" } $z = shortest $a <likes>{1,3} $b length($z) = 2 } return { nodes($z) as v }'
    )
    assert ask(both) == [["e", "d", "b"]]


def test_distinct_rows_and_counts(ask: Ask) -> None:
    pairs = "match { $p: Person $p knows $q } return"
    assert ask(f"{pairs} distinct {{ $p.age }} order {{ $p.age desc }} limit 2 skip 1") == [1, None]
    assert ask(f"{pairs} {{ count(distinct $p.age) as n, count($q) as k }}") == [(2, 5)]
    twice = ask(f"{pairs} distinct {{ count($p) > 1 as many, $q.age / 1 as age }} order {{ age }}")
    assert twice == [(False, None), (True, 0.0), (False, 1.0), (False, 3.0)]
    shares = ask(f"{pairs} {{ $p.age + 1 as k, sum($q.age) / count($q) as a }} order {{ k }}")
    assert shares == [(None, 0.0), (2, 4 / 3), (4, 0.0)]


def test_only_edges_that_are_followed_are_asked(ask: Ask) -> None:
    body = 'match {{ $p: Person {{ name: "{}" }} $p knows{{1,2}}[10 / (weight - 1) > 0] $q }} return {{ $q.name }}'
    assert ask(body.format("c")) == ["d"]
    # Most of the table's edges, and still not all of them.
    assert ask('match { $p: Person $p.name >= "d" $p likes[10 / (weight - 7) < 0] $q } return { $q.name }') == ["a"]
    with pytest.raises(BadRequest) as refused:
        ask(body.format("a"))
    assert refused.value.code == "division_by_zero"


def test_what_may_fail_is_asked_last(ask: Ask) -> None:
    late = "match { $p: Person 1 / $p.age > 0  $p knows $q  not { $p knows $r  $r.age = 0 } } return { $p.name as p }"
    assert set(ask(late)) == {"a"}
    optional = "match { $p: Person $p.age = 0 optional { $p likes $q  10 / $q.age = 2 } } return { $q.name }"
    assert ask(optional) == ["e"]


def test_explain_shows_blocks_and_paths(memory_snapshot: Callable[..., Any]) -> None:
    text = """query q() { match { $p: Person { name: "a" } optional { $p (knows|likes){1,2}[weight > 1] $q }
        $z = shortest $p knows{1,3} $r } return { $p.name, $q.name, length($z) } }"""
    shown = read.explain(compile_query(text, CATALOG), memory_snapshot(CATALOG, ROWS), {})
    assert "$p -(Knows|Likes){1,2}[weight > 1]-> $q: Person" in shown
    assert "$z = shortest $p -Knows{1,3}-> $r: Person" in shown
    assert "    expand" in shown
    counted = "query q() { match { $p: Person count { $p knows $q  $q.age > 1 } > 1 } return { $p.name } }"
    shown = read.explain(compile_query(counted, CATALOG), memory_snapshot(CATALOG, ROWS), {})
    assert "\n    expand  $p -Knows-> $q: Person where $q.age > 1" in shown


def test_order_by_what_is_not_returned(ask: Ask) -> None:
    assert ask("match { $p: Person } return { $p.name } order { -coalesce($p.age, 4), $p.name }") == list("ebcad")
    assert ask("match { $p: Person } return { $p.name as n } order { count { $p (knows|likes) $q } desc, n }") == list(
        "abcde"
    )
    assert ask("match { $p: Person } return { $p.name as n } order { length(n) + mod($p.age, 3), n desc }") == list(
        "bdcae"
    )


def test_ties_compare_paths_from_their_start(memory_snapshot: Callable[..., Any]) -> None:
    """s→c→x→t and s→b→y→t: the second comes first, though x comes before y; the table's own order says nothing."""
    names = ["x", "t", "b", "y", "s", "c"]
    pairs = ["sc", "cx", "xt", "sb", "by", "yt"]
    rows = {
        "node:Person": [{"id": n, "name": n, "age": 0} for n in names],
        "edge:Knows": [edge(pair, pair[0], pair[1]) for pair in pairs],
    }
    for target in ("", '{ name: "t" }'):
        text = f"""query q() {{ match {{ $s: Person {{ name: "s" }} $t: Person {target} $z = shortest $s knows{{3,4}} $t
            }} return {{ nodes($z) as n, edges($z) as e }} }}"""
        table = read.execute(compile_query(text, CATALOG), memory_snapshot(CATALOG, rows), {})
        assert table.to_pylist() == [{"n": ["s", "b", "y", "t"], "e": ["sb", "by", "yt"]}]
