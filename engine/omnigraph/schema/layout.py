"""A small pretty printer: documents that may be laid flat or broken over lines, and the lines they become.

A document is a text without line breaks, a list of documents, or one of the classes below. A group is laid flat if it
fits into the line; else its own line breaks are taken and the groups inside are judged anew. A comment at the end of a
line is held back until that line ends, and doesn't count for its length.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from omnigraph.records import dataclass

__all__ = [
    "WIDTH",
    "Break",
    "Doc",
    "EndComment",
    "Fixed",
    "Group",
    "IfBroken",
    "Indent",
    "Line",
    "join_lines",
    "lay_out",
    "on_one_line",
]

WIDTH = 100
STEP = 2
APART = 24
"""End-of-line comments of neighbouring lines are aligned while the lines' lengths differ by no more."""


@dataclass(slots=True, frozen=True)
class Line:
    """`flat` where its group is flat, else the end of the line. `blank`: and an empty line."""

    flat: str = " "
    blank: bool = False


@dataclass(slots=True, frozen=True)
class Break:
    """The end of the line in any case: the groups around it are broken."""

    blank: bool = False


@dataclass(slots=True, frozen=True)
class Fixed:
    """A further line of a comment, at the left edge, as it was written."""

    text: str


@dataclass(slots=True, frozen=True)
class EndComment:
    """A comment that waits for the end of its line."""

    text: str


@dataclass(slots=True, frozen=True)
class IfBroken:
    """A text that stands only where its group is broken."""

    text: str


class Indent:
    __slots__ = ("broken", "content")

    def __init__(self, content: Doc) -> None:
        self.content = content
        self.broken = _is_broken(content)


class Group:
    """What is laid flat or broken together.

    Args:
        content: the document.
        broken: in any case, whether it fits or not.
        after: broken if that group, which stands before it, was.
    """

    __slots__ = ("after", "broken", "content")

    def __init__(self, content: Doc, *, broken: bool = False, after: Group | None = None) -> None:
        self.content = content
        self.after = after
        self.broken = broken or _is_broken(content)


Doc: TypeAlias = "str | Sequence[Doc] | Line | Break | Fixed | EndComment | IfBroken | Indent | Group"


def _is_broken(doc: Doc) -> bool:
    if isinstance(doc, str | Line):
        return False
    if isinstance(doc, list | tuple):
        return any(map(_is_broken, doc))
    if isinstance(doc, Group | Indent):
        return doc.broken
    return isinstance(doc, Break | Fixed)


class _Lines:
    """The lines so far: each a text and the comment at its end."""

    def __init__(self) -> None:
        self.done: list[tuple[str, str]] = []
        self.pieces: list[str] = []
        self.column = 0
        self.comments: list[str] = []

    def add(self, text: str) -> None:
        self.pieces.append(text)
        self.column += len(text)

    def end(self, indent: int = 0, *, blank: bool = False) -> None:
        self.done.append(("".join(self.pieces).rstrip(), " ".join(self.comments)))
        if blank:
            self.done.append(("", ""))
        self.pieces, self.comments, self.column = [" " * indent] if indent else [], [], indent


def lay_out(doc: Doc) -> list[tuple[str, str]]:
    """The lines of a document: each a text and the comment at its end."""
    lines = _Lines()
    # Indent, whether flat, document. The top is the next one.
    stack: list[tuple[int, bool, Doc]] = [(0, False, doc)]
    while stack:
        indent, flat, doc = stack.pop()
        if isinstance(doc, str):
            lines.add(doc)
        elif isinstance(doc, list | tuple):
            stack.extend((indent, flat, part) for part in reversed(doc))
        elif isinstance(doc, Group):
            if not flat:
                if doc.after is not None and doc.after.broken:
                    doc.broken = True
                flat = not doc.broken and _fits(WIDTH - lines.column, doc.content, stack)
                doc.broken = not flat
            stack.append((indent, flat, doc.content))
        elif isinstance(doc, Indent):
            stack.append((indent + STEP, flat, doc.content))
        elif isinstance(doc, Line):
            if flat:
                lines.add(doc.flat)
            else:
                lines.end(indent, blank=doc.blank)
        elif isinstance(doc, EndComment):
            lines.comments.append(doc.text)
        elif isinstance(doc, IfBroken):
            lines.add("" if flat else doc.text)
        elif isinstance(doc, Break):
            lines.end(indent, blank=doc.blank)
        elif isinstance(doc, Fixed):
            lines.end()
            lines.add(doc.text)
    lines.end()
    return lines.done


def on_one_line(doc: Doc) -> str:
    """A document without any line break, however long, one blank where it has several."""
    parts: list[str] = []
    stack: list[Doc] = [doc]
    while stack:
        doc = stack.pop()
        if isinstance(doc, str):
            parts.append(doc)
        elif isinstance(doc, list | tuple):
            stack.extend(reversed(doc))
        elif isinstance(doc, Group | Indent):
            stack.append(doc.content)
        elif isinstance(doc, Line):
            parts.append(" " if doc.flat else "")
    return "".join(parts)


def _fits(room: int, doc: Doc, after: list[tuple[int, bool, Doc]]) -> bool:
    """Whether a document laid flat, and what follows it up to the next possible end of line, fits into the room."""
    todo: list[tuple[bool, Doc]] = [(True, doc)]
    following = len(after)
    while True:
        if room < 0:
            return False
        if todo:
            flat, doc = todo.pop()
        elif following:
            following -= 1
            _, flat, doc = after[following]
        else:
            return True
        if isinstance(doc, str):
            room -= len(doc)
        elif isinstance(doc, list | tuple):
            todo.extend((flat, part) for part in reversed(doc))
        elif isinstance(doc, Group | Indent):
            todo.append((flat, doc.content))
        elif isinstance(doc, Line):
            if not flat:
                return True
            room -= len(doc.flat)
        elif isinstance(doc, IfBroken):
            room -= 0 if flat else len(doc.text)
        elif not isinstance(doc, EndComment):
            return True


def join_lines(lines: Sequence[tuple[str, str]]) -> str:
    """One text, with the end-of-line comments of neighbouring lines below each other."""
    out: list[str] = []
    index = 0
    while index < len(lines):
        end = index
        while end < len(lines) and lines[end][1] and _margin(lines[end][0]) == _margin(lines[index][0]):
            end += 1
        run = lines[index : max(end, index + 1)]
        lengths = [len(code) for code, _ in run]
        column = max(lengths) if max(lengths) - min(lengths) <= APART else 0
        out += [f"{code:<{column}}  {comment}" if comment else code for code, comment in run]
        index += len(run)
    return "\n".join(out) + "\n" if out else ""


def _margin(code: str) -> int:
    return len(code) - len(code.lstrip())
