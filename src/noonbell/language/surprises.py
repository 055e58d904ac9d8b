"""Surprises at clock changes: the coming days on which a schedule fires twice, late, or not at all.

Only the civil minutes that a change skips or repeats are looked at, a few hours a year, whatever the length of the
period. An expression that runs in every hour gets one remark only, for the first change it meets.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from itertools import groupby, islice
from typing import Final, Literal

from noonbell.cron import CronExpression, DstPolicy, zone_of
from noonbell.errors import NaiveDatetimeError

SurpriseKind = Literal["twice", "skipped", "moved", "remark"]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND: Final = timedelta(seconds=1)
_DAY: Final = timedelta(days=1)
_MOST_TIMES: Final = 3  # of more only the number is given


@dataclass(frozen=True, slots=True)
class Surprise:
    """One local day on which an expression does not do what its text says.

    `kind`: `twice` (the times come twice), `skipped` (they do not exist), `moved` (they do not exist and fire later:
    the `once` policy), `remark` (an expression of every hour, which runs on). `times` are the civil times
    concerned; `sentence` has no subject and no full stop, as in "fires twice on 2026-11-01 (…)".
    """

    date: date
    kind: SurpriseKind
    times: tuple[time, ...]
    sentence: str


def dst_surprises(
    expr: CronExpression, zone: tzinfo, start: datetime, end: datetime, *, dst: DstPolicy = "literal"
) -> list[Surprise]:
    """The surprises at the clock changes of `zone` from `start` to `end`, in order."""
    found: list[Surprise] = []
    every_hour = len(expr.hours) == 24
    for instant, before, after in zone_of(zone).transitions(_second(start), _second(end)):
        # civil times are held as if they were UTC: the expression's own arithmetic then works on them unbent
        low, high = sorted((instant + before, instant + after))
        affected = list(expr.between(_civil(low), _civil(high)))
        if not affected:
            continue
        if every_hour:
            return [_remark(zone, affected[0].date(), after - before)]
        for day, group in groupby(affected, key=datetime.date):
            times = tuple(at.time() for at in group)
            alone = not _has_others(expr, day, len(times))
            if after > before:
                found.append(_missing(zone, day, times, _civil(high) if dst == "once" else None, alone=alone))
            elif dst == "literal":
                found.append(_twice(zone, day, times, alone=alone))
    return found


def _has_others(expr: CronExpression, day: date, affected: int) -> bool:
    """Return whether the day has occurrences beside the affected ones; one more than those decides it."""
    midnight = datetime.combine(day, time(), UTC)
    return sum(1 for _ in islice(expr.between(midnight, midnight + _DAY), affected + 1)) > affected


def _twice(zone: tzinfo, day: date, times: tuple[time, ...], *, alone: bool) -> Surprise:
    listed, name = _listed(times), _zone_name(zone)
    if alone and len(times) == 1:
        sentence = f"fires twice on {day} ({listed} comes twice in {name})"
    else:
        sentence = f"fires twice at {listed} on {day} (clocks go back in {name})"
    return Surprise(day, "twice", times, sentence)


def _missing(zone: tzinfo, day: date, times: tuple[time, ...], resumes: datetime | None, *, alone: bool) -> Surprise:
    listed, name = _listed(times), _zone_name(zone)
    absent = f"{listed} {'does' if len(times) == 1 else 'do'} not exist in {name}"
    if resumes is not None:
        return Surprise(day, "moved", times, f"fires at {_clock(resumes, day)} on {day} ({absent})")
    if alone:
        return Surprise(day, "skipped", times, f"does not fire on {day} ({absent})")
    return Surprise(day, "skipped", times, f"leaves out {listed} on {day} (clocks go forward in {name})")


def _remark(zone: tzinfo, day: date, shift: int) -> Surprise:
    hours, minutes = divmod(abs(shift) // 60, 60)
    length = " ".join(f"{count} {unit}" for count, unit in ((hours, "h"), (minutes, "min")) if count)
    way = "forward" if shift > 0 else "back"
    sentence = f"runs on through the clock change on {day} ({length} {way} in {_zone_name(zone)})"
    return Surprise(day, "remark", (), sentence)


def _listed(times: tuple[time, ...]) -> str:
    said = [f"{at:%H:%M}" for at in times]
    if len(said) > _MOST_TIMES:
        return f"{len(said)} times from {said[0]} to {said[-1]}"
    return " and ".join([", ".join(said[:-1]), said[-1]]) if len(said) > 1 else said[0]


def _clock(at: datetime, day: date) -> str:
    return f"{at:%H:%M}" if at.date() == day else f"{at:%H:%M} of {at.date()}"


def _zone_name(zone: tzinfo) -> str:
    key = getattr(zone, "key", None)
    return key if isinstance(key, str) else str(zone)


def _second(at: datetime) -> int:
    if at.utcoffset() is None:
        raise NaiveDatetimeError(at)
    return (at - _EPOCH) // _SECOND


def _civil(second: int) -> datetime:
    return _EPOCH + second * _SECOND
