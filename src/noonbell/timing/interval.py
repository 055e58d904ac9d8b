"""The interval kind: every N seconds, counted from an anchor.

The anchor is the start of the last scheduled run, or the schedule's beginning; it is not an occurrence itself. Elapsed
time is what counts, so clock changes and zones do not matter. The text of an interval is a whole number of seconds and
nothing else; what people type elsewhere ("5m", "PT1H") is refused with the number of seconds that it means.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from noonbell.errors import IntervalInvalidError
from noonbell.timing.timing_protocol import LATEST, Look

# A century: a longer interval was most likely written in another unit than seconds.
LONGEST_INTERVAL_SECONDS: Final = 36_525 * 86_400

_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_WORDS: Final = "s|sec|secs|seconds?|m|min|mins|minutes?|h|hrs?|hours?|d|days?|w|weeks?"
_WITH_UNITS: Final = re.compile(rf"(?:[0-9]{{1,9}}\s*(?:{_WORDS})\s*)+", re.IGNORECASE)
_PART: Final = re.compile(r"([0-9]+)\s*([a-z])", re.IGNORECASE)
_DURATION: Final = re.compile(r"P(?:([0-9]{1,9})D)?(?:T(?:([0-9]{1,9})H)?(?:([0-9]{1,9})M)?(?:([0-9]{1,9})S)?)?")


@dataclass(frozen=True, slots=True)
class IntervalTiming:
    """Occurrences at anchor + every, anchor + 2 * every, and so on to the end of the calendar."""

    anchor_us: int
    every_us: int

    def __post_init__(self) -> None:
        if self.every_us < 1:
            raise ValueError(f"every_us is {self.every_us}; an interval is at least one microsecond")

    def latest(self, at: int) -> int | None:
        """The latest occurrence at or before `at`."""
        passed = self._passed(at)
        return self.anchor_us + passed * self.every_us if passed else None

    def following(self, after: int) -> int | None:
        """The first occurrence after `after`."""
        found = self.anchor_us + (max(0, (after - self.anchor_us) // self.every_us) + 1) * self.every_us
        return found if found <= LATEST else None

    def count(self, after: int, upto: int) -> int:
        """Return how many occurrences lie after `after`, up to and including `upto`."""
        return max(0, self._passed(upto) - self._passed(after))

    def look(self, at: int) -> Look:
        """Latest, the one before it, and following, seen from `at`."""
        latest = self.latest(at)
        before = None if latest is None or latest - self.every_us == self.anchor_us else latest - self.every_us
        return Look(latest, before, self.following(at))

    def _passed(self, at: int) -> int:
        """Return how many occurrences lie at or before `at`."""
        return max(0, (min(at, LATEST) - self.anchor_us) // self.every_us)


def parse_interval(text: str) -> int:
    """The seconds of an interval's text, such as "30"; raises IntervalInvalidError."""
    if not isinstance(text, str):
        raise IntervalInvalidError(repr(text), f"must be text, not {type(text).__name__}")
    digits = text.strip(" \t")
    # isdigit alone would let other scripts' digits through, and int() would read them
    if not (digits.isdigit() and digits.isascii()):
        raise _not_a_number(text, digits)
    digits = digits.lstrip("0")
    if not digits:
        raise IntervalInvalidError(text, "must be at least 1 second")
    if len(digits) > len(str(LONGEST_INTERVAL_SECONDS)) or int(digits) > LONGEST_INTERVAL_SECONDS:
        raise IntervalInvalidError(text, f"is longer than a century ({LONGEST_INTERVAL_SECONDS} seconds)")
    return int(digits)


def _not_a_number(text: str, typed: str) -> IntervalInvalidError:
    if not typed:
        return IntervalInvalidError(text, "is empty; a whole number of seconds is needed")
    if re.fullmatch(r"-[0-9]+", typed):
        return IntervalInvalidError(text, "must be at least 1 second")
    if re.fullmatch(r"[0-9]*[.,][0-9]+", typed):
        return IntervalInvalidError(text, "must be a whole number of seconds")
    seconds = _seconds_meant(typed)
    if seconds is None:
        return IntervalInvalidError(text, 'must be a whole number of seconds, such as "30"')
    suggestion = str(seconds) if 1 <= seconds <= LONGEST_INTERVAL_SECONDS else None
    return IntervalInvalidError(text, "has a unit; write the number of seconds alone", suggestion)


def _seconds_meant(typed: str) -> int | None:
    """The seconds of an interval with units, where it can be read."""
    if _WITH_UNITS.fullmatch(typed):
        return sum(int(number) * _UNITS[unit.lower()] for number, unit in _PART.findall(typed))
    duration = _DURATION.fullmatch(typed.upper())
    if duration is None or not any(duration.groups()):
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in duration.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds
