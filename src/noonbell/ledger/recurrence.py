"""The occurrences of a stored epoch: by a cron expression, once, or in steps from an anchor.

Instants are in microseconds. A spec that cannot be read gives a text that says why, in place of a recurrence. Specs are
read by the parsers that all of Noonbell uses; the arithmetic of intervals is this module's own.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Protocol

from noonbell.cron import CronExpression, DstPolicy, Zone, parse, zone_of
from noonbell.errors import CronCalculationError, IntervalInvalidError, InvalidCronExpressionError, OneShotInvalidError
from noonbell.ledger.ledger_rows import LATEST, SECOND, zone_named
from noonbell.timing import parse_interval, parse_one_shot


class Recurrence(Protocol):
    """The occurrences of one epoch."""

    def after(self, at: int) -> int | None:
        """The first occurrence after `at`; None where there is none."""
        ...

    def latest(self, at: int) -> int | None:
        """The latest occurrence at or before `at`."""
        ...

    def count(self, first: int, last: int) -> int:
        """The number of occurrences from `first` to `last`, both included."""
        ...

    def has(self, at: int) -> bool:
        """Return whether `at` is an occurrence."""
        ...


class CronRecurrence:
    """The occurrences of one cron expression in one zone."""

    __slots__ = ("_asked", "_expression", "_following", "dst", "zone")

    def __init__(self, expression: CronExpression, zone: Zone, dst: DstPolicy) -> None:
        self._expression = expression
        self.zone = zone
        self.dst: DstPolicy = dst
        # schedules that share a recurrence ask for the same instant in a row, so the last answer is kept
        self._asked: int | None = None
        self._following: int | None = None

    def after(self, at: int) -> int | None:
        if at != self._asked:
            self._asked = at
            try:
                self._following = self._expression.next_epoch(at // SECOND, self.zone, self.dst) * SECOND
            except CronCalculationError:
                self._following = None
        return self._following

    def latest(self, at: int) -> int | None:
        try:
            return self._expression.previous_epoch(at // SECOND, self.zone, self.dst) * SECOND
        except CronCalculationError:
            return None

    def count(self, first: int, last: int) -> int:
        return self._expression.count_epochs(-(-first // SECOND), last // SECOND + 1, self.zone, self.dst)

    def has(self, at: int) -> bool:
        return at % SECOND == 0 and self.count(at, at) == 1


class Once:
    """A single occurrence."""

    __slots__ = ("_at",)

    def __init__(self, at: int) -> None:
        self._at = at

    def after(self, at: int) -> int | None:
        return self._at if self._at > at else None

    def latest(self, at: int) -> int | None:
        return self._at if self._at <= at else None

    def count(self, first: int, last: int) -> int:
        return int(first <= self._at <= last)

    def has(self, at: int) -> bool:
        return at == self._at


class EveryN:
    """The occurrences of an interval: one step after another, counted from an anchor that a start moves.

    What lies up to such a start is still counted from the anchor before it, and what comes after it from the start.
    Given each occurrence in order, it knows where the next one has to be. `in_doubt` is set while no anchor is known:
    then the first occurrence that is given is taken as right.
    """

    __slots__ = ("_guessed", "_left", "anchor", "every", "in_doubt", "moves_at")

    def __init__(self, anchor: int | None, every: int) -> None:
        self.anchor = self._left = anchor or 0
        self.every = every
        self.in_doubt = anchor is None
        self._guessed = False  # the anchor is the right one, give or take whole steps
        self.moves_at: int | None = None  # the start that the anchor moves to, once its time is passed

    def after(self, at: int) -> int | None:
        if self.moves_at is not None:
            found = self._step_after(at)
            if found <= self.moves_at:
                return found
            self._left, self.anchor, self.moves_at = self.anchor, self.moves_at, None
            self._guessed = False
        found = self._step_after(at)
        return found if found <= LATEST else None

    def latest(self, at: int) -> int | None:
        steps = (at - self.anchor) // self.every
        return self.anchor + steps * self.every if steps > 0 else None

    def count(self, first: int, last: int) -> int:
        return max(0, (last - self.anchor) // self.every - max(0, (first - 1 - self.anchor) // self.every))

    def has(self, at: int) -> bool:
        return at > self.anchor and (at - self.anchor) % self.every == 0

    def goes_through(self, at: int, moves_at: int | None = None) -> None:
        """Count from an occurrence that is known, and from the start of its run."""
        self.anchor, self.moves_at, self.in_doubt = at - self.every, moves_at, False
        self._guessed = True

    def has_not_moved(self, at: int) -> bool:
        """Return whether `at` is a step from the anchor before the last; if so, count from that anchor again."""
        if (at - self._left) % self.every:
            return False
        self.anchor, self.moves_at = self._left, None
        return True

    def left_at(self, anchor: int) -> bool:
        """Return whether this is the anchor that the occurrences so far lead to."""
        if self.moves_at is None and self._guessed:
            return anchor <= self.anchor and (self.anchor - anchor) % self.every == 0
        return anchor == self.last_anchor

    def stands_at(self, anchor: int, *, catching_up: bool) -> bool:
        """Return whether this may be the stored anchor: it does not move while a catch-up is under way."""
        if catching_up:
            return (anchor - self.anchor) % self.every == 0
        return self.left_at(anchor)

    @property
    def last_anchor(self) -> int:
        return self.anchor if self.moves_at is None else self.moves_at

    def _step_after(self, at: int) -> int:
        return self.anchor + (max(0, (at - self.anchor) // self.every) + 1) * self.every


@lru_cache(maxsize=65_536)
def cron_recurrence(spec: str, zone_name: str, dst: DstPolicy = "literal") -> CronRecurrence | str:
    """Return the recurrence of a stored expression and zone, or a text that says what is wrong with them."""
    zone = zone_named(zone_name)
    if zone is None:
        return f"its time zone {zone_name!r} is not known here"
    try:
        return CronRecurrence(parse(spec), zone_of(zone), dst)
    except InvalidCronExpressionError as error:
        return f"its spec cannot be read: {error}"


def recurrence_of(kind: str, spec: str, zone_name: str, dst: DstPolicy, anchor: int | None) -> Recurrence | str:
    """Return the recurrence of an epoch of any kind, or a text that says what is wrong with it."""
    if kind == "cron":
        return cron_recurrence(spec, zone_name, dst)
    try:
        if kind == "interval":
            return EveryN(anchor, parse_interval(spec) * SECOND)
        if kind == "one_shot":
            zone = zone_named(zone_name)
            if zone is None:
                return f"its time zone {zone_name!r} is not known here"
            return Once(parse_one_shot(spec, zone, stored=True))
    except (IntervalInvalidError, OneShotInvalidError) as error:
        return f"its spec cannot be read: {error}"
    return f"its type is {kind!r}, which is none"
