"""Reads the cases of tests/data/lang; its README says what a case looks like."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

__all__ = ["FOLDER", "Case", "read_cases", "write_section"]

FOLDER = Path(__file__).parents[2] / "data" / "lang"

_TITLE = re.compile(r"(?m)^=== ")
_SECTION = re.compile(r"(?m)^---(?: (ast|spans|ir|plan|lint|fmt|schema))?\n")
_NAMED_SCHEMA = re.compile(r"\(schema: ([\w./-]+)\)")


@dataclass(frozen=True)
class Case:
    """`sections`: what comes of the text, by name; the plain `---` is `""`."""

    path: Path
    title: str
    text: str
    sections: dict[str, str]

    @property
    def language(self) -> str:
        return self.path.relative_to(FOLDER).parts[0]

    @property
    def schema(self) -> str:
        """The `.pg` text that a query is compiled against: the case's own, a named file, or the folder's social.pg."""
        if "schema" in self.sections:
            return self.sections["schema"]
        named = _NAMED_SCHEMA.search(self.title)
        return (self.path.parent / (named[1] if named else "social.pg")).read_text(encoding="utf-8")

    @property
    def id(self) -> str:
        return f"{self.path.relative_to(FOLDER).with_suffix('')}: {self.title}"


def read_cases(language: str | None = None) -> list[Case]:
    """Every case, or those of one language (`schema`, `query`)."""
    out: list[Case] = []
    for path in sorted((FOLDER / (language or "")).rglob("*.txt")):
        for part in _TITLE.split(path.read_text(encoding="utf-8"))[1:]:
            title, _, rest = part.partition("\n")
            text, *pieces = _SECTION.split(rest if rest.endswith("\n") else rest + "\n")
            names = [name or "" for name in pieces[::2]]
            assert names, f"{path.name}: {title}: nothing is said to come of it"
            assert len(set(names)) == len(names), f"{path.name}: {title}: a section twice"
            bodies = (body.rstrip() for body in pieces[1::2])
            out.append(Case(path, title, text.removesuffix("\n"), dict(zip(names, bodies, strict=True))))
    return out


def write_section(case: Case, name: str, body: str) -> None:
    """Put another body into the case's file."""
    whole = case.path.read_text(encoding="utf-8")
    start = re.search(rf"(?m)^=== {re.escape(case.title)}\n", whole)
    assert start is not None
    head = re.compile(rf"(?m)^---{' ' + name if name else ''}\n").search(whole, start.end())
    assert head is not None
    end = re.compile(r"(?m)^(===|---)").search(whole, head.end())
    follows = "\n" if end is None or end[1] == "---" else "\n\n"
    rest = whole[end.start() :] if end else ""
    case.path.write_text(whole[: head.end()] + body + follows + rest, encoding="utf-8")
