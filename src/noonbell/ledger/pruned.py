"""Pruned days as links in a schedule's account.

A day that begins at the very occurrence that follows the last of the day before is joined to it, so that years of
pruned days cost no more memory than one. Where a run stayed between two of them, they are kept apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from typing import Any, Final

from noonbell.core.records import PrunedDay
from noonbell.ledger.reading import LATEST, is_instant, iso, rows
from noonbell.ledger.rhythms import Rhythm, Steps
from noonbell.ports import Store

DAY: Final = 86_400_000_000


class PrunedPart:
    """Neighbouring pruned days of one epoch. What stayed of them is added as it comes by, as `kept`."""

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
        """What cannot be, of a single day."""
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
    """The pruned part of an account, in order."""

    __slots__ = ("_next", "_parts", "next_at")

    def __init__(self) -> None:
        self._parts: list[PrunedPart] = []
        self._next = 0
        self.next_at = LATEST + 1  # where the next one to be taken begins

    def add(self, part: PrunedPart, rhythm: Rhythm) -> None:
        last = self._parts[-1] if self._parts else None
        if last is not None and last.epoch == part.epoch and _after(last, rhythm) == part.first_at:
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
    """The part that a stored row makes; None where its numbers are none."""
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


def _after(part: PrunedPart, rhythm: Rhythm) -> int | None:
    if isinstance(rhythm, Steps):
        rhythm = copy(rhythm)  # the chain itself is not there yet
        rhythm.goes_through(part.to_at, part.last_started_at)
    return rhythm.after(part.to_at)


async def pruned_day(store: Store, sid: int, at: int) -> PrunedDay | None:
    """What is kept of the pruned day that answered for an occurrence, if there is one."""
    async for page in rows(store, "pruned", above_sid=sid - 1, upto_sid=sid):
        for row in page:
            kept = PrunedDay(*row)
            if is_instant(kept.first_at) and is_instant(kept.to_at) and kept.first_at <= at <= kept.to_at:
                return kept
    return None
