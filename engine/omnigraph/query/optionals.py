"""In which order several `optional` blocks of one `match` are done, whatever the order they are written in."""

from __future__ import annotations

from collections.abc import Sequence, Set
from heapq import heappop, heappush

from omnigraph.query import ast
from omnigraph.query.mentions import bindable, mentions

__all__ = ["in_order"]


def in_order(clauses: Sequence[ast.Optional], known: Set[str]) -> list[ast.Optional]:
    """One that names what only another can bind comes after it; of the others, those that name something bound go
    before those that don't, else as written. Where they need one another in a circle, the first written begins."""
    names = [frozenset(name.text for name in mentions(c)) for c in clauses]
    binds = [frozenset(bindable(c.clauses)) for c in clauses]
    unbound = {name for own in binds for name in own if name not in known}
    naming: dict[str, list[int]] = {}
    for i, named in enumerate(names):
        for name in named & unbound:
            naming.setdefault(name, []).append(i)
    needs = [len((named & unbound) - own) for named, own in zip(names, binds, strict=True)]
    linked: list[int] = []
    alone: list[int] = []
    for i, named in enumerate(names):
        if not needs[i]:
            heappush(linked if any(name in known for name in named) else alone, i)
    rest = iter(range(len(clauses)))
    order: dict[int, None] = {}
    while len(order) < len(clauses):
        i = heappop(linked or alone) if linked or alone else next(rest)
        if i in order:
            continue
        order[i] = None
        for name in binds[i] & unbound:
            unbound.remove(name)
            for j in naming[name]:
                needs[j] -= name not in binds[j]
                if not needs[j]:
                    heappush(linked, j)
    return [clauses[i] for i in order]
