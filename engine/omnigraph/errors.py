"""The one exception tree.

OmniGraphError
├── NotFound                  a graph, branch, type, commit or table version that isn't there
├── BadRequest                the request itself is wrong: parse, type, validation
│   └── LanguageError         a .pg or .gq text was refused; carries every diagnostic with its span
├── Conflict                  the state moved or forbids it; `retryable` says whether the same call may succeed
│   ├── ExpectedVersionMismatch
│   ├── RowLevelCasContention
│   ├── MergeConflicts
│   └── RecoveryPending
├── Forbidden                 policy said no
├── Unavailable               a resource outside the graph is missing for now (port, Java, store)
└── Internal                  corruption or a broken invariant: a bug or a damaged graph

`kind` is the class's wire code (`not_found`, …); `code` is the refusal's own code where it has one (`T4`, `Q000`), else
the kind. `details` holds plain data only, never credentials.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from omnigraph.records import dataclass

__all__ = [
    "BadRequest",
    "Conflict",
    "Diagnostic",
    "ExpectedVersionMismatch",
    "Forbidden",
    "Internal",
    "LanguageError",
    "MergeConflicts",
    "NotFound",
    "OmniGraphError",
    "RecoveryPending",
    "RowLevelCasContention",
    "Span",
    "Unavailable",
]


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of a source text. Offsets count characters from 0, lines and columns from 1; the end is exclusive."""

    start: int
    end: int
    line: int
    column: int
    end_line: int
    end_column: int


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One finding in a source text."""

    code: str
    message: str
    span: Span | None = None
    severity: str = "error"  # error | warning
    hint: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """Plain data, as `omnigraph lint --format json` writes it."""
        out: dict[str, Any] = {"code": self.code, "severity": self.severity, "message": self.message}
        if self.span is not None:
            span = self.span
            out |= {"line": span.line, "column": span.column, "end_line": span.end_line, "end_column": span.end_column}
        if self.hint:
            out["hint"] = self.hint
        return out


class OmniGraphError(Exception):
    """Root of every error the product raises on purpose.

    Args:
        message: what is wrong, where, and what to do next.
        code: the refusal's own code; default is the class's kind.
        details: structured data about the error, JSON-serialisable.
    """

    kind: ClassVar[str] = "internal"
    retryable: bool = False

    def __init__(self, message: str, *, code: str | None = None, details: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.code = code or self.kind
        self.details: dict[str, Any] = dict(details or {})


class NotFound(OmniGraphError):
    """A graph, branch, type, commit or table version isn't there."""

    kind = "not_found"


class BadRequest(OmniGraphError):
    """The request itself is wrong: a text, a type, a value, a constraint."""

    kind = "bad_request"


class LanguageError(BadRequest):
    """A schema or query text was refused.

    `str(error)` shows each diagnostic as `file:line:column: code message`, the line and a caret below.
    """

    def __init__(self, diagnostics: Iterable[Diagnostic], *, text: str, file: str) -> None:
        self.diagnostics = tuple(diagnostics)
        self.text = text
        self.file = file
        first = self.diagnostics[0]
        super().__init__(
            "\n".join(render_diagnostic(d, text, file) for d in self.diagnostics),
            code=first.code,
            details={"file": file, "diagnostics": [d.as_dict() for d in self.diagnostics]},
        )


def render_diagnostic(d: Diagnostic, text: str, file: str) -> str:
    """`file:line:column: code message`, then the offending line with a caret, then the hint."""
    if d.span is None:
        head = f"{file}: {d.code} {d.message}"
        return f"{head}\n  {d.hint}" if d.hint else head
    start = d.span.column - 1
    begins = d.span.start - start
    ends = text.find("\n", begins)  # spans count these alone, not every end of line that Unicode knows
    line = text[begins : ends if ends >= 0 else len(text)].rstrip("\r")
    end = d.span.end_column - 1 if d.span.end_line == d.span.line else start + 1
    shown, pad, carets = _excerpt(line, start, max(start + 1, min(end, len(line))))
    out = f"{file}:{d.span.line}:{d.span.column}: {d.code} {d.message}\n  {shown}\n  {pad}{carets}"
    return f"{out}\n  {d.hint}" if d.hint else out


_EXCERPT = 100
"""Most characters of a line that are shown; of a longer one the part around the place."""


def _excerpt(line: str, start: int, end: int) -> tuple[str, str, str]:
    """The line, or the part of it around start..end; the white space and the carets of the line below."""
    before = after = ""
    if len(line) > _EXCERPT:
        first = max(0, min(start - _EXCERPT // 3, len(line) - _EXCERPT))
        last = first + _EXCERPT
        before, after = "…" if first else "", "…" if last < len(line) else ""
        line, start, end = line[first:last], start - first, min(end, last) - first
    line = "".join(c if c.isprintable() or c == "\t" else "\ufffd" for c in line)
    # Tabs stay tabs above the caret, so that it points at the right place in any terminal.
    pad = " " * len(before) + "".join("\t" if c == "\t" else " " * _width(c) for c in line[:start])
    return before + line + after, pad, "^" * max(1, sum(map(_width, line[start:end]), 0 if end <= len(line) else 1))


def _width(character: str) -> int:
    """Columns of a terminal that a character takes."""
    if character.isascii():
        return 1
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


class Conflict(OmniGraphError):
    """The state moved or forbids it; `retryable` says whether the same call may succeed."""

    kind = "conflict"


class ExpectedVersionMismatch(Conflict):
    """A table that the write changed or relied on has moved since it was read. Read again and retry."""

    retryable = True

    def __init__(self, table_key: str, expected: object, actual: object) -> None:
        super().__init__(
            f"{table_key} changed while this write was prepared (read at {expected}, now {actual}): "
            "read again and retry",
            code="expected_version_mismatch",
            details={"table_key": table_key, "expected": expected, "actual": actual},
        )


class RowLevelCasContention(Conflict):
    """Too many other commits won the race for the branch head. Nothing was written; retry."""

    retryable = True

    def __init__(self, branch: str, attempts: int) -> None:
        super().__init__(
            f"branch {branch!r} was too busy: {attempts} attempts to publish lost to other commits; retry",
            code="row_level_cas_contention",
            details={"branch": branch, "attempts": attempts},
        )


class MergeConflicts(Conflict):
    """A branch merge found rows that both sides changed, or that together break a constraint. Nothing was published.

    Args:
        conflicts: each with `kind`, `table_key`, `id`, `message`, and the row as `base`, `ours` and `theirs` have it.
        total: how many there are, where not all of them are given.
    """

    def __init__(self, conflicts: Iterable[Mapping[str, Any]], *, total: int | None = None) -> None:
        self.conflicts = [dict(c) for c in conflicts]
        total = total or len(self.conflicts)
        first = self.conflicts[:5]
        lines = [f"{c.get('kind')}: {c.get('table_key')} {c.get('id')!r}: {c.get('message')}" for c in first]
        if total > len(first):
            lines.append(f"and {total - len(first)} more")
        head = f"the merge has {total} conflict{'' if total == 1 else 's'}; nothing was published"
        super().__init__(
            "\n  ".join([head, *lines]),
            code="merge_conflicts",
            details={"total": total, "conflicts": self.conflicts},
        )


class RecoveryPending(Conflict):
    """An interrupted write must be settled before this can go on."""

    def __init__(self, message: str, *, sidecars: Iterable[str] = ()) -> None:
        super().__init__(message, code="recovery_pending", details={"sidecars": list(sidecars)})


class Forbidden(OmniGraphError):
    """Policy, or a graph opened for reading only, said no."""

    kind = "forbidden"


class Unavailable(OmniGraphError):
    """A resource outside the graph is missing for now: a port, Java, a store, an embedding provider."""

    kind = "unavailable"
    retryable = True


class Internal(OmniGraphError):
    """Corruption or a broken invariant: a bug or a damaged graph."""

    kind = "internal"
