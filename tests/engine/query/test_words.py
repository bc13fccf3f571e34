"""Words of the language stay names where nothing else can stand: after a dot, before a colon, after `$` and `as`."""

from __future__ import annotations

import pytest

from omnigraph.errors import LanguageError
from omnigraph.query import compile_query
from omnigraph.query.ir import Expand, NodeScan, Project, Prop
from omnigraph.schema import Catalog, compile_schema

# Words that may go on or begin an expression, and others of the language.
OPERATORS = ["and", "or", "not", "contains", "starts_with", "in", "is", "case", "optional", "exists", "null", "true"]
WORDS = [
    *OPERATORS,
    *("as", "asc", "desc", "when", "then", "else", "end", "distinct", "skip", "query", "match", "return", "order"),
    *("limit", "insert", "update", "delete", "set", "where", "count", "sum", "enum", "date", "datetime", "node"),
    *("search", "fuzzy", "match_text", "nearest", "bm25", "rrf", "now", "shortest", "edge", "interface", "from", "to"),
]
# What begins an expression can't be told from a bare name there.
BARE = [word for word in WORDS if word not in ("not", "case", "exists", "null", "true", "false")]

GAPS = ["", " ", "\n", "/* . : */", " // { ( =\n", "\t/* a *//* b */ "]


def catalog(word: str) -> Catalog:
    own = "" if word in ("from", "to") else f"{word}: I32?"  # an edge has these already
    return compile_schema(f"""
        node Thing {{ name: String @key  {word}: I32? }}
        edge Joins: Thing -> Thing {{ {own} }}
        edge {"Dated" if word.startswith("date") else word.capitalize()}: Thing -> Thing
    """)


@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize("gap", GAPS)
def test_a_word_after_a_dot_and_before_a_colon(word: str, gap: str) -> None:
    clauses = f"${word}{gap}:{gap}Thing {{ {word}{gap}: 3 }} ${word}{gap}.{gap}{word} > 1"
    text = f"query {word}(${word}: I32) {{ match {{ {clauses} }} return {{ ${word}.{word} as {word} }} }}"
    query = compile_query(text, catalog(word))
    assert query.name == word
    assert query.columns[0].name == word
    assert isinstance(query.operators[0], NodeScan)
    assert query.operators[0].var == word
    assert isinstance(query.operators[1], Project)
    assert query.operators[1].columns == ((word, Prop(word, word, query.columns[0].type)),)


@pytest.mark.parametrize("word", WORDS)
def test_a_word_is_assigned(word: str) -> None:
    for text in (
        f'query q(${word}: I32) {{ insert Thing {{ name: "a", {word}: ${word} }} }}',
        f'query q(${word}: I32) {{ update Thing set {{ {word}: ${word} }} where name = "a" }}',
    ):
        (statement,) = compile_query(text, catalog(word)).statements
        assert [name for name, _ in statement.values][-1] == word  # type: ignore[union-attr]


@pytest.mark.parametrize("word", BARE)
def test_a_bare_word(word: str) -> None:
    known = catalog(word)
    compile_query(f"query q() {{ delete Thing where {word} = 3 }}", known)
    tail = f"return {{ $a.name as {word} }} order {{ {word} desc }}"
    compile_query(f"query q() {{ match {{ $a joins $b }} {tail} }}", known)
    if word not in ("from", "to"):
        step = compile_query(f"query q() {{ match {{ $a joins{{1,2}}[{word} > 1] $b }} {tail} }}", known).operators[1]
        assert isinstance(step, Expand)
        assert step.hop_where is not None


@pytest.mark.parametrize("word", [word for word in WORDS if not word.startswith("date")])
def test_an_edge_of_a_reserved_name_is_followed_in_parentheses(word: str) -> None:
    query = compile_query(f"query q() {{ match {{ $a ({word}) $b }} return {{ $b.name }} }}", catalog(word))
    step = query.operators[1]
    assert isinstance(step, Expand)
    assert step.ways[0].edge == word.capitalize()


@pytest.mark.parametrize("word", OPERATORS)
def test_an_edge_of_a_reserved_name_is_not_followed_by_its_bare_name(word: str) -> None:
    text = f"query q() {{ match {{ $a: Thing $b: Thing $a {word} $b }} return {{ $b.name }} }}"
    with pytest.raises(LanguageError):
        compile_query(text, catalog(word))


GAPPED = """
query~q~(~$n~:~[~I32~]~,~$k~:~I64~)~@description~(~"x"~)~{
  match~{
    $a~:~Thing~{~name~:~"x"~,~}
    $a~.~size~not~in~$n
    $a~(~joins~|~likes~)~{~1~,~2~}~[~size~>~1~]~$b
    $a~$w~:~joins~$c
    $a~$v~:~(~joins~|~likes~)~$c
    $a~<~joins~>~{~2~}~$c
    $a~*~{~1~}~$d
    $p~=~shortest~$a~joins~{~1~,~3~}~$d
    not~{~$a~joins~$_~}
    optional~{~$a~likes~$e~}
    count~{~$a~joins~$_~}~>~1
    exists~{~$a~joins~$_~}
    contains~(~$a~.~name~,~"x"~)
    ($a~.~size~)~is~not~null~and~not~$a~.~size~=~3~or~false
  }
  return~distinct~{~case~when~$a~.~size~>~1~then~1~else~2~end~as~x~,~length~(~$p~)~as~y~}
  order~{~x~desc~,~y~}
  limit~$k~skip~3
}
"""


@pytest.mark.parametrize("gap", GAPS[1:])
def test_white_space_and_comments_stand_between_any_two_words(gap: str) -> None:
    known = compile_schema("""
        node Thing { name: String @key  size: I32? }
        edge Joins: Thing -> Thing { size: I32? }
        edge Likes: Thing -> Thing { size: I32? }
    """)
    plain, gapped = (compile_query(GAPPED.replace("~", by), known) for by in (" ", gap))
    assert plain.operators == gapped.operators
    assert plain.columns == gapped.columns
