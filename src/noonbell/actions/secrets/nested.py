r"""Finds values behind escapes in several layers, such as JSON in JSON in JSON, or `\u0026#83;` for `S`.

`forms` knows what encoders make of a value in one or two steps. A pattern for every mixture of more layers would be too
large, so here the text is decoded instead, layer by layer, until nothing changes. The values are decoded the same way,
and compared with what the text has become. A find is mapped back to its place in the text.

Decoding is lenient and loses what would make it ambiguous. A run of backslashes of any length counts as one, since each
layer of JSON doubles it, and a backslash that escapes nothing is dropped. NUL is dropped too: ASCII in UTF-16 or UTF-32
is what remains. `+` and a space are the same, and so are a line feed and the letter of its escape. So a find may cover
a little more than the value; it never covers less than its letters and digits.

The work is bounded: at most `_LAYERS` passes, each linear in the length of the text, and one search for each piece of a
value. No part of the expression can match the same text in two ways.

All of it works on UTF-8 bytes, one character for each byte.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from html.entities import html5
from itertools import accumulate
from string import ascii_letters, digits
from typing import Final, NamedTuple

from noonbell.actions.secrets.secret_records import SHORTEST_VALUE

# Eight layers around a value, and the escapes within it.
_LAYERS: Final = 10
# A longer value is compared in pieces of this many bytes. They overlap, so that their finds are one.
_PIECE: Final = 256
# In a stream, and where a text was cut, a byte of a value is found if it is written with at most so many.
_LONGEST_ESCAPE: Final = 64
# As for values: fewer different characters turn up in ordinary text by chance.
_FEWEST_DIFFERENT: Final = 3
# From how many bytes on the end of a cut text counts as the beginning of a value.
_SHORTEST_BEGINNING: Final = 3

_HEX: Final = "[0-9a-fA-F]"
_PUNCTUATION: Final = r"[!-/:-@\[\]^-`{-~ ]"
_SPECIAL: Final = ("\\", "%", "&", "\0")
# Each alternative begins with a literal: that is how the search leaps over what is not an escape.
_ESCAPE: Final = re.compile(
    rf"(\\\\*+(?:u[dD][89abAB]{_HEX}{{2}}\\++u[dD][c-fC-F]{_HEX}{{2}}|u{_HEX}{{4}}|u\{{{_HEX}{{1,6}}\}}|U{_HEX}{{8}}"
    rf"|x{_HEX}{{2}}|[0-3][0-7]{{2}}|[abfnrtv]|{_PUNCTUATION})?+"
    rf"|%(?:u[dD][89abAB]{_HEX}{{2}}%u[dD][c-fC-F]{_HEX}{{2}}|u{_HEX}{{4}}|{_HEX}{{2}})"
    rf"|&(?:#(?:0*+[0-9]{{1,7}}|[xX]0*+{_HEX}{{1,6}});?+|[A-Za-z][A-Za-z0-9]{{1,31}};)"
    r"|\0\0*+)"
)
# So much of a text is decoded at a time: the parts of a text take many times its memory.
_WINDOW: Final = 65_536
# Where a text can be divided: an escape begins here, or none that began before goes on.
_BOUNDARY: Final = re.compile(r"(?<!\\)(?:\\(?!\\*+u[dD][c-fC-F])|%(?!u[dD][c-fC-F])|&)|(?<!\0)\0")
# What an escape is made of. Where decoding gives none of it, nothing is left to decode.
_CONTINUES: Final = frozenset(ascii_letters + digits + "\\%&#;{}\0")
# The first part of an escape at the end of a text that was cut.
_INCOMPLETE: Final = re.compile(
    rf"(?:(?<!\\)\\++(?:[uU]\{{?{_HEX}{{0,7}}|x{_HEX}?|[0-3][0-7]?)?+"
    rf"|%u?{_HEX}{{0,3}}|&(?:#(?:[xX]?+0*+{_HEX}{{0,7}})?+|[A-Za-z0-9]{{0,31}}))\Z"
)
# Of the characters in UTF-8, the bytes after the first.
_CONTINUATION: Final = bytes(range(0x80, 0xC0))
_SHORT: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
# What is compared as if it were the same. The backslash of `\\n` may be dropped before its letter is decoded.
_SAME: Final = {"+": " ", **{control: letter for letter, control in _SHORT.items()}}


class _Decoded(dict[str, str]):
    """The decoded text of each escape, worked out at its first use."""

    def __missing__(self, escape: str) -> str:
        found = self[escape] = _decoded(escape)
        return found


class _Layer(NamedTuple):
    """The beginnings of the parts of a text, before and after decoding; every second part is an escape."""

    before: array[int]
    after: array[int]

    def begin(self, at: int) -> int:
        """Return the place in the encoded text at which the character at this place begins."""
        part = bisect_right(self.after, at) - 1
        return self.before[part] + (0 if part % 2 else at - self.after[part])

    def end(self, at: int) -> int:
        """Return the place in the encoded text at which the character before this place ends."""
        part = bisect_left(self.after, at) - 1
        return self.before[part + 1] if part % 2 else self.before[part] + at - self.after[part]


class NestedForms:
    """Looks for values behind any mixture of escapes."""

    def __init__(self, values: Iterable[str]) -> None:
        self._pieces = sorted({piece for value in values for piece in _pieces(value)})
        # what a value takes in the longest form that is found in a stream
        self.reach = max((_LONGEST_ESCAPE * len(piece) for piece in self._pieces), default=0)

    def spans(self, text: str | bytes) -> list[tuple[int, int]]:
        """Return the places of values with escapes, in order and apart. Texts without escapes have none."""
        data = _as_bytes(text)
        if not any(special in data for special in _SPECIAL):
            return []
        decoded = _unescaped(data)
        found = _merged(sorted(span for piece in self._pieces for span in _occurrences(piece, decoded)))
        if not found:
            return []
        # once more, with the places: most texts show nothing, and need none
        layers: list[_Layer] = []
        _unescaped(data, layers)
        for layer in reversed(layers):
            found = [(layer.begin(begin), layer.end(end)) for begin, end in found]
        return _in_characters(text, data, _merged(found))

    def start_of_beginning(self, text: str | bytes) -> int:
        """Return where the first part of a value begins at the end of a cut text, or else the length of the text."""
        tail = text[-self.reach :] if self.reach else text[:0]
        data = _as_bytes(tail)
        layers: list[_Layer] = []
        decoded = _unescaped(data, layers, cut=True)
        longest = 0
        for piece in self._pieces:
            for size in range(min(len(piece) - 1, len(decoded)), max(longest, _SHORTEST_BEGINNING - 1), -1):
                if decoded.endswith(piece[:size]):
                    longest = size
                    break
        if not longest:
            return len(text)
        begin = len(decoded) - longest
        for layer in reversed(layers):
            begin = layer.begin(begin)
        ((start, _),) = _in_characters(tail, data, [(begin, len(data))])
        return len(text) - len(tail) + start


def _pieces(value: str) -> Iterator[str]:
    # with what follows them the last signs could be an escape
    decoded = _unescaped(_as_bytes(value)).rstrip("%&#")
    for begin in range(0, max(len(decoded) - 1, 1), _PIECE - 1):
        piece = decoded[max(0, min(begin, len(decoded) - _PIECE)) :][:_PIECE]
        if len(piece) >= SHORTEST_VALUE and len(set(piece)) >= _FEWEST_DIFFERENT:
            yield piece


def _unescaped(text: str, layers: list[_Layer] | None = None, *, cut: bool = False) -> str:
    """The text without escapes. `layers` takes up each pass; `cut`: without half an escape at the end."""
    known = _Decoded()
    for _ in range(_LAYERS):
        if cut:
            text = _INCOMPLETE.sub("", text)
        if not any(special in text for special in _SPECIAL):
            break
        decoded = _one_pass(text, known, layers)
        if decoded == text:
            break
        text = decoded
        if _CONTINUES.isdisjoint("".join(known.values())) and "" not in known.values():
            break
    for one, other in _SAME.items():
        text = text.replace(one, other)
    return text


def _one_pass(text: str, known: _Decoded, layers: list[_Layer] | None) -> str:
    layer = _Layer(array("L", [0]), array("L", [0]))
    out: list[str] = []
    begin = 0
    while begin < len(text):
        boundary = _BOUNDARY.search(text, begin + _WINDOW)
        end = boundary.start() if boundary else len(text)
        parts = _ESCAPE.split(text[begin:end])
        if layers is not None:
            # an empty escape keeps the windows apart
            layer.before.extend(accumulate([*map(len, parts), 0], initial=layer.before.pop()))
        parts[1::2] = map(known.__getitem__, parts[1::2])
        if layers is not None:
            layer.after.extend(accumulate([*map(len, parts), 0], initial=layer.after.pop()))
        out.append("".join(parts))
        begin = end
    if layers is not None:
        layers.append(layer)
    return "".join(out)


def _decoded(escape: str) -> str:
    if escape[0] == "\\":
        return _after_backslash(escape.lstrip("\\"))
    if escape[0] == "%":
        return _in_utf16(escape) if escape[1] == "u" else chr(int(escape[1:], 16))
    if escape[0] == "\0":
        return ""
    name = escape[1:]
    if name[0] != "#":
        return _as_bytes(html5.get(name, escape))
    # the zeros first: a number of many digits is refused
    number = name[1:].rstrip(";").lower()
    significant = number.lstrip("x").lstrip("0") or "0"
    return _character(int(significant, 16 if number[0] == "x" else 10)) or escape


def _after_backslash(rest: str) -> str:
    if len(rest) < 2:
        return _SHORT.get(rest, rest)
    if rest[0] in "01234567":
        return chr(int(rest, 8))
    if rest[0] == "x":
        return chr(int(rest[1:], 16))
    return _character(int(rest[1:].strip("{}"), 16)) if rest[0] == "U" or rest[1] == "{" else _in_utf16(rest)


def _in_utf16(escape: str) -> str:
    """A character in four digits, or in two times four."""
    units = bytes.fromhex("".join(part[:4] for part in escape.split("u")[1:]))
    return _as_bytes(units.decode("utf-16-be", "surrogatepass"))


def _character(code: int) -> str:
    """A character as UTF-8, one character for each byte; empty where there is none of this number."""
    return _as_bytes(chr(code)) if code <= 0x10FFFF else ""


def _as_bytes(text: str | bytes) -> str:
    if isinstance(text, str):
        if text.isascii():
            return text
        text = text.encode("utf-8", "surrogatepass")
    return text.decode("latin-1")


def _occurrences(piece: str, text: str) -> Iterator[tuple[int, int]]:
    at = text.find(piece)
    while at >= 0:
        yield at, at + len(piece)
        at = text.find(piece, at + 1)


def _merged(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Spans that overlap, as one."""
    merged: list[tuple[int, int]] = []
    for begin, end in spans:
        if merged and begin < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((begin, end))
    return merged


def _in_characters(text: str | bytes, data: str, spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The spans of bytes as spans of the text."""
    if isinstance(text, bytes) or len(text) == len(data):
        return spans
    places: list[int] = []
    byte = character = 0
    for place in (place for span in spans for place in span):
        character += len(data[byte:place].encode("latin-1").translate(None, _CONTINUATION))
        byte = place
        places.append(character)
    return list(zip(places[::2], places[1::2], strict=True))
