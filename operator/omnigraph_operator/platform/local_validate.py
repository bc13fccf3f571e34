"""What the API server does with an object before it stores it: defaults, types, CEL rules. From the generated CRD."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import cel

from omnigraph_operator.model.crd import Kind, crd

__all__ = ["Finding", "not_texts", "short", "validate"]

Place = tuple[str | int, ...]
Node = Mapping[str, Any]

_TYPES: Mapping[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong, and where in the object."""

    place: Place
    message: str


@cache
def _schema(kind: str) -> Node:
    from omnigraph_operator.model.crd import KINDS

    node: Node = crd(KINDS[kind])["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return node


@cache
def _program(rule: str) -> Any:
    return cel.compile(rule)


def validate(kind: Kind, obj: dict[str, Any], old: Mapping[str, Any] | None = None) -> list[Finding]:
    """Fill in defaults (in place) and check.

    Args:
        obj: the object; unknown fields are findings, as `kubectl apply` has it.
        old: what is stored; rules with `oldSelf` are judged only then.
    """
    schema = _schema(kind.kind)
    tree = dict(schema["properties"])
    tree.pop("metadata"), tree.pop("status")
    unknown = [name for name in obj if name not in schema["properties"]]
    findings = [Finding((name,), "there is no such field; known: metadata, spec") for name in unknown]
    spec, before = obj.get("spec"), (old or {}).get("spec")
    if spec is None:
        return [*findings, Finding(("spec",), "is needed")]
    findings += _check(tree["spec"], spec, ("spec",), before)
    if not findings:
        # Rules may rely on the structure; the API server has it the same way.
        findings += _rules(tree["spec"], spec, ("spec",), before)
        findings += list(_own_rules(schema, obj, (), old))
    return findings


def not_texts(obj: Mapping[str, Any], *fields: str, above: Place = ()) -> list[Finding]:
    """What keeps fields from being texts by name, if they are there. Shows no value: it may be secret."""
    out: list[Finding] = []
    for field in fields:
        value = {} if obj.get(field) is None else obj[field]
        if not isinstance(value, dict):
            out.append(Finding((*above, field), f"texts by name are needed, not {type(value).__name__}"))
            continue
        wrong = {name: type(inner).__name__ for name, inner in value.items() if not isinstance(inner, str)}
        out += [Finding((*above, field, name), f"a text is needed, not {kind}") for name, kind in wrong.items()]
    return out


def short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:79]}…"


def _check(node: Node, value: Any, place: Place, old: Any) -> list[Finding]:
    if node.get("x-kubernetes-int-or-string"):
        return [] if isinstance(value, str | int) else [Finding(place, f"a number or a text is needed, not {value!r}")]
    type_ = node.get("type")
    if type_ is None:
        return []
    wanted = _TYPES[type_]
    if not isinstance(value, wanted) or (isinstance(value, bool) and type_ in ("integer", "number")):
        return [Finding(place, f"{type_} is needed, not {value!r}")]
    if isinstance(value, dict):
        return _check_object(node, value, place, old)
    if isinstance(value, list):
        return _check_array(node, value, place, old)
    return [Finding(place, text) for text in _scalar(node, value)]


def _check_object(node: Node, value: dict[str, Any], place: Place, old: Any) -> list[Finding]:
    out: list[Finding] = []
    properties: Mapping[str, Node] | None = node.get("properties")
    if properties is None:
        inner = node.get("additionalProperties")
        return [f for k, v in value.items() for f in _check(inner, v, (*place, k), None)] if inner else []
    for name in [k for k, v in value.items() if v is None]:
        del value[name]  # as the API server does with nulls
    for name, child in properties.items():
        if name not in value and "default" in child:
            value[name] = _copy(child["default"])
    out += [Finding(place, f"{name} is needed") for name in node.get("required", ()) if name not in value]
    for name, inner_value in value.items():
        if name not in properties:
            if not node.get("x-kubernetes-preserve-unknown-fields"):
                out.append(Finding((*place, name), f"there is no such field; known: {', '.join(properties)}"))
            continue
        before = old.get(name) if isinstance(old, Mapping) else None
        out += _check(properties[name], inner_value, (*place, name), before)
    return out


def _check_array(node: Node, value: list[Any], place: Place, old: Any) -> list[Finding]:
    out = []
    for limit, wrong, text in (("maxItems", len(value).__gt__, "at most"), ("minItems", len(value).__lt__, "at least")):
        if limit in node and wrong(node[limit]):
            out.append(Finding(place, f"{text} {node[limit]} items, not {len(value)}"))
    keys = node.get("x-kubernetes-list-map-keys")
    seen: set[tuple[Any, ...]] = set()
    for i, item in enumerate(value):
        found = _check(node["items"], item, (*place, i), None)
        out += found
        if keys and not found:  # its keys are what the schema says, and so no lists
            key = tuple(item.get(k) for k in keys)
            if key in seen:
                out.append(Finding((*place, i, keys[0]), f"{', '.join(map(str, key))} is given twice"))
            seen.add(key)
    return out


def _scalar(node: Node, value: Any) -> Iterator[str]:
    if "enum" in node and value not in node["enum"]:
        yield f"{value!r} isn't one of {', '.join(map(str, node['enum']))}"
    if isinstance(value, str):
        if len(value) > node.get("maxLength", len(value)):
            yield f"at most {node['maxLength']} characters, not {len(value)}"
        if len(value) < node.get("minLength", 0):
            yield f"at least {node['minLength']} characters are needed"
        if "pattern" in node and not re.search(node["pattern"], value):
            yield f"{value!r} doesn't match {node['pattern']}"
    elif not isinstance(value, bool):
        if value > node.get("maximum", value):
            yield f"at most {node['maximum']}, not {value}"
        if value < node.get("minimum", value):
            yield f"at least {node['minimum']}, not {value}"


def _rules(node: Node, value: Any, place: Place, old: Any) -> list[Finding]:
    out = list(_own_rules(node, value, place, old))
    if isinstance(value, dict) and "properties" in node:
        for name, child in node["properties"].items():
            if name in value:
                before = old.get(name) if isinstance(old, Mapping) else None
                out += _rules(child, value[name], (*place, name), before)
    elif isinstance(value, list):
        for i, item in enumerate(value):
            out += _rules(node["items"], item, (*place, i), None)
    return out


def _own_rules(node: Node, value: Any, place: Place, old: Any) -> Iterator[Finding]:
    for rule in node.get("x-kubernetes-validations", ()):
        program = _program(rule["rule"])
        context = {"self": value}
        if "oldSelf" in program.variables():
            if old is None:
                continue
            context["oldSelf"] = old
        if program.execute(context) is not True:
            yield Finding(place, rule["message"])


def _copy(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _copy(v) for k, v in value.items()}
    return [_copy(v) for v in value] if isinstance(value, list) else value
