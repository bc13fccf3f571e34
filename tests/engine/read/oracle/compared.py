"""An answer of the product beside that of the evaluator."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from omnigraph import read
from omnigraph.errors import BadRequest
from omnigraph.query import bind_params, compile_query
from omnigraph.read.settings import read_settings
from tests.engine.read.oracle.expressions import Bad, World
from tests.engine.read.oracle.graphs import Graph, Schema
from tests.engine.read.oracle.meaning import Query

__all__ = ["MODES", "answered", "apart", "difference", "expected"]

Rows = list[tuple[Any, ...]]

MODES: dict[str, dict[str, Any]] = {
    "indexed": {"traversal_mode": "indexed"},
    "csr": {"traversal_mode": "csr"},
    "auto": {"traversal_mode": ""},
    "tight": {"traversal_mode": "", "expand_indexed_max_frontier": 1, "bitmap_bytes": 8},
    "scan": {"traversal_mode": "scan"},
}
"""Every way to follow edges; `tight` outgrows looking up and the scratch memory at once."""


def _plain(value: Any) -> Any:
    """A cell as it is compared: types matter; properties that a schema got later don't."""
    if isinstance(value, dict):
        return ("{}", *((k, _plain(v)) for k, v in sorted(value.items()) if not k.startswith("extra")))
    if isinstance(value, (list, tuple)):
        return ("[]", *map(_plain, value))
    return (type(value).__name__, value)


def _nine(cell: Any) -> Any:
    """The same with floats to nine digits."""
    if not isinstance(cell, tuple):
        return cell
    if cell[0] == "float" and isinstance(cell[1], float):
        return ("float", float(f"{cell[1]:.9e}"))
    return tuple(map(_nine, cell))


def expected(query: Query, schema: Schema, graph: Graph) -> Rows | None:
    """Every row in order, before the limit; None for an error. Raises TooMany."""
    world = World(schema, graph, {}, datetime.now(UTC))
    try:
        return [tuple(map(_plain, row)) for row in query.answer(world)]
    except Bad:
        return None


def answered(snapshot: Any, query: Query, mode: str) -> Rows | None:
    """What the product answers; None for an error."""
    compiled = compile_query(query.text(), snapshot.catalog)
    params = bind_params(compiled, {n: v for n, (_, v) in query.params.items() if v is not None})
    chosen = replace(read_settings(), small_table_rows=0, **MODES[mode])
    try:
        table = read.execute(compiled, snapshot, params, settings=chosen)
    except BadRequest:
        return None
    assert table.column_names == [c.name for c in compiled.columns]
    return [tuple(map(_plain, row)) for row in zip(*(c.to_pylist() for c in table.columns), strict=True)]


def difference(query: Query, got: Rows | None, want: Rows | None) -> str | None:
    """What is wrong with an answer, floats to nine digits; None where nothing is."""
    if got is None or want is None:
        right = query.doubtful or (got is None and want is None)
        return None if right else "an error" if got is None else "no error"
    got, want = ([tuple(map(_nine, row)) for row in rows] for rows in (got, want))
    kept = want[query.skip :] if query.limit is None else want[query.skip :][: query.limit]
    if query.keys:
        return None if got == kept else f"got {got}, not {kept}"
    if len(got) != len(kept):
        return f"{len(got)} rows, not {len(kept)}: got {got} of {want}"
    strange = Counter(got) - Counter(want)
    return f"not there: {dict(strange)} of {want}" if strange else None


def apart(query: Query, one: Rows | None, other: Rows | None) -> str | None:
    """What tells two answers of the product apart, to the last bit; None where nothing does, or where a limit may have
    taken other rows."""
    if one is None or other is None or (not query.keys and (query.skip or query.limit is not None)):
        return None
    same = one == other if query.keys else Counter(one) == Counter(other)
    return None if same else f"{one} in one way, {other} in another"
