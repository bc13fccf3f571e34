"""The schema IR as JSON, and back: strict in what it reads, so that a damaged file is found where it is damaged."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar

from omnigraph.errors import BadRequest
from omnigraph.schema.catalog import SCALARS, Type
from omnigraph.schema.ir import IR_VERSION, Constraint, PropertyIR, SchemaIR, TypeIR, constraint_key
from omnigraph.schema.literals import Mismatch, fit

__all__ = [
    "MalformedIR",
    "canonical_json",
    "constraint_json",
    "property_json",
    "read_schema",
    "schema_json",
    "type_json",
]

_T = TypeVar("_T")
_KINDS = ("card", "check", "index", "key", "range", "unique")


class MalformedIR(BadRequest):
    """A text isn't the JSON of a schema IR; the message names the place, as `types[2].properties[0].id`."""

    def __init__(self, where: str, problem: str) -> None:
        super().__init__(
            f"schema IR, {where or 'whole text'}: {problem}", code="malformed_ir", details={"place": where}
        )


def canonical_json(value: Any) -> str:
    """Keys sorted, nothing between the tokens, characters as they are."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


# ---- writing ---------------------------------------------------------------------------------------------------------


def schema_json(schema: SchemaIR) -> dict[str, Any]:
    return {
        "ir_version": schema.version,
        "next_id": schema.next_id,
        "types": [type_json(t) for t in schema.types],
    }


def type_json(t: TypeIR) -> dict[str, Any]:
    out: dict[str, Any] = {
        "id": t.id,
        "kind": t.kind,
        "name": t.name,
        "properties": [property_json(p) for p in t.properties],
        "constraints": [constraint_json(c) for c in t.constraints],
        "annotations": annotations_json(t.annotations),
    }
    if t.kind == "edge":
        return out | {"source": t.source, "target": t.target}
    return out | {"interfaces": list(t.interfaces)}


def property_json(p: PropertyIR) -> dict[str, Any]:
    out: dict[str, Any] = {"id": p.id, "name": p.name, "type": _type_json(p.type)}
    if p.has_default:
        out["default"] = plain_json(p.default)
    if p.annotations:
        out["annotations"] = annotations_json(p.annotations)
    return out


def constraint_json(c: Constraint) -> dict[str, Any]:
    out: dict[str, Any] = {"kind": c.kind}
    if c.properties:
        out["properties"] = list(c.properties)
    if c.low is not None:
        out["low"] = c.low
    if c.high is not None:
        out["high"] = c.high
    if c.kind == "check":
        out["pattern"] = c.pattern
    return out


def annotations_json(annotations: tuple[tuple[str, Any], ...]) -> dict[str, Any]:
    return {name: plain_json(value) for name, value in annotations}


def _type_json(t: Type) -> dict[str, Any]:
    out: dict[str, Any] = {"base": t.base}
    if t.nullable:
        out["nullable"] = True
    if t.list:
        out["list"] = True
    if t.enum:
        out["enum"] = list(t.enum)
    if t.dim:
        out["dim"] = t.dim
    return out


def plain_json(value: Any) -> Any:
    """A literal's Python value as JSON: dates and times as ISO texts, tuples as arrays."""
    if isinstance(value, dt.datetime):
        return value.astimezone(dt.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    if isinstance(value, dt.date):
        return value.isoformat()
    if isinstance(value, tuple):
        return [plain_json(item) for item in value]
    return value


# ---- reading ---------------------------------------------------------------------------------------------------------


def read_schema(text: str | bytes) -> SchemaIR:
    """Raises: MalformedIR."""
    try:
        value = json.loads(text, parse_constant=_no_constant, object_pairs_hook=_no_repeats)
    except (ValueError, RecursionError) as error:
        raise MalformedIR("", f"not JSON: {error}") from None
    body = _object(value, "", ("ir_version", "next_id", "types"))
    version = _integer(body["ir_version"], "ir_version", 1)
    if version > IR_VERSION:
        raise MalformedIR("ir_version", f"{version} is newer than this program reads ({IR_VERSION}): upgrade omnigraph")
    if version < IR_VERSION:
        raise MalformedIR("ir_version", f"{version} has no ids: make it again from the schema's text")
    next_id = _integer(body["next_id"], "next_id", 1)
    types = _items(body["types"], "types", _read_type)
    ids = [i for t in types for i in (t.id, *(p.id for p in t.properties))]
    if len(set(ids)) != len(ids):
        raise MalformedIR("types", "an id is given twice")
    if max(ids, default=0) >= next_id:
        raise MalformedIR("next_id", f"must be above every id, and {max(ids)} is one")
    _distinct([t.table_key for t in types], "types")
    nodes = {t.name for t in types if t.kind == "node"}
    for index, t in enumerate(types):
        for name, end in (("source", t.source), ("target", t.target)):
            if t.kind == "edge" and end not in nodes:
                raise MalformedIR(f"types[{index}].{name}", f"{end!r} is no node type here")
    return SchemaIR(tuple(sorted(types, key=lambda t: t.table_key)), next_id)


def _read_type(value: Any, where: str) -> TypeIR:
    common = ("id", "kind", "name", "properties", "constraints", "annotations")
    edge = isinstance(value, dict) and value.get("kind") == "edge"
    body = _object(value, where, (*common, "source", "target") if edge else (*common, "interfaces"))
    kind = _one_of(body["kind"], f"{where}.kind", ("node", "edge"))
    properties = _items(body["properties"], f"{where}.properties", _read_property)
    _distinct([p.name for p in properties], f"{where}.properties")
    constraints = _items(body["constraints"], f"{where}.constraints", _read_constraint)
    known = {p.name for p in properties} | ({"src", "dst"} if edge else set())
    for index, c in enumerate(constraints):
        missing = [p for p in c.properties if p not in known]
        if missing:
            raise MalformedIR(f"{where}.constraints[{index}]", f"{missing[0]!r} is no property here")
    return TypeIR(
        _integer(body["id"], f"{where}.id", 1),
        kind,
        _text(body["name"], f"{where}.name"),
        tuple(sorted(properties, key=lambda p: p.name)),
        tuple(sorted(set(constraints), key=constraint_key)),
        _text(body["source"], f"{where}.source") if edge else "",
        _text(body["target"], f"{where}.target") if edge else "",
        () if edge else tuple(sorted(_items(body["interfaces"], f"{where}.interfaces", _text))),
        _read_annotations(body["annotations"], f"{where}.annotations"),
    )


def _read_property(value: Any, where: str) -> PropertyIR:
    body = _object(value, where, ("id", "name", "type"), ("default", "annotations"))
    type_ = _read_type_of(body["type"], f"{where}.type")
    default = None
    if "default" in body:
        try:
            default = fit(body["default"], type_)
        except Mismatch as error:
            raise MalformedIR(f"{where}.default", str(error)) from None
    return PropertyIR(
        _integer(body["id"], f"{where}.id", 1),
        _text(body["name"], f"{where}.name"),
        type_,
        "default" in body,
        default,
        _read_annotations(body.get("annotations", {}), f"{where}.annotations"),
    )


def _read_type_of(value: Any, where: str) -> Type:
    body = _object(value, where, ("base",), ("nullable", "list", "enum", "dim"))
    base = _one_of(body["base"], f"{where}.base", SCALARS | {"Blob", "Vector"})
    for name in ("nullable", "list"):
        if body.get(name, True) is not True:
            raise MalformedIR(f"{where}.{name}", "is true or left out")
    enum = tuple(_items(body.get("enum", []), f"{where}.enum", _text))
    if bool(enum) != (base == "Enum") or list(enum) != sorted(set(enum)):
        raise MalformedIR(f"{where}.enum", "an Enum has sorted values, each once, and nothing else has any")
    if ("dim" in body) != (base == "Vector"):
        raise MalformedIR(f"{where}.dim", "a Vector has a length, and nothing else has one")
    dim = _integer(body.get("dim", 0), f"{where}.dim", 0 if base != "Vector" else 1)
    if "list" in body and base in ("Blob", "Vector"):
        raise MalformedIR(f"{where}.list", f"there is no list of {base}")
    return Type(base, "nullable" in body, "list" in body, enum, dim)


def _read_constraint(value: Any, where: str) -> Constraint:
    body = _object(value, where, ("kind",), ("properties", "low", "high", "pattern"))
    kind = _one_of(body["kind"], f"{where}.kind", _KINDS)
    properties = tuple(_items(body.get("properties", []), f"{where}.properties", _text))
    count = {"card": (0, 0), "range": (1, 1), "check": (1, 1)}.get(kind, (1, 10**6))
    if not count[0] <= len(properties) <= count[1]:
        raise MalformedIR(f"{where}.properties", f"a {kind} has another number of properties")
    if ("pattern" in body) != (kind == "check"):
        raise MalformedIR(f"{where}.pattern", "a check has a pattern, and nothing else has one")
    for end in ("low", "high"):
        if end in body and (kind not in ("card", "range") or isinstance(body[end], bool)):
            raise MalformedIR(f"{where}.{end}", f"a {kind} has no such end")
        if end in body and not isinstance(body[end], int if kind == "card" else (int, float)):
            raise MalformedIR(f"{where}.{end}", "expected a number")
    pattern = _text(body["pattern"], f"{where}.pattern") if kind == "check" else ""
    return Constraint(kind, properties, body.get("low"), body.get("high"), pattern)


def _read_annotations(value: Any, where: str) -> tuple[tuple[str, Any], ...]:
    if not isinstance(value, dict):
        raise MalformedIR(where, "expected an object")
    return tuple((name, _literal(value[name], f"{where}.{name}")) for name in sorted(value))


def _literal(value: Any, where: str) -> Any:
    if isinstance(value, list):
        return tuple(_items(value, where, _literal))
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    raise MalformedIR(where, "expected a literal or an array of them")


# ---- shapes ----------------------------------------------------------------------------------------------------------


def _object(value: Any, where: str, required: Collection[str], optional: Collection[str] = ()) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise MalformedIR(where, "expected an object")
    dot = f"{where}." if where else ""
    for name in required:
        if name not in value:
            raise MalformedIR(f"{dot}{name}", "is missing")
    for name in value:
        if name not in required and name not in optional:
            raise MalformedIR(f"{dot}{name}", "is unknown")
    return value


def _items(value: Any, where: str, read: Callable[[Any, str], _T]) -> list[_T]:
    if not isinstance(value, list):
        raise MalformedIR(where, "expected an array")
    return [read(item, f"{where}[{index}]") for index, item in enumerate(value)]


def _integer(value: Any, where: str, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise MalformedIR(where, f"expected a whole number from {least} on")
    return value


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str) or not value:
        raise MalformedIR(where, "expected a text")
    return value


def _one_of(value: Any, where: str, known: Collection[str]) -> str:
    if not isinstance(value, str) or value not in known:
        raise MalformedIR(where, f"expected one of {', '.join(sorted(known))}")
    return value


def _distinct(names: list[str], where: str) -> None:
    for name in names:
        if names.count(name) > 1:
            raise MalformedIR(where, f"{name} is there twice")


def _no_constant(text: str) -> Any:
    raise ValueError(f"{text} is no JSON number")


def _no_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    out = dict(pairs)
    if len(out) != len(pairs):
        raise ValueError("a name twice in one object")
    return out
