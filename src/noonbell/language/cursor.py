"""A place in the tokens, what can be read there, and how a refusal is made."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Final

from noonbell.errors import LanguageError
from noonbell.language.phrase import Place
from noonbell.language.tokens import Token, tokens
from noonbell.language.words import BEYOND, KNOWN, NUMBERS, ORDINALS, TENS

DASHES: Final = ("-", "\N{EN DASH}", "\N{EM DASH}")
TO: Final = ("to", "through", "thru", *DASHES)
_NEAR: Final = 0.72
_NEAR_SHORT: Final = 0.66  # one letter of three is a larger part
_SUFFIXES: Final = {1: "st", 2: "nd", 3: "rd"}


class Cursor:
    """Walks the tokens of a text once, from left to right."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._tokens = tokens(text)
        self.at = 0

    # --- looking and taking -------------------------------------------------------------------------------------------

    def peek(self, ahead: int = 0) -> Token:
        return self._tokens[min(self.at + ahead, len(self._tokens) - 1)]

    def sees(self, *words: str, ahead: int = 0) -> bool:
        """Return whether one of the words comes next."""
        token = self.peek(ahead)
        return token.kind in ("word", "mark") and token.low in words

    def sees_in_row(self, *words: str) -> bool:
        return all(self.sees(word, ahead=ahead) for ahead, word in enumerate(words))

    def ended(self) -> bool:
        return self.peek().kind == "end"

    def next(self) -> Token:
        token = self.peek()
        self.at = min(self.at + 1, len(self._tokens) - 1)
        return token

    def take(self, *words: str) -> Token | None:
        return self.next() if self.sees(*words) else None

    def place(self, ahead: int = 0) -> Place:
        token = self.peek(ahead)
        return Place(token.start, token.end)

    def since(self, first: Place) -> Place:
        """Return the place from `first` to the token that was taken last."""
        return Place(first.start, max(first.end, self._tokens[self.at - 1].end if self.at else 0))

    # --- numbers ------------------------------------------------------------------------------------------------------

    def number(self) -> int | None:
        """A whole number in digits or words; None (and nothing taken) where there is none."""
        token = self.peek()
        if token.kind == "number":
            return self.next().value
        if token.kind != "word" or token.low not in NUMBERS:
            return None
        value = NUMBERS[self.next().low]
        ahead = 1 if self.sees(*DASHES) else 0
        following = self.peek(ahead)
        if token.low in TENS and following.kind == "word" and 1 <= NUMBERS.get(following.low, 0) <= 9:
            self.at += ahead + 1
            value += NUMBERS[following.low]
        return value

    def ordinal_ahead(self) -> tuple[int, int] | None:
        """An ordinal in digits or words, and how many tokens it takes."""
        token = self.peek()
        if token.kind == "ordinal":
            right = "th" if token.value % 100 in (11, 12, 13) else _SUFFIXES.get(token.value % 10, "th")
            if token.low[-2:] != right:
                said = f"{token.value}{right}"
                raise self.refusal(
                    f"it is written {said}", self.place(), suggestions=(self.replaced(self.place(), said),)
                )
            return token.value, 1
        if token.kind != "word":
            return None
        if token.low in ORDINALS:
            return ORDINALS[token.low], 1
        ahead = 2 if self.sees(*DASHES, ahead=1) else 1
        following = self.peek(ahead)
        if token.low in TENS and following.kind == "word" and 1 <= ORDINALS.get(following.low, 0) <= 9:
            return TENS[token.low] + ORDINALS[following.low], ahead + 1
        return None

    # --- refusing -----------------------------------------------------------------------------------------------------

    def replaced(self, place: Place, words: str) -> str:
        """The text with other words at a place; without them where `words` is empty."""
        before, after = self.text[: place.start], self.text[place.end :]
        return f"{before}{words}{after}" if words else f"{before.rstrip()} {after.lstrip()}".strip()

    def widened(self, place: Place) -> Place:
        """Return the place with the 'every', 'on' and 'the' in front of it."""
        before = self.text[: place.start]
        while (words := before.split()) and words[-1].lower() in ("every", "each", "any", "on", "the"):
            before = before.rstrip()[: -len(words[-1])]
        return Place(len(before), place.end)

    def refusal(
        self, reason: str, place: Place, accepted: tuple[str, ...] = (), suggestions: tuple[str, ...] = ()
    ) -> LanguageError:
        """Return the error. The suggestions are candidates: `reading` keeps those that are understood."""
        return LanguageError(self.text, place.start, place.end, reason, accepted, suggestions)

    def unexpected(self, wanted: str, *accepted: str) -> LanguageError:
        """Return the error for an unexpected word here; `wanted` says what was expected."""
        token, place = self.peek(), self.place()
        if token.kind == "end":
            completed = tuple(f"{self.text.rstrip()} {words}" for words in accepted if "…" not in words)
            return self.refusal(f"something is missing: {wanted}", place, accepted, completed)
        if token.kind == "word" and token.low in BEYOND:
            return self.refusal(BEYOND[token.low], place, accepted)
        if token.kind != "word" or token.low in KNOWN:
            return self.refusal(f"expected {wanted}", place, accepted, (self.replaced(place, ""),))
        candidates = [self.replaced(place, word) for word in _near(token.low) or [""]]
        return self.refusal(f"this word is not known; expected {wanted}", place, accepted, tuple(candidates))


def _near(word: str) -> list[str]:
    """Known words that look like this one: first those with the same letters in another order."""
    swapped = sorted(known for known in KNOWN if len(known) == len(word) and sorted(known) == sorted(word))
    cutoff = _NEAR if len(word) > 4 else _NEAR_SHORT
    close = get_close_matches(word, sorted(KNOWN), n=3, cutoff=cutoff)
    return list(dict.fromkeys([*swapped, *close]))[:3]
