"""`contains` on a column of texts: all of them as one run of bytes, compared with the pattern's bytes in turn.

Arrow looks at each text by itself, a byte at a time, which takes some ten times as long. UTF-8 lets bytes be compared
for characters: no character begins inside another one.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.read.compute import Array, pc
from omnigraph.read.datum import Longs, as_mask, validity

__all__ = ["holds_part"]

_SMALL = 1 << 16  # bytes up to which Arrow is as quick
_BLOCK = 1 << 19  # bytes at a time: what is made of them stays in the processor's cache


def holds_part(texts: Array, part: str) -> Array:
    """Whether each text has the part in it; null where the text is null.

    Args:
        texts: string or large_string.
    """
    width = np.dtype(np.int64 if pa.types.is_large_string(texts.type) else np.int32)
    _, raw_offsets, raw_data = texts.buffers()
    if not part or not len(texts) or raw_data is None or texts.nbytes < _SMALL:
        return pc.match_substring(texts, pattern=part)
    offsets = np.frombuffer(raw_offsets, dtype=width)[texts.offset : texts.offset + len(texts) + 1].astype(np.int64)
    data, pattern = np.frombuffer(raw_data, dtype=np.uint8), np.frombuffer(part.encode(), dtype=np.uint8)
    found = np.zeros(len(texts), dtype=bool)
    begin, common = 0, False
    while begin < len(texts):
        end = int(np.searchsorted(offsets, offsets[begin] + _BLOCK, side="right")) - 1
        end = min(max(end, begin + 1), len(texts))
        here = found[begin:end]
        if common:  # Arrow is done with a text at the first place it finds
            here[:] = as_mask(pc.match_substring(texts.slice(begin, end - begin), pattern=part), end - begin)
        else:
            at = _places(data[offsets[begin] : offsets[end]], pattern) + offsets[begin]
            rows = np.searchsorted(offsets[begin : end + 1], at, side="right") - 1
            here[rows[at + len(pattern) <= offsets[begin + rows + 1]]] = True  # not where two texts meet
        common = int(np.count_nonzero(here)) * 2 > end - begin
        begin = end
    return pa.array(found, mask=~validity(texts)) if texts.null_count else pa.array(found)


def _places(data: npt.NDArray[np.uint8], pattern: npt.NDArray[np.uint8]) -> Longs:
    """Where the pattern begins."""
    last = len(pattern) - 1
    count = len(data) - last
    if count <= 0:
        return np.zeros(0, dtype=np.int64)
    mask = data[:count] == pattern[0]
    if last:
        mask &= data[last:] == pattern[last]
    at = np.flatnonzero(mask)
    for i in range(last - 1, 0, -1):
        if not len(at):
            break
        at = at[data[at + i] == pattern[i]]
    return at
