"""The rows that `bm25` ranks, found through the table's index of words while its texts aren't in memory.

Who has none of the words isn't ranked, so the rows with one of them are all there is. The index names them (and some
others, see `word_lookup`), they are read and cut as ever; how many texts there are, and how long all of them are, is
counted in one pass over the column. So scores are those of the whole column in memory, to the last bit.
"""

from __future__ import annotations

from omnigraph.query.ir import Call, Column, Lit, Order, Param, Project, Prop
from omnigraph.read.env import rows_where
from omnigraph.read.frame import Binding, Context, Counted, Frame
from omnigraph.read.memory import Memory, Run
from omnigraph.read.postings import TextIndex
from omnigraph.read.scan import ScanStep
from omnigraph.read.steps import KeepStep, Step
from omnigraph.read.tokens import words_of
from omnigraph.read.walk import parts_of
from omnigraph.read.word_lookup import WordSearch, text_facts
from omnigraph.records import dataclass

__all__ = ["TextScanStep", "through_word_index"]

_SCAN, _TEXT = 1500.0, 5.0
"""Microseconds: of asking the index, of a text cut into words."""


@dataclass(frozen=True, slots=True, eq=False)
class TextScanStep:
    """Bind a variable to the rows that have one of a ranking's words, or to all rows where their words are in memory.

    Args:
        scan: the scan it stands for.
        prop, query: what is ranked, and the text that is asked about.
    """

    scan: ScanStep
    prop: Prop
    query: Lit | Param

    def run(self, ctx: Context, frame: Frame) -> Frame:
        found = self._found(ctx)
        return self.scan.run(ctx, frame) if found is None else found

    def bind(self, memory: Memory) -> Run:
        table = memory.table(self.scan.table_key, self.scan.needed)
        if isinstance(table.kept("words", self.prop.name), TextIndex):
            return self.scan.bind(memory)
        memory.bind(self.scan.var, None)
        memory.once = None
        return self.run

    def _words(self, ctx: Context, *, count: bool) -> tuple[str, ...] | None:
        """The words to ask the index about; None where it isn't to be asked.

        Args:
            count: whether it is done now, and not only looked at.
        """
        key, name = self.scan.table_key, self.prop.name
        text = self.query.value if isinstance(self.query, Lit) else ctx.params.get(self.query.name)
        table = ctx.tables.get(ctx.snapshot, key)
        if not isinstance(text, str) or table.rows <= ctx.settings.small_table_rows:
            return None
        if ctx.settings.traversal_mode == "scan" or isinstance(table.kept("words", name), TextIndex):
            return None
        if any(isinstance(version.kept("words", name), TextIndex) for version in table.versions()):
            return None
        if ctx.snapshot.words_index(key, name) is None:
            return None
        kept = ("rows", ctx.snapshot.fingerprint(key))
        if not ctx.rather_alone(kept, _SCAN, max(table.rows * _TEXT, 2 * _SCAN), count=count):
            return None
        return tuple(dict.fromkeys(words_of(text)))

    def _found(self, ctx: Context) -> Frame | None:
        words = self._words(ctx, count=True)
        if words is None:
            return None
        key, name, var = self.scan.table_key, self.prop.name, self.scan.var
        row_ids = WordSearch(name, words, every=False).row_ids(ctx, key, None, counted=True)
        if row_ids is None:
            return None
        rows = ctx.partial(key)
        at = rows.take(row_ids, dict.fromkeys((*self.scan.needed, name)))
        facts = text_facts(ctx, key, name, counted=True)
        assert facts.words is not None
        ctx.counted[key, name] = Counted(facts.texts, facts.words, frozenset(words))
        if self.scan.test is not None:
            at = at[rows_where(ctx, rows, var, self.scan.test, at, may_fail=True)]
        if ctx.trace is not None:
            ctx.trace.modes[id(self)] = ""
        return Frame(len(at), {var: Binding(rows, at)})

    def expected(self, rows: float) -> float:
        return self.scan.expected(rows)

    def describe(self, ctx: Context, rows: float) -> str:
        through = id(self) in ctx.trace.modes if ctx.trace is not None else self._words(ctx, count=False) is not None
        if not through:
            return self.scan.describe(ctx, rows)
        index = ctx.snapshot.words_index(self.scan.table_key, self.prop.name)
        columns = ", ".join(dict.fromkeys((*self.scan.needed, self.prop.name)))
        return f"scan    {self.scan.text}  words through {index}, not cached, columns {columns}"


def through_word_index(steps: tuple[Step, ...], final: object, order: Order | None) -> tuple[Step, ...]:
    """The steps, with a lone scan whose rows are ordered by `bm25` of one text as a `TextScanStep`."""
    scan, *rest = steps
    if not (isinstance(scan, ScanStep) and scan.key is None and all(isinstance(step, KeepStep) for step in rest)):
        return steps
    if not isinstance(final, Project) or order is None:
        return steps
    columns = dict(final.columns)
    keys = [columns.get(k.expr.name, k.expr) if isinstance(k.expr, Column) else k.expr for k in order.keys]
    if any(
        isinstance(part, Call) and part.fn == "rrf" for expr in [*columns.values(), *keys] for part in parts_of(expr)
    ):
        return steps  # its ranks are those among all rows
    for key in keys:
        match key:
            case Call(fn="bm25", args=(Prop(var=scan.var) as prop, (Lit() | Param()) as query)):
                return (TextScanStep(scan, prop, query), *rest)
    return steps
