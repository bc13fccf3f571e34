"""From a `.gq` text to compiled queries: parse, check against a catalog, lower to IR; the results are cached.

A query is checked by itself: what is wrong with one, a syntax error included, hides nothing of the others.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence

from omnigraph.arguments import expect_text
from omnigraph.errors import BadRequest, Diagnostic, LanguageError, NotFound
from omnigraph.query import ast
from omnigraph.query.ir import CompiledQuery, Operator, ParamDecl, ResultColumn, Statement
from omnigraph.query.mutations import check_mutation
from omnigraph.query.nesting import MAX_DEPTH, parts
from omnigraph.query.parser import parse_each_query
from omnigraph.query.reads import check_read
from omnigraph.query.scope import Scope, did_you_mean
from omnigraph.records import dataclass
from omnigraph.schema.ast import Place
from omnigraph.schema.catalog import Catalog, Type
from omnigraph.schema.literals import Literal
from omnigraph.schema.source import SourceText
from omnigraph.schema.types import resolve_type

__all__ = ["CheckedQuery", "check_text", "compile_queries", "compile_query", "in_order"]

CACHED_TEXTS = 512
"""Most compiled texts kept per process."""

MAX_CLAUSES = 500
"""Most clauses of one query, those of nested blocks included."""

MAX_COLUMNS = 1000
"""Most items of one `return`, and most keys of one `order`; at least `MAX_CLAUSES`."""

MAX_STATEMENTS = 2000
"""Most statements of one mutation."""

_TooMuch = tuple[str, Place, str]

_cache: OrderedDict[tuple[str, str, str], dict[str, CompiledQuery]] = OrderedDict()
_lock = threading.Lock()


def compile_queries(text: str, catalog: Catalog, *, file: str = "<query>") -> dict[str, CompiledQuery]:
    """Every query of a text, by name, in the text's order.

    Raises:
        LanguageError: with every syntax error and every refusal, in the text's order.
    """
    return dict(_compiled(text, catalog, file))


def compile_query(text: str, catalog: Catalog, name: str | None = None, *, file: str = "<query>") -> CompiledQuery:
    """One query of a text: the named one, or the only one.

    Raises:
        LanguageError: the text was refused.
        BadRequest: no name was given and the text holds none or several queries.
        NotFound: the text holds no query of this name.
    """
    queries = _compiled(text, catalog, file)
    if name is not None:
        expect_text("name", name)
        if name not in queries:
            hint = did_you_mean(name, queries)
            raise NotFound(f"{file} has no query `{name}`" + (f"; {hint}" if hint else ""))
        return queries[name]
    if len(queries) != 1:
        names = ", ".join(queries)
        raise BadRequest(
            f"{file} holds {len(queries)} queries ({names}): name one" if queries else f"{file} holds no query"
        )
    return next(iter(queries.values()))


def _compiled(text: str, catalog: Catalog, file: str) -> dict[str, CompiledQuery]:
    key = (catalog.hash, text, file)
    with _lock:
        found = _cache.get(key)
        if found is not None:
            _cache.move_to_end(key)
            return found
    compiled = _compile(SourceText(text, file), catalog)
    with _lock:
        _cache[key] = compiled
        if len(_cache) > CACHED_TEXTS:
            _cache.popitem(last=False)
    return compiled


def _compile(source: SourceText, catalog: Catalog) -> dict[str, CompiledQuery]:
    checked, found = check_text(source, catalog)
    refusals = in_order([*found, *(d for one in checked for d in one.found)])
    if refusals:
        raise LanguageError(refusals, text=source.text, file=source.file)
    return {one.compiled.name: one.compiled for one in checked}


def in_order(found: Iterable[Diagnostic]) -> list[Diagnostic]:
    """Each finding once, in the text's order."""
    return sorted(dict.fromkeys(found), key=lambda d: d.span.start if d.span else 0)


@dataclass(frozen=True, slots=True)
class CheckedQuery:
    """One query of a text. With anything in `found` it was refused, and `compiled` has only its name, kind and head."""

    node: ast.QueryNode
    compiled: CompiledQuery
    found: tuple[Diagnostic, ...]


def check_text(source: SourceText, catalog: Catalog) -> tuple[list[CheckedQuery], list[Diagnostic]]:
    """Every query that can be read, checked by itself, and the syntax errors of the others."""
    nodes, syntax = parse_each_query(source)
    checked: list[CheckedQuery] = []
    names: set[str] = set()
    for node in nodes:
        found: list[Diagnostic] = []
        if node.name.text in names:
            message = f"a query `{node.name.text}` stands in this text already"
            found.append(Diagnostic("Q000", message, source.span(*node.name.place)))
        names.add(node.name.text)
        compiled = _query(node, source, catalog, found)
        checked.append(CheckedQuery(node, compiled, tuple(in_order(found))))
    return checked, syntax


def _query(node: ast.QueryNode, source: SourceText, catalog: Catalog, found: list[Diagnostic]) -> CompiledQuery:
    span = source.span(*node.name.place)
    is_read = isinstance(node.body, ast.ReadBody)
    too_much = next(_too_much(node.body), None) if len(source.text) > MAX_DEPTH else None
    if too_much is not None:
        words, place, hint = too_much
        found.append(Diagnostic("Q000", words, source.span(*place), hint=hint))
        return CompiledQuery(node.name.text, (), "read" if is_read else "mutation", span=span)
    params, unusable = _parameters(node, source, found)
    texts = _annotations(node, source, found)
    refusals: list[Diagnostic] = []  # apart from the head's: a body is lowered to IR only where it has none
    scope = Scope(source, catalog, params, refusals, failed={name[1:] for name in unusable})
    operators: tuple[Operator, ...] = ()
    columns: tuple[ResultColumn, ...] = ()
    statements: tuple[Statement, ...] = ()
    writes: frozenset[str] = frozenset()
    if isinstance(node.body, ast.ReadBody):
        operators, columns, reads = check_read(node.body, scope)
    else:
        statements, reads, writes = check_mutation(node.name.text, node.body, scope)
    # What follows from a parameter without a type says nothing new.
    found += [d for d in refusals if not (d.span and source.text[d.span.start : d.span.end] in unusable)]
    warnings: tuple[Diagnostic, ...] = ()
    if not is_read and not node.parameters:
        message = f"mutation `{node.name.text}` takes no parameter: it does the same each time"
        warnings = (Diagnostic("L202", message, span, severity="warning"),)
    return CompiledQuery(
        node.name.text,
        tuple(ParamDecl(name, type_) for name, type_ in params.items()),
        "read" if is_read else "mutation",
        operators=operators,
        statements=statements,
        columns=columns,
        reads=reads,
        writes=writes,
        description=texts.get("description"),
        instruction=texts.get("instruction"),
        warnings=warnings,
        span=span,
        edits=frozenset(scope.edits),
    )


def _too_much(body: ast.ReadBody | tuple[ast.Statement, ...]) -> Iterator[_TooMuch]:
    """What a query has more of than is compiled in good time, the place of the first one too many, and a hint."""
    clauses: list[ast.Clause] = []
    for part in parts(body):
        if part.depth > MAX_DEPTH and part.outermost is not None:
            hint = "group them with parentheses, or split the expression"
            yield f"more than {MAX_DEPTH} operations inside one another", part.outermost, hint
        if isinstance(part.node, ast.Clause):
            clauses.append(part.node)
    if isinstance(body, ast.ReadBody):
        yield from _too_many("clauses", MAX_CLAUSES, clauses)
        yield from _too_many("columns", MAX_COLUMNS, body.items)
        yield from _too_many("order keys", MAX_COLUMNS, body.order)
    else:
        yield from _too_many("statements", MAX_STATEMENTS, body)


def _too_many(
    what: str, most: int, nodes: Sequence[ast.Clause | ast.Item | ast.OrderItem | ast.Statement]
) -> Iterator[_TooMuch]:
    if len(nodes) > most:
        hint = "split it, or give the values as a list parameter"
        yield f"more than {most} {what} in one query", nodes[most].place, hint


def _parameters(
    node: ast.QueryNode, source: SourceText, found: list[Diagnostic]
) -> tuple[dict[str, Type], tuple[str, ...]]:
    """Declared types by name, and the names, with their `$`, of those whose type isn't one."""
    params: dict[str, Type] = {}
    unusable: list[str] = []

    def refuse(message: str, place: tuple[int, int], hint: str | None = None) -> None:
        found.append(Diagnostic("Q000", message, source.span(*place), hint=hint))

    for parameter in node.parameters:
        name, before = parameter.name.text, len(found)
        type_ = resolve_type(parameter.type, refuse)
        if len(found) > before:
            unusable.append(f"${name}")
        elif name in params or f"${name}" in unusable:
            refuse(f"parameter `${name}` is declared twice", parameter.name.place)
        else:
            params[name] = type_
    return params, tuple(unusable)


def _annotations(node: ast.QueryNode, source: SourceText, found: list[Diagnostic]) -> dict[str, str]:
    """The texts of `@description` and `@instruction`; any other annotation may stand there and says nothing to us."""
    texts: dict[str, str] = {}
    for annotation in node.annotations:
        span = source.span(*annotation.place)
        literals = all(isinstance(a, Literal) for a in annotation.arguments)
        if not literals or not all(isinstance(v, Literal) for _, v in annotation.keywords):
            values = (*annotation.arguments, *(value for _, value in annotation.keywords))
            odd = next(value.place for value in values if not isinstance(value, Literal))
            hint = "a text stands in double quotes"
            found.append(Diagnostic("Q000", f"`@{annotation.name}` takes literals", source.span(*odd), hint=hint))
        elif annotation.name in ("description", "instruction"):
            if len(annotation.arguments) != 1 or annotation.arguments[0].kind != "string" or annotation.keywords:
                hint = f'write `@{annotation.name}("…")`'
                found.append(Diagnostic("Q000", f"`@{annotation.name}` takes one string", span, hint=hint))
            elif annotation.name in texts:
                found.append(Diagnostic("Q000", f"`@{annotation.name}` is given twice", span))
            else:
                texts[annotation.name] = annotation.arguments[0].value
    return texts
