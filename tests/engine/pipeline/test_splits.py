"""Splits cover every record exactly once."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from omnigraph.errors import BadRequest
from omnigraph.pipeline.splits import split_file
from omnigraph.write.sources import SourceFile, Split


def source_file(path: Path, format: str) -> SourceFile:
    return SourceFile(0, path.name, str(path), format, path.stat().st_size)


@pytest.mark.parametrize("limit", [1, 7, 100, 10_000])
def test_ndjson_splits_tile_the_file(tmp_path: Path, limit: int) -> None:
    path = tmp_path / "x.ndjson"
    path.write_bytes(b"x" * 350)
    splits = list(split_file(source_file(path, "ndjson"), limit))
    if limit >= 350:
        assert splits == [None]
        return
    assert [s.start for s in splits if s] == [0, *[s.end for s in splits if s][:-1]]
    assert splits[-1] is not None
    assert splits[-1].end == 350
    assert all(s is not None and s.end - s.start <= limit for s in splits)


def test_parquet_is_cut_between_row_groups(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"a": list(range(1000))}), path, row_group_size=100, compression="none")
    assert list(split_file(source_file(path, "parquet"), 1)) == [Split(i, i + 1) for i in range(10)]
    assert list(split_file(source_file(path, "parquet"), 1 << 30)) == [Split(0, 10)]


def test_compressed_files_are_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "x.ndjson.gz"
    path.write_bytes(b"x" * 350)
    assert list(split_file(source_file(path, "ndjson"), 10)) == [None]


def test_unreadable_parquet_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "broken.parquet"
    path.write_bytes(b"no parquet at all")
    with pytest.raises(BadRequest, match=r"broken\.parquet: not readable as parquet"):
        list(split_file(source_file(path, "parquet"), 10))
