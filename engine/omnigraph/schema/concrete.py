"""The concrete tree of a text in either language: every token in its place, and the comments between them.

A syntax tree forgets what has no meaning: commas, parentheses, comments, line breaks. A formatter needs them. This tree
comes of the same tables, one branch a grammar rule, so that nothing of a grammar is said twice.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from dataclasses import field
from functools import lru_cache
from itertools import pairwise
from typing import Any, TypeAlias

from omnigraph.records import dataclass
from omnigraph.schema.driver import Driver, Rule
from omnigraph.schema.grammar import Grammar
from omnigraph.schema.source import SourceText

__all__ = ["Branch", "Comment", "Leaf", "Tree", "first_leaf", "last_leaf", "leaves", "read_tree", "signature"]

# Between two tokens stand white space and comments alone.
_GAP = re.compile(r"(?P<blank>[ \t\r\n\f\ufeff]+)|(?P<comment>//[^\n]*|/\*[\s\S]*?\*/)")
_INSIDE = re.compile(r"\s+|(?P<comment>//[^\n]*|/\*[\s\S]*?\*/)")


@dataclass(slots=True)
class Comment:
    """One comment with its marks. `newline`, `blank`: a line break, an empty line between it and what stands before."""

    text: str
    newline: bool
    blank: bool


@dataclass(slots=True)
class Leaf:
    """One token. `newline` and `blank` as in a comment; `after` are the comments between it and the next token.

    A token may have white space and comments within (`$p /* who */ . name`): `text` is without, `inside` has those.
    """

    kind: str
    text: str
    start_pos: int
    end_pos: int
    newline: bool = False
    blank: bool = False
    after: list[Comment] = field(default_factory=list)
    inside: list[Comment] = field(default_factory=list)


@dataclass(slots=True)
class Branch:
    """What one rule made of its tokens and of other rules'."""

    rule: str
    children: list[Tree]


Tree: TypeAlias = Leaf | Branch


def read_tree(grammar: Grammar, source: SourceText) -> Branch:
    """The tree of a whole text. A leaf without text stands before the first declaration and one after the last.

    Raises:
        LanguageError: with every syntax error that can be told apart.
    """
    start: Any = None
    if source.refusal("") is None:
        with contextlib.suppress(LookupError):
            start = _driver(grammar).parse(source.text)
    if start is None:
        grammar.parse(source)  # says what is wrong
        raise AssertionError("the two ways to parse don't agree")
    size = len(source.text)
    tree = Branch("start", [Leaf("$BEGIN", "", 0, 0), *start.children, Leaf("$END", "", size, size)])
    _read_gaps(source.text, list(leaves(tree)))
    return tree


def signature(tree: Branch) -> tuple[list[str], list[str]]:
    """What no layout may change: the tokens, of which commas alone may come and go, and the comments but for white
    space."""
    texts: list[str] = []
    comments: list[str] = []
    for leaf in leaves(tree):
        if leaf.text != ",":
            texts.append(leaf.text)
        comments += ["".join(c.text.split()) for c in leaf.inside + leaf.after]
    return texts, sorted(comments)


@lru_cache(maxsize=4)
def _driver(grammar: Grammar) -> Driver:
    return Driver(grammar.tables, _callback_of, Leaf)


def _callback_of(rule: Rule) -> Callable[[list[Any]], Any]:
    """Rules that a grammar file marks as inlined, or that its `*` and `+` became, give their children alone."""
    name = rule.origin
    inlined, may_expand = name.startswith("_"), rule.single

    def callback(children: list[Any]) -> Any:
        out: list[Any] = []
        for child in children:
            if isinstance(child, list):
                out += child
            else:
                out.append(child)
        if inlined:
            return out
        return out[0] if may_expand and len(out) == 1 else Branch(name, out)

    return callback


def _read_gaps(text: str, tokens: list[Leaf]) -> None:
    """Hang the comments on their leaves, and note where lines end."""
    for before, leaf in pairwise(tokens):
        newlines = 0
        if leaf.start_pos > before.end_pos:
            for match in _GAP.finditer(text, before.end_pos, leaf.start_pos):
                found = match.group()
                if match.lastgroup == "blank":
                    newlines += found.count("\n")
                else:
                    before.after.append(Comment(_tidy(found), newlines > 0, newlines > 1))
                    newlines = 0
        leaf.newline, leaf.blank = newlines > 0, newlines > 1
        if leaf.kind != "STRING" and _INSIDE.search(leaf.text):
            marks = [m["comment"] for m in _INSIDE.finditer(leaf.text) if m["comment"]]
            leaf.inside = [Comment(_tidy(mark), False, False) for mark in marks]
            leaf.text = _INSIDE.sub("", leaf.text)
    if tokens[0].after:
        tokens[0].after[0].newline = True  # the first line of a text has nothing before it


def _tidy(comment: str) -> str:
    """No white space where a line ends, and lines end the one way."""
    return "\n".join(line.rstrip() for line in comment.split("\n"))


def leaves(tree: Tree) -> Iterator[Leaf]:
    """All tokens in their order."""
    stack: list[Tree] = [tree]
    while stack:
        node = stack.pop()
        if isinstance(node, Leaf):
            yield node
        else:
            stack.extend(reversed(node.children))


def first_leaf(tree: Tree) -> Leaf:
    while isinstance(tree, Branch):
        tree = tree.children[0]
    return tree


def last_leaf(tree: Tree) -> Leaf:
    while isinstance(tree, Branch):
        tree = tree.children[-1]
    return tree
