"""From a `.gq` text to compiled queries: parse, check against a catalog, lower to IR; the results are cached."""

from __future__ import annotations

import threading
from collections import OrderedDict

from omnigraph.errors import BadRequest, Diagnostic, LanguageError, NotFound
from omnigraph.query import ast
from omnigraph.query.ir import CompiledQuery, ParamDecl
from omnigraph.query.mutations import check_mutation
from omnigraph.query.parser import parse_queries
from omnigraph.query.reads import check_read
from omnigraph.query.scope import Scope, did_you_mean
from omnigraph.schema.catalog import Catalog, Type
from omnigraph.schema.literals import Literal
from omnigraph.schema.source import SourceText
from omnigraph.schema.types import resolve_type

__all__ = ["compile_queries", "compile_query"]

CACHED_TEXTS = 512
"""Most compiled texts kept per process."""

_cache: OrderedDict[tuple[str, str, str], dict[str, CompiledQuery]] = OrderedDict()
_lock = threading.Lock()


def compile_queries(text: str, catalog: Catalog, *, file: str = "<query>") -> dict[str, CompiledQuery]:
    """Every query of a text, by name, in the text's order.

    Raises:
        LanguageError: with every syntax error, or else every refusal, in the text's order.
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
    found: list[Diagnostic] = []
    out: dict[str, CompiledQuery] = {}
    for node in parse_queries(source).queries:
        if node.name.text in out:
            message = f"a query `{node.name.text}` stands in this text already"
            found.append(Diagnostic("Q000", message, source.span(*node.name.place)))
        refusals: list[Diagnostic] = []
        out[node.name.text] = _query(node, source, catalog, refusals)
        found += refusals
    if found:
        ordered = sorted(dict.fromkeys(found), key=lambda d: d.span.start if d.span else 0)
        raise LanguageError(ordered, text=source.text, file=source.file)
    return out


def _query(node: ast.QueryNode, source: SourceText, catalog: Catalog, found: list[Diagnostic]) -> CompiledQuery:
    def refuse(message: str, place: tuple[int, int], hint: str | None = None) -> None:
        found.append(Diagnostic("Q000", message, source.span(*place), hint=hint))

    params: dict[str, Type] = {}
    for parameter in node.parameters:
        if parameter.name.text in params:
            refuse(f"parameter `${parameter.name.text}` is declared twice", parameter.name.place)
        params[parameter.name.text] = resolve_type(parameter.type, refuse)
    texts: dict[str, str] = {}
    for annotation in node.annotations:
        literals = all(isinstance(a, Literal) for a in annotation.arguments)
        if not literals or not all(isinstance(v, Literal) for _, v in annotation.keywords):
            refuse(f"`@{annotation.name}` takes literals", annotation.place)
        elif annotation.name in ("description", "instruction"):
            if len(annotation.arguments) != 1 or annotation.arguments[0].kind != "string" or annotation.keywords:
                refuse(f"`@{annotation.name}` takes one string", annotation.place)
            else:
                texts[annotation.name] = annotation.arguments[0].value
    scope = Scope(source, catalog, params, found)
    declarations = tuple(ParamDecl(name, type_) for name, type_ in params.items())
    span = source.span(*node.name.place)
    description, instruction = texts.get("description"), texts.get("instruction")
    if isinstance(node.body, ast.ReadBody):
        operators, columns, reads = check_read(node.body, scope)
        return CompiledQuery(
            node.name.text,
            declarations,
            "read",
            operators=operators,
            columns=columns,
            reads=reads,
            description=description,
            instruction=instruction,
            span=span,
        )
    statements, reads, writes = check_mutation(node.name.text, node.body, scope)
    warnings: tuple[Diagnostic, ...] = ()
    if not params:
        message = f"mutation `{node.name.text}` takes no parameter: it does the same each time"
        warnings = (Diagnostic("L202", message, span, severity="warning"),)
    return CompiledQuery(
        node.name.text,
        declarations,
        "mutation",
        statements=statements,
        reads=reads,
        writes=writes,
        description=description,
        instruction=instruction,
        warnings=warnings,
        span=span,
    )
