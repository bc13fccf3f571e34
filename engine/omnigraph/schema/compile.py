"""From the syntax tree of a schema to its catalog: names resolved, interfaces expanded, constraints checked.

Refusals:
    S01 a name twice                   S07 range: empty or operand      S11 cardinality
    S02 unknown endpoint or interface  S08 reserved name                S12 constraint not allowed here
    S03 interface conflict             S09 property type                S13 annotation's argument
    S04 type can't be a key or unique  S10 default doesn't fit
    S05 constraint names no property
    S06 check: regex or operand
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import replace

from omnigraph.errors import Diagnostic, LanguageError
from omnigraph.schema import ast
from omnigraph.schema.annotations import annotation_values, check_renames
from omnigraph.schema.catalog import Cardinality, Catalog, EdgeType, InterfaceType, NodeType
from omnigraph.schema.grammar import nearest_name
from omnigraph.schema.members import Key, Members, collect_members
from omnigraph.schema.parser import parse_schema
from omnigraph.schema.source import SourceText
from omnigraph.schema.types import BASES

__all__ = ["compile_schema"]

MAX_INHERITED = 100_000
"""Most properties that all node types of a schema take over from interfaces together."""

_BUILT_IN = {name.lower() for name in BASES}


def compile_schema(text: str, *, file: str = "schema.pg", accepted: bool = False) -> Catalog:
    """The catalog of a `.pg` text.

    Args:
        accepted: a graph has this schema; its regular expressions and what its defaults keep aren't judged again, which
            is stricter than it was.

    Raises:
        LanguageError: with every syntax error, or else every refusal S01 to S13, in the text's order.
    """
    source = SourceText(text, file)
    tree = parse_schema(source)
    compiler = _Compiler(source)
    catalog = compiler.catalog(tree)
    if accepted:
        compiler.found = [d for d in compiler.found if d.code not in ("S06", "S10")]
    if compiler.found:
        # A node inherits its interfaces' members, and with them their mistakes: say each once.
        unique = dict.fromkeys(compiler.found)
        ordered = sorted(unique, key=lambda d: d.span.start if d.span else 0)
        raise LanguageError(ordered, text=text, file=file)
    return catalog


class _Silent:
    """Takes refusals that were said before."""

    def refuse(self, code: str, message: str, place: ast.Place, hint: str | None = None) -> None:
        return None


_SILENT = _Silent()


class _Compiler:
    """One schema on its way to a catalog; collects what is wrong with it."""

    def __init__(self, source: SourceText) -> None:
        self.source = source
        self.found: list[Diagnostic] = []
        self.inherited = 0  # properties that node types took over so far

    def refuse(self, code: str, message: str, place: ast.Place, hint: str | None = None) -> None:
        self.found.append(Diagnostic(code, message, self.source.span(*place), hint=hint))

    def catalog(self, tree: ast.SchemaText) -> Catalog:
        declarations = self._named_once(tree.declarations)
        interfaces = {d.name.text: d for d in declarations if isinstance(d, ast.InterfaceNode)}
        expanded = {name: self._interface(d) for name, d in interfaces.items()}
        node_names = {d.name.text for d in declarations if isinstance(d, ast.NodeNode)}
        nodes: dict[str, NodeType] = {}
        edges: dict[str, EdgeType] = {}
        for declaration in declarations:
            if isinstance(declaration, ast.NodeNode):
                nodes[declaration.name.text] = self._node(declaration, expanded)
            elif isinstance(declaration, ast.EdgeNode):
                edges[declaration.name.text] = self._edge(declaration, node_names, set(interfaces))
        for kind in (ast.NodeNode, ast.EdgeNode):
            check_renames(self, [(d.name.text, d.annotations) for d in declarations if isinstance(d, kind)])
        interface_types = {
            name: InterfaceType(
                name, expanded[name].properties, annotation_values(_SILENT, d.annotations, of_type=True)
            )
            for name, d in interfaces.items()
        }
        digest = hashlib.sha256(self.source.text.encode()).hexdigest()
        return Catalog(self.source.text, digest, nodes, edges, interface_types)

    def _named_once(self, declarations: Iterable[ast.Declaration]) -> list[ast.Declaration]:
        seen: dict[str, ast.Declaration] = {}
        for declaration in declarations:
            name = declaration.name
            if name.text.lower() in _BUILT_IN:
                self.refuse("S08", f"`{name.text}` is the name of a built-in type; choose another", name.place)
            earlier = seen.setdefault(name.text.lower(), declaration)
            if earlier is not declaration:
                line = self.source.span(*earlier.name.place).line
                self.refuse(
                    "S01",
                    f"`{name.text}` is declared already, in line {line}"
                    + ("" if earlier.name.text == name.text else f" as `{earlier.name.text}` (case is ignored)"),
                    name.place,
                )
        return list(seen.values())

    def _interface(self, declaration: ast.InterfaceNode) -> Members:
        annotation_values(self, declaration.annotations, of_type=True)
        members = collect_members(self, "interface", declaration.members, ())
        if len(members.keys) > 1:
            self.refuse("S12", "an interface has one key; write one `@key(a, b)`", members.keys[1].place)
        return replace(members, keys=members.keys[:1])

    def _node(self, declaration: ast.NodeNode, interfaces: dict[str, Members]) -> NodeType:
        inherited: list[tuple[str, ast.Place, Members]] = []
        for name in declaration.interfaces:
            if name.text not in interfaces:
                near = nearest_name(name.text, interfaces)
                self.refuse("S02", f"unknown interface `{name.text}`", name.place, near and f"did you mean `{near}`?")
            elif any(name.text == earlier for earlier, _, _ in inherited):
                self.refuse("S02", f"`{name.text}` is implemented twice", name.place)
            elif self._takes_over(len(interfaces[name.text].properties), name):
                inherited.append((name.text, name.place, interfaces[name.text]))
        before = len(self.found)
        members = collect_members(self, "node", declaration.members, tuple(inherited))
        if not all(name.text in interfaces for name in declaration.interfaces):
            # What a constraint misses may be what the unknown interface has.
            self.found[before:] = [d for d in self.found[before:] if d.code != "S05"]
        key = self._node_key(declaration, members)
        indexes = tuple(dict.fromkeys(((key,) if key else ()) + members.indexes))
        return NodeType(
            declaration.name.text,
            members.properties,
            key,
            members.uniques,
            indexes,
            members.ranges,
            members.checks,
            tuple(name for name, _, _ in inherited),
            annotation_values(self, declaration.annotations, of_type=True),
        )

    def _takes_over(self, count: int, name: ast.Name) -> bool:
        """Whether so many properties more still compile in good time; refused (S00) the first time they don't."""
        before, self.inherited = self.inherited, self.inherited + count
        if before <= MAX_INHERITED < self.inherited:
            self.refuse("S00", f"more than {MAX_INHERITED} properties by interfaces", name.place, "split the schema")
        return self.inherited <= MAX_INHERITED

    def _node_key(self, declaration: ast.NodeNode, members: Members) -> tuple[str, ...]:
        if not members.keys:
            return ()
        first, *more = members.keys
        if more and first.interface:
            brought = f"the interface `{first.interface}` brings {_shown(first)}"
            other = f"`{more[0].interface}` {_shown(more[0])}" if more[0].interface else f"this is {_shown(more[0])}"
            self.refuse("S03", f"`{declaration.name.text}` has two keys: {brought}, {other}", more[0].place)
        elif more:
            self.refuse("S12", f"`{declaration.name.text}` has two keys; write one `@key(a, b)`", more[0].place)
        return first.columns

    def _edge(self, declaration: ast.EdgeNode, nodes: set[str], interfaces: set[str]) -> EdgeType:
        for end in (declaration.source, declaration.target):
            if end.text in nodes:
                continue
            if end.text in interfaces:
                self.refuse("S02", f"`{end.text}` is an interface; an edge joins node types", end.place)
            else:
                near = nearest_name(end.text, nodes)
                self.refuse("S02", f"unknown node type `{end.text}`", end.place, near and f"did you mean `{near}`?")
        members = collect_members(self, "edge", declaration.members, ())
        key = self._edge_key(members)
        indexes = tuple(dict.fromkeys(((key,) if key else ()) + members.indexes))
        return EdgeType(
            declaration.name.text,
            declaration.source.text,
            declaration.target.text,
            members.properties,
            key,
            members.uniques,
            indexes,
            self._cardinality(declaration),
            annotation_values(self, declaration.annotations, of_type=True),
        )

    def _edge_key(self, members: Members) -> tuple[str, ...]:
        if not members.keys:
            return ()
        key, *more = members.keys
        if more:
            self.refuse("S12", "an edge type has one key", more[0].place)
        if not {"src", "dst"} <= set(key.columns):
            self.refuse("S12", "an edge's key names both `src` and `dst`: write `@key(src, dst, …)`", key.place)
        return key.columns

    def _cardinality(self, declaration: ast.EdgeNode) -> Cardinality:
        if not declaration.cardinalities:
            return Cardinality()
        card, *more = declaration.cardinalities
        if more:
            self.refuse("S11", "`@card` is given twice", more[0].place)
        if card.min < 0 or (card.max is not None and card.max < 0):
            self.refuse("S11", "a cardinality can't be negative", card.place)
        elif card.max is not None and card.max < max(card.min, 1):
            self.refuse("S11", f"no number of edges lies in {card.min}..{card.max}", card.place)
        return Cardinality(card.min, card.max)


def _shown(key: Key) -> str:
    return f"`@key({', '.join(key.columns)})`"
