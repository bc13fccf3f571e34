"""The printed table."""

from __future__ import annotations

from collections.abc import Sequence

from hack.bench.compare import Figures

__all__ = ["print_table"]


def _number(value: float | None) -> str:
    if value is None:
        return "–"
    if value < 1:
        return f"{value:.3f}"
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:.0f}"


def _verdict(figures: Figures) -> tuple[str, str]:
    """(aim, whether it is met)."""
    if figures.limit_ms is not None:
        ours = figures.p50("omnigraph")
        return f"≤ {_number(figures.limit_ms)} ms", "" if ours is None else _met(ours <= figures.limit_ms)
    ratio = figures.ratio(Figures.p50)
    if figures.aim is None:
        return "", ""
    return f"≤ {figures.aim}", "" if ratio is None else _met(ratio <= figures.aim)


def _met(yes: bool) -> str:
    return "met" if yes else "MISSED"


def print_table(figures: Sequence[Figures], systems: Sequence[str]) -> None:
    """One row a line, in Markdown: p50 (best) of each system in milliseconds, the ratio, the aim."""
    head = ["line", *systems, "ratio", "of best", "of CPU", "aim", ""]
    print("\np50 (best), milliseconds; the ratio is ours to the fastest peer's p50\n")
    print("| " + " | ".join(head) + " |")
    print("|" + "---|" * len(head))
    for one in figures:
        if not one.ms:
            continue
        cells = [one.title]
        for system in systems:
            p50 = one.p50(system)
            cells.append("–" if p50 is None else f"{_number(p50)} ({_number(one.best(system))})")
        ratio, best = one.ratio(Figures.p50), one.ratio(Figures.best)
        cpu = one.ratio(Figures.cpu)
        cells += ["" if r is None else f"{r:.2f}" for r in (ratio, best, cpu)]
        cells += _verdict(one)
        print("| " + " | ".join(cells) + " |")
    print("\nfirst call of each line in a process that has just opened, milliseconds\n")
    for one in figures:
        if one.first_ms:
            print(f"- {one.title}: " + ", ".join(f"{s} {_number(t)}" for s, t in one.first_ms.items()))
    print("\npeak memory, MiB\n")
    for one in figures:
        if one.peak_mib:
            print(f"- {one.title}: " + ", ".join(f"{s} {t:.0f}" for s, t in one.peak_mib.items()))
    notes = [(one.title, note) for one in figures for note in one.notes]
    if notes:
        print("\nnotes\n")
        for title, note in notes:
            print(f"- {title}: {note}")
