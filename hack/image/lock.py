"""The part of requirements.lock that runs in production: what the tools of development alone need stays out."""

import re

PROJECT = "omnigraph (pyproject.toml"
FOR_NOTEBOOKS = frozenset({"pandas", "polars", "networkx"})
"""What results turn into for people in Python; nothing in a container asks for it, and it weighs 220 MB."""

_NAME = re.compile(r"^([A-Za-z0-9][A-Za-z0-9._-]*)(?:\[[^\]]*\])?==")
_VIA = re.compile(r"^\s+#\s+(?:via\s+)?(\S.*)$")


def runtime_requirements(lock: str) -> str:
    """Keep the requirements reachable from the project itself through the lock's own ``# via`` notes.

    Args:
        lock: Text of a lock that ``uv pip compile`` wrote, with hashes.

    Returns:
        The kept blocks, in the lock's order; ``pip install --require-hashes -r`` takes it.
    """
    blocks: list[tuple[str, list[str], set[str]]] = []
    for line in lock.splitlines():
        if match := _NAME.match(line):
            blocks.append((match[1].lower(), [line], set()))
        elif blocks and line.startswith((" ", "\t")):
            if via := _VIA.match(line):
                blocks[-1][2].add(via[1].strip())
            else:
                blocks[-1][1].append(line)
    kept = {name for name, _, parents in blocks if f"{PROJECT})" in parents} - FOR_NOTEBOOKS
    if not kept:
        raise ValueError("requirements.lock names no requirement of the project: has the lock's format changed?")
    while grown := {name for name, _, parents in blocks if name not in kept and _names(parents) & kept}:
        kept |= grown
    return "\n".join("\n".join(lines) for name, lines, _ in blocks if name in kept) + "\n"


def _names(parents: set[str]) -> set[str]:
    return {parent.partition("[")[0].lower() for parent in parents if not parent.startswith(PROJECT)}
