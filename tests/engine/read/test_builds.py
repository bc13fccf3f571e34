"""What is made once for all queries: whoever asks, left in time by whoever must go, and there for the next."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from omnigraph import read
from omnigraph.errors import BadRequest, Unavailable
from omnigraph.query import compile_query
from omnigraph.read import builds, limits
from omnigraph.read.adjacency import adjacency
from omnigraph.read.builds import Builds, built
from omnigraph.read.limits import Limits, apart, limited
from omnigraph.read.settings import read_settings
from omnigraph.read.tables import TABLES
from omnigraph.schema import compile_schema

CATALOG = compile_schema("""
node Person { name: String @key }
node Town { name: String @key }
edge Knows: Person -> Person
edge Near: Town -> Town
""")
LATE = 30  # seconds after which a test has failed; no test waits for them


class Gate:
    """A place in a thread's way: it says that it is there, and waits until it is let through."""

    def __init__(self) -> None:
        self.reached, self.opened = threading.Event(), threading.Event()
        self.passed = 0

    def __call__(self) -> None:
        self.reached.set()
        assert self.opened.wait(LATE)
        self.passed += 1


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    """Every table is big enough here for a thread of its own."""
    monkeypatch.setattr(builds, "_QUICK", 0)
    made = Gate()
    yield made
    made.opened.set()


@pytest.fixture
def graph(memory_snapshot: Callable[..., Any]) -> Any:
    TABLES.clear()
    adjacency().clear()
    names = ["a", "b", "c"]
    nodes = [{"id": n, "name": n} for n in names]
    edges = [{"id": n, "src": n, "dst": m} for n, m in zip(names, "bca", strict=True)]
    rows = {"node:Person": nodes, "node:Town": nodes, "edge:Knows": edges, "edge:Near": edges}
    return memory_snapshot(CATALOG, rows)


QUERIES = {
    edge: compile_query(f"query q() {{ match {{ $a {edge} $b }} return {{ count($b) as n }} }}", CATALOG)
    for edge in ("knows", "near")
}


def ask(snapshot: Any, edge: str, *, seconds: float | None = None, cancelled: Any = None) -> list[dict[str, Any]]:
    deadline = None if seconds is None else time.monotonic() + seconds
    chosen = replace(read_settings(), traversal_mode="csr")
    table = read.execute(QUERIES[edge], snapshot, {}, deadline=deadline, cancelled=cancelled, settings=chosen)
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows


def held_up(snapshot: Any, table_key: str, gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading a table takes until the gate is opened."""
    scan = snapshot.scan

    def slow(key: str, *args: Any, **kwargs: Any) -> pa.Table:
        if key == table_key:
            gate()
        return scan(key, *args, **kwargs)

    monkeypatch.setattr(snapshot, "scan", slow)


class Asking(threading.Thread):
    """A call on a thread; `result` is what it gave or raised."""

    def __init__(self, call: Callable[[], Any]) -> None:
        super().__init__()
        self._call = call
        self.start()

    def run(self) -> None:
        try:
            self.outcome = self._call()
        except BaseException as error:  # noqa: BLE001
            self.outcome = error

    def result(self) -> Any:
        self.join(LATE)
        assert not self.is_alive()
        return self.outcome


@pytest.mark.parametrize("table_key", ["edge:Knows", "node:Person"])
def test_a_query_leaves_a_build_in_time_and_the_next_one_finds_it_done(
    graph: Any, gate: Gate, monkeypatch: pytest.MonkeyPatch, table_key: str
) -> None:
    held_up(graph, table_key, gate, monkeypatch)
    with pytest.raises(BadRequest) as late:
        ask(graph, "knows", seconds=0.05)
    assert late.value.code == "query_timeout"
    assert gate.reached.wait(LATE)  # it goes on, and its asker is here
    with pytest.raises(BadRequest) as gone:
        ask(graph, "knows", cancelled=lambda: True)
    assert gone.value.code == "query_cancelled"
    assert ask(graph, "near", seconds=LATE) == [{"n": 3}]  # nobody waits for another table
    others = [Asking(lambda: ask(graph, "knows", seconds=LATE)) for _ in range(3)]
    gate.opened.set()
    assert [other.result() for other in others] == [[{"n": 3}]] * 3
    assert gate.passed == 1
    assert ask(graph, "knows") == [{"n": 3}]
    assert gate.passed == 1


def test_a_query_without_limits_builds_by_itself_and_others_share_it(
    graph: Any, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    held_up(graph, "edge:Knows", gate, monkeypatch)
    first = Asking(lambda: ask(graph, "knows"))
    assert gate.reached.wait(LATE)
    with pytest.raises(BadRequest):
        ask(graph, "knows", seconds=0.05)
    gate.opened.set()
    assert first.result() == [{"n": 3}]
    assert gate.passed == 1


def test_a_failure_is_told_to_all_who_wait_and_the_next_one_tries_again(gate: Gate) -> None:
    making = Builds()

    def fails() -> int:
        gate()
        raise Unavailable("the store is away")

    askers = [Asking(lambda: making.share("it", fails, size=1)) for _ in range(3)]
    assert gate.reached.wait(LATE)
    gate.opened.set()
    assert all(isinstance(asker.result(), Unavailable) for asker in askers)
    assert making.share("it", lambda: 7, size=1) == 7


def test_where_the_thread_that_builds_is_interrupted_another_one_builds(gate: Gate) -> None:
    making, tries = Builds(), []

    def work() -> str:
        tries.append(threading.current_thread())
        if len(tries) > 1:
            return "made"
        gate()
        raise KeyboardInterrupt

    first = Asking(lambda: making.share("it", work, size=1))
    assert gate.reached.wait(LATE)
    waiting = threading.Event()
    second = Asking(lambda: (waiting.set(), making.share("it", work, size=1))[1])
    assert waiting.wait(LATE)
    gate.opened.set()
    assert isinstance(first.result(), KeyboardInterrupt)
    assert second.result() == "made"


def test_a_built_property_is_made_once_and_holds_up_no_other_object(gate: Gate) -> None:
    class Thing:
        def __init__(self, slow: bool) -> None:
            self.slow = slow
            self.made = 0

        @built(lambda self: 1)
        def value(self) -> int:
            """What it is."""
            self.made += 1
            if self.slow:
                gate()
            return self.made

    slow, quick = Thing(slow=True), Thing(slow=False)
    askers = [Asking(lambda: slow.value) for _ in range(3)]
    assert gate.reached.wait(LATE)
    assert quick.value == quick.value == 1
    gate.opened.set()
    assert [asker.result() for asker in askers] == [1, 1, 1]
    assert Thing.value.__doc__ == "What it is."


def test_no_threads_left_is_no_reason_to_fail(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refused)
    with limited(Limits(deadline=time.monotonic() + LATE)):
        assert Builds().share("it", lambda: 7, size=1) == 7
        assert apart(lambda: 8) == 8


def test_work_is_left_in_time_wherever_it_is(gate: Gate) -> None:
    over = []

    def long() -> None:
        gate()
        try:
            limits.check()
        except BadRequest as error:
            over.append(error.code)
            raise

    left = iter([False, True])
    with limited(Limits(cancelled=lambda: next(left, True))), pytest.raises(BadRequest) as gone:
        apart(long)
    assert gone.value.code == "query_cancelled"
    gate.opened.set()
    for thread in threading.enumerate():
        if thread.name == "omnigraph-apart":
            thread.join(LATE)
    assert over == ["query_cancelled"]  # and the call itself ends at its next check
    assert apart(lambda: 7) == 7
