"""Stored queries: read and typechecked when the server starts, then run by name."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omnigraph.errors import BadRequest
from omnigraph.query import compile_queries
from omnigraph.query.ir import CompiledQuery
from omnigraph.schema.catalog import Catalog, Type

__all__ = ["StoredQuery", "read_stored"]


@dataclass(frozen=True, slots=True)
class StoredQuery:
    """One named query with the text of the file it stands in."""

    name: str
    file: str
    text: str
    compiled: CompiledQuery

    def describe(self) -> dict[str, Any]:
        """What a client needs to call it."""
        return {
            "name": self.name,
            "kind": self.compiled.kind,
            "description": self.compiled.description,
            "instruction": self.compiled.instruction,
            "params": [
                {"name": p.name, "required": not p.type.nullable, **_type(p.type)} for p in self.compiled.params
            ],
            "columns": [{"name": c.name, **_type(c.type)} for c in self.compiled.columns],
        }


def read_stored(paths: Iterable[Path], catalog: Catalog) -> dict[str, StoredQuery]:
    """Every query of these files, and of the `.gq` files in these folders, by name.

    Raises:
        LanguageError: one doesn't typecheck; names file, line and column.
        BadRequest: a file can't be read, or two queries have the same name.
    """
    stored: dict[str, StoredQuery] = {}
    for path in paths:
        for file in _files(path):
            text = _text(file)
            for name, compiled in compile_queries(text, catalog, file=str(file)).items():
                if name in stored:
                    raise BadRequest(f"{file}: query {name!r} is in {stored[name].file} too; names must be unique")
                stored[name] = StoredQuery(name, str(file), text, compiled)
    return stored


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    return sorted(file for file in path.glob("*.gq") if not file.name.startswith("."))


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise BadRequest(f"{file}: the stored queries can't be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise BadRequest(f"{file}: not UTF-8 text (byte {error.start})") from None


def _type(of: Type) -> dict[str, Any]:
    out: dict[str, Any] = {"type": str(of), "nullable": of.nullable}
    if of.enum:
        out["values"] = list(of.enum)
    return out
