"""The query IR: what the typechecker hands to `read` and `write`. Pure data, fully resolved and typed.

A read query is a flat tuple of operators that run from first to last over one *frame*: a set of rows with one column
per bound variable (which node or edge row it is), to which each operator adds variables or from which it removes rows.

    NodeScan      binds a variable to the rows of a node type (joins as a product with what is bound already)
    Expand        follows edges from a bound variable; binds the far end, or keeps rows whose far end is bound already
    Shortest      binds one shortest path for each pair of its ends (and its far end, unless bound)
    Filter        keeps rows whose predicate is true (unknown is not true)
    AntiJoin      keeps rows for which the inner operators yield nothing
    Optional      each row once per match of the inner operators, or once with their variables null
    Project       one output row per frame row        } exactly one of
    Aggregate     one output row per group            } the two
    Distinct      equal output rows once
    Order         total order over output rows
    Limit         the first `count` rows after `skip`

Names in `Project` and `Aggregate` are the result's column names, in order.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, Literal, TypeAlias

from omnigraph.errors import Diagnostic, Span
from omnigraph.records import dataclass
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
    """A function or operator over expressions. Null in, null out, but for `is_null and or coalesce case list`.

    Logic: `and or` (two or more, Kleene), `not`, `is_null`; comparisons `= != < <= > >=`; `in` (value, list);
    `contains starts_with` (text, text; `contains` also list, value).
    Arithmetic (two operands, chains nest to the left): `+ - * / mod`, and `neg` of one. The type says the width: I64,
    U64 or F64; overflow and division by zero are errors.
    Functions by their names in the language, arguments in written order (`query/functions.py` has their types);
    `case` (condition, value, condition, value, …, otherwise: always there, a null `Lit` where none is written);
    `list` (the items of a list); `to` (a number narrowed to the call's type, an error where it doesn't fit).
    Search predicates, over (`Prop`, text): `search match_text`, `fuzzy` (…, max edits `Lit`).
    Rankings (F64), in return and order only: `nearest` (`Prop`, vector, `Lit` whether approximate), `bm25` (`Prop`,
    text), `rrf` (ranking, ranking, k `Lit`).
    Paths: `length nodes edges` of a `Var` of type Path; `nodes`, `edges` give the ids in order.
    """

    fn: str
    args: tuple[Expr, ...]
    type: Type

    def __eq__(self, other: object) -> bool:
        """As of any record, but without recursion: two equal chains are deep."""
        waiting: list[tuple[object, object]] = [(self, other)]
        while waiting:
            a, b = waiting.pop()
            if isinstance(a, Call) and isinstance(b, Call):
                if a is not b:
                    if a.fn != b.fn or a.type != b.type or len(a.args) != len(b.args):
                        return False
                    waiting += zip(a.args, b.args, strict=True)
            elif a.__class__ is not b.__class__ or a != b:
                return False
        return True


@dataclass(frozen=True, slots=True)
class Agg:
    """An aggregate over the rows of a group: `count sum avg min max collect`. `arg` None or a `Var` counts rows; a
    nullable `Var` (bound in an `optional`) counts those that aren't null. `collect` leaves nulls out."""

    fn: Literal["count", "sum", "avg", "min", "max", "collect"]
    arg: Expr | None
    type: Type
    distinct: bool = False


@dataclass(frozen=True, slots=True)
class Column:
    """An output column by name: in `Order`, and for a group key inside a column of `Aggregate`."""

    name: str
    type: Type


@dataclass(frozen=True, slots=True)
class SubMatch:
    """`exists { … }` (Bool) and `count { … }` (I64): whether, or how many times, the inner operators match a row.

    `outer` names the variables of the row they use; with none, the answer is the same for every row.
    """

    fn: Literal["exists", "count"]
    inner: tuple[Operator, ...]
    outer: tuple[str, ...]
    type: Type


Expr: TypeAlias = Lit | Param | Var | Prop | Call | Agg | Column | SubMatch

# ---- operators -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NodeScan:
    var: str
    node: str  # type name
    where: Expr | None = None  # touches `var`, literals and parameters only: may be pushed into the scan


@dataclass(frozen=True, slots=True)
class Way:
    """One edge type of a hop. `direction`: `out` (the hop's start is the edge's src), `in`, or `both` (undirected)."""

    edge: str  # edge type name
    direction: Literal["out", "in", "both"]


@dataclass(frozen=True, slots=True)
class Expand:
    """Follow edges from `source` to `target`, `min` to `max` hops, breadth first (a node at its shortest distance).

    `ways` are the edge types a hop may take, one or more; all lead to `target_node`. `target_bound`: the far end is
    bound already; the operator is a semi-join on the pair. `edge_var` (single hop only) binds the edge row and gives
    one row per edge; without it each far end comes once per source row. `where` touches `target` alone, `edge_where`
    touches `edge_var` alone; `hop_where` must be true of every edge followed and names its properties as
    `Prop(var="", …)`.
    """

    source: str
    target: str
    ways: tuple[Way, ...]
    target_node: str
    min: int = 1
    max: int = 1
    target_bound: bool = False
    edge_var: str | None = None
    where: Expr | None = None
    edge_where: Expr | None = None
    hop_where: Expr | None = None


@dataclass(frozen=True, slots=True)
class Shortest:
    """Bind `path` to one shortest path of `min` to `max` hops from `source` to `target`; of several, the one whose node
    ids come first. Pairs without a path give no row. The other fields are as in `Expand`."""

    path: str
    source: str
    target: str
    ways: tuple[Way, ...]
    target_node: str
    min: int = 1
    max: int = 1
    target_bound: bool = False
    where: Expr | None = None
    hop_where: Expr | None = None


@dataclass(frozen=True, slots=True)
class Filter:
    predicate: Expr


@dataclass(frozen=True, slots=True)
class AntiJoin:
    """`not { … }`. `inner` starts from the frame's rows: variables in `outer` are bound there already."""

    inner: tuple[Operator, ...]
    outer: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Optional:
    """`optional { … }`: a left join. `binds` are the variables it adds, null where the inner operators yield nothing;
    `outer` the bound ones it uses."""

    inner: tuple[Operator, ...]
    outer: tuple[str, ...]
    binds: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Project:
    columns: tuple[tuple[str, Expr], ...]


@dataclass(frozen=True, slots=True)
class Aggregate:
    """`keys` group; `columns` is the output in written order, each a key expression or one that contains an `Agg`. What
    stands outside an `Agg` there is a literal, a parameter or a `Column` that names a key."""

    keys: tuple[tuple[str, Expr], ...]
    columns: tuple[tuple[str, Expr], ...]


@dataclass(frozen=True, slots=True)
class Distinct:
    """Output rows that are equal in every column come once."""


@dataclass(frozen=True, slots=True)
class OrderKey:
    """`expr` is over output `Column`s (aliases and returned expressions), or over the frame where there is neither
    `Aggregate` nor `Distinct`. A ranking (`nearest`, `bm25`, `rrf`), or the column that returns one, drops the rows it
    doesn't rank."""

    expr: Expr
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


Operator: TypeAlias = (
    NodeScan | Expand | Shortest | Filter | AntiJoin | Optional | Project | Aggregate | Distinct | Order | Limit
)

# ---- mutations -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class InsertNode:
    node: str
    values: tuple[tuple[str, Expr], ...]  # given properties only; over literals and parameters


@dataclass(frozen=True, slots=True)
class InsertEdge:
    edge: str
    source: Expr  # the key of the source node (a list of parts for a composite key)
    target: Expr
    values: tuple[tuple[str, Expr], ...]


@dataclass(frozen=True, slots=True)
class UpdateNode:
    node: str
    values: tuple[tuple[str, Expr], ...]  # over `Prop(var="", …)` (the stored values), literals and parameters
    where: Expr  # over the same


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
    """One column of a result: its name and the type of its values."""

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
    edits: frozenset[str] = frozenset()  # the parameters that are the `max_edits` of a `fuzzy`

    @cached_property
    def declared(self) -> Mapping[str, Type]:
        """The types of its parameters by name."""
        return {p.name: p.type for p in self.params}
