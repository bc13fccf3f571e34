"""`omnigraph lint`: what it checks, against which schema, how it says so, and how it ends."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from omnigraph.codes import CODES
from omnigraph.errors import Diagnostic, Span

BAD = "query q() {\n  match { $p: Person }\n  return { $p.nam }\n}\n"
DOUBTFUL = 'query gone() { delete Person where name = "Ada" }\n'


def test_schema_and_queries_in_one_call(files: Path, command) -> None:
    ran = command("lint", files / "schema.pg", files / "queries.gq")
    assert ran.code == 0, ran.out
    assert f"{files / 'schema.pg'}: 1 node and 1 edge type fine" in ran.out
    assert f"{files / 'queries.gq'}: 3 queries fine" in ran.out
    assert "  known_by: read, ok\n    returns name: String\n    reads Knows, Person\n" in ran.out
    assert "  add: mutation, ok\n    writes Person\n" in ran.out


def test_findings_of_every_file(files: Path, command) -> None:
    (files / "bad.gq").write_text(BAD)
    (files / "worse.gq").write_text("query q( {}")
    ran = command("lint", files / "worse.gq", files / "bad.gq", files / "queries.gq", "--schema", files / "schema.pg")
    assert ran.code == 1
    assert f"{files / 'worse.gq'}:1:10: Q000" in ran.out
    place = f"{files / 'bad.gq'}:3:15: T6 Person has no property `nam`\n    return {{ $p.nam }}\n                ^^^\n"
    assert place + "  did you mean `name`?\n" in ran.out
    assert "3 queries fine" in ran.out
    quiet = command("lint", files / "bad.gq", files / "queries.gq", "-s", files / "schema.pg", "--quiet")
    assert "fine" not in quiet.out
    assert "T6" in quiet.out


def test_warnings_fail_when_strict(files: Path, command) -> None:
    (files / "doubtful.gq").write_text(DOUBTFUL)
    told = command("lint", files / "schema.pg", files / "doubtful.gq")
    assert (told.code, "L202" in told.out) == (0, True)
    assert command("lint", files / "schema.pg", files / "doubtful.gq", "--strict").code == 1


def test_a_folder_is_searched(files: Path, command) -> None:
    inner = files / "queries" / "deep"
    inner.mkdir(parents=True)
    (inner / "bad.gq").write_text(BAD)
    for passed_over in (".hidden", "other.omni"):
        (files / passed_over).mkdir()
        (files / passed_over / "_schema.pg").write_text("node")
    ran = command("lint", files)
    assert ran.code == 1
    assert f"{inner / 'bad.gq'}:3:15: T6" in ran.out
    assert "3 queries fine" in ran.out
    assert "_schema.pg" not in ran.out


def test_without_arguments_the_folder_one_is_in(files: Path, command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(files)
    ran = command("lint")
    assert ran.code == 0
    assert ran.out.startswith("queries.gq: 3 queries fine")


def test_a_graph_has_a_schema(graph: Path, files: Path, command) -> None:
    assert command("lint", files / "queries.gq", "--graph", graph).code == 0
    (files / "bad.gq").write_text(BAD)
    assert command("lint", files / "bad.gq", "--graph", graph).code == 1


def test_standard_input(files: Path, command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(BAD))
    ran = command("lint", "-", "--stdin-name", "new.gq", "--schema", files / "schema.pg")
    assert ran.code == 1
    assert "new.gq:3:15: T6" in ran.out
    monkeypatch.setattr("sys.stdin", io.StringIO("node A { x: Strng }"))
    schema = command("lint", "-", "--stdin-name", "new.pg")
    assert "new.pg:1:13: S" in schema.out


def test_a_broken_schema_leaves_the_syntax(files: Path, command) -> None:
    (files / "schema.pg").write_text("node Person { name: Strng }")
    (files / "worse.gq").write_text("query q( {}")
    ran = command("lint", files / "schema.pg", files / "queries.gq", files / "worse.gq")
    assert ran.code == 1
    assert f"{files / 'schema.pg'}:1:21: S" in ran.out
    assert "Q000" in ran.out
    assert "3 queries, syntax fine; not checked against the schema" in ran.out
    queries = command("lint", files / "schema.pg", files / "queries.gq", "-f", "json").json()["files"][1]["queries"]
    assert [q["status"] for q in queries] == ["unchecked"] * 3


def test_which_schema_is_asked_for(files: Path, command) -> None:
    (files / "other.pg").write_text("node A {}")
    assert command("lint", files / "queries.gq").code == 2
    two = command("lint", files)
    assert two.code == 2
    assert "--schema" in two.err
    assert "other.pg" in two.err
    assert command("lint", files, "--schema", files / "schema.pg").code == 0
    assert command("lint", files / "schema.pg", files / "other.pg").code == 0


@pytest.mark.parametrize("args", [("nowhere.gq",), ("README.md",), ("empty",), ("-s", "schema.pg", "-g", "x", "a.gq")])
def test_wrong_calls(args: tuple[str, ...], files: Path, command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(files)
    (files / "README.md").write_text("")
    (files / "empty").mkdir()
    ran = command("lint", *args)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("error: ")


def test_the_report_for_programs(files: Path, command) -> None:
    (files / "all.gq").write_text(BAD + 'query two($x: I32) { delete Person where name = "Ada" }\n')
    report = command("lint", files / "schema.pg", files / "queries.gq", files / "all.gq", "--format", "json").json()
    assert (report["ok"], report["errors"], report["warnings"]) == (False, 1, 1)
    schema, fine, bad = report["files"]
    assert (schema["language"], schema["ok"], schema["findings"]) == ("schema", True, [])
    assert fine["queries"][0] == {
        "name": "everyone",
        "kind": "read",
        "status": "ok",
        "line": 1,
        "column": 7,
        "errors": [],
        "warnings": [],
        "columns": [
            {"name": "name", "kind": "String", "nullable": False},
            {"name": "age", "kind": "I32", "nullable": True},
        ],
        "reads": ["node:Person"],
        "writes": [],
    }
    first, second = bad["queries"]
    assert (first["status"], second["status"], second["writes"]) == ("error", "warning", ["edge:Knows", "node:Person"])
    assert first["errors"] == [
        {
            "code": "T6",
            "severity": "error",
            "message": "Person has no property `nam`",
            "line": 3,
            "column": 15,
            "end_line": 3,
            "end_column": 18,
            "hint": "did you mean `name`?",
            "rule": CODES["T6"].meaning,
        }
    ]
    assert [f["code"] for f in bad["findings"]] == ["T6", "L204"]


def test_annotations(files: Path, command) -> None:
    odd = files / "odd, 100%: name.gq"
    odd.write_text(BAD + DOUBTFUL)
    ran = command("lint", odd, "-s", files / "schema.pg", "--format", "github")
    name = str(odd).replace("%", "%25").replace(",", "%2C").replace(":", "%3A")
    assert ran.out.splitlines() == [
        f"::error file={name},line=3,endLine=3,col=15,endColumn=17,title=T6::"
        "Person has no property `nam`%0Adid you mean `name`?",
        f"::warning file={name},line=5,endLine=5,col=7,endColumn=10,title=L202::"
        "mutation `gone` takes no parameter: it does the same each time",
    ]
    assert ran.code == 1


def test_annotations_escape_what_a_message_holds() -> None:
    from omnigraph.cli.lint import _annotation

    said = _annotation(Diagnostic("T6", "50%\r\n::a, b", Span(0, 9, 1, 2, 2, 1)), "a.gq")
    assert said == "::error file=a.gq,line=1,endLine=2,col=2,title=T6::50%25%0D%0A::a, b"


def test_the_library_lints(files: Path) -> None:
    import omnigraph

    schema = (files / "schema.pg").read_text()
    report = omnigraph.lint(BAD + DOUBTFUL, schema=schema)
    assert isinstance(report, omnigraph.LintReport)
    assert [(q.name, q.kind, q.status) for q in report.queries] == [
        ("q", "read", "error"),
        ("gone", "mutation", "warning"),
    ]
    (error,) = report.queries[0].errors
    assert (error.code, error.span and error.span.line) == ("T6", 3)
    assert not report.ok
    assert str(report).startswith("<query>:3:15: T6")
    assert json.dumps(report.as_dict())
    assert omnigraph.lint(files / "queries.gq", schema=files / "schema.pg").file == str(files / "queries.gq")
    with pytest.raises(omnigraph.LanguageError):
        omnigraph.lint(BAD, schema="node")
