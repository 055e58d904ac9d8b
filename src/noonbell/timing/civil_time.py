"""Conversion of wall-clock times to instants: when a zone shows a civil second.

Civil seconds count from 1970-01-01 00:00 on the local clock, instants are UTC seconds. A civil second comes once as a
rule, never where the clock leaps over it, twice where it is set back.
"""

from __future__ import annotations

from datetime import date, datetime, timedelta
from typing import Final

from noonbell.cron import Segment, Zone
from noonbell.cron.days import EPOCH_ORDINAL
from noonbell.cron.zones import DAY, FIRST_INSTANT, LAST_INSTANT

_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - civil time has no zone
_SECOND: Final = timedelta(seconds=1)


def civil_seconds(wall: datetime) -> int:
    """The civil second of a naive datetime; a part of a second is left out."""
    return (wall - _EPOCH) // _SECOND


def wall_at(civil: int) -> datetime:
    """The naive datetime of a civil second."""
    return _EPOCH + timedelta(seconds=civil)


def day_number(day: date) -> int:
    """Days since 1970-01-01."""
    return day.toordinal() - EPOCH_ORDINAL


def comings(civil: int, zone: Zone) -> list[int]:
    """The instants at which the zone shows this civil second, ascending; empty where it does not exist."""
    return [
        civil - segment.offset
        for segment in _around(civil, zone)
        if segment.start <= civil - segment.offset < segment.end
    ]


def first_coming(civil: int, zone: Zone) -> int:
    """Return when the civil second comes first; where it does not exist, when the clock has leapt over it."""
    segment = zone.segment(_inside(civil - DAY))
    if segment.end > civil + DAY:  # no change in sight, as nearly always
        return civil - segment.offset
    found = comings(civil, zone)
    return found[0] if found else leap_over(civil, zone)


def last_coming(civil: int, zone: Zone) -> int:
    """Return when the civil second comes last; where it does not exist, when the clock has leapt over it."""
    segment = zone.segment(_inside(civil - DAY))
    if segment.end > civil + DAY:
        return civil - segment.offset
    found = comings(civil, zone)
    return found[-1] if found else leap_over(civil, zone)


def leap_over(civil: int, zone: Zone) -> int:
    """The instant at which the clock leaps over a civil second that does not exist.

    At the very ends of the calendar a civil second may lie beyond every instant; the nearest instant represents it.
    """
    nearest = FIRST_INSTANT
    for segment in _around(civil, zone):
        if civil - segment.offset < segment.start:
            return segment.start
        nearest = segment.end
    return nearest


def _around(civil: int, zone: Zone) -> list[Segment]:
    """The segments in which a civil second may come: offsets lie within a day of UTC each way."""
    segment = zone.segment(_inside(civil - DAY))
    found = [segment]
    end = _inside(civil + DAY)
    while segment.end <= end:
        segment = zone.segment(segment.end)
        found.append(segment)
    return found


def _inside(at: int) -> int:
    return min(max(at, FIRST_INSTANT), LAST_INSTANT)
