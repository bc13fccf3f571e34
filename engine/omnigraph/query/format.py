"""The one layout of query texts (`.gq`)."""

from __future__ import annotations

from collections.abc import Sequence

from omnigraph.query.parser import GRAMMAR
from omnigraph.schema.concrete import Branch, Leaf, Tree, first_leaf, leaves, read_tree
from omnigraph.schema.layout import Doc, Group, IfBroken, Indent, Line, on_one_line
from omnigraph.schema.printing import TIGHT, Printer, is_comma, is_tight, only_leaf
from omnigraph.schema.source import SourceText

__all__ = ["format_queries", "plain_words"]

# Tokens of two words; what stands between them isn't a part of the token.
_TWO_WORDS = {"NOT_IN": "not in", "_SHORTEST": "= shortest"}


def format_queries(text: str, *, file: str = "<query>") -> str:
    """A query text in the one layout (rules: `omnigraph.schema.printing`). Formatting it again changes nothing.

    Raises:
        LanguageError: the text doesn't parse.
    """
    return _QueryPrinter().format(GRAMMAR, SourceText(text, file))


def plain_words(expression: str) -> str:
    """An expression that parses, as the formatter writes it but on one line, without comments and the `$` of names: the
    same words for every layout of it."""
    tree = read_tree(GRAMMAR, SourceText(f"query q() {{ match {{ x }} return {{ {expression} }} }}", "expression"))
    for leaf in leaves(tree):
        leaf.after, leaf.inside = [], []
        if leaf.kind != "STRING":
            leaf.text = leaf.text.removeprefix("$")
    query = tree.children[1]
    assert isinstance(query, Branch)
    returned = next(n for n in query.children if isinstance(n, Branch) and n.rule == "return")
    return on_one_line(_QueryPrinter().show(returned.children[2]))


class _QueryPrinter(Printer):
    def spelled(self, leaf: Leaf) -> str:
        return _TWO_WORDS.get(leaf.kind, leaf.text)

    # ---- queries ----

    def rule_query(self, node: Branch) -> Doc:
        word, name, opener, *rest = node.children
        close = next(i for i, n in enumerate(rest) if isinstance(n, Leaf) and n.text == ")")
        parameters, closer = rest[:close], only_leaf(rest[close])
        brace = next(i for i, n in enumerate(rest) if isinstance(n, Leaf) and n.text == "{")
        annotations, body = rest[close + 1 : brace], rest[brace:]
        words: list[Doc] = [self.show(word), " ", self.show(name)]
        words += ["(", self.listed(only_leaf(opener), parameters, closer)]
        head = self.annotated(words, annotations, "{")
        reads = isinstance(body[1], Branch) and body[1].rule == "match"
        return [head, self.body(body, head, " " if reads else "  ")]

    def rule_param(self, node: Branch) -> Doc:
        var, colon, kind = node.children
        return [self.show(var), self.show(colon), " ", self.show(kind)]

    rule_assignment = rule_param

    def _block(self, node: Branch) -> Doc:
        """Words, then braces: `match { … }`, `return distinct { … }`, `insert Type { … }`."""
        children = node.children
        opens = next(i for i, n in enumerate(children) if isinstance(n, Leaf) and n.text == "{")
        comma = node.rule in ("return", "order", "insert")
        words = self.flow(children[:opens], " ")
        return [
            *words,
            " ",
            self.braces(children[opens:], comma=comma),
        ]

    rule_match = rule_return = rule_order = rule_insert = rule_negation = rule_optional = rule_block = _block

    def _spaced(self, node: Branch) -> Doc:
        return self.flow(node.children, " ")

    rule_item = rule_order_key = rule_limit = rule_skip = rule_distinct = rule_delete = _spaced
    rule_not = rule_is_null = rule_traversal = rule_shortest = rule_else = _spaced

    def _tight(self, node: Branch) -> Doc:
        return self.flow(node.children)

    rule_edge = rule_undirected = rule_hops = rule_negative = _tight
    rule_statement = rule_filter = rule_var = rule_prop = rule_name = _tight

    def rule_update(self, node: Branch) -> Doc:
        word, kind, set_, *body, where, condition = node.children
        words = self.flow([word, kind, set_], " ")
        return [*words, " ", self.braces(body, comma=True), " ", *self.flow([where, condition], " ")]

    # ---- clauses ----

    def rule_binding(self, node: Branch) -> Doc:
        var, colon, kind, *match = node.children
        words: list[Doc] = [self.show(var), self.show(colon), " ", self.show(kind)]
        if match:
            words += [" ", self.braces(match, comma=True)]
        return words

    def rule_hop_filter(self, node: Branch) -> Doc:
        opener, inner, closer = node.children
        return Group([self.show(opener), Indent([Line(""), self._inside(inner)]), Line(""), self.show(closer)])

    # ---- expressions ----

    rule_parenthesised = rule_hop_filter

    def _inside(self, node: Tree) -> Doc:
        """What stands in brackets of its own needs no further indent."""
        return self._chain(node, indent=False) if isinstance(node, Branch) and node.rule in _CHAINS else self.show(node)

    def _chain(self, node: Branch, *, indent: bool = True) -> Doc:
        first, *rest = node.children
        kept = node.rule in ("and", "or") and any(first_leaf(n).newline for n in rest)
        head = self.show(first)
        tail: list[Doc] = []
        for operator, operand in zip(rest[::2], rest[1::2], strict=True):
            tail.append([Line(), self.show(operator), " ", self.show(operand)])
        return Group([head, Indent(tail) if indent else tail], broken=kept)

    rule_or = rule_and = rule_sum = rule_product = _chain

    def rule_comparison(self, node: Branch) -> Doc:
        left, operator, right = node.children
        if _is_bracketed(left) or _is_bracketed(right):
            return self.flow(node.children, " ")
        return Group([self.show(left), Indent([Line(), *self.flow([operator, right], " ")])])

    def rule_call(self, node: Branch) -> Doc:
        word, opener, *inside, closer = node.children
        arguments = [n for n in inside if not is_comma(n)]
        words = self.flow([word, opener])
        if len(arguments) == 1 and is_tight(arguments[0]):
            return [*words, *self._separated(inside, ""), self.show(closer)]
        if not arguments:
            return [*words, self.show(closer)]
        parts = self._separated(inside, [",", Line()])
        return Group([*words, Indent([Line(""), *parts]), IfBroken(","), Line(""), self.show(closer)])

    def _separated(self, nodes: Sequence[Tree], separator: Doc) -> list[Doc]:
        parts: list[Doc] = []
        for node in nodes:
            if is_comma(node):
                self.drop(only_leaf(node))
            else:
                parts += [separator, self._inside(node)] if parts else [self._inside(node)]
        return parts

    def rule_case(self, node: Branch) -> Doc:
        word, *branches, end = node.children
        return ["case", self.listed(only_leaf(word), branches, only_leaf(end), comma=False, pad=" ", keep=True)]

    def rule_when(self, node: Branch) -> Doc:
        when, condition, then, value = node.children
        return Group([*self.flow([when, condition], " "), Indent([Line(), *self.flow([then, value], " ")])])


_CHAINS = ("or", "and", "sum", "product")


def _is_bracketed(node: Tree) -> bool:
    return isinstance(node, Branch) and node.rule in (*TIGHT, "parenthesised")
