"""JSON that users write: its value, or one typed error, whatever the text makes Python raise."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

__all__ = ["NotJson", "read_json"]


class NotJson(ValueError):
    """A text that isn't one JSON value.

    Args:
        problem: what is wrong.
        line, column: where, both from 1; None where that isn't known.
    """

    def __init__(self, problem: str, line: int | None = None, column: int | None = None) -> None:
        self.problem, self.line, self.column = problem, line, column
        super().__init__(problem)


def read_json(text: str, *, parse_float: Callable[[str], float] = float) -> Any:
    """The value of a text.

    Args:
        parse_float: reads the numbers with a point or an exponent.

    Raises:
        NotJson: it isn't one JSON value, is nested too deeply, or holds a number of thousands of digits or half of a
            surrogate pair.
    """
    try:
        value = json.loads(text, parse_constant=_no_number, parse_float=parse_float)
        if "\\u" in text:
            json.dumps(value, ensure_ascii=False).encode()
    except json.JSONDecodeError as error:
        raise NotJson(error.msg, error.lineno, error.colno) from None
    except NotJson:
        raise
    except UnicodeEncodeError:
        raise NotJson("holds half of a surrogate pair (\\ud800 to \\udfff), which is no text") from None
    except RecursionError:
        raise NotJson("nested too deeply") from None
    except ValueError:  # Python reads no longer ones
        raise NotJson("holds a number of thousands of digits") from None
    return value


def _no_number(text: str) -> None:
    raise NotJson(f"{text} is no JSON number")
