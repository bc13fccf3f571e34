"""What every command keeps to: examples in its help, and `--json` that leaves one document on standard output."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

from omnigraph.cli.main import build, main
from tests.engine.cli.conftest import Command


def leaves(command: Any, *path: str) -> Iterator[tuple[str, Any]]:
    inner = getattr(command, "commands", None)
    if inner is None:
        yield " ".join(path), command
        return
    for name, one in inner.items():
        yield from leaves(one, *path, name)


EVERY = {
    name: command
    for name, command in leaves(typer.main.get_command(build()))
    if not name.startswith(("task", "operator"))  # the operator starts these
}


def test_every_command_is_found() -> None:
    assert {"query", "schema apply", "branch merge", "commit show", "blob stat", "up", "serve"} <= set(EVERY)


@pytest.mark.parametrize("name", sorted(EVERY))
def test_its_help_has_examples(name: str) -> None:
    text = EVERY[name].help or ""
    assert f"omnigraph {name}" in text[text.index("Examples:") :]


@pytest.mark.parametrize("name", sorted(EVERY))
def test_where_there_are_formats_there_is_json(name: str) -> None:
    options = {option for param in EVERY[name].params for option in param.opts}
    if "--format" in options and name != "get":
        assert "--json" in options


ONE = "query q() { match { $p: Person } return { $p.name as name } }"
ADD = 'query q() { insert Person { name: "Dee" } }'


JSON = [
    (("query", "G", "-e", ONE), None),
    (("explain", "G", "-e", ONE, "--analyze"), "plan"),
    (("mutate", "G", "-e", ADD), "graph_commit_id"),
    (("load", "G", "people.ndjson", "--mode", "merge"), "rows"),
    (("snapshot", "G"), None),
    (("schema", "show", "G"), "source"),
    (("schema", "plan", "G", "schema.pg"), "steps"),
    (("schema", "apply", "G", "schema.pg"), "plan"),
    (("branch", "create", "G", "draft"), "head"),
    (("branch", "list", "G"), None),
    (("branch", "diff", "G", "main@1"), None),
    (("commit", "list", "G"), None),
    (("changes", "G", "--since", "1"), None),
    (("changes", "G", "--since", "1", "--stats"), None),
    (("verify", "G"), "ok"),
    (("recover", "G"), "outcomes"),
    (("repair", "G"), "tables"),
    (("ensure-indices", "G"), "tables"),
    (("optimize", "G"), "tables"),
    (("cleanup", "G", "--keep", "1"), "confirmed"),
    (("embed", "G", "--dry-run"), "missing"),
    (("lint", "schema.pg", "queries.gq"), "ok"),
    (("version",), "omnigraph"),
]


def test_json_is_one_document(graph: Path, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(graph.parent)
    for args, key in JSON:
        ran = command(*[str(graph) if arg == "G" else arg for arg in args], "--json")
        assert ran.code == 0, (args, ran.err)
        found = json.loads(ran.out)
        assert isinstance(found, list) if key is None else key in found, args


def test_a_format_that_is_named_wins_over_the_short_word(graph: Path, command: Command) -> None:
    assert command("branch", "list", graph, "--json", "--format", "csv").out.startswith("name,")


def test_a_plan_is_asked_for_as_it_is_applied(graph: Path, files: Path, command: Command) -> None:
    (files / "new.pg").write_text((files / "schema.pg").read_text().replace("age: I32?", "age: I32?  city: String?"))
    planned = command("schema", "plan", graph, files / "new.pg", "--json")
    assert (planned.code, planned.json()["supported"]) == (0, True)  # type: ignore[index]
    assert command("schema", "plan", graph, "--schema", files / "new.pg", "--json").out == planned.out
    missing = command("schema", "plan", files / "none.pg", files / "new.pg")
    assert (missing.code, "none.pg: no such file" in missing.err) == (2, True)
    twice = command("schema", "plan", graph, files / "new.pg", "--schema", files / "new.pg")
    assert (twice.code, "once" in twice.err) == (2, True)


def test_a_preview_says_how_it_is_carried_out(graph: Path, command: Command) -> None:
    command("mutate", graph, "-e", ADD)
    previewed = command("cleanup", graph, "--keep", "1")
    assert "nothing was removed: --confirm does it" in previewed.out
    assert "--confirm" not in command("cleanup", graph, "--keep", "1", "--confirm").out


def test_main_answers_an_unknown_command_with_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["qurey"]) == 2
    assert "query" in capsys.readouterr().err


def test_parameters_that_are_no_json_are_told_their_shape(graph: Path, command: Command) -> None:
    ran = command("query", graph, "-e", ONE, "--params", "name=Ada")
    assert (ran.code, "--params:1:1: not valid JSON" in ran.err, '{"name": "Ada"}' in ran.err) == (2, True, True)
