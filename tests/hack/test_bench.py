"""The benchmark judges by what was measured, and times nothing whose answers differ."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from hack.bench import data
from hack.bench.compare import Figures, _differences
from hack.bench.lines import Line, social_lines, study_lines
from hack.bench.systems.product import _SCHEMAS
from hack.bench.table import print_table
from omnigraph.query import bind_params, compile_query
from omnigraph.schema import compile_schema


def test_the_ratio_is_to_the_fastest_peer_and_decides(capsys: pytest.CaptureFixture[str]) -> None:
    figures = Figures("x", "a line", 0.5, {"omnigraph": [1, 2, 3], "kuzu": [4, 8, 9], "duckdb": [5, 5, 5]})
    assert figures.ratio(Figures.p50) == 0.4
    assert figures.ratio(Figures.best) == 0.25
    print_table([figures], ["omnigraph", "kuzu", "duckdb"])
    assert (
        "| a line | 2.00 (1.00) | 8.00 (4.00) | 5.00 (5.00) | 0.40 | 0.25 |  | ≤ 0.5 | met |" in capsys.readouterr().out
    )
    figures.aim = 0.3
    print_table([figures], ["omnigraph", "kuzu", "duckdb"])
    assert "MISSED" in capsys.readouterr().out


def test_other_answers_end_the_run() -> None:
    line = Line("x", "a line", None, "")
    assert _differences(line, {"a": [[1, 0.1 + 0.2], [2, 1.0]], "b": [[2, 1.0], [1, 0.3]]}) == []
    for other in ([[1, 0.3]], [[1, 0.3], [2, 1.1]], [[1, 0.3], [3, 1.0]]):
        with pytest.raises(SystemExit, match="differ"):
            _differences(line, {"a": [[1, 0.3], [2, 1.0]], "b": other})
    with pytest.raises(SystemExit, match="differ"):
        _differences(Line("x", "", None, "", ordered=True), {"a": [[1], [2]], "b": [[2], [1]]})
    search = Line("x", "", None, "", check="overlap")
    assert _differences(search, {"a": [["k"], ["l"], ["m"]], "b": [["m"], ["l"], ["z"]]}) == ["2 of 3 rows as b"]
    with pytest.raises(SystemExit, match="other rows"):
        _differences(search, {"a": [["k"], ["l"], ["m"]], "b": [["m"], ["y"], ["z"]]})


@pytest.mark.parametrize(("name", "lines"), [("social", social_lines(1)), ("study", study_lines())])
def test_every_question_compiles_and_takes_its_parameters(name: str, lines: list[Line]) -> None:
    catalog = compile_schema(_SCHEMAS[name])
    for line in lines:
        compiled = compile_query(line.gq, catalog)
        for params in line.params:
            bind_params(compiled, params)


def test_the_generated_pairs_differ_and_the_same_seed_gives_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data, "PERSONS", 400)
    made = []
    for folder in (tmp_path / "a", tmp_path / "b"):
        folder.mkdir()
        data.make_social(folder, 1, knows=1500, works=300)
        made.append([pq.read_table(folder / f"{n}.parquet") for n in ("persons", "companies", "knows", "works")])
    assert all(one.equals(other) for one, other in zip(*made, strict=True))
    knows = made[0][2].to_pylist()
    assert len({(row["src"], row["dst"]) for row in knows}) == len(knows) == 1500
    assert all(row["src"] != row["dst"] for row in knows)
