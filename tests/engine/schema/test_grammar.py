"""Grammars: their conflicts are known ones, and their cache survives damage, races and folders it can't write."""

from __future__ import annotations

import importlib.resources
import io
import logging
import re
import threading
from pathlib import Path
from typing import Any

import pytest
from lark import Lark
from lark import logger as lark_logger
from lark.exceptions import UnexpectedInput

from omnigraph.query.parser import GRAMMAR as QUERY
from omnigraph.schema.driver import Driver, callback_for
from omnigraph.schema.grammar import Grammar, RefusedWhileParsing
from omnigraph.schema.parser import GRAMMAR as SCHEMA
from omnigraph.schema.tables import make_tables, to_text
from tests.engine.lang.cases import read_cases

# Where a clause could go on or end, going on is right: binary minus (two states) and a traversal after `$x`.
KNOWN = {
    ("omnigraph.schema", "schema.lark"): [],
    ("omnigraph.query", "query.lark"): ["MINUS", "MINUS", "NAME"],
}


@pytest.mark.parametrize(("package", "filename"), KNOWN)
def test_conflicts_are_counted(package: str, filename: str) -> None:
    text = importlib.resources.files(package).joinpath(filename).read_text(encoding="utf-8")
    heard = io.StringIO()
    handler = logging.StreamHandler(heard)
    level = lark_logger.level
    lark_logger.addHandler(handler)
    lark_logger.setLevel(logging.DEBUG)
    try:
        Lark(text, parser="lalr", lexer="contextual", debug=True)
    finally:
        lark_logger.removeHandler(handler)
        lark_logger.setLevel(level)
    conflicts = [
        line.split("terminal ")[1].split(":")[0] for line in heard.getvalue().splitlines() if "onflict" in line
    ]
    assert sorted(conflicts) == KNOWN[package, filename]


@pytest.mark.parametrize(("grammar", "folder"), [(SCHEMA, "schema"), (QUERY, "query")], ids=["schema", "query"])
def test_the_driver_gives_what_the_library_gives(grammar: Grammar, folder: str) -> None:
    library = grammar.parser
    assert grammar.driver is not None
    agreed = 0
    for text in (case.text for case in read_cases(folder)):
        try:
            slow = library.parse(text)
        except (UnexpectedInput, RefusedWhileParsing):
            with pytest.raises((LookupError, RefusedWhileParsing)):
                grammar.driver.parse(text)
        else:
            assert grammar.driver.parse(text) == slow
            agreed += 1
    assert agreed > 10


@pytest.mark.parametrize(("grammar", "folder"), [(SCHEMA, "schema"), (QUERY, "query")], ids=["schema", "query"])
def test_a_text_is_read_alike_whichever_came_before(grammar: Grammar, folder: str) -> None:
    """The first text's words decide what is compiled."""

    def outcome(driver: Driver, text: str) -> Any:
        try:
            return driver.parse(text)
        except (LookupError, RefusedWhileParsing) as error:
            return type(error)

    texts = [case.text for case in read_cases(folder)]
    texts = texts[:: len(texts) // 60]
    last = texts[-1]
    alone = outcome(Driver(grammar.tables, callback_for(grammar.callbacks)), last)
    for text in texts:
        driver = Driver(grammar.tables, callback_for(grammar.callbacks))
        assert outcome(driver, text) == outcome(grammar.driver, text)
        assert outcome(driver, last) == alone
        assert outcome(driver, text) == outcome(grammar.driver, text)


@pytest.mark.parametrize("grammar", [SCHEMA, QUERY], ids=["schema", "query"])
def test_a_text_in_which_a_terminal_matches_has_what_the_tables_say(grammar: Grammar) -> None:
    needs = {kind: need for kind, _, need in grammar.tables.terminals}
    assert needs["NAME"] == []
    assert needs["NULL"] == [["null"]]
    assert needs["FLOAT"] == [list("0123456789"), [".", "E", "e"]]
    matched = set()
    for case in (case.text for case in read_cases("schema" if grammar is SCHEMA else "query")):
        for kind, expression, need in grammar.tables.terminals:
            if re.search(expression, case):
                matched.add(kind)
                assert all(any(one in case for one in texts) for texts in need), kind
    assert len(matched) > len(needs) * 0.9


@pytest.mark.parametrize("grammar", [SCHEMA, QUERY], ids=["schema", "query"])
def test_the_tables_beside_a_grammar_are_its_own(grammar: Grammar) -> None:
    stored = grammar.tables_path.read_text(encoding="utf-8")
    assert stored == to_text(make_tables(grammar.text, grammar.parser)), "run `python hack/grammars.py`"


@pytest.mark.parametrize("stored", [b"", b"[]", b'{"grammar":"other"}', None], ids=["empty", "list", "part", "stale"])
def test_tables_of_another_grammar_are_not_used(stored: bytes | None, monkeypatch: pytest.MonkeyPatch) -> None:
    if stored is None:
        stored = to_text(QUERY.tables._replace(grammar="0" * 64, states=[])).encode()
    grammar, text = fresh(), QUERY.text.encode()
    monkeypatch.setattr(grammar, "_beside", {QUERY.filename: text, QUERY.tables_path.name: stored}.__getitem__)
    assert grammar.tables == QUERY.tables


def fresh() -> Grammar:
    """The query grammar as another process would find it: nothing built yet."""
    return Grammar(
        package=QUERY._package,
        filename=QUERY.filename,
        callbacks=QUERY.callbacks,
        code="Q000",
        words=("query",),
        names={},
    )


def works(grammar: Grammar) -> bool:
    """Whether the library parses by it."""
    return len(grammar.parser.parse("query a() { match { $p: P } return { $p } }").queries) == 1


def test_cache_is_written_read_and_repaired(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNIGRAPH_CACHE_DIR", str(tmp_path))
    assert works(fresh())
    (stored,) = (tmp_path / "grammars").iterdir()
    whole = stored.read_bytes()
    with monkeypatch.context() as patched:
        patched.setattr(Lark, "__init__", lambda *_, **__: pytest.fail("built again"))
        assert works(fresh())
    for damaged in (b"", whole[:100], whole[:-1] + b"x", b"\x80\x04garbage"):
        stored.write_bytes(damaged)
        assert works(fresh())
        assert stored.read_bytes()[:32] != damaged[:32] or stored.read_bytes() != damaged


def test_cache_folder_that_can_not_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("OMNIGRAPH_CACHE_DIR", str(tmp_path / "file"))
    assert works(fresh())


def test_threads_share_one_grammar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNIGRAPH_CACHE_DIR", str(tmp_path))
    grammar, done = fresh(), []
    threads = [threading.Thread(target=lambda: done.append(works(grammar))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert done == [True] * 8
    assert [p.name.count(".tmp") for p in (tmp_path / "grammars").iterdir()] == [0]
