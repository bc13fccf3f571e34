"""The engine's `dataclass` gives what the standard library's gives."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import re
import threading
from collections.abc import Callable
from dataclasses import FrozenInstanceError, field, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import pytest

import omnigraph
from omnigraph import records


def _declare(decorator: Any, **arguments: bool) -> Any:
    """The same class by either decorator."""

    @decorator(**arguments)
    class Place:
        name: str
        rows: int = 3
        parts: list[int] = field(default_factory=list)
        note: str = field(default="n", repr=False, compare=False)
        memo: dict[str, int] = field(default_factory=dict, init=False, repr=False, compare=False)

        @property
        def twice(self) -> int:
            return self.rows * 2

    return Place


ARGUMENTS = [
    {"frozen": frozen, "slots": slots, "eq": eq, "repr": shown}
    for frozen in (True, False)
    for slots in (True, False)
    for eq in (True, False)
    for shown in (True, False)
]


def _outcome(ask: Callable[[], Any]) -> Any:
    try:
        return ask()
    except Exception as error:  # noqa: BLE001  # which one is what is compared
        return type(error)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("arguments", ARGUMENTS, ids=str)
def test_it_behaves_as_the_standard_one(
    arguments: dict[str, bool], compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "_BY_HAND", 0 if compiled else 1000)
    ours, theirs = (_declare(decorator, **arguments) for decorator in (records.dataclass, dataclasses.dataclass))
    asked: list[Callable[[Any], Any]] = [
        lambda c: vars(c("a")) if hasattr(c("a"), "__dict__") else "slots",
        lambda c: [(f.name, f.init, f.compare, f.repr) for f in fields(c)],
        lambda c: [getattr(c("a", 5, [1], "z"), f.name) for f in fields(c)],
        lambda c: [getattr(c(rows=5, name="b"), f.name) for f in fields(c)],
        lambda c: c("a").parts is c("a").parts,
        lambda c: c(),
        lambda c: c("a", memo={}),
        lambda c: c("a", other=1),
        lambda c: c("a") == c("a"),
        lambda c: c("a") == c("a", note="another"),
        lambda c: c("a") == c("b"),
        lambda c: c("a") == ("a", 3, []),
        lambda c: c("a") != c("a"),
        lambda c: isinstance(hash(c("a")), int),
        lambda c: isinstance(hash(c("a", parts=())), int),
        lambda c: hash(c("a", parts=())) == hash(c("a", parts=(), note="another")),
        lambda c: re.sub("0x[0-9a-f]+", "", repr(c("a"))),
        lambda c: setattr(c("a"), "name", "b"),
        lambda c: isinstance(_outcome(lambda: setattr(c("a"), "other", "b")), type),  # they raise different errors
        lambda c: delattr(c("a"), "name"),
        lambda c: replace(c("a"), rows=9).twice,
        lambda c: copy.copy(c("a", parts=[1])).parts,
        lambda c: copy.deepcopy(c("a", parts=[1])).parts,
        lambda c: dataclasses.asdict(c("a")),
        lambda c: c.__match_args__,
        lambda c: is_dataclass(c("a")),
        lambda c: getattr(c, "__slots__", None),
    ]
    for number, ask in enumerate(asked):
        assert _outcome(lambda: ask(ours)) == _outcome(lambda: ask(theirs)), (number, arguments)  # noqa: B023


@records.dataclass(frozen=True, slots=True)
class Base:
    one: int


@records.dataclass(frozen=True, slots=True)
class Derived(Base):
    two: int = 2


@records.dataclass(frozen=True, slots=True)
class Empty:
    pass


@records.dataclass
class Own:
    one: int
    seen: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self.seen = self.one + 1

    def __repr__(self) -> str:
        return "own"

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 7


def test_classes_that_build_on_others() -> None:
    assert (Derived(1).one, Derived(1, 5).two) == (1, 5)
    assert Derived(1) == Derived(1, 2)
    assert Base(1) != Derived(1)
    assert repr(Derived(1)) == "Derived(one=1, two=2)"
    assert pickle.loads(pickle.dumps(Derived(1, 4))) == Derived(1, 4)
    assert Empty() == Empty()
    assert hash(Empty()) == hash(Empty())


def test_what_a_class_has_itself_stays() -> None:
    assert (repr(Own(1)), Own(1) == 2, hash(Own(1)), Own(1).seen) == ("own", True, 7, 2)


def test_nothing_is_compiled_before_there_are_many_objects() -> None:
    made = _declare(records.dataclass, frozen=True, slots=True)
    early = made.__init__
    first = made("a")
    assert made.__init__ is early
    assert [made(str(number)).name for number in range(100)] == [str(number) for number in range(100)]
    assert made.__init__ is not early
    assert list(inspect.signature(made).parameters) == ["name", "rows", "parts", "note"]
    with pytest.raises(FrozenInstanceError, match="name"):
        first.name = "b"


def test_threads_that_make_the_first_objects_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    @records.dataclass(frozen=True, slots=True)
    class Point:
        x: int = 1
        y: int = 2

    parts_of, begun, go_on = records._parts, threading.Event(), threading.Event()

    def slow(cls: Any) -> Any:
        if not begun.is_set():
            begun.set()
            assert go_on.wait(60)
        return parts_of(cls)

    monkeypatch.setattr(records, "_parts", slow)
    first: list[Point] = []
    thread = threading.Thread(target=lambda: first.append(Point(5)))
    thread.start()
    assert begun.wait(60)
    assert dataclasses.astuple(Point()) == (1, 2)
    go_on.set()
    thread.join()
    assert dataclasses.astuple(first[0]) == (5, 2)
    assert dataclasses.astuple(Point(3)) == (3, 2)


def test_a_field_by_name_only_is_refused() -> None:
    @records.dataclass
    class Named:
        one: int = field(kw_only=True)

    with pytest.raises(TypeError, match="one"):
        Named(one=1)


def test_the_engine_declares_all_its_classes_so() -> None:
    """Each class of the standard library's costs every process that meets its module half a millisecond."""
    package = Path(omnigraph.__file__).parent
    found = [
        str(path.relative_to(package))
        for path in sorted(package.rglob("*.py"))
        if re.search(r"^from dataclasses import .*\bdataclass\b|dataclasses\.dataclass", path.read_text(), re.MULTILINE)
    ]
    assert found == ["records.py"]
