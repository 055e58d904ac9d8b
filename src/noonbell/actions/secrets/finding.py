"""Finds the forms of many values in one pass, however many there are.

A regular expression made of all forms would be large: tens of milliseconds to compile for each value. So there are
two. The *lure* knows the first few tokens of every form, sorted by their first two signs, and runs over the text.
Where it stops, the *forms* that begin with the sign found there are held against the place; they are compiled when
that happens for the first time. A form begins as the lure says or it is not there, so nothing is missed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import AnyStr, Final, Generic

from noonbell.actions.secrets.escaped_forms import LURE_TOKENS, Pattern

_NUMBERED: Final = r"\x"


class FormIndex:
    """The patterns of all values, without doubles, as sources of the two expressions."""

    def __init__(self, found: Iterable[Pattern]) -> None:
        self._patterns = list({(pattern.tokens, pattern.end): pattern for pattern in found}.values())
        # the source of a token is at least as long as whatever it matches
        self.reach = max((_reach(pattern) for pattern in self._patterns), default=0)

    def lure(self) -> str:
        tree: dict[str, dict[str, None]] = {}
        for pattern in self._patterns:
            for first, rest in _beginnings(pattern):
                tree.setdefault(first, {})[rest] = None
        return "|".join(f"{first}{_by_next_sign(list(rests))}" for first, rests in tree.items()) or "(?!)"

    def firsts(self) -> dict[str, list[Pattern]]:
        """The patterns by the literal that they may begin with."""
        by_first: dict[str, list[Pattern]] = {}
        for pattern in self._patterns:
            for first in dict.fromkeys(_split(way)[0] for way in pattern.tokens[0].ways):
                by_first.setdefault(first, []).append(pattern)
        return by_first


class Finder(Generic[AnyStr]):
    """Searches text, or bytes: `compiled` and `sign`, which makes of a literal what it matches first, say which."""

    def __init__(
        self, index: FormIndex, compiled: Callable[[str], re.Pattern[AnyStr]], sign: Callable[[str], AnyStr]
    ) -> None:
        self.reach = index.reach
        self._compiled: Callable[[str], re.Pattern[AnyStr]] = compiled
        self._lure: re.Pattern[AnyStr] = compiled(index.lure())
        self._patterns: dict[AnyStr, list[Pattern]] = {}
        for first, found in index.firsts().items():
            # several signs may share their first byte
            known = self._patterns.setdefault(sign(first), [])
            known += [pattern for pattern in found if pattern not in known] if known else found
        self._forms: dict[AnyStr, re.Pattern[AnyStr]] = {}
        self._edge: re.Pattern[AnyStr] = compiled("[A-Za-z0-9+/_-]")

    def search(self, text: AnyStr, at: int) -> re.Match[AnyStr] | None:
        """The first find from `at` on. Its `lastindex` is set where the sign before it belongs to it."""
        while lured := self._lure.search(text, at):
            begin = lured.start()
            if found := self._forms_from(text[begin : begin + 1]).match(text, begin):
                return found
            at = begin + 1
        return None

    def is_edge(self, text: AnyStr, at: int) -> bool:
        """Return whether a sign of base64 is at this place, which may hold bits of what follows."""
        return at >= 0 and self._edge.match(text, at) is not None

    def _forms_from(self, first: AnyStr) -> re.Pattern[AnyStr]:
        known = self._forms.get(first)
        if known is None:
            # the longer value first: at one place the first that fits is taken
            ordered = sorted(self._patterns[first], key=lambda pattern: (-pattern.size, -len(pattern.tokens)))
            # an empty group at its end marks a form that shares its edge
            known = self._compiled("|".join(found.source + ("()" if found.shares_edge else "") for found in ordered))
            self._forms[first] = known
        return known


def _reach(pattern: Pattern) -> int:
    tokens = sum(max(len(way.encode()) for way in token.ways) for token in pattern.tokens)
    return tokens + pattern.end_reach


def _beginnings(pattern: Pattern) -> Iterable[tuple[str, str]]:
    """The first sign and what follows it up to the last token of the lure, for every way to begin."""
    second, *others = pattern.tokens[1:LURE_TOKENS]
    tail = "".join(token.source for token in others)
    for way in pattern.tokens[0].ways:
        first, rest = _split(way)
        if rest:
            yield first, rest + second.source + tail
        else:
            yield from ((first, following + tail) for following in second.ways)


def _by_next_sign(rests: list[str]) -> str:
    """Alternatives sorted by their first sign where that is a letter or digit: most places are left after two signs."""
    groups: dict[str, list[str]] = {}
    for rest in rests:
        plain = rest[0].isascii() and rest[0].isalnum()
        groups.setdefault(rest[0] if plain else rest, []).append(rest[1:] if plain else "")
    return f"(?:{'|'.join(f'{head}(?:{chr(124).join(tails)})' for head, tails in groups.items())})"


def first_char(literal: str) -> str:
    """Return the character that the literal of a first sign matches in text."""
    return chr(_number(literal)) if literal.startswith(_NUMBERED) else literal[-1]


def first_byte(literal: str) -> bytes:
    """Return the first byte that the literal of a first sign matches. A numbered one names a byte, not a sign."""
    return bytes([_number(literal)]) if literal.startswith(_NUMBERED) else literal[-1].encode()[:1]


def _split(way: str) -> tuple[str, str]:
    """Take the literal of the first sign off an expression."""
    size = 4 if way.startswith(_NUMBERED) else 2 if way.startswith("\\") else 1
    return way[:size], way[size:]


def _number(literal: str) -> int:
    return int(literal.removeprefix(_NUMBERED), base=16)
