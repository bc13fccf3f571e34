"""What a row must satisfy, as functions over Arrow columns. Shared by mutations, the loader and the Spark load.

Each takes rows in the table's schema (plus, for loads, the columns `FILE` and `ROW` of `findings`) and adds what is
wrong to a `Findings`; none raises, none reads storage. What they need of the committed state comes in as columns.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa

from omnigraph.read.compute import Array, Chunked, Scalar, pc
from omnigraph.read.hashing import IdIndex, hash_strings
from omnigraph.schema.catalog import EdgeType, NodeType, Property
from omnigraph.storage.whole import among, joined
from omnigraph.write.columns import one_chunk
from omnigraph.write.findings import Findings
from omnigraph.write.keys import render_key

__all__ = [
    "absent",
    "check_cardinality",
    "check_distinct_ids",
    "check_endpoints",
    "check_existing_ids",
    "check_unique",
    "check_values",
    "duplicates",
    "unique_tokens",
]

INDEX_FROM = 200_000
"""Among so many ids Arrow's hash join begins to miss the processor's cache, and `IdIndex` is quicker."""

Rows = pa.RecordBatch | pa.Table
Column = Array | Chunked


# ---- one row at a time ----------------------------------------------------------------------------------------------


def check_values(
    entity: NodeType | EdgeType, rows: Rows, findings: Findings, *, excused: Mapping[str, Array] | None = None
) -> None:
    """Required, enum, vector, range and check constraints. Columns the rows lack are not judged.

    Args:
        excused: per property, rows (bool) whose value is null because it was refused already.
    """
    key, names = entity.table_key, set(rows.schema.names)
    for prop in entity.properties.values():
        if prop.name in names:
            _check_property(key, prop, rows, findings, (excused or {}).get(prop.name))
    if isinstance(entity, EdgeType):
        return
    for bound in entity.ranges:
        if bound.property not in names:
            continue
        column = rows.column(bound.property)
        text = f"{'' if bound.low is None else bound.low}..{'' if bound.high is None else bound.high}"
        for mask in _outside(column, bound.low, bound.high):
            findings.add_rows(
                "range",
                key,
                rows,
                mask,
                lambda row, p=bound.property, t=text: f"{p} is {row[p]}, outside @range {t}",  # type: ignore[misc]
                property=bound.property,
            )
    for check in entity.checks:
        if check.property not in names:
            continue
        column, why = rows.column(check.property), "doesn't match"
        try:
            wrong = pc.invert(pc.match_substring_regex(column, f"\\A(?:{check.pattern})\\z"))
        except pa.ArrowInvalid:  # a schema of older days may hold one that is too large
            wrong, why = pc.is_valid(column), "can't be matched: apply a schema that has another"
        findings.add_rows(
            "check",
            key,
            rows,
            wrong,
            lambda row, c=check, w=why: f"{c.property} is {row[c.property]!r}, which {w} @check {c.pattern!r}",  # type: ignore[misc]
            property=check.property,
        )


def _outside(column: Column, low: int | float | None, high: int | float | None) -> list[Column]:
    """Masks of the values below, above or nowhere. The ends become values of the column's type first: Arrow refuses to
    compare U64, or large integers, with others, and rounds where it compares integers with floats."""
    kind = column.type
    masks: list[Column] = []
    if pa.types.is_floating(kind):
        if low is not None:
            masks.append(pc.less(column, _float_end(low, kind, math.inf)))
        if high is not None:
            masks.append(pc.greater(column, _float_end(high, kind, -math.inf)))
        return [*masks, pc.is_nan(column)]
    info = np.iinfo(kind.to_pandas_dtype())
    if low is not None and (least := math.ceil(low)) > info.min:
        masks.append(pc.less(column, pa.scalar(least, kind)) if least <= info.max else pc.is_valid(column))
    if high is not None and (most := math.floor(high)) < info.max:
        masks.append(pc.greater(column, pa.scalar(most, kind)) if most >= info.min else pc.is_valid(column))
    return masks


def _float_end(end: int | float, kind: pa.DataType, inwards: float) -> Scalar:
    """The end as a value of the column: an F32 as the same number would be stored, an F64 never further out."""
    try:
        near = float(end)
    except OverflowError:
        near = math.copysign(math.inf, end)
    if pa.types.is_float32(kind):
        with np.errstate(over="ignore"):
            return pa.scalar(np.float32(near), kind)
    out = (near < end) if inwards > 0 else (near > end)
    return pa.scalar(math.nextafter(near, inwards) if out else near, kind)


def _check_property(key: str, prop: Property, rows: Rows, findings: Findings, excused: Array | None) -> None:
    name, kind = prop.name, prop.type
    column = rows.column(name)
    if not kind.nullable and column.null_count:
        missing = pc.is_null(column)
        if excused is not None:
            missing = pc.and_(missing, pc.invert(excused))
        made = (
            f": give it, or a text in {prop.embed.source} and an embedding provider" if prop.embed is not None else ""
        )
        findings.add_rows(
            "required", key, rows, missing, lambda row: f"{name} is required and has no value{made}", property=name
        )
    if kind.base == "Enum":
        allowed = ", ".join(kind.enum)
        values, known = column, pa.array(kind.enum, pa.string())
        if kind.list:
            flat = one_chunk(column)
            wrong = pc.list_parent_indices(flat).filter(pc.invert(pc.is_in(flat.flatten(), value_set=known)))
            mask: Column = pc.is_in(pa.array(np.arange(len(flat))), value_set=wrong.cast(pa.int64()))
        else:
            mask = pc.and_(pc.is_valid(values), pc.invert(pc.is_in(values, value_set=known)))
        findings.add_rows(
            "enum", key, rows, mask, lambda row: f"{name} is {row[name]!r}, not one of {allowed}", property=name
        )
    if kind.base == "Vector":
        vectors = one_chunk(column)
        flat = vectors.flatten()
        if flat.null_count:
            flat = pc.fill_null(flat, np.float32("nan"))
        matrix = np.asarray(flat, dtype=np.float32).reshape(-1, kind.dim)
        broken = ~np.isfinite(matrix).all(axis=1) | ~matrix.any(axis=1)
        if not broken.any():
            return
        mask_valid = np.zeros(len(vectors), dtype=bool)
        mask_valid[np.asarray(pc.is_valid(vectors))] = broken
        findings.add_rows(
            "vector",
            key,
            rows,
            pa.array(mask_valid),
            lambda row: f"{name} holds null, NaN or infinity, or is all zeros",
            property=name,
        )


# ---- sets of rows ---------------------------------------------------------------------------------------------------


def duplicates(column: Column) -> Array | None:
    """A mask (bool) of every row whose value another row has too; None when there is none. Nulls never collide.

    Hashes are compared first, eight bytes a row and chunk by chunk: a set of the values would take more memory than the
    values do.

    Args:
        column: texts.
    """
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    valid = np.concatenate([np.asarray(pc.is_valid(c)) for c in chunks] or [np.zeros(0, dtype=bool)])
    hashes = np.concatenate([hash_strings(c) for c in chunks] or [np.zeros(0, dtype=np.uint64)])
    ordered = np.sort(hashes[valid])
    again = ordered[1:][ordered[1:] == ordered[:-1]]
    if len(again) == 0:
        return None
    alike = np.isin(hashes, again) & valid
    index = np.asarray(joined(column.filter(pa.array(alike))).dictionary_encode().indices)
    repeated = np.bincount(index)[index] > 1
    if not repeated.any():
        return None
    alike[alike] = repeated
    return pa.array(alike)


def absent(column: Column, known: Sequence[Column]) -> Array:
    """A mask (bool) of the rows whose value is in none of the `known` columns; nulls are absent."""
    values, ids = joined(column), joined(pa.array([], pa.string()), *known)
    if len(ids) < INDEX_FROM:
        return pc.invert(among(values, ids))
    return pa.array(IdIndex(ids.drop_null()).positions(values) < 0)


def check_distinct_ids(entity: NodeType | EdgeType, rows: Rows, findings: Findings) -> None:
    """No id twice among the rows."""
    mask = duplicates(rows.column("id"))
    if mask is not None:
        word = f"key ({', '.join(entity.key)})" if entity.key else "id"
        findings.add_rows(
            "duplicate_id", entity.table_key, rows, mask, lambda row: f"the {word} {row['id']!r} occurs more than once"
        )


def check_existing_ids(entity: NodeType | EdgeType, rows: Rows, committed_ids: Column, findings: Findings) -> None:
    """No row's id is committed already (append)."""
    if len(committed_ids):
        findings.add_rows(
            "existing_id",
            entity.table_key,
            rows,
            pc.invert(absent(rows.column("id"), [committed_ids])),
            lambda row: f"{row['id']!r} exists already: load with mode merge to update it",
        )


def unique_tokens(rows: Rows, parts: Sequence[str]) -> Chunked:
    """The value a `@unique` compares, as text: equal tokens collide; null (any part null) never does."""
    chosen = rows.select(list(dict.fromkeys(parts)))
    batches = chosen.to_batches() if isinstance(chosen, pa.Table) else [chosen]
    tokens = [render_key([_tokenable(batch.column(part)) for part in parts]) for batch in batches]
    return pa.chunked_array(tokens, pa.string())


def _tokenable(values: Array) -> Array:
    if pa.types.is_list(values.type):
        return pa.array([None if v is None else repr(v) for v in values.to_pylist()], pa.string())
    if pa.types.is_floating(values.type):
        return pc.add(values, pa.scalar(0, values.type))  # -0.0 is the same number as 0.0
    return values


def check_unique(
    entity: NodeType | EdgeType,
    parts: Sequence[str],
    rows: Rows,
    others: Rows | None,
    findings: Findings,
    *,
    spared: Column | None = None,
) -> None:
    """No two rows, and no row and another committed one, with equal values of a `@unique`.

    Args:
        rows: what is written.
        others: committed rows that stay as they are (their ids are not among the rows'), with the parts; None for none.
        spared: rows (bool) that keep the value they are stored with: another one that comes to have it is to blame.
    """
    tokens = unique_tokens(rows, parts)
    label = ", ".join(parts)
    mask = duplicates(tokens)
    if mask is not None and spared is not None:
        mask = pc.and_not(mask, spared)

    def said(where: str, row: dict[str, object]) -> str:
        values = ", ".join(repr(row.get(part)) for part in parts)
        return f"@unique({label}): the value {values} {where}"

    if mask is not None:
        findings.add_rows(
            "unique", entity.table_key, rows, mask, lambda row: said("occurs more than once", row), property=label
        )
    if others is not None and others.num_rows:
        taken = unique_tokens(others, parts)
        hit = pc.and_(pc.is_valid(tokens), among(tokens, taken.drop_null()))
        hit = hit if spared is None else pc.and_not(hit, spared)
        findings.add_rows(
            "unique", entity.table_key, rows, hit, lambda row: said("belongs to another row", row), property=label
        )


def check_endpoints(
    edge: EdgeType, rows: Rows, sources: Sequence[Column], targets: Sequence[Column], findings: Findings
) -> None:
    """Both ends of every edge are among the given node ids."""
    ends = (("src", edge.source, sources), ("dst", edge.target, targets))
    with ThreadPoolExecutor(2) as pool:
        masks = list(pool.map(lambda end: absent(rows.column(end[0]), end[2]), ends))
    for (column, node, _), mask in zip(ends, masks, strict=True):
        add_missing_endpoints(edge, rows, mask, column, node, findings)


def add_missing_endpoints(edge: EdgeType, rows: Rows, mask: Column, column: str, node: str, findings: Findings) -> None:
    """Records the rows in `mask` as edges whose end `column` (src or dst) names no node."""
    word = "from" if column == "src" else "to"
    findings.add_rows(
        "endpoint",
        edge.table_key,
        rows,
        mask,
        lambda row: f"{word}: there is no {node} {row[column]!r}",
        property=word,
    )


def check_cardinality(
    edge: EdgeType,
    rows: Rows,
    committed_src: Column,
    findings: Findings,
    *,
    lost_src: Column | None = None,
    said: str = "would have",
) -> None:
    """`@card` per source node on the state after the write.

    Args:
        rows: edges written, each with `src`.
        committed_src: `src` of the committed edges that stay, at least those of every touched source.
        lost_src: sources that lose edges by this write and live on; judged for the minimum.
        said: `has` where nothing is being written.
    """
    low, high = edge.cardinality.min, edge.cardinality.max
    if low == 0 and high is None:
        return
    written = rows.column("src")
    others = [committed_src, *([lost_src] if lost_src is not None else [])]
    # One hash pass over everything; a source's code counts its edges, and lost ones count none.
    encoded = joined(written, *others).dictionary_encode()
    touched, codes = encoded.dictionary, np.asarray(encoded.indices.fill_null(-1))
    if len(touched) == 0:
        return
    counting = codes[: len(written) + len(committed_src)]
    counts = np.bincount(counting[counting >= 0], minlength=len(touched))
    judged = np.zeros(len(touched), dtype=bool)
    for part in (codes[: len(written)], codes[len(written) + len(committed_src) :]):
        judged[part[part >= 0]] = True
    text = f"@card({low}..{'' if high is None else high})"
    if high is not None:
        mine = codes[: len(written)]
        over = pa.array((counts > high)[mine] & (mine >= 0))
        of = dict(zip(touched.to_pylist(), counts.tolist(), strict=True)) if pc.any(over).as_py() else {}
        findings.add_rows(
            "cardinality",
            edge.table_key,
            rows,
            over,
            lambda row: f"{edge.source} {row['src']!r} {said} {of[row['src']]} edges, {text} allows {high}",
            property="from",
        )
    if low > 0:
        under = np.flatnonzero((counts < low) & judged)
        short = pa.table({"id": touched.take(pa.array(under)), "n": counts[under]}).sort_by("id")
        findings.add_rows(
            "cardinality",
            edge.table_key,
            short,
            pa.array(np.ones(len(under), dtype=bool)),
            lambda row: f"{edge.source} {row['id']!r} {said} {row['n']} edges, {text} asks for {low}",
            property="from",
        )
