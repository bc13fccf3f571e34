"""Printing a concrete tree: what both languages share.

The layout, in four rules:

1. Braces that were written on one line stay on one line if they fit into 100 columns; written over several lines, they
   stay so, each member, clause, item or statement on a line of its own.
2. Parentheses and square brackets, and chains of arithmetic, are broken only where the line would be too long; chains
   of `and`/`or`, `case`, and annotations also where their author broke them.
3. One empty line is kept where one was; between declarations there is one, unless both stand on one line each.
4. A comment on a line of its own stays on it, one at the end of a line stays at the end of it; one amid an expression
   goes to the line above.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from omnigraph.errors import BadRequest, Internal
from omnigraph.records import dataclass
from omnigraph.schema.concrete import Branch, Comment, Leaf, Tree, first_leaf, last_leaf, read_tree, signature
from omnigraph.schema.grammar import Grammar
from omnigraph.schema.layout import (
    Break,
    Doc,
    EndComment,
    Fixed,
    Group,
    IfBroken,
    Indent,
    Line,
    join_lines,
    lay_out,
)
from omnigraph.schema.source import MAX_CHARACTERS, SourceText

__all__ = ["TIGHT", "Printer", "is_comma", "is_tight", "only_leaf"]


@dataclass(slots=True)
class _Gap:
    """What stands before an element of a list, or before the list's end."""

    node: Tree
    comments: list[Comment]
    newline: bool
    blank: bool

    def split(self, *, last: bool) -> tuple[list[Comment], list[Comment]]:
        """The comments at the end of the line before, and those on lines of their own."""
        ends = last or self.newline or any(c.newline for c in self.comments[1:])
        count = next((i for i, c in enumerate(self.comments) if c.newline), len(self.comments)) if ends else 0
        return self.comments[:count], self.comments[count:]


class Printer:
    """From a tree to its text. A method `rule_x` prints the branches of the grammar rule `x`."""

    def __init__(self) -> None:
        self._above: list[list[Comment]] = []
        """For each element that is being printed, the innermost last: the comments found inside it."""

    # ---- a whole text ----

    def format(self, grammar: Grammar, source: SourceText) -> str:
        """The text in the one layout, checked to say the same.

        Raises:
            LanguageError: the text doesn't parse.
            BadRequest: it is nested deeper than anybody writes.
        """
        tree = read_tree(grammar, source)
        said = signature(tree)
        try:
            written: str | None = self.text(tree)
        except RecursionError:
            written = None
        if written is None or len(written) > MAX_CHARACTERS >= len(source.text):
            raise BadRequest(f"{source.file}: nested too deep to be formatted; split the expression")
        if signature(read_tree(grammar, SourceText(written, source.file))) != said:
            raise Internal(f"{source.file}: the formatter would change what it says; please report this text")
        return written

    def text(self, tree: Branch) -> str:
        """The formatted text of a whole tree."""
        begin, *declarations, end = tree.children
        lines: list[tuple[str, str]] = []
        was_long = False
        for gap in _gaps(cast("Leaf", begin), [*declarations, end]):
            last = gap.node is end
            trailing, own = gap.split(last=last)
            if trailing and lines:
                code, comment = lines[-1]
                lines[-1] = code, " ".join([*([comment] if comment else []), *(c.text for c in trailing)])
            above, doc = ([], "") if last else self._element(gap.node)
            printed = [] if last else lay_out(doc)
            is_long = len(printed) > 1
            kept = gap.blank or any(c.blank for c in own)
            forced = bool(lines) and not last and (is_long or was_long) and not kept
            for remark in own:
                if lines and (remark.blank or forced):
                    lines.append(("", ""))
                forced = False
                lines += lay_out(_own_line(remark))
            if lines and (gap.blank or forced) and not last:
                lines.append(("", ""))
            for remark in above:
                lines += lay_out(_own_line(remark))
            lines += printed
            was_long = is_long
        return join_lines(lines)

    # ---- tokens and dispatch ----

    def show(self, node: Tree) -> Doc:
        if isinstance(node, Leaf):
            return self.leaf(node)
        doc: Doc = getattr(self, f"rule_{node.rule}")(node)
        return doc

    def leaf(self, leaf: Leaf) -> Doc:
        """A token. The comments that are left at it go above the element that it stands in."""
        self.drop(leaf)
        return self.spelled(leaf)

    def drop(self, leaf: Leaf) -> None:
        """Save the comments of a token that isn't printed itself."""
        if leaf.after or leaf.inside:
            self._above[-1] += leaf.inside + leaf.after
            leaf.inside, leaf.after = [], []

    def spelled(self, leaf: Leaf) -> str:
        """The token's text."""
        return leaf.text

    # ---- lists ----

    def listed(
        self,
        opener: Leaf,
        inside: Sequence[Tree],
        closer: Leaf,
        *,
        comma: bool = True,
        apart: str = " ",
        pad: str = "",
        keep: bool = False,
        fill: bool = False,
        after: Group | None = None,
    ) -> Doc:
        """What follows an opening token (which the caller prints): elements one a line or all on one, and the closing.

        Args:
            opener: the opening token; its comments are printed here.
            inside: the elements, and the commas between them.
            closer: the closing token; its comments too, unless it ends an element of a list around this one.
            comma: whether commas stand between the elements.
            apart: what stands between elements on one line, after the comma.
            pad: what stands inside the brackets on one line.
            keep: stay on several lines where there was a line break between the elements.
            fill: as many elements in a line as fit.
            after: broken if that group was.
        """
        *elements, end = _gaps(opener, [*inside, closer])
        printed = [self._element(gap.node) for gap in elements]
        commented = any(gap.comments for gap in (*elements, end)) or any(above for above, _ in printed)
        opening: list[Doc] = []
        parts: list[Doc] = []
        for index, gap in enumerate((*elements, end)):
            last = gap is end
            trailing, own = gap.split(last=last)
            if not elements:
                trailing, own = [], gap.comments
            (parts if index else opening).extend(EndComment(c.text) for c in trailing)
            for at, comment in enumerate(own):
                parts += [Break(comment.blank and (index > 0 or at > 0)), _own_line(comment)]
            if last:
                break
            above, doc = printed[index]
            blank = gap.blank and bool(index or own)
            for comment in above:
                parts += [Break(blank), _own_line(comment)]
                blank = False
            following: Doc = "" if not comma else "," if index + 1 < len(elements) else IfBroken(",")
            line = Line(apart if index else pad, blank)
            if fill and index and not commented:
                parts += [Group([line, doc]), following]
            elif len(elements) == 1 and not (commented or keep) and is_tight(gap.node):
                self.drop(closer)
                return [doc, closer.text]
            else:
                parts += [line, doc, following]
        self.drop(closer)
        if not parts:
            return closer.text
        broken = commented or (keep and any(gap.newline for gap in (*elements, end)))
        return [*opening, Group([Indent(parts), Line(pad), closer.text], broken=broken, after=after)]

    def _element(self, node: Tree) -> tuple[list[Comment], Doc]:
        """An element, and the comments inside it that belong on the lines above."""
        self._above.append([])
        doc = self.show(node)
        return self._above.pop(), doc

    def braces(self, nodes: Sequence[Tree], *, comma: bool = False) -> Doc:
        """`{ … }`, both braces included; elements without a comma stand two blanks apart."""
        opener, *inside, closer = nodes
        apart = " " if comma else "  "
        return [
            "{",
            self.listed(only_leaf(opener), inside, only_leaf(closer), comma=comma, apart=apart, pad=" ", keep=True),
        ]

    def body(self, nodes: Sequence[Tree], head: Group, apart: str = "  ") -> Doc:
        """What follows the `{` that its head has printed already."""
        opener, *inside, closer = nodes
        return self.listed(
            only_leaf(opener), inside, only_leaf(closer), comma=False, apart=apart, pad=" ", keep=True, after=head
        )

    def flow(self, nodes: Sequence[Tree], between: str = "") -> list[Doc]:
        """Nodes on one line."""
        parts: list[Doc] = []
        for index, node in enumerate(nodes):
            parts += [between, self.show(node)] if index and between else [self.show(node)]
        return parts

    def annotated(self, words: Doc, annotations: Sequence[Tree], opening: str = "") -> Group:
        """Words, then annotations on the same line or each on a line of its own, then what opens a body."""
        parts: list[Doc] = [words, Indent([[Line(), self.show(a)] for a in annotations])]
        if opening:
            parts += [Line() if annotations else " ", opening]
        return Group(parts, broken=any(first_leaf(a).newline for a in annotations))

    # ---- rules of both grammars ----

    def rule_nullable(self, node: Branch) -> Doc:
        return self.flow(node.children)

    rule_scalar = rule_vector = rule_nullable
    rule_string = rule_int = rule_float = rule_true = rule_false = rule_null = rule_nullable

    def rule_list(self, node: Branch) -> Doc:
        return self.flow(node.children)

    def rule_enum(self, node: Branch) -> Doc:
        word, opener, *inside, closer = node.children
        return [self.show(word), "(", self.listed(only_leaf(opener), inside, only_leaf(closer))]

    def rule_annotation(self, node: Branch) -> Doc:
        word, *rest = node.children
        if not rest:
            return self.show(word)
        return [self.show(word), "(", self.listed(only_leaf(rest[0]), rest[1:-1], only_leaf(rest[-1]))]

    def rule_array(self, node: Branch) -> Doc:
        opener, *inside, closer = node.children
        fill = all(_is_number(n) or is_comma(n) for n in inside)
        return ["[", self.listed(only_leaf(opener), inside, only_leaf(closer), fill=fill)]

    def rule_keyword(self, node: Branch) -> Doc:
        return self.flow(node.children)


def _gaps(opener: Leaf, nodes: Sequence[Tree]) -> list[_Gap]:
    """The elements of a list (the last node is its end), each with what stands before it; commas count for nothing.

    Takes the comments away from their tokens.
    """
    found: list[_Gap] = []
    comments, opener.after = opener.after, []
    newline = blank = False
    for node in nodes:
        first, last = first_leaf(node), last_leaf(node)
        newline, blank = newline or first.newline, blank or first.blank
        if is_comma(node):
            if first.after:
                first.after[0].newline |= newline
                first.after[0].blank |= blank
                newline = blank = False
            comments = comments + first.after
            first.after = []
            continue
        found.append(_Gap(node, comments, newline, blank))
        newline = blank = False
        comments = []
        if node is not nodes[-1]:
            comments, last.after = last.after, []
    return found


def _own_line(comment: Comment) -> Doc:
    """A comment as lines. One with a star before each line follows its new indent, any other stays as it is."""
    first, *rest = comment.text.split("\n")
    if all(line.lstrip().startswith("*") for line in rest):
        return [first, *[part for line in rest for part in (Break(), " " + line.lstrip())]]
    return [first, *map(Fixed, rest)]


def only_leaf(node: Tree) -> Leaf:
    assert isinstance(node, Leaf)
    return node


def is_comma(node: Tree) -> bool:
    return isinstance(node, Leaf) and node.text == ","


def _is_number(node: Tree) -> bool:
    if isinstance(node, Branch) and node.rule == "negative":
        return _is_number(node.children[1])
    return isinstance(node, Branch) and node.rule in ("int", "float")


def is_tight(node: Tree) -> bool:
    """Whether a node alone in its brackets is never put on a line of its own: breaking there would win nothing."""
    return isinstance(node, Leaf) or len(node.children) == 1 or node.rule in TIGHT


TIGHT = ("array", "call", "block", "case", "list", "dated", "distinct", "keyword")
