"""A source text of either language: positions, and the checks that come before any grammar.

Nothing here knows a language. Lines end at `\\n` alone (a `\\r` before it is white space), so positions agree with
editors whatever else a text contains.
"""

from __future__ import annotations

import itertools
import re
from bisect import bisect_right
from functools import cached_property

from omnigraph.errors import Diagnostic, Span

__all__ = ["MAX_CHARACTERS", "MAX_NESTING", "SourceText"]

MAX_NESTING = 100
"""Deepest nesting of brackets, `not` and `case` that is parsed at all."""

MAX_CHARACTERS = 80_000
"""Longest text that is parsed at all."""

# What may hide a bracket or a keyword, then the brackets and the words that nest without one. An unclosed comment or
# string is matched too, up to where it must end.
_SKELETON = re.compile(
    r"""(?P<skip>//[^\n]*|/\*.*?(?:\*/|\Z)|"(?:[^"\\\n]|\\.)*(?:"|(?=\n)|\Z))|(?P<open>[({\[])|(?P<close>[)}\]])"""
    r"""|(?P<word>(?<![\w$.])[A-Za-z_]\w*)|(?P<minus>-)|(?P<other>[^\s\w({\[)}\]"/-])""",
    re.DOTALL,
)


class SourceText:
    """One text and where its lines begin."""

    def __init__(self, text: str, file: str) -> None:
        self.text = text
        self.file = file

    @cached_property
    def _line_starts(self) -> list[int]:
        return [0, *itertools.accumulate(len(line) + 1 for line in self.text.split("\n")[:-1])]

    def position(self, offset: int) -> tuple[int, int]:
        """Line and column, both from 1, of a character offset."""
        starts = self._line_starts
        line = bisect_right(starts, offset)
        return line, offset - starts[line - 1] + 1

    def span(self, start: int, end: int) -> Span:
        start = min(max(start, 0), len(self.text))
        end = min(max(end, start), len(self.text))
        line, column = self.position(start)
        end_line, end_column = self.position(end)
        return Span(start, end, line, column, end_line, end_column)

    def refusal(self, code: str) -> Diagnostic | None:
        """The reason this text isn't parsed at all, if there is one: half characters, length, nesting.

        Costs one regular-expression pass; keeps every later pass free of recursion worries.
        """
        try:
            self.text.encode()
        except UnicodeEncodeError as error:
            return Diagnostic(
                code, "half of a surrogate pair: the text isn't valid Unicode", self.span(error.start, error.start + 1)
            )
        if len(self.text) > MAX_CHARACTERS:
            where = self.span(MAX_CHARACTERS, MAX_CHARACTERS + 1)
            return Diagnostic(code, f"longer than {MAX_CHARACTERS} characters", where, hint="split the file")
        if not self._may_nest():
            return None
        depth = run = cases = 0
        before = ""
        for match in _SKELETON.finditer(self.text):
            kind, word = match.lastgroup, match.group()
            if kind == "open":
                depth += 1
            elif kind == "close":
                depth = max(0, depth - 1)
            elif (kind == "word" and word == "not") or kind == "minus":
                run += 1
            elif kind != "skip":
                run = 0
                if word == "when" and before == "case":  # `case` and `end` alone may be names
                    cases += 1
                elif word == "end":
                    cases = max(0, cases - 1)
            before = before if kind == "skip" else word
            if depth + cases + run > MAX_NESTING:
                return Diagnostic(
                    code,
                    f"nested deeper than {MAX_NESTING} levels",
                    self.span(match.start(), match.end()),
                    hint="split the query or the list",
                )
        return None

    def _may_nest(self) -> bool:
        """Whether the text has what nests in such numbers that it must be counted in its order."""
        text = self.text
        if text.count("(") + text.count("{") + text.count("[") > MAX_NESTING:
            return True
        words = "not" in text or "case" in text or text.count("-") > 1
        return words and re.search(r"\b(?:not|case)\b|-\s*-", text) is not None

    def declarations(self, words: tuple[str, ...]) -> list[tuple[int, int]]:
        """Where top-level declarations begin and end, found without a grammar: at a declaring word outside brackets, or
        at the beginning of a line (so that one missing bracket doesn't swallow the rest of the file).

        The stretches cover the text; the first may hold what stands before any declaration.
        """
        alternatives = "|".join(words)
        at_line_begin = {
            m.start(1) for m in re.finditer(rf"^[ \t]*({alternatives})[ \t\r\n]+[A-Za-z_]", self.text, re.MULTILINE)
        }
        starts = [0]
        depth = 0
        for match in _SKELETON.finditer(self.text):
            kind = match.lastgroup
            if kind == "open":
                depth += 1
            elif kind == "close":
                depth = max(0, depth - 1)
            elif kind == "word" and match.group() in words and (depth == 0 or match.start() in at_line_begin):
                starts.append(match.start())
                depth = 0
        if len(starts) > 1 and not self.text[: starts[1]].strip():
            del starts[0]
        return list(zip(starts, [*starts[1:], len(self.text)], strict=True))
