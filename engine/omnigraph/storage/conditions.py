"""Conditions in Lance's SQL.

Lance takes Arrow expressions too, but carries them over Substrait, which has no list of unsigned numbers or times: a
table with such a column could then not be asked about any other column.
"""

from __future__ import annotations

from datetime import date
from typing import Any

import pyarrow as pa

from omnigraph.storage.layout import quoted

__all__ = ["literal", "one_of"]

_LEAST = -(2**63)


def literal(value: object) -> str | None:
    """A value in Lance's SQL; None where it has no form that is surely right. Numbers must fit their column's type."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value) if value != _LEAST else f"({_LEAST + 1} - 1)"  # read as minus 2^63, which is no I64
    if isinstance(value, str):
        return quoted(value)
    if type(value) is date:
        return f"date '{value.isoformat()}'"
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
