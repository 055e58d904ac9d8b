"""The questions that every kind of schedule answers, whatever it is made of.

An instant is a whole number of microseconds since 1970 (UTC), within the years 1 to 9999. A timing is a set of
instants, the occurrences, and answers by arithmetic: no question costs more for a year than for an hour. It reads no
clock and changes nothing; None says that no occurrence fits.
"""

from __future__ import annotations

from typing import Final, NamedTuple, Protocol

from noonbell.cron.zones import FIRST_INSTANT, LAST_INSTANT

SECOND: Final = 1_000_000
EARLIEST: Final = FIRST_INSTANT * SECOND
LATEST: Final = LAST_INSTANT * SECOND + SECOND - 1


class Look(NamedTuple):
    """The answers of a timing at an instant; None where the calendar has nothing more."""

    latest: int | None  # the latest occurrence at or before it
    before: int | None  # the one before that
    following: int | None  # the first one after it


class Timing(Protocol):
    """The occurrences of one schedule."""

    def latest(self, at: int) -> int | None:
        """The latest occurrence at or before `at`."""

    def following(self, after: int) -> int | None:
        """The first occurrence after `after`."""

    def count(self, after: int, upto: int) -> int:
        """Return how many occurrences lie after `after`, up to and including `upto`."""

    def look(self, at: int) -> Look:
        """Latest, the one before it, and following, seen from `at`."""
