"""Which regular expressions `@check` and `matches` take: RE2's, which match in linear time whatever the text.

No RE2 is at hand in this room, so the pattern is read here: first what stands after `\\`, `(?` and `{,`, in which RE2
and Python differ; what RE2 alone has is replaced by something alike. Then Python's own parser reads the rest. What
passes both is understood by RE2 (a test asks it).
"""

from __future__ import annotations

import functools
import re
import warnings
from collections.abc import Iterator
from re import _compiler as compiler  # type: ignore[attr-defined]
from re import _constants as op
from re import _parser as sre
from typing import Any

__all__ = ["fits", "refuse_regex"]

_MOST_REPEATS = 1000
"""RE2's own limit for one repeat and for the product of nested ones."""

_MOST_STEPS = 20_000
"""Of a pattern written out in full: 35 instructions each fill RE2's memory. A range of characters takes 9 of them at
most, more where case is ignored."""

_REFUSED = {
    "ASSERT": "look-ahead and look-behind",
    "ASSERT_NOT": "look-ahead and look-behind",
    "GROUPREF": "back references",
    "GROUPREF_EXISTS": "conditional groups",
    "ATOMIC_GROUP": "atomic groups",
    "POSSESSIVE_REPEAT": "possessive repeats",
}
_NOT_LINEAR = "can't be matched in linear time and are not supported"
_PIECE = re.compile(
    r"\\(?:(?P<property>[pP](?:\{\^?\w+\}|[A-Z]))|(?P<hex>x(?:\{[0-9A-Fa-f]{1,6}\}|[0-9A-Fa-f]{2}))|(?P<escape>.|\Z))"
    r"|(?P<posix>\[:\^?[a-z]+:\])|(?P<group>\(\?)|(?P<upto>\{,\d*\})|(?P<open>\[\^?\]?)|(?P<close>\])|.",
    re.DOTALL | re.ASCII,
)
_GROUP = re.compile(r"\(\?(?::|P<[A-Za-z_]\w*>|[ims]+(?:-[ims]+)?:|-[ims]+:|[ims]+\))", re.ASCII)
_POSIX = re.compile("alnum|alpha|ascii|blank|cntrl|digit|graph|lower|print|punct|space|upper|word|xdigit")
_PROPERTY = re.compile(
    "C[cfos]?|L[lmotu]?|M[cen]?|N[dlo]?|P[cdefios]?|S[ckmo]?|Z[lps]?"
    "|Arabic|Armenian|Cyrillic|Devanagari|Greek|Han|Hangul|Hebrew|Hiragana|Katakana|Latin|Thai"
)


class _Refused(ValueError):
    pass


@functools.lru_cache(maxsize=512)
def refuse_regex(pattern: str) -> str | None:
    """Why this pattern is refused, in words, or None."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = sre.parse(_for_python(pattern), 0)
        for operation, _ in _walk(tree):
            if str(operation) in _REFUSED:
                return f"{_REFUSED[str(operation)]} {_NOT_LINEAR}"
        # A class of Unicode is a program of hundreds of steps; which set holds one isn't known any more.
        _measure(tree, 1, 80 * len(re.findall(r"\\[pP]", pattern)))
    except (re.error, OverflowError, RecursionError, _Refused) as error:
        return str(error) or "too complex"
    return None


def fits(pattern: str, text: str) -> bool | None:
    """Whether an accepted pattern matches the whole text, as RE2 tells it, in time that doesn't explode with the
    pattern's repeats; None where only RE2 knows: with classes of Unicode, or where case is ignored beyond ASCII."""
    kinds = {match.lastgroup for match in _PIECE.finditer(pattern)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tree = sre.parse(_for_python(pattern), re.ASCII)
    ignored = tree.state.flags & re.IGNORECASE or any(
        str(operation) == "SUBPATTERN" and argument[1] & re.IGNORECASE for operation, argument in _walk(tree)
    )
    if kinds & {"property", "posix"} or (ignored and not (pattern + text).isascii()):
        return None
    return len(text) in _Ends(text).of(tree, frozenset({0}), re.ASCII | tree.state.flags)


class _Ends:
    """Where in a text a pattern can end, for all places at once at which it may begin: no way is tried twice."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._known: dict[tuple[int, frozenset[int], int], frozenset[int]] = {}
        self._atoms: dict[tuple[int, int], re.Pattern[str]] = {}

    def of(self, tree: Any, begins: frozenset[int], flags: int) -> frozenset[int]:
        key = (id(tree), begins, flags)
        if key not in self._known:
            ends = begins
            for item in tree:
                ends = self._item(tree, item, ends, flags)
            self._known[key] = ends
        return self._known[key]

    def _item(self, tree: Any, item: Any, begins: frozenset[int], flags: int) -> frozenset[int]:
        name, argument = str(item[0]), item[1]
        if name == "SUBPATTERN":
            return self.of(argument[3], begins, flags & ~argument[2] | argument[1])
        if name == "BRANCH":
            return frozenset().union(*(self.of(branch, begins, flags) for branch in argument[1]))
        if name in ("MAX_REPEAT", "MIN_REPEAT"):
            low, high, inner = argument
            return self._repeated(low, high, inner, begins, flags)
        if item == (op.AT, op.AT_END) and not flags & re.MULTILINE:  # Python's is also before a last line's end
            return begins & {len(self._text)}
        if item == (op.AT, op.AT_NON_BOUNDARY) and not self._text:  # nowhere in an empty text is one of Python's
            return begins
        key = (id(item), flags)
        if key not in self._atoms:  # one character, or a place between two
            self._atoms[key] = compiler.compile(sre.SubPattern(sre.State(), [item]), flags)
        found = (self._atoms[key].match(self._text, begin) for begin in begins)
        return frozenset(match.end() for match in found if match is not None)

    def _repeated(self, low: int, high: int, inner: Any, begins: frozenset[int], flags: int) -> frozenset[int]:
        for _ in range(low):
            begins = self.of(inner, begins, flags)
        ends, newest = set(begins), begins
        for _ in range(high - low):
            newest = self.of(inner, newest, flags) - ends
            if not newest:
                break
            ends |= newest
        return frozenset(ends)


def _for_python(pattern: str) -> str:
    """The pattern with RE2's own words replaced by Python's.

    Raises:
        _Refused: something Python knows and RE2 doesn't, or reads differently.
    """
    out: list[str] = []
    in_class = False
    for match in _PIECE.finditer(pattern):
        kind, text = match.lastgroup, match.group()
        if kind == "property":
            name = text[2:].strip("{^}")
            if not _PROPERTY.fullmatch(name):
                raise _Refused(f"`{text}` is no class of characters")
            out.append("\\w")
        elif kind == "posix" and in_class:
            if not _POSIX.fullmatch(text[2:-2].lstrip("^")):
                raise _Refused(f"`{text}` is no class of characters")
            out.append("\\w")
        elif kind == "hex":
            code = int(text[2:].strip("{}"), 16)
            if code > 0x10FFFF or 0xD800 <= code < 0xE000:
                raise _Refused(f"`{text}` is no character")
            out.append(re.escape(chr(code)))
        elif kind == "escape":
            out.append(_escape(match["escape"], in_class))
        elif kind == "group" and not in_class:
            if not _GROUP.match(pattern, match.start()) and not pattern.startswith(
                ("(?=", "(?!", "(?<=", "(?<!", "(?P=", "(?>", "(?("), match.start()
            ):
                raise _Refused("after `(?` may stand `:`, `P<name>` or the flags i, m, s")
            out.append(text)
        elif kind == "upto" and not in_class:
            raise _Refused(f"write `{{0{text[1:]}` for `{text}`")
        else:
            if kind == "open":  # within a class a `[` is itself, and a `]` after it closes
                in_class = not (in_class and text.endswith("]"))
            elif kind == "close":
                in_class = False
            out.append(text)
    return "".join(out)


def _escape(c: str, in_class: bool) -> str:
    if c in ("", "\n") or not c.isascii():
        raise _Refused("a `\\` stands before nothing that it could mean")
    if c == "z" and not in_class:
        return "\\Z"
    if c in "dDsSwW" or (c in "afnrtv") or (c in "AbB" and not in_class) or not c.isalnum():
        return "\\" + c
    if c.isdigit():
        raise _Refused(f"back references {_NOT_LINEAR}")
    hint = {"Z": "; write `\\z`", "u": "; write `\\x{…}`", "U": "; write `\\x{…}`", "N": "; write `\\x{…}`"}
    raise _Refused(f"`\\{c}` has no meaning here{hint.get(c, '')}")


def _measure(tree: Any, times: int, unicode: int) -> int:
    """How many steps the pattern has written out in full, `times` times; any set takes `unicode` more.

    Raises:
        _Refused: too many, or a repeat over the limit.
    """
    steps = 0
    for operation, argument in tree:
        name = str(operation)
        if name in ("MAX_REPEAT", "MIN_REPEAT"):
            low, high, inner = argument
            most = low if high == op.MAXREPEAT else high
            if max(low, most) * times > _MOST_REPEATS and max(low, most) > 1:
                raise _Refused(f"a repeat of more than {_MOST_REPEATS} is not supported")
            steps += _measure(inner, times * max(1, low, most), unicode) * max(1, low, most)
        elif name == "SUBPATTERN":
            steps += _measure(argument[3], times, unicode)
        elif name == "BRANCH":
            steps += sum(_measure(branch, times, unicode) for branch in argument[1])
        elif name == "IN":
            steps += max(20, len(argument)) + unicode
        else:
            steps += {"ANY": 10, "NOT_LITERAL": 10}.get(name, 1)
    if steps > _MOST_STEPS:
        raise _Refused("it is too large written out in full; use fewer repeats")
    return steps


def _walk(tree: Any) -> Iterator[tuple[Any, Any]]:
    stack = [tree]
    while stack:
        item = stack.pop()
        if isinstance(item, sre.SubPattern):
            for operation, argument in item:
                yield operation, argument
                stack.append(argument)
        elif isinstance(item, (tuple, list)):
            stack.extend(item)
