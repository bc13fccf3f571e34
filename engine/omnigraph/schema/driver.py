"""A tight loop over a built grammar's tables, for texts without a mistake.

The grammar library parses with the same tables but keeps line counts, histories and generators that only an error
needs. This loop gives the same AST or gives up; whoever calls it then parses again the long way to learn what is wrong.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from lark import Lark, Token
from lark.grammar import Rule
from lark.parsers.lalr_analysis import Shift

__all__ = ["Driver"]

_IGNORED = re.compile(r"(?:[ \t\r\n\f\ufeff]+|//[^\n]*|/\*[\s\S]*?\*/)*")
_Reduce = tuple[int, str, Callable[[list[Any]], Any]]


class Driver:
    """Tables of one grammar, flattened. Both grammars ignore the same white space and comments.

    Args:
        grammar: the built grammar.
        callback_of: what a rule's children become; default is what the grammar's own callbacks make of them, without
            the tokens that carry no meaning.
        token: makes a token of its kind, its text, where it starts and (`end_pos`) where it ends.
    """

    def __init__(
        self,
        grammar: Lark,
        callback_of: Callable[[Rule], Callable[[list[Any]], Any]] | None = None,
        token: Callable[..., Any] = Token,
    ) -> None:
        self._token = token
        front = grammar.parser
        machine = front.parser.parser
        table, callback_of = machine.parse_table, callback_of or machine.callbacks.__getitem__
        self._start: int = table.start_states["start"]
        self._end: int = table.end_states["start"]
        self._actions: dict[int, dict[str, int | _Reduce]] = {}
        for state, row in table.states.items():
            self._actions[state] = {
                symbol: to if action is Shift else (len(to.expansion), to.origin.name, callback_of(to))
                for symbol, (action, to) in row.items()
            }
        self._lexers = front.lexer.lexers
        self._patterns: dict[int, tuple[re.Pattern[str], ...]] = {}  # of the states met so far: few of some hundred

    def _patterns_of(self, state: int) -> tuple[re.Pattern[str], ...]:
        lexer = self._lexers[state]
        patterns = tuple(lexer.scanner._mres)
        if lexer.callback:  # known with the scanner: a terminal that this loop can't tell by its pattern alone
            raise LookupError
        self._patterns[state] = patterns
        return patterns

    def parse(self, text: str, start: int = 0, end: int | None = None) -> Any:
        """The AST of a stretch of the text, with places in the whole text.

        Raises:
            LookupError: the text isn't of the language; where and why is not known here.
        """
        actions, patterns, ignored = self._actions, self._patterns, _IGNORED.match
        make = self._token
        states: list[int] = [self._start]
        values: list[Any] = []
        state, position, length = self._start, start, len(text) if end is None else end
        while True:
            blank = ignored(text, position, length)
            position = blank.end() if blank is not None else position
            if position >= length:
                kind, token = "$END", None
            else:
                for pattern in patterns.get(state) or self._patterns_of(state):
                    found = pattern.match(text, position, length)
                    if found is not None:
                        break
                else:
                    raise LookupError
                kind = found.lastgroup or ""
                token = make(kind, found.group(), position, end_pos=found.end())
                position = found.end()
            while True:
                action = actions[state][kind]
                if isinstance(action, int):
                    state = action
                    states.append(state)
                    values.append(token)
                    break
                size, origin, callback = action
                if size:
                    value = callback(values[-size:])
                    del states[-size:], values[-size:]
                else:
                    value = callback([])
                state = actions[states[-1]][origin]  # type: ignore[assignment]
                states.append(state)
                values.append(value)
                if kind == "$END" and state == self._end:
                    return value
