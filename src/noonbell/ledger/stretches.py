"""A schedule's epochs as stretches of occurrences: each checked by itself, against the one before, and at the end.

A stretch is an epoch as far as it is decided. A pause has none: nothing comes in it. Intervals are chained across
epochs: an edit goes on from the anchor that its predecessor has left, or from the edit itself where it left a run
queued, or anew where the start of the schedule was changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Protocol

from noonbell.ledger.reading import SECOND, is_instant, iso, zone_named
from noonbell.ledger.rhythms import Rhythm, Steps, rhythm_of
from noonbell.ledger.terms import Terms, terms_of
from noonbell.timing import rules_hash

_FIRST_MINUTE: Final = 61_000_000  # a schedule's account begins within the minute in which it was created


class Tell(Protocol):
    """Where findings go. A remark is told and is no problem."""

    def __call__(self, kind: str, text: str, *, at: object = None, remark: bool = False) -> None: ...


class Stretch:
    """An epoch as far as it is decided: occurrences in (from_at, limit]."""

    __slots__ = ("from_at", "left_queued", "limit", "number", "outdated", "rhythm", "terms", "to_at")

    def __init__(self, epoch: Mapping[str, Any], rhythm: Rhythm, terms: Terms, limit: int) -> None:
        self.number: int = epoch["epoch"]
        self.from_at: int = epoch["from_at"]
        self.to_at: int | None = epoch["to_at"] if is_instant(epoch["to_at"]) else None
        self.rhythm = rhythm
        self.terms = terms
        self.limit = limit
        if terms.start_at is not None:
            self.from_at = max(self.from_at, terms.start_at - 1)
        if terms.end_at is not None:
            self.limit = min(limit, terms.end_at)
        self.left_queued = False  # a run of it began when it was over, so the edit that ended it left it queued
        zone = zone_named(epoch["timezone"])
        # the zone's rules have changed since, so today's arithmetic proves nothing
        self.outdated = terms.kind != "interval" and zone is not None and epoch["zone_hash"] != rules_hash(zone)

    def fired(self, started: object) -> None:
        """A run has begun: an interval counts from there."""
        if self.to_at is not None and not (is_instant(started) and started < self.to_at):
            self.left_queued, started = True, self.to_at
        elif self.to_at is not None and is_instant(started) and started >= self.to_at - SECOND:
            self.left_queued = True  # maybe: who edits and who runs may go by clocks that differ a little
        if isinstance(self.rhythm, Steps) and is_instant(started):
            self.rhythm.moves_at = started


class Stretches:
    """The stretches of one schedule, walked through in order."""

    __slots__ = ("_at", "_epochs", "_row", "_tell", "_walked", "all", "cursor_at", "whole")

    def __init__(self, row: Mapping[str, Any], tell: Tell, cursor_at: int | None, *, whole: bool) -> None:
        self.all: list[Stretch] = []
        self.cursor_at = cursor_at
        self.whole = whole  # not only a window of time
        self._row = row
        self._tell = tell
        self._epochs: list[Mapping[str, Any]] = []
        self._at = 0
        self._walked: dict[int, Stretch] = {}

    def __bool__(self) -> bool:
        return bool(self.all)

    # --- taking the epochs --------------------------------------------------------------------------------------------

    def take(self, epochs: list[Mapping[str, Any]], to_at: int) -> None:
        before: Mapping[str, Any] | None = None
        for epoch in epochs:
            self._check(epoch, before)
            self._add(epoch, to_at)
            before = epoch
        self._check_last(epochs[-1])
        self._epochs = epochs

    def _check(self, epoch: Mapping[str, Any], before: Mapping[str, Any] | None) -> None:
        number, from_at, to_at = epoch["epoch"], epoch["from_at"], epoch["to_at"]
        if not is_instant(from_at) or not (to_at is None or is_instant(to_at)):
            self._tell("damaged", f"its epoch {number} reaches from {from_at!r} to {to_at!r}, which are no instants")
            return
        if to_at is not None and to_at < from_at:
            self._tell(
                "epoch", f"its epoch {number} ends at {iso(to_at)}, before it begins at {iso(from_at)}", at=from_at
            )
        if before is None:
            created = self._row["created_at"]
            if number != 1:
                self._tell("epoch", f"its first epoch is number {number}: those before it are gone", at=from_at)
            elif is_instant(created) and not created - _FIRST_MINUTE <= from_at <= created:
                text = f"its first epoch begins at {iso(from_at)}, but it was created at {iso(created)}"
                self._tell("epoch", text, at=from_at)
            return
        if number != before["epoch"] + 1:
            self._tell("epoch", f"epoch {number} follows epoch {before['epoch']}: those between are gone", at=from_at)
        elif before["to_at"] != from_at:
            ended = "has no end" if before["to_at"] is None else f"ends at {iso(before['to_at'])}"
            text = f"epoch {number} begins at {iso(from_at)}, but epoch {before['epoch']} {ended}"
            self._tell("epoch", text, at=from_at)

    def _add(self, epoch: Mapping[str, Any], to_at: int) -> None:
        number, spec, zone_name = epoch["epoch"], epoch["spec"], epoch["timezone"]
        if not isinstance(spec, str) or not isinstance(zone_name, str):
            self._tell("damaged", f"epoch {number} has the spec {spec!r} in the zone {zone_name!r}")
            return
        terms = terms_of(epoch["policies"])
        found = rhythm_of(terms.kind, spec, zone_name, terms.dst, terms.anchor_at)
        if isinstance(found, str):
            self._tell("damaged", f"epoch {number} cannot be checked: {found}")
            return
        if terms.durable and terms.kind != self._row["type"]:
            self._tell("epoch", f"epoch {number} is of type {terms.kind}, but it is stored as {self._row['type']!r}")
        if isinstance(found, Steps):
            if found.in_doubt:
                self._tell("damaged", f"epoch {number} does not say what its interval counts from")
            found.in_doubt = found.in_doubt or not self.whole
        if not is_instant(epoch["from_at"]) or self.cursor_at is None:
            return
        if epoch["enabled"] == 0:
            return  # a pause: nothing comes in it
        end = epoch["to_at"] if is_instant(epoch["to_at"]) else self.cursor_at
        stretch = Stretch(epoch, found, terms, min(end, self.cursor_at, to_at))
        self.all.append(stretch)
        self._walked[stretch.number] = stretch

    def _check_last(self, epoch: Mapping[str, Any]) -> None:
        row, number, cursor_at = self._row, epoch["epoch"], self.cursor_at
        removed = row["removed_at"] is not None
        if row["epoch"] != number:
            self._tell("epoch", f"it stands in epoch {row['epoch']!r}, but its last epoch is {number}")
        if row["spec"] != epoch["spec"] or row["timezone"] != epoch["timezone"]:
            text = (
                f"it is stored as {row['spec']!r} in {row['timezone']!r}, but its epoch {number} says "
                f"{epoch['spec']!r} in {epoch['timezone']!r}"
            )
            self._tell("epoch", text)
        if (epoch["to_at"] is not None) != removed:
            state = (
                "was removed, but its epoch has no end" if removed else f"is in use, but its epoch {number} has ended"
            )
            self._tell("epoch", f"it {state}")
        if removed and is_instant(epoch["to_at"]) and epoch["to_at"] != cursor_at:
            text = f"its last epoch ends at {iso(epoch['to_at'])}, but its cursor stands at {iso(cursor_at)}"
            self._tell("epoch", text, at=cursor_at)
        if cursor_at is not None and is_instant(epoch["from_at"]) and cursor_at < epoch["from_at"]:
            text = f"its cursor stands at {iso(cursor_at)}, before its epoch {number} begins"
            self._tell("epoch", text, at=cursor_at)

    # --- walking through them -----------------------------------------------------------------------------------------

    def numbered(self, number: object) -> Stretch | None:
        return self._walked.get(number) if type(number) is int else None

    def holding(self, at: int) -> Stretch | None:
        return next((stretch for stretch in self.all if stretch.from_at < at <= stretch.limit), None)

    @property
    def current(self) -> Stretch | None:
        return self.all[self._at] if self._at < len(self.all) else None

    def following(self, at: int) -> int | None:
        """The first occurrence after `at` that has to have a verdict. Asked with instants that never go back."""
        while self._at < len(self.all):
            stretch = self.all[self._at]
            if at < stretch.limit:
                if isinstance(stretch.rhythm, Steps) and stretch.rhythm.in_doubt:
                    return None  # the first that comes by is believed
                found = stretch.rhythm.after(max(at, stretch.from_at))
                if found is not None and found <= stretch.limit:
                    return found
            self._at += 1
        return None

    def count(self, first: int, last: int) -> int:
        return sum(
            stretch.rhythm.count(max(first, stretch.from_at + 1), min(last, stretch.limit)) for stretch in self.all
        )

    # --- the end ------------------------------------------------------------------------------------------------------

    def check_anchors(self) -> None:
        """Of an interval: each epoch has to go on from where the one before has left it."""
        before: Terms | None = None
        steps: Steps | None = None  # of the epoch before, unless it was a pause
        queued_at: int | None = None
        for epoch in self._epochs:
            terms, number = terms_of(epoch["policies"]), epoch["epoch"]
            if terms.kind != "interval" or terms.anchor_at is None or not is_instant(epoch["from_at"]):
                return
            if before is None or before.start_at != terms.start_at:
                right, left = _first_anchor(terms, epoch), number != 1 and before is None
            elif steps is None:
                right, left = before.anchor_at, False
            else:
                right, left = steps.last_anchor, steps.left_at(terms.anchor_at)
            yet_to_start = terms.start_at is not None and terms.start_at > epoch["from_at"]
            anew = _first_anchor(terms, epoch) if yet_to_start else None
            if not left and terms.anchor_at not in (right, queued_at, anew):
                text = (
                    f"epoch {number} counts its interval from {iso(terms.anchor_at)}, but it was left at {iso(right)}"
                )
                self._tell("chain", text, at=epoch["from_at"])
            stretch = self._walked.get(number)
            steps = stretch.rhythm if stretch is not None and isinstance(stretch.rhythm, Steps) else None
            queued_at = stretch.to_at if stretch is not None and stretch.left_queued else None
            before = terms
        if before is not None and self._row["removed_at"] is None:
            self._check_anchor(before.anchor_at, steps)

    def _check_anchor(self, since: int | None, steps: Steps | None) -> None:
        """Of an interval: what the schedule counts from now, against the start of its last run or its epoch."""
        stored, catching_up = self._row["anchor_at"], self._row["backlog_left"] is not None
        right = since if steps is None else steps.last_anchor
        if is_instant(stored) and (
            stored == right if steps is None else steps.stands_at(stored, catching_up=catching_up)
        ):
            return
        shown = iso(stored) if is_instant(stored) else repr(stored)
        text = f"it counts its interval from {shown}, but its last start or edit was at {iso(right)}"
        self._tell("chain", text, at=self.cursor_at)


def _first_anchor(terms: Terms, epoch: Mapping[str, Any]) -> int | None:
    """What an interval counts from when nothing is before it: now, or such that its start is its first occurrence."""
    from_at: int = epoch["from_at"]
    if terms.start_at is None or terms.start_at <= from_at:
        return from_at
    steps = rhythm_of("interval", epoch["spec"], "UTC", "literal", from_at)
    return terms.start_at - steps.every if isinstance(steps, Steps) else None
