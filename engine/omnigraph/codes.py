"""Every code that a schema, a query, a migration plan or a lint report may carry: the one table.

The reference's page of codes and the tests that look for missing cases are checked against it.
"""

from __future__ import annotations

from collections.abc import Mapping

from omnigraph.records import dataclass

__all__ = ["CODES", "Code"]


@dataclass(frozen=True, slots=True)
class Code:
    """`meaning`: what is wrong, in a line. `hint`: what to do, in general; a finding's own hint is nearer the point."""

    code: str
    meaning: str
    hint: str

    @property
    def severity(self) -> str:
        return "warning" if self.code.startswith("L") else "error"


_QUERIES = (
    Code(
        "Q000",
        "the text isn't of the language: a word or sign that can't stand there, a name given twice, inserts and deletes"
        " in one query",
        "the message says what could stand there",
    ),
    Code("T1", "unknown node type", "use a node type of the schema; edges are written between two variables"),
    Code("T2", "unknown property in a binding's braces", "use a property of that type"),
    Code("T3", "a value in a binding's braces that doesn't fit", "give a literal, a parameter or now() of the type"),
    Code("T4", "unknown edge", "use an edge of the schema, its first letter lower-case"),
    Code(
        "T5",
        "an end of the wrong type, or several hops over an edge between two types",
        "bind the end to the type that the edge joins; follow such an edge a single hop",
    ),
    Code("T6", "a variable that isn't bound, or an unknown property of one", "bind it in the match, or declare it"),
    Code("T7", "a comparison or an assignment whose types don't fit", "convert one side, or compare something else"),
    Code("T8", "an aggregate over something it can't take", "sum and avg take numbers, min and max what has an order"),
    Code(
        "T9",
        "grouping: an aggregate where none may stand, a column that can't be told apart; `not { }` without a variable"
        " from outside",
        "return what groups as a column of its own, name columns with `as`",
    ),
    Code("T10", "a mutation of an unknown type, or one that sets nothing", "use a type of the schema, set something"),
    Code(
        "T11", "a mutation that names a property the type hasn't, or one that can't stand there", "use its properties"
    ),
    Code("T12", "an insert without a required property or end", "give it, or give the property a @default"),
    Code("T13", "a property assigned twice", "keep one of the two"),
    Code("T14", "a variable in a mutation that isn't one of its parameters", "declare it in the query's head"),
    Code("T15", "hops without a maximum or the wrong way round; an operand of `nearest`", "write {least,most}"),
    Code("T16", "an update of an edge", "delete the edge and insert it anew"),
    Code("T17", "an order by `nearest` without a limit", "add a limit"),
    Code("T18", "an order by `nearest` together with a column's name", "order by one of them"),
    Code("T19", "an operand of `search` or `fuzzy`", "search a String property of a bound variable"),
    Code("T20", "an operand of `match_text` or `bm25`", "give a String property of a bound variable, then a text"),
    Code("T21", "`rrf`: an operand, `k`, or no limit", "give two rankings, a positive k, and a limit"),
    Code("T22", "an undirected hop over an edge between two types", "write the edge without `< >`"),
    Code("T23", "an edge bound over several hops, or to a name that is taken", "bind it over a single hop"),
    Code("T24", "a Blob as a value", "read a Blob by itself, through the library or the server"),
    Code(
        "T30", "`and`, `or`, `not`, `is null`, `in`: an operand of the wrong type", "give true or false; a list to in"
    ),
    Code(
        "T31",
        "arithmetic on what are no numbers, or on `U64` with signed ones",
        "convert with to_int or to_float; move dates with add_days and add_months",
    ),
    Code("T32", "a function that doesn't exist, or an argument it can't take", "see the table of functions"),
    Code(
        "T33", "`distinct`, `skip`, `limit`, `collect`", "a count is a whole number, from 0 on; collect takes scalars"
    ),
    Code("T34", "`optional`, `exists`, `count { … }` where they can't stand", "put the block into a match"),
    Code("T35", "a filter that is neither true nor false", "compare it with something"),
    Code("T36", "several edge types, `*`, a filter on hops", "bind the far end to one type; filter on what all have"),
    Code("T37", "`shortest` and what may be done with a path", "say how many hops at most; return nodes($path)"),
)

_SCHEMAS = (
    Code("S00", "the text isn't of the language", "the message says what could stand there"),
    Code("S01", "a name declared twice", "rename one; case is ignored among types"),
    Code("S02", "an unknown end of an edge, or an unknown interface", "declare it; edges join node types"),
    Code("S03", "interfaces that disagree about a property", "give it one type everywhere"),
    Code("S04", "a key or unique on what can't be one", "take required scalars other than floats"),
    Code("S05", "a constraint on a property that isn't there", "declare the property"),
    Code("S06", "`@check`: the regular expression, or what it is for", "check a String with a valid pattern"),
    Code("S07", "`@range`: empty, or not on a number", "write low..high, low first"),
    Code("S08", "a reserved name", "take another name"),
    Code("S09", "a property's type", "use a type of the language"),
    Code("S10", "a default that doesn't fit", "give a literal of the property's type"),
    Code("S11", "`@card`: no number lies in it, or given twice", "write min..max, min first"),
    Code("S12", "a constraint that can't stand there", "an edge takes @key, @unique and @index"),
    Code("S13", "an annotation's argument", "give it the literal it takes"),
)

_PLANS = (
    Code("OG-DS-102", "a node type with data is dropped", "the data stays in old versions; cleanup removes it"),
    Code("OG-DS-103", "an edge type with data is dropped", "the data stays in old versions; cleanup removes it"),
    Code("OG-DS-104", "a property with data is dropped", "the data stays in old versions; cleanup removes it"),
    Code(
        "OG-MF-103",
        "a required property without a default, added to a type with data",
        "give it a @default, or let it be null",
    ),
    Code("OG-MF-104", "what may be null becomes required", "fill the nulls, then add a new property and drop this one"),
    Code(
        "OG-MF-105",
        "the key of a type with data changes",
        "the ids of its rows are made of it: declare another type and move the rows",
    ),
    Code("OG-MF-106", "a property's type changes, or an enum loses a word", "add a new property and move the values"),
    Code("OG-MF-107", "an edge type gets other ends", "declare another edge type, and drop this one"),
)

_WARNINGS = (
    Code("L201", "a property that may be null and that no update sets", "set it in an update, or drop it"),
    Code("L202", "a mutation without parameters does the same each time", "give it a parameter"),
    Code(
        "L203",
        "something that may be null inside `not`: unknown isn't false",
        "say what a null means: test it with `is null` or `is not null`",
    ),
    Code("L204", "a parameter that is never used", "use it or remove it"),
)

CODES: Mapping[str, Code] = {c.code: c for c in (*_QUERIES, *_SCHEMAS, *_PLANS, *_WARNINGS)}
