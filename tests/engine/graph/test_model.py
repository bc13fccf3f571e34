"""A real graph against a plain model of it: random histories of branches, writes, merges and reads of the past.

The model (`history_model`) is dictionaries: branch → commits → rows. After each step every table of the branch is read
through another handle than the one that wrote; now and then every commit there ever was is read, and the graph is
verified.

A long run: `OMNIGRAPH_MODEL_EXAMPLES=500 OMNIGRAPH_MODEL_STEPS=40 pytest -o timeout=0 tests/engine/graph`.
A failure prints the calls that led to it and a blob that reproduces it.
"""

# ruff: noqa: PT017  (a refusal is right or wrong by what the model says)

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

import omnigraph
from omnigraph.errors import BadRequest, Conflict, MergeConflicts, NotFound
from tests.engine.graph.history_model import (
    ENDS,
    EXTRA,
    LIKES,
    SEED,
    TABLES,
    THING,
    Branch,
    Commit,
    Model,
    Refused,
    State,
    alike,
    broken,
    changes,
    copied,
    delete_model,
    extras,
    insert_model,
    insert_text,
    load_model,
    merged,
    name,
    record_text,
    records,
    removals,
    schema_text,
    values,
    writes,
)

EXAMPLES = int(os.environ.get("OMNIGRAPH_MODEL_EXAMPLES", "10"))
STEPS = int(os.environ.get("OMNIGRAPH_MODEL_STEPS", "25"))
# A failure costs minutes to shrink; OMNIGRAPH_MODEL_SHRINK=0 shows it as it was found.
PHASES = [p for p in Phase if p is not Phase.shrink or os.environ.get("OMNIGRAPH_MODEL_SHRINK", "1") != "0"]
WHOLE_EVERY = 8
"""Steps between two looks at everything."""

# ---- the machine -----------------------------------------------------------------------------------------------------

NAMES = ["dev", "dev/x", "fix", "try"]
pick = st.integers(0, 10_000)


class Histories(RuleBasedStateMachine):
    @initialize()
    def start(self) -> None:
        self.folder = tempfile.mkdtemp(prefix="model-")
        uri = f"{self.folder}/g"
        # Two that write by turns and one that only reads: none may trust what it remembers.
        self.handles = [omnigraph.init(uri, schema=schema_text(0)), omnigraph.open(uri)]
        self.reader = omnigraph.open(uri, read_only=True)
        self.turn = self.steps = 0
        self.model = Model()
        head = self.graph.head()
        first = Commit(head.id, 0, head.manifest_version, (), 0, head.created_at, {key: {} for key in (*TABLES, EXTRA)})
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
                for handle in self.handles:
                    handle.close()
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
        out[EXTRA] = {x: {} for x in snapshot.catalog.nodes["Thing"].properties if x.startswith("x")}
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
                if commit.doubtful:
                    self.whole_or_removed(branch, commit)
                elif commit_id in known.own or self.model.readable(commit):
                    assert self.rows(self.reader, branch, commit_id) == commit.state
                else:
                    self.gone(branch, commit_id)
            for commit_id in self.model.firm(branch):
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

    def whole_or_removed(self, branch: str, commit: Commit) -> None:
        try:
            found = self.rows(self.reader, branch, commit.id)
        except NotFound as error:
            # The last where a handle of the version was still kept.
            assert error.code in ("version_removed", "commit_state_gone", "storage_not_found"), error
        else:
            assert found == commit.state

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

    # ---- rules: upkeep and the schema ----

    def follow(self, branch: str, before: Commit) -> None:
        """Commits that changed no row since `before`, into the model."""
        made = []
        for info in self.graph.commits(branch, limit=1_000_000):
            if info.id == before.id:
                break
            made.append(info)
        for info in reversed(made):
            self.record(branch, info, copied(before.state))

    @rule(at=pick)
    def optimize(self, at: int) -> None:
        branch = self.branch(at)
        before = self.model.head(branch)
        self.graph.optimize(branch=branch)
        self.follow(branch, before)
        assert self.graph.optimize(branch=branch).commit is None
        self.look(branch)

    @rule(keep=st.integers(1, 12))
    def cleanup(self, keep: int) -> None:
        report = self.graph.cleanup(keep=keep, confirm=True)
        assert not report.failed, report
        kept = set()
        for branch in self.model.branches.values():  # the newest that were made on it, and what it reads now
            made = [one for one in branch.own if self.model.commits[one].line == branch.line]
            kept |= {*made[-keep:], branch.own[-1]}
        for commit in self.model.commits.values():
            commit.doubtful |= commit.id not in kept
        self.everything()
        self.look("main")

    @rule(at=pick, more=st.sampled_from(["comment", "property", "as others"]))
    def apply_schema(self, at: int, more: str) -> None:
        """A comment, one property more, or what another branch has by now."""
        branch = self.branch(at)
        before = self.model.head(branch)
        here = len(before.state[EXTRA])
        most = max(len(self.model.head(b).state[EXTRA]) for b in self.model.branches)
        extra = here + (more == "property") if more != "as others" else most
        text = schema_text(extra, f"change {self.steps}" if more == "comment" else "")
        alone = all(len(self.model.head(b).state[EXTRA]) == extra for b in self.model.branches if b != branch)
        state = copied(before.state)
        state[EXTRA] = {f"x{i}": {} for i in range(1, extra + 1)}
        for row in state[THING].values():
            row.update(extras(state) | row)
        try:
            done = self.graph.schema.apply(text, branch=branch)
        except Conflict as error:
            if error.code == "inherited_table":
                assert branch != "main", error
            else:
                assert error.code == "branches_exist", error
                assert not alone, error
        else:
            if done.commit is not None:
                assert alone
                self.record(branch, done.commit, state)
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
        own, firm = list(self.model.branches[base].own), self.model.firm(base)
        commit = self.model.commits[firm[at // 7 % len(firm)]]
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
        own = model.firm(source)
        theirs = model.head(source) if whole else model.commits[own[other // 7 % len(own)]]
        ours = model.head(target)
        ancestor, (base, *more) = model.base(ours.id, theirs.id)
        if ours.state[EXTRA] != theirs.state[EXTRA]:
            self.refuse_to_merge(source if whole else f"{source}@{theirs.version}", target)
            return
        state, clashes = merged(ancestor, ours.state, theirs.state)
        wrong = broken(ours.state, state) if base.id != ours.id else set()
        try:
            done = self.graph.branches.merge(source if whole else f"{source}@{theirs.version}", into=target)
        except MergeConflicts as error:
            found = {(c["kind"], c["table_key"], c["id"]) for c in error.conflicts}
            rowwise = {f for f in found if f[0] in ("divergent_insert", "divergent_update", "delete_vs_update")}
            assert rowwise == clashes, error
            violations = {f[:2] for f in found - rowwise}
            assert violations == wrong or (clashes and violations <= wrong), error  # what hangs on a clash is left out
            assert found
        except Conflict as error:
            assert error.code == "merge_base_gone", error
            assert not all(model.readable(one) for one in (base, *more)), error
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

    def refuse_to_merge(self, source: str, target: str) -> None:
        try:
            done = self.graph.branches.merge(source, into=target)
        except Conflict as error:
            assert error.code == "schema_mismatch", error
        else:
            assert done.outcome == "already_up_to_date"
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
