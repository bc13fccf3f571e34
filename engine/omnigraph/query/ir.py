"""The query IR: what the typechecker hands to `read` and `write`. Pure data, fully resolved and typed.

A read query is a flat tuple of operators that run from first to last over one *frame*: a set of rows with one column
per bound variable (which node or edge row it is), to which each operator adds variables or from which it removes rows.

    NodeScan      binds a variable to the rows of a node type (joins as a product with what is bound already)
    Expand        follows an edge from a bound variable; binds the far end, or keeps rows whose far end is bound already
    Filter        keeps rows whose predicate is true (unknown is not true)
    AntiJoin      keeps rows for which the inner operators yield nothing
    Project       one output row per frame row        } exactly one of
    Aggregate     one output row per group            } the two
    Order         total order over output rows
    Limit         the first `count` rows after `skip`

Names in `Project` and `Aggregate` are the result's column names, in order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from omnigraph.errors import Diagnostic, Span
from omnigraph.schema.catalog import Type

# ---- expressions -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Lit:
    """A literal as its Python value: str, int, float, bool, date, datetime (UTC, ms), tuple for a list, None."""

    value: Any
    type: Type


@dataclass(frozen=True, slots=True)
class Param:
    name: str
    type: Type


@dataclass(frozen=True, slots=True)
class Var:
    """A bound node or edge as a whole."""

    name: str
    type: Type


@dataclass(frozen=True, slots=True)
class Prop:
    """A property of a bound variable; `id`, `src`, `dst` are properties too."""

    var: str
    name: str
    type: Type


@dataclass(frozen=True, slots=True)
class Call:
    """A function or operator over expressions.

    `fn`: comparisons `= != < <= > >=`; `and or not` (`and`, `or` of two or more); `is_null`; `in` (value, list);
    `contains starts_with` (text, text; `contains` also list, value); `now`; `list` (the parts of a composite key in
    `InsertEdge`). Later functions join by name. Three-valued logic: null in, null out, but for `is_null`, `and`, `or`.
    """

    fn: str
    args: tuple[Expr, ...]
    type: Type


@dataclass(frozen=True, slots=True)
class Agg:
    """An aggregate over the rows of a group: `count sum avg min max`. `arg` None or a `Var` counts rows."""

    fn: Literal["count", "sum", "avg", "min", "max"]
    arg: Expr | None
    type: Type
    distinct: bool = False


@dataclass(frozen=True, slots=True)
class Column:
    """An output column of the projection, by name (in `Order` only)."""

    name: str
    type: Type


Expr: TypeAlias = Lit | Param | Var | Prop | Call | Agg | Column

# ---- operators -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NodeScan:
    var: str
    node: str  # type name
    where: Expr | None = None  # touches `var`, literals and parameters only: may be pushed into the scan


@dataclass(frozen=True, slots=True)
class Expand:
    """Follow `edge` from `source` to `target`, `min` to `max` hops, breadth first (a node at its shortest distance).

    `direction` is `out` (source is the edge's src), `in`, or `both` (undirected). `target_node` is the far end's type.
    `target_bound`: the far end is bound already; the operator is a semi-join on the pair. `edge_var` (single hop only)
    binds the edge row and gives one row per edge; without it each far end comes once per source row.
    `where` touches `target` alone, `edge_where` touches `edge_var` alone.
    """

    source: str
    target: str
    edge: str  # edge type name
    direction: Literal["out", "in", "both"]
    target_node: str
    min: int = 1
    max: int = 1
    target_bound: bool = False
    edge_var: str | None = None
    where: Expr | None = None
    edge_where: Expr | None = None


@dataclass(frozen=True, slots=True)
class Filter:
    predicate: Expr


@dataclass(frozen=True, slots=True)
class AntiJoin:
    """`not { … }`. `inner` starts from the frame's rows: variables in `outer` are bound there already."""

    inner: tuple[Operator, ...]
    outer: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Project:
    columns: tuple[tuple[str, Expr], ...]


@dataclass(frozen=True, slots=True)
class Aggregate:
    """`keys` group; `columns` is the output in written order, each a key expression or one that contains an `Agg`."""

    keys: tuple[tuple[str, Expr], ...]
    columns: tuple[tuple[str, Expr], ...]


@dataclass(frozen=True, slots=True)
class OrderKey:
    expr: Expr  # a `Column` (alias or returned expression), or an expression over the frame (no Aggregate then)
    descending: bool = False


@dataclass(frozen=True, slots=True)
class Order:
    """Nulls first ascending, last descending. Ties: the bound entities' ids in the order of `ties` (all bound names in
    binding order), after an Aggregate the group keys."""

    keys: tuple[OrderKey, ...]
    ties: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Limit:
    count: int | Param | None
    skip: int | Param = 0


Operator: TypeAlias = NodeScan | Expand | Filter | AntiJoin | Project | Aggregate | Order | Limit

# ---- mutations -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class InsertNode:
    node: str
    values: tuple[tuple[str, Expr], ...]  # given properties only; a `Lit` or `Param` or `now`


@dataclass(frozen=True, slots=True)
class InsertEdge:
    edge: str
    source: Expr  # the key of the source node (a list of parts for a composite key)
    target: Expr
    values: tuple[tuple[str, Expr], ...]


@dataclass(frozen=True, slots=True)
class UpdateNode:
    node: str
    values: tuple[tuple[str, Expr], ...]
    where: Expr  # over `Prop(var="", …)` of the type, literals and parameters


@dataclass(frozen=True, slots=True)
class Delete:
    kind: Literal["node", "edge"]
    type: str
    where: Expr  # for edges `src` and `dst` are properties too


Statement: TypeAlias = InsertNode | InsertEdge | UpdateNode | Delete

# ---- a compiled query ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ParamDecl:
    name: str
    type: Type  # nullable: may be left out


@dataclass(frozen=True, slots=True)
class ResultColumn:
    name: str
    type: Type


@dataclass(frozen=True)
class CompiledQuery:
    """One `query` declaration, typechecked against one catalog."""

    name: str
    params: tuple[ParamDecl, ...]
    kind: Literal["read", "mutation"]
    operators: tuple[Operator, ...] = ()  # read
    statements: tuple[Statement, ...] = ()  # mutation
    columns: tuple[ResultColumn, ...] = ()  # read
    reads: frozenset[str] = frozenset()  # table keys
    writes: frozenset[str] = frozenset()
    description: str | None = None
    instruction: str | None = None
    warnings: tuple[Diagnostic, ...] = ()
    span: Span | None = None
