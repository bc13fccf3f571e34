"""The two languages' grammars, and what can be read of a text with mistakes.

A grammar is a `.lark` file (LALR, contextual lexer) whose rules are turned into AST nodes by one callback each while
parsing, so that no parse tree is ever built. A text without a mistake is parsed by the tables that lie beside the file;
only a mistake needs the grammar library, which tells what could have stood there (`omnigraph.schema.mistakes`).
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import re
import sys
import threading
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omnigraph.errors import Diagnostic, LanguageError
from omnigraph.records import dataclass
from omnigraph.schema.driver import Driver, Tables, callback_for
from omnigraph.schema.source import SourceText

if TYPE_CHECKING:
    from lark import Lark

__all__ = ["Grammar", "Habit", "RefusedWhileParsing", "nearest_name"]

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
        self._package, self.filename, self.callbacks = package, filename, callbacks
        self.code, self.words, self.names = code, words, names
        self.groups, self.habits = groups, habits
        self._lock = threading.RLock()
        self._lark: Lark | None = None
        self._tables: Tables | None = None
        self._driver: Driver | None = None

    @cached_property
    def text(self) -> str:
        """The grammar file."""
        return self._beside(self.filename).decode()

    @property
    def tables_path(self) -> Path:
        """Where its tables lie."""
        return Path(str(sys.modules[self._package].__file__)).with_name(_tables_of(self.filename))

    def _beside(self, name: str) -> bytes:
        module = sys.modules[self._package]
        loader: Any = module.__spec__.loader if module.__spec__ is not None else None
        data: bytes = loader.get_data(str(Path(str(module.__file__)).with_name(name)))  # also from within a zip
        return data

    @property
    def tables(self) -> Tables:
        """What the parser works by: the tables beside the file, or new ones where they are another grammar's."""
        if self._tables is None:
            with contextlib.suppress(OSError, ValueError, TypeError):
                stored = Tables(**json.loads(self._beside(_tables_of(self.filename))))
                if stored.grammar == hashlib.sha256(self.text.encode()).hexdigest():
                    self._tables = stored
        if self._tables is None:
            from omnigraph.schema.tables import make_tables

            self._tables = make_tables(self.text, self.parser)
        return self._tables

    @property
    def driver(self) -> Driver:
        """The parser of texts without a mistake."""
        if self._driver is None:
            with self._lock:
                if self._driver is None:
                    self._driver = Driver(self.tables, callback_for(self.callbacks))
        return self._driver

    @property
    def parser(self) -> Lark:
        """The grammar library's parser, which knows what it expected where."""
        if self._lark is None:
            with self._lock:
                if self._lark is None:
                    from omnigraph.schema.tables import build

                    self._lark = build(self.text, self.filename, self.callbacks)
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
        refusal = source.refusal(self.code)
        if refusal is not None:
            return [], [refusal]
        with contextlib.suppress(LookupError, RefusedWhileParsing):
            return [self.driver.parse(source.text)], []
        from omnigraph.schema.mistakes import parse_around

        return parse_around(self, source)


def _tables_of(filename: str) -> str:
    return filename.removesuffix(".lark") + ".tables.json"


def nearest_name(name: str, names: Any) -> str | None:
    """The known name most like this one, case ignored, if any is near. Among very many it isn't looked for."""
    known = list(itertools.islice(names, MAX_COMPARED + 1))
    if len(known) > MAX_COMPARED:
        return None
    import difflib  # only a mistake needs it

    folded = {n.lower(): n for n in known}
    near = difflib.get_close_matches(name.lower(), folded, n=1, cutoff=0.6)
    return folded[near[0]] if near and folded[near[0]] != name else None
