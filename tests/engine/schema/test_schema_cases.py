"""The cases of tests/data/lang/schema, and properties that hold for any text."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.errors import LanguageError
from omnigraph.schema import Catalog, compile_schema

FOLDER = Path(__file__).parents[2] / "data" / "lang" / "schema"


def read_cases(folder: Path) -> list[tuple[str, str, list[str]]]:
    out = []
    for path in sorted(folder.glob("*.txt")):
        for part in re.split(r"(?m)^=== ", path.read_text(encoding="utf-8"))[1:]:
            title, _, rest = part.partition("\n")
            text, _, expected = rest.partition("\n---\n")
            out.append((f"{path.stem}: {title}", text, expected.strip().splitlines()))
    return out


def summary(catalog: Catalog) -> list[str]:
    lines: list[str] = []
    for t in catalog.by_table_key.values():
        ends = f": {t.source} -> {t.target}" if t.table_key.startswith("edge:") else ""
        lines.append(t.table_key + ends + "".join(f" @{n}={v!r}" for n, v in t.annotations))
        for p in t.properties.values():
            default = f" default {p.default!r}" if p.has_default else ""
            lines.append(f"  {p.name}: {p.type}{default}" + "".join(f" @{n}={v!r}" for n, v in p.annotations))
        if t.key:
            lines.append(f"  key {' '.join(t.key)}")
        lines += [f"  unique {' '.join(u)}" for u in t.uniques]
        lines += [f"  index {' '.join(i)}" for i in t.indexes]
        lines += [f"  range {r.property} {r.low}..{r.high}" for r in getattr(t, "ranges", ())]
        lines += [f"  check {c.property} {c.pattern}" for c in getattr(t, "checks", ())]
        if getattr(t, "interfaces", ()):
            lines.append(f"  implements {' '.join(t.interfaces)}")
        if ends:
            lines.append(f"  card {t.cardinality.min}..{t.cardinality.max}")
    return lines


@pytest.mark.parametrize(("text", "expected"), [pytest.param(t, e, id=i) for i, t, e in read_cases(FOLDER)])
def test_schema_case(text: str, expected: list[str]) -> None:
    try:
        catalog = compile_schema(text)
    except LanguageError as error:
        diagnostics = error.diagnostics
    else:
        assert summary(catalog) == expected
        return
    refusals = [line.split(" ", 2) for line in expected]
    got = [f"{d.code} {d.span.line}:{d.span.column}" if d.span else d.code for d in diagnostics]
    assert [" ".join(line[:2]) for line in refusals] == got
    for diagnostic, line in zip(diagnostics, refusals, strict=True):
        assert "".join(line[2:]) in f"{diagnostic.message} {diagnostic.hint}"


def test_every_code_has_a_refused_case() -> None:
    seen = {e.split(" ")[0] for _, _, expected in read_cases(FOLDER) for e in expected if re.match(r"S\d\d ", e)}
    assert seen == {f"S{i:02}" for i in range(16)}


WORDS = st.sampled_from(
    [
        "node",
        "edge",
        "interface",
        "implements",
        "Person",
        "A",
        "I32",
        "String",
        "enum",
        "(",
        ")",
        "{",
        "}",
        "[",
        "]",
        ",",
        ":",
        "->",
        "?",
        "@key",
        "@unique",
        "@index",
        "@range",
        "@check",
        "@card",
        "@default",
        "@embed",
        "..",
        "1",
        "-2.5",
        '"x"',
        '"(',
        "name",
        "id",
        "src",
        "true",
        "null",
        'date("2020-01-01")',
        "//",
        "/*",
        "*/",
        "\x00",
        "\r\n",
        "é",
        "\ud800",
        '"',
        "\\",
    ]
)


def refusal(text: str) -> str | None:
    try:
        compile_schema(text)
    except LanguageError as error:
        return str(error)
    return None


@settings(max_examples=300, deadline=2000)
@given(st.one_of(st.text(), st.lists(WORDS, max_size=40).map(" ".join)))
def test_any_text_compiles_or_is_refused(text: str) -> None:
    for whole in (text, f"node Person {{ name: String {text} }}"):
        said = refusal(whole)
        assert said is None or said.startswith("schema.pg:")
