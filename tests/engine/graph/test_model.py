"""A real graph against a plain model of it: random histories of branches, writes, merges and reads of the past.

The model is dictionaries: branch → commits → rows. After each step every table of the branch is read through another
handle than the one that wrote; now and then every commit there ever was is read, and the graph verified.

A long run: `OMNIGRAPH_MODEL_EXAMPLES=500 OMNIGRAPH_MODEL_STEPS=40 pytest -o timeout=0 tests/engine/graph`.
A failure prints the calls that led to it and a blob that reproduces it.
"""

# ruff: noqa: PT017  (a refusal is right or wrong by what the model says)

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

import omnigraph
from omnigraph.errors import BadRequest, Conflict, MergeConflicts, NotFound

EXAMPLES = int(os.environ.get("OMNIGRAPH_MODEL_EXAMPLES", "10"))
STEPS = int(os.environ.get("OMNIGRAPH_MODEL_STEPS", "25"))
# A failure costs minutes to shrink; OMNIGRAPH_MODEL_SHRINK=0 shows it as it was found.
PHASES = [p for p in Phase if p is not Phase.shrink or os.environ.get("OMNIGRAPH_MODEL_SHRINK", "1") != "0"]
WHOLE_EVERY = 8
"""Steps between two looks at everything."""

SCHEMA = """\
node Person {
  key: String @key
  mail: String? @unique
  n: I64? @default(7)
  level: I64 @default(1) @index
  @range(level, 0..9)
}
node Thing { k: I64 @key  n: I64? }
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

Row = dict[str, Any]
State = dict[str, dict[str, Row]]


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

    def base(self, one: str, other: str) -> Commit:
        """The common ancestor that no other one descends from; the newest of several."""
        common = self.ancestors(one) & self.ancestors(other)
        best = [c for c in common if not any(c != d and c in self.ancestors(d) for d in common)]
        return max((self.commits[c] for c in best), key=lambda c: c.number)

    def readable(self, commit: Commit) -> bool:
        return any(commit.line == branch.line for branch in self.branches.values())


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
            if old != new:
                out.add((key, one, "insert" if old is None else "delete" if new is None else "update"))
    return out


def merged(base: State, ours: State, theirs: State) -> tuple[State, set[tuple[str, str, str]]]:
    """Ours with what they changed, and (kind, table, id) of what both changed differently."""
    out, clashes = copied(ours), set()
    for key in TABLES:
        for one in base[key].keys() | ours[key].keys() | theirs[key].keys():
            b, o, t = base[key].get(one), ours[key].get(one), theirs[key].get(one)
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
    state[key][own] = (old or {"id": own} | FRESH[key]) | whole | values


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


# ---- the machine -----------------------------------------------------------------------------------------------------

NAMES = ["dev", "dev/x", "fix", "try"]
pick = st.integers(0, 10_000)


class Histories(RuleBasedStateMachine):
    @initialize()
    def start(self) -> None:
        self.folder = tempfile.mkdtemp(prefix="model-")
        uri = f"{self.folder}/g"
        # Two that write by turns and one that only reads: none may trust what it remembers.
        self.handles = [omnigraph.init(uri, schema=SCHEMA), omnigraph.open(uri)]
        self.reader = omnigraph.open(uri, read_only=True)
        self.turn = self.steps = 0
        self.model = Model()
        head = self.graph.head()
        first = Commit(head.id, 0, head.manifest_version, (), 0, head.created_at, {key: {} for key in TABLES})
        self.model.commits[head.id] = first
        self.model.branches["main"] = Branch(0, [head.id])
        state = copied(first.state)
        load_model(state, "append", SEED)
        self.record("main", self.graph.load("".join(record_text(r) + "\n" for r in SEED)).commit, state)
        self.look("main")

    def teardown(self) -> None:
        if hasattr(self, "folder"):
            try:
                self.everything()
            finally:
                shutil.rmtree(self.folder)

    @property
    def graph(self) -> omnigraph.Graph:
        return self.handles[self.turn % 2]

    def branch(self, number: int) -> str:
        names = sorted(self.model.branches)
        return names[number % len(names)]

    def other(self, number: int, branch: str) -> str:
        names = sorted(set(self.model.branches) - {branch})
        return names[number % len(names)]

    def living(self, number: int) -> Commit:
        found = sorted((c for c in self.model.commits.values() if self.model.readable(c)), key=lambda c: c.number)
        return found[number % len(found)]

    # ---- looking ----

    def rows(self, graph: omnigraph.Graph, branch: str = "main", at: Any = None) -> State:
        snapshot = graph.snapshot(branch, at)
        return self.rows_of(snapshot)

    def rows_of(self, snapshot: Any) -> State:
        out: State = {}
        for key in TABLES:
            listed = snapshot.scan(key).to_pylist()
            out[key] = {row["id"]: row for row in listed}
            assert len(listed) == len(out[key]) == snapshot.tables[key].row_count
        return out

    def look(self, branch: str) -> None:
        """The branch holds what the model says, for the one who wrote and for everybody else."""
        self.turn += 1
        self.steps += 1
        expected = self.model.head(branch)
        for graph in (*self.handles, self.reader):
            assert graph.head(branch).id == expected.id
        assert self.rows(self.graph, branch) == expected.state
        assert self.rows(self.reader, branch) == expected.state
        if self.steps % WHOLE_EVERY == 0:
            self.everything()

    def everything(self) -> None:
        """Every branch now, every commit there ever was, the history, and `verify`."""
        for graph in (self.graph, self.reader):
            assert {b.name for b in graph.branches.list()} == set(self.model.branches)
        for branch, known in self.model.branches.items():
            listed = self.graph.commits(branch, limit=1_000_000)
            assert {c.id for c in listed} == self.model.ancestors(known.own[-1])
            assert listed[0].id == known.own[-1]
            for info in listed:
                assert info.parents == self.model.commits[info.id].parents
            for commit_id in self.model.ancestors(known.own[-1]):
                commit = self.model.commits[commit_id]
                if commit_id in known.own or self.model.readable(commit):
                    assert self.rows(self.reader, branch, commit_id) == commit.state
                else:
                    self.gone(branch, commit_id)
            for commit_id in known.own:
                commit = self.model.commits[commit_id]
                assert self.rows(self.graph, branch, commit.version) == commit.state
                newest = [i for i in known.own if self.model.commits[i].created_at <= commit.created_at][-1]
                assert self.graph.snapshot(branch, commit.created_at).head.id == newest
        report = self.reader.verify()
        bad = [f for f in report.findings if f["severity"] == "error" or f["kind"] == "drift"]
        assert report.ok, report.findings
        assert not bad, bad
        assert not self.graph.pending()

    def gone(self, branch: str, commit_id: str) -> None:
        try:
            self.reader.snapshot(branch, commit_id)
        except NotFound as error:
            assert error.code == "commit_state_gone", error
        else:
            raise AssertionError(f"{commit_id} was made on a branch that is deleted, and can be read")

    # ---- keeping the model ----

    def record(self, branch: str, info: Any, state: State, *more: str) -> None:
        """The commit that the graph made, with the ids it gave to new edges."""
        known = self.model.branches[branch]
        assert info.parents == (known.own[-1], *more)
        assert info.id not in self.model.commits
        fresh = sorted((i for i in state[LIKES] if i.startswith("?")), key=lambda i: values(state[LIKES][i]))
        if fresh:
            before = self.model.head(branch).state[LIKES]
            there = self.rows(self.graph, branch)[LIKES]
            given = [i for i in there if i not in before and i not in state[LIKES]]
            assert len(given) == len(fresh)
            for old, new in zip(fresh, sorted(given, key=lambda i: values(there[i])), strict=True):
                row = state[LIKES].pop(old)
                state[LIKES][new] = row | {"id": new}
        number = len(self.model.commits)
        commit = Commit(info.id, known.line, info.manifest_version, info.parents, number, info.created_at, state)
        self.model.commits[info.id] = commit
        known.own.append(info.id)

    def born(self, name: str, made: Any, head: Commit, own: list[str]) -> None:
        assert made.head.id == head.id
        self.model.lines += 1
        self.model.branches[name] = Branch(self.model.lines, own[: own.index(head.id) + 1], made.parent)

    def collides(self, name: str) -> bool:
        return any(f"{b}/".startswith(f"{name}/") or f"{name}/".startswith(f"{b}/") for b in self.model.branches)

    # ---- rules: writing ----

    @rule(at=pick, statements=writes)
    def change(self, at: int, statements: list[Any]) -> None:
        self.change_on(self.branch(at), statements)

    def change_on(self, branch: str, statements: list[Any]) -> None:
        texts = [insert_text(*s) if len(s) == 4 else f"update Person set {{ {s[0]} }} where {s[1]}" for s in statements]
        self.mutation(branch, texts, lambda state: insert_model(state, statements))

    @rule(at=pick, statements=removals)
    def remove(self, at: int, statements: list[Any]) -> None:
        self.remove_on(self.branch(at), statements)

    def remove_on(self, branch: str, statements: list[Any]) -> None:
        texts = [f"delete {name(key)} where {where}" for key, where in statements]
        self.mutation(branch, texts, lambda state: delete_model(state, statements))

    def mutation(self, branch: str, texts: list[str], act: Callable[[State], tuple[int, int]]) -> None:
        before = self.model.head(branch).state
        state = copied(before)
        counted = act(state)
        wrong = broken(before, state)
        try:
            done = self.graph.mutate("query q() { " + "  ".join(texts) + " }", branch=branch)
        except BadRequest as error:
            assert wrong, error
        else:
            assert not wrong, wrong
            assert (done.nodes, done.edges) == counted
            assert (done.commit is None) == (state == before)
            if done.commit is not None:
                self.record(branch, done.commit, state)
        self.look(branch)

    @rule(
        at=pick,
        mode=st.sampled_from(["append", "merge", "merge", "overwrite"]),
        loaded=st.one_of(records, alike),
        missing=st.sampled_from([None, None, None, None, None, *NAMES]),
    )
    def load(self, at: int, mode: Any, loaded: list[Any], missing: str | None) -> None:
        base = self.branch(at)
        into = base if missing is None or self.collides(missing) else missing
        before = self.model.head(base).state
        state = copied(before)
        try:
            load_model(state, mode, loaded)
            wrong: Any = broken(before, state)
        except Refused as error:
            wrong = error
        text = "".join(record_text(record) + "\n" for record in loaded)
        try:
            done = self.graph.load(text, mode=mode, branch=into, from_=base if into != base else None)
        except BadRequest as error:
            assert wrong, error
            assert into == base or into not in {b.name for b in self.graph.branches.list()}
            self.look(base)
            return
        assert not wrong, wrong
        assert done.branch_created == (into != base)
        if into != base:
            info = next(b for b in self.graph.branches.list() if b.name == into)
            self.model.lines += 1
            self.model.branches[into] = Branch(self.model.lines, list(self.model.branches[base].own), info.parent)
        self.record(into, done.commit, state)
        self.look(into)

    @rule(at=pick)
    def ensure_indices(self, at: int) -> None:
        branch = self.branch(at)
        before = self.model.head(branch)
        self.graph.ensure_indices(branch=branch)
        head = self.graph.head(branch)
        if head.id != before.id:
            self.record(branch, head, copied(before.state))
        assert not any(one["built"] or one["extended"] for one in self.graph.ensure_indices(branch=branch))
        self.look(branch)

    # ---- rules: branches ----

    @rule(at=pick, new=st.sampled_from(NAMES))
    def branch_from_branch(self, at: int, new: str) -> None:
        base = self.branch(at)
        head, own = self.model.head(base), list(self.model.branches[base].own)
        self.create(new, lambda: self.graph.branches.create(new, from_=base), head, own)

    @rule(at=pick, new=st.sampled_from(NAMES), way=st.sampled_from(["version", "commit", "snapshot", "text"]))
    def branch_from_the_past(self, at: int, new: str, way: str) -> None:
        base = self.branch(at)
        own = list(self.model.branches[base].own)
        commit = self.model.commits[own[at // 7 % len(own)]]
        moment: Any = {"version": commit.version, "commit": commit.id}.get(way)
        if way == "snapshot":
            moment = self.graph.snapshot(base, commit.id)
        if way == "text":
            self.create(new, lambda: self.graph.branches.create(new, from_=f"{base}@{commit.version}"), commit, own)
        else:
            self.create(new, lambda: self.graph.branches.create(new, from_=base, at=moment), commit, own)

    @rule(at=pick, new=st.sampled_from(NAMES))
    def branch_from_any_commit(self, at: int, new: str) -> None:
        commit = self.living(at)
        own = next(b.own for b in self.model.branches.values() if commit.id in b.own)
        self.create(new, lambda: self.graph.branches.create(new, from_=commit.id), commit, list(own))

    def create(self, new: str, call: Callable[[], Any], head: Commit, own: list[str]) -> None:
        try:
            made = call()
        except Conflict as error:
            assert self.collides(new), error
            self.look("main")
            return
        assert not self.collides(new)
        self.born(new, made, head, own)
        self.look(new)

    @rule(at=pick)
    def delete_branch(self, at: int) -> None:
        branch = self.branch(at)
        children = [b for b in self.model.branches.values() if b.parent == branch]
        try:
            self.graph.branches.delete(branch)
        except (BadRequest, Conflict) as error:
            assert branch == "main" or children, error
        else:
            assert branch != "main"
            assert not children
            del self.model.branches[branch]
        self.look("main")

    @precondition(lambda self: len(self.model.branches) > 1)
    @rule(at=pick, other=pick, whole=st.booleans())
    def merge(self, at: int, other: int, whole: bool) -> None:
        """A branch, or a state it stood at, into another."""
        model, target = self.model, self.branch(at)
        source = self.other(other, target)
        own = model.branches[source].own
        theirs = model.head(source) if whole else model.commits[own[other // 7 % len(own)]]
        ours = model.head(target)
        base = model.base(ours.id, theirs.id)
        state, clashes = merged(base.state, ours.state, theirs.state)
        wrong = broken(ours.state, state) if base.id != ours.id else set()
        try:
            done = self.graph.branches.merge(source if whole else f"{source}@{theirs.version}", into=target)
        except MergeConflicts as error:
            found = {(c["kind"], c["table_key"], c["id"]) for c in error.conflicts}
            rowwise = {f for f in found if f[0] in ("divergent_insert", "divergent_update", "delete_vs_update")}
            assert rowwise == clashes, error
            assert {f[:2] for f in found - rowwise} == wrong, error
            assert found
        except Conflict as error:
            assert error.code == "merge_base_gone", error
            assert not model.readable(base), error
        else:
            if base.id == theirs.id:
                assert (done.outcome, done.commit) == ("already_up_to_date", None)
            else:
                assert not clashes
                assert not wrong
                assert done.outcome == ("fast_forward" if base.id == ours.id else "merged")
                self.record(target, done.commit, state, theirs.id)
                again = self.graph.branches.merge(source if whole else f"{source}@{theirs.version}", into=target)
                assert again.outcome == "already_up_to_date"
                self.same(ours, model.head(target), ours.id, target)
                if done.outcome == "fast_forward":
                    self.same(model.head(target), theirs, target, f"{source}@{theirs.version}")
            assert done.base == base.id
        self.look(target)

    @precondition(lambda self: len(self.model.branches) > 1)
    @rule(at=pick, other=pick, here=st.one_of(writes, removals), there=st.one_of(writes, removals))
    def part_and_merge(self, at: int, other: int, here: list[Any], there: list[Any]) -> None:
        target = self.branch(at)
        for branch, statements in ((target, here), (self.other(other, target), there)):
            if statements[0][0] in TABLES and len(statements[0]) == 2:
                self.remove_on(branch, statements)
            else:
                self.change_on(branch, statements)
        self.merge(at, other, True)

    # ---- rules: reading ----

    @rule(one=pick, other=pick)
    def diff(self, one: int, other: int) -> None:
        before, after = self.living(one), self.living(other)
        self.same(before, after, before.id, after.id)
        branch = self.branch(other)
        self.same(before, self.model.head(branch), before.id, branch)

    def same(self, before: Commit, after: Commit, from_: str, to: str) -> None:
        """The diff of two states is what the model says, ends of edges included."""
        entries = list(self.graph.diff(from_, to))
        assert len({(e["table_key"], e["id"]) for e in entries}) == len(entries)
        assert {(e["table_key"], e["id"], e["op"]) for e in entries} == changes(before.state, after.state)
        for entry in entries:
            key, one = entry["table_key"], entry["id"]
            if key in ENDS:
                row = after.state[key].get(one) or before.state[key][one]
                assert entry["endpoints"] == {"src": row["src"], "dst": row["dst"]}

    @rule(at=pick, key=st.sampled_from(TABLES))
    def entity(self, at: int, key: str) -> None:
        commit = self.living(at)
        snapshot = self.graph.snapshot(at=self.reader._repository.point(commit.id))
        assert self.rows_of(snapshot) == commit.state
        for one in [*commit.state[key], "nobody"]:
            found = self.graph.entity(name(key), one, at=snapshot)
            assert (found is None) == (one not in commit.state[key])

    @rule()
    def reopen(self) -> None:
        self.handles[self.turn % 2].close()
        self.handles[self.turn % 2] = omnigraph.open(self.handles[0].uri)
        self.reader = omnigraph.open(self.handles[0].uri, read_only=True)
        self.look("main")


def test_random_histories() -> None:
    run_state_machine_as_test(
        Histories,
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=STEPS,
            deadline=None,
            print_blob=True,
            phases=PHASES,
            suppress_health_check=list(HealthCheck),
        ),
    )
