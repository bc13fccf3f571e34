"""Parameters of one call, checked against the query's declarations; values as `omnigraph.schema.literals` has them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from omnigraph.arguments import expect_text
from omnigraph.errors import BadRequest
from omnigraph.query.ir import CompiledQuery
from omnigraph.query.ranking import MOST_EDITS
from omnigraph.query.scope import did_you_mean
from omnigraph.schema.literals import Mismatch, fit, is_zero

__all__ = ["bind_params"]


def bind_params(compiled: CompiledQuery, params: Mapping[str, Any]) -> dict[str, Any]:
    """Every declared parameter's value; one that may be left out and was is None.

    Takes Python values and their JSON forms: dates as ISO 8601 texts, 64-bit integers also as decimal texts. Names may
    carry the `$` they are declared with.

    Raises:
        BadRequest: a missing or unknown name, a value that isn't of the declared type, or one that can't be asked with
            whatever the rows are; `details` names it.
    """
    if not isinstance(params, Mapping):
        raise BadRequest(f'params is a {type(params).__name__}: give values by name, such as {{"name": ...}}')
    given: dict[str, Any] = {}
    for written, value in params.items():
        expect_text("the name of a parameter", written)
        name = written.removeprefix("$")
        if name in given:
            raise BadRequest(f"the parameter `{name}` is given twice, as `{name}` and as `${name}`")
        given[name] = value
    declared = compiled.declared
    for name in given:
        if name not in declared:
            hint = did_you_mean(name, declared)
            known = f"it takes {', '.join(declared)}" if declared else "it takes none"
            message = f"query `{compiled.name}` has no parameter `{name}`; {hint or known}"
            raise BadRequest(message, details={"parameter": name})
    bound: dict[str, Any] = {}
    for name, type_ in declared.items():
        if name not in given:
            if not type_.nullable:
                message = f"query `{compiled.name}` needs the parameter `{name}` ({type_})"
                raise BadRequest(message, details={"parameter": name})
            bound[name] = None
            continue
        try:
            bound[name] = fit(given[name], type_, json_forms=True)
        except Mismatch as error:
            message = f"query `{compiled.name}`, parameter `{name}`: {error}"
            raise BadRequest(message, details={"parameter": name}) from None
        if type_.base == "Vector" and compiled.kind == "read" and bound[name] is not None and is_zero(bound[name]):
            message = f"query `{compiled.name}`, parameter `{name}`: a vector of zeros has no direction"
            raise BadRequest(message, code="zero_vector", details={"parameter": name})
    for name in compiled.edits:
        if not 0 <= bound[name] <= MOST_EDITS:
            said = f"max_edits is a whole number from 0 to {MOST_EDITS}, and this is {bound[name]}"
            message = f"query `{compiled.name}`, parameter `{name}`: {said}"
            raise BadRequest(message, code="bad_value", details={"parameter": name})
    return bound
