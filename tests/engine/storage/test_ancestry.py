"""Merge bases in commit graphs drawn by hand."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from omnigraph.storage.ancestry import ancestors, bases_and_roots, merge_bases
from omnigraph.storage.types import CommitInfo

START = datetime(2026, 1, 1, tzinfo=UTC)


def graph(text: str) -> dict[str, CommitInfo]:
    """`c: a b` is commit c with its parents; each is a minute younger than the one before."""
    out = {}
    for minute, line in enumerate(text.strip().splitlines()):
        name, _, parents = line.strip().partition(":")
        when = START + timedelta(minutes=minute)
        out[name] = CommitInfo(name, "main", minute, tuple(parents.split()), when)
    return out


PLAIN = """
root:
a: root
b: a
x: a
y: x
"""
MERGED = (
    PLAIN
    + """m: b y
c: m
z: y
"""
)
CRISS_CROSS = """
root:
a: root
x: root
ma: a x
mx: x a
b: ma
y: mx
"""
TWO_ROUNDS = (
    CRISS_CROSS
    + """mb: b y
my: y b
"""
)


@pytest.mark.parametrize(
    ("text", "one", "other", "base"),
    [
        (PLAIN, "b", "y", "a"),
        (PLAIN, "y", "y", "y"),
        (PLAIN, "root", "y", "root"),  # nothing of one's own
        (MERGED, "c", "z", "y"),  # through the second parent
        (MERGED, "z", "c", "y"),
        (MERGED, "c", "x", "x"),
        (CRISS_CROSS, "b", "y", "x"),  # of two equally near the newer
        (TWO_ROUNDS, "mb", "my", "y"),
    ],
)
def test_the_nearest_common_ancestor(text: str, one: str, other: str, base: str) -> None:
    assert merge_bases(graph(text), one, other)[0].id == base


def test_branches_merged_crosswise_have_two() -> None:
    found = bases_and_roots(graph(CRISS_CROSS), "b", "y")
    assert [(base.id, root.id) for base, root in found] == [("x", "x"), ("a", "root")]


def test_holes_and_strangers() -> None:
    commits = graph(PLAIN)
    assert ancestors(commits, "y") == {"y", "x", "a", "root"}
    del commits["x"]
    assert ancestors(commits, "y") == {"y"}
    assert merge_bases(commits, "y", "b") == bases_and_roots(commits, "y", "b") == []
    assert ancestors(commits, "nowhere") == set()
