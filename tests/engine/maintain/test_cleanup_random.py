"""`cleanup` after random histories: every state that is asked to stay is read whole, and no other one half."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import omnigraph
from omnigraph.errors import Conflict, NotFound
from omnigraph.storage import Repository
from tests.engine.maintain.test_cleanup import SCHEMA, gone, own, put, rows


class _Model:
    """A graph under random commits, branches, tags, merges and compactions, with what every commit held."""

    def __init__(self, path: Path, dice: random.Random) -> None:
        self.graph = omnigraph.init(path, schema=SCHEMA)
        self.dice = dice
        self.held: dict[tuple[str, str], list[str]] = {}
        self.tagged: list[tuple[str, str]] = []
        self.made = 0
        self.note("main")

    def note(self, branch: str) -> None:
        self.held[branch, self.graph.head(branch).id] = rows(self.graph, branch)

    def branch(self) -> str:
        return self.dice.choice([b.name for b in self.graph.branches.list()])

    def step(self) -> None:
        what = self.dice.choices(
            ("write", "delete", "create", "drop", "merge", "optimize", "tag", "old"), (10, 2, 2, 1, 1, 1, 1, 1)
        )[0]
        branch, graph = self.branch(), self.graph
        self.made += 1
        if what == "write":
            put(graph, f"s{self.made}", f"t{self.made % 7}", branch=branch, type=self.dice.choice("PQ"))
        elif what == "delete":
            graph.mutate(f'query q() {{ delete P where slug = "t{self.made % 7}" }}', branch=branch)
        elif what == "create" or what == "old":
            at = None if what == "create" else self.dice.choice(own(graph, branch) or [None])
            try:
                graph.branches.create(f"b{self.made}", from_=branch, at=at)
            except NotFound as error:
                if error.code != "version_removed":
                    raise
        elif what == "drop" and branch != "main":
            try:
                graph.branches.delete(branch)
            except Conflict:
                return
            self.held = {at: found for at, found in self.held.items() if at[0] != branch}
            self.tagged = [at for at in self.tagged if at[0] != branch]
        elif what == "merge" and branch != "main":
            graph.branches.merge(branch)
            branch = "main"
        elif what == "optimize":
            graph.optimize(branch=branch)
        elif what == "tag" and branch == "main":
            commit = graph.head()
            store = Repository.open(graph.uri).engine.store
            store.latest("__manifest").tags.create(f"v{self.made}", commit.manifest_version)
            self.tagged.append((branch, commit.id))
        if branch in {b.name for b in graph.branches.list()} and graph.head(branch).branch == branch:
            self.note(branch)

    def check(self, keep: int) -> None:
        graph = self.graph
        living = [b.name for b in graph.branches.list()]
        heads = {b: rows(graph, b) for b in living}
        report = graph.cleanup(keep=keep, confirm=True)
        assert report.failed == (), report.failed
        assert {b: rows(graph, b) for b in living} == heads
        stay = {(b, c) for b in living for c in own(graph, b)[:keep]} | set(self.tagged)
        for at, found in list(self.held.items()):
            if at in stay:
                assert rows(graph, *at) == found, at
            elif gone(graph, *at):
                del self.held[at]
            else:
                assert rows(graph, *at) == found, at
        report_after = graph.verify()
        assert report_after.ok, report_after.findings


@pytest.mark.parametrize("round", range(3))
def test_random_histories(tmp_path: Path, round: int) -> None:
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    dice = random.Random(seed)
    model = _Model(tmp_path / "g", dice)
    for _ in range(3):
        for _ in range(14):
            model.step()
        model.check(dice.choice((1, 2, 3, 5)))
    for name in [b.name for b in model.graph.branches.list() if b.name != "main"]:
        model.graph.branches.merge(name)  # what a merge needs has stayed, too
    assert model.graph.verify().ok
