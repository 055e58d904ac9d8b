"""The tokenizer: splits a text into tokens, each with its place in the text. It does not interpret them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

from noonbell.errors import LanguageError

Kind = Literal["instant", "date", "clock", "past", "ordinal", "decimal", "number", "zone", "word", "mark", "end"]

LONGEST_TEXT: Final = 400
_LONGEST_NUMBER: Final = 10

_PATTERN: Final = re.compile(
    r"""
      (?P<blank>\s+)
    | (?P<instant>[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt][0-9]{2}:[0-9]{2}(?::[0-9]{2})?(?:[Zz]|[+-][0-9]{2}:?[0-9]{2})?)
    | (?P<date>[0-9]{4}-[0-9]{2}-[0-9]{2})
    | (?P<clock>[0-9]+:[0-9]+(?::[0-9]+)?)
    | (?P<past>:[0-9]+)
    | (?P<ordinal>[0-9]+(?:st|nd|rd|th)\b)
    | (?P<decimal>[0-9]+\.[0-9]+)
    | (?P<number>[0-9]+)
    | (?P<zone>[A-Za-z]+(?:/[A-Za-z0-9_+-]+)+)
    | (?P<half>[ap]\.m\b\.?)
    | (?P<word>[^\W\d_]+(?:['\N{RIGHT SINGLE QUOTATION MARK}][^\W\d_]+)*)
    | (?P<mark>[-\N{EN DASH}\N{EM DASH},;()&.+/])
    """,
    re.VERBOSE | re.IGNORECASE,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Token:
    """A piece of the text; `low` is what it is compared by. The end of the text is a token of its own."""

    kind: Kind
    text: str
    start: int
    end: int

    @property
    def low(self) -> str:
        return self.text.lower().replace("\N{RIGHT SINGLE QUOTATION MARK}", "'")

    @property
    def value(self) -> int:
        """The number of a number, an ordinal or ':15'."""
        return int(re.sub(r"[^0-9]", "", self.text))


def tokens(text: str) -> list[Token]:
    """The tokens of a text, the end included."""
    if len(text) > LONGEST_TEXT:
        reason = f"the text is longer than {LONGEST_TEXT} characters"
        raise LanguageError(text, LONGEST_TEXT, len(text), reason, ("a short phrase",))
    found: list[Token] = []
    at = 0
    while at < len(text):
        match = _PATTERN.match(text, at)
        if match is None:
            raise LanguageError(text, at, at + 1, "no schedule in English has this character", ("words and numbers",))
        kind = str(match.lastgroup)
        if kind != "blank":
            found.append(_token(text, kind, match))
        at = match.end()
    found.append(Token("end", "", len(text), len(text)))
    return found


def _token(text: str, kind: str, match: re.Match[str]) -> Token:
    if kind == "number" and len(match[0]) > _LONGEST_NUMBER:
        raise LanguageError(text, *match.span(), "this number is too large", ("a number of at most 10 digits",))
    if kind == "half":
        kind = "word"
    return Token(kind, match[0], *match.span())  # type: ignore[arg-type]  # the groups are named after the kinds
