"""The language reference: every example on its pages is run, and what the page shows is what comes out.

After a change on purpose: `OMNIGRAPH_UPDATE_DOCS=1 pytest tests/docs/test_language.py` writes the results anew.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

import omnigraph
from omnigraph.cli.main import main
from omnigraph.errors import LanguageError, OmniGraphError
from omnigraph.query import compile_queries
from omnigraph.query.ir import CompiledQuery
from omnigraph.schema import compile_schema

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs" / "language").glob("*.md"))
UPDATE = bool(os.environ.get("OMNIGRAPH_UPDATE_DOCS"))
_BLOCK = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_WITH = re.compile(r"^// with (\{.*\})\n\s*query ([a-z_][A-Za-z0-9_]*)", re.MULTILINE)


@dataclass
class Block:
    kind: str
    body: str
    line: int
    place: tuple[int, int]  # of the body, in the page


def blocks_of(page: str) -> list[Block]:
    return [
        Block(m[1].strip(), m[2], page[: m.start()].count("\n") + 1, (m.start(2), m.end(2)))
        for m in _BLOCK.finditer(page)
    ]


class Page:
    """Runs a page's blocks from first to last."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.schema = ""
        self.old = ""
        self.graph: Path | None = None
        self.copies = 0

    def run(self, block: Block) -> str | None:
        """What the block gives; None for a block that shows nothing."""
        handler = getattr(self, block.kind.replace(" ", "_"), None)
        assert handler is not None, f"line {block.line}: a block of kind {block.kind!r}"
        out: str | None = handler(block.body)
        return out

    def pg(self, body: str) -> None:
        compile_schema(body)
        self.schema = body

    def pg_refused(self, body: str) -> str:
        with pytest.raises(LanguageError) as caught:
            compile_schema(body)
        return str(caught.value)

    def pg_from(self, body: str) -> None:
        compile_schema(body)
        self.old = body

    def pg_to(self, body: str) -> str:
        (self.folder / "old.pg").write_text(self.old, encoding="utf-8")
        (self.folder / "new.pg").write_text(body, encoding="utf-8")
        return command("schema plan old.pg new.pg", self.folder)

    def pg_new(self, body: str) -> None:
        (self.folder / "new.pg").write_text(body, encoding="utf-8")

    def python(self, body: str) -> None:
        """Shown only; it must be Python."""
        compile(body, "<page>", "exec")

    def console(self, body: str) -> str:
        """Commands on the page's graph as `graph.omni`; ids of commits are cut off, since no run gives them again."""
        assert self.graph is not None, "a command before any data"
        if not (self.folder / "graph.omni").exists():
            shutil.copytree(self.graph, self.folder / "graph.omni")
        lines = [line.removeprefix("$ omnigraph ") for line in body.splitlines()]
        return re.sub(r"\b01[0-9A-Z]{24}\b", "01…", "\n".join(in_process(line, self.folder) for line in lines))

    def ndjson(self, body: str) -> None:
        self.copies += 1
        self.graph = self.folder / f"graph-{self.copies}.omni"
        with omnigraph.init(str(self.graph), schema=self.schema) as graph:
            graph.load(body)

    def gq(self, body: str) -> str:
        assert self.graph is not None, "a query before any data"
        try:
            queries = compile_queries(body, compile_schema(self.schema))
        except LanguageError as error:
            return str(error)
        params = {name: json.loads(given) for given, name in _WITH.findall(body)}
        target = self.graph
        if any(q.kind == "mutation" for q in queries.values()):
            self.copies += 1
            target = self.folder / f"graph-{self.copies}.omni"
            shutil.copytree(self.graph, target)
        with omnigraph.open(str(target)) as graph:
            shown = [one_answer(graph, body, q, params.get(q.name, {})) for q in queries.values()]
        if len(shown) == 1:
            return shown[0]
        return "\n\n".join(f"{name}:\n{text}" for name, text in zip(queries, shown, strict=True))

    def sh(self, body: str) -> None:
        for path in (ROOT / "examples" / "ci").glob("*.[pg][gq]"):
            shutil.copy(path, self.folder)
        for line in body.splitlines():
            assert line.startswith("omnigraph ")
            command(line.removeprefix("omnigraph "), self.folder, check=True)


def one_answer(graph: omnigraph.Graph, text: str, query: CompiledQuery, params: dict[str, object]) -> str:
    try:
        if query.kind == "read":
            return "".join(
                p if isinstance(p, str) else p.decode()
                for p in graph.query(text, params, name=query.name).render("table")
            ).rstrip()
        done = graph.mutate(text, params, name=query.name)
    except OmniGraphError as error:
        return f"{error.code}: {error.message}"
    return f"{counted(done.nodes, 'node')} and {counted(done.edges, 'edge')} changed"


def counted(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"


def in_process(line: str, folder: Path) -> str:
    """What the command prints, without the second that a process of its own takes to start."""
    out = io.StringIO()
    with contextlib.chdir(folder), contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        main(shlex.split(line))
    return out.getvalue().rstrip()


def command(line: str, folder: Path, *, check: bool = False) -> str:
    done = subprocess.run(
        [str(Path(sys.executable).parent / "omnigraph"), *shlex.split(line)],
        cwd=folder,
        env={**os.environ, "NO_COLOR": "1", "COLUMNS": "100"},
        capture_output=True,
        text=True,
    )
    if check:
        assert done.returncode == 0, done.stdout + done.stderr
    return (done.stdout + done.stderr).rstrip()


def trimmed(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.strip("\n").splitlines())


@pytest.mark.parametrize("path", PAGES, ids=lambda p: p.stem)
def test_every_example_gives_what_is_shown(path: Path, tmp_path: Path) -> None:
    page = path.read_text(encoding="utf-8")
    runner = Page(tmp_path)
    wrong: list[str] = []
    got: str | None = None
    edits: list[tuple[tuple[int, int], str]] = []
    for block in blocks_of(page):
        if block.kind != "text":
            assert got is None, f"{path.name}: what the example before line {block.line} gives isn't shown"
            got = runner.run(block)
            continue
        assert got is not None, f"{path.name}:{block.line}: a result without its example"
        if trimmed(got) != trimmed(block.body):
            wrong.append(f"{path.name}:{block.line}: the page shows\n{block.body}\nand this came out\n{got}")
            edits.append((block.place, trimmed(got) + "\n"))
        got = None
    assert got is None, f"{path.name}: what the last example gives isn't shown"
    if UPDATE:
        for (start, end), text in reversed(edits):
            page = page[:start] + text + page[end:]
        path.write_text(page, encoding="utf-8")
        return
    assert not wrong, "\n".join(wrong)


# ---- tables of examples ----


def rows_of(page: str, last: tuple[str, ...]) -> list[list[str]]:
    """The rows of every table whose header ends in these columns; code ticks are kept."""
    rows: list[list[str]] = []
    inside = False
    for line in page.splitlines():
        cells = [c.strip().replace(r"\|", "|") for c in re.split(r"(?<!\\)\|", line)[1:-1]]
        if not line.startswith("|"):
            inside = False
        elif tuple(cells[-len(last) :]) == last:
            inside = True
        elif inside and not set(line) <= set("|-: "):
            rows.append(cells)
    return rows


def code(cell: str) -> str:
    found = re.fullmatch(r"\s*`(.*)`\s*", cell)
    assert found, cell
    return found[1].strip()


FUNCTIONS = rows_of((ROOT / "docs" / "language" / "functions.md").read_text(encoding="utf-8"), ("example", "result"))


@pytest.fixture(scope="module")
def one_node(tmp_path_factory: pytest.TempPathFactory) -> omnigraph.Graph:
    graph = omnigraph.init(
        str(tmp_path_factory.mktemp("functions") / "one.omni"), schema="node One { key: String @key }"
    )
    graph.load('{"type": "One", "data": {"key": "k"}}')
    return graph


def test_there_are_examples() -> None:
    assert len(FUNCTIONS) > 35


@pytest.mark.parametrize("row", FUNCTIONS, ids=lambda row: code(row[-2]))
def test_a_function_gives_what_its_line_says(row: list[str], one_node: omnigraph.Graph) -> None:
    result = one_node.query(f"query q() {{ match {{ $o: One }} return {{ {code(row[-2])} as x }} }}")
    pieces = "".join(p if isinstance(p, str) else p.decode() for p in result.render("json"))
    (shown,) = json.loads(pieces)["rows"] if isinstance(json.loads(pieces), dict) else json.loads(pieces)
    assert json.dumps(shown["x"], ensure_ascii=False, separators=(",", ":")) == code(row[-1])


# ---- the table for those who know Cypher or SQL ----

QUERY_PAGE = (ROOT / "docs" / "language" / "query.md").read_text(encoding="utf-8")
HABITS = rows_of(QUERY_PAGE, ("here", "gives"))


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> omnigraph.Graph:
    page = Page(tmp_path_factory.mktemp("people"))
    for block in blocks_of(QUERY_PAGE):
        if block.kind in ("pg", "ndjson"):
            page.run(block)
    assert page.graph is not None
    return omnigraph.open(str(page.graph))


def test_there_are_ten_habits() -> None:
    assert len(HABITS) == 10


@pytest.mark.parametrize("row", HABITS, ids=lambda row: code(row[-2]))
def test_what_stands_for_cypher_or_sql_gives_what_its_line_says(row: list[str], people: omnigraph.Graph) -> None:
    here = code(row[-2])
    if here.startswith("return "):
        here = f"match {{ $p: Person }} {here}"
    elif not here.startswith("match "):
        here = f"match {{ $p: Person  {here} }} return {{ $p.name }} order {{ $p.name }}"
    rows = people.query(f"query q() {{ {here} }}").to_pylist()
    assert ", ".join(" ".join(shown(value) for value in row.values()) for row in rows) == row[-1]


def shown(value: object) -> str:
    return "∅" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


# ---- the table of codes ----

CODES_PAGE = (ROOT / "docs" / "language" / "codes.md").read_text(encoding="utf-8")
CODES = rows_of(CODES_PAGE, ("code", "meaning", "example"))
CODES_SCHEMA = next(b.body for b in blocks_of(CODES_PAGE) if b.kind == "pg")


def whole_query(example: str) -> str:
    """The query that an example of the page stands for."""
    if example.startswith("query "):
        return example
    if example.startswith(("insert ", "update ", "delete ", "match ")):
        body = example
    elif example.startswith("return "):
        body = f"match {{ $p: Person }} {example}"
    else:
        body = f"match {{ $p: Person {example} }} return {{ $p.name }}"
    return f"query q($n: String, $i: I64, $v: Vector(2)) {{ {body} }}"


def codes_of(kind: str, example: str) -> list[str]:
    if kind == "O":
        from omnigraph.schema import ir_of, plan_migration

        old, new = (compile_schema(code(side)) for side in example.split("→"))
        plan = plan_migration(ir_of(old), new)
        return [c for step in plan.steps if (c := getattr(step, "code", None))]
    if kind == "L":
        report = omnigraph.lint(whole_query(code(example)), schema=CODES_SCHEMA)
        return [d.code for query in report.queries for d in (*query.errors, *query.warnings)]
    try:
        if kind == "S":
            compile_schema(code(example))
        else:
            compile_queries(whole_query(code(example)), compile_schema(CODES_SCHEMA))
    except LanguageError as error:
        return [d.code for d in error.diagnostics]
    return []


@pytest.mark.parametrize("row", CODES, ids=lambda row: row[0])
def test_a_code_is_what_its_example_gives(row: list[str]) -> None:
    found = codes_of(row[0][0], row[2])
    assert row[0] in found
    if row[0][0] in "TQS":
        assert found == [row[0]]


def test_every_code_is_on_the_page() -> None:
    from omnigraph.codes import CODES as KNOWN

    assert [row[0] for row in CODES] == sorted(KNOWN, key=lambda c: [row[0] for row in CODES].index(c))
