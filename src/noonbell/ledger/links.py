"""Checks of the links in the history of a schedule: pruned days, the names of the runs that ended before, attempts.

Pruned days. A day that begins at the occurrence after the last of the day before is joined to it, so that years of
pruned days cost no more memory than one. Where a run stayed between two of them, they are kept apart.

Ended runs. A schedule names the run that ended last, each run the one that ended before it, and the first one names
none. So of n kept runs there are n + 1 names, and each run is named once: the names less the runs leave nothing, or the
one pruned run that the oldest kept one names. A sum shows that, in any order and without keeping the runs. Two mistakes
that cancel each other out to the microsecond are not seen.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping
from copy import copy
from typing import Any, Final

from noonbell.core.records import PrunedDay
from noonbell.ledger.ledger_rows import EARLIEST, LATEST, is_instant, iso, rows
from noonbell.ledger.recurrence import EveryN, Recurrence
from noonbell.ports import Ledger

DAY: Final = 86_400_000_000


class PrunedPart:
    """Neighbouring pruned days of one epoch; `kept` counts the occurrences in them that were not pruned."""

    __slots__ = ("day", "epoch", "first_at", "kept", "kept_to", "last_day", "last_for", "last_started_at", "n", "to_at")

    def __init__(self, row: Mapping[str, Any]) -> None:
        self.epoch: int = row["epoch"]
        self.day: int = row["day"]
        self.last_day: int = row["day"]
        self.first_at: int = row["first_at"]
        self.to_at: int = row["to_at"]
        self.n: int = row["fired"] + row["passed"]
        self.last_for: int | None = row["last_for"]
        self.last_started_at: int | None = row["last_started_at"]
        self.kept = 0
        self.kept_to = self.first_at - 1

    def __str__(self) -> str:
        first, last = iso(self.day)[:10], iso(self.last_day)[:10]
        return f"the pruned day {first}" if first == last else f"the pruned days {first} to {last}"

    def wrong(self) -> str | None:
        """Return what is wrong with a single day, None if nothing is."""
        if self.day % DAY or not self.day <= self.to_at < self.day + DAY:
            return f"is said to end at {iso(self.to_at)}"
        if self.last_for is not None and not self.day <= self.last_for <= self.to_at:
            return f"has its last run at {iso(self.last_for)}"
        if self.n < 1 or self.first_at > self.to_at:
            return f"counts {self.n} occurrences from {iso(self.first_at)} on"
        return None

    def join(self, later: PrunedPart) -> None:
        self.last_day, self.to_at, self.n = later.last_day, later.to_at, self.n + later.n
        if later.last_for is not None:
            self.last_for, self.last_started_at = later.last_for, later.last_started_at


class PrunedParts:
    """The pruned parts of a schedule, in order."""

    __slots__ = ("_next", "_parts", "next_at")

    def __init__(self) -> None:
        self._parts: list[PrunedPart] = []
        self._next = 0
        self.next_at = LATEST + 1  # the first occurrence of the next part

    def add(self, part: PrunedPart, recurrence: Recurrence) -> None:
        last = self._parts[-1] if self._parts else None
        if last is not None and last.epoch == part.epoch and _after(last, recurrence) == part.first_at:
            last.join(part)
        else:
            self._parts.append(part)
        self.next_at = self._parts[0].first_at

    def take(self) -> PrunedPart:
        part = self._parts[self._next]
        self._next += 1
        self.next_at = self._parts[self._next].first_at if self._next < len(self._parts) else LATEST + 1
        return part


def pruned_part(row: Mapping[str, Any]) -> PrunedPart | None:
    """Return the part of a stored row; None if its numbers cannot be."""
    last = (row["last_for"], row["last_started_at"])
    numbers = (row["epoch"], row["fired"], row["passed"])
    if not all(is_instant(row[column]) for column in ("day", "first_at", "to_at")):
        return None
    if any(type(number) is not int or number < 0 for number in numbers):
        return None
    fits = (row["fired"] > 0) == (last[0] is not None)
    if not fits or not all(at is None or is_instant(at) for at in last) or (last[0] is None) != (last[1] is None):
        return None
    return PrunedPart(row)


def _after(part: PrunedPart, recurrence: Recurrence) -> int | None:
    if isinstance(recurrence, EveryN):
        recurrence = copy(recurrence)  # a copy: the audit itself has not come so far yet
        recurrence.goes_through(part.to_at, part.last_started_at)
    return recurrence.after(part.to_at)


async def pruned_day(store: Ledger, sid: int, at: int) -> PrunedDay | None:
    """Return what is kept of the pruned day that an occurrence lies in, if there is one."""
    async for page in rows(store, "pruned", above_sid=sid - 1, upto_sid=sid):
        for row in page:
            kept = PrunedDay(*row)
            if is_instant(kept.first_at) and is_instant(kept.to_at) and kept.first_at <= at <= kept.to_at:
                return kept
    return None


class RunChain:
    """The ended runs of one schedule, added in any order."""

    __slots__ = ("_ends", "_kept", "_rest", "_row")

    def __init__(self, row: Mapping[str, Any]) -> None:
        self._row = row
        self._rest = 0
        self._ends = 0
        self._kept = 0
        self._name(row["last_ended_for"], row["last_ended_manual"])

    def add(self, run_for: int, kind: str, prev_for: object, prev_manual: object) -> None:
        """Add a kept run, and the run that it names."""
        self._kept += 1
        self._rest -= 2 * run_for + (kind == "manual")
        self._name(prev_for, prev_manual)

    def _name(self, run_for: object, manual: object) -> None:
        if type(run_for) is int and manual in (0, 1):
            self._rest += 2 * run_for + (manual == 1)
        elif run_for is None:
            self._ends += 1
        else:
            self._ends = -1 << 62  # damage: no sum is right from here on

    def wrong(self) -> str | None:
        """Return what is wrong, once all runs are added; None if nothing is."""
        ended, succeeded = self._row["ended_runs"], self._row["succeeded_runs"]
        if type(ended) is not int or type(succeeded) is not int or not 0 <= succeeded <= ended:
            return f"it counts {ended!r} ended runs, {succeeded!r} of them successful, which cannot be"
        if self._kept > ended:
            return f"it counts {ended} ended runs, but {self._kept} are there"
        if self._rest == 0 and self._ends == 1:
            return None
        if self._kept < ended and self._ends == 0 and is_instant(self._rest >> 1):
            return None  # the older ones are pruned
        last = self._row["last_ended_for"]
        shown = iso(last) if is_instant(last) else repr(last)
        return f"its history is broken: of {self._kept} ended runs back from {shown} some are not reached"


class AttemptedRuns:
    """The runs with recorded attempts, in order: one whole number each."""

    __slots__ = ("_known", "_met")

    def __init__(self) -> None:
        self._known = array("q")
        self._met = 0

    def add(self, run_for: int) -> None:
        if not self._known or self._known[-1] != run_for:
            self._known.append(run_for)

    def meet(self, run_for: int) -> Iterator[int]:
        """Pass a run; yields the attempted runs before it that were not passed."""
        while self._met < len(self._known) and self._known[self._met] <= run_for:
            self._met += 1
            if self._known[self._met - 1] != run_for:
                yield self._known[self._met - 1]


class EndOrder:
    """The ends of one schedule whose runs end in the order of their occurrences, as those of a task do.

    A run begins when the one before has ended, in the same or an earlier transaction. A run that ended after a later
    one, or is live beside an ended later one, was executing beside it. No clock is asked.
    """

    __slots__ = ("_late", "_live_for")

    def __init__(self) -> None:
        self._live_for: int | None = None  # the last live run that was reported: once is enough
        self._late: dict[int, tuple[int, int]] = {}  # the earlier run and its epoch, by the one that ended before it

    def meet(self, run_for: int, epoch: int, prev_for: object, live: tuple[int, str, object, object] | None) -> str:
        """Take an ended run, in the order of time, with the last live run so far; returns what is wrong with it."""
        if is_instant(prev_for) and prev_for > run_for:
            self._late[prev_for] = (run_for, epoch)
        earlier, its_epoch = self._late.pop(run_for, (None, None))
        if earlier is not None and its_epoch == epoch:
            return f"the run for {iso(run_for)} ended before the one for {iso(earlier)}, though none may overlap"
        if live is not None and live[0] < run_for and live[0] != self._live_for and live[2] == epoch:
            self._live_for = live[0]
            return f"the run for {iso(run_for)} has ended, and the one for {iso(live[0])} is {live[1]}"
        return ""


class LatestEnds:
    """The latest end of the runs of one schedule, by a clock that may be set back between two of them.

    Where a run ended after another by the order of commits and long before it by the clock, the clock was set back, or
    the end was recorded long after it came. From there on the runs that follow it in that order are compared with its
    end; all others are compared with the latest end of all, until the clock has passed that.
    """

    __slots__ = ("_ended", "_for", "_latest", "_tip")

    def __init__(self) -> None:
        self._latest = EARLIEST  # of all
        self._ended = EARLIEST  # since the clock was set back
        self._for: int | None = None  # the run that ended then
        self._tip: int | None = None  # since the clock was set back: the last run in the order of commits

    def latest(self, prev_for: object) -> int:
        """Return the end that a run must not begin before, by the run that ended before it."""
        return self._ended if self._tip is None or prev_for == self._tip else self._latest

    def meet(self, run_for: int, ended: int, prev_for: object, tolerance: int) -> bool:
        """Take an ended run, in the order of time; returns whether the clock seems to be set back before its end."""
        set_back = self._for is not None and prev_for == self._for and ended < self._ended - tolerance
        if set_back:
            self._ended, self._for, self._tip = ended, run_for, run_for
            return True
        if prev_for is not None and prev_for == self._tip:
            self._tip = run_for
        if self._tip in (None, run_for) and ended >= self._ended:
            self._ended, self._for = ended, run_for
        self._latest = max(self._latest, ended)
        if self._ended >= self._latest:
            self._tip = None
        return False
