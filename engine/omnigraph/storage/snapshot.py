"""A pinned, immutable view of one graph version. Everything in and out is Arrow."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import lance
import numpy as np
import pyarrow as pa
from lance.query import FullTextOperator, MatchQuery

from omnigraph.errors import BadRequest, NotFound
from omnigraph.schema.catalog import Catalog
from omnigraph.schema.ir import SchemaIR, ir_of
from omnigraph.storage.blobs import (
    StoredBlob,
    check_ends,
    digests,
    null_mask,
    read_bytes,
    stored_blob,
    stored_sizes,
)
from omnigraph.storage.conditions import one_of
from omnigraph.storage.delta import RowChanges, file_names, row_changes
from omnigraph.storage.engine import Engine
from omnigraph.storage.index_kinds import text_index, vector_index
from omnigraph.storage.manifest import ManifestState
from omnigraph.storage.needed import remember_snapshot
from omnigraph.storage.schemas import load_catalog, load_ir
from omnigraph.storage.translate import lance_errors
from omnigraph.storage.types import CommitInfo, Places, TableRef

__all__ = ["Snapshot"]

_CATALOG = ("catalog", "")


class Snapshot:
    """What one commit made visible. Safe to share between threads; keeps reading the same rows whatever is written."""

    def __init__(self, engine: Engine, state: ManifestState) -> None:
        self._engine = engine
        self.state = state
        remember_snapshot(self)

    @property
    def uri(self) -> str:
        return self._engine.store.root.uri

    def __repr__(self) -> str:
        return f"Snapshot({self._engine.store.root.uri!r}, {self.branch!r}, version {self.manifest_version})"

    @property
    def branch(self) -> str:
        return self.state.branch

    @property
    def manifest_version(self) -> int:
        return self.state.version

    @property
    def head(self) -> CommitInfo:
        return self.state.head

    def on(self, branch: str) -> Snapshot:
        """The same tables, as a branch that has just been made from here sees them."""
        return Snapshot(self._engine, replace(self.state, branch=branch))

    @property
    def schema_hash(self) -> str:
        return self.state.head.schema_hash or self.catalog.hash

    @property
    def catalog(self) -> Catalog:
        found: Catalog | None = self.state.memo.get(_CATALOG)
        if found is None:
            found = self.state.memo[_CATALOG] = self._catalog()
        return found

    def _catalog(self) -> Catalog:
        if self.state.head.schema_hash is None:
            from omnigraph.storage.origin import catalog_of

            return catalog_of(self._engine.store, self.state.tables)
        return load_catalog(self._engine.store.files, self.state.head.schema_hash)

    @property
    def schema_ir(self) -> SchemaIR:
        """The schema with the ids of its types and properties, which stay the same over renames."""
        if self.state.head.schema_hash is None:
            return ir_of(self.catalog)
        return load_ir(self._engine.store.files, self.catalog, self.state.head.schema_ir)

    @property
    def tables(self) -> Mapping[str, TableRef]:
        return self.state.tables

    def ref(self, table_key: str) -> TableRef:
        """Which version of a table this state sees. Raises NotFound."""
        ref = self.state.tables.get(table_key)
        if ref is None:
            raise NotFound(f"{self!r} has no table {table_key}", details={"table_key": table_key})
        return ref

    def fingerprint(self, table_key: str) -> tuple[Any, ...]:
        """Hashable identity of the content: equal fingerprints, equal rows. It begins with where the table is."""
        key = ("fingerprint", table_key)
        found: tuple[Any, ...] | None = self.state.memo.get(key)
        if found is None:
            ref = self.ref(table_key)
            place = f"{self._engine.store.root.uri}/{ref.location}"  # other makers' graphs have no stamp to differ in
            found = self.state.memo[key] = (place, ref.branch, ref.version, ref.stamp)
        return found

    def dataset(self, table_key: str) -> lance.LanceDataset:
        """The pinned Lance dataset, for this room and for what only Lance's scanner can do (search). Never written."""
        return self._engine.store.pinned(self.ref(table_key))

    def schema(self, table_key: str) -> pa.Schema:
        """The stored columns of a table."""
        return self._engine.store.schema(self.dataset(table_key))

    def scan(
        self, table_key: str, columns: Sequence[str] | None = None, filter: str | None = None, limit: int | None = None
    ) -> pa.Table:
        """The table's rows; `columns` may name `_rowid`, `_row_created_at_version`, `_row_last_updated_at_version`.

        Args:
            filter: a condition in Lance's SQL.
        """
        with self._reading(table_key):
            rows: pa.Table = self._scanner(table_key, columns, filter, limit).to_table()
        return rows

    def with_ids(self, table_key: str, ids: Sequence[str], columns: Sequence[str]) -> tuple[pa.Table, Places]:
        """The rows that have one of a few ids, in any order, and where they lie."""
        test = one_of("id", pa.array(ids, pa.string()))
        assert test is not None  # every text can be written down
        asked = ["id", "_rowaddr", "_rowid"]
        with self._reading(table_key):
            dataset = self.dataset(table_key)
            within = self._engine.store.short_files.holding(dataset, ids)
            if within is not None:
                whole = list(dict.fromkeys([*columns, *asked]))
                rows = dataset.scanner(columns=whole, filter=test, fragments=within).to_table()
                return rows.select(columns), Places(self.ref(table_key), rows.select(asked))
        # A scan for whole rows reads every column of the files that no index covers, and of a row that isn't there too.
        found = self.scan(table_key, asked, filter=test)
        places = Places(self.ref(table_key), found)
        return self.rows_at(table_key, found.column("_rowaddr").combine_chunks(), columns), places

    def scan_batches(
        self, table_key: str, columns: Sequence[str] | None = None, filter: str | None = None, limit: int | None = None
    ) -> pa.RecordBatchReader:
        """As `scan`, batch by batch."""
        with self._reading(table_key):
            reader: pa.RecordBatchReader = self._scanner(table_key, columns, filter, limit).to_reader()

        def batches() -> Iterator[pa.RecordBatch]:
            with self._reading(table_key):
                yield from reader

        return pa.RecordBatchReader.from_batches(reader.schema, batches())

    @contextmanager
    def _reading(self, table_key: str, doing: str = "reading") -> Iterator[None]:
        """Lance's errors as ours; a file that is missing because cleanup removed the version is told as that."""
        try:
            with lance_errors(f"{doing} {table_key}"):
                yield
        except NotFound as error:
            if error.code == "storage_not_found":
                self._engine.store.check_version(self.ref(table_key), error)
            raise

    def _scanner(
        self, table_key: str, columns: Sequence[str] | None, filter: str | None, limit: int | None
    ) -> lance.LanceScanner:
        dataset = self.dataset(table_key)
        names = None if columns is None else list(columns)
        if names is not None:
            stored = self.schema(table_key).names
            unknown = [n for n in names if not n.startswith("_") and n not in stored]
            if unknown:
                raise BadRequest(f"{table_key} has no column {', '.join(unknown)}", details={"table_key": table_key})
        return dataset.scanner(columns=names, filter=filter, limit=limit, prefilter=True)

    def indexed_rows(self, table_key: str, column: str) -> int:
        """How many of the table's rows a BTREE index of the column covers; about, where rows went since."""
        with self._reading(table_key, "reading the indices of"):
            found = self.dataset(table_key).describe_indices()
        covered = [i.num_rows_indexed for i in found if list(i.field_names) == [column] and i.index_type == "BTree"]
        return int(max(covered, default=0))

    def file_names(self, table_key: str) -> frozenset[str]:
        """The files its rows are made of; equal names are equal rows."""
        with self._reading(table_key, "reading the files of"):
            return file_names(self.dataset(table_key))

    def row_changes(self, table_key: str, old: TableRef, files: frozenset[str], *, most: int) -> RowChanges | None:
        """What changed in the table since an earlier version with these `file_names`; see `delta.row_changes`."""
        return row_changes(self._engine.store, old, files, self.ref(table_key), most=most)

    def words_index(self, table_key: str, column: str) -> str | None:
        """The name of the index a word search of the column asks; None where none cuts texts as ours do."""
        with self._reading(table_key, "reading the indices of"):
            found = text_index(self.dataset(table_key), column)
        return None if found is None else str(found.name)

    def find_words(
        self, table_key: str, column: str, words: Sequence[str], *, every: bool, most: int, filter: str | None = None
    ) -> np.ndarray[Any, np.dtype[np.uint64]]:
        """Row ids of rows of a filter with one of the words, or all of them: at most `most`, the newest included."""
        operator = FullTextOperator.AND if every else FullTextOperator.OR
        query = MatchQuery(" ".join(words), column, operator=operator)
        with self._reading(table_key, "searching"):
            scanner = self.dataset(table_key).scanner(
                columns=["_rowid"],
                full_text_query=query,
                filter=filter,
                prefilter=True,
                limit=most,
                disable_scoring_autoprojection=True,
            )
            ids: np.ndarray[Any, np.dtype[np.uint64]] = scanner.to_table().column("_rowid").to_numpy()
        return ids

    def vector_index(self, table_key: str, column: str) -> str | None:
        """The index a search of the column's vectors asks, as its kind and name; None where none is for cosine."""
        with self._reading(table_key, "reading the indices of"):
            found = vector_index(self.dataset(table_key), column)
        return None if found is None else f"{found.index_type} {found.name}"

    def near(
        self,
        table_key: str,
        column: str,
        query: np.ndarray[Any, Any],
        count: int,
        columns: Sequence[str],
        filter: str | None = None,
    ) -> pa.Table:
        """About the `count` rows of a filter whose vectors are nearest by cosine, with `_rowid`.

        The index is asked for more and its choice narrowed by the vectors themselves; rows it doesn't cover are
        compared one by one.
        """
        nearest = {
            "column": column,
            "q": np.asarray(query, dtype=np.float32),
            "k": count,
            "metric": "cosine",
            "minimum_nprobes": 20,
            "refine_factor": 4,
        }
        with self._reading(table_key, "searching"):
            scanner = self.dataset(table_key).scanner(
                columns=[*columns, "_distance"], nearest=nearest, filter=filter, prefilter=True, with_row_id=True
            )
            rows: pa.Table = scanner.to_table()
        return rows

    def fragment_rows(self, table_key: str, numbers: Collection[int], columns: Sequence[str]) -> pa.Table:
        """The rows of some of the table's data fragments, by their numbers."""
        with self._reading(table_key):
            dataset = self.dataset(table_key)
            chosen = [dataset.get_fragment(number) for number in numbers]
            rows: pa.Table = dataset.scanner(columns=list(columns), fragments=chosen).to_table()
        return rows

    def take(
        self, table_key: str, row_ids: Sequence[int] | pa.Array[Any] | np.ndarray[Any, Any], columns: Sequence[str]
    ) -> pa.Table:
        """Rows by `_rowid`, in the given order, repeats included.

        Raises:
            NotFound: a row id isn't in this version.
        """
        ids = row_ids if isinstance(row_ids, pa.Array) else pa.array(np.asarray(row_ids, dtype=np.uint64))
        if not len(ids):
            return self.scan(table_key, columns, limit=0)
        with self._reading(table_key, "reading rows of"):
            rows: pa.Table = self.dataset(table_key)._take_rows(ids.to_pylist(), columns=list(columns))
        if rows.num_rows != len(ids):
            # Lance leaves unknown ids out without a word, and the rest would move up.
            raise NotFound(f"{table_key} lacks {len(ids) - rows.num_rows} of the {len(ids)} row ids asked for")
        return rows

    def rows_at(self, table_key: str, addresses: pa.Array[Any], columns: Sequence[str]) -> pa.Table:
        """Rows by the `_rowaddr` that a scan of this version gave, each once, in the order they are stored.

        By row id (`take`), Lance goes through the row ids of the whole table first, anew for every version.

        Raises:
            NotFound: there is no row at an address.
        """
        if not len(addresses):
            return self.scan(table_key, columns, limit=0)
        rows = self.scan(table_key, columns, filter=f"_rowaddr IN ({', '.join(map(str, addresses.to_pylist()))})")
        if rows.num_rows != len(addresses):
            raise NotFound(f"{table_key} has {rows.num_rows} rows at the {len(addresses)} places asked for")
        return rows

    def blobs(self, table_key: str, column: str, row_ids: Sequence[int] | pa.Array[Any]) -> pa.Array[Any]:
        """The bytes of a Blob column (large_binary), in the order of the row ids; null where there is none.

        All of them are held at once: `blob_sizes` tells how much that is.

        Raises:
            NotFound: a row id isn't in this version.
            BadRequest: a Blob lies outside the graph.
        """
        with self._reading(table_key):
            return pa.array(read_bytes(self.dataset(table_key), column, _row_ids(row_ids)), pa.large_binary())

    def blob_sizes(self, table_key: str, column: str, row_ids: Sequence[int] | pa.Array[Any]) -> pa.Array[Any]:
        """Bytes of each Blob (int64), null where there is none; no bytes are read."""
        with self._reading(table_key):
            return stored_sizes(self.dataset(table_key), column, _row_ids(row_ids))

    def blob_digests(self, table_key: str, column: str, row_ids: Sequence[int] | pa.Array[Any]) -> pa.Array[Any]:
        """SHA-256 of each Blob (binary), null where there is none, in bounded memory."""
        with self._reading(table_key):
            return digests(self.dataset(table_key), column, _row_ids(row_ids))

    def check_blobs(self, table_key: str, column: str, row_ids: Sequence[int] | pa.Array[Any]) -> int:
        """Read the last byte of each Blob, and say how many there are; raises where one isn't there."""
        with self._reading(table_key):
            return check_ends(self.dataset(table_key), column, _row_ids(row_ids))

    def blob(self, table_key: str, column: str, row_id: int) -> StoredBlob | None:
        """One Blob, to be read by ranges; None where it is null."""
        with self._reading(table_key):
            return stored_blob(self.dataset(table_key), column, row_id, partial(self._reading, table_key))

    def blob_nulls(self, table_key: str, rows: pa.RecordBatch | pa.Table, column: str) -> pa.Array[Any]:
        """Which rows of a scan have no Blob in the column."""
        found = rows.column(column)
        if isinstance(found, pa.ChunkedArray):
            found = found.combine_chunks()
        return null_mask(self.dataset(table_key).schema.field(column), found)

    def count_rows(self, table_key: str, filter: str | None = None) -> int:
        """Rows of a table, all or those that a filter keeps."""
        if filter is None:
            return self.ref(table_key).row_count
        with self._reading(table_key, "counting rows of"):
            if isinstance(filter, str):
                return int(self.dataset(table_key).count_rows(filter))
            return int(self.dataset(table_key).scanner(columns=[], filter=filter, with_row_id=True).to_table().num_rows)


def _row_ids(row_ids: Sequence[int] | pa.Array[Any]) -> pa.Array[Any]:
    return row_ids if isinstance(row_ids, pa.Array) else pa.array(row_ids, pa.uint64())
