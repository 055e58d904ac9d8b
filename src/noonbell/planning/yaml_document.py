"""YAML with places, without the parts of it that surprise people.

Only the tree of nodes is made by the library; what a scalar means is decided here: `true` and `false`, `null` and `~`,
numbers as JSON writes them, and text. So `on` and `no` are words, `9:30` is a time and not 570, `0755` and a date are
text. There are no tags, no merge keys, no second document; a key comes once. Aliases are followed, up to a number of
values that no file for people reaches.
"""

from __future__ import annotations

import re
from typing import Any, Final

import yaml

from noonbell.planning.places import NOTHING, Document, Path, Place

_MOST_VALUES: Final = 200_000
_DEEPEST: Final = 60
_WORDS: Final = {"true": True, "false": False, "null": None, "~": None, "": None}
_WHOLE: Final = re.compile(r"-?(?:0|[1-9][0-9]{0,999})")
_HALVES: Final = re.compile("[\ud800-\udfff]")
_DECIMAL: Final = re.compile(r"-?(?:0|[1-9][0-9]{0,99})(?:\.[0-9]{1,99})?(?:[eE][+-]?[0-9]{1,3})?")


class _TagError(yaml.MarkedYAMLError):
    """A value that asks for a type."""


class _Loader(yaml.SafeLoader):
    """Composes nodes; no plain scalar has a type of its own, and none can be asked for."""

    yaml_implicit_resolvers: dict[Any, Any] = {}  # noqa: RUF012 - the library looks it up on the class

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        event = self.peek_event()  # type: ignore[no-untyped-call]  # the library's types leave it out
        tag = getattr(event, "tag", None)
        if tag not in (None, "!"):
            raise _TagError(
                problem=f"asks for a type, {tag}; values are written plainly", problem_mark=event.start_mark
            )
        return super().compose_node(parent, index)


def read_yaml(text: str, source: str) -> Document:
    """The document, or one whose only problem is that it cannot be read."""
    document = Document(source)
    try:
        loader = _Loader(text)
        try:
            root = loader.get_single_node()
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        document.places[()] = Place(1, 1) if mark is None else Place(mark.line + 1, mark.column + 1)
        said = " ".join(part for part in (error.context, error.problem) if part)
        document.complain((), NOTHING, said if isinstance(error, _TagError) else f"is not valid YAML: {said}")
        return document
    except yaml.reader.ReaderError as error:
        before = text[: error.position]
        document.places[()] = Place(before.count("\n") + 1, error.position - before.rfind("\n"))
        document.complain(
            (), NOTHING, f"is not valid YAML: it has a character that is not allowed, {error.character!r}"
        )
        return document
    except RecursionError:
        document.complain((), NOTHING, "is nested too deeply")
        return document
    if root is None:
        return document
    if not isinstance(root, yaml.MappingNode):
        document.complain((), NOTHING, "must hold keys and values, such as schedules:")
        return document
    values = _Values(document).read(root, (), 0)
    document.values = values if isinstance(values, dict) else {}
    return document


class _Values:
    """From nodes to plain values; each time an alias is followed its values count again."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._left = _MOST_VALUES

    def read(self, node: yaml.Node, path: Path, depth: int) -> Any:
        self._left -= 1
        if self._left == 0:
            self._document.complain((), NOTHING, f"has more than {_MOST_VALUES} values, aliases followed")
        if self._left <= 0:
            return None
        place = Place(node.start_mark.line + 1, node.start_mark.column + 1)
        self._document.places[path] = place
        if depth > _DEEPEST:
            self._document.complain(path[:2], NOTHING, "is nested too deeply, or an alias lies within itself")
            return None
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path, depth)
        if isinstance(node, yaml.SequenceNode):
            return [self.read(inner, (*path, number), depth + 1) for number, inner in enumerate(node.value)]
        return _scalar(node) if isinstance(node, yaml.ScalarNode) else None

    def _mapping(self, node: yaml.MappingNode, path: Path, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key_node, value_node in node.value:
            place = Place(key_node.start_mark.line + 1, key_node.start_mark.column + 1)
            if not isinstance(key_node, yaml.ScalarNode):
                self._document.keys[*path, "?"] = place
                self._document.complain((*path, "?"), NOTHING, "is not a valid key; a key is a text", key=True)
                continue
            key = _text(key_node)
            inner = (*path, key)
            if key in found:
                first = self._document.keys[inner]
                self._document.keys[inner] = place
                self._document.complain(inner, NOTHING, f"is given twice; first in line {first.line}", key=True)
                self._document.keys[inner] = first
                continue
            self._document.keys[inner] = place
            if key == "<<":
                self._document.complain(inner, NOTHING, "merges; put what is shared under defaults", key=True)
                continue
            found[key] = self.read(value_node, inner, depth + 1)
        return found


def _text(node: yaml.ScalarNode) -> str:
    """The text of a scalar; two escapes that make one character in JSON make one here as well."""
    said = str(node.value)
    if not _HALVES.search(said):
        return said
    return said.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def _scalar(node: yaml.ScalarNode) -> Any:
    said = _text(node)
    if node.style is not None:  # quoted, or a block
        return said
    if said in _WORDS:
        return _WORDS[said]
    if _WHOLE.fullmatch(said):
        return int(said)
    return float(said) if _DECIMAL.fullmatch(said) else said
