"""Export to NDJSON, as `load` reads it: nodes first, every value explicit, so that a reload gives an equal graph.

Lines are put together column by column; no row becomes a Python object but its finished line.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.errors import BadRequest, NotFound
from omnigraph.read.compute import Array, Scalar, pc
from omnigraph.schema.catalog import NUMBERS, Catalog, EdgeType, NodeType, Type
from omnigraph.storage import Snapshot
from omnigraph.storage.blobs import PIECE_BYTES, portions
from omnigraph.write.blobs import PREFIX, blob_names
from omnigraph.write.columns import one_chunk
from omnigraph.write.keys import json_string, render_part
from omnigraph.write.ndjson import LINE_MAX_BYTES
from omnigraph.write.rows import key_parts

__all__ = ["export"]


def export(snapshot: Snapshot, types: Iterable[str] | None = None) -> Iterator[str]:
    """NDJSON lines without line ends.

    Args:
        types: names of node and edge types to write; None for all.

    Raises:
        NotFound: a name is no declared type.
        BadRequest: a record is longer than a load would read, or holds what JSON can't write.
    """
    catalog = snapshot.catalog
    chosen = list(catalog.by_table_key.values())
    if types is not None:
        names = {_named(catalog, name).table_key for name in types}
        chosen = [e for e in chosen if e.table_key in names]
    for entity in chosen:
        ref = snapshot.tables.get(entity.table_key)
        if ref is None or ref.row_count == 0:
            continue
        blobs = blob_names(entity)
        columns = [*snapshot.schema(entity.table_key).names, "_rowid"] if blobs else None
        for batch in snapshot.scan_batches(entity.table_key, columns):
            for part in _with_blobs(snapshot, entity, blobs, batch) if blobs else _pieces(batch):
                lines = _lines(catalog, entity, part)
                _refuse_long(entity, part, np.asarray(pc.binary_length(lines), dtype=np.int64))
                yield from lines.to_pylist()


def _pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The rows, a bounded amount of them at a time."""
    step = max(1, batch.num_rows * PIECE_BYTES // max(batch.nbytes, 1))
    for start in range(0, batch.num_rows, step):
        yield batch.slice(start, step)


def _refuse_long(entity: NodeType | EdgeType, rows: pa.RecordBatch, lengths: npt.NDArray[np.int64]) -> None:
    """Refuses what could be written and not be loaded again.

    Args:
        lengths: of the rows' lines, as far as they are known.
    """
    if len(lengths) and lengths.max() > LINE_MAX_BYTES:
        worst = int(lengths.argmax())
        raise BadRequest(
            f"{entity.name} {rows.column('id')[worst].as_py()!r}: its record would have {int(lengths[worst]):,} bytes, "
            f"and load reads records of at most {LINE_MAX_BYTES:,}: export the other types by name, and get its Blobs "
            "one by one (omnigraph blob get)",
            code="record_too_long",
        )


def _with_blobs(
    snapshot: Snapshot, entity: NodeType | EdgeType, names: list[str], batch: pa.RecordBatch
) -> Iterator[pa.RecordBatch]:
    """The rows with their Blobs as texts, a bounded amount of them at a time."""
    ids, table_key = batch.column("_rowid"), entity.table_key
    sizes = [np.asarray(pc.fill_null(snapshot.blob_sizes(table_key, name, ids), 0)) for name in names]
    _refuse_long(entity, batch, np.sum([(size + 2) // 3 * 4 for size in sizes], axis=0, dtype=np.int64))
    for start, end in portions(np.sum(sizes, axis=0, dtype=np.int64)):
        part = batch.slice(start, end - start)
        for name in names:
            data = snapshot.blobs(table_key, name, part.column("_rowid"))
            part = part.set_column(part.schema.get_field_index(name), name, _base64(data))
        yield part


def _named(catalog: Catalog, name: str) -> NodeType | EdgeType:
    found = catalog.nodes.get(name) or catalog.edge(name)
    if found is None:
        raise NotFound(f"type {name!r} isn't declared; declared: {', '.join([*catalog.nodes, *catalog.edges])}")
    return found


def _lines(catalog: Catalog, entity: NodeType | EdgeType, rows: pa.RecordBatch) -> Array:
    def text(value: str) -> Scalar:
        return pa.scalar(value, pa.string())

    pieces: list[Array | Scalar] = []
    name = json.dumps(entity.name)
    if isinstance(entity, EdgeType):
        source, target = (
            _end(catalog.nodes[n], rows.column(c)) for n, c in ((entity.source, "src"), (entity.target, "dst"))
        )
        pieces += [text(f'{{"edge":{name},"from":'), source, text(',"to":'), target, text(',"data":{')]
    else:
        pieces += [text(f'{{"type":{name},"data":{{')]
    separator = ""
    if isinstance(entity, EdgeType) or not entity.key:
        pieces += [text('"id":'), json_string(one_chunk(rows.column("id")))]
        separator = ","
    for prop in entity.properties.values():
        value = pc.coalesce(json_column(one_chunk(rows.column(prop.name)), prop.type), text("null"))
        pieces += [text(f"{separator}{json.dumps(prop.name)}:"), value]
        separator = ","
    return pc.binary_join_element_wise(*pieces, text("}}"), text(""))


def _base64(data: Array) -> Array:
    """Bytes as the text that a load takes for a Blob."""
    texts = [f"{PREFIX}{b64encode(b.as_buffer()).decode()}" if b.is_valid else None for b in data]
    return pa.array(texts, pa.string())


def _end(node: NodeType, ids: Array) -> Array:
    """Ids as the keys that `from` and `to` take: a composite id is a JSON array already."""
    kinds = key_parts(node)
    if len(kinds) > 1 or kinds[0].base in NUMBERS or kinds[0].base == "Bool":
        return ids
    return json_string(ids)


def json_column(column: Array, kind: Type) -> Array:
    """Each value as JSON text; null stays null.

    Raises:
        BadRequest: a float is NaN or infinite, which JSON can't write.
    """
    if kind.base == "Vector" or kind.list:
        if pa.types.is_fixed_size_list(column.type):
            column = column.cast(pa.list_(column.type.value_type))
        lengths = pc.fill_null(pc.list_value_length(column), 0)
        offsets = pc.cumulative_sum(pa.concat_arrays([pa.array([0], pa.int32()), lengths.cast(pa.int32())]))
        values = json_column(column.flatten(), Type("F32" if kind.base == "Vector" else kind.base))
        inner = pa.ListArray.from_arrays(offsets, pc.coalesce(values, pa.scalar("null")), mask=pc.is_null(column))
        joined = pc.binary_join(inner, ",")
        return pc.binary_join_element_wise(pa.scalar("["), joined, pa.scalar("]"), pa.scalar(""))
    if pa.types.is_floating(column.type):
        if not pc.all(pc.is_finite(column), min_count=0).as_py():
            raise BadRequest("a value is NaN or infinite, which JSON can't write: correct it before exporting")
        written = column.cast(pa.string())
        return pc.if_else(pc.equal(written, "-0"), pa.scalar("-0.0"), written)  # "-0" is the whole number 0 to many
    if kind.base in NUMBERS or kind.base == "Bool":
        return column.cast(pa.string())
    return json_string(render_part(column))
