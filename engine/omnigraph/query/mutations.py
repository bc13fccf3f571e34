"""A mutation's body: insert, update and delete statements to IR."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from omnigraph.query import ast
from omnigraph.query.assign import assigned
from omnigraph.query.expressions import check
from omnigraph.query.ir import Call, Delete, Expr, InsertEdge, InsertNode, Lit, Statement, UpdateNode
from omnigraph.query.scope import Bare, Refused, Scope, did_you_mean
from omnigraph.query.unify import shown
from omnigraph.schema.ast import Name
from omnigraph.schema.catalog import EdgeType, NodeType, Property, Type, table_key
from omnigraph.schema.literals import Literal

__all__ = ["check_mutation"]

Values = tuple[tuple[str, Expr], ...]


def check_mutation(
    name: str, statements: tuple[ast.Statement, ...], scope: Scope
) -> tuple[tuple[Statement, ...], frozenset[str], frozenset[str]]:
    """Statements, table keys read and table keys written; refusals are noted in the scope."""
    deletes = [s for s in statements if isinstance(s, ast.DeleteNode)]
    if deletes and len(deletes) < len(statements):
        other = isinstance(statements[0], ast.DeleteNode)
        odd = next(s for s in statements if isinstance(s, ast.DeleteNode) is not other)
        message = f"query `{name}` both deletes and inserts or updates"
        scope.refuse(Refused("Q000", message, odd.place, "split it in two: one that deletes, one that writes"))
    scope = replace(scope, mutation=True, searches=False, blocks=False)
    out: list[Statement] = []
    for statement in statements:
        with scope.collecting():
            out.append(_statement(statement, scope))
    reads: set[str] = set()
    writes: set[str] = set()
    for done in out:
        _touched(done, scope, reads, writes)
    return tuple(out), frozenset(reads), frozenset(writes)


def _touched(statement: Statement, scope: Scope, reads: set[str], writes: set[str]) -> None:
    catalog = scope.catalog
    if isinstance(statement, InsertEdge):
        edge = catalog.edges[statement.edge]
        reads |= {table_key("node", edge.source), table_key("node", edge.target)}
        writes.add(edge.table_key)
    elif isinstance(statement, Delete):
        writes.add(table_key(statement.kind, statement.type))
        reads.add(table_key(statement.kind, statement.type))
        if statement.kind == "node":  # its edges go with it
            writes |= {e.table_key for e in catalog.edges_at(statement.type)}
    else:
        writes.add(table_key("node", statement.node))
        if isinstance(statement, UpdateNode):
            reads.add(table_key("node", statement.node))


def _statement(statement: ast.Statement, scope: Scope) -> Statement:
    if isinstance(statement, ast.Insert):
        return _insert(statement, scope)
    if isinstance(statement, ast.Update):
        return _update(statement, scope)
    type_ = _type(statement.type, scope)
    kind: str = "node" if isinstance(type_, NodeType) else "edge"
    return Delete("node" if kind == "node" else "edge", type_.name, _where(statement.where, type_, scope))


def _type(name: Name, scope: Scope) -> NodeType | EdgeType:
    catalog = scope.catalog
    found = catalog.nodes.get(name.text) or catalog.edges.get(name.text) or catalog.edge(name.text)
    if found is None:
        implementing = [node.name for node in catalog.nodes.values() if name.text in node.interfaces]
        hint = did_you_mean(name.text, iter([*catalog.nodes, *catalog.edges]))
        if implementing:
            hint = f"`{name.text}` is an interface; write {' or '.join(implementing)}"
        raise Refused("T10", f"unknown type `{name.text}`", name.place, hint)
    return found


# ---- insert ----


def _insert(statement: ast.Insert, scope: Scope) -> Statement:
    type_ = _type(statement.type, scope)
    if not statement.values:
        hint = "write `name: value` for each property"
        raise Refused("T10", f"nothing is given to the new {type_.name}", statement.type.place, hint)
    given = _once(statement.values)
    if isinstance(type_, NodeType):
        values = _values(given, type_, scope)
        _complete(type_, given, {}, statement, scope)
        return InsertNode(type_.name, values)
    nodes = {"from": type_.source, "to": type_.target}
    ends: dict[str, Expr] = {}
    for word, node in nodes.items():
        if word in given:
            with scope.collecting():
                ends[word] = _endpoint(given[word], scope.catalog.nodes[node], scope)
    values = _values({name: a for name, a in given.items() if name not in nodes}, type_, scope)
    _complete(type_, given, nodes, statement, scope)
    if len(ends) < len(nodes):
        raise Refused("", "an end was refused", statement.place)
    return InsertEdge(type_.name, ends["from"], ends["to"], values)


def _once(assignments: tuple[ast.Assignment, ...]) -> dict[str, ast.Assignment]:
    given: dict[str, ast.Assignment] = {}
    for assignment in assignments:
        if assignment.name.text in given:
            raise Refused("T13", f"`{assignment.name.text}` is assigned twice", assignment.name.place)
        given[assignment.name.text] = assignment
    return given


def _values(given: Mapping[str, ast.Assignment], type_: NodeType | EdgeType, scope: Scope) -> Values:
    out: list[tuple[str, Expr]] = []
    for name, assignment in given.items():
        with scope.collecting():
            if name not in type_.properties:
                message = f"{type_.name} has no property `{name}`"
                raise Refused("T11", message, assignment.name.place, _property_hint(name, type_))
            out.append((name, assigned(assignment.value, type_.properties[name].type, scope)))
    return tuple(out)


def _property_hint(name: str, type_: NodeType | EdgeType) -> str | None:
    if name == "id":
        return "an id is made of the key" if type_.key else "an id is made by the graph"
    if isinstance(type_, EdgeType) and name in ("src", "dst"):
        return f"write `{'from' if name == 'src' else 'to'}:` and the node's key"
    ends = ("from", "to") if isinstance(type_, EdgeType) else ()
    return did_you_mean(name, iter([*type_.properties, *ends]))


def _complete(
    type_: NodeType | EdgeType, given: Mapping[str, object], ends: Mapping[str, str], node: ast.Insert, scope: Scope
) -> None:
    """T12 for what is required and isn't given; where a name was misspelt that says enough."""
    if set(given) - set(type_.properties) - set(ends):
        return
    needed = [
        p.name
        for p in type_.properties.values()
        if not p.type.nullable and not p.has_default and not _made_from(p, type_, given)
    ]
    missing = [f"`{word}:`, the key of a {node}" for word, node in ends.items() if word not in given]
    missing += [f"`{name}`" for name in needed if name not in given]
    if missing:
        scope.refuse(Refused("T12", f"{type_.name} needs {', '.join(missing)}", node.type.place))


def _made_from(prop: Property, type_: NodeType | EdgeType, given: Mapping[str, object]) -> bool:
    """Whether an `@embed` makes the property from a text that is there."""
    if prop.embed is None:
        return False
    source = type_.properties.get(prop.embed.source)
    return prop.embed.source in given or (source is not None and source.has_default)


def _endpoint(assignment: ast.Assignment, node: NodeType, scope: Scope) -> Expr:
    """The key of an edge's end: a value of the key property, the list of a composite key's parts, or a keyless id."""
    value = assignment.value
    if len(node.key) <= 1:
        type_ = node.properties[node.key[0]].type if node.key else Type("String")
        return assigned(value, type_, scope)
    parts = value.value if isinstance(value, Literal) and value.kind == "list" else None
    if isinstance(value, ast.ListExpr):
        parts = value.items
    if parts is None or len(parts) != len(node.key):
        message = f"the key of {node.name} is the list [{', '.join(node.key)}]"
        raise Refused("T7", message, value.place)
    fitted = tuple(assigned(p, node.properties[k].type, scope) for p, k in zip(parts, node.key, strict=True))
    if all(isinstance(part, Lit) for part in fitted):
        return Lit(tuple(part.value for part in fitted if isinstance(part, Lit)), Type("String", list=True))
    return Call("list", fitted, Type("String", list=True))


# ---- update and where ----


def _update(statement: ast.Update, scope: Scope) -> UpdateNode:
    type_ = _type(statement.type, scope)
    if isinstance(type_, EdgeType):
        hint = "delete it and insert it anew"
        raise Refused("T16", f"{type_.name} is an edge, and edges can't be updated", statement.type.place, hint)
    if not statement.values:
        raise Refused("T10", "nothing is set", statement.type.place)
    given = _once(statement.values)
    for name in type_.key:
        if name in given:
            place = given.pop(name).name.place
            hint = "delete the node and insert it anew"
            scope.refuse(Refused("T11", f"`{name}` is in the key of {type_.name} and can't change", place, hint))
    stored = Bare(_stored(type_), type_.name)
    values = _values(given, type_, replace(scope, bare=stored))
    return UpdateNode(type_.name, values, _where(statement.where, type_, scope))


def _stored(type_: NodeType | EdgeType) -> dict[str, tuple[str, Type]]:
    """What the bare names of a `set` or `where` mean."""
    text = Type("String")
    names = {name: (name, p.type) for name, p in type_.properties.items()} | {"id": ("id", text)}
    if isinstance(type_, EdgeType):
        names |= {"src": ("src", text), "dst": ("dst", text), "from": ("src", text), "to": ("dst", text)}
    return names


def _where(node: ast.Expr, type_: NodeType | EdgeType, scope: Scope) -> Expr:
    expr = check(node, replace(scope, bare=Bare(_stored(type_), type_.name, blob="T11")))
    if expr.type.base != "Bool" or expr.type.list:
        raise Refused("T35", f"`where` must be true or false, and this is {shown(expr.type)}", node.place)
    return expr
