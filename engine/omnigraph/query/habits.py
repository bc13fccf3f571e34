"""Habits of other languages, and how the thing is written in a query. Data for `Grammar`: see `Habit` there."""

from __future__ import annotations

from omnigraph.schema.grammar import Habit

__all__ = ["FUNCTION_HABITS", "QUERY_HABITS", "WORD_HABITS"]

QUERY_HABITS = (
    Habit(r"=", "equality is written `=`", after=r"=$"),
    Habit(r">", "unequal is written `!=`", after=r"<$"),
    Habit(r"&", "write `and`"),
    Habit(r"\|\|", "write `or`", expects="_OR"),
    Habit(
        r"!", "a parameter without `?` must be given, and needs no sign", after=r"[\])A-Za-z0-9]\s*$", expects="RPAR"
    ),
    Habit(r"!", "write `not`, or `!=` for unequal"),
    Habit(r"%", "write `mod(a, b)`", expects="TIMES"),
    Habit(r"[=<>!]", "comparisons don't chain: write `1 < $x and $x < 3`", after=r"[=<>]\s*\S+\s*$"),
    Habit(r"[“”„]", 'texts stand in straight double quotes, `"`'),
    Habit(r"`", 'names and texts stand in no backquotes; a text is written `"x"`'),
    Habit(r"#|--", "comments begin with `//`"),
    Habit(r"(None|nil|undefined|Null|NULL)\b", "write `null`, and `is null` to ask for it"),
    Habit(
        r"true|false|\"",
        "`is` goes with `null` only; a condition stands alone, or is compared with `=`",
        after=r"\bis\s+(not\s+)?$",
    ),
    Habit(r"\+", "a number stands without `+`", after=r"([=<>(,]|\bin|\band|\bor)\s*$"),
    Habit(r"[0-9]", "a number is digits alone, as in `1000` or `1.5`", expects="FLOAT"),
    Habit(r"[0-9]", "a whole number stands there", expects="INT"),
    Habit(r"(asc|desc)\b", "directions stand in `order { … }`", expects="_AS"),
    Habit(r"\{", "clauses stand there without `match`", after=r"\bmatch\s*$", expects="VAR_NODE"),
    Habit(r"\.[0-9]", "write `0.5`, with a digit before the point"),
    Habit(r"'", "texts stand in double quotes"),
    Habit(r";", "what stands in braces is separated by commas", expects="COMMA"),
    Habit(r";", "nothing but white space stands between clauses"),
    Habit(r",", "clauses follow one another without commas", expects="VAR_NODE"),
    Habit(r",", "statements follow one another without commas", after=r"\}\s*$", expects="INSERT"),
    Habit(r"(order|limit|skip)\b", "it comes after `return { … }`", expects="RETURN"),
    Habit(r"order\b", "`order` comes before `skip` and `limit`"),
    Habit(r"(?i)offset\b", "write `skip`", expects="SKIP"),
    Habit(r"(?i)group\b", "columns without an aggregate are what is grouped by", expects="ORDER"),
    Habit(r"(?i)(where|having)\b", "conditions stand in `match { … }` as clauses of their own", expects="ORDER"),
    Habit(r"WHERE\b", "conditions stand in `match { … }` as clauses of their own", expects="VAR_NODE"),
    Habit(r"by\b", "write `order { … }`", after=r"order\s*$"),
    Habit(r"where\b", "conditions stand in `match { … }` as clauses of their own", expects="RETURN"),
    Habit(r"\w+\s*:\s*[A-Z]", "a parameter begins with `$`", after=r"[(,]\s*$", expects="VAR"),
    Habit(r":\s*[A-Z]", "a variable begins with `$`", after=r"(?<![$\w])[a-z_]\w*\s*$"),
    Habit(r":\s*[A-Z]", "bind it in a clause of its own: `$x: Type`, then the edge", after=r"\$\w+\s+\S+\s*\$\w+\s*$"),
    Habit(r":\s*[a-z]", "a type's name starts upper-case", after=r"\$\w+\s*$", expects="VAR_NODE"),
    Habit(r":", "a column is named with `as`: `$x.name as n`", expects="_AS"),
    Habit(r"\{", "name each property: `$x.name, $x.age`", after=r"\$\w+\s*$", expects="_AS"),
    Habit(r'[A-Z"]', "a column's name starts lower-case and stands in no quotes", after=r"\bas\s+$"),
    Habit(r"\.", "a variable begins with `$`", after=r"(?<![$\w.])[a-z_]\w*\s*$"),
    Habit(r"\{", "bind it in a clause of its own: `$x: Type { … }`", after=r"\$\w+\s+\S+\s*\$\w+\s*$"),
    Habit(r"\{", "close the block with `}` before `return`", after=r"\breturn\s*$"),
    Habit(r"match\b", "clauses stand there without `match`", after=r"(optional|exists|count|not)\s*\{?\s*$"),
    Habit(r"\(|\$", "write `exists { … }` for a pattern, `$x.name is not null` for a value", after=r"\bexists\s*$"),
    Habit(r"\(|\$", "write `optional { … }`", after=r"\boptional\s*$"),
    Habit(r"[a-z]", "a pattern stands in braces, as in `not { … }` and `exists { … }`", after=r"\(\s*\$\w+\s+$"),
    Habit(r"\|", "several edges stand in parentheses: `$a (knows|likes) $b`", after=r"\$\w+\s+<?\w+\s*$"),
    Habit(r"\{", "hops come before the filter: `knows{1,3}[…]`", after=r"\]\s*$", expects="VAR"),
    Habit(
        r"[{\[<]",
        "it is an operator: an edge of that name is written `$a (in) $b`",
        after=r"\$\w+\s+(in|contains|starts_with)\s*$",
    ),
    Habit(r"\$|\S", "write `case when $x = 1 then … else … end`", after=r"\bcase\s+$"),
    Habit(r"[A-Z]\w*\s*(\{|\$)", "an edge is written with its first letter lower-case", after=r"\$\w+\s+$"),
    Habit(r">|\[", "an edge is written between its ends: `$a knows $b`", after=r"-\s*$"),
    Habit(r"\$[A-Z]", "a variable's name starts lower-case"),
    Habit(r"\{", "parameters stand in `( )`, even where there are none", after=r"query\s+\w+\s*$"),
    Habit(r"\$", "what is returned stands in `{ }`", after=r"return\s+(distinct\s+)?$"),
    Habit(r"\w+\s*=", "a value is given as `name: value`", expects="FIELD"),
    Habit(r"\*", "`count($x)` counts rows", after=r"count\(\s*$"),
    Habit(r"\.\s*\*", "`return { $x }` gives all of an entity"),
    Habit(r"\.\.", "hops are written `{1,3}`", after=r"\{\s*\d+\s*$"),
    Habit(r"\}", "say which ones: `where key = $x`", expects="_WHERE"),
    Habit(r"\{", "say which ones: `where key = $x`", expects="_WHERE"),
    Habit(r"(into|from)\b", "the type follows at once: `insert Type { … }`, `delete Type where …`", expects="TYPE"),
    Habit(r"(delete|insert|update)\b", "a query either reads or changes: write two", expects="RETURN"),
    Habit(r"return\b", "a query either reads or changes: write two", expects="INSERT"),
    Habit(
        r"(?i)(upsert|merge|create|add)\b",
        "write `insert`; where the key is there already, it updates",
        expects="INSERT",
    ),
    Habit(r"(?i)remove\b", "write `delete`", expects="INSERT"),
    Habit(r"where\b", "`set { … }` comes before `where`", expects="_SET"),
    Habit(r"\{", "write `update Type set { … } where …`", expects="_SET"),
    Habit(r"(?i)(?!que)[a-z{]", "write `query name($x: String) { match { … } return { … } }`", expects="_QUERY"),
    Habit(r"[A-Z]\w*\s*\(", "names of functions are lower-case"),
    Habit(r"[a-z]\w*", "types start upper-case: `String`, `I64`, `Date`", after=r"\$\w+\s*:\s*\[?\s*$", expects="ENUM"),
    Habit(r"<", "a list is written `[String]`", after=r"\$\w+\s*:\s*\w+\s*$"),
    Habit(r"@", "annotations stand after the parameters", expects="_QUERY"),
)

_CONDITIONS = "conditions are clauses of their own, with no word before them"
_PATTERN = 'write `matches(text, "pattern")`'
_PART = 'write `starts_with`, `ends_with(text, part)`, `contains` or `matches(text, "pattern")`'

WORD_HABITS = {
    **dict.fromkeys(("where", "filter", "with", "having", "if"), _CONDITIONS),
    **dict.fromkeys(("matches", "regex", "regexp", "rlike"), _PATTERN),
    **dict.fromkeys(("like", "ilike", "ends_with", "endswith", "startswith", "begins_with", "includes", "has"), _PART),
    **dict.fromkeys(("equals", "eq"), "equality is written `=`"),
    **dict.fromkeys(("isnull", "notnull", "null"), "write `is null` or `is not null`"),
    **dict.fromkeys(("and", "or"), "a pattern is joined to a condition as `exists { … }`"),
    "shortest": "write `$path = shortest $a knows{1,6} $b`",
    "between": "write `$x >= 1 and $x <= 3`",
    "mod": "write `mod(a, b)`",
    "xor": "two conditions differ where `a != b`",
}
"""Words that would be operators or clauses elsewhere, and how it is said here."""

FUNCTION_HABITS = {
    **dict.fromkeys(("tolower", "lowercase", "lcase"), "lower(text)"),
    **dict.fromkeys(("toupper", "uppercase", "ucase"), "upper(text)"),
    **dict.fromkeys(("len", "size", "strlen", "charlength", "arraylength", "cardinality"), "length(…)"),
    **dict.fromkeys(("substr", "mid", "left", "right"), "substring(text, start, count)"),
    **dict.fromkeys(("ifnull", "nvl", "isnull"), "coalesce(a, b)"),
    **dict.fromkeys(("if", "iif"), "case when … then … else … end"),
    **dict.fromkeys(("today", "currentdate", "currenttimestamp", "getdate", "timestamp"), "now()"),
    "datediff": "days_between(a, b)",
    "dateadd": "add_days(d, n)",
    **dict.fromkeys(("ceiling", "roundup"), "ceil(n)"),
    **dict.fromkeys(("regexmatch", "regexpmatch", "regexplike"), 'matches(text, "pattern")'),
    **dict.fromkeys(("tostring", "str", "string"), "to_string(v)"),
    **dict.fromkeys(("toint", "tointeger", "int", "integer"), "to_int(v)"),
    **dict.fromkeys(("tofloat", "float", "double"), "to_float(v)"),
    "todate": 'date("2026-01-31")',
    "todatetime": 'datetime("2026-01-31T10:00:00Z")',
    **dict.fromkeys(("average", "mean"), "avg(n)"),
    **dict.fromkeys(("arrayagg", "groupconcat", "stringagg"), "collect(v)"),
    "id": "$x.id",
    **dict.fromkeys(("relationships", "rels"), "edges($path)"),
}
"""Functions of other languages, in small letters without `_`, and what does it here."""
