"""Conditions in Lance's SQL.

Lance takes Arrow expressions too, but carries them over Substrait, which has no list of unsigned numbers or times: a
table with such a column could then not be asked about any other column.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any

import pyarrow as pa

from omnigraph.storage.layout import quoted

__all__ = ["literal", "one_of"]

_LEAST = -(2**63)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


def literal(value: object) -> str | None:
    """A value in Lance's SQL; None where it has no form that is surely right. Numbers must fit their column's type, and
    a time is one of a date64."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value) if value != _LEAST else f"({_LEAST + 1} - 1)"  # read as minus 2^63, which is no I64
    if isinstance(value, str):
        return quoted(value)
    if type(value) is date:
        return f"date '{value.isoformat()}'"
    if isinstance(value, datetime):
        # A timestamp is compared to the column cast to one: that asks no index, and fails on years far from ours.
        since = (value if value.tzinfo is not None else value.replace(tzinfo=UTC)) - _EPOCH
        return None if since % _MILLISECOND else f"arrow_cast({since // _MILLISECOND}, 'Date64')"
    return None


def one_of(column: str, values: pa.Array[Any]) -> str | None:
    """Whether a column has one of some values; None where one of them can't be written down.

    Args:
        values: of the column's own type; a null is no value.
    """
    texts = [literal(value) for value in values.drop_null().to_pylist()]
    known = [text for text in texts if text is not None]
    if len(known) < len(texts):
        return None
    return f"`{column}` IN ({', '.join(known)})" if known else "false"
