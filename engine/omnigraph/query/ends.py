"""Which node types the ends of edges have: from what is bound, along the edges, whatever the order they stand in.

Each edge of a `match` allows some pairs of types for its two ends. A pair is settled once what is known of its ends
leaves one; a settled pair makes its ends known, and so on. What then is still open and could go along its direction or
against it is read the way in which more edges go along theirs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

from omnigraph.records import dataclass

__all__ = ["Walk", "settle"]

Pair = tuple[str, str]


@dataclass
class Walk:
    """One edge to be settled. `pairs` are the (source, target) types it allows, `along` the pair of its own direction
    where it has one; `pair` is what came of it, and `unclear` says that the other way round is
    as good a reading."""

    source: str
    target: str
    pairs: frozenset[Pair]
    along: Pair | None
    pair: Pair | None = None
    unclear: bool = False

    def fitting(self, known: dict[str, str]) -> list[Pair]:
        """The pairs that what is known allows."""
        a, b = known.get(self.source), known.get(self.target)
        loop = self.source == self.target
        return [p for p in self.pairs if a in (None, p[0]) and b in (None, p[1]) and (not loop or p[0] == p[1])]


class _Readings:
    def __init__(self, walks: Sequence[Walk], known: dict[str, str]) -> None:
        self.known = known
        self.at: dict[str, list[Walk]] = {}
        for walk in walks:
            for end in {walk.source, walk.target}:
                self.at.setdefault(end, []).append(walk)

    def spread(self, walks: Iterable[Walk]) -> tuple[list[Walk], list[str], bool]:
        """Settle what can be settled: the walks, the ends that became known, and whether nothing contradicted it."""
        settled: list[Walk] = []
        learnt: list[str] = []
        sound = True
        queue = deque(walks)
        while queue:
            walk = queue.popleft()
            if walk.pair is not None:
                continue
            fits = walk.fitting(self.known)
            sound = sound and bool(fits)
            if len(fits) == 1:
                walk.pair = fits[0]
                settled.append(walk)
                for end, type_ in zip((walk.source, walk.target), walk.pair, strict=True):
                    if end not in self.known:
                        self.known[end] = type_
                        learnt.append(end)
                        queue.extend(self.at[end])
        return settled, learnt, sound

    def read(self, walk: Walk, pair: Pair) -> tuple[list[Walk], list[str], bool]:
        allowed, walk.pairs = walk.pairs, frozenset({pair})
        try:
            return self.spread([walk])
        finally:
            walk.pairs = allowed

    def forget(self, settled: list[Walk], learnt: list[str]) -> None:
        for walk in settled:
            walk.pair = None
        for end in learnt:
            del self.known[end]


def settle(walks: Sequence[Walk], known: dict[str, str]) -> None:
    """Give each walk its `pair` where there is one; `known` takes the types of the ends."""
    readings = _Readings(walks, known)
    readings.spread(walks)
    for walk in walks:
        if walk.pair is None and walk.along in walk.pairs and {walk.source, walk.target}.isdisjoint(known):
            _either_way(walk, walk.along, readings)


def _either_way(walk: Walk, along: Pair, readings: _Readings) -> None:
    """An edge that nothing is known of: along its direction, unless its neighbours read better against it."""
    settled, learnt, sound = readings.read(walk, along)
    forward = (sound, sum(w.pair == w.along for w in settled))
    readings.forget(settled, learnt)
    settled, learnt, sound = readings.read(walk, (along[1], along[0]))
    backward = (sound, sum(w.pair == w.along for w in settled))
    if backward > forward:
        return
    readings.forget(settled, learnt)
    walk.unclear = sound and forward == backward
    readings.read(walk, along)
