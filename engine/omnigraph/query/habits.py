"""Habits of other languages, and how the thing is written in a query. Data for `Grammar`: see `Habit` there."""

from __future__ import annotations

from omnigraph.schema.grammar import Habit

__all__ = ["QUERY_HABITS"]

QUERY_HABITS = (
    Habit(r"=", "equality is written `=`", after=r"=$"),
    Habit(r">", "unequal is written `!=`", after=r"<$"),
    Habit(r"&", "write `and`"),
    Habit(r"\|", "write `or`", expects="_OR"),
    Habit(r"!", "write `not`, or `!=` for unequal"),
    Habit(r"'", "texts stand in double quotes"),
    Habit(r";", "nothing but white space stands between clauses"),
    Habit(r",", "clauses follow one another without commas", expects="VAR_NODE"),
    Habit(r"order\b", "`order` comes before `skip` and `limit`"),
    Habit(r"by\b", "write `order { … }`", after=r"order\s*$"),
    Habit(r"where\b", "conditions stand in `match { … }` as clauses of their own", expects="RETURN"),
    Habit(r"\w+\s*:\s*[A-Z]", "a parameter begins with `$`", after=r"[(,]\s*$", expects="VAR"),
    Habit(r":\s*[A-Z]", "a variable begins with `$`", after=r"(?<![$\w])[a-z_]\w*\s*$"),
    Habit(r":\s*[A-Z]", "bind it in a clause of its own: `$x: Type`, then the edge", after=r"\$\w+\s+\S+\s*\$\w+\s*$"),
    Habit(r":\s*[a-z]", "a type's name starts upper-case", after=r"\$\w+\s*$"),
    Habit(r"[A-Z]\w*\s*(\{|\$)", "an edge is written with its first letter lower-case", after=r"\$\w+\s+$"),
    Habit(r">|\[", "an edge is written between its ends: `$a knows $b`", after=r"-\s*$"),
    Habit(r"\$[A-Z]", "a variable's name starts lower-case"),
    Habit(r"\{", "parameters stand in `( )`, even where there are none", after=r"query\s+\w+\s*$"),
    Habit(r"\$", "what is returned stands in `{ }`", after=r"return\s+(distinct\s+)?$"),
    Habit(r"\w+\s*=", "a value is given as `name: value`", expects="FIELD"),
    Habit(r"\*", "`count($x)` counts rows", after=r"count\(\s*$"),
    Habit(r"\.\s*\*", "`return { $x }` gives all of an entity"),
    Habit(r"\.\.", "hops are written `{1,3}`", after=r"\{\s*\d+\s*$"),
    Habit(r"\}", "say which ones: `where key = $x`", after=r"delete\s+\w+\s*$"),
)
