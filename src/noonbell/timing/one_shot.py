"""The one-shot kind: a single instant, written in ISO 8601.

A text with an offset ("2026-11-01T01:30-04:00", "2026-11-01T05:30Z") names its instant by itself. Without one it is
civil time in the schedule's zone. A civil time that comes twice, because the clocks are set back, means its first
coming; one that does not exist, because they are set forward, is refused with the times on either side of the gap.
A date alone is refused too: midnight would be a guess.

A stored text was right when it was written. Where later rules of its zone leap over it, it means that leap.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final

from noonbell.cron import Zone, zone_of
from noonbell.errors import OneShotInvalidError
from noonbell.timing.civil_time import civil_seconds, comings, leap_over, wall_at
from noonbell.timing.timing_protocol import EARLIEST, LATEST, SECOND, Look

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_DATE_ONLY: Final = re.compile(r"[0-9]{4}-?(?:[0-9]{2}-?[0-9]{2}|[0-9]{2}|[0-9]{3}|W[0-9]{2}(?:-?[0-9])?)")
_FORM: Final = "such as 2026-11-01T01:30 (in the schedule's zone) or 2026-11-01T01:30-04:00"
_LONGEST_TEXT: Final = 64


@dataclass(frozen=True, slots=True)
class OneShotTiming:
    """One occurrence."""

    at_us: int

    def latest(self, at: int) -> int | None:
        """The occurrence, if it lies at or before `at`."""
        return self.at_us if self.at_us <= at else None

    def following(self, after: int) -> int | None:
        """The occurrence, if it lies after `after`."""
        return self.at_us if self.at_us > after else None

    def count(self, after: int, upto: int) -> int:
        """1 if the occurrence lies after `after`, up to and including `upto`; else 0."""
        return int(after < self.at_us <= upto)

    def look(self, at: int) -> Look:
        """Latest and following, seen from `at`; nothing comes before the only one."""
        return Look(self.latest(at), None, self.following(at))


def parse_one_shot(text: str, zone: tzinfo, *, stored: bool = False) -> int:
    """The instant that a text names, in microseconds since 1970; raises OneShotInvalidError.

    With `stored` a civil time that does not exist is the instant at which the clocks leap over it.
    """
    if not isinstance(text, str):
        raise OneShotInvalidError(repr(text), f"must be text, not {type(text).__name__}")
    typed = text.strip(" \t").upper()
    _refuse_other_forms(text, typed)
    try:
        read = datetime.fromisoformat(typed)
    except ValueError as error:
        raise OneShotInvalidError(text, f"is not an ISO 8601 date and time, {_FORM}: {error}") from error
    if read.tzinfo is not None:
        at = (read - _EPOCH) // timedelta(microseconds=1)
    else:
        at = _first_coming(text, read, zone_of(zone), stored=stored)
    if not EARLIEST <= at <= LATEST:
        raise OneShotInvalidError(text, "lies outside the years 1 to 9999 in UTC")
    return at


def _refuse_other_forms(text: str, typed: str) -> None:
    """Refuse what `fromisoformat` would read loosely, or refuse without a reason."""
    if not typed:
        raise OneShotInvalidError(text, f"is empty; an ISO 8601 date and time is needed, {_FORM}")
    if len(typed) > _LONGEST_TEXT or not typed.isascii() or not typed.isprintable():  # it reads past a NUL
        raise OneShotInvalidError(text, f"is not an ISO 8601 date and time, {_FORM}")
    if _DATE_ONLY.fullmatch(typed):
        raise OneShotInvalidError(text, f"has a date and no time; write both, {_FORM}")
    if "[" in typed:
        raise OneShotInvalidError(text, "has a zone in brackets; the zone is a field of the schedule")
    if not re.match(r"[0-9W-]+[T ][0-9]", typed):
        raise OneShotInvalidError(text, f"is not an ISO 8601 date and time, {_FORM}")
    if re.match(r"[0-9W-]+[T ]24", typed):  # Python 3.14 reads it as the next day's midnight, older ones refuse it
        raise OneShotInvalidError(text, f"is not an ISO 8601 date and time, {_FORM}: hour must be in 0..23")
    if re.search(r"[.,][0-9]{7}", typed):
        raise OneShotInvalidError(text, "is finer than a microsecond")


def _first_coming(text: str, wall: datetime, zone: Zone, *, stored: bool) -> int:
    civil = civil_seconds(wall)
    found = comings(civil, zone)
    if found:
        return found[0] * SECOND + wall.microsecond
    leap = leap_over(civil, zone)
    if not EARLIEST < leap * SECOND < LATEST:
        raise OneShotInvalidError(text, "lies outside the years 1 to 9999 in UTC")
    if stored:
        return leap * SECOND
    # the last second before the leap and the first after it: the minute before is what people would write
    gap_from = wall_at(leap + zone.offset(leap - 1))
    resumed = wall_at(leap + zone.offset(leap))
    before = gap_from - timedelta(minutes=1)
    raise OneShotInvalidError(
        text,
        f"does not exist in {zone.tzinfo}: the clocks go from {_shown(gap_from)} to {_shown(resumed)}; "
        f"the nearest times are {_shown(before)} and {_shown(resumed)}",
        (_shown(before), _shown(resumed)),
    )


def _shown(wall: datetime) -> str:
    return wall.isoformat(timespec="seconds" if wall.second else "minutes")
