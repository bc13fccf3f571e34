"""A parser that is nothing but a tight loop over a grammar's tables, for texts without a mistake.

The tables are made of the grammar file by the grammar library (`omnigraph.schema.tables`) and lie beside it, so that a
process which meets no mistake never loads that library. This loop gives the same AST as the library or gives up;
whoever calls it then parses again the long way to learn what is wrong.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from typing import Any, NamedTuple, TypeGuard, TypeVar

__all__ = ["Driver", "Rule", "Tables", "Token", "callback_for", "is_token", "read_row"]

_BETWEEN = r"(\s|\/\/[^\n]*\n|\/\*([^*]|\*(?!\/))*\*\/)".replace(r"[^\n]*\n", "[^\n]*\n")
"""White space or a comment, as the grammars' expressions have it: a text without a comment gets simpler ones."""

_IGNORED = re.compile(r"(?:[ \t\r\n\f\ufeff]+|//[^\n]*|/\*[\s\S]*?\*/)*")
_Callback = Callable[[list[Any]], Any]
_Made = TypeVar("_Made")


class Token(str):
    """A token's text, its kind and its place."""

    __slots__ = ("end_pos", "start_pos", "type")
    type: str
    start_pos: int
    end_pos: int

    def __new__(cls, type: str, text: str, start_pos: int, end_pos: int) -> Token:
        self = super().__new__(cls, text)
        self.type, self.start_pos, self.end_pos = type, start_pos, end_pos
        return self


def is_token(child: object) -> TypeGuard[Token]:
    """Whether a child is a token, this parser's or the grammar library's; all others are nodes."""
    return isinstance(child, str)


class Rule(NamedTuple):
    """One rule of a grammar.

    Args:
        origin: its name; one that begins with `_` gives its children to the rule it stands in.
        alias: the name of its callback where that isn't `origin`; empty: it is.
        size: how many children it takes off the stack.
        single: an only child stands for the whole.
        kept: (which child, whether that one gives its own children): those with a meaning; None: all, as they are.
    """

    origin: str
    alias: str
    size: int
    single: bool
    kept: list[list[int]] | None


class Tables(NamedTuple):
    """One grammar as data.

    Args:
        grammar: SHA-256 of the grammar file.
        rules: all rules.
        terminals: (kind, regular expression, lists of texts): where several match, the first counts. Of each list one
            text is in every text that the expression matches in.
        rows: `kind:what` (kind, or a rule's name) for all that may follow, with blanks between them. What is done is a
            state to go to, or -1 - the number of a rule to apply. See `read_row`.
        states: each state's row.
        end: the state in which a text may end; the first state is 0.
    """

    grammar: str
    rules: list[list[Any]]
    terminals: list[list[Any]]
    rows: list[str]
    states: list[int]
    end: int


def read_row(text: str) -> dict[str, int]:
    """What is done in a state, by what comes next."""
    pairs = (pair.split(":") for pair in text.split())
    return {kind: int(what) for kind, what in pairs}


class _AtFirstUse(dict[int, _Made]):
    """What is made of a number when it is first asked for: a text meets few of a grammar's states and rules."""

    def __init__(self, make: Callable[[int], _Made]) -> None:
        self._make = make

    def __missing__(self, number: int) -> _Made:
        made = self[number] = self._make(number)
        return made


def callback_for(callbacks: object) -> Callable[[Rule], _Callback]:
    """What the children of each rule become: what the function of its name in `callbacks` makes of them, without the
    tokens that carry no meaning."""

    def of(rule: Rule) -> _Callback:
        made = getattr(callbacks, rule.alias or rule.origin, None) or (lambda children: children)
        if rule.single and not rule.alias:
            several = made
            made = lambda children: children[0] if len(children) == 1 else several(children)  # noqa: E731
        if rule.kept is None:
            return made

        def callback(children: list[Any]) -> Any:
            out: list[Any] = []
            for at, inlined in kept:
                if not inlined:
                    out.append(children[at])
                elif out:
                    out += children[at]
                else:  # its own list grows on, so that a list of a thousand isn't copied a thousand times
                    out = children[at]
            return made(out)

        kept = rule.kept
        return callback

    return of


class _Lexer:
    """The expressions by which a text is cut into tokens, compiled when they are first needed."""

    def __init__(self, terminals: list[list[Any]]) -> None:
        self._terminals = terminals
        self._anywhere: tuple[frozenset[str], re.Pattern[str]] | None = None
        self._patterns: dict[int, re.Pattern[str]] = {}  # of the states that needed their own: few of some hundred

    def at(self, state: int, row: Collection[str]) -> re.Pattern[str]:
        """The terminals that may stand where the parser is in a state with this row."""
        known = self._patterns.get(state)
        if known is None:
            known = self._patterns[state] = _pattern([t for t in self._terminals if t[0] in row])
        return known

    def anywhere_in(self, text: str) -> re.Pattern[str]:
        """The terminals that may match something in a text: most need words or signs that most texts don't have, and to
        compile a pattern without those takes a third of the time. The second text that needs others gets all."""
        known = self._anywhere
        if known is not None and len(known[0]) == len(self._terminals):
            return known[1]
        some = [t for t in self._terminals if all(any(one in text for one in need) for need in t[2])]
        kinds = frozenset(kind for kind, _, _ in some)
        if known is None:
            known = self._anywhere = kinds, _pattern(some)
        elif not kinds <= known[0]:
            known = self._anywhere = frozenset(kind for kind, _, _ in self._terminals), _pattern(self._terminals)
        return known[1]


class Driver:
    """Parses by the tables of one grammar. Both grammars ignore the same white space and comments.

    Args:
        tables: the grammar.
        callback_of: what a rule's children become.
        token: makes a token of its kind, its text, where it starts and where it ends.
    """

    def __init__(
        self,
        tables: Tables,
        callback_of: Callable[[Rule], _Callback],
        token: Callable[[str, str, int, int], Any] = Token,
    ) -> None:
        self._token = token
        self._rows = _AtFirstUse(lambda state: read_row(tables.rows[tables.states[state]]))
        self._end = tables.end

        def applied(number: int) -> tuple[int, str, _Callback]:
            rule = Rule(*tables.rules[number])
            return rule.size, rule.origin, callback_of(rule)

        self._rules = _AtFirstUse(applied)
        self._plain = _Lexer([[kind, e.replace(_BETWEEN, r"\s"), need] for kind, e, need in tables.terminals])
        self._commented = _Lexer(tables.terminals)

    def parse(self, text: str, start: int = 0, end: int | None = None) -> Any:
        """The AST of a stretch of the text, with places in the whole text.

        Raises:
            LookupError: the text isn't of the language; where and why is not known here.
        """
        rows, rules, lexer = self._rows, self._rules, self._commented if "//" in text or "/*" in text else self._plain
        anywhere, ignored, make = lexer.anywhere_in(text).match, _IGNORED.match, self._token
        states: list[int] = [0]
        values: list[Any] = []
        state, position, length = 0, start, len(text) if end is None else end
        while True:
            blank = ignored(text, position, length)
            position = blank.end() if blank is not None else position
            if position >= length:
                kind, token = "$END", None
            else:
                # The first terminal that matches of all is also the first of those that may stand here, if it may.
                found = anywhere(text, position, length)
                if found is None:
                    raise LookupError
                kind = found.lastgroup or ""
                if kind not in rows[state]:
                    found = lexer.at(state, rows[state]).match(text, position, length)
                    if found is None:
                        raise LookupError
                    kind = found.lastgroup or ""
                position = found.end()
                token = make(kind, found.group(), found.start(), position)
            while True:
                action = rows[state][kind]
                if action >= 0:
                    state = action
                    states.append(state)
                    values.append(token)
                    break
                size, origin, callback = rules[-1 - action]
                if size:
                    value = callback(values[-size:])
                    del states[-size:], values[-size:]
                else:
                    value = callback([])
                state = rows[states[-1]][origin]
                states.append(state)
                values.append(value)
                if kind == "$END" and state == self._end:
                    return value


def _pattern(terminals: list[list[Any]]) -> re.Pattern[str]:
    return re.compile("|".join(f"(?P<{kind}>{expression})" for kind, expression, _ in terminals) or r"(?!)")
