"""The mapping of tabular sources to a schema's types (07 §28): a pydantic model, checked before anything is read.

    sources:
    - path: files-*.parquet
      node: File
      columns: {path: full_path}        # property: column; same-named columns need no entry

Imports neither pyarrow nor lance, because the operator's CRDs are made from the same model.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, ValidationError, field_validator, model_validator

from omnigraph.errors import BadRequest
from omnigraph.schema.catalog import Catalog, EdgeType, NodeType
from omnigraph.write.forms import Constant, CsvOptions, DateFormat, Form, Text
from omnigraph.yaml_text import NotYaml, read_text, read_yaml

__all__ = [
    "ColumnPlan",
    "DateFormat",
    "Format",
    "Mapping",
    "SourceMapping",
    "bind_columns",
    "check_mapping",
]

Format = Literal["parquet", "csv", "arrow", "orc", "ndjson"]


class SourceMapping(BaseModel):
    """One file pattern or table: which type it holds and which column is which property."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    path: Text | None = Field(default=None, description="File or glob, relative to the mapping file")
    table: Text | None = Field(default=None, description="Name of a table instead of a path")
    format: Format | None = Field(default=None, description="Default: by the file's suffix")
    options: CsvOptions = Field(default_factory=CsvOptions, description="Of CSV: how it is written")
    node: Text | None = Field(default=None, description="Node type the rows are")
    edge: Text | None = Field(default=None, description="Edge type the rows are")
    columns: dict[Text, Text] = Field(default_factory=dict, description="Property: column, where the names differ")
    constants: dict[Text, Constant] = Field(default_factory=dict, description="Property: the value of every row")
    from_: list[Text] = Field(default_factory=list, alias="from", description="Columns of the source node's key")
    to: list[Text] = Field(default_factory=list, description="Columns of the target node's key")
    id: Text | None = Field(default=None, description="Column of the id, for edges and nodes without a key")
    formats: dict[Text, Form] = Field(default_factory=dict, description="Property: how its text is written")
    nulls: list[Text] | None = Field(default=None, description="Texts that are null")
    ignore: list[Text] = Field(default_factory=list, description="Columns left out on purpose; * means all others")

    @model_validator(mode="after")
    def _one_of_each(self) -> SourceMapping:
        if (self.path is None) == (self.table is None):
            raise ValueError("give either path or table")
        if (self.node is None) == (self.edge is None):
            raise ValueError("give either node or edge")
        return self

    @field_validator("from_", "to", mode="before")
    @classmethod
    def _single_column(cls, value: Any) -> Any:
        return [value] if isinstance(value, str) else value

    @property
    def label(self) -> str:
        return self.path or self.table or ""

    def date_format(self, name: str) -> DateFormat | None:
        given = self.formats.get(name)
        return DateFormat(pattern=given) if isinstance(given, str) else given


class Mapping(BaseModel):
    """All sources of one load."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    sources: list[SourceMapping] = Field(min_length=1, description="Each file pattern or table")
    _base: Path | None = PrivateAttr(default=None)

    @property
    def base(self) -> Path | None:
        """The folder that relative paths start from; None is the current one."""
        return self._base

    @classmethod
    def parse(cls, text: str, *, file: str = "<mapping>", base: Path | None = None) -> Mapping:
        """From YAML (or JSON, which is YAML).

        Raises:
            BadRequest: with file, and line or field, of what is wrong.
        """
        try:
            mapping = cls.model_validate(read_yaml(text, file))
        except NotYaml as error:
            raise BadRequest(error.message, code="bad_mapping") from error
        except ValidationError as error:
            lines = [f"{file}: {_dotted(e['loc'])}{e['msg'].removeprefix('Value error, ')}" for e in error.errors()]
            raise BadRequest("\n".join(lines), code="bad_mapping", details={"problems": lines}) from error
        mapping._base = base
        return mapping

    @classmethod
    def read(cls, path: str | Path) -> Mapping:
        """From a YAML file; relative paths in it start at its folder."""
        where = Path(path)
        try:
            text = read_text(where)
        except NotYaml as error:
            raise BadRequest(f"the mapping: {error.message}", code="bad_mapping") from error
        return cls.parse(text, file=str(where), base=where.parent)


def _dotted(location: Iterable[int | str]) -> str:
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location).lstrip(".")
    return f"{text}: " if text else ""


def entity_of(source: SourceMapping, catalog: Catalog) -> NodeType | EdgeType | None:
    """The declared type of this source's rows, or None."""
    if source.node is not None:
        return catalog.nodes.get(source.node)
    return catalog.edge(source.edge or "")


def check_mapping(mapping: Mapping, catalog: Catalog) -> None:
    """Refuses a mapping that doesn't fit the schema. Reads nothing.

    Raises:
        BadRequest: naming every misfit at once.
    """
    problems: list[str] = []
    for i, source in enumerate(mapping.sources):
        problems += [f"sources[{i}] ({source.label}): {text}" for text in _misfits(source, catalog)]
    if problems:
        raise BadRequest(
            "the mapping doesn't fit the schema:\n  " + "\n  ".join(problems),
            code="bad_mapping",
            details={"problems": problems},
        )


def _misfits(source: SourceMapping, catalog: Catalog) -> list[str]:
    entity = entity_of(source, catalog)
    if entity is None:
        kind, known = ("node", catalog.nodes) if source.node is not None else ("edge", catalog.edges)
        return [f"{kind} type {source.node or source.edge!r} isn't declared; declared: {', '.join(known) or 'none'}"]
    out = []
    for part in ("columns", "constants", "formats"):
        out += [
            f"{part}: {entity.name} has no property {name!r}; it has {', '.join(entity.properties)}"
            for name in getattr(source, part)
            if name not in entity.properties
        ]
    out += [f"{name} has both a column and a constant" for name in source.columns if name in source.constants]
    for name in source.formats:
        prop = entity.properties.get(name)
        if prop is not None and prop.type.base not in ("Date", "DateTime"):
            out.append(f"formats: {name} is {prop.type}, not Date or DateTime")
    if isinstance(entity, NodeType):
        if source.from_ or source.to:
            out.append("from and to belong to edges")
        if source.id is not None and entity.key:
            out.append(f"id: the id of {entity.name} is its key ({', '.join(entity.key)})")
        return out
    if source.id is not None and entity.key:
        out.append(f"id: the id of {entity.name} is its key ({', '.join(entity.key)})")
    for end, columns, node in (("from", source.from_, entity.source), ("to", source.to, entity.target)):
        parts = catalog.nodes[node].key or ("id",)
        if len(columns) != len(parts):
            out.append(
                f"{end}: name one column for each key part of {node} ({', '.join(parts)}); given: {columns or 'none'}"
            )
    return out


class ColumnPlan(BaseModel):
    """Which column of one file feeds what."""

    model_config = ConfigDict(frozen=True)

    properties: dict[str, str]  # property: column
    constants: dict[str, Constant]
    from_: list[str]
    to: list[str]
    id: str | None

    @property
    def columns(self) -> list[str]:
        """Every column to read, each once, in a stable order."""
        names = [*self.properties.values(), *self.from_, *self.to, *([self.id] if self.id else [])]
        return list(dict.fromkeys(names))


def bind_columns(
    source: SourceMapping, entity: NodeType | EdgeType, columns: Iterable[str], *, file: str
) -> ColumnPlan:
    """Joins a mapping with the columns a file really has.

    Raises:
        BadRequest: a mapped column is missing, a column is neither mapped nor ignored, or a key part without a default
            has no column.
    """
    have = list(columns)
    known = set(have)
    problems: list[str] = []
    if len(known) < len(have):
        problems.append(f"columns repeat: {', '.join(sorted({c for c in have if have.count(c) > 1}))}")
    properties = {}
    for name in entity.properties:
        same_name = name in known and name not in source.ignore
        if name not in source.constants and (name in source.columns or same_name):
            properties[name] = source.columns.get(name, name)
    wanted = {column: f"property {name}" for name, column in properties.items()}
    wanted |= dict.fromkeys([*source.from_, *source.to, *([source.id] if source.id else [])], "an endpoint or id")
    problems += [
        f"column {column!r} ({use}) isn't there; there are {', '.join(have)}"
        for column, use in wanted.items()
        if column not in known
    ]
    loose = [c for c in have if c not in wanted and c not in source.ignore]
    if loose and "*" not in source.ignore:
        names = ", ".join(map(repr, loose))
        problems.append(f"column(s) {names} are neither mapped nor ignored: add them to columns or ignore")
    problems += [
        f"no column for the key property {part!r}"
        for part in entity.key
        if not (part in ("src", "dst") or part in properties or part in source.constants)
        and not entity.properties[part].has_default
    ]
    if problems:
        text = "\n".join(f"{file}: {problem}" for problem in problems)
        raise BadRequest(text, code="bad_mapping", details={"file": file, "problems": problems})
    return ColumnPlan(
        properties=properties, constants=dict(source.constants), from_=source.from_, to=source.to, id=source.id
    )
