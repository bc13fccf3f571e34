"""Which regular expressions `@check` takes: those a linear-time engine (RE2) understands as Python reads them."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from re import _constants as op
from re import _parser as sre
from typing import Any

__all__ = ["refuse_regex"]

_MOST_REPEATS = 1000
_REFUSED = {
    "ASSERT": "look-ahead and look-behind",
    "ASSERT_NOT": "look-ahead and look-behind",
    "GROUPREF": "back references",
    "GROUPREF_EXISTS": "conditional groups",
    "ATOMIC_GROUP": "atomic groups",
    "POSSESSIVE_REPEAT": "possessive repeats",
}


def refuse_regex(pattern: str) -> str | None:
    """Why this pattern is refused, in words, or None."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = sre.parse(pattern, 0)
    except (re.error, OverflowError, RecursionError) as error:
        return str(error) or "too complex"
    for operation, argument in _walk(tree):
        name = str(operation)
        if name in _REFUSED:
            return f"{_REFUSED[name]} can't be matched in linear time and are not supported"
        if name in ("MAX_REPEAT", "MIN_REPEAT"):
            low, high, _ = argument
            if low > _MOST_REPEATS or (high != op.MAXREPEAT and high > _MOST_REPEATS):
                return f"a repeat of more than {_MOST_REPEATS} is not supported"
    return None


def _walk(tree: Any) -> Iterator[tuple[Any, Any]]:
    stack = [tree]
    while stack:
        item = stack.pop()
        if isinstance(item, sre.SubPattern):
            for operation, argument in item:
                yield operation, argument
                stack.append(argument)
        elif isinstance(item, (tuple, list)):
            stack.extend(item)
