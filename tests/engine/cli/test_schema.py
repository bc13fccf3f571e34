"""`omnigraph schema plan`: two files, a graph and a file, what people and machines read, and how it ends."""

from __future__ import annotations

from pathlib import Path

import omnigraph

OLD = "node A { k: String @key  x: I32?  y: I32 }\nnode B { z: I32 }\n"


def write(files: Path, **texts: str) -> None:
    for name, text in texts.items():
        (files / f"{name}.pg").write_text(text)


def test_two_files(tmp_path: Path, command) -> None:
    write(tmp_path, old=OLD, new="node A { k: String @key  x: I32?  w: F64 @default(0.5) }")
    ran = command("schema", "plan", tmp_path / "old.pg", tmp_path / "new.pg")
    assert ran.code == 0, ran.err
    *steps, last = ran.out.splitlines()
    assert steps == [
        "AddProperty   node:A.w: F64 @default(0.5)",
        "DropProperty  node:A.y soft OG-DS-104",
        "DropType      node:B soft OG-DS-102",
    ]
    assert last.startswith("3 steps, digest ")
    hard = command("schema", "plan", tmp_path / "old.pg", tmp_path / "new.pg", "--allow-data-loss")
    assert "DropType      node:B hard OG-DS-102" in hard.out


def test_what_can_not_be_done_ends_with_one(tmp_path: Path, command) -> None:
    write(tmp_path, old=OLD, new="node A { k: String @key  x: I32  y: I32 } node B { z: I32 }")
    ran = command("schema", "plan", tmp_path / "old.pg", tmp_path / "new.pg")
    assert ran.code == 1
    assert "UnsupportedChange  node:A.x OG-MF-104 rows may hold null" in ran.out
    assert "not possible: 1 of 1 step is unsupported" in ran.out
    told = command("schema", "plan", tmp_path / "old.pg", tmp_path / "new.pg", "--format", "json")
    assert told.code == 1
    plan = told.json()
    assert plan["supported"] is False
    assert [(s["step"], s["code"]) for s in plan["steps"]] == [("UnsupportedChange", "OG-MF-104")]
    assert len(plan["digest"]) == 64


def test_nothing_to_do(tmp_path: Path, command) -> None:
    write(tmp_path, old=OLD, new="// reordered\nnode B {z:I32}\nnode A { y: I32  x: I32?  k: String  @key(k) }")
    ran = command("schema", "plan", tmp_path / "old.pg", tmp_path / "new.pg")
    assert (ran.code, ran.out) == (0, "nothing to do: both schemas mean the same\n")


def test_a_graph_knows_which_types_have_rows(graph: Path, files: Path, command) -> None:
    schema = (files / "schema.pg").read_text()
    with omnigraph.open(graph) as opened:
        digest = opened.schema.plan(schema + "node Empty { x: I32 }").digest
        assert opened.schema.plan(files / "schema.pg").steps == ()
    write(files, more=schema + "node Empty { x: I32 }")
    ran = command("schema", "plan", graph, "--schema", files / "more.pg")
    assert ran.code == 0, ran.err
    assert ran.out.startswith("AddType  node:Empty { x: I32 }")
    assert digest in ran.out

    write(files, required=schema.replace("age: I32?", "age: I32?  mail: String"))
    refused = command("schema", "plan", graph, "-s", files / "required.pg")
    assert refused.code == 1
    assert "node:Person.mail OG-MF-103" in refused.out

    empty = files / "empty.omni"
    assert command("init", empty, "--schema", files / "schema.pg").code == 0
    assert command("schema", "plan", empty, "-s", files / "required.pg").code == 0
    write(files, less="node Other { a: I32 }")
    dropped = command("schema", "plan", empty, "-s", files / "less.pg", "--format", "json").json()
    assert [s.get("code") for s in dropped["steps"]] == [None, "", ""]


def test_schemas_that_are_wrong_and_calls_that_are(tmp_path: Path, graph: Path, command) -> None:
    write(tmp_path, old=OLD, new="node A { k: Strng }")
    wrong = command("schema", "plan", tmp_path / "old.pg", tmp_path / "new.pg")
    assert wrong.code == 1
    assert f"{tmp_path / 'new.pg'}:1:13: S09" in wrong.err
    assert "did you mean `String`?" in wrong.err
    assert command("schema", "plan", tmp_path / "old.pg").code == 2
    assert command("schema", "plan", tmp_path / "old.pg", tmp_path / "new.pg", "-s", "x.pg").code == 2
    assert command("schema", "plan", graph, tmp_path / "old.pg").code == 0
    missing = command("schema", "plan", tmp_path / "old.pg", tmp_path / "none.pg")
    assert missing.code == 2
    assert "none.pg" in missing.err


def test_show_still_shows(graph: Path, files: Path, command) -> None:
    assert command("schema", "show", graph).out.strip() == (files / "schema.pg").read_text().strip()


def test_apply_shows_what_was_done_and_refuses_another_plan(graph: Path, files: Path, command) -> None:
    schema = (files / "schema.pg").read_text()
    write(files, more=schema.replace("age: I32?", "age: I32?  note: String?") + "node Empty { x: I32 }\n")
    planned = command("schema", "plan", graph, "--schema", files / "more.pg", "--format", "json").json()
    other = command("schema", "apply", graph, files / "more.pg", "--plan", "0" * 64)
    assert other.code == 3
    assert "plan again" in other.err
    ran = command("schema", "apply", graph, files / "more.pg", "--plan", planned["digest"], "--as", "ada", "--json")
    assert ran.code == 0, ran.err
    done = ran.json()
    assert done["plan"]["digest"] == planned["digest"]
    assert {t["table_key"]: (t["action"], t["rows"]) for t in done["tables"]} == {
        "node:Empty": ("created", 0),
        "node:Person": ("changed", 3),
    }
    with omnigraph.open(graph) as opened:
        assert opened.head().id == done["commit"]
        assert opened.commits()[0].actor == "ada"
    again = command("schema", "apply", graph, files / "more.pg")
    assert (again.code, again.out) == (0, "nothing to do: the graph has this schema already\n")
    assert command("schema", "show", graph).out == (files / "more.pg").read_text()


def test_apply_says_what_cannot_be_done(graph: Path, files: Path, command) -> None:
    schema = (files / "schema.pg").read_text()
    write(files, bad=schema.replace("age: I32?", "age: String?").replace("@range(age, 0..150)", ""))
    ran = command("schema", "apply", graph, files / "bad.pg")
    assert ran.code == 1
    assert "OG-MF-106 node:Person.age" in ran.err
    write(files, strict=schema.replace("0..150", "0..30"))
    ran = command("schema", "apply", graph, files / "strict.pg")
    assert ran.code == 1
    assert "Person 'Ada': age is 36, outside @range 0..30" in ran.err
    assert command("branch", "create", graph, "draft").code == 0
    write(files, wider=schema.replace("0..150", "0..200"))
    ran = command("schema", "apply", graph, files / "wider.pg")
    assert ran.code == 3
    assert "draft" in ran.err
