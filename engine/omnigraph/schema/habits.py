"""Habits of other languages, and how the thing is written in a schema. Data for `Grammar`: see `Habit` there."""

from __future__ import annotations

from omnigraph.schema.grammar import Habit

__all__ = ["SCHEMA_HABITS"]

_ENDS = "an edge names its ends: `edge Knows: Person -> Person`"
_ENUM = "the values of an enum stand in parentheses, without quotes: `enum(a, b)`"
_MODIFIERS = "write `@key`, `@unique`, `@default(…)` after the type; it is required unless it ends in `?`"

SCHEMA_HABITS = (
    Habit(r"#|--+(?![->])|\"\"", "comments are `// …` and `/* … */`"),
    # the heads of declarations
    Habit(
        r"-|<|=|→|,|to\b|[A-Z]",
        "did you mean `->`? it joins the ends of an edge",
        after=r"edge\s+[A-Z]\w*\s*:\s*[A-Z]\w*\s*$",
    ),
    Habit(r"from\b|\(|\[", _ENDS, after=r"edge\s+[A-Z]\w*\s*:\s*$"),
    Habit(r"\{|\(|-|from\b|[A-Z]\w*\s*-", _ENDS, after=r"edge\s+[A-Z]\w*\s*$"),
    Habit(r"\(", "properties stand in `{ }`", after=r"node\s+[A-Z]\w*\s*$"),
    Habit(r"extends\b|:", "interfaces are named after `implements`", after=r"node\s+[A-Z]\w*\s*$"),
    Habit(r"extends\b|implements\b|:", "an interface has no interfaces of its own", after=r"interface\s+[A-Z]\w*\s*$"),
    Habit(r"&|[A-Z]", "commas stand between interfaces", after=r"implements\s+[A-Z][\w\s,]*$"),
    Habit(
        r"(type|class|table|vertex|entity|struct|model|message|record|(?i:create))\b",
        "`node` declares a type of nodes, `edge` one of edges",
        expects="_NODE",
    ),
    Habit(r"(relation|relationship|rel)\b", "`edge Name: From -> To` declares a type of edges", expects="_NODE"),
    Habit(r"enum\b", "an enum is written where it is used: `state: enum(a, b)`", expects="_NODE"),
    Habit(r"query\b", "queries stand in a file of their own, `.gq`", expects="_NODE"),
    Habit(r"[,;]", "nothing but white space stands between declarations", expects="_NODE"),
    # enums and other types
    Habit(r"[{\[]", _ENUM, after=r"enum\s*$"),
    Habit(r"\w", _ENUM, after=r"Enum\s*\(\s*$"),
    Habit(r"['\"]", _ENUM, after=r"enum\s*\([^)]*$"),
    Habit(r"\S", "commas stand between the values of an enum", after=r"enum\s*\([^)]*$"),
    Habit(r"<\s*\d|\[\s*\d", "a vector's length is written `Vector(3)`"),
    Habit(r"<", "what may be null is written `String?`", after=r":\s*(Optional|Option|Maybe|Nullable)\s*$"),
    Habit(r"\[\s*\]|<", "a list is written `[String]`", after=r":\s*[A-Z]\w*\s*$"),
    Habit(r"\(", "only `Vector(n)` takes a length", after=r":\s*[a-z]\w*\s*$"),
    Habit(r",", "only `Vector(n)` takes a number", after=r":\s*[A-Z]\w*\s*\(\s*\d+\s*$"),
    # constraints
    Habit(r",", "a range is written `low..high`", after=r"@range\s*\(\s*\w+\s*,\s*[-\d.]+\s*$"),
    Habit(
        r"\)", "both ends are written: `@card(1..1)`, or `@card(1..)` without a maximum", after=r"@card\s*\(\s*\d+\s*$"
    ),
    Habit(r"\*|n\b", "no maximum is written `0..`", after=r"@card\s*\(\s*\d+\s*\.\.\s*$"),
    Habit(r"@@", "an annotation begins with one `@`"),
    Habit(r"@[A-Z]", "annotations are written lower-case"),
    Habit(r"@[a-z_]", "an annotation stands after its property, or in the head of its type"),
    # properties
    Habit(r",", "properties and annotations follow one another without commas", expects="NAME"),
    Habit(r";", "nothing but white space stands between properties", expects="NAME"),
    Habit(r"[A-Z]\w*\s*:", "a property's name starts lower-case", expects="NAME"),
    Habit(r"[A-Z]\w*\s+[a-z_]", "a property is written `name: Type`", expects="NAME"),
    Habit(r"(NOT|NULL|PRIMARY|UNIQUE|DEFAULT|REFERENCES)\b", _MODIFIERS, expects="NAME"),
    Habit(
        r"",
        _MODIFIERS,
        after=r"\w\s+(not|primary|unique|default|required|nullable|optional|references)\s+$",
        expects="COLON",
    ),
    Habit(r"\?", "`?` stands after the type: `name: String?`", expects="COLON"),
    Habit(r"[A-Z=]|->", "a property is written `name: Type`", after=r"(?<!\w)[a-z_]\w*\s*$", expects="COLON"),
    Habit(r"\"", "names are written without quotes", expects="NAME"),
    Habit(r"=", "a default is written `@default(…)`", expects="NAME"),
    Habit(r"!", "a property is required unless its type ends in `?`"),
    Habit(r"'", "texts stand in double quotes, enum values in none"),
)
