"""Where records come from: paths, globs, URIs, streams, NDJSON text, tables in memory; and one call to read any of it.

`plan_sources` says which files there are without reading records; `read_batches` turns one file, or a split of it, into
typed rows. The Spark load calls both with the same arguments as the loader here.
"""

from __future__ import annotations

import io
import lzma
import os
import shutil
import tempfile
import zlib
from collections.abc import Iterable, Iterator
from collections.abc import Mapping as MappingABC
from contextlib import ExitStack, suppress
from dataclasses import replace
from fnmatch import fnmatch
from typing import Any, BinaryIO, TextIO, TypeAlias, cast

import pyarrow as pa

from omnigraph.errors import BadRequest
from omnigraph.records import dataclass
from omnigraph.schema.catalog import Catalog
from omnigraph.write.blobs import blob_names
from omnigraph.write.flat import read_flat
from omnigraph.write.listed import Listed, listed
from omnigraph.write.mapping import Mapping, SourceMapping, check_mapping
from omnigraph.write.ndjson import read_ndjson
from omnigraph.write.places import Found, file_system, find, is_folder, missing
from omnigraph.write.rows import Reading, TypedBatch
from omnigraph.write.tabular import read_table, read_tabular, unreadable

__all__ = [
    "PACKED",
    "Source",
    "SourceFile",
    "SourcePlan",
    "Split",
    "open_source",
    "open_tabular",
    "plan_sources",
    "read_batches",
]

Source: TypeAlias = (
    str | os.PathLike[str] | Iterable[str | os.PathLike[str]] | BinaryIO | io.TextIOBase | MappingABC[str, Any]
)

PACKED = (".gz", ".bz2", ".zst")
"""Suffixes of files that are decompressed while they are read."""

_NO_TEXT = {
    b"\x1f\x8b": "compressed with gzip: give it the suffix .gz",
    b"BZh": "compressed with bzip2: give it the suffix .bz2",
    b"\x28\xb5\x2f\xfd": "compressed with zstd: give it the suffix .zst",
    b"PK\x03\x04": "a ZIP archive: unpack it",
    b"PAR1": "Parquet: give it the suffix .parquet, and a mapping",
    b"ARROW1": "an Arrow file: give it the suffix .arrow, and a mapping",
    b"\xff\xfe": "UTF-16: write it as UTF-8",
    b"\xfe\xff": "UTF-16: write it as UTF-8",
}
"""What a file that should hold NDJSON begins with, and is."""

_SUFFIXES = {
    ".jsonl": "ndjson",
    ".ndjson": "ndjson",
    ".json": "ndjson",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".csv": "csv",
    ".tsv": "csv",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".arrows": "arrow",
    ".ipc": "arrow",
    ".orc": "orc",
}


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One file, or one table in memory, of a load. Plain data; goes to other machines as it is.

    Args:
        index: its number in the load; the `FILE` column holds it.
        label: its name in messages, and the seed of its records' ids.
        path: local path or URI; empty for tables and texts in memory.
        format: ndjson, parquet, orc, csv or arrow; `table` in memory.
        size: bytes, 0 where unknown.
        mapping: how its columns become properties; None for NDJSON records that name their types.
    """

    index: int
    label: str
    path: str
    format: str
    size: int
    mapping: SourceMapping | None = None


@dataclass(frozen=True, slots=True)
class Split:
    """A stretch of a file: bytes [start, end) of NDJSON, row groups [start, end) of Parquet."""

    start: int
    end: int


class SourcePlan:
    """Every source of a load, nodes before edges as far as mappings tell. A context manager: drops what it spooled."""

    def __init__(
        self, files: Iterable[SourceFile], tables: MappingABC[str, Listed] | None = None, spooled: str | None = None
    ):
        ordered = sorted(files, key=lambda f: f.mapping is not None and f.mapping.edge is not None)
        self.files = tuple(replace(f, index=i) for i, f in enumerate(_told_apart(ordered)))
        self.tables = {name: given.table for name, given in (tables or {}).items()}
        self._omitted = {name: given.omitted for name, given in (tables or {}).items()}
        self._spooled = spooled

    @property
    def size(self) -> int:
        return sum(f.size for f in self.files)

    def read(self, file: SourceFile, reading: Reading) -> Iterator[TypedBatch]:
        if file.format == "table":
            mapping = cast("SourceMapping", file.mapping)
            table, omitted = self.tables[mapping.label], self._omitted[mapping.label]
            return read_table(table, reading, mapping, file=file.index, label=file.label, omitted=omitted)
        return read_batches(file, reading)

    def locate(self, file: int, row: int) -> str:
        """`people.jsonl:17` or `people.parquet row 3`."""
        source = self.files[file]
        if source.format != "ndjson":
            return f"{source.label} row {row}"
        lines, left = 1, row
        with open_source(source.path) as stream:
            while left > 0 and (piece := stream.read(min(left, 1 << 20))):
                lines += piece.count(b"\n")
                left -= len(piece)
        return f"{source.label}:{lines}"

    def __enter__(self) -> SourcePlan:
        return self

    def __exit__(self, *exc: object) -> None:
        if self._spooled is not None:
            with suppress(OSError):  # the load may be committed
                os.unlink(self._spooled)


def _told_apart(files: Iterable[SourceFile]) -> Iterator[SourceFile]:
    """The files with labels that differ, since a label seeds ids.

    A file may be read by several sources of a mapping; twice by the same one it would only repeat its records.

    Raises:
        BadRequest: a file is named twice.
    """
    seen: dict[str, list[SourceFile]] = {}
    for file in files:
        before = seen.setdefault(file.label, [])
        if any(
            f.path and os.path.realpath(f.path) == os.path.realpath(file.path) and f.mapping == file.mapping
            for f in before
        ):
            raise BadRequest(f"{file.label}: named twice, perhaps by overlapping patterns: name it once")
        before.append(file)
        yield file if len(before) == 1 else replace(file, label=f"{file.label} ({len(before)})")


def open_source(path: str) -> BinaryIO:
    """The bytes of a local path or URI, decompressed by suffix.

    Raises:
        BadRequest: it isn't there or may not be read.
    """
    try:
        system, inner = file_system(path)
        if inner.endswith(PACKED):
            return cast("BinaryIO", system.open_input_stream(inner))
        return cast("BinaryIO", system.open_input_file(inner))
    except FileNotFoundError as error:
        raise missing(path) from error
    except (OSError, pa.ArrowInvalid) as error:
        raise BadRequest(
            f"{path}: can't be opened: {error}", code="unreadable_source", details={"file": path}
        ) from error


def _refuse_no_text(stream: BinaryIO, label: str) -> None:
    if not stream.seekable():  # decompressed already
        return
    first = stream.read(8)
    stream.seek(0)
    what = next((words for magic, words in _NO_TEXT.items() if first.startswith(magic)), None)
    if what is not None:
        raise BadRequest(f"{label}: is no NDJSON but {what}", code="unreadable_source", details={"file": label})


def open_tabular(path: str, label: str, format: str) -> BinaryIO:
    """The bytes of a file as `open_source` gives them, seekable: what is packed is unpacked into a file without a name.

    Raises:
        BadRequest: it isn't there, may not be read or can't be unpacked.
    """
    stream = open_source(path)
    if not path.endswith(PACKED):
        return stream
    try:
        with stream, tempfile.NamedTemporaryFile(prefix="omnigraph-") as unpacked:
            shutil.copyfileobj(stream, unpacked, 1 << 20)
            unpacked.flush()
            return cast("BinaryIO", pa.OSFile(unpacked.name, "r"))
    except OSError as error:
        raise unreadable(label, format, error) from error


def read_batches(file: SourceFile, reading: Reading, split: Split | None = None) -> Iterator[TypedBatch]:
    """Typed rows of one file or split, in the tables' schemas with their origin; bad records go to the findings.

    The same records give the same ids, whichever way a file is split.

    Raises:
        BadRequest: the file is missing, unreadable, or its columns don't fit its mapping.
    """
    ndjson = file.format == "ndjson"
    with open_source(file.path) if ndjson else open_tabular(file.path, file.label, file.format) as stream:
        if ndjson:
            start, end = (split.start, split.end) if split is not None else (0, None)
            if start == 0:
                _refuse_no_text(stream, file.label)
            # A split is one task of several at a time; the bytes of Blobs are spooled in the order of the lines.
            alone = split is None and not any(blob_names(e) for e in reading.catalog.by_table_key.values())
            threads = min(4, os.cpu_count() or 1) if alone else 1
            try:
                if file.mapping is not None:
                    yield from read_flat(
                        stream, reading, file.mapping, file=file.index, label=file.label, start=start, end=end
                    )
                    return
                yield from read_ndjson(
                    stream, reading, file=file.index, label=file.label, start=start, end=end, threads=threads
                )
            except OSError as error:  # cut off or damaged compression, a disk or network that fails
                raise unreadable(file.label, file.format, error) from error
            return
        if file.mapping is None:
            raise BadRequest(f"{file.label}: {file.format} needs a mapping", code="missing_mapping")
        groups = (split.start, split.end) if split is not None else None
        near = "://" not in file.path
        yield from read_tabular(
            stream, reading, file.mapping, file.format, file=file.index, label=file.label, row_groups=groups, local=near
        )


# ---- planning -------------------------------------------------------------------------------------------------------


def plan_sources(
    source: Source | None, mapping: Mapping | None, catalog: Catalog, *, format: str | None = None
) -> SourcePlan:
    """Finds the sources and checks the mapping, before a record is read.

    Args:
        source: path(s) or globs, a file object or text with NDJSON records, or tables by name. With a mapping, None
            or a folder means: the mapping's own paths; files are matched with the mapping's patterns.
        format: format of all files; default by suffix.

    Raises:
        BadRequest: a file is missing, no mapping covers it, or the mapping doesn't fit the schema.
    """
    if mapping is not None:
        if not isinstance(mapping, Mapping):
            raise BadRequest(f"mapping is an omnigraph.Mapping, not a {type(mapping).__name__}")
        check_mapping(mapping, catalog)
    if isinstance(source, MappingABC):
        return _plan_tables(source, mapping, catalog)
    if format is not None and format not in _SUFFIXES.values():
        raise BadRequest(f"format {format!r} isn't known: {', '.join(sorted(set(_SUFFIXES.values())))}")
    text = isinstance(source, str) and ("\n" in source or source.lstrip()[:1] == "{")
    if text or hasattr(source, "read"):
        if mapping is not None or format not in (None, "ndjson"):
            raise BadRequest("an open file or a text holds NDJSON records: mappings and other formats are for files")
        if text:
            return _plan_stream(io.StringIO(cast("str", source)), "<text>")
        return _plan_stream(cast("BinaryIO", source))
    names = _paths(source)
    if mapping is not None and not (_all_ndjson(names, format) and not _any_covered(names, mapping)):
        return SourcePlan(_mapped(names, mapping))
    if not names:
        raise BadRequest("nothing to load: name a source", code="missing_source")
    files = []
    for name in names:
        for found in find(name):
            path = found.path
            kind = format or _format(path)
            if kind != "ndjson":
                raise BadRequest(
                    f"{path}: {kind} files need a mapping that says which type their rows are", code="missing_mapping"
                )
            files.append(_file(found, path, kind, None))
    return SourcePlan(files)


def _paths(source: Any) -> list[str]:
    """Raises BadRequest where it isn't paths."""
    if source is None or isinstance(source, (str, os.PathLike)):
        return [] if source is None else [os.fspath(source)]
    paths = list(source) if isinstance(source, Iterable) else [source]
    strange = [p for p in paths if not isinstance(p, (str, os.PathLike))]
    if strange:
        raise BadRequest(
            f"can't load a {type(strange[0]).__name__}: give paths, an open file, a text with NDJSON records, or "
            'tables by type name such as {"Person": table}',
            code="bad_source",
        )
    return [os.fspath(p) for p in paths]


def _all_ndjson(names: list[str], format: str | None) -> bool:
    return bool(names) and all((format or _format(n, "")) == "ndjson" for n in names)


def _any_covered(names: list[str], mapping: Mapping) -> bool:
    return any(m.path is not None and _covers(m.path, name) for m in mapping.sources for name in names)


def _plan_tables(source: MappingABC[str, Any], mapping: Mapping | None, catalog: Catalog) -> SourcePlan:
    files = []
    by_label = {m.label: m for m in mapping.sources} if mapping is not None else {}
    tables = {name: _table(name, given) for name, given in source.items()}
    for i, (name, given) in enumerate(tables.items()):
        table = given.table
        how = by_label.get(name)
        if how is None and mapping is None:
            how = _plain_mapping(name, table, catalog)
        if how is None:
            raise BadRequest(f"the mapping has no source with table: {name}", code="bad_mapping")
        files.append(SourceFile(i, name, "", "table", table.nbytes, how))
    return SourcePlan(files, tables=tables)


def _table(name: Any, given: Any) -> Listed:
    """Arrow, a frame of pandas or polars, or a list of dictionaries as a table.

    Raises:
        BadRequest: it is none of these, or its name is no text.
    """
    if not isinstance(name, str):
        raise BadRequest(f"tables are given by the names of their types, not by {name!r}", code="bad_source")
    try:
        if isinstance(given, list) and all(isinstance(row, dict) for row in given):
            return listed(name, given)
        if isinstance(given, (pa.Table, pa.RecordBatch)) or hasattr(given, "__arrow_c_stream__"):
            table = given if isinstance(given, pa.Table) else pa.table(given)
            _ = table.schema.names  # bytes that are no text can't be told
            return Listed(table, {})
    except UnicodeDecodeError as error:
        raise BadRequest(f"table {name!r}: the name of a column is no UTF-8", code="bad_source") from error
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
        raise BadRequest(f"table {name!r}: {error}", code="bad_source") from error
    raise BadRequest(
        f"table {name!r}: a {type(given).__name__} is no table: give an Arrow table, a DataFrame or a list of "
        "dictionaries",
        code="bad_source",
    )


def _plain_mapping(name: str, table: pa.Table, catalog: Catalog) -> SourceMapping:
    """Columns named as the properties; an edge's ends in `from` and `to`, ids in `id`."""
    columns = set(table.schema.names)
    if name in catalog.nodes:
        own_id = "id" if "id" in columns and not catalog.nodes[name].key else None
        return SourceMapping(table=name, node=name, id=own_id)
    edge = catalog.edge(name)
    if edge is None:
        known = ", ".join([*catalog.nodes, *catalog.edges])
        raise BadRequest(
            f"table {name!r}: no node or edge type has this name; declared: {known or 'none'}", code="unknown_type"
        )
    for end, node in (("from", edge.source), ("to", edge.target)):
        if len(catalog.nodes[node].key) > 1:
            raise BadRequest(f"table {name!r}: {end} needs a mapping, since the key of {node} has several parts")
    plain = SourceMapping(table=name, edge=edge.name, id="id" if "id" in columns and not edge.key else None)
    return plain.model_copy(update={"from_": ["from"], "to": ["to"]})


def _plan_stream(stream: BinaryIO | TextIO, label: str | None = None) -> SourcePlan:
    """Raises BadRequest where the stream can't be read to its end."""
    name = (label or str(getattr(stream, "name", "<stream>"))).encode("utf-8", "backslashreplace").decode()
    descriptor, path = tempfile.mkstemp(suffix=".jsonl", prefix="omnigraph-")
    with ExitStack() as failed:
        failed.callback(os.unlink, path)
        try:
            with os.fdopen(descriptor, "wb") as out:
                while (piece := stream.read(1 << 20)) or piece is None:  # None isn't the end, and refused
                    # Half a character is told with its line.
                    out.write(piece.encode("utf-8", "surrogatepass") if isinstance(piece, str) else piece)
                size = out.tell()
        except (OSError, ValueError, TypeError, EOFError, zlib.error, lzma.LZMAError) as error:  # what readers raise
            why = str(error) or type(error).__name__
            raise BadRequest(
                f"{name}: can't be read: {why}", code="unreadable_source", details={"file": name}
            ) from error
        failed.pop_all()
    return SourcePlan([SourceFile(0, name, path, "ndjson", size)], spooled=path)


def _mapped(names: list[str], mapping: Mapping) -> list[SourceFile]:
    base = str(mapping.base) if mapping.base is not None else ""
    if len(names) == 1 and is_folder(names[0]):
        base, names = names[0], []
    files: list[SourceFile] = []
    if not names:
        for how in mapping.sources:
            if how.path is None:
                raise BadRequest(
                    f"source {how.label!r} of the mapping is a table: only Spark and Python calls can give one"
                )
            pattern = how.path if "://" in how.path or os.path.isabs(how.path) else os.path.join(base, how.path)
            files += [_file(f, _relative(f.path, base), how.format or _format(f.path), how) for f in find(pattern)]
        return files
    for name in names:
        for found in find(name):
            path = found.path
            hit = next((m for m in mapping.sources if m.path is not None and _covers(m.path, path)), None)
            if hit is None:
                patterns = ", ".join(m.label for m in mapping.sources)
                raise BadRequest(f"{path}: no source of the mapping covers it; they are {patterns}", code="bad_mapping")
            files.append(_file(found, path, hit.format or _format(path), hit))
    return files


def _covers(pattern: str, path: str) -> bool:
    return fnmatch(path, pattern) or fnmatch(path, "*/" + pattern.removeprefix("./"))


def _format(path: str, fallback: str | None = None) -> str:
    kind = _SUFFIXES.get(_suffix(path), fallback)
    if kind is None:
        raise BadRequest(f"{path}: the suffix names no format: give one ({', '.join(sorted(set(_SUFFIXES.values())))})")
    return kind


def _suffix(path: str) -> str:
    """What the name ends in, whether the file is packed or not."""
    name = path
    for packed in PACKED:
        name = name.removesuffix(packed)
    return os.path.splitext(name)[1].lower()


def _relative(path: str, base: str) -> str:
    return os.path.relpath(path, base) if base and "://" not in path else path


def _file(found: Found, label: str, format: str, mapping: SourceMapping | None) -> SourceFile:
    if format not in _SUFFIXES.values():
        raise BadRequest(f"{label}: {format} files can't be read; write them as Parquet, ORC, CSV, Arrow or NDJSON")
    tabs = format == "csv" and _suffix(found.path) == ".tsv"
    if mapping is not None and tabs and mapping.options.delimiter is None:
        mapping = mapping.model_copy(update={"options": mapping.options.model_copy(update={"delimiter": "\t"})})
    return SourceFile(0, label, found.path, format, found.size, mapping)
