"""What a checking pass knows: the catalog, the query's parameters, the variables in sight, and what was refused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import field, replace
from typing import Any

from omnigraph.errors import Diagnostic
from omnigraph.records import dataclass
from omnigraph.schema.ast import Place
from omnigraph.schema.catalog import Catalog, EdgeType, NodeType, Type
from omnigraph.schema.grammar import nearest_name
from omnigraph.schema.source import SourceText

__all__ = ["Bare", "Refused", "Scope", "did_you_mean"]


class Refused(Exception):
    def __init__(self, code: str, message: str, place: Place, hint: str | None = None) -> None:
        super().__init__(message)
        self.code, self.message, self.place, self.hint = code, message, place, hint


def did_you_mean(name: str, names: Iterator[str] | Mapping[str, object], prefix: str = "") -> str | None:
    near = nearest_name(name, names)
    return f"did you mean `{prefix}{near}`?" if near else None


@dataclass(frozen=True, slots=True)
class Bare:
    """What bare names mean here: name → (property, type). `unknown` and `blob` are the codes of a name that isn't there
    and of a Blob; `of` says whose they are."""

    names: Mapping[str, tuple[str, Type]]
    of: str
    unknown: str = "T11"
    blob: str = "T24"


@dataclass
class Scope:
    """One query's context. `variables` maps a bound name to `Type("Node" | "Edge", entity=…)` (several edge types are
    one entity, `A|B`) or to `Type("Path", …)`; nullable where it was bound in an `optional`.

    What a name means: `bare` the properties in a mutation or a hop's filter, `aliases` the output columns in `order`.
    What may stand here: `aggregates`, `rankings` (nearest, bm25, rrf), `searches` (search, fuzzy, match_text), `blocks`
    (exists and count); `within` names the aggregate whose argument is read. In a `mutation` each `$x` is a parameter.
    """

    source: SourceText
    catalog: Catalog
    params: Mapping[str, Type]
    found: list[Diagnostic]
    variables: dict[str, Type] = field(default_factory=dict)
    bare: Bare | None = None
    aliases: Mapping[str, Type] | None = None
    aggregates: bool = False
    rankings: bool = False
    searches: bool = True
    blocks: bool = True
    within: str | None = None
    mutation: bool = False
    failed: set[str] = field(default_factory=set)  # variables whose own clause was refused: no second complaint
    fresh: list[int] = field(default_factory=lambda: [0])
    edits: set[str] = field(default_factory=set)  # parameters that say how many edits a `fuzzy` allows

    def inner(self) -> Scope:
        """A scope for a nested block: sees what is bound here, binds for itself, takes what a `match` takes."""
        return replace(
            self,
            variables=dict(self.variables),
            bare=None,
            aliases=None,
            aggregates=False,
            rankings=False,
            searches=True,
            blocks=True,
            within=None,
        )

    @contextmanager
    def allowing(self, **flags: Any) -> Iterator[None]:
        """Other flags for a while: `with scope.allowing(aggregates=True, rankings=True, searches=False)`."""
        before = {name: getattr(self, name) for name in flags}
        vars(self).update(flags)
        try:
            yield
        finally:
            vars(self).update(before)

    def anonymous(self) -> str:
        self.fresh[0] += 1
        return f"_@{self.fresh[0]}"  # no name that a query could write

    @contextmanager
    def collecting(self) -> Iterator[None]:
        """Note a refusal and go on, so that independent mistakes are reported together."""
        try:
            yield
        except Refused as refused:
            self.refuse(refused)

    def refuse(self, refused: Refused) -> None:
        if not refused.code:
            return
        span = self.source.span(*refused.place)
        if span.end_line != span.line:
            span = self.source.span(span.start, self.source.text.find("\n", span.start))
        self.found.append(Diagnostic(refused.code, refused.message, span, hint=refused.hint))

    def entities(self, type_: Type) -> tuple[NodeType | EdgeType, ...]:
        """The catalog's type of a bound variable; several for an edge of several types."""
        if type_.base == "Node":
            return (self.catalog.nodes[type_.entity],)
        return tuple(self.catalog.edges[name] for name in type_.entity.split("|"))

    def variable(self, name: str, place: Place) -> Type:
        found = self.variables.get(name)
        if found is None:
            if name in self.failed:
                raise Refused("", f"`${name}` was refused before", place)
            if self.mutation:
                hint = did_you_mean(name, self.params, "$")
                raise Refused("T14", f"`${name}` is not a parameter of this query", place, hint)
            hint = did_you_mean(name, iter([*self.variables, *self.params]), "$")
            if name == "_":
                hint = "`$_` is another one each time; give it a name to use it"
            raise Refused("T6", f"`${name}` is not bound", place, hint)
        return found
