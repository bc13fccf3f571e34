"""Wrong input: each a clear message that names the place, the right exit code, nothing half-visible."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from omnigraph.cli.exits import UsageError, exit_for
from omnigraph.cli.options import parse_at, parse_params
from omnigraph.errors import BadRequest, Conflict, Forbidden, NotFound, RecoveryPending, RowLevelCasContention


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (UsageError("x"), 2),
        (BadRequest("x"), 1),
        (NotFound("x"), 1),
        (Forbidden("x"), 1),
        (Conflict("x"), 3),
        (RowLevelCasContention("main", 5), 3),
        (Conflict("x", code="head_moved"), 4),
        (RecoveryPending("x"), 5),
        (FileNotFoundError(2, "No such file", "a.ndjson"), 1),
    ],
)
def test_exit_codes(error: Exception, status: int) -> None:
    ending = exit_for(error)
    assert ending is not None
    assert ending.status == status


def test_a_bug_has_no_exit_and_keeps_its_traceback() -> None:
    assert exit_for(KeyError("x")) is None


def test_recovery_pending_names_the_command() -> None:
    ending = exit_for(RecoveryPending("a write was interrupted"))
    assert ending is not None
    assert "omnigraph recover" in ending.message


def test_file_errors_name_the_file() -> None:
    ending = exit_for(FileNotFoundError(2, "No such file or directory", "a.ndjson"))
    assert ending is not None
    assert ending.message == "a.ndjson: No such file or directory"


def test_params_say_where_the_json_breaks() -> None:
    with pytest.raises(UsageError, match=r"--params:1:10: not valid JSON"):
        parse_params('{"name": }')
    with pytest.raises(UsageError, match="expected a JSON object"):
        parse_params("[1]")
    for text, problem in {
        "[" * 9_000: "nested too deeply",
        '{"n": ' + "9" * 5_000 + "}": "holds a number of thousands of digits",
        r'{"name": "\ud800"}': "holds half of a surrogate pair",
        '{"n": NaN}': "NaN is no JSON number",
    }.items():
        with pytest.raises(UsageError, match=f"--params: not valid JSON: {problem}"):
            parse_params(text)
    with pytest.raises(UsageError, match="null"):
        parse_params("@a\0b")


def test_at_is_a_version_a_time_or_a_commit() -> None:
    assert parse_at("12") == 12
    assert parse_at("2026-05-01T12:00:00").isoformat() == "2026-05-01T12:00:00+00:00"  # type: ignore[union-attr]
    assert parse_at("01J9ZC4T5E8QK3W7R2N6M1XVYB") == "01J9ZC4T5E8QK3W7R2N6M1XVYB"


def test_a_broken_schema_names_line_and_column(tmp_path: Path, command) -> None:
    schema = tmp_path / "bad.pg"
    schema.write_text("node Person {\n  name: Strin @key\n}\n")
    ran = command("init", tmp_path / "g.omni", "--schema", schema)
    assert ran.code == 1
    assert f"{schema}:2:9" in ran.err
    assert not (tmp_path / "g.omni").exists()


def test_a_broken_query_names_file_line_and_column(graph: Path, files: Path, command) -> None:
    bad = files / "bad.gq"
    bad.write_text("query q() {\n  match { $p: Persn }\n  return { $p.name }\n}\n")
    ran = command("query", graph, bad)
    assert ran.code == 1
    assert f"{bad}:2:15" in ran.err


def test_a_missing_graph_schema_source_or_parameter(graph: Path, files: Path, command) -> None:
    for args in (
        ("query", files / "nowhere.omni", "-e", "query q() { match { $p: Person } return { $p.name } }"),
        ("init", files / "other.omni", "--schema", files / "nowhere.pg"),
        ("load", graph, files / "nowhere.ndjson"),
    ):
        ran = command(*args)
        assert ran.code == 1, args
        assert "nowhere" in ran.err
        assert "Traceback" not in ran.err
    ran = command("query", graph, files / "queries.gq", "-n", "known_by")
    assert ran.code == 1
    assert "name" in ran.err


def test_a_bad_record_leaves_nothing(graph: Path, files: Path, command) -> None:
    bad = files / "bad.ndjson"
    bad.write_text('{"type": "Person", "data": {"name": "Dan"}}\n{"edge": "Knows", "from": "Dan", "to": "Nobody"}\n')
    ran = command("load", graph, bad)
    assert ran.code == 1
    assert "Nobody" in ran.err
    assert ":2" in ran.err or "line 2" in ran.err
    count = command("query", graph, "-e", "query q() { match { $p: Person } return { count($p) as n } }", "-f", "json")
    assert count.json() == [{"n": 3}]


def test_query_and_mutate_refuse_each_other(graph: Path, files: Path, command) -> None:
    assert "mutat" in command("query", graph, files / "queries.gq", "-n", "add", "-p", '{"name": "Dan"}').err
    assert command("mutate", graph, files / "queries.gq", "-n", "everyone").code == 1


def test_contradicting_arguments_are_usage(graph: Path, files: Path, command) -> None:
    assert command("query", graph).code == 2
    assert command("query", graph, files / "queries.gq", "-e", "x").code == 2
    assert command("load", graph).code == 2
    assert command("lint", files / "queries.gq").code == 2
    assert command("nonsense").code == 2
    assert command("query", graph, files / "queries.gq", "-p", "{").code == 2


def _modules_after(*args: str) -> set[str]:
    code = f"import sys\nfrom omnigraph.cli.main import main\nmain({list(args)!r})\nprint('MODULES', *sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    line = next(line for line in ran.stdout.splitlines() if line.startswith("MODULES"))
    return {name.split(".")[0] for name in line.split()[1:]}


HEAVY = {"fastapi", "uvicorn", "kopf", "kubernetes", "pyspark"}


@pytest.mark.parametrize(
    "args", [("--help",), ("version",), ("query", "--help"), ("serve", "--help"), ("up", "--help")]
)
def test_help_imports_nothing_heavy(args: tuple[str, ...]) -> None:
    modules = _modules_after(*args)
    assert not modules & (HEAVY | {"lance", "pyarrow"})


def test_a_query_imports_nothing_of_server_or_operator(graph: Path) -> None:
    modules = _modules_after("query", str(graph), "-e", "query q() { match { $p: Person } return { $p.name } }")
    assert not modules & HEAVY
    assert "lance" in modules


def test_version_and_its_parts(command) -> None:
    short = command("version")
    assert short.out.startswith("omnigraph ")
    assert command("--version").out == short.out
    whole = command("version", "--json").json()
    assert short.out.split()[1] == whole["omnigraph"]
    assert "pyarrow" in whole


def test_every_command_has_examples() -> None:
    import typer

    from omnigraph.cli.main import _MODULES, build

    def walk(node, path: str):
        for name, child in getattr(node, "commands", {}).items():
            if hasattr(child, "commands"):
                yield from walk(child, f"{path} {name}")
            else:
                yield f"{path} {name}", child.help or ""

    found = dict(walk(typer.main.get_command(build()), "omnigraph"))
    # What the operator adds is tested with it.
    own = {"serve", *(name for commands in _MODULES.values() for name in commands)}
    ours = {name: text for name, text in found.items() if name.split()[1] in own}
    assert len(ours) >= 18
    assert [name for name, text in ours.items() if f"{name} " not in text and not text.endswith(name)] == []
