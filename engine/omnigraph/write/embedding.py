"""Vectors that `@embed` makes, on their way into a write: which are wanted, and filling them batch by batch.

A vector follows its text. Where a record gives the text and not the vector, the vector is made, or waits (null) to be
made by `Graph.embed`; the stored one stays only where the text does. A given vector, null too, is taken as it is, and a
blank text has none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.errors import BadRequest
from omnigraph.read.compute import Array, Chunked, pc
from omnigraph.schema.catalog import EdgeType, NodeType, Property
from omnigraph.storage.arrow import arrow_type, kept
from omnigraph.write.columns import one_chunk
from omnigraph.write.findings import FILE, OMITTED, ROW, BadRecord, Findings

if TYPE_CHECKING:
    from omnigraph.embed import Embedder
    from omnigraph.embed.vectors import Matrix
    from omnigraph.write.spool import Spool

__all__ = [
    "FILL_ROWS",
    "EmbedWhen",
    "Retold",
    "check_models",
    "fill",
    "fill_batch",
    "fill_table",
    "follow_texts",
    "given_texts",
    "made_vectors",
    "provider",
    "unfilled",
    "with_wanted",
    "without_vectors",
]

FILL_ROWS = 4096  # rows whose texts and vectors are in memory at a time
_NO_IDS: Array = pa.array([], pa.string())
_REFUSED = 20  # texts a provider refuses before the others aren't tried any more

Places: TypeAlias = npt.NDArray[np.int64]

EmbedWhen: TypeAlias = Literal["now", "later"]
"""`now`: missing vectors are made while writing, where a provider is set up. `later`: by `Graph.embed`."""


@kept
def made_vectors(entity: NodeType | EdgeType) -> tuple[Property, ...]:
    """The properties of a type that an `@embed` makes."""
    return tuple(p for p in entity.properties.values() if p.embed is not None and p.embed.source in entity.properties)


def provider(when: EmbedWhen | None, entities: Iterable[NodeType | EdgeType]) -> Embedder | None:
    """Who makes missing vectors in this write; None where nobody does, or no type has any.

    Args:
        when: None is `OMNIGRAPH_EMBED_WRITES`, else `now`.

    Raises:
        BadRequest: a setting can't be read.
    """
    import os

    chosen = when or os.environ.get("OMNIGRAPH_EMBED_WRITES", "").strip() or "now"
    if chosen not in ("now", "later"):
        raise BadRequest(f"vectors are made now or later, not {chosen!r}", code="bad_setting")
    if chosen == "later" or not any(made_vectors(entity) for entity in entities):
        return None
    from omnigraph.embed import embedder

    return embedder()


def check_models(entities: Iterable[NodeType | EdgeType], embedder: Embedder) -> None:
    """Refuses a provider whose model isn't the one a schema records, before anything is asked."""
    for entity in entities:
        for prop in made_vectors(entity):
            if prop.embed is not None:
                embedder.model(prop.embed.model)


def given_texts(texts: Array | Chunked) -> Array:
    """A mask (bool) of the texts that can have a vector: neither null nor blank."""
    return pc.fill_null(pc.match_substring_regex(texts, r"\S"), False)


def unfilled(entity: NodeType | EdgeType, rows: pa.Table) -> list[tuple[Property, int]]:
    """Per property, how many rows have a text and no vector."""
    out = []
    for prop in made_vectors(entity):
        assert prop.embed is not None
        column, texts = rows.column(prop.name), rows.column(prop.embed.source)
        if column.null_count == 0:
            continue
        count = pc.sum(pc.and_(pc.is_null(column), given_texts(texts))).as_py()
        if count:
            out.append((prop, count))
    return out


# ---- which vectors are wanted --------------------------------------------------------------------------------------


def follow_texts(
    entity: NodeType | EdgeType, rows: pa.Table, given: pa.Table, old: pa.Table | None
) -> tuple[pa.Table, dict[str, Array]]:
    """Merged rows whose vectors follow their texts: one of a text that changed is gone.

    Args:
        rows: whole rows as they would be stored.
        given: the same rows as their records give them, with the `OMITTED` columns.
        old: committed rows of the ids that exist, or None.

    Returns:
        The rows, and per property a mask (bool) of those whose vector is to be made.
    """
    wanted: dict[str, Array] = {}
    ids = one_chunk(rows.column("id"))
    where = pa.nulls(len(ids), pa.int32())
    if old is not None and old.num_rows:
        where = pc.index_in(ids, value_set=one_chunk(old.column("id")))
    for prop in made_vectors(entity):
        assert prop.embed is not None
        source = prop.embed.source
        omitted = one_chunk(given.column(OMITTED + prop.name))
        texts, vectors = one_chunk(rows.column(source)), one_chunk(rows.column(prop.name))
        fresh = pc.is_null(where)
        told = pc.invert(one_chunk(given.column(OMITTED + source))) if OMITTED + source in given.schema.names else fresh
        if old is not None and old.num_rows:
            before = one_chunk(old.column(source)).take(where)
            same = pc.or_(pc.fill_null(pc.equal(texts, before), False), pc.and_(pc.is_null(texts), pc.is_null(before)))
        else:
            same = pa.array(np.zeros(len(ids), dtype=bool))
        changed = pc.and_(omitted, pc.or_(fresh, pc.and_(told, pc.invert(same))))
        if pc.any(pc.and_(changed, pc.is_valid(vectors))).as_py():
            rows = without_vectors(rows, prop, changed)
            vectors = one_chunk(rows.column(prop.name))
        missing = pc.and_(pc.and_(omitted, pc.or_(fresh, told)), pc.is_null(vectors))
        wanted[prop.name] = pc.and_(missing, given_texts(texts))
    return rows, wanted


class Retold:
    """The rows of a mutation whose texts were assigned after their vectors, by property."""

    def __init__(self) -> None:
        self._ids: dict[tuple[str, str], Array] = {}

    def assigned(self, entity: NodeType | EdgeType, ids: Array, names: Collection[str], *, fresh: bool) -> None:
        """Notes one statement: these properties of these rows have new values.

        Args:
            fresh: the rows are new, so that a default is a new text as well.
        """
        for prop in made_vectors(entity):
            assert prop.embed is not None
            key = (entity.table_key, prop.name)
            known: Array = self._ids.get(key, _NO_IDS)
            if prop.name in names:
                self._ids[key] = known.filter(pc.invert(pc.is_in(known, value_set=ids)))
            elif fresh or prop.embed.source in names:
                self._ids[key] = pc.unique(pa.concat_arrays([known, ids]))

    def __contains__(self, table_key: object) -> bool:
        return any(key == table_key and len(ids) for (key, _), ids in self._ids.items())

    def given(self, entity: NodeType | EdgeType, rows: pa.Table) -> pa.Table:
        """What `follow_texts` has to know of the rows: which vectors and which texts were left as they are."""
        ids = one_chunk(rows.column("id"))
        out = pa.table({"id": ids})
        for prop in made_vectors(entity):
            assert prop.embed is not None
            told = pc.is_in(ids, value_set=self._ids.get((entity.table_key, prop.name), _NO_IDS))
            out = out.append_column(OMITTED + prop.name, told)
            if OMITTED + prop.embed.source not in out.schema.names:
                out = out.append_column(OMITTED + prop.embed.source, pa.array(np.zeros(len(ids), dtype=bool)))
        return out


def without_vectors(rows: pa.Table, prop: Property, mask: Array) -> pa.Table:
    """The rows, with no vector where the mask is true."""
    at = rows.schema.get_field_index(prop.name)
    return rows.set_column(at, rows.schema.field(at), _cleared(prop, one_chunk(rows.column(prop.name)), mask))


def _cleared(prop: Property, vectors: Array, mask: Array) -> Array:
    places = pa.array(np.arange(len(vectors)), mask=np.asarray(mask))
    return vectors.take(places).cast(arrow_type(prop.type))


def with_wanted(rows: pa.Table, wanted: dict[str, Array]) -> pa.Table:
    """The rows with an `OMITTED` column per vector that is to be made, as `fill` wants them."""
    for name, mask in wanted.items():
        rows = rows.append_column(OMITTED + name, mask)
    return rows


# ---- filling -------------------------------------------------------------------------------------------------------


def fill(
    entity: NodeType | EdgeType,
    rows: pa.Table,
    embedder: Embedder,
    spool: Spool,
    findings: Findings,
    progress: Callable[[int], None] | None = None,
) -> tuple[pa.Table, int]:
    """Rows with the vectors they lack, some at a time; more of them than memory should hold lie in the spool.

    Args:
        rows: with `OMITTED` columns of the vectors: true and null, beside a text, is what is made.
        findings: gets the texts that the provider refuses.
        progress: told how many vectors are made.

    Returns:
        The rows, and how many vectors were made.

    Raises:
        BadRequest: the model isn't the recorded one.
        Unavailable: the provider gives no vectors.
    """
    if not any(pc.any(_wanted(rows, prop)).as_py() for prop in made_vectors(entity)):
        return rows, 0
    made = 0
    for batch in rows.to_batches(max_chunksize=FILL_ROWS):
        filled, count = fill_batch(entity, batch, embedder, findings)
        spool.append(entity.table_key, filled)
        made += count.total()
        if progress is not None and count.total():
            progress(made)
    return spool.table(entity.table_key), made


def fill_table(
    entity: NodeType | EdgeType,
    rows: pa.Table,
    embedder: Embedder,
    findings: Findings,
    *,
    most_refused: int | None = _REFUSED,
) -> tuple[pa.Table, Counter[str]]:
    """`fill` in memory, for rows that are there already; how many vectors of each property were made.

    Args:
        most_refused: texts a provider refuses before the others aren't asked for any more; None for no end.
    """
    batches, made = [], Counter[str]()
    for batch in rows.to_batches(max_chunksize=FILL_ROWS):
        filled, count = fill_batch(entity, batch, embedder, findings, most_refused=most_refused)
        batches.append(filled)
        made += count
    return pa.Table.from_batches(batches, rows.schema), made


def fill_batch(
    entity: NodeType | EdgeType,
    rows: pa.RecordBatch,
    embedder: Embedder,
    findings: Findings,
    *,
    most_refused: int | None = _REFUSED,
) -> tuple[pa.RecordBatch, Counter[str]]:
    """One batch of `fill_table`."""
    made = Counter[str]()
    for prop in made_vectors(entity):
        assert prop.embed is not None
        hits = np.flatnonzero(np.asarray(_wanted(rows, prop)))
        if len(hits) == 0 or (most_refused is not None and findings.counts["embed"] >= most_refused):
            continue
        texts = one_chunk(rows.column(prop.embed.source)).take(pa.array(hits)).to_pylist()
        good, vectors = _asked(entity, prop, rows, hits, texts, embedder, findings, most_refused)
        at = rows.schema.get_field_index(prop.name)
        column = _placed(prop, one_chunk(rows.column(prop.name)), good, vectors)
        rows = rows.set_column(at, rows.schema.field(at), column)
        made[prop.name] += len(good)
    return rows, made


def _wanted(rows: pa.Table | pa.RecordBatch, prop: Property) -> Array:
    assert prop.embed is not None
    omitted = rows.column(OMITTED + prop.name)
    texts = rows.column(prop.embed.source)
    lacking = pc.and_(omitted, pc.is_null(rows.column(prop.name)))
    return one_chunk(pc.and_(lacking, given_texts(texts)))


def _asked(
    entity: NodeType | EdgeType,
    prop: Property,
    rows: pa.RecordBatch,
    hits: Places,
    texts: list[str],
    embedder: Embedder,
    findings: Findings,
    most_refused: int | None,
) -> tuple[Places, Matrix]:
    """Vectors of the texts at these rows; a refused text becomes a bad record, and the others are asked for again."""
    from omnigraph.embed import TextRefused

    assert prop.embed is not None
    places = hits
    while True:
        try:
            return places, embedder.documents(texts, prop.type.dim, model=prop.embed.model)
        except TextRefused as refused:
            row = int(places[refused.index])
            origin = [rows.column(n)[row].as_py() if n in rows.schema.names else None for n in ("id", FILE, ROW)]
            message = f"{prop.name}: {refused.message}"
            findings.add(
                BadRecord("embed", message, entity.table_key, origin[0], prop.name, file=origin[1], row=origin[2])
            )
            del texts[refused.index]
            places = np.delete(places, refused.index)
            if not texts or (most_refused is not None and findings.counts["embed"] >= most_refused):
                return places[:0], np.empty((0, prop.type.dim), dtype=np.float32)


def _placed(prop: Property, column: Array, hits: Places, vectors: Matrix) -> Array:
    """The column with the vectors at these rows, which hold none."""
    if len(hits) == 0:
        return column
    made: Array = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), prop.type.dim)
    places = np.arange(len(column))
    places[hits] = len(column) + np.arange(len(hits))
    known = np.asarray(pc.is_valid(column))
    known[hits] = True
    both = pa.concat_arrays([column.cast(arrow_type(prop.type)), made.cast(arrow_type(prop.type))])
    return both.take(pa.array(places, mask=~known))
