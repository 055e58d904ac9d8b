"""Instants and lengths of time in words, in the zone of a schedule."""

from __future__ import annotations

from datetime import datetime, timedelta, tzinfo
from typing import Final

from noonbell.ledger.reading import moment

_MINUTE: Final = 60_000_000
_UTC: Final = frozenset({"UTC", "Etc/UTC", "UCT", "Etc/UCT", "Zulu", "Etc/Zulu", "Universal", "Etc/Universal"})


class Times:
    """Says instants in one zone, with the offset and in UTC."""

    def __init__(self, zone: tzinfo, name: str) -> None:
        self.zone = zone
        self.name = name
        self._utc = name in _UTC

    def full(self, at: int) -> str:
        """`2026-11-15 02:30 +02:00 (00:30 UTC)`; in UTC itself, once."""
        here = moment(at, self.zone)
        text = f"{here.date()} {_clock(here)}"
        if self._utc:
            return f"{text} UTC"
        there = moment(at)
        day = f"{there.date()} " if there.date() != here.date() else ""
        return f"{text} {_offset(here)} ({day}{_clock(there)} UTC)"

    def near(self, at: int, other: int) -> str:
        """The clock time alone where `other`, which was said in full, is of the same day and offset."""
        here, there = moment(at, self.zone), moment(other, self.zone)
        if here.date() == there.date() and here.utcoffset() == there.utcoffset():
            return _clock(here)
        return f"{here.date()} {_clock(here)} {'UTC' if self._utc else _offset(here)}"


def _clock(at: datetime) -> str:
    return at.strftime("%H:%M:%S" if at.second or at.microsecond else "%H:%M")


def _offset(at: datetime) -> str:
    return at.isoformat()[len(at.replace(tzinfo=None).isoformat()) :]


def length(microseconds: int) -> str:
    """A length of time in its two largest units: `3 min 20 s`, `0.2 s`."""
    if microseconds < _MINUTE:
        return f"{microseconds / 1_000_000:.3g} s"
    seconds = timedelta(microseconds=microseconds) // timedelta(seconds=1)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    units = [(days, "d"), (hours, "h"), (minutes, "min"), (seconds, "s")]
    first = next(index for index, (count, _) in enumerate(units) if count)
    return " ".join(f"{count} {unit}" for count, unit in units[first : first + 2] if count)


def counted(n: int, noun: str) -> str:
    """`1 occurrence`, `2 occurrences`."""
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"
