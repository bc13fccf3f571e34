"""The one layout of schema texts (`.pg`)."""

from __future__ import annotations

from collections.abc import Sequence

from omnigraph.schema.concrete import Branch, Leaf, Tree
from omnigraph.schema.layout import Doc
from omnigraph.schema.parser import GRAMMAR
from omnigraph.schema.printing import Printer, is_comma, only_leaf
from omnigraph.schema.source import SourceText

__all__ = ["format_schema"]


def format_schema(text: str, *, file: str = "<schema>") -> str:
    """A schema text in the one layout (rules: `printing`). Formatting it again changes nothing.

    Raises:
        LanguageError: the text doesn't parse.
    """
    return _SchemaPrinter().format(GRAMMAR, SourceText(text, file))


class _SchemaPrinter(Printer):
    def _declaration(self, node: Branch) -> Doc:
        """Words, annotations in their order among them, and a body where there is one."""
        children = node.children
        opens = next((i for i, c in enumerate(children) if isinstance(c, Leaf) and c.text == "{"), len(children))
        head: list[Tree] = []
        for child in children[:opens]:
            if isinstance(child, Branch) and child.rule == "implements":
                names = [c for c in child.children if isinstance(c, Leaf)]
                head += [Branch("implements", list(names)), *child.children[len(names) :]]
            else:
                head.append(child)
        first = next((i for i, c in enumerate(head) if isinstance(c, Branch) and c.rule != "implements"), len(head))
        body = children[opens:]
        words = self.annotated(self._words(head[:first]), head[first:], "{" if body else "")
        if not body:
            return words
        inside = self.listed(
            only_leaf(body[0]),
            body[1:-1],
            only_leaf(body[-1]),
            comma=False,
            apart="  ",
            pad=" ",
            keep=True,
            after=words,
        )
        return [words, inside]

    rule_interface = rule_node = rule_edge = _declaration

    def _words(self, nodes: Sequence[Tree]) -> Doc:
        """`edge Knows: Person -> Person`, `implements A, B`: colons and commas stand at their word, and no comma at the
        end."""
        parts: list[Doc] = []
        for index, node in enumerate(nodes):
            mark = isinstance(node, Leaf) and node.text in (":", ",")
            if is_comma(node) and index + 1 == len(nodes):
                self.drop(only_leaf(node))
            else:
                parts += [self.show(node)] if mark or not index else [" ", self.show(node)]
        return parts

    def rule_implements(self, node: Branch) -> Doc:
        return self._words(node.children)

    def rule_card(self, node: Branch) -> Doc:
        return self.flow(node.children)

    rule_low = rule_high = rule_bare = rule_dated = rule_card
    rule_stray = rule_stray_in_edge = rule_stray_card = rule_card

    def rule_property(self, node: Branch) -> Doc:
        name, colon, kind, *annotations = node.children
        return self.annotated([self.show(name), self.show(colon), " ", self.show(kind)], annotations)

    def rule_columns(self, node: Branch) -> Doc:
        word, opener, *inside, closer = node.children
        return [self.show(word), "(", self.listed(only_leaf(opener), inside, only_leaf(closer))]

    def rule_range(self, node: Branch) -> Doc:
        return [[self.show(child), " "] if is_comma(child) else self.show(child) for child in node.children]

    rule_check = rule_range
