"""What comes of a text, printed for the cases: short, stable, one thing a line."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import MISSING, fields, is_dataclass
from typing import Any

from omnigraph.errors import Diagnostic
from omnigraph.query.ir import (
    Agg,
    Aggregate,
    AntiJoin,
    Call,
    Column,
    CompiledQuery,
    Delete,
    Distinct,
    Expand,
    Expr,
    Filter,
    InsertEdge,
    InsertNode,
    Limit,
    Lit,
    NodeScan,
    Operator,
    Optional,
    Order,
    Param,
    Project,
    Prop,
    Shortest,
    SubMatch,
    UpdateNode,
    Var,
)
from omnigraph.schema import Catalog
from omnigraph.schema.ast import Name
from omnigraph.schema.catalog import Type
from omnigraph.schema.literals import Literal

__all__ = ["diagnostic_line", "dump", "query_lines", "schema_lines", "span_lines"]

WIDTH = 110


def diagnostic_line(d: Diagnostic) -> str:
    """`CODE line:column message hint`"""
    place = f"{d.code} {d.span.line}:{d.span.column}" if d.span else d.code
    return f"{place} {d.message}" + (f" {d.hint}" if d.hint else "")


# ---- schemas ----


def schema_lines(catalog: Catalog) -> list[str]:
    """A line for each type, property and constraint."""
    lines: list[str] = []
    for t in catalog.by_table_key.values():
        ends = f": {t.source} -> {t.target}" if t.table_key.startswith("edge:") else ""
        lines.append(t.table_key + ends + "".join(f" @{n}={v!r}" for n, v in t.annotations))
        for p in t.properties.values():
            default = f" default {p.default!r}" if p.has_default else ""
            lines.append(f"  {p.name}: {p.type}{default}" + "".join(f" @{n}={v!r}" for n, v in p.annotations))
        if t.key:
            lines.append(f"  key {' '.join(t.key)}")
        lines += [f"  unique {' '.join(u)}" for u in t.uniques]
        lines += [f"  index {' '.join(i)}" for i in t.indexes]
        lines += [f"  range {r.property} {r.low}..{r.high}" for r in getattr(t, "ranges", ())]
        lines += [f"  check {c.property} {c.pattern}" for c in getattr(t, "checks", ())]
        if getattr(t, "interfaces", ()):
            lines.append(f"  implements {' '.join(t.interfaces)}")
        if ends:
            lines.append(f"  card {t.cardinality.min}..{t.cardinality.max}")
    return lines


# ---- queries ----


def show(e: Expr | None) -> str:
    match e:
        case Lit(value, type_):
            return f"{value!r}:{type_}"
        case Param(name, _):
            return f"${name}"
        case Var(name, _):
            return name
        case Prop(var, name, _):
            return f"{var}.{name}" if var else name
        case Agg(fn, arg, type_, distinct):
            return f"{fn}({'distinct ' if distinct else ''}{show(arg)}):{type_}"
        case Column(name, _):
            return f"[{name}]"
        case Call(fn, args, _):
            return f"({' '.join([fn, *map(show, args)])})"
        case SubMatch(fn, inner, outer, _):
            steps = "; ".join(line.strip() for op in inner for line in operator_lines(op))
            return f"({fn} using {' '.join(outer) or 'nothing'}: {steps})"
        case _:
            return "-"


def where(e: Expr | None) -> str:
    return f" where {show(e)}" if e is not None else ""


def walk_line(op: Expand | Shortest) -> str:
    hops = "" if (op.min, op.max) == (1, 1) else f"{{{op.min},{op.max}}}"
    ways = "|".join(f"{way.direction} {way.edge}" for way in op.ways)
    tail = (" bound" if op.target_bound else "") + where(op.where)
    if isinstance(op, Shortest):
        start = f"shortest {op.path} ="
    else:
        start = "expand"
        tail += f" edge{where(op.edge_where)}" if op.edge_where else ""
        if op.edge_var:
            ways = ways.replace(" ", f" {op.edge_var}:", 1)
    tail += f" hop{where(op.hop_where)}" if op.hop_where else ""
    return f"{start} {op.source} {ways}{hops} {op.target}: {op.target_node}{tail}"


def operator_lines(op: Operator, indent: str = "") -> list[str]:
    match op:
        case NodeScan(var, node, condition):
            return [f"{indent}scan {var}: {node}{where(condition)}"]
        case Expand() | Shortest():
            return [f"{indent}{walk_line(op)}"]
        case Filter(predicate):
            return [f"{indent}filter {show(predicate)}"]
        case AntiJoin(inner, outer):
            lines = [x for i in inner for x in operator_lines(i, indent + "  ")]
            return [f"{indent}not using {' '.join(outer)}", *lines]
        case Optional(inner, outer, binds):
            lines = [x for i in inner for x in operator_lines(i, indent + "  ")]
            return [f"{indent}optional {' '.join(binds)} using {' '.join(outer) or 'nothing'}", *lines]
        case Distinct():
            return [f"{indent}distinct"]
        case Project(columns):
            return [f"{indent}project {', '.join(f'{n} = {show(e)}' for n, e in columns)}"]
        case Aggregate(keys, columns):
            by = f" by {', '.join(n for n, _ in keys)}" if keys else ""
            return [f"{indent}aggregate {', '.join(f'{n} = {show(e)}' for n, e in columns)}{by}"]
        case Order(keys, ties):
            shown = ", ".join(show(k.expr) + (" desc" if k.descending else "") for k in keys)
            return [f"{indent}order {shown}" + (f" ties {' '.join(ties)}" if ties else "")]
        case Limit(count, skip):
            amounts = [show(x) if isinstance(x, Param) else str(x) for x in (count, skip)]
            return [f"{indent}limit {amounts[0]} skip {amounts[1]}"]
    raise AssertionError(op)


def query_lines(query: CompiledQuery) -> list[str]:
    """A line for each operator or statement, then the columns."""
    lines = [line for op in query.operators for line in operator_lines(op)]
    for s in query.statements:
        match s:
            case InsertNode(node, values):
                lines.append(f"insert {node} {', '.join(f'{n} = {show(e)}' for n, e in values)}".rstrip())
            case InsertEdge(edge, source, target, values):
                given = "".join(f", {n} = {show(e)}" for n, e in values)
                lines.append(f"insert {edge} {show(source)} -> {show(target)}{given}")
            case UpdateNode(node, values, condition):
                lines.append(f"update {node} {', '.join(f'{n} = {show(e)}' for n, e in values)}{where(condition)}")
            case Delete(kind, type_, condition):
                lines.append(f"delete {kind} {type_}{where(condition)}")
    if query.columns:
        lines.append("-> " + ", ".join(f"{c.name}: {c.type}" for c in query.columns))
    return lines


# ---- any tree of dataclasses ----


def dump(value: Any, indent: str = "") -> list[str]:
    """A syntax tree or IR, whole but for places and for fields at their default: on one line where it fits, else a line
    for each part."""
    line = _flat(value)
    if len(indent + line) <= WIDTH or not (is_dataclass(value) or isinstance(value, tuple)):
        return [indent + line]
    deeper = indent + "  "
    if isinstance(value, tuple):
        return [indent + "(", *(x for item in value for x in dump(item, deeper)), indent + ")"]
    out = [f"{indent}{type(value).__name__}("]
    for name, part in _parts(value):
        first, *rest = dump(part, deeper)
        out += [f"{deeper}{name}={first.lstrip()}", *rest]
    return [*out, indent + ")"]


def _flat(value: Any) -> str:
    if isinstance(value, Name):
        return value.text
    if isinstance(value, Type):
        return str(value)
    if isinstance(value, Literal):
        shown = _flat(value.value) if isinstance(value.value, tuple) else repr(value.value)
        return f"{value.kind} {shown}"
    if is_dataclass(value):
        return f"{type(value).__name__}({', '.join(f'{name}={_flat(part)}' for name, part in _parts(value))})"
    if isinstance(value, tuple):
        return f"({', '.join(map(_flat, value))})"
    if isinstance(value, frozenset):
        return f"{{{', '.join(sorted(map(_flat, value)))}}}"
    return str(value) if isinstance(value, str) and value.isidentifier() else repr(value)


def _parts(node: Any) -> Iterator[tuple[str, Any]]:
    for f in fields(node):
        value = getattr(node, f.name)
        default = f.default if f.default is not MISSING else None
        if f.name.endswith(("place", "places", "span")) or value == default or value == ():
            continue
        yield f.name, value


def span_lines(node: Any, text: str, position: Callable[[int], tuple[int, int]]) -> list[str]:
    """Each node of a syntax tree with its place and the text it stands for."""
    out: list[str] = []
    place = getattr(node, "place", None)
    if place is not None:
        line, column = position(place[0])
        covered = " ".join(text[place[0] : place[1]].split())
        out.append(f"{line}:{column} {type(node).__name__} {covered}")
    children = [getattr(node, f.name) for f in fields(node)] if is_dataclass(node) else node
    for child in children if isinstance(children, list | tuple) else ():
        if is_dataclass(child) or (isinstance(child, tuple) and child):
            out += span_lines(child, text, position)
    return out
