"""Ids: the rendered `@key`, and the hashed ids of records that have none. Columnar, pure, the same on every machine.

Key rendering (01 §1.2): String as it is, integers decimal, Bool `true|false`, Date `YYYY-MM-DD`, DateTime
`YYYY-MM-DDTHH:MM:SS.mmmZ` (UTC); a composite key is the JSON array of the rendered parts, each a JSON string, written
without spaces: `["ada","3"]`.

Hashed ids (07 §26): 26 characters of Crockford's base 32, as a ULID. The first ten are the time part of the operation
id, so that ids sort by operation; the other 80 bits are a hash of (operation id, file, ordinal of the record).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.read.compute import Array, Chunked, pc

__all__ = ["composite_parts", "hashed_ids", "json_string", "render_key", "render_part"]

_CROCKFORD = np.frombuffer(b"0123456789ABCDEFGHJKMNPQRSTVWXYZ", dtype=np.uint8)
# Ten bits as two characters: a table of 2 KiB, half as many look-ups as one of single characters.
_PAIRS = np.stack([np.repeat(_CROCKFORD, 32), np.tile(_CROCKFORD, 32)], axis=1).reshape(-1).view(np.uint16)
_BLOCK = 8192  # ids made at a time, so that the words of a block stay in the processor's cache
_ULID = re.compile(r"[0-7][0-9A-HJKMNP-TV-Z]{25}")
_MS_PER_DAY = 86_400_000


def render_part(column: Array) -> Array:
    """One key property as text (utf8); nulls stay null.

    Args:
        column: string, integer, bool, date32 or date64 (milliseconds since 1970 UTC), in any Arrow width.
    """
    kind = column.type
    if pa.types.is_string(kind):
        return column
    if pa.types.is_date64(kind) or pa.types.is_timestamp(kind):
        if pa.types.is_timestamp(kind):
            column = column.cast(pa.timestamp("ms", kind.tz))
        # The bits are milliseconds in UTC; Arrow writes them with exactly three decimals.
        text = pc.strftime(column.view(pa.int64()).view(pa.timestamp("ms")), format="%Y-%m-%dT%H:%M:%S")
        return pc.binary_join_element_wise(text, pa.scalar("Z"), pa.scalar(""))
    return column.cast(pa.string())


def json_string(text: Array) -> Array:
    """Each text as a JSON string; equal to `json.dumps(text, ensure_ascii=False)`."""
    out = pc.replace_substring(pc.replace_substring(text, "\\", "\\\\"), '"', '\\"')
    if pc.any(pc.match_substring_regex(out, "[\\x00-\\x1f]")).as_py():
        for code in range(0x20):
            out = pc.replace_substring(out, chr(code), json.dumps(chr(code))[1:-1])
    return pc.binary_join_element_wise(pa.scalar('"'), out, pa.scalar('"'), pa.scalar(""))


def render_key(columns: Sequence[Array | Chunked]) -> Array:
    """The rendered key of each row (utf8), null where a part is null.

    Args:
        columns: the key properties in declaration order, of equal length.
    """
    parts = [render_part(_one_chunk(column)) for column in columns]
    if len(parts) == 1:
        return parts[0]
    body = pc.binary_join_element_wise(*[json_string(part) for part in parts], pa.scalar(","))
    return pc.binary_join_element_wise(pa.scalar("["), body, pa.scalar("]"), pa.scalar(""))


def composite_parts(rendered: str) -> list[str]:
    """The rendered parts of a composite id, as text."""
    parts: Any = json.loads(rendered)
    return [str(part) for part in parts]


def _one_chunk(column: Array | Chunked) -> Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _mix(x: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The finaliser of splitmix64 (Steele, Lea, Flood 2014): a bijection that spreads every input bit."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    out: npt.NDArray[Any] = x ^ (x >> np.uint64(31))
    return out


def hashed_ids(operation_id: str, file: str, ordinals: npt.NDArray[Any]) -> Array:
    """ULID-shaped ids (utf8), one per ordinal.

    Args:
        operation_id: ULID of the write; any other text is taken as a seed.
        file: name of the source within the operation.
        ordinals: position of each record in it, integers ≥ 0.
    """
    digest = hashlib.blake2b(f"{operation_id}\0{file}".encode(), digest_size=22).digest()
    first, second = (np.uint64(int.from_bytes(digest[i : i + 8], "big")) for i in (0, 8))
    n = len(ordinals)
    if n * 26 >= 2**31:
        raise ValueError("too many ids for one column: split the batch")
    if _ULID.fullmatch(operation_id):
        stamp = np.frombuffer(operation_id[:10].encode(), dtype=np.uint8)
    else:
        number = int.from_bytes(digest[16:22], "big")
        stamp = _CROCKFORD[[(number >> (5 * (9 - i))) & 31 for i in range(10)]]
    golden = np.uint64(0x9E3779B97F4A7C15)
    out = np.empty((n, 13), dtype=np.uint16)
    out[:, :5] = stamp.view(np.uint16)
    for at in range(0, n, _BLOCK):
        x = np.asarray(ordinals[at : at + _BLOCK]).astype(np.uint64)
        a = _mix(x * golden + first)
        b = _mix((x ^ a) * golden + second)
        # 80 bits: 60 from the first word, 20 from the second.
        for i, (word, shift) in enumerate([*((a, 54 - 10 * k) for k in range(6)), (b, 54), (b, 44)]):
            pair = (word >> np.uint64(shift)) & np.uint64(1023)
            out[at : at + _BLOCK, 5 + i] = _PAIRS[pair.view(np.int64)]
    offsets = np.arange(0, (n + 1) * 26, 26, dtype=np.int32)
    return pa.StringArray.from_buffers(n, pa.py_buffer(offsets.data), pa.py_buffer(out.data))
