"""What `@check` accepts, RE2 understands; asked of the RE2 that checks rows."""

from __future__ import annotations

import bisect
import random
import re
import warnings

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.schema.regex import fits, refuse_regex

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


ATOMS = [*"ab.Aé^$\n", "[ab]", "[^a]", "[a-é]", r"\w", r"\d", r"\s", r"\b", r"\B", r"\A", r"\z", r"\."]


def written(rng: random.Random, depth: int) -> str:
    """A pattern that backtracks, looks at places, and sets and unsets flags."""
    kind = rng.random() if depth else 0
    if kind < 0.35:
        return rng.choice(ATOMS)
    if kind < 0.55:
        return written(rng, depth - 1) + written(rng, depth - 1)
    if kind < 0.7:
        return f"(?:{written(rng, depth - 1)}|{written(rng, depth - 1)})"
    if kind < 0.9:
        repeat = rng.choice(["*", "+", "?", "{2}", "{0,2}", "{1,}", "*?", "+?", "??"])
        return f"({written(rng, depth - 1)}){repeat}"
    return f"(?{rng.choice(['i', 's', 'm', '-s', 'ms'])}:{written(rng, depth - 1)})"


@pytest.mark.parametrize("seed", range(20))
def test_whether_a_text_fits_is_told_as_by_re2(seed: int) -> None:
    rng = random.Random(seed)
    known = 0
    for _ in range(100):
        pattern = rng.choice(["", "", "", "(?i)", "(?s)", "(?m)"]) + written(rng, 5)
        text = "".join(rng.choice("aaabAB é1\n. ") for _ in range(rng.randrange(7)))
        if refuse_regex(pattern) is None and (ours := fits(pattern, text)) is not None:
            known += 1
            there = pc.match_substring_regex(pa.array([text]), f"\\A(?:{pattern})\\z").to_pylist()
            assert there == [ours], (pattern, text)
    assert known > 50


@pytest.mark.parametrize(
    ("pattern", "text", "told"),
    [
        ("(a+)+b", "a" * 40 + "c", False),
        ("(a|a)*" * 5 + "b", "a" * 60, False),
        ("(" * 60 + "a+" + ")*" * 60 + "b", "a" * 60, False),
        ("(a?){50}a{50}", "a" * 50, True),
        ("a*", "a" * 10_000, True),
        (r"\pL+", "a", None),
        ("(?i)é", "É", None),
    ],
)
def test_no_pattern_takes_longer_the_more_ways_there_are(pattern: str, text: str, told: bool | None) -> None:
    assert fits(pattern, text) is told


def written_set(rng: random.Random) -> str:
    """A set of characters: few or many, anywhere in Unicode or close together, alone or in ranges, or all but them."""
    planes = [(0x20, 0x7F), (0x80, 0x7FF), (0x370, 0x2FFF), (0x800, 0xFFFF), (0x10000, 0x10FFFF), (0, 0x10FFFF)]
    low, high = rng.choice(planes)
    longest = rng.choice([0, 0, 30, 3000])
    step = rng.choice([0, 0, 2, 7, 17, 997])
    items = []
    for i in range(int(2 ** rng.uniform(0, 11))):
        first = low + step * i if step else rng.randint(low, high)
        last = first + rng.randint(0, longest)
        if last <= high and not (first <= 0xDFFF and last >= 0xD800):
            items.append(f"\\x{{{first:x}}}" + (f"-\\x{{{last:x}}}" if last > first else ""))
    items += rng.sample(["\\d", "\\W", "[:alpha:]", "\\pL", "\\P{Nd}", "\\p{Han}"], rng.choice([0, 0, 0, 1, 2]))
    return f"[{rng.choice(['', '^'])}{''.join(items) or 'a'}]"


@pytest.mark.parametrize("seed", range(40))
def test_the_largest_that_is_accepted_is_understood(seed: int) -> None:
    rng = random.Random(seed)
    inner = rng.choice(["{}", "{}", "{}|[^\U00010ffe]", "(?:{}a)?.", "[^\u13a0]{}"]).format(written_set(rng))
    flag, copies = rng.choice(["", "(?i)"]), rng.choice([1, 1, 3, 20])

    def pattern(most: int) -> str:
        return flag + f"(?:{inner}){{0,{most}}}" * copies

    most = bisect.bisect(range(1, 1001), False, key=lambda n: refuse_regex(pattern(n)) is not None)
    if most:
        assert understood(pattern(most)), (seed, most)


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
        "[^,]{1,1000}",
        r"[^\x{4e00}-\x{9fff}a-zA-Z0-9_.,;:-]{0,1000}",
        r"[a-zA-Z0-9._%+-]{1,64}@[a-zA-Z0-9.-]{1,255}\.[a-zA-Z]{2,63}",
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
        ("[^" + "".join(chr(0x4E00 + 7 * i) for i in range(1000)) + "]{900}", "too large"),
        ("[^" + "".join(chr(0x4E00 + 17 * i) for i in range(400)) + "]{1000}", "too large"),
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
