"""What a checking pass knows: the catalog, the query's parameters, the variables in sight, and what was refused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from omnigraph.errors import Diagnostic
from omnigraph.schema.ast import Place
from omnigraph.schema.catalog import Catalog, EdgeType, NodeType, Type
from omnigraph.schema.grammar import nearest_name
from omnigraph.schema.source import SourceText

__all__ = ["Refused", "Scope", "did_you_mean"]


class Refused(Exception):
    def __init__(self, code: str, message: str, place: Place, hint: str | None = None) -> None:
        super().__init__(message)
        self.code, self.message, self.place, self.hint = code, message, place, hint


def did_you_mean(name: str, names: Iterator[str] | Mapping[str, object], prefix: str = "") -> str | None:
    near = nearest_name(name, names)
    return f"did you mean `{prefix}{near}`?" if near else None


@dataclass
class Scope:
    """One query's context. `variables` maps a bound name to `Type("Node" | "Edge", entity=…)`.

    `bare` holds what a bare name means (the properties in a mutation's `where`); `aggregates` says whether an aggregate
    may stand here.
    """

    source: SourceText
    catalog: Catalog
    params: Mapping[str, Type]
    found: list[Diagnostic]
    variables: dict[str, Type] = field(default_factory=dict)
    bare: Mapping[str, tuple[str, Type]] | None = None
    aggregates: bool = False
    failed: set[str] = field(default_factory=set)  # variables whose own clause was refused: no second complaint
    fresh: list[int] = field(default_factory=lambda: [0])

    def inner(self) -> Scope:
        """A scope for a nested block: sees what is bound here, binds for itself."""
        return replace(self, variables=dict(self.variables))

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

    def entity(self, type_: Type) -> NodeType | EdgeType:
        return self.catalog.nodes[type_.entity] if type_.base == "Node" else self.catalog.edges[type_.entity]

    def variable(self, name: str, place: Place) -> Type:
        found = self.variables.get(name)
        if found is None:
            if name in self.failed:
                raise Refused("", f"`${name}` was refused before", place)
            known = [*self.variables, *self.params]
            raise Refused("T6", f"`${name}` is not bound", place, did_you_mean(name, iter(known), "$"))
        return found
