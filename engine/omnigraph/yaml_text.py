"""YAML (or JSON, which is YAML) that users write: plain values and where they stand, or one typed error.

What comes out is what JSON knows: mappings with texts as keys, lists, texts, finite numbers, true, false and null.
Dates and times stay the texts they were written as. PyYAML itself raises whatever a text makes Python raise
(ValueError for `2020-13-45`, KeyError for `!!bool maybe`, RecursionError for `[[[…`); none of that leaves here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from omnigraph.errors import BadRequest
from omnigraph.records import dataclass

__all__ = ["Document", "NotYaml", "Place", "read_documents", "read_text", "read_yaml"]

Place = tuple[str | int, ...]
"""The way to a value: keys and positions from the top of its document."""

MAX_CHARACTERS = 16 << 20
MAX_DEPTH = 100
MAX_VALUES = 1_000_000  # with what aliases repeat, which a few lines can make billions
MAX_NUMBER_CHARACTERS = 1_000  # beyond some thousand digits Python refuses to print a number again

_TAG = "tag:yaml.org,2002:"
_TEXTS = frozenset(_TAG + name for name in ("str", "timestamp", "value"))  # `=` alone has a tag of its own
_MERGE = f"{_TAG}merge"
_scalars = yaml.constructor.SafeConstructor()
_PLAIN: Mapping[str, Callable[[Any], Any]] = {
    f"{_TAG}null": _scalars.construct_yaml_null,
    f"{_TAG}bool": _scalars.construct_yaml_bool,
    f"{_TAG}int": _scalars.construct_yaml_int,
    f"{_TAG}float": _scalars.construct_yaml_float,
}


class NotYaml(BadRequest):
    """A text that can't be read as YAML; the message is `file:line:column: what`.

    Args:
        place: the file, with line and column where they are known.
        problem: what is wrong there; may quote the text, so what holds secrets shows the place alone.
    """

    def __init__(self, place: str, problem: str) -> None:
        self.place, self.problem = place, problem
        super().__init__(f"{place}: {problem}", code="not_yaml")


@dataclass(frozen=True, slots=True)
class Document:
    """One document: its value, and the line (from 1) of each value in it; a key's line is where the key stands."""

    value: Any
    lines: Mapping[Place, int]


def read_text(path: Path) -> str:
    """The UTF-8 text of a file.

    Raises:
        NotYaml: it isn't there, isn't UTF-8, or has more than `MAX_CHARACTERS` bytes.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MAX_CHARACTERS + 1)
        if len(data) > MAX_CHARACTERS:
            raise NotYaml(_shown(path), f"can't be read: more than {MAX_CHARACTERS >> 20} MiB")
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise NotYaml(_shown(path), f"can't be read: not UTF-8 text (byte {error.start})") from None
    except OSError as error:
        raise NotYaml(_shown(path), f"can't be read: {error.strerror or error}") from None
    except ValueError as error:  # a NUL in the name, or half of a surrogate pair
        raise NotYaml(_shown(path), f"can't be read: {error}") from None


def read_yaml(text: str, file: str) -> Any:
    """The value of a text with one document; None where it has none.

    Args:
        text: the YAML.
        file: the name of its file, for messages.

    Raises:
        NotYaml: it isn't YAML, holds what JSON doesn't know, names a key twice, contains itself, or is too large.
    """
    documents = read_documents(text, file)
    first = next(documents, None)
    if next(documents, None) is not None:
        raise NotYaml(file, "not YAML: one document is expected, and there are several")
    return first.value if first is not None else None


def read_documents(text: str, file: str) -> Iterator[Document]:
    """The documents of a text, one after the other; as `read_yaml`. An empty one has the value None."""
    if len(text) > MAX_CHARACTERS:
        raise NotYaml(file, f"not YAML: more than {MAX_CHARACTERS >> 20} Mi characters")
    try:
        loader = _Nodes(text)
        while loader.check_node():
            reading = _Reading()
            yield Document(reading.value(loader.get_node(), ()), reading.lines)
    except NotYaml:
        raise
    except _Refused as error:
        raise NotYaml(_at(file, error.mark), f"not YAML: {error.problem}") from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise NotYaml(f"{file}:{line}", f"not YAML: character #x{error.character:04x} isn't allowed") from None
    except yaml.MarkedYAMLError as error:
        problem = error.problem or error.context or "unreadable"
        raise NotYaml(_at(file, error.problem_mark or error.context_mark), f"not YAML: {problem}") from None
    except Exception as error:  # noqa: BLE001 - PyYAML lets through what a text makes Python raise
        raise NotYaml(file, f"not YAML: {error}") from None


class _Refused(Exception):
    """Something that YAML allows and we don't."""

    def __init__(self, mark: Any, problem: str) -> None:
        self.mark, self.problem = mark, problem
        super().__init__(problem)


class _Nodes(yaml.SafeLoader):
    """Composes nodes, up to a depth."""

    _depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise _Refused(mark, f"nested more than {MAX_DEPTH} deep")
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node


class _Reading:
    """The values of one document's nodes."""

    def __init__(self) -> None:
        self.lines: dict[Place, int] = {}
        self._open: set[int] = set()  # nodes around the one at hand
        self._count = 0

    def value(self, node: Any, place: Place) -> Any:
        """The value of a node as JSON knows it, noting lines."""
        self._count += 1
        if self._count > MAX_VALUES:
            raise _Refused(node.start_mark, f"more than {MAX_VALUES:,} values, counting what aliases repeat")
        self.lines.setdefault(place, node.start_mark.line + 1)
        if isinstance(node, yaml.ScalarNode):
            return _scalar(node)
        if node.tag != _TAG + ("map" if isinstance(node, yaml.MappingNode) else "seq"):
            raise _Refused(node.start_mark, f"the tag {node.tag.replace(_TAG, '!!')} isn't understood")
        if id(node) in self._open:
            raise _Refused(node.start_mark, "contains itself")
        if len(self._open) >= MAX_DEPTH:
            raise _Refused(node.start_mark, f"nested more than {MAX_DEPTH} deep")
        self._open.add(id(node))
        out: Any
        if isinstance(node, yaml.MappingNode):
            out = self._mapping(node, place)
        else:
            out = [self.value(child, (*place, i)) for i, child in enumerate(node.value)]
        self._open.discard(id(node))
        return out

    def _mapping(self, node: yaml.MappingNode, place: Place) -> dict[str, Any]:
        own: dict[str, Any] = {}
        merged: list[yaml.Node] = []
        for key_node, value_node in node.value:
            if key_node.tag == _MERGE:
                merged.append(value_node)
                continue
            if not isinstance(key_node, yaml.ScalarNode):
                raise _Refused(key_node.start_mark, "a key is a text")
            key = _text(key_node)
            if key in own:
                raise _Refused(key_node.start_mark, f"{key} is given twice")
            self.lines.setdefault((*place, key), key_node.start_mark.line + 1)
            own[key] = self.value(value_node, (*place, key))
        if merged:
            own = self._merged(merged, place) | own
        return own

    def _merged(self, nodes: list[yaml.Node], place: Place) -> dict[str, Any]:
        """What `<<` takes over from one mapping or a list of them; the first of them that has a key wins."""
        listed = [child for node in nodes for child in (node.value if isinstance(node, yaml.SequenceNode) else [node])]
        out: dict[str, Any] = {}
        for node in listed:
            if not isinstance(node, yaml.MappingNode):
                raise _Refused(node.start_mark, "<< takes over mappings alone")
            out = self.value(node, place) | out
        return out


def _scalar(node: yaml.ScalarNode) -> Any:
    if node.tag in _TEXTS:
        return _text(node)
    read = _PLAIN.get(node.tag)
    if read is None:
        raise _Refused(node.start_mark, f"the tag {node.tag.replace(_TAG, '!!')} isn't understood")
    if len(node.value) > MAX_NUMBER_CHARACTERS:
        raise _Refused(node.start_mark, f"a number of more than {MAX_NUMBER_CHARACTERS:,} characters")
    try:
        value = read(node)
    except Exception:  # noqa: BLE001 - ValueError, KeyError, IndexError, OverflowError: by what the text holds
        raise _Refused(node.start_mark, f"not a value of {node.tag.replace(_TAG, '!!')}") from None
    if isinstance(value, float) and not math.isfinite(value):
        raise _Refused(node.start_mark, "not a finite number")
    return value


def _text(node: yaml.ScalarNode) -> str:
    """The text of a scalar; JSON writes what lies beyond U+FFFF as two halves, and they make one character."""
    value: str = node.value
    try:
        value.encode()
        return value
    except UnicodeEncodeError:
        pass
    try:
        return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
    except UnicodeDecodeError:
        raise _Refused(node.start_mark, "half of a surrogate pair, which is no text") from None


def _at(file: str, mark: Any) -> str:
    return file if mark is None else f"{file}:{mark.line + 1}:{mark.column + 1}"


def _shown(path: Path) -> str:
    """A path that can be printed whatever it holds."""
    return str(path).encode("utf-8", "backslashreplace").decode()
