"""What is wrong with a text that a grammar doesn't read, in people's words."""

from __future__ import annotations

import contextlib
import re
from typing import Any

from lark.exceptions import UnexpectedCharacters, UnexpectedEOF, UnexpectedInput, UnexpectedToken

from omnigraph.errors import Diagnostic
from omnigraph.schema.grammar import Grammar, RefusedWhileParsing, nearest_name
from omnigraph.schema.source import SourceText

__all__ = ["MAX_REPORTED", "parse_around"]

MAX_REPORTED = 20
"""Most syntax errors of one file that are reported together."""


def parse_around(grammar: Grammar, source: SourceText) -> tuple[list[Any], list[Diagnostic]]:
    """What can be read of a text with mistakes, and they; see `Grammar.parse_parts`."""
    return _Reader(grammar).parse(source)


class _Reader:
    """One grammar, as its mistakes are told."""

    def __init__(self, grammar: Grammar) -> None:
        self._grammar, self._parser = grammar, grammar.parser
        self._code, self._names = grammar.code, grammar.names
        self._groups, self._habits = grammar.groups, grammar.habits

    def parse(self, source: SourceText) -> tuple[list[Any], list[Diagnostic]]:
        try:
            return [self._parser.parse(source.text)], []
        except (UnexpectedInput, RefusedWhileParsing) as error:
            whole = self._diagnose(error, source, 0, len(source.text))
        trees, found = self._each_declaration(source)
        return trees, found or [whole]

    def _each_declaration(self, source: SourceText) -> tuple[list[Any], list[Diagnostic]]:
        """Parse each declaration alone, so that one mistake doesn't hide the next."""
        trees: list[Any] = []
        found: list[Diagnostic] = []
        for start, end in source.declarations(self._grammar.words):
            with contextlib.suppress(LookupError, RefusedWhileParsing):
                trees.append(self._grammar.driver.parse(source.text, start, end))
                continue
            try:
                self._parser.parse(source.text[start:end])
            except (UnexpectedInput, RefusedWhileParsing) as error:
                found.append(self._diagnose(error, source, start, end))
                if len(found) == MAX_REPORTED:
                    break
        return trees, found

    def _diagnose(self, error: Exception, source: SourceText, start: int, end: int) -> Diagnostic:
        if isinstance(error, RefusedWhileParsing):
            span = source.span(start + error.start, start + error.end)
            return Diagnostic(self._code, error.message, span, hint=error.hint)
        assert isinstance(error, UnexpectedInput)
        ended = isinstance(error, UnexpectedEOF) or (isinstance(error, UnexpectedToken) and error.token.type == "$END")
        accepted = self._accepted(error)
        if ended:
            at = start + len(source.text[start:end].rstrip())
            return Diagnostic(
                self._code,
                f"the text ends too early: expected {self._in_words(accepted)}",
                source.span(max(at - 1, 0), at),
            )
        if isinstance(error, UnexpectedToken):
            token = error.token
            at, found = start + (token.start_pos or 0), str(token)
        else:
            at = start + (error.pos_in_stream or 0)
            found = source.text[at : at + 1]
        if found.isdigit() and (number := _NUMBER_LIKE.match(source.text, at, end)):
            found = number.group()
        problem = f"unexpected {_shown(found)}"
        if found == '"':
            problem, hint = _broken_string(source.text, at)
            return Diagnostic(self._code, problem, source.span(at, at + 1), hint=hint)
        if source.text.startswith("/*", at):
            problem = "a comment that is never closed"
        habit = next((h.hint for h in self._habits if h.fits(source.text, at, accepted)), None)
        name = _FIELD_NAME.match(source.text, at, end) if "FIELD" in accepted else None
        if name is not None:  # a property may be named here, and it is what follows that can't stand
            at, found = name.end(1), name.group(2)
            problem, accepted = f"unexpected {_shown(found)}", {"COLON"}
        message = f"{problem}: expected {self._in_words(accepted)}"
        hint = habit or self._suggest(found, accepted)
        return Diagnostic(self._code, message, source.span(at, at + len(found)), hint=hint)

    def _accepted(self, error: UnexpectedInput) -> set[str]:
        interactive = getattr(error, "interactive_parser", None)
        if interactive is not None:
            return set(interactive.accepts())
        if isinstance(error, UnexpectedCharacters):
            return set(error.allowed or ())
        return set(getattr(error, "expected", None) or ())

    def _in_words(self, terminals: set[str]) -> str:
        grouped: set[str] = set()
        for sign, members, said in self._groups:
            if sign in terminals and members & terminals:
                terminals = terminals - members
                grouped.add(said)
        words = sorted({self._word(t) for t in terminals} | grouped, key=lambda w: (w.startswith("`"), w))
        if not words:
            return "something else"
        if len(words) > 8:
            words = [*words[:8], "…"]
        return words[0] if len(words) == 1 else ", ".join(words[:-1]) + " or " + words[-1]

    def _word(self, terminal: str) -> str:
        if terminal in self._names:
            return self._names[terminal]
        if terminal == "$END":
            return "the end of the text"
        literal = self._literal(terminal)
        return f"`{literal}`" if literal else terminal.lower().replace("_", " ")

    def _literal(self, terminal: str) -> str | None:
        try:
            pattern = self._parser.get_terminal(terminal).pattern
        except KeyError:
            return None
        return pattern.value if pattern.type == "str" else None

    def _suggest(self, found: str, accepted: set[str]) -> str | None:
        words = {w.strip("`").removesuffix(" { … }") for t in accepted if (w := self._word(t)).startswith("`")}
        near = nearest_name(found, words)
        return f"did you mean `{near}`?" if near else None


_NUMBER_LIKE = re.compile(r"[0-9]\w*(?:\.\w+)?", re.ASCII)
_FIELD_NAME = re.compile(
    r"(?!(?:insert|update|delete|where|return)\b)([a-z_]\w*(?:\s|//[^\n]*|/\*[\s\S]*?\*/)*)(\$?\w+(?:\.\w+)*|\"[^\"\n]*\"|[=<>!]+|[^\s\w])",
    re.ASCII,
)
"""A property's name without its colon, and the sign or word that follows."""

_STRING = re.compile(r'"(?:[^"\\\n]|\\.)*"')
_UNKNOWN_ESCAPE = re.compile(r'\\(?!["\\/bfnrt]|u[0-9a-fA-F]{4}).')


def _broken_string(text: str, at: int) -> tuple[str, str | None]:
    """What is wrong with the string that begins here, and what to do."""
    whole = _STRING.match(text, at)
    if whole is None:
        return "a string that isn't closed on its line", r"a line's end inside a string is written `\n`"
    escape = re.search(_UNKNOWN_ESCAPE, re.sub(r"\\\\", "  ", whole.group()))
    if escape is None:
        return "a string that can't stand here", None
    hint = (
        r"write four hex digits, as in `\u00e9`" if escape.group() == r"\u" else r"a backslash itself is written `\\`"
    )
    return f"unknown escape `{escape.group()}` in a string", hint


def _shown(found: str) -> str:
    if found.isprintable() and found:
        return f"`{found[:40]}`"
    return f"character U+{ord(found[0]):04X}" if found else "end"
