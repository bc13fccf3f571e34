"""`dataclass` as in the standard library, whose methods are made when they are first called.

The standard one writes and compiles up to six functions for each class, which takes half a millisecond, and a process
that answers one query has met two hundred such classes. Here a class takes a twentieth of that: only what makes an
object is compiled, at the first object, and the rest is shared by all classes. `fields`, `replace`, `is_dataclass`
and `field` are the standard library's and know these classes.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from dataclasses import dataclass
else:

    def dataclass(cls=None, /, *, frozen=False, slots=False, eq=True, repr=True):
        """A class of fields; the arguments mean what they mean in the standard library."""

        def made(cls):
            return _with_methods(cls, frozen=frozen, slots=slots, eq=eq, repr=repr)

        return made if cls is None else made(cls)


__all__ = ["dataclass"]


def _with_methods(cls: Any, *, frozen: bool, slots: bool, eq: bool, repr: bool) -> Any:
    own = cls.__dict__
    methods: dict[str, Any] = {}
    if repr:
        methods["__repr__"] = _show
    if eq:
        methods["__eq__"] = _equals
    if frozen:
        methods |= {"__setattr__": _refuse_set, "__delattr__": _refuse_delete}
        if slots:  # what copies and pickles objects sets attributes else
            methods |= {"__getstate__": _state, "__setstate__": _restore}
    methods = {name: method for name, method in methods.items() if name not in own}
    if eq and ("__hash__" not in own or (own["__hash__"] is None and "__eq__" in own)):
        methods["__hash__"] = _hash if frozen else None
    undocumented = cls.__doc__ is None
    if undocumented:
        cls.__doc__ = cls.__name__  # else the standard library makes one of the signature
    cls = dataclasses.dataclass(init=False, repr=False, eq=False, slots=slots)(cls)
    if undocumented:
        cls.__doc__ = None
    for name, method in methods.items():
        setattr(cls, name, method)
    if "__init__" not in own:
        cls.__init__ = _first_init(cls, frozen)
    return cls


_BY_HAND = 20
"""Objects of a class made before its `__init__` is compiled, which takes as long as to make so many by hand."""

_set = object.__setattr__


def _first_init(cls: Any, frozen: bool) -> Callable[..., None]:
    made = 0
    parts: list[_Part] | None = None

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        nonlocal made, parts
        made += 1
        if parts is None:  # threads that come at once each find them all
            parts = _parts(cls)
        if made > _BY_HAND or not _fill(self, parts, args, kwargs):
            cls.__init__ = _compiled_init(cls, frozen)  # says what is wrong, if something is
            cls.__init__(self, *args, **kwargs)
        elif hasattr(cls, "__post_init__"):
            self.__post_init__()

    return __init__


_Part = tuple[str, bool, Any, Any]
"""A field's name, whether it is a parameter, its default and what makes its default."""


def _parts(cls: Any) -> list[_Part]:
    found = dataclasses.fields(cls)
    if by_name := [f.name for f in found if f.kw_only]:
        raise TypeError(f"{cls.__name__}: fields that are given by name only ({', '.join(by_name)}) are not made here")
    return [(f.name, f.init, f.default, f.default_factory) for f in found]


def _fill(self: Any, parts: list[_Part], args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Set the fields as a compiled `__init__` would; False where the arguments aren't the parameters."""
    given = iter(args)
    left = len(args) + len(kwargs)
    missing = dataclasses.MISSING
    for name, parameter, default, factory in parts:
        value = next(given, missing) if parameter else missing
        if value is not missing:
            left -= 1
        elif parameter and name in kwargs:
            value = kwargs[name]
            left -= 1
        elif default is not missing:
            value = default
        elif factory is not missing:
            value = factory()
        elif parameter:
            return False
        else:
            continue
        _set(self, name, value)
    return left == 0


def _compiled_init(cls: Any, frozen: bool) -> Callable[..., None]:
    names: dict[str, Any] = {"_set": object.__setattr__, "_omitted": object()}
    parameters, body = ["self"], []
    for f in dataclasses.fields(cls):
        value = f.name
        if f.default_factory is not dataclasses.MISSING:
            names[f"_new_{f.name}"] = f.default_factory
            parameter = f"{f.name}=_omitted"
            value = f"_new_{f.name}() if {f.name} is _omitted else {f.name}" if f.init else f"_new_{f.name}()"
        elif f.default is not dataclasses.MISSING:
            names[f"_default_{f.name}"] = f.default
            parameter = f"{f.name}=_default_{f.name}"
            value = f.name if f.init else f"_default_{f.name}"
        elif not f.init:
            continue
        else:
            parameter = f.name
        if f.init:
            parameters.append(parameter)
        body.append(f"_set(self, {f.name!r}, {value})" if frozen else f"self.{f.name} = {value}")
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    exec(f"def __init__({', '.join(parameters)}):\n " + "\n ".join(body or ["pass"]), names)
    made: Callable[..., None] = names["__init__"]
    made.__qualname__, made.__module__ = f"{cls.__qualname__}.__init__", cls.__module__
    return made


_VALUES: dict[type, Callable[[Any], tuple[Any, ...]]] = {}


def _values(cls: Any) -> Callable[[Any], tuple[Any, ...]]:
    """What gives the values that are compared."""
    known = _VALUES.get(cls)
    if known is None:
        shown = "".join(f"self.{f.name}, " for f in dataclasses.fields(cls) if f.compare)
        known = _VALUES[cls] = eval(f"lambda self: ({shown})")
    return known


def _equals(self: Any, other: object) -> Any:
    if other.__class__ is not self.__class__:
        return NotImplemented
    values = _values(self.__class__)
    return values(self) == values(other)


def _hash(self: Any) -> int:
    return hash(_values(self.__class__)(self))


def _show(self: Any) -> str:
    shown = ", ".join(f"{f.name}={getattr(self, f.name)!r}" for f in dataclasses.fields(self) if f.repr)
    return f"{self.__class__.__qualname__}({shown})"


def _refuse_set(self: Any, name: str, value: object) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_delete(self: Any, name: str) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")


def _state(self: Any) -> list[Any]:
    return [getattr(self, f.name) for f in dataclasses.fields(self)]


def _restore(self: Any, state: list[Any]) -> None:
    for f, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, f.name, value)
