"""The words of answers: instants and lengths of time in the zone of a schedule, and what its owner calls it."""

from __future__ import annotations

from datetime import datetime, timedelta, tzinfo
from typing import Any, Final, NamedTuple

import msgspec

from noonbell.core.instants import moment
from noonbell.ledger.policies import is_declared

_MINUTE: Final = 60_000_000
_UTC: Final = frozenset({"UTC", "Etc/UTC", "UCT", "Etc/UCT", "Zulu", "Etc/Zulu", "Universal", "Etc/Universal"})


class Answer(msgspec.Struct, frozen=True):
    """One paragraph, and the facts in it for programs. `facts["verdict"]` sums it up."""

    text: str
    facts: dict[str, Any]


class Vocabulary(NamedTuple):
    """The words for a schedule that was created, or for a task that a program has declared."""

    noun: str
    created: str
    removed: str
    not_before: str
    not_after: str
    verdict_before: str
    verdict_after: str


_TASK: Final = Vocabulary(
    "task", "registered", "removed", "it was not registered then", "it was not registered then", "not registered",
    "not registered",
)  # fmt: skip
_SCHEDULE: Final = Vocabulary(
    "schedule", "created", "deleted", "it did not exist then", "it did not exist any more", "not there", "deleted"
)


def vocabulary_of(managed_by: object) -> Vocabulary:
    """Return the words for the schedules of an owner."""
    return _TASK if is_declared(managed_by) else _SCHEDULE


class Times:
    """Writes instants in one zone, with the offset and in UTC."""

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
        """The clock time alone if `other`, which is written in full before it, is of the same day and offset."""
        here, there = moment(at, self.zone), moment(other, self.zone)
        if here.date() == there.date() and here.utcoffset() == there.utcoffset():
            return _clock(here)
        return f"{here.date()} {_clock(here)} {'UTC' if self._utc else _offset(here)}"


def _clock(at: datetime) -> str:
    return at.strftime("%H:%M:%S" if at.second or at.microsecond else "%H:%M")


def _offset(at: datetime) -> str:
    return at.isoformat()[len(at.replace(tzinfo=None).isoformat()) :]


def length(microseconds: int) -> str:
    """Return a length of time in its two largest units: `3 min 20 s`, `0.2 s`."""
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
    """Return `1 occurrence`, `2 occurrences`."""
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"
