"""Grammars built by the grammar library: for the tables that lie beside each grammar, and for texts with a mistake.

`python hack/grammars.py` writes the tables anew; a test holds them to their grammars. Tables of another grammar than
the one beside them are never used.

What the library builds is kept under the user's cache folder too: a file named after the digest of everything it
depends on, its own digest in front. A missing, damaged or foreign file is rebuilt, and a folder that can't be written
costs only the time to build.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import itertools
import json
import os
import re
import sys
import tempfile
from pathlib import Path
from re import _constants, _parser  # its own reading of an expression
from typing import Any

import lark
from lark import Lark
from lark.parsers.lalr_analysis import Shift

from omnigraph.caches import cache_folder
from omnigraph.schema.driver import Rule, Tables

__all__ = ["build", "make_tables", "to_text"]


def build(text: str, filename: str, callbacks: object) -> Lark:
    """The grammar as the library parses it: from the cache, or built and put there."""
    digest = hashlib.sha256("\n".join((lark.__version__, sys.version, text)).encode()).hexdigest()
    path = cache_folder() / "grammars" / f"{filename.removesuffix('.lark')}-{digest[:32]}"
    stored = _read_cache(path)
    if stored is not None:
        return Lark.__new__(Lark)._load(stored, transformer=callbacks)
    built = Lark(text, parser="lalr", lexer="contextual", transformer=callbacks, maybe_placeholders=False)
    buffer = io.BytesIO()
    built.save(buffer, exclude_options=("transformer",))
    _write_cache(path, buffer.getvalue())
    return built


def make_tables(text: str, grammar: Lark) -> Tables:
    """The tables of a built grammar. The same grammar gives the same tables, in whatever order the library built it."""
    front = grammar.parser
    table, root = front.parser.parser.parse_table, front.lexer.root_lexer
    rules = sorted(grammar.rules, key=str)
    number = {rule: at for at, rule in enumerate(rules)}
    terminals = [t for t in root.terminals if t.name not in root.ignore_types]
    lexers = {id(lexer): lexer for lexer in front.lexer.lexers.values()}.values()
    if any(lexer.scanner and lexer.callback for lexer in lexers):
        raise ValueError("two terminals that may stand at one place can't be told apart by their patterns alone")
    start = table.start_states["start"]
    order = {start: 0}
    for state in (queue := [start]):
        for _, (action, to) in sorted(table.states[state].items()):
            if action is Shift and to not in order:
                order[to] = len(order)
                queue.append(to)
    rows = [
        " ".join(
            f"{symbol}:{order[to] if action is Shift else -1 - number[to]}"
            for symbol, (action, to) in sorted(table.states[state].items())
        )
        for state in queue
    ]
    distinct = list(dict.fromkeys(rows))
    return Tables(
        hashlib.sha256(text.encode()).hexdigest(),
        [list(_rule(rule)) for rule in rules],
        [[t.name, t.pattern.to_regexp(), _needs(t.pattern.to_regexp())] for t in terminals],
        distinct,
        [distinct.index(row) for row in rows],
        order[table.end_states["start"]],
    )


_CHOICES = 12
"""A set of more characters than this isn't worth looking for in a text."""


def _needs(expression: str) -> list[list[str]]:
    """Texts of which one of each list is in every text that a regular expression matches somewhere."""
    read = _parser.parse(expression)
    return [] if read.state.flags & re.IGNORECASE else _needs_of(read)


def _needs_of(parts: Any) -> list[list[str]]:
    needs: list[list[str]] = []
    for literal, group in itertools.groupby(parts, key=lambda part: part[0] is _constants.LITERAL):
        if literal:
            needs.append(["".join(chr(letter) for _, letter in group)])
            continue
        for kind, value in group:
            match kind:
                case _constants.IN:
                    needs += _one_of_few(value)
                case _constants.SUBPATTERN:
                    needs += _needs_of(value[-1])
                case _constants.MAX_REPEAT if value[0] > 0:
                    needs += _needs_of(value[-1])
                case _constants.ASSERT:
                    needs += _needs_of(value[1])
                case _constants.BRANCH:
                    each = [_needs_of(branch) for branch in value[1]]
                    if all(each):
                        needs.append(sorted({text for need in each for text in min(need, key=len)}))
    return needs


def _one_of_few(parts: Any) -> list[list[str]]:
    """What a set of characters needs: one of them, where they are few."""
    letters: list[int] = []
    for kind, value in parts:
        match kind:
            case _constants.LITERAL:
                letters.append(value)
            case _constants.RANGE if value[1] - value[0] < _CHOICES:
                letters += range(value[0], value[1] + 1)
            case _:
                return []
    return [[chr(letter) for letter in letters]] if len(letters) <= _CHOICES else []


def _rule(rule: Any) -> Rule:
    options, kept = rule.options, []
    for at, symbol in enumerate(rule.expansion):
        if options.keep_all_tokens or not (symbol.is_term and symbol.filter_out):
            kept.append([at, int(not symbol.is_term and symbol.name.startswith("_"))])
    whole = kept == [[at, 0] for at in range(len(rule.expansion))]
    return Rule(
        str(rule.origin.name), rule.alias or "", len(rule.expansion), bool(options.expand1), None if whole else kept
    )


def to_text(tables: Tables) -> str:
    """As it lies in the file: JSON, one row a line."""
    lines = []
    for name, value in tables._asdict().items():
        if isinstance(value, list) and name != "states":
            shown = "[\n" + ",\n".join(json.dumps(one, separators=(",", ":")) for one in value) + "\n]"
        else:
            shown = json.dumps(value, separators=(",", ":"))
        lines.append(f'"{name}":{shown}')
    return "{" + ",\n".join(lines) + "}\n"


def _read_cache(path: Path) -> io.BytesIO | None:
    """The stored grammar, or None when there is none that may be trusted: ours alone to write, and undamaged."""
    try:
        with path.open("rb") as file:
            if hasattr(os, "getuid") and os.fstat(file.fileno()).st_uid != os.getuid():
                return None
            digest, payload = file.read(32), file.read()
    except OSError:
        return None
    return io.BytesIO(payload) if hashlib.sha256(payload).digest() == digest else None


def _write_cache(path: Path, payload: bytes) -> None:
    """Store by rename, so that readers see a whole file or none. A folder that can't be written is no error."""
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(hashlib.sha256(payload).digest() + payload)
            os.replace(temporary, path)
        except OSError:
            os.unlink(temporary)
            raise
