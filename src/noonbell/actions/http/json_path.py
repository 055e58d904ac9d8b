"""Paths into JSON, a small language of our own: the place of a value, and nothing that could run.

    $                 the whole
    $.a.b             the key "b" of the object at "a"; letters, digits, "_" and "-"
    $.items[0].id     the first of a list; [-1] is the last
    $["a key"].b      any key, as a JSON text

No wildcards, filters, slices or functions: a path leads to one value or to none. Looking it up takes one step for each
of its parts.

A text of a megabyte may hold a hundred thousand values, which take twenty times its size. So a text is not read
whole: `value_at` passes over what the path does not lead through, and reads what it leads to.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache
from typing import Any, Final

import msgspec

LONGEST_PATH: Final = 500
# Beyond this place in a list, or counted from its end, the list is read whole.
_MOST_PASSED: Final = 100
_KEY: Final = re.compile(r"\.([A-Za-z0-9_-]+)", re.ASCII)
_NUMBER: Final = re.compile(r"\[(-?[0-9]{1,9})\]", re.ASCII)
_QUOTED: Final = re.compile(r'\[("(?:[^"\\]|\\.)*")\]')

Step = str | int


class _Nothing:
    def __repr__(self) -> str:
        return "NOTHING"


NOTHING: Final = _Nothing()
"""The result of a path that leads to no value; JSON's null is a value."""


def parse_path(text: str) -> tuple[Step, ...]:
    """The steps of a path.

    Raises:
        ValueError: it is not a path; the message says where it goes wrong.
    """
    if not text.startswith("$"):
        raise ValueError('must begin with "$", such as $.status or $.items[0].id')
    if len(text) > LONGEST_PATH:
        raise ValueError(f"must have at most {LONGEST_PATH} characters")
    steps: list[Step] = []
    at = 1
    while at < len(text):
        if found := _KEY.match(text, at):
            steps.append(found[1])
        elif found := _NUMBER.match(text, at):
            steps.append(int(found[1]))
        elif found := _QUOTED.match(text, at):
            steps.append(_quoted(found[1], text[at:]))
        else:
            raise ValueError(f'cannot be read from "{text[at : at + 20]}" on; known are .key, [0] and ["any key"]')
        at = found.end()
    return tuple(steps)


def _quoted(written: str, rest: str) -> str:
    try:
        key = json.loads(written)
    except ValueError:
        raise ValueError(f'cannot be read from "{rest[:20]}" on; a key in brackets is a JSON text') from None
    return str(key)


def look_up(value: Any, steps: tuple[Step, ...]) -> Any:
    """The value at a path, or NOTHING."""
    for step in steps:
        if isinstance(step, str):
            if not isinstance(value, dict) or step not in value:
                return NOTHING
            value = value[step]
        else:
            if not isinstance(value, list) or not -len(value) <= step < len(value):
                return NOTHING
            value = value[step]
    return value


def value_at(text: bytes, steps: tuple[Step, ...]) -> Any:
    """The value at a path in a JSON text, or NOTHING.

    Raises:
        msgspec.DecodeError, UnicodeDecodeError, RecursionError: the text is not JSON, or nested too deeply.
    """
    rest: bytes | msgspec.Raw = msgspec.json.decode(text, type=msgspec.Raw)  # is it JSON at all?
    for at, step in enumerate(steps):
        if isinstance(step, int) and not 0 <= step < _MOST_PASSED:
            return look_up(msgspec.json.decode(rest), steps[at:])
        try:
            inner: msgspec.Raw = getattr(msgspec.json.decode(rest, type=_only(step)), _WANTED)
        except msgspec.ValidationError:
            return NOTHING  # not an object, or not a list
        if not memoryview(inner):
            return NOTHING
        rest = inner
    return msgspec.json.decode(rest)


_WANTED: Final = "wanted"


@lru_cache(maxsize=1024)
def _only(step: Step) -> type[msgspec.Struct]:
    """Return a type that keeps one value of an object or a list undecoded, and skips the others."""
    wanted = (_WANTED, msgspec.Raw, msgspec.Raw())
    if isinstance(step, str):
        return msgspec.defstruct("Object", [wanted], rename={_WANTED: step})
    before = [(f"passed_{place}", msgspec.Raw, msgspec.Raw()) for place in range(step)]
    return msgspec.defstruct("List", [*before, wanted], array_like=True)
