"""TOML with places. `tomllib` says what the values are; a small walk over the same text finds their places.

The walk runs only over text that `tomllib` has accepted, so it knows the shape of the language and checks nothing.
Dates and times become ISO 8601 text: that is what the fields of a schedule are written in.
"""

from __future__ import annotations

import re
import tomllib
from bisect import bisect_right
from datetime import date, datetime, time
from typing import Any, Final

from noonbell.planning.places import NOTHING, Document, Path, Place

_AT: Final = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")
_BLANK: Final = re.compile(r"[ \t]*")
_IDLE: Final = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_BARE_KEY: Final = re.compile(r"[A-Za-z0-9_-]+")
_BARE_VALUE: Final = re.compile(r"[^,\]}\n#]*")
_NESTED: Final = "is nested too deeply"
# tomllib keeps each beginning of a dotted key, so that one of many parts takes the square of its length in memory
_MOST_PARTS: Final = 20
_DEEPEST: Final = 60
_PART: Final = r"""(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+"""
_LONG_KEY: Final = re.compile(rf"""(?<![\w"'.-])(?:{_PART}\.[ \t]*+){{{_MOST_PARTS}}}""", re.ASCII)
_STRING: Final = re.compile(
    r'"""(?:\\[\s\S]|[^\\])*?"{3,5}(?!")' r"|'''[\s\S]*?'{3,5}(?!')" r'|"(?:\\.|[^"\\\n])*"' r"|'[^'\n]*'"
)


def read_toml(text: str, source: str) -> Document:
    """The document, or one whose only problem is that it cannot be read."""
    document = Document(source)
    if (long_key := _LONG_KEY.search(text)) is not None:
        before = text[: long_key.start()]
        document.places[()] = Place(before.count("\n") + 1, len(before) - before.rfind("\n"))
        document.complain((), NOTHING, f"has a key of more than {_MOST_PARTS} parts; it {_NESTED}")
        return document
    try:
        values = tomllib.loads(text)
        _require_shallow(values)
    except RecursionError:
        document.complain((), NOTHING, _NESTED)
        return document
    except ValueError as error:
        _complain_about_syntax(document, text, str(error))
        return document
    document.values = _plain(values)
    walk = _Walk(text, document)
    walk.run()
    return document


def _complain_about_syntax(document: Document, text: str, message: str) -> None:
    at = _AT.search(message)
    reason = message if at is None else message[: at.start()]
    lines = text.split("\n")
    place = Place(len(lines), len(lines[-1]) + 1)
    if at is not None and at[1]:
        place = Place(int(at[1]), int(at[2]))
    document.places[()] = place
    document.complain((), NOTHING, f"is not valid TOML: {reason[:1].lower()}{reason[1:]}")


def _require_shallow(values: Any) -> None:
    """Raise RecursionError where keys of many parts, one below the other, have made what no recursion goes through."""
    level = [values]
    for _ in range(_DEEPEST):
        level = [
            inner
            for one in level
            if isinstance(one, dict | list)
            for inner in (one.values() if isinstance(one, dict) else one)
        ]
        if not level:
            return
    raise RecursionError


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_plain(inner) for inner in value]
    if isinstance(value, (datetime, date, time)):
        return value.isoformat()
    return value


class _Walk:
    """One pass over the text, noting where each key and value begins."""

    def __init__(self, text: str, document: Document) -> None:
        self._text = text.replace("\r\n", "\n")
        self._lines = [0, *(found.end() for found in re.finditer("\n", self._text))]
        self._document = document
        self._at = 0
        self._elements: dict[Path, int] = {}  # of each array of tables, how many were opened

    def run(self) -> None:
        table: Path = ()
        self._pass(_IDLE)
        while self._at < len(self._text):
            if self._text[self._at] == "[":
                table = self._header()
            else:
                self._pair(table)
            self._pass(_IDLE)

    def _header(self) -> Path:
        begun = self._at
        many = self._text.startswith("[[", begun)
        self._at += 2 if many else 1
        keys = self._dotted_key()
        self._at = self._text.index("]", self._at) + (2 if many else 1)
        path: Path = ()
        for key, place in keys:
            path = self._entered((*path, key))
            self._document.keys.setdefault(path, place)
        if many:
            bare = (*self._entered_all(keys[:-1]), keys[-1][0])
            number = self._elements.get(bare, 0)
            self._elements[bare] = number + 1
            path = (*bare, number)
            self._document.keys.setdefault(bare, keys[-1][1])
            self._document.keys[path] = self._place(begun)
        return path

    def _entered_all(self, keys: list[tuple[str, Place]]) -> Path:
        path: Path = ()
        for key, _ in keys:
            path = self._entered((*path, key))
        return path

    def _entered(self, path: Path) -> Path:
        """The path itself, or the latest element where it is an array of tables."""
        return (*path, self._elements[path] - 1) if path in self._elements else path

    def _pair(self, table: Path) -> None:
        path = table
        for key, place in self._dotted_key():
            path = (*path, key)
            self._document.keys.setdefault(path, place)
        self._at += 1  # the sign of equality
        self._pass(_BLANK)
        self._value(path)

    def _dotted_key(self) -> list[tuple[str, Place]]:
        """Read the parts of a key. The walk goes on behind it, at the first character that is not a blank."""
        parts: list[tuple[str, Place]] = []
        while True:
            self._pass(_BLANK)
            place = self._place(self._at)
            if self._text[self._at] in "\"'":
                literal = self._pass(_STRING)
                key = next(iter(tomllib.loads(f"{literal} = 0")))
            else:
                key = self._pass(_BARE_KEY)
            parts.append((key, place))
            self._pass(_BLANK)
            if self._text[self._at] != ".":
                return parts
            self._at += 1

    def _value(self, path: Path) -> None:
        self._document.places[path] = self._place(self._at)
        first = self._text[self._at]
        if first in "\"'":
            self._pass(_STRING)
        elif first == "[":
            self._listed(path)
        elif first == "{":
            self._inline(path)
        else:
            self._pass(_BARE_VALUE)

    def _listed(self, path: Path) -> None:
        self._at += 1
        self._pass(_IDLE)
        number = 0
        while self._text[self._at] != "]":
            self._value((*path, number))
            number += 1
            self._pass(_IDLE)
            if self._text[self._at] == ",":
                self._at += 1
                self._pass(_IDLE)
        self._at += 1

    def _inline(self, path: Path) -> None:
        self._at += 1
        self._pass(_BLANK)
        while self._text[self._at] != "}":
            self._pair(path)
            self._pass(_BLANK)
            if self._text[self._at] == ",":
                self._at += 1
                self._pass(_BLANK)
        self._at += 1

    def _pass(self, pattern: re.Pattern[str]) -> str:
        found = pattern.match(self._text, self._at)
        assert found is not None  # noqa: S101 - tomllib has accepted the text
        self._at = found.end()
        return found[0]

    def _place(self, at: int) -> Place:
        line = bisect_right(self._lines, at)
        return Place(line, at - self._lines[line - 1] + 1)
