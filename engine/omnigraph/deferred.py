"""Packages whose names are imported at first use: a process that only reads never compiles what others do."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

__all__ = ["deferred"]


def deferred(package: str, modules: Mapping[str, tuple[str, ...]]) -> Callable[[str], Any]:
    """A package's `__getattr__`.

    Args:
        package: its `__name__`.
        modules: the names that each module within the package gives. No name is a module's too: an import of the
            module would hide it.
    """
    homes = {name: module for module, names in modules.items() for name in names}

    def attribute(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(f"{package}.{homes[name]}"), name)
        setattr(sys.modules[package], name, value)
        return value

    return attribute
