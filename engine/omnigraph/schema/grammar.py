"""Grammars: built once per process, kept on disk between processes, and parse errors put into people's words.

A grammar is a `.lark` file (LALR, contextual lexer) whose rules are turned into AST nodes by one callback each while
parsing, so that no parse tree is ever built. The built tables are cached under the user's cache folder: a file named
after the digest of everything it depends on, its own digest in front. A missing, damaged or foreign file is rebuilt,
and a folder that can't be written costs only the time to build.
"""

from __future__ import annotations

import contextlib
import difflib
import hashlib
import importlib.resources
import io
import itertools
import os
import re
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lark
from lark import Lark
from lark.exceptions import UnexpectedCharacters, UnexpectedEOF, UnexpectedInput, UnexpectedToken

from omnigraph.caches import cache_folder
from omnigraph.errors import Diagnostic, LanguageError
from omnigraph.schema.driver import Driver
from omnigraph.schema.source import SourceText

__all__ = ["Grammar", "Habit", "RefusedWhileParsing", "nearest_name"]

MAX_REPORTED = 20
"""Most syntax errors of one file that are reported together."""

MAX_COMPARED = 300
"""Most known names among which the one meant is looked for: each mistake costs a comparison with all of them."""


class RefusedWhileParsing(Exception):
    """A callback can't turn a token into a value (a number out of any range). Carries the token's place."""

    def __init__(self, message: str, start: int, end: int, hint: str | None = None) -> None:
        super().__init__(message)
        self.message, self.start, self.end, self.hint = message, start, end, hint


@dataclass(frozen=True, slots=True)
class Habit:
    """Something people write who come from another language, and what to say to it.

    Args:
        pattern: matches where the text stops making sense.
        hint: how it is written here.
        after: must match the end of what stands before, on the same line.
        expects: a terminal that must be possible there.
    """

    pattern: str
    hint: str
    after: str = ""
    expects: str = ""

    def fits(self, text: str, at: int, accepted: set[str]) -> bool:
        if self.expects and self.expects not in accepted:
            return False
        before = text[max(text.rfind("\n", 0, at) + 1, at - 80) : at]
        return re.match(self.pattern, text[at : at + 80]) is not None and re.search(self.after, before) is not None


class Grammar:
    """One language's parser.

    Args:
        package: import package that holds the grammar file.
        filename: the `.lark` file.
        callbacks: an object with one function per rule, from the rule's children to an AST node. Stateless.
        code: the refusal code of a syntax error.
        words: the words that begin a top-level declaration.
        names: terminal name → what a person calls it.
        groups: (sign, terminals, words): where `sign` may stand, `words` say all of `terminals`.
        habits: hints for those who write another language's signs; the first that fits is given.
    """

    def __init__(
        self,
        *,
        package: str,
        filename: str,
        callbacks: object,
        code: str,
        words: tuple[str, ...],
        names: Mapping[str, str],
        groups: tuple[tuple[str, frozenset[str], str], ...] = (),
        habits: tuple[Habit, ...] = (),
    ) -> None:
        self._package, self._filename, self._callbacks = package, filename, callbacks
        self._code, self._words, self._names = code, words, names
        self._groups, self._habits = groups, habits
        self._lock = threading.Lock()
        self._lark: Lark | None = None
        self._driver: Driver | None = None

    @property
    def parser(self) -> Lark:
        if self._lark is None:
            with self._lock:
                if self._lark is None:
                    grammar = self._load()
                    self._driver = Driver(grammar)
                    self._lark = grammar
        return self._lark

    def parse(self, source: SourceText) -> Any:
        """The AST of a whole text.

        Raises:
            LanguageError: with every syntax error that can be told apart.
        """
        trees, found = self.parse_parts(source)
        if found:
            raise LanguageError(found, text=source.text, file=source.file)
        return trees[0]

    def parse_parts(self, source: SourceText) -> tuple[list[Any], list[Diagnostic]]:
        """What can be read of a text, and its syntax errors.

        Returns:
            The AST of the whole text, alone; or, where something is wrong, one for each stretch in which nothing is.
        """
        refusal = source.refusal(self._code)
        if refusal is not None:
            return [], [refusal]
        parser = self.parser
        if self._driver is not None:
            with contextlib.suppress(LookupError, RefusedWhileParsing):
                return [self._driver.parse(source.text)], []
        try:
            return [parser.parse(source.text)], []
        except (UnexpectedInput, RefusedWhileParsing) as error:
            whole = self._diagnose(error, source, 0, len(source.text))
        trees, found = self._each_declaration(source)
        return trees, found or [whole]

    def _each_declaration(self, source: SourceText) -> tuple[list[Any], list[Diagnostic]]:
        """Parse each declaration alone, so that one mistake doesn't hide the next."""
        trees: list[Any] = []
        found: list[Diagnostic] = []
        for start, end in source.declarations(self._words):
            if self._driver is not None:
                with contextlib.suppress(LookupError, RefusedWhileParsing):
                    trees.append(self._driver.parse(source.text, start, end))
                    continue
            try:
                self.parser.parse(source.text[start:end])
            except (UnexpectedInput, RefusedWhileParsing) as error:
                found.append(self._diagnose(error, source, start, end))
                if len(found) == MAX_REPORTED:
                    break
        return trees, found

    # ---- building and caching ----

    def _load(self) -> Lark:
        text = importlib.resources.files(self._package).joinpath(self._filename).read_text(encoding="utf-8")
        digest = hashlib.sha256("\n".join((lark.__version__, sys.version, text)).encode()).hexdigest()
        path = cache_folder() / "grammars" / f"{self._filename.removesuffix('.lark')}-{digest[:32]}"
        stored = _read_cache(path)
        if stored is not None:
            return Lark.__new__(Lark)._load(stored, transformer=self._callbacks)
        built = Lark(text, parser="lalr", lexer="contextual", transformer=self._callbacks, maybe_placeholders=False)
        buffer = io.BytesIO()
        built.save(buffer, exclude_options=("transformer",))
        _write_cache(path, buffer.getvalue())
        return built

    # ---- errors in people's words ----

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
            pattern = self.parser.get_terminal(terminal).pattern
        except KeyError:
            return None
        return pattern.value if pattern.type == "str" else None

    def _suggest(self, found: str, accepted: set[str]) -> str | None:
        words = {w.strip("`").removesuffix(" { … }") for t in accepted if (w := self._word(t)).startswith("`")}
        near = nearest_name(found, words)
        return f"did you mean `{near}`?" if near else None


def nearest_name(name: str, names: Any) -> str | None:
    """The known name most like this one, case ignored, if any is near. Among very many it isn't looked for."""
    known = list(itertools.islice(names, MAX_COMPARED + 1))
    if len(known) > MAX_COMPARED:
        return None
    folded = {n.lower(): n for n in known}
    near = difflib.get_close_matches(name.lower(), folded, n=1, cutoff=0.6)
    return folded[near[0]] if near and folded[near[0]] != name else None


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


def _read_cache(path: Path) -> io.BytesIO | None:
    """The stored tables, or None when there are none that may be trusted: ours alone to write, and undamaged."""
    try:
        with path.open("rb") as file:
            if hasattr(os, "getuid") and os.fstat(file.fileno()).st_uid != os.getuid():
                return None
            digest, payload = file.read(32), file.read()
    except OSError:
        return None
    return io.BytesIO(payload) if hashlib.sha256(payload).digest() == digest else None


def _write_cache(path: Path, payload: bytes) -> None:
    """Store by rename, so that readers see a whole file or none. A folder that can't be written is no error."""
    import tempfile

    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(hashlib.sha256(payload).digest() + payload)
            os.replace(temporary, path)
        except OSError:
            os.unlink(temporary)
            raise
