"""Which JSON records leave a member out and which say `null`: a parsed column has null for both.

A null that a line says has its name before it, so a line without that text omits the member. Where the text is there
and may stand for something else, or the name may be written with escapes, the line is parsed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.read.compute import Array, Chunked, pc
from omnigraph.write.json_values import json_value

__all__ = ["omitted_rows"]

_Mask: TypeAlias = npt.NDArray[np.bool_]

# A name that has no escapes in JSON unless by \u, and that can't begin behind a quote that ends a text.
_PLAIN = re.compile(r'\w[^"\\/\x00-\x1f]*')
_NULL = r'"\s*:\s*null'
_ESCAPED = rf'\\u[^"]*{_NULL}'  # every spelling of a plain name with a \u in it, and more


def omitted_rows(
    text: Array,
    columns: Mapping[str, Array | Chunked],
    *,
    inside: str | None = None,
    outside: Collection[str] | None = None,
) -> dict[str, Array]:
    """By member, the records (bool) that don't mention it. A column without nulls has no entry: all mention it.

    Args:
        text: the records (binary, UTF-8), each one JSON object.
        columns: by member, what was parsed of it.
        inside: the member that is the object with these members; None: the record itself.
        outside: the names that a record may have elsewhere; None: any, in objects within it.

    Raises:
        ValueError: a record that must be parsed isn't JSON.
    """
    nulls = {name: np.asarray(pc.is_null(column)) for name, column in columns.items() if column.null_count}
    if not nulls:
        return {}
    text = text.cast(pa.binary())
    escaped = _matches(text, _ESCAPED)
    out: dict[str, _Mask] = {}
    doubts: dict[str, _Mask] = {}
    for name, null in nulls.items():
        part = text.filter(pa.array(null))
        said = _matches(part, _pattern(name))
        out[name], doubts[name] = null.copy(), null & escaped
        out[name][null] = ~said
        if outside is None:
            doubts[name][null] |= _unproved(part, name, said)
        elif name in outside:
            doubts[name][null] |= said
    for i in np.flatnonzero(np.logical_or.reduce(list(doubts.values()))):
        record: Any = json_value(text[int(i)].as_py())
        members = record if inside is None else record.get(inside) or {}
        for name, doubt in doubts.items():
            if doubt[i]:
                out[name][i] = name not in members
    return {name: pa.array(rows) for name, rows in out.items()}


def _pattern(name: str) -> str:
    """Is in every record that says null by this name without a \\u, and perhaps in others."""
    return f"{re.escape(json.dumps(name, ensure_ascii=False))[:-1]}{_NULL}" if _PLAIN.fullmatch(name) else _NULL


def _unproved(text: Array, name: str, said: _Mask) -> _Mask:
    """Which of the records that hold the pattern may hold it within another object, or within a text or a name.

    A quote before a plain name begins a name unless a backslash is before it; and where no brace stands between it and
    an end of the record, the name is one of the record itself.
    """
    doubt = said.copy()
    for shape in (rf"[^\\]{_pattern(name)}[^{{}}]*\}}\s*$", rf"^\s*\{{([^{{}}]*[^{{}}\\])?{_pattern(name)}"):
        if _PLAIN.fullmatch(name) and doubt.any():
            doubt[doubt] = ~_matches(text.filter(pa.array(doubt)), shape)
    return doubt


def _matches(text: Array, pattern: str) -> _Mask:
    out: _Mask = np.asarray(pc.match_substring_regex(text, pattern))
    return out
