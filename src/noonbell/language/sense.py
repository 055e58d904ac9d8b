"""The state that the parts of the meaning share: the phrase, the present moment, and the remarks made on the way.

Here a plain 5 becomes 05:00 or 17:00, or is refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from datetime import datetime, tzinfo
from typing import Final

from noonbell.errors import LanguageError
from noonbell.language.cursor import Cursor
from noonbell.language.phrase import Clock, Phrase, Place, Window
from noonbell.language.words import DayPart

# the hours that a part of the day can mean
_PARTS: Final[dict[DayPart, frozenset[int]]] = {
    "morning": frozenset(range(1, 12)),
    "afternoon": frozenset(range(12, 19)),
    "evening": frozenset(range(16, 24)),
    "night": frozenset({20, 21, 22, 23, 0, 1, 2, 3, 4, 5}),
}
_TWO_DIGITS: Final = re.compile(r"[0-9]{2}:")


@dataclass(slots=True)
class Sense:
    """A phrase on its way to a meaning. `now` is in `zone`."""

    cursor: Cursor
    phrase: Phrase
    now: datetime
    zone: tzinfo
    notes: list[str] = field(default_factory=list)

    def refusal(
        self, reason: str, place: Place, accepted: tuple[str, ...] = (), suggestions: tuple[str, ...] = ()
    ) -> LanguageError:
        return self.cursor.refusal(reason, place, accepted, suggestions)

    def instead(self, place: Place, *words: str) -> tuple[str, ...]:
        """Return the text with each of these words in the given place."""
        return tuple(self.cursor.replaced(place, word) for word in words)

    def said(self, place: Place) -> str:
        return self.phrase.text[place.start : place.end]

    @property
    def whole(self) -> Place:
        return Place(0, len(self.phrase.text))


def settle_clocks(sense: Sense) -> None:
    """Give every time of the phrase its hour; after this nothing is plain."""
    phrase = sense.phrase
    phrase.times = _settled(sense, phrase.times)
    if phrase.window is not None:
        _refuse_nine_to_five(sense, phrase.window)
        first, last = _settled(sense, [phrase.window.first, phrase.window.last])
        phrase.window = replace(phrase.window, first=first, last=last)
    if phrase.anchor is not None:
        (phrase.anchor,) = _settled(sense, [phrase.anchor])


def _settled(sense: Sense, clocks: list[Clock]) -> list[Clock]:
    if sense.phrase.day_part is not None:
        return [_in_part(sense, clock, *sense.phrase.day_part) for clock in clocks]
    phrase = sense.phrase
    for clock in clocks:
        dated = phrase.weekdays or phrase.days or phrase.dates or phrase.moment
        if dated and clock.hour == 0 and sense.said(clock.place).lower() == "midnight":
            sense.notes.append("midnight is 00:00, where the day begins")
        if clock.half is not None and clock.hour % 12 == 0:
            sense.notes.append(
                f'"{sense.said(clock.place)}" is {_hhmm(clock)}, {"after noon" if clock.hour else "after midnight"}'
            )
    plain = [clock for clock in clocks if clock.plain]
    if plain and any(clock.half is not None for clock in clocks):
        clock = plain[0]
        said = sense.said(clock.place)
        reason = f"beside a time with am or pm, {said} could be either"
        raise sense.refusal(reason, clock.place, ("am", "pm"), sense.instead(clock.place, f"{said}am", f"{said}pm"))
    if not any(clock.hour > 12 and clock.half is None for clock in clocks):
        for clock in plain:
            _note_plain(sense, clock)
    return [replace(clock, plain=False) for clock in clocks]


def _note_plain(sense: Sense, clock: Clock) -> None:
    said = sense.said(clock.place)
    if _TWO_DIGITS.match(said):
        return  # 10:30 is how the 24-hour clock writes it
    if clock.hour == 12:
        sense.notes.append(f'"{said}" is read on the 24-hour clock: {_hhmm(clock)}, at noon')
    else:
        other = replace(clock, hour=clock.hour + 12)
        sense.notes.append(
            f'"{said}" is read on the 24-hour clock: {_hhmm(clock)}; for {_hhmm(other)} say {twelve(other)}'
        )


def _refuse_nine_to_five(sense: Sense, window: Window) -> None:
    """Plain hours that run backwards: 9 to 5 is most likely the afternoon, and 10 to 4 may be the night."""
    first, last = window.first, window.last
    if not (first.plain and last.plain) or sense.phrase.day_part is not None:
        return
    if (first.hour, first.minute) < (last.hour, last.minute):
        return
    end = replace(last, hour=last.hour % 12 + 12)
    joined = sense.phrase.text[first.place.end : last.place.start]
    words = (
        f"{twelve(first)}{joined}{twelve(end)}",
        f"{twelve(replace(first, hour=first.hour % 12 + 12))}{joined}{twelve(last)}",
    )
    reason = "the stretch ends before it begins; say which half of the day is meant"
    raise sense.refusal(reason, window.place, words, sense.instead(window.place, *words))


def _in_part(sense: Sense, clock: Clock, part: DayPart, place: Place) -> Clock:
    hours = _PARTS[part]
    phrase = sense.phrase
    if (
        part == "night"
        and (phrase.weekdays or phrase.days or phrase.dates)
        and clock.hour % 12 < 6
        and not _evening(clock)
    ):
        reason = "after midnight the night belongs to the next day for some; say the time without it"
        raise sense.refusal(reason, place, ("a day and a time",), sense.instead(place, ""))
    candidates = {clock.hour % 12, clock.hour % 12 + 12} & hours if clock.plain else {clock.hour} & hours
    if len(candidates) != 1:
        said = sense.said(clock.place)
        if clock.plain:
            reason = f"{said} is not clear for the {part}"
            suggestions = sense.instead(clock.place, twelve(clock), twelve(replace(clock, hour=clock.hour % 12 + 12)))
        else:
            reason = f"{said} is not in the {part}"
            suggestions = sense.instead(place, "day")
        raise sense.refusal(reason, clock.place, (f"a time in the {part}",), suggestions)
    return replace(clock, hour=candidates.pop(), plain=False)


def _evening(clock: Clock) -> bool:
    return not clock.plain and clock.hour >= 12


def _hhmm(clock: Clock) -> str:
    return f"{clock.hour:02}:{clock.minute:02}"


def twelve(clock: Clock) -> str:
    """A time with am or pm."""
    minutes = f":{clock.minute:02}" if clock.minute else ""
    return f"{(clock.hour - 1) % 12 + 1}{minutes}{'am' if clock.hour < 12 else 'pm'}"
