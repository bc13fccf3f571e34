"""The syntax tree of a query text: what was written and where, nothing judged yet."""

from __future__ import annotations

from typing import TypeAlias

from omnigraph.records import dataclass
from omnigraph.schema.ast import Annotation, Name, Place, TypeNode
from omnigraph.schema.literals import Literal

# ---- expressions -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class VarRef:
    """`$x`: a bound entity or a parameter. `name` is without the `$`."""

    name: str
    place: Place


@dataclass(frozen=True, slots=True)
class PropRef:
    """`$x.name`; `place` is the whole, `name.place` the property's."""

    var: str
    name: Name
    place: Place


@dataclass(frozen=True, slots=True)
class NameRef:
    """A bare name: an alias in `order`, a property in a mutation's `where`."""

    name: str
    place: Place


@dataclass(frozen=True, slots=True)
class ListExpr:
    items: tuple[Expr, ...]
    place: Place


@dataclass(frozen=True, slots=True)
class Chain:
    """`a and b and c`, `a + b - c`: operands of one precedence. `operators` has one less entry than `operands`, and so
    has `operator_places`, which is empty for `and` and `or`."""

    operators: tuple[str, ...]
    operands: tuple[Expr, ...]
    place: Place
    operator_places: tuple[Place, ...] = ()


@dataclass(frozen=True, slots=True)
class Not:
    operand: Expr
    place: Place


@dataclass(frozen=True, slots=True)
class Negative:
    operand: Expr
    place: Place


@dataclass(frozen=True, slots=True)
class Comparison:
    """`operator`: = != > >= < <= contains starts_with in `not in`."""

    operator: str
    left: Expr
    right: Expr
    operator_place: Place
    place: Place


@dataclass(frozen=True, slots=True)
class IsNull:
    operand: Expr
    negated: bool
    place: Place


@dataclass(frozen=True, slots=True)
class CallExpr:
    """`name(arguments, keyword=…)`; `distinct` is the word's place where one argument is written `distinct e`."""

    name: str
    arguments: tuple[Expr, ...]
    keywords: tuple[Keyword, ...]
    distinct: Place | None
    name_place: Place
    place: Place


@dataclass(frozen=True, slots=True)
class Keyword:
    name: Name
    value: Expr
    place: Place


@dataclass(frozen=True, slots=True)
class Block:
    """`exists { … }` and `count { … }`."""

    word: str
    clauses: tuple[Clause, ...]
    place: Place


@dataclass(frozen=True, slots=True)
class Case:
    whens: tuple[tuple[Expr, Expr], ...]
    otherwise: Expr | None
    place: Place


Expr: TypeAlias = (
    Literal
    | VarRef
    | PropRef
    | NameRef
    | ListExpr
    | Chain
    | Not
    | Negative
    | Comparison
    | IsNull
    | CallExpr
    | Block
    | Case
)

# ---- clauses ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Assignment:
    """`name: value`, in a binding's match, an insert or a set."""

    name: Name
    value: Expr
    place: Place


@dataclass(frozen=True, slots=True)
class Binding:
    var: Name
    type: Name
    matches: tuple[Assignment, ...]
    place: Place


@dataclass(frozen=True, slots=True)
class Hops:
    """`{min,max}`; `max` None where it was left open."""

    min: int
    max: int | None
    place: Place


@dataclass(frozen=True, slots=True)
class EdgeStep:
    """`$w:(knows|likes){1,3}[filter]`. `names` is empty for `*`."""

    names: tuple[Name, ...]
    undirected: bool
    var: Name | None
    hops: Hops | None
    filter: Expr | None
    place: Place


@dataclass(frozen=True, slots=True)
class Traversal:
    source: Name
    edge: EdgeStep
    target: Name
    place: Place


@dataclass(frozen=True, slots=True)
class Shortest:
    path: Name
    source: Name
    edge: EdgeStep
    target: Name
    place: Place


@dataclass(frozen=True, slots=True)
class Negation:
    clauses: tuple[Clause, ...]
    place: Place


@dataclass(frozen=True, slots=True)
class Optional:
    clauses: tuple[Clause, ...]
    place: Place


@dataclass(frozen=True, slots=True)
class FilterClause:
    expr: Expr
    place: Place


Clause: TypeAlias = Binding | Traversal | Shortest | Negation | Optional | FilterClause

# ---- queries ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Item:
    """One item of a `return`."""

    expr: Expr
    alias: Name | None
    place: Place


@dataclass(frozen=True, slots=True)
class OrderItem:
    expr: Expr
    descending: bool | None  # None: no direction written
    place: Place


@dataclass(frozen=True, slots=True)
class Count:
    """`limit n` or `skip n`."""

    word: str
    value: Literal | VarRef
    place: Place


@dataclass(frozen=True, slots=True)
class ReadBody:
    clauses: tuple[Clause, ...]
    items: tuple[Item, ...]
    distinct: Place | None
    order: tuple[OrderItem, ...]
    counts: tuple[Count, ...]


@dataclass(frozen=True, slots=True)
class Insert:
    type: Name
    values: tuple[Assignment, ...]
    place: Place


@dataclass(frozen=True, slots=True)
class Update:
    type: Name
    values: tuple[Assignment, ...]
    where: Expr
    place: Place


@dataclass(frozen=True, slots=True)
class DeleteNode:
    type: Name
    where: Expr
    place: Place


Statement: TypeAlias = Insert | Update | DeleteNode


@dataclass(frozen=True, slots=True)
class Parameter:
    name: Name
    type: TypeNode
    place: Place


@dataclass(frozen=True, slots=True)
class QueryNode:
    name: Name
    parameters: tuple[Parameter, ...]
    annotations: tuple[Annotation, ...]
    body: ReadBody | tuple[Statement, ...]
    place: Place


@dataclass(frozen=True, slots=True)
class QueryText:
    queries: tuple[QueryNode, ...]
