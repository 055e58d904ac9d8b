"""The difference between two sets of occurrences when one replaces the other: counted, listed, and in words.

Two sets are compared on the clock of one zone. Four weeks ahead are compared fire by fire as far as a few hundred
reach, and by counting throughout. At each clock change within a year the day itself and the weeks after it are
compared too, because that is where a zone, or a policy for clock changes, shows its difference.

Nothing is read or stored here, and a schedule is not known: any two timings will do, so that a change of a zone's rules
is described in the same words as a change of a file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, tzinfo
from itertools import islice, pairwise
from typing import Final, NamedTuple, Protocol

from noonbell.cron import zone_of
from noonbell.planning import plan_text as wording
from noonbell.planning.plan_text import Signature
from noonbell.timing import QuietHours, Timing, split
from noonbell.timing.civil_time import civil_seconds, first_coming
from noonbell.timing.timing_protocol import LATEST, SECOND

WEEKS: Final = 4
_DAYS: Final = 7 * WEEKS
_YEAR_SECONDS: Final = 366 * 86_400
_MOST_LOOKED_AT: Final = 600  # of each set, in one stretch
_MOST_SIGNATURES: Final = 3  # more kinds of day than these are no pattern
_MOST_CHANGES: Final = 4  # clock changes that are described
_MOST_QUIET: Final = 2_000


class Fires(Protocol):
    """Occurrences that can be counted and followed; every Timing is such a thing."""

    def following(self, after: int) -> int | None:
        """The first after `after`."""

    def count(self, after: int, upto: int) -> int:
        """Count those after `after`, up to and including `upto`."""


class FiringWindow:
    """The occurrences of a timing that no quiet hours silence."""

    def __init__(self, timing: Timing, quiet: QuietHours) -> None:
        self._timing = timing
        self._quiet = quiet

    def following(self, after: int) -> int | None:
        """The first after `after`; None where the next few thousand stretches are quiet."""
        at = self._timing.following(after)
        for _ in range(_MOST_QUIET):
            if at is None:
                return None
            phase = self._quiet.phase(at)
            if not phase.quiet:
                return at
            at = self._timing.following(min(phase.until - 1, LATEST))
        return None

    def count(self, after: int, upto: int) -> int:
        """Count those after `after`, up to and including `upto`."""
        return sum(stretch.n for stretch in split(self._timing, self._quiet, after, upto) if not stretch.quiet)


@dataclass(frozen=True, slots=True)
class Moves:
    """The difference. Counts are of the coming four whole weeks, from the next midnight on; instants in microseconds.

    `gone` and `new` are those that were found where the fires were compared one by one, up to `compared_to`.
    """

    before: int
    after: int
    first_before: int | None
    first_after: int | None
    gone: tuple[int, ...]
    new: tuple[int, ...]
    compared_to: int
    same: bool  # no difference was found, at the clock changes of a year neither
    words: tuple[str, ...]


class _Nothing:
    """No occurrences at all."""

    def following(self, after: int) -> None:
        """There is none."""

    def count(self, after: int, upto: int) -> int:  # noqa: ARG002 - the signature is that of Fires
        return 0


def moves(before: Fires | None, after: Fires | None, *, zone: tzinfo, now: int, others: Iterable[tzinfo] = ()) -> Moves:
    """Compare what fired `before` with what will fire `after`; None: nothing does.

    Times are those of the clock of `zone`; `others` are zones whose clock changes matter too, such as the one before.
    """
    comparison = _Comparison(before or _Nothing(), after or _Nothing(), zone, now)
    return comparison.result([zone, *others], begins=before is None, ends=after is None)


class _Day(NamedTuple):
    """The times of day that are gone and those that are new on one civil day."""

    date: date
    signature: Signature
    before: int
    after: int


class _Comparison:
    def __init__(self, before: Fires, after: Fires, zone: tzinfo, now: int) -> None:
        self._before = before
        self._after = after
        self._zone = zone
        self._clock = zone_of(zone)
        self._now = now
        self._today = self._civil(now).date()

    def result(self, zones: list[tzinfo], *, begins: bool, ends: bool) -> Moves:
        first = self._today + timedelta(days=1)
        edges = [self._midnight(first + timedelta(days=number)) for number in range(_DAYS + 1)]
        whole = [upto - since == 86_400 * SECOND for since, upto in pairwise(edges)]
        counts = [
            [fires.count(since - 1, upto - 1) for since, upto in pairwise(edges)]
            for fires in (self._before, self._after)
        ]
        rates = [wording.rate(found, whole) for found in counts]
        first_before, first_after = self._before.following(self._now), self._after.following(self._now)
        gone, new, compared_to = self._differences(self._now, edges[-1] - 1)
        days = self._days(gone, new, self._now, compared_to)
        words: list[str] = []
        if begins:
            words = wording.beginning(rates[1], self._moment(first_after), wording.zone_name(self._zone))
        elif ends:
            words = wording.ending(rates[0], self._moment(first_before), wording.zone_name(self._zone))
        else:
            words += wording.rate_change(rates[0], rates[1])
            groups = self._groups(days)
            words += self._pattern(days, groups, compared_to, counted=bool(words))
            if first_before != first_after:
                words.append(self._next(first_before, first_after))
            firing = [day.date for day in days if day.before or day.after]
            if len(groups) <= _MOST_SIGNATURES and all(
                wording.steady(dates, firing, self._today) for dates in groups.values()
            ):
                words += self._at_clock_changes(zones, frozenset(groups))
        same = not words
        return Moves(
            sum(counts[0]), sum(counts[1]), first_before, first_after, tuple(gone), tuple(new), compared_to, same,
            tuple(words or ["the fires stay the same"]),
        )  # fmt: skip

    # --- the coming weeks -----------------------------------------------------------------------------------------

    def _differences(self, since: int, upto: int) -> tuple[list[int], list[int], int]:
        """Return the fires that only one of them has in (since, upto], and how far the comparison went."""
        old = list(islice(_walk(self._before, since, upto), _MOST_LOOKED_AT))
        new = list(islice(_walk(self._after, since, upto), _MOST_LOOKED_AT))
        reached = upto
        for found in (old, new):
            if len(found) == _MOST_LOOKED_AT:
                reached = min(reached, found[-1])
        if reached < upto:  # a day that was seen in part would look like a difference of its own
            midnight = self._midnight(self._civil(reached).date())
            reached = midnight - 1 if midnight - 1 > since else reached
        kept_old = {at for at in old if at <= reached}
        kept_new = {at for at in new if at <= reached}
        return sorted(kept_old - kept_new), sorted(kept_new - kept_old), reached

    def _days(self, gone: list[int], new: list[int], since: int, upto: int) -> list[_Day]:
        """The civil days of a stretch that was compared, with their differences."""
        found: list[_Day] = []
        by_day: dict[date, tuple[list[str], list[str]]] = {}
        for place, instants in enumerate((gone, new)):
            for at in instants:
                civil = self._civil(at)
                by_day.setdefault(civil.date(), ([], []))[place].append(wording.clock(civil))
        day = self._civil(since + 1).date()
        last = self._civil(upto).date()
        while day <= last:
            low = max(self._midnight(day) - 1, since)
            high = min(self._midnight(day + timedelta(days=1)) - 1, upto)
            times = by_day.get(day, ([], []))
            signature = Signature(tuple(times[0]), tuple(times[1]))
            found.append(_Day(day, signature, self._before.count(low, high), self._after.count(low, high)))
            day += timedelta(days=1)
        return found

    def _groups(self, days: list[_Day]) -> dict[Signature, list[date]]:
        """The dates of each kind of difference."""
        groups: dict[Signature, list[date]] = {}
        for day in days:
            # what is left of today is a kind of its own only where it shows what no whole day does
            if day.signature.differs and (day.date != self._today or not self._covered(day, days)):
                groups.setdefault(day.signature, []).append(day.date)
        return groups

    def _pattern(
        self, days: list[_Day], groups: dict[Signature, list[date]], compared_to: int, *, counted: bool
    ) -> list[str]:
        """Describe the change of the times of day where days are alike; else count the changes, if no rate has them."""
        all_dates = [day.date for day in days]
        if len(groups) <= _MOST_SIGNATURES:
            said = [
                wording.times(sign, self._zone, wording.on_days(dates, all_dates, self._today))
                for sign, dates in groups.items()
            ]
            if all(said):
                return [one for one in said if one]
        lost = [day.date for day in days if day.before and not day.after]
        won = [day.date for day in days if day.after and not day.before]
        words = [
            f"{lead}{wording.on_days(found, all_dates, self._today) or ' of every day'} {tail}"
            for found, lead, tail in ((lost, "the fires", "stay away"), (won, "fires", "come in addition"))
            if found and wording.nameable(found, all_dates, self._today)
        ]
        partly = any(day.signature.differs for day in days if day.date not in lost and day.date not in won)
        if not counted and (partly or not words):
            words += wording.totals(
                sum(len(day.signature.gone) for day in days),
                sum(len(day.signature.new) for day in days),
                wording.moment(self._civil(compared_to), self._today),
            )
        return words

    def _covered(self, day: _Day, days: list[_Day]) -> bool:
        """Return whether some whole day has at least the differences of this part of a day."""
        return any(
            set(day.signature.gone) <= set(other.signature.gone) and set(day.signature.new) <= set(other.signature.new)
            for other in days
            if other.date != day.date
        )

    def _next(self, before: int | None, after: int | None) -> str:
        name = wording.zone_name(self._zone)
        if after is None:
            return "it never fires again"
        said = f"next fire {self._moment(after)} {name}"
        return said if before is None else f"{said} instead of {self._moment(before)}"

    # --- clock changes --------------------------------------------------------------------------------------------

    def _at_clock_changes(self, zones: list[tzinfo], now_seen: frozenset[Signature]) -> list[str]:
        """The days of clock changes, and what is different between one and the next."""
        changes = self._change_days(zones)
        words: list[str] = []
        current, begun, said = now_seen, self._today, [""]  # the present stretch: what holds, since when, in words
        for number, (day, way) in enumerate(changes):
            following = day + timedelta(days=1)
            until = following + timedelta(days=_DAYS)
            if number + 1 < len(changes):
                until = min(until, changes[number + 1][0])
            seen, said_then = self._from_then_on(self._midnight(following), self._midnight(until), current)
            signature = self._on_the_day(day, following)
            if signature.named and signature not in current | seen:
                on = f"on {wording.day_name(day, self._today)}, when the clocks go {way}"
                words.append(f"{on}: {wording.times(signature, self._zone, '')}")
            if seen != current:
                last = day if signature in current else day - timedelta(days=1)
                words += self._stretch(begun, last, said) if current != now_seen else []
                current, begun, said = seen, day if signature in seen else following, said_then
        if current != now_seen:
            words += self._stretch(begun, None, said)
        return words

    def _stretch(self, begun: date, last: date | None, said: list[str]) -> list[str]:
        end = "on" if last is None else f"to {wording.day_name(last, self._today)}"
        return [f"from {wording.day_name(begun, self._today)} {end}: {'; '.join(said)}"]

    def _on_the_day(self, day: date, following: date) -> Signature:
        start, end = self._midnight(day), self._midnight(following)
        gone, new, _ = self._differences(start - 1, end - 1)
        return self._days(gone, new, start - 1, end - 1)[0].signature

    def _change_days(self, zones: list[tzinfo]) -> list[tuple[date, str]]:
        """The days on which a clock is changed, with what is done to it."""
        second = self._now // SECOND
        found: dict[date, str] = {}
        for zone in zones:
            for at, old, new in zone_of(zone).transitions(second + 1, second + _YEAR_SECONDS):
                way = "forward" if new > old else "back"
                if new != old:
                    found.setdefault(self._civil(at * SECOND).date(), f"{way} in {wording.zone_name(zone)}")
        return sorted(found.items())[:_MOST_CHANGES]

    def _from_then_on(
        self, since: int, until: int, known: frozenset[Signature]
    ) -> tuple[frozenset[Signature], list[str]]:
        """Return the differences in the weeks after a clock change, with their words where they are new."""
        if until <= since or not (self._before.count(since - 1, until - 1) and self._after.count(since - 1, until - 1)):
            return known, []  # one of them has nothing to compare
        gone, new, reached = self._differences(since - 1, until - 1)
        days = self._days(gone, new, since - 1, reached)
        seen = frozenset(day.signature for day in days if day.signature.differs)
        if seen == known or len(seen) > _MOST_SIGNATURES:
            return known, []
        # a stretch is seen in part: only what holds on every day that fires, or by weekday, is said of all of it
        firing = [day.date for day in days if day.before or day.after]
        said: list[str] = []
        for one in sorted(seen):
            dates = [day.date for day in days if day.signature == one]
            change = wording.times(one, self._zone, wording.on_days(dates, firing))
            if change is None or not wording.steady(dates, firing):
                return known, []
            said.append(change)
        return seen, said or ["no difference"]

    # --- civil time -----------------------------------------------------------------------------------------------

    def _civil(self, at: int) -> datetime:
        return datetime.fromtimestamp(at // SECOND, self._zone)

    def _midnight(self, day: date) -> int:
        """When the day begins; where midnight does not exist, when the clock leaps over it."""
        return first_coming(civil_seconds(datetime(day.year, day.month, day.day)), self._clock) * SECOND  # noqa: DTZ001 - civil

    def _moment(self, at: int | None) -> str:
        if at is None:
            return "never"
        try:
            return wording.moment(self._civil(at), self._today)
        except OverflowError:  # the last hours of the calendar have no date east of Greenwich
            return f"{wording.moment(datetime.fromtimestamp(at // SECOND, UTC), self._today)} UTC,"


def _walk(fires: Fires, since: int, upto: int) -> Iterator[int]:
    at = fires.following(since)
    while at is not None and at <= upto:
        yield at
        at = fires.following(at)
