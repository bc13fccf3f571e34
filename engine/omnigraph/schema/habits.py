"""Habits of other languages, and how the thing is written in a schema. Data for `Grammar`: see `Habit` there."""

from __future__ import annotations

from omnigraph.schema.grammar import Habit

__all__ = ["SCHEMA_HABITS"]

SCHEMA_HABITS = (
    Habit(r",", "properties and annotations follow one another without commas", expects="NAME"),
    Habit(r";", "nothing but white space stands between properties"),
    Habit(r"[A-Z]\w*\s*:", "a property's name starts lower-case", expects="NAME"),
    Habit(r"(type|class|table|vertex|entity|struct)\b", "`node` declares a type of nodes, `edge` one of edges"),
    Habit(r"(relation|relationship|rel)\b", "`edge Name: From -> To` declares a type of edges"),
    Habit(r"@[A-Z]", "annotations are written lower-case"),
    Habit(r"\{|[A-Z]\w*\s*-", "an edge names its ends: `edge Knows: Person -> Person`", after=r"edge\s+[A-Z]\w*\s*$"),
    Habit(r"\(", "properties stand in `{ }`", after=r"node\s+[A-Z]\w*\s*$"),
    Habit(r"\[\s*\]|<", "a list is written `[String]`", after=r":\s*[A-Z]\w*\s*$"),
    Habit(r"\[\s*\d", "a vector's length is written `Vector(3)`"),
    Habit(r"extends\b|:", "interfaces are named after `implements`", after=r"node\s+[A-Z]\w*\s*$"),
    Habit(r"=", "a default is written `@default(…)`"),
    Habit(r"!", "a property is required unless its type ends in `?`"),
    Habit(r"'", "texts stand in double quotes, enum values in none"),
    Habit(
        r"\)", "both ends are written: `@card(1..1)`, or `@card(1..)` without a maximum", after=r"@card\s*\(\s*\d+\s*$"
    ),
    Habit(r"\*|n\b", "no maximum is written `0..`", after=r"@card\s*\(\s*\d+\s*\.\.\s*$"),
    Habit(r",", "a range is written `low..high`", after=r"@range\s*\(\s*\w+\s*,\s*[-\d.]+\s*$"),
)
