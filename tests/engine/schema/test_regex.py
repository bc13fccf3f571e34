"""What `@check` accepts, RE2 understands; asked of the RE2 that checks rows."""

from __future__ import annotations

import re
import warnings

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.schema.regex import refuse_regex

PIECES = [
    *"ab.*+?|()[]{}^$-,:=!<>P\\1",
    *("(?:", "(?P<n>", "(?i)", "(?s:", "(?x)", "(?a)", "(?#", "(?=", "(?<!", "(?P=n)", "(?>", "[^", "[[:alpha:]]"),
    *(
        "\\d",
        "\\W",
        "\\b",
        "\\B",
        "\\A",
        "\\z",
        "\\Z",
        "\\pL",
        "\\p{Greek}",
        "\\P{Nope}",
        "\\x41",
        "\\x{1F600}",
        "\\x4",
    ),
    *("\\u0041", "\\N{DIGIT ONE}", "\\0", "\\12", "\\Q", "\\E", "\\C", "\\n", "\\-", "\\é"),
    *("{2}", "{2,}", "{,3}", "{0,3}", "{1000}", "{1001}", "{40,50}", "[a-z]", "é", "\x00", "\n"),
]


def understood(pattern: str) -> bool:
    try:
        pc.match_substring_regex(pa.array(["a"]), f"\\A(?:{pattern})\\z")
    except pa.ArrowInvalid:
        return False
    return True


@settings(max_examples=400, deadline=None, print_blob=True)
@given(st.lists(st.sampled_from(PIECES), max_size=7).map("".join))
def test_what_is_accepted_is_understood(pattern: str) -> None:
    if refuse_regex(pattern) is None:
        assert understood(pattern), pattern


@settings(max_examples=200, deadline=None, print_blob=True)
@given(
    st.lists(
        st.sampled_from(["a", "b", ".", "[ab]", "(a|b)", "(?:ab)", "*", "+", "?", "{2}", "{0,2}", "|", "[^a]"]),
        max_size=6,
    ).map("".join),
    st.text("ab\n", max_size=5),
)
def test_both_engines_agree_on_plain_patterns(pattern: str, text: str) -> None:
    if refuse_regex(pattern) is not None:
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ours = re.fullmatch(pattern, text) is not None
    assert pc.match_substring_regex(pa.array([text]), f"\\A(?:{pattern})\\z").to_pylist() == [ours]


@pytest.mark.parametrize(
    "pattern",
    [
        "[a-z0-9-]+",
        "^[A-Z]{2}[0-9]{2}$",
        r"\p{L}+[[:digit:]]*\.\x{20AC}?",
        "(?i)[a-f]{64}",
        r"10\.[0-9]{4,9}/.+",
        "(?P<year>[0-9]{4})-(?:0[1-9]|1[0-2])",
        "[]a]|[^]a]",
        "(a{30}){30}",
        ".{0,1000}",
        r"\pL{0,150}",
        "[a[](?:b)[^]-]",
        "",
    ],
)
def test_accepted(pattern: str) -> None:
    assert refuse_regex(pattern) is None
    assert understood(pattern)


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("(", "unterminated subpattern"),
        ("(?=x)", "look-ahead"),
        ("(?<!x)", "look-ahead and look-behind"),
        (r"(a)\1", "back references"),
        ("(?P<a>x)(?P=a)", "back references"),
        ("(?>a)", "atomic"),
        ("a++", "possessive"),
        (r"a\Z", r"write `\z`"),
        (r"\u0041", r"write `\x{…}`"),
        ("a{,3}", "write `{0,3}` for `{,3}`"),
        ("(?x)a b", "the flags i, m, s"),
        ("(?#note)", "the flags i, m, s"),
        ("a{1001}", "more than 1000"),
        ("(a{40}){40}", "more than 1000"),
        ("((([a-z]{1,9}){1,9}){1,9}[a-z]{900}){1,2}", "more than 1000"),
        (r"\pL{1000}", "too large"),
        (r"(?i)[\pL\pN]{800}", "too large"),
        (r"\p{Klingon}", "no class of characters"),
        ("[[:alfa:]]", "no class of characters"),
        ("a\\", "before nothing"),
        ("[a[](?x)", "the flags i, m, s"),
        ("[a[^](?x)", "the flags i, m, s"),
    ],
)
def test_refused_in_words(pattern: str, words: str) -> None:
    assert words in (refuse_regex(pattern) or "accepted")
