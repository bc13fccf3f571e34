"""The table of codes is whole: the product uses these and no others, each has its cases, and so has the reference."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import omnigraph
from omnigraph.codes import CODES
from tests.engine.lang.cases import read_cases

PACKAGE = Path(omnigraph.__file__).parent
_CODE = re.compile(r"[TSLQ]\d+|OG-[A-Z]{2}-\d+")
_SHOWN = re.compile(rf"(?m)^\s*({_CODE.pattern}) \d+:\d+|^\w+ \S+ (?:soft |hard )?({_CODE.pattern})\b")


def codes_in_source() -> dict[str, set[str]]:
    """Every string of the languages' modules that is a code → the modules that say it."""
    out: dict[str, set[str]] = {}
    for path in sorted([*PACKAGE.glob("schema/**/*.py"), *PACKAGE.glob("query/**/*.py")]):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and _CODE.fullmatch(node.value):
                out.setdefault(node.value, set()).add(str(path.relative_to(PACKAGE)))
    return out


def test_every_code_of_the_product_is_in_the_table_and_the_other_way_round() -> None:
    said = codes_in_source()
    assert {c: m for c, m in said.items() if c not in CODES} == {}
    assert [c for c in CODES if c not in said] == []


def test_every_code_has_a_case_that_shows_it() -> None:
    shown = {a or b for case in read_cases() for body in case.sections.values() for a, b in _SHOWN.findall(body)}
    assert [c for c in CODES if c not in shown] == []


def test_every_code_has_a_case_close_by_that_is_fine() -> None:
    fine = set()
    for case in read_cases():
        named = _CODE.match(case.title)
        if named and named[0] not in {a or b for body in case.sections.values() for a, b in _SHOWN.findall(body)}:
            fine.add(named[0])
    assert [c for c in CODES if c not in fine] == []


def test_the_reference_has_the_table() -> None:
    page = (PACKAGE.parents[1] / "docs" / "language" / "codes.md").read_text(encoding="utf-8")
    rows = dict(re.findall(rf"(?m)^\| ({_CODE.pattern}) \| ([^|]+?) \|", page))
    assert rows == {c.code: c.meaning for c in CODES.values()}
