"""Random schemas, and random edits of one, as `.pg` texts."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from hypothesis import strategies as st

__all__ = ["Model", "edited", "models", "shuffled"]

SCALARS = ["String", "Bool", "I32", "I64", "U32", "U64", "F32", "F64", "Date", "DateTime"]
ENUMS = ["enum(a)", "enum(a, b)", "enum(b, a, c-d)"]
OTHERS = ["Blob", "Vector(2)", "[I32]", "[String]", "[enum(x)]", "[enum(x, y)]"]
DEFAULTS = {
    "String": '"x"',
    "Bool": "true",
    "I32": "2",
    "I64": "3",
    "U32": "0",
    "U64": "7",
    "F32": "0.5",
    "F64": "1",
    "Date": 'date("2026-01-31")',
    "DateTime": 'datetime("2026-01-31T10:00:00.5Z")',
    "[I32]": "[1, 2]",
    "[String]": "[]",
    "Vector(2)": "[1.0, 0.5]",
}
NODES = ["Ant", "Bee", "Cat", "Dog", "Elk"]
EDGES = ["Eats", "Follows", "Guards"]
NAMES = ["alpha", "beta", "gamma", "delta", "node", "type_", "zeta"]


@dataclass(frozen=True)
class Prop:
    type: str
    nullable: bool = False
    default: bool = False
    note: str = ""
    old: str = ""

    def text(self, name: str) -> str:
        default = f" @default({DEFAULTS[self.type]})" if self.default and self.type in DEFAULTS else ""
        note = f' @description("{self.note}")' if self.note else ""
        old = f' @rename_from("{self.old}")' if self.old else ""
        return f"{name}: {self.type}{'?' if self.nullable else ''}{default}{note}{old}"


@dataclass(frozen=True)
class Declared:
    props: dict[str, Prop]
    constraints: tuple[tuple[str, tuple[str, ...], str], ...] = ()
    ends: tuple[str, str] | None = None
    card: str = ""
    note: str = ""
    old: str = ""

    def members(self, name: str) -> list[str]:
        out = [p.text(n) for n, p in self.props.items()]
        for word, columns, rest in self.constraints:
            out.append(f"@{word}({', '.join(columns)}{rest})")
        return out

    def text(self, name: str, members: list[str] | None = None) -> str:
        head = f"node {name}" if self.ends is None else f"edge {name}: {self.ends[0]} -> {self.ends[1]}{self.card}"
        note = f' @description("{self.note}")' if self.note else ""
        old = f' @rename_from("{self.old}")' if self.old else ""
        body = "\n".join(f"  {m}" for m in (self.members(name) if members is None else members))
        return f"{head}{note}{old} {{\n{body}\n}}"


@dataclass(frozen=True)
class Model:
    types: dict[str, Declared] = field(default_factory=dict)

    def text(self) -> str:
        return "\n".join(t.text(n) for n, t in self.types.items())


def types() -> st.SearchStrategy[str]:
    return st.sampled_from(SCALARS + ENUMS + OTHERS)


@st.composite
def props(draw: st.DrawFn) -> Prop:
    return Prop(draw(types()), draw(st.booleans()), draw(st.booleans()), draw(st.sampled_from(["", "", "n"])))


@st.composite
def declared(draw: st.DrawFn, ends: tuple[str, str] | None) -> Declared:
    names = draw(st.lists(st.sampled_from(NAMES), max_size=4, unique=True))
    members = {name: draw(props()) for name in names}
    card = draw(st.sampled_from(["", " @card(0..3)", " @card(1..)"])) if ends else ""
    note = draw(st.sampled_from(["", "", "a note"]))
    return Declared(members, constraints_of(draw, members, ends), ends, card, note)


def constraints_of(
    draw: st.DrawFn, members: dict[str, Prop], ends: tuple[str, str] | None
) -> tuple[tuple[str, tuple[str, ...], str], ...]:
    out: list[tuple[str, tuple[str, ...], str]] = []
    plain = [n for n, p in members.items() if p.type not in OTHERS]
    keys = [n for n in plain if not members[n].nullable and members[n].type not in ("F32", "F64")]
    if ends and draw(st.booleans()):
        out.append(("key", ("src", "dst", *keys[:1]), ""))
    elif keys and not ends and draw(st.booleans()):
        out.append(("key", tuple(draw(st.permutations(keys))[:2]), ""))
    for name in plain:
        kind = members[name].type
        word = draw(st.sampled_from(["", "unique", "index", "range", "check"]))
        if word in ("unique", "index"):
            out.append((word, (name,), ""))
        elif word == "range" and not ends and kind[:1] in "IUF":
            out.append((word, (name,), draw(st.sampled_from([", 0..", ", ..10.5", ", 0..10", ", 0.0..10"]))))
        elif word == "check" and not ends and kind == "String":
            out.append((word, (name,), draw(st.sampled_from([', "x"', ', "[a-z]*"']))))
    if len(plain) > 1 and draw(st.booleans()):
        out.append(("unique", tuple(draw(st.permutations(plain))), ""))
    return tuple(out)


@st.composite
def models(draw: st.DrawFn) -> Model:
    nodes = draw(st.lists(st.sampled_from(NODES), min_size=1, max_size=3, unique=True))
    out = {name: draw(declared(None)) for name in nodes}
    for name in draw(st.lists(st.sampled_from(EDGES), max_size=2, unique=True)):
        out[name] = draw(declared((draw(st.sampled_from(nodes)), draw(st.sampled_from(nodes)))))
    return Model(out)


@st.composite
def edited(draw: st.DrawFn, before: Model) -> Model:
    """A schema that comes of another by keeping, dropping, renaming and adding, with or without saying so."""
    moves: dict[str, str | None] = {}
    for name, old in before.types.items():
        moves[name] = _move(draw, name, NODES if old.ends is None else EDGES, {*before.types, *moves.values()})
    if all(moves[n] is None for n, t in before.types.items() if t.ends is None):
        moves |= {n: n for n, t in before.types.items() if t.ends is None}
    out: dict[str, Declared] = {}
    for name, old in before.types.items():
        new = moves[name]
        if new is None:
            continue
        ends = None
        if old.ends is not None:
            a, b = (moves[end] for end in old.ends)
            if a is None or b is None:
                continue
            ends = (a, b)
        out[new] = replace(_type_edited(draw, old), ends=ends, old=name if new != name else "")
    free = [n for n in NODES if n not in out]
    if free and draw(st.booleans()):
        out[free[0]] = draw(declared(None))
    return Model(out)


def _move(draw: st.DrawFn, name: str, pool: list[str], taken: set[str | None]) -> str | None:
    free = [n for n in pool if n not in taken]
    choice = draw(st.sampled_from(["keep", "keep", "keep", "rename", "drop"]))
    return name if choice == "keep" else free[0] if choice == "rename" and free else None if choice == "drop" else name


def _type_edited(draw: st.DrawFn, old: Declared) -> Declared:
    moves: dict[str, str | None] = {"src": "src", "dst": "dst"}
    members: dict[str, Prop] = {}
    for name, prop in old.props.items():
        moves[name] = new = _move(draw, name, NAMES, {*old.props, *moves.values()})
        if new is not None:
            members[new] = replace(_prop_edited(draw, prop), old=name if new != name else "")
    free = [n for n in NAMES if n not in members and n not in old.props]
    if free and draw(st.booleans()):
        members[free[0]] = draw(props())
    if draw(st.integers(0, 3)) == 0:
        constraints = constraints_of(draw, members, old.ends)
    else:
        kept = ((w, [moves[c] for c in columns], rest) for w, columns, rest in old.constraints)
        constraints = tuple((w, tuple(str(c) for c in columns), r) for w, columns, r in kept if None not in columns)
    note = draw(st.sampled_from([old.note, old.note, "other"]))
    return replace(old, props=members, constraints=constraints, note=note)


def _prop_edited(draw: st.DrawFn, old: Prop) -> Prop:
    if old.type in ENUMS and draw(st.booleans()):
        return replace(old, type="enum(a, b, c-d, e)")
    choice = draw(st.sampled_from(["keep", "keep", "default", "note"]))
    if choice == "default":
        return replace(old, default=not old.default)
    return replace(old, note="changed") if choice == "note" else old


@st.composite
def shuffled(draw: st.DrawFn, model: Model) -> str:
    """The same schema in another order, with comments."""
    texts = []
    for name in draw(st.permutations(list(model.types))):
        type_ = model.types[name]
        members = draw(st.permutations(type_.members(name)))
        texts.append(type_.text(name, [f"{m}  // {draw(st.sampled_from(['x', '}', '@key(a)']))}" for m in members]))
    return "/* in another order */ " + "\n\n".join(texts)
