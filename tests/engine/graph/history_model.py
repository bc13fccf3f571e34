"""A plain model of a graph: dictionaries of rows by branch and commit, and what each write does to them.

`test_model` runs random histories of a real graph against it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

_SCHEMA = """\
node Person {
  key: String @key
  mail: String? @unique
  n: I64? @default(7)
  level: I64 @default(1) @index
  @range(level, 0..9)
}
node Thing { k: I64 @key  n: I64?%s }
edge Knows: Person -> Person @card(0..2) { w: I64? @default(3)  @key(src, dst) }
edge Likes: Person -> Thing @card(1..3) { w: I64? }
"""
PERSON, THING, KNOWS, LIKES = "node:Person", "node:Thing", "edge:Knows", "edge:Likes"
TABLES = (PERSON, THING, KNOWS, LIKES)
ENDS = {KNOWS: (PERSON, PERSON), LIKES: (PERSON, THING)}
CARD = {KNOWS: (0, 2), LIKES: (1, 3)}
FRESH: dict[str, dict[str, Any]] = {
    PERSON: {"mail": None, "n": 7, "level": 1},
    THING: {"n": None},
    KNOWS: {"w": 3},
    LIKES: {"w": None},
}

EXTRA = "schema"
"""The key of a state that isn't a table: the properties that schema changes have added to Thing."""

Row = dict[str, Any]
State = dict[str, dict[str, Row]]


def schema_text(extra: int, comment: str = "") -> str:
    """The schema with this many properties added to Thing: `x1` with the default 1, and so on."""
    added = "".join(f"  x{i}: I64? @default({i})" for i in range(1, extra + 1))
    return _SCHEMA % added + (f"// {comment}\n" if comment else "")


def extras(state: State) -> Row:
    """The added properties with their defaults."""
    return {x: int(x[1:]) for x in state[EXTRA]}


# ---- the model -------------------------------------------------------------------------------------------------------


class Refused(Exception):
    """The model says that a write breaks something."""


@dataclass
class Commit:
    """One commit. `line` is the life of a branch it was made in: a name may be used again."""

    id: str
    line: int
    version: int
    parents: tuple[str, ...]
    number: int
    created_at: Any
    state: State
    doubtful: bool = False  # a cleanup may have removed its state


@dataclass
class Branch:
    line: int
    own: list[str]  # the ids it has stood at, oldest first, those before its birth too
    parent: str | None = None


@dataclass
class Model:
    commits: dict[str, Commit] = field(default_factory=dict)
    branches: dict[str, Branch] = field(default_factory=dict)
    lines: int = 0

    def head(self, branch: str) -> Commit:
        return self.commits[self.branches[branch].own[-1]]

    def ancestors(self, commit_id: str) -> set[str]:
        seen: set[str] = set()
        queue = [commit_id]
        while queue:
            one = queue.pop()
            if one not in seen:
                seen.add(one)
                queue.extend(self.commits[one].parents)
        return seen

    def bases(self, one: str, other: str) -> list[Commit]:
        """The common ancestors that no other one descends from, the newest first."""
        common = self.ancestors(one) & self.ancestors(other)
        best = [c for c in common if not any(c != d and c in self.ancestors(d) for d in common)]
        return sorted((self.commits[c] for c in best), key=lambda c: c.number, reverse=True)

    def base(self, one: str, other: str) -> tuple[State, list[Commit]]:
        """What merging all common ancestors makes, and the commits that takes, the newest ancestor first."""
        bases = self.bases(one, other)
        roots = [self.bases(bases[0].id, base.id)[0] for base in bases[1:]]
        state = bases[0].state
        for root, base in zip(roots, bases[1:], strict=True):
            state, clashes = merged(root.state, state, base.state)
            for _, key, row in clashes:
                state[key].pop(row, None)
        return state, [*bases, *roots]

    def readable(self, commit: Commit) -> bool:
        return not commit.doubtful and any(commit.line == branch.line for branch in self.branches.values())

    def firm(self, branch: str) -> list[str]:
        """The commits a branch has stood at that no cleanup may have removed, oldest first."""
        return [one for one in self.branches[branch].own if not self.commits[one].doubtful]


def copied(state: State) -> State:
    return {key: {i: dict(row) for i, row in rows.items()} for key, rows in state.items()}


def values(edge: Row) -> str:
    """Of an edge without the id it was given, in one order."""
    return str((edge["src"], edge["dst"], edge["w"]))


def broken(before: State, after: State) -> set[tuple[str, str]]:
    """(kind, table) of each constraint that the new state breaks."""
    out: set[tuple[str, str]] = set()
    people = after[PERSON].values()
    if any(row["level"] is None or not 0 <= row["level"] <= 9 for row in people):
        out.add(("value_constraint_violation", PERSON))
    mails = [row["mail"] for row in people if row["mail"] is not None]
    if len(mails) != len(set(mails)):
        out.add(("unique_violation", PERSON))
    for key, (source, target) in ENDS.items():
        if any(row["src"] not in after[source] or row["dst"] not in after[target] for row in after[key].values()):
            out.add(("orphan_edge", key))
        least, most = CARD[key]
        now = [row["src"] for row in after[key].values()]
        lost = {row["src"] for i, row in before[key].items() if after[key].get(i) != row} & set(after[source])
        if any(now.count(one) > most for one in now) or any(now.count(one) < least for one in lost):
            out.add(("cardinality_violation", key))
    return out


def changes(before: State, after: State) -> set[tuple[str, str, str]]:
    """(table, id, operation) of each row that differs."""
    out = set()
    for key in TABLES:
        for one in before[key].keys() | after[key].keys():
            old, new = before[key].get(one), after[key].get(one)
            if key == THING and old is not None and new is not None:  # a property that comes with its default
                old, new = extras(after) | old, extras(before) | new
            if old != new:
                out.add((key, one, "insert" if old is None else "delete" if new is None else "update"))
    return out


def merged(base: State, ours: State, theirs: State) -> tuple[State, set[tuple[str, str, str]]]:
    """Ours with what they changed, and (kind, table, id) of what both changed differently."""
    out, clashes = copied(ours), set()
    for key in TABLES:
        for one in base[key].keys() | ours[key].keys() | theirs[key].keys():
            b, o, t = base[key].get(one), ours[key].get(one), theirs[key].get(one)
            if key == THING:
                b, o, t = (row and extras(ours) | row for row in (b, o, t))
            if t in (b, o):
                continue
            if o != b:
                kind = "divergent_insert" if b is None else "divergent_update" if o and t else "delete_vs_update"
                clashes.add((kind, key, one))
            elif t is None:
                del out[key][one]
            else:
                out[key][one] = dict(t)
    return out, clashes


# ---- writes, as texts for the graph and as steps of the model --------------------------------------------------------

people = st.sampled_from("abcd")
things = st.sampled_from([1, 2, 3])
small = st.sampled_from([None, 0, 1, 5])
mails = st.sampled_from([None, "m1", "m2", "m3", "m4", "m5"])
levels = st.sampled_from([0, 1, 2, 5, 8, 9, 9, 10])


def some(**columns: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=columns)


person_values = some(mail=mails, n=small, level=levels)
INSERTS: dict[str, st.SearchStrategy[Any]] = {
    PERSON: st.tuples(st.just(PERSON), people, st.none(), person_values),
    THING: st.tuples(st.just(THING), things, st.none(), some(n=small)),
    KNOWS: st.tuples(st.just(KNOWS), people, people, some(w=small)),
    LIKES: st.tuples(st.just(LIKES), people, things, some(w=small)),
}
inserts = st.one_of(*INSERTS.values())
SETS: dict[str, tuple[str, Callable[[Row], Any]]] = {
    "n: n + 1": ("n", lambda r: None if r["n"] is None else r["n"] + 1),
    "n: coalesce(n, 0) * 2 + level": ("n", lambda r: (r["n"] or 0) * 2 + r["level"]),
    "n: null": ("n", lambda r: None),
    "level: level + 1": ("level", lambda r: r["level"] + 1),
    "level: case when n is null then 0 else level end": ("level", lambda r: 0 if r["n"] is None else r["level"]),
    'mail: "m1"': ("mail", lambda r: "m1"),
    "mail: null": ("mail", lambda r: None),
}
WHERE: dict[str, dict[str, Callable[[Row], bool]]] = {
    PERSON: {
        'key = "a"': lambda r: r["key"] == "a",
        'key = "b"': lambda r: r["key"] == "b",
        "n > 1": lambda r: r["n"] is not None and r["n"] > 1,
        "level >= 5 or mail is null": lambda r: r["level"] >= 5 or r["mail"] is None,
    },
    THING: {"k = 1": lambda r: r["k"] == 1, "n != 0": lambda r: r["n"] not in (None, 0)},
    KNOWS: {'from = "a"': lambda r: r["src"] == "a", "w is null or w = 3": lambda r: r["w"] in (None, 3)},
    LIKES: {"w = 1": lambda r: r["w"] == 1, 'from = "b"': lambda r: r["src"] == "b"},
}
updates = st.tuples(st.sampled_from(sorted(SETS)), st.sampled_from(sorted(WHERE[PERSON])))
writes = st.lists(st.one_of(inserts, inserts, updates), min_size=1, max_size=3)
deletes = st.sampled_from(TABLES).flatmap(lambda k: st.tuples(st.just(k), st.sampled_from(sorted(WHERE[k]))))
removals = st.lists(deletes, min_size=1, max_size=2)


def name(key: str) -> str:
    return key.partition(":")[2]


def insert_text(key: str, one: Any, other: Any, values: Row) -> str:
    given = {"from": one, "to": other} if key in ENDS else {"key" if key == PERSON else "k": one}
    body = ", ".join(f"{k}: {json.dumps(v)}" for k, v in (given | values).items())
    return f"insert {name(key)} {{ {body} }}"


def put(state: State, key: str, own: str, whole: Row, values: Row) -> None:
    """An upsert: what isn't given keeps its value, in a new row its default."""
    old = state[key].get(own)
    fresh = FRESH[key] | (extras(state) if key == THING else {})
    state[key][own] = (old or {"id": own} | fresh) | whole | values


def identity(key: str, one: Any, other: Any, own: str) -> tuple[str, Row]:
    if key in ENDS:
        ends = {"src": str(one), "dst": str(other)}
        return (json.dumps([ends["src"], ends["dst"]], separators=(",", ":")) if key == KNOWS else own), ends
    return str(one), {"key" if key == PERSON else "k": one}


def insert_model(state: State, statements: list[Any]) -> tuple[int, int]:
    nodes = edges = 0
    for number, statement in enumerate(statements):
        if len(statement) == 2:
            text, where = statement
            column, value = SETS[text]
            rows = [row for row in state[PERSON].values() if WHERE[PERSON][where](row)]
            new = [value(row) for row in rows]
            for row, v in zip(rows, new, strict=True):
                row[column] = v
            nodes += len(rows)
            continue
        key, one, other, values = statement
        own, whole = identity(key, one, other, f"?{number}")
        put(state, key, own, whole, values)
        nodes, edges = nodes + (key not in ENDS), edges + (key in ENDS)
    return nodes, edges


def delete_model(state: State, statements: list[Any]) -> tuple[int, int]:
    nodes = edges = 0
    for key, where in statements:
        gone = [i for i, row in state[key].items() if WHERE[key][where](row)]
        for i in gone:
            del state[key][i]
        nodes, edges = nodes + len(gone) * (key not in ENDS), edges + len(gone) * (key in ENDS)
        for edge, (source, target) in ENDS.items():
            for i, row in list(state[edge].items()):
                if (source == key and row["src"] in gone) or (target == key and row["dst"] in gone):
                    del state[edge][i]
                    edges += 1
    return nodes, edges


own_ids = st.sampled_from([None, "e1", "e2", "e3"])
records = st.lists(st.tuples(inserts, own_ids), min_size=1, max_size=5)
alike = st.sampled_from(TABLES).flatmap(lambda k: st.lists(st.tuples(INSERTS[k], own_ids), min_size=1, max_size=5))
SEED: list[Any] = [
    *(((PERSON, k, None, {"mail": f"m{i}", "n": i}), None) for i, k in enumerate("abc", 1)),
    *(((THING, k, None, {}), None) for k in (1, 2)),
    *(((KNOWS, one, other, {}), None) for one, other in ("ab", "bc")),
    *(((LIKES, one, 1, {"w": 1}), own) for one, own in (("a", "e1"), ("b", "e2"))),
]


def record_text(record: Any) -> str:
    (key, one, other, values), own = record
    if key not in ENDS:
        return json.dumps({"type": name(key), "data": {"key" if key == PERSON else "k": one} | values})
    data = values | ({"id": own} if own and key == LIKES else {})
    return json.dumps({"edge": name(key), "from": one, "to": other, "data": data})


def load_model(state: State, mode: str, loaded: list[Any]) -> None:
    if mode == "overwrite":
        for (key, *_), _own in loaded:
            state[key] = {}
    seen = set()
    for number, ((key, one, other, values), own) in enumerate(loaded):
        own_id, whole = identity(key, one, other, own or f"?{number}")
        if mode == "append" and own_id in state[key]:
            raise Refused("existing_id")
        if mode != "merge" and (key, own_id) in seen:
            raise Refused("duplicate_id")
        seen.add((key, own_id))
        put(state, key, own_id, whole, values)
