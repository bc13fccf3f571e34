"""Decoded columns of one table at one version, kept between queries.

A `TableData` is a table as reads see it: whole columns as single Arrow arrays, loaded when first asked for, and what is
derived from them: the id map, dictionary codes, sort ranks. A row is its position. Everything here is cache: it is
keyed by the table's physical state (`snapshot.fingerprint`), so branches that share a table share its data, bounded in
bytes, and dropped at will; a running query keeps what it holds.

DateTime columns (date64 in storage) are timestamps of milliseconds in UTC here, because Arrow cuts the time of day off
a date64 in several places.
"""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.errors import Internal
from omnigraph.read.builds import BUILDS
from omnigraph.read.compute import Array, Chunked, pc, py_buffer, widened
from omnigraph.read.hashing import IdMap
from omnigraph.read.kept import Kept, Sized
from omnigraph.read.numbering import Numbering, RowIds
from omnigraph.storage.types import TableRef

if TYPE_CHECKING:
    from omnigraph.schema.catalog import Catalog
    from omnigraph.storage.delta import RowChanges

__all__ = ["ROW_ID", "TABLES", "Readable", "Rows", "TableCache", "TableData", "list_keys", "one_array", "sort_codes"]

Codes = npt.NDArray[np.int32]
T = TypeVar("T")
S = TypeVar("S", bound=Sized)

TIMESTAMP = pa.timestamp("ms", "UTC")

ROW_ID = "_rowid"
"""The column that tells a row from all others of its table, whichever version."""


class Readable(Protocol):
    """What reads need of a storage snapshot."""

    @property
    def state(self) -> object:
        """What it shows: the same object for snapshots that show the same."""
        ...

    @property
    def catalog(self) -> Catalog: ...

    @property
    def tables(self) -> Mapping[str, TableRef]: ...

    def schema(self, table_key: str) -> pa.Schema: ...

    def scan(
        self,
        table_key: str,
        columns: list[str] | None = None,
        filter: str | pc.Expression | None = None,
        limit: int | None = None,
    ) -> pa.Table: ...

    def take(self, table_key: str, row_ids: npt.NDArray[np.uint64], columns: list[str]) -> pa.Table: ...

    def indexed_rows(self, table_key: str, column: str) -> int: ...

    def scan_batches(self, table_key: str, columns: list[str]) -> Iterable[pa.RecordBatch]: ...

    def words_index(self, table_key: str, column: str) -> str | None: ...

    def find_words(
        self, table_key: str, column: str, words: list[str], *, every: bool, most: int, filter: str | None
    ) -> npt.NDArray[np.uint64]: ...

    def vector_index(self, table_key: str, column: str) -> str | None: ...

    def near(
        self,
        table_key: str,
        column: str,
        query: npt.NDArray[np.float64],
        count: int,
        columns: list[str],
        filter: str | None,
    ) -> pa.Table: ...

    def file_names(self, table_key: str) -> frozenset[str]: ...

    def row_changes(self, table_key: str, old: TableRef, files: frozenset[str], *, most: int) -> RowChanges | None: ...

    def fingerprint(self, table_key: str) -> tuple[Any, ...]: ...


def one_array(column: Chunked | Array) -> Array:
    """The column as a single array in the form reads compute with (see the module's text)."""
    if isinstance(column, pa.ChunkedArray):
        column = widened(column)
        if column.num_chunks == 1:
            return one_array(column.chunk(0))
        return one_array(pa.concat_arrays(column.chunks or [pa.array([], column.type)]))
    if pa.types.is_date64(column.type):
        return column.view(pa.int64()).view(TIMESTAMP)
    if pa.types.is_list(column.type) and pa.types.is_date64(column.type.value_type):
        flat = one_array(column.values)
        return pa.ListArray.from_arrays(_offsets(column), flat, mask=column.is_null() if column.null_count else None)
    return column


def _offsets(column: Array) -> Array:
    return pa.array(column.offsets.to_numpy(), pa.int32())


def sort_codes(column: Array) -> npt.NDArray[np.int64] | npt.NDArray[np.uint64]:
    """Integers that sort as the values do; the code under a null is unspecified. NaN sorts above every number.

    Args:
        column: a scalar column of any type reads know.
    """
    kind = column.type
    if pa.types.is_boolean(kind):
        return np.asarray(pc.fill_null(column, False).to_numpy(zero_copy_only=False), dtype=np.int64)
    if pa.types.is_uint64(kind):
        return np.asarray(pc.fill_null(column, 0).to_numpy(zero_copy_only=False))
    if pa.types.is_floating(kind):
        values = column if pa.types.is_float64(kind) else column.cast(pa.float64())
        values = pc.fill_null(values, 0.0) if values.null_count else values
        values = values.to_numpy(zero_copy_only=False) + 0.0  # −0.0 becomes 0.0
        values = np.where(np.isnan(values), np.nan, values)  # one NaN, the positive one
        bits = values.view(np.uint64)
        sign = np.uint64(1 << 63)
        return np.where(bits & sign, ~bits, bits | sign)
    if pa.types.is_integer(kind):
        column = pc.fill_null(column, 0) if column.null_count else column
        return np.asarray(column.to_numpy(zero_copy_only=False), dtype=np.int64)
    if pa.types.is_date32(kind):
        return sort_codes(column.view(pa.int32()))
    if pa.types.is_timestamp(kind):
        return sort_codes(column.view(pa.int64()))
    if pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind):
        column = list_keys(column)
    encoded = column.dictionary_encode()
    order = pc.array_sort_indices(encoded.dictionary).to_numpy()
    rank = np.empty(len(order) + 1, dtype=np.int64)
    rank[order] = np.arange(len(order))
    return np.asarray(rank[pc.fill_null(encoded.indices, len(order)).to_numpy(zero_copy_only=False)])


def list_keys(column: Array) -> Array:
    """Binary keys of lists that are equal where the lists are and sort as they do, item by item; null stays null."""
    flat = column.flatten()
    _, rank = np.unique(sort_codes(flat), return_inverse=True)
    rank = np.where(np.asarray(flat.is_valid().to_numpy(zero_copy_only=False)), rank + 1, 0)
    sizes = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
    offsets = np.append(0, np.cumsum(sizes * 4)).astype(np.int32)
    data = rank.astype(">u4").tobytes()
    keys = pa.Array.from_buffers(pa.binary(), len(column), [None, py_buffer(offsets), py_buffer(data)])
    return pc.if_else(column.is_valid(), keys, pa.scalar(None, pa.binary()))


class Rows:
    """Rows with columns by name; positions point into them. Base of a cached table and of the rows a query reads."""

    whole = False

    def __init__(self, table_key: str, rows: int, columns: Mapping[str, Array]) -> None:
        self.table_key = table_key
        self.rows = rows
        self._columns = dict(columns)
        self._derived: dict[tuple[str, str], object] = {}

    def column(self, name: str) -> Array:
        return self._columns[name]

    def row_ids(self) -> npt.NDArray[np.uint64]:
        """What the table knows each row by, whatever its position."""
        raise Internal(f"rows of {self.table_key} made by the query itself")

    def find(self, ids: Array, names: Iterable[str] = ()) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """(index into `ids`, position) of every row that has one of the ids.

        Args:
            names: columns worth reading along, where rows have to be read.
        """
        return self.id_map().matches(ids)

    def _derive(self, what: str, name: str, value: T, nbytes: int) -> T:
        self._derived[what, name] = value
        return value

    def derived(self, what: str, name: str, make: Callable[[], S]) -> S:
        """What is made of a column once and kept with it."""
        found = self._derived.get((what, name))
        return self._once(what, name, make, lambda made: made.nbytes) if found is None else cast("S", found)

    def all_rows(self) -> npt.NDArray[np.int64]:
        """Every position, ascending; the same array each time, so that it tells itself from some positions."""
        return self.derived("positions", "", self._all_rows)

    def _all_rows(self) -> npt.NDArray[np.int64]:
        made = np.arange(self.rows)
        made.flags.writeable = False
        return made

    def kept(self, what: str, name: str) -> object | None:
        """What was derived before, if it was."""
        return self._derived.get((what, name))

    def _once(self, what: str, name: str, make: Callable[[], T], nbytes: Callable[[T], int]) -> T:
        made = make()
        return self._derive(what, name, made, nbytes(made))

    def id_map(self) -> IdMap:
        """Ids → positions."""
        found = self._derived.get(("map", "id"))
        if isinstance(found, IdMap):
            return found
        return self.derived("map", "id", lambda: IdMap(self.column("id")))

    def id_rank(self) -> npt.NDArray[np.int64]:
        """The rank of each row's id among all, for ties."""
        return self.derived("rank", "id", lambda: _ranks(self.column("id")))

    def dictionary(self, name: str) -> tuple[Codes, Array]:
        """(code of each row, the distinct values with null among them)."""
        found = self._derived.get(("codes", name))
        if isinstance(found, tuple):
            return found
        return self._coded(name, lambda: _encoded(self.column(name)))

    def few_values(self, name: str, most: int) -> tuple[Codes, Array] | None:
        """The `dictionary` of a column of at most so many values, null among them; None of more, and nothing kept."""
        made = self.dictionary(name) if self.kept("codes", name) is not None else _encoded(self.column(name))
        return self._coded(name, lambda: made) if len(made[1]) <= most else None

    def _coded(self, name: str, make: Callable[[], tuple[Codes, Array]]) -> tuple[Codes, Array]:
        return self._once("codes", name, make, lambda m: m[0].nbytes + m[1].nbytes)


def _ranks(column: Array) -> npt.NDArray[np.int64]:
    order = pc.array_sort_indices(column).to_numpy()
    rank = np.empty(len(column), dtype=np.int64)
    rank[order] = np.arange(len(column))
    return rank


def _encoded(column: Array) -> tuple[Codes, Array]:
    encoded = column.dictionary_encode(null_encoding="encode")
    return np.asarray(encoded.indices.to_numpy(zero_copy_only=False), dtype=np.int32), encoded.dictionary


class TableData(Rows):
    """One cached table. Columns come from the snapshot that asks first; all snapshots of a fingerprint are equal.

    Args:
        key: the table's fingerprint.
        numbering: its positions, where something that is kept relies on them.
        earlier: versions it may have grown from, whose columns are changed instead of read again; the nearest first.
    """

    whole = True

    def __init__(
        self,
        ref: TableRef,
        key: tuple[Any, ...],
        cache: TableCache,
        numbering: Numbering | None,
        earlier: Iterable[TableData],
    ) -> None:
        super().__init__(ref.table_key, ref.row_count, {})
        self.ref = ref
        self.key = key
        self._cache = cache
        self._lock = threading.Lock()
        self._numbering = numbering
        self._earlier = [weakref.ref(table) for table in earlier] if numbering is None else []
        self._asked: set[tuple[str, str]] = set()
        self._sizes: dict[tuple[str, str], int] = {}  # bytes by what is kept: two threads that make it count it once

    @property
    def nbytes(self) -> int:
        """All it holds, whoever shares it."""
        numbering = self._numbering
        return sum(tuple(self._sizes.values())) + (0 if numbering is None else numbering.nbytes)

    def has(self, names: Iterable[str]) -> bool:
        return all(map(self._columns.__contains__, names))

    def again(self, what: str, name: str, make: Callable[[], S]) -> S | None:
        """What is derived only if it is asked for more than once; None the first time."""
        if (what, name) in self._derived or (what, name) in self._asked:
            return self.derived(what, name, make)
        self._asked.add((what, name))
        return None

    def load(self, snapshot: Readable, names: Iterable[str]) -> TableData:
        """Make the columns present: from an earlier version, the others in one scan."""
        if self.has(names):
            return self
        wanted = tuple(sorted({n for n in names if n not in self._columns}))
        BUILDS.share((id(self), wanted), lambda: self._load(snapshot, wanted), size=self.rows * len(wanted))
        return self

    def _load(self, snapshot: Readable, names: tuple[str, ...]) -> None:
        with self._lock:
            self._begin(snapshot)
            missing = [n for n in names if n not in self._columns]
            if missing:
                for name, column in self._read(snapshot, missing).items():
                    self._keep(name, column)
        self._cache.settle()

    def numbering(self, snapshot: Readable) -> Numbering:
        """The positions of the rows."""
        if self._numbering is None:
            with self._lock:
                self._begin(snapshot)
                if self._numbering is None:
                    self._read(snapshot, [])
        return self._known()

    def read(self, snapshot: Readable, names: list[str]) -> dict[str, Array]:
        """Columns in the order of the positions, not kept."""
        with self._lock:
            self._begin(snapshot)
            return self._read(snapshot, names)

    def row_ids(self) -> RowIds:
        return self._known().row_ids

    def places(self, row_ids: RowIds) -> npt.NDArray[np.int64]:
        """The positions of rows, −1 of those that aren't there."""
        return self._known().places(row_ids)

    def _known(self) -> Numbering:
        if self._numbering is None:
            raise Internal(f"positions in {self.table_key} are asked for before it was read")
        return self._numbering

    @property
    def finds(self) -> bool:
        """Whether ids lead to positions without making the map first."""
        return ("map", "id") in self._derived

    def versions(self) -> list[TableData]:
        """The other versions of this table that are in memory, the one used last first."""
        return self._cache.versions(self)

    @property
    def refreshes(self) -> bool:
        """Whether it isn't read yet and may come from an earlier version."""
        return self._numbering is None and any(earlier() is not None for earlier in self._earlier)

    @property
    def loaded(self) -> bool:
        return self._numbering is not None

    # ---- under the lock ----

    def _read(self, snapshot: Readable, names: list[str]) -> dict[str, Array]:
        natural = self._numbering is not None and self._numbering.natural
        table = snapshot.scan(self.table_key, columns=names if natural and names else [*names, ROW_ID])
        if not natural:
            row_ids = table.column(ROW_ID).to_numpy()
            numbering = self._numbering
            if numbering is None:
                numbering = self._number(Numbering(row_ids, snapshot.file_names(self.table_key)))
            if not numbering.natural:
                order: Array = pa.array(np.argsort(numbering.places(row_ids)))
                table = table.take(order)
        return {name: one_array(table.column(name)) for name in names}

    def _number(self, numbering: Numbering) -> Numbering:
        """Take up positions, or those that others rely on already."""
        self._numbering = numbering = self._cache.number(self.key, numbering)
        self.rows = numbering.rows
        return numbering

    def _keep(self, name: str, column: Array) -> None:
        self._columns[name] = column
        self._sizes["column", name] = column.nbytes

    def _begin(self, snapshot: Readable) -> None:
        """Take over from an earlier version what it has, if it tells what changed since."""
        candidates, self._earlier = self._earlier, []
        for candidate in candidates:
            earlier = candidate()
            if self._numbering is None and earlier is not None and earlier.loaded:
                self._take_over(snapshot, earlier)

    def _take_over(self, snapshot: Readable, earlier: TableData) -> None:
        old, columns, derived = earlier._known(), dict(earlier._columns), dict(earlier._derived)
        sizes = dict(earlier._sizes)
        changes = snapshot.row_changes(self.table_key, earlier.ref, old.files, most=1_000 + old.rows // 20)
        if changes is None:
            return
        files = snapshot.file_names(self.table_key)
        if not len(changes.removed) and not len(changes.written):
            made = old.unchanged(files)
            if self._number(made) is made:
                for name, column in columns.items():
                    self._keep(name, column)
                self._sizes.update({key: sizes[key] for key in derived})
                self._derived.update(derived)
            return
        made = old.spliced(changes.removed, changes.written, files)
        if made.rows != snapshot.tables[self.table_key].row_count:
            return  # the versions aren't what they seem
        step, names = made.steps[-1], sorted(columns)
        new: dict[str, Array] = {}
        if names:
            table = snapshot.take(self.table_key, made.written(), names)
            new = {name: one_array(table.column(name)) for name in names}
        if "id" in new:
            before = columns["id"].take(pa.array(step.updated)).cast(new["id"].type)
            if not new["id"].slice(0, len(step.updated)).equals(before):
                return  # an id wandered from one row to another
        if self._number(made) is not made:
            return
        for name in names:
            if columns[name].nbytes + new[name].nbytes < 2**31 - 1 or not pa.types.is_string(columns[name].type):
                self._keep(name, step.column(columns[name], new[name]))
        known = derived.get(("map", "id"))
        if isinstance(known, IdMap) and "id" in self._columns:
            moved = known.spliced(self._columns["id"], step)
            if moved is not None:
                self._derive("map", "id", moved, moved.nbytes)

    def _once(self, what: str, name: str, make: Callable[[], T], nbytes: Callable[[T], int]) -> T:
        def work() -> T:
            found = self._derived.get((what, name))
            return Rows._once(self, what, name, make, nbytes) if found is None else cast("T", found)

        return BUILDS.share((id(self), what, name), work, size=self.rows)

    def _derive(self, what: str, name: str, value: T, nbytes: int) -> T:
        self._sizes[what, name] = nbytes
        made = super()._derive(what, name, value, nbytes)
        self._cache.settle()
        return made


class TableCache:
    """Tables by fingerprint. Thread-safe.

    Args:
        kept: where they are kept, with whatever else shares the memory.
    """

    def __init__(self, kept: Kept | None = None) -> None:
        self.kept = Kept() if kept is None else kept
        self._lock = threading.Lock()
        self._spent: OrderedDict[Hashable, float] = OrderedDict()
        self._numberings: weakref.WeakValueDictionary[Hashable, Numbering] = weakref.WeakValueDictionary()

    def get(self, snapshot: Readable, table_key: str) -> TableData:
        """The (perhaps still empty) entry of this table at the snapshot's version."""
        key = self.key(snapshot, table_key)
        found = self.kept.get(key)
        if found is None:
            ref, state = snapshot.tables[table_key], key[1]
            with self._lock:
                made = TableData(ref, state, self, self._numberings.get(state), self._earlier(state, ref))
                found = self.kept.add(key, made)
        return cast("TableData", found)

    def key(self, snapshot: Readable, table_key: str) -> tuple[str, tuple[Any, ...]]:
        """What a table is kept by."""
        return ("table", snapshot.fingerprint(table_key))

    def _earlier(self, key: tuple[Any, ...], ref: TableRef) -> list[TableData]:
        """The versions in memory that this one has most likely grown from: its own branch's first, newest first."""
        found = [t for _, t in self.kept.items() if isinstance(t, TableData) and t.loaded]
        found = [t for t in found if t.key[0] == key[0] and t.ref.version <= ref.version]
        return sorted(found, key=lambda t: (t.ref.branch != ref.branch, -t.ref.version))[:3]

    def number(self, key: Hashable, numbering: Numbering) -> Numbering:
        """Remember positions for as long as anything relies on them; of two made at once the first ones hold."""
        with self._lock:
            return self._numberings.setdefault(key, numbering)

    def spent(self, key: Hashable) -> float:
        """Microseconds that went into answering questions by themselves, for want of something kept."""
        with self._lock:
            return self._spent.get(key, 0.0)

    def spend(self, key: Hashable, microseconds: float) -> None:
        """Note more of it."""
        with self._lock:
            self._spent[key] = self._spent.get(key, 0.0) + microseconds
            self._spent.move_to_end(key)
            if len(self._spent) > 1024:
                self._spent.popitem(last=False)

    def versions(self, table: TableData) -> list[TableData]:
        """Other entries of the same table, the one used last first."""
        found = [t for _, t in self.kept.items() if isinstance(t, TableData) and t is not table]
        return [t for t in reversed(found) if t.ref.location == table.ref.location]

    def settle(self) -> None:
        """Drop what is over the limit."""
        self.kept.settle()

    @property
    def nbytes(self) -> int:
        return self.kept.nbytes

    def clear(self) -> None:
        self.kept.clear()
        with self._lock:
            self._spent.clear()


TABLES = TableCache()
"""The tables of this process."""
