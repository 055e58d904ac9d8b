"""The places of values in a file, and the problems found with them.

A path is the way to a value from the top of a document: keys, and numbers for the elements of a list.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from noonbell.errors import ScheduleFileInvalidError

Path = tuple[str | int, ...]

# An error is one line; a whole payload in it would hide the rest.
_LONGEST_VALUE: Final = 80
# An error lists a hundred, in the order of the file; those come from the first that are found.
_MOST_KEPT: Final = 1_000
_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")
_PART: Final = re.compile(r"\[(\d+)\]|([^.\[]+)")


class Place(NamedTuple):
    """Counted from 1, as editors do."""

    line: int
    column: int


START: Final = Place(1, 1)
NOTHING: Final[Any] = object()  # no value is to blame: something is missing, or the place says it all


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong in a file. `value` is the offending one as text, None where it is missing."""

    source: str
    line: int
    column: int
    field: str
    value: str | None
    reason: str

    @property
    def text(self) -> str:
        value = "" if self.value is None else f" {self.value}"
        what = f"{self.field}{value} " if self.field else f"{value.strip()} " if value else ""
        return f"{self.source}:{self.line}:{self.column}: {what}{self.reason}"


@dataclass(slots=True)
class Document:
    """The plain values of a file with the places of its keys and values, and the problems found so far."""

    source: str
    values: dict[str, Any] = field(default_factory=dict)
    keys: dict[Path, Place] = field(default_factory=dict)
    places: dict[Path, Place] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    more: int = 0  # problems beyond those that are kept
    _said: set[int] = field(default_factory=set)

    @property
    def full(self) -> bool:
        """Return whether there are more problems than a person reads. Hints that take time are left out then."""
        return len(self.problems) >= _MOST_KEPT

    def place(self, path: Path, *, key: bool = False) -> Place:
        """Return the place of a value or of its key; for a value that is not in the file, the place of its owner."""
        known: Mapping[Path, Place] = self.keys if key else self.places
        if path in known:
            return known[path]
        while path:
            if path in self.keys:
                return self.keys[path]
            if path in self.places:
                return self.places[path]
            path = path[:-1]
        return START

    def problem(self, path: Path, value: Any, reason: str, *, key: bool = False) -> Problem:
        line, column = self.place(path, key=key)
        shown = None if value is NOTHING else shortened(value)
        return Problem(self.source, line, column, _printable(dotted(path)), shown, _printable(reason))

    def complain(self, path: Path, value: Any, reason: str, *, key: bool = False) -> None:
        """Note a problem; what is said already is not said again."""
        said = hash((path, reason, key))
        if said in self._said:
            return
        self._said.add(said)
        if self.full:
            self.more += 1
        else:
            self.problems.append(self.problem(path, value, reason, key=key))

    def invalid(self) -> ScheduleFileInvalidError:
        """The problems as an error, in the order of the file."""
        return ScheduleFileInvalidError(sorted(self.problems, key=lambda one: (one.line, one.column)), self.more)


def _printable(text: str) -> str:
    """Without halves of characters, which no terminal and no file takes."""
    return text.encode("utf-8", "backslashreplace").decode()


def dotted(path: Path) -> str:
    """A path as people write it: `quiet_hours.nights.windows[0].from`."""
    said = ""
    for part in path:
        key = part if isinstance(part, int) or _BARE.fullmatch(part) else f'"{part}"'
        said += f"[{key}]" if isinstance(part, int) else f".{key}" if said else str(key)
    return said


def undotted(text: str) -> Path:
    """The path of a field that an error names; keys with a dot in them do not come up there."""
    return tuple(int(number) if number else key for number, key in _PART.findall(text))


def shortened(value: Any) -> str:
    said = repr(value)
    return said if len(said) <= _LONGEST_VALUE else said[:_LONGEST_VALUE] + "…"
