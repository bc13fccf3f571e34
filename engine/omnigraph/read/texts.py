"""Columns as text: each value as JSON writes it, or as a cell of a line; by column, no value becomes a Python object.

The texts are those that Python's `json` makes: a float is the shortest text that reads back as the same number, with a
point or an exponent; letters beyond ASCII stay as they are. What `json` can't say is said here: a 64-bit integer that a
double can't hold exactly and a float that isn't finite are strings, dates are ISO 8601, a DateTime ends in `Z`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.read.compute import Array, pc
from omnigraph.records import dataclass

__all__ = [
    "LOOSE",
    "SAFE",
    "TIGHT",
    "Spacing",
    "cells",
    "data_of",
    "joined",
    "json_objects",
    "json_texts",
    "quoted_cells",
]

TEXT = pa.large_string()  # the texts of a block of rows may together be longer than 2 GiB
SAFE = 2**53 - 1
"""The largest integer a double holds with all below it."""

_FIRST, _LAST = (int(datetime(y, 1, 1, tzinfo=UTC).timestamp()) * 1000 for y in (1000, 9999))
_SHORT = {8: "\\b", 9: "\\t", 10: "\\n", 12: "\\f", 13: "\\r"}


@dataclass(frozen=True, slots=True)
class Spacing:
    """What stands between two items, and between a name and its value."""

    item: str
    value: str


LOOSE, TIGHT = Spacing(", ", ": "), Spacing(",", ":")


def joined(*parts: Array | str) -> Array:
    """The parts of each row as one text; null where one of them is."""
    given = [pa.scalar(p, TEXT) if isinstance(p, str) else p for p in parts]
    return pc.binary_join_element_wise(*given, pa.scalar("", TEXT))


def data_of(texts: Array) -> bytes:
    """All texts, one right after the other, as UTF-8."""
    _, offsets, data = texts.buffers()
    if data is None or not len(texts):
        return b""
    ends = np.frombuffer(offsets, dtype=np.int64)[texts.offset : texts.offset + len(texts) + 1]
    return bytes(memoryview(data)[int(ends[0]) : int(ends[-1])])


def _bytes_of(texts: Array) -> npt.NDArray[np.uint8]:
    _, offsets, data = texts.buffers()
    if data is None or not len(texts):
        return np.zeros(0, dtype=np.uint8)
    ends = np.frombuffer(offsets, dtype=np.int64)[texts.offset : texts.offset + len(texts) + 1]
    return np.frombuffer(data, dtype=np.uint8)[int(ends[0]) : int(ends[-1])]


# ---- values ----


def _plain(column: Array, spacing: Spacing) -> Array:
    """The values as text, strings as they are; null where the value is. Lists and entities are JSON."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _plain(column.dictionary_decode(), spacing)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return column.cast(TEXT)
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_date32(kind):
        return column.cast(pa.string()).cast(TEXT)
    if pa.types.is_date64(kind):
        return _instants(column.view(pa.int64()).view(pa.timestamp("ms")))
    if pa.types.is_timestamp(kind):
        return _instants(column.cast(pa.timestamp("ms")))
    if pa.types.is_floating(kind):
        return _floats(column.cast(pa.float64()))
    if pa.types.is_struct(kind):
        texts = json_objects([f.name for f in kind], [column.field(i) for i in range(kind.num_fields)], spacing)
        return pc.if_else(column.is_valid(), texts, pa.scalar(None, TEXT))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return _lists(column, spacing)
    if pa.types.is_null(kind):
        return pa.nulls(len(column), TEXT)
    dumps = [None if v is None else json.dumps(v, ensure_ascii=False) for v in column.to_pylist()]
    return pa.array(dumps, TEXT)


def _instants(column: Array) -> Array:
    bounds = pc.min_max(column.view(pa.int64())).as_py()
    if bounds["min"] is not None and not _FIRST <= bounds["min"] <= bounds["max"] < _LAST:
        return joined(pc.strftime(column, format="%Y-%m-%dT%H:%M:%S").cast(TEXT), "Z")
    text = column.cast(pa.string()).cast(TEXT)  # three times as quick, with a space in the middle
    return joined(pc.utf8_replace_slice(text, start=10, stop=11, replacement="T"), "Z")


def _floats(column: Array) -> Array:
    values = np.asarray(pc.fill_null(column, 0.0).to_numpy(zero_copy_only=False))
    size = np.abs(values)
    alike = ((size >= 1e-4) & (size < 1e10)) | (size == 0)  # Arrow and Python write these the same way
    texts = column.cast(pa.string()).cast(TEXT)
    whole = alike & (values == np.floor(values))
    if whole.any():
        texts = pc.if_else(pa.array(whole), joined(texts, ".0"), texts)
    if not alike.all():
        written = pa.array([repr(v) for v in values[~alike].tolist()], TEXT)
        texts = pc.replace_with_mask(texts, pa.array(~alike), written)
    return texts


def _lists(column: Array, spacing: Spacing) -> Array:
    sizes = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
    offsets: Array = pa.array(np.append(0, np.cumsum(sizes)).astype(np.int64))
    items = pa.LargeListArray.from_arrays(offsets, json_texts(column.flatten(), spacing))
    texts = joined("[", pc.binary_join(items, pa.scalar(spacing.item, TEXT)), "]")
    return pc.if_else(column.is_valid(), texts, pa.scalar(None, TEXT))


# ---- JSON ----


def json_texts(column: Array, spacing: Spacing) -> Array:
    """Each value as JSON; a null is `null`."""
    mark, texts = _marked(column, spacing)
    return joined(mark, texts, mark) if mark else texts


def _marked(column: Array, spacing: Spacing) -> tuple[str, Array]:
    """(the mark on both sides of every text, the texts): where all are quoted, that is left to who joins them."""
    kind = column.type
    texts = _plain(column, spacing)
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_temporal(kind):
        if not pa.types.is_temporal(kind):
            texts = _escaped(texts)
        if not texts.null_count:
            return '"', texts
        texts = joined('"', texts, '"')
    elif kind in (pa.int64(), pa.uint64()):
        bounds = pc.min_max(column).as_py()
        if bounds["min"] is not None and not -SAFE <= bounds["min"] <= bounds["max"] <= SAFE:
            safe = pc.less_equal(column, pa.scalar(SAFE, kind))
            if kind == pa.int64():
                safe = pc.and_(safe, pc.greater_equal(column, pa.scalar(-SAFE, kind)))
            texts = pc.if_else(safe, texts, joined('"', texts, '"'))
    elif pa.types.is_floating(kind):
        finite = pc.is_finite(column)
        if not pc.all(finite).as_py():
            texts = pc.if_else(finite, texts, joined('"', texts, '"'))
    return "", pc.fill_null(texts, pa.scalar("null", TEXT))


def _escaped(texts: Array) -> Array:
    """With a backslash before what a JSON string can't hold as it is."""
    data = _bytes_of(texts)
    special = np.flatnonzero(np.bincount(data[(data < 32) | (data == 34) | (data == 92)], minlength=93))
    for code in sorted(special.tolist(), key=lambda c: c != 92):  # the backslash first: the others bring new ones
        escape = _SHORT.get(code) or ("\\" + chr(code) if code >= 32 else f"\\u{code:04x}")
        texts = pc.replace_substring(texts, pattern=chr(code), replacement=escape)
    return texts


def json_objects(names: Sequence[str], columns: Sequence[Array], spacing: Spacing, *around: str) -> Array:
    """Each row as a JSON object.

    Args:
        around: what stands before and after each; none if not given.
    """
    before, after = around or ("", "")
    parts: list[Array | str] = []
    behind = before + "{"
    for name, column in zip(names, columns, strict=True):
        mark, texts = _marked(column, spacing)
        parts += [behind + json.dumps(name, ensure_ascii=False) + spacing.value + mark, texts]
        behind = mark + spacing.item
    return joined(*parts, behind.removesuffix(spacing.item) + "}" + after)


# ---- cells ----


def cells(column: Array, missing: str) -> Array:
    """Each value in one cell of a line; `missing` stands for a null."""
    return pc.fill_null(_plain(column, LOOSE), pa.scalar(missing, TEXT))


def quoted_cells(column: Array) -> Array:
    """Cells of CSV: a null is empty, an empty text is `""`, so that a reader can tell them apart."""
    texts = _plain(column, LOOSE)
    kind: Any = column.type
    if pa.types.is_primitive(kind):  # numbers, dates, truth: nothing to quote
        return pc.fill_null(texts, pa.scalar("", TEXT))
    quoted = pc.or_(pc.equal(texts, ""), pc.not_equal(pc.utf8_trim_whitespace(texts), texts))
    data = _bytes_of(texts)
    if any(bool((data == code).any()) for code in b',"\r\n'):
        quoted = pc.or_(quoted, pc.match_substring_regex(texts, pattern='[,"\r\n]'))
    if pc.any(quoted).as_py():
        marked = joined('"', pc.replace_substring(texts, pattern='"', replacement='""'), '"')
        texts = pc.if_else(quoted, marked, texts)
    return pc.fill_null(texts, pa.scalar("", TEXT))
