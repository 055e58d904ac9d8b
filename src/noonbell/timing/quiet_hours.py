"""Quiet hours: when a schedule is to be silent, as stretches of time.

A policy is a set of windows, each on its own clock (`quiet_window` defines what a window means on a day with a clock
change). Windows that overlap or touch make one stretch. Instants are microseconds since 1970, a stretch is half open:
at its `to` it is not quiet any more.

`split` cuts a schedule's occurrences at the edges of the stretches. It counts; it never visits an occurrence for its
own sake, so its cost is that of the edges passed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from heapq import merge
from typing import Any, Final, NamedTuple

from noonbell.cron.zones import DAY
from noonbell.timing.quiet_document import read_windows, written_windows
from noonbell.timing.quiet_window import Window
from noonbell.timing.timing_protocol import EARLIEST, LATEST, SECOND, Timing

# Where windows touch without end, the search for one stops this long after the last date that they name: weekdays,
# dates and the rules of summer time have met in every way by then.
_ENDLESS_SECONDS: Final = 30 * 366 * DAY
_LAST_SECOND: Final = LATEST // SECOND


class Phase(NamedTuple):
    """The state at an instant, quiet or not, and until when it lasts."""

    quiet: bool
    until: int


class Stretch(NamedTuple):
    """Neighbouring occurrences that are all quiet, or none of them."""

    quiet: bool
    first: int
    last: int
    n: int


class QuietHours:
    """The windows of one policy. Equal windows make equal policies; without windows it is never quiet."""

    __slots__ = ("_known", "_settled_from", "windows")

    def __init__(self, windows: tuple[Window, ...] | list[Window] = ()) -> None:
        self.windows = tuple(windows)
        named = [day for day in (window.last_named_day() for window in self.windows) if day is not None]
        self._settled_from = max(named, default=0) * DAY
        # The phase found last, since when it is known to hold, and whether its end is the true one: in a burst
        # thousands of schedules ask about the same minute. One tuple, so that threads see all of it or none.
        self._known = (0, Phase(quiet=False, until=0), True)

    def is_quiet(self, at: int) -> bool:
        """Return whether it is quiet at this instant."""
        return self.phase(at, at).quiet

    def quiet_until(self, at: int) -> int | None:
        """Return the end of the quiet time that `at` lies in; None where it is not quiet.

        Quiet without end is over with the calendar: the answer lies beyond the year 9999 then.
        """
        phase = self.phase(at)
        return phase.until if phase.quiet else None

    def phase(self, at: int, upto: int | None = None) -> Phase:
        """Return the phase at `at`, and its end. With `upto`, quiet that lasts longer may be cut anywhere after it."""
        since, known, whole = self._known
        if since <= at < known.until and (whole or (upto is not None and upto < known.until)):
            return known
        second = at // SECOND
        limit = upto // SECOND if upto is not None else max(second, self._settled_from) + _ENDLESS_SECONDS
        quiet, reached, whole = False, second, True
        for begin, end in merge(*(window.spans_after(second) for window in self.windows)):
            if begin > reached:
                reached = reached if quiet else begin
                break
            quiet, reached = True, max(reached, end)
            if reached > limit:
                whole = upto is None
                reached = _LAST_SECOND + 1 if whole else reached
                break
        else:
            reached = reached if quiet else _LAST_SECOND + 1
        found = Phase(quiet, reached * SECOND)
        self._known = (at, found, whole)
        return found

    def stretches(self, after: int, upto: int) -> Iterator[tuple[int, int]]:
        """The quiet stretches [from, to), ascending and as long as can be, cut to what lies after `after` up to `upto`.

        The cut leaves an instant just after `after` as the first that a stretch can hold, and `upto` as the last.
        """
        at, end = max(after + 1, EARLIEST), min(upto, LATEST) + 1
        while at < end:
            phase = self.phase(at, end)
            if phase.quiet:
                yield at, min(phase.until, end)
            at = phase.until

    # --- as a document ------------------------------------------------------------------------------------------------

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> QuietHours:
        """The policy that a plain document describes; raises QuietHoursInvalidError with the path of what is wrong."""
        return cls(read_windows(document))

    def to_json(self) -> dict[str, Any]:
        """The document that `from_json` reads."""
        return written_windows(self.windows)

    def __eq__(self, other: object) -> bool:
        return self.windows == other.windows if isinstance(other, QuietHours) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.windows)

    def __repr__(self) -> str:
        return f"QuietHours({self.windows!r})"


def split(timing: Timing, quiet: QuietHours, after: int, upto: int) -> Iterator[Stretch]:
    """The occurrences after `after`, up to and including `upto`, in stretches that differ from their neighbours."""
    gathered: Stretch | None = None
    first = timing.following(after)
    while first is not None and first <= upto:
        phase = quiet.phase(first, upto)
        last = timing.latest(min(phase.until - 1, upto))
        assert last is not None  # noqa: S101 - `first` itself lies before the end of its phase
        n = timing.count(first - 1, last)
        if gathered is not None and gathered.quiet == phase.quiet:
            gathered = Stretch(phase.quiet, gathered.first, last, gathered.n + n)
        else:
            if gathered is not None:
                yield gathered
            gathered = Stretch(phase.quiet, first, last, n)
        first = timing.following(last)
    if gathered is not None:
        yield gathered
