"""The epochs of a schedule up to its cursor: each checked by itself, against the one before, and at the end.

A pause has no decided epoch: it has no occurrences. Intervals are chained across epochs: an edit goes on from the
anchor of the epoch before, or from the edit itself where it left a run queued, or from a new start
where the start of the schedule was changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Protocol

from noonbell.ledger.ledger_rows import SECOND, is_instant, iso, zone_named
from noonbell.ledger.policies import EpochPolicies, policies_of
from noonbell.ledger.recurrence import EveryN, Recurrence, recurrence_of
from noonbell.timing import rules_hash

_FIRST_MINUTE: Final = 61_000_000  # a schedule's first epoch begins within the minute in which it was created


class Reporter(Protocol):
    """Takes findings about one schedule. A remark is not a problem."""

    def __call__(self, kind: str, text: str, *, at: object = None, remark: bool = False) -> None: ...


class DecidedEpoch:
    """An epoch as far as it is decided: occurrences in (from_at, limit]."""

    __slots__ = ("from_at", "left_queued", "limit", "number", "outdated", "policies", "recurrence", "to_at")

    def __init__(self, epoch: Mapping[str, Any], recurrence: Recurrence, policies: EpochPolicies, limit: int) -> None:
        self.number: int = epoch["epoch"]
        self.from_at: int = epoch["from_at"]
        self.to_at: int | None = epoch["to_at"] if is_instant(epoch["to_at"]) else None
        self.recurrence = recurrence
        self.policies = policies
        self.limit = limit
        if policies.start_at is not None:
            self.from_at = max(self.from_at, policies.start_at - 1)
        if policies.end_at is not None:
            self.limit = min(limit, policies.end_at)
        self.left_queued = False  # a run of it began after it, so the edit that ended it left the run queued
        zone = zone_named(epoch["timezone"])
        # the zone's rules have changed since, so today's arithmetic proves nothing
        self.outdated = policies.kind != "interval" and zone is not None and epoch["zone_hash"] != rules_hash(zone)

    def fired(self, started: object) -> None:
        """Take the start of a run: an interval counts from there."""
        if self.to_at is not None and not (is_instant(started) and started < self.to_at):
            self.left_queued, started = True, self.to_at
        elif self.to_at is not None and is_instant(started) and started >= self.to_at - SECOND:
            self.left_queued = True  # maybe: the clocks of the editor and of the engine may differ a little
        if isinstance(self.recurrence, EveryN) and is_instant(started):
            self.recurrence.moves_at = started


class DecidedEpochs:
    """The decided epochs of one schedule, walked through in order."""

    __slots__ = ("_at", "_epochs", "_report", "_row", "_walked", "all", "cursor_at", "whole")

    def __init__(self, row: Mapping[str, Any], report: Reporter, cursor_at: int | None, *, whole: bool) -> None:
        self.all: list[DecidedEpoch] = []
        self.cursor_at = cursor_at
        self.whole = whole  # not only a window of time
        self._row = row
        self._report = report
        self._epochs: list[Mapping[str, Any]] = []
        self._at = 0
        self._walked: dict[int, DecidedEpoch] = {}

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
            self._report("damaged", f"its epoch {number} reaches from {from_at!r} to {to_at!r}, which are not instants")
            return
        if to_at is not None and to_at < from_at:
            self._report(
                "epoch", f"its epoch {number} ends at {iso(to_at)}, before it begins at {iso(from_at)}", at=from_at
            )
        if before is None:
            created = self._row["created_at"]
            if number != 1:
                self._report("epoch", f"its first epoch is number {number}: those before it are gone", at=from_at)
            elif is_instant(created) and not created - _FIRST_MINUTE <= from_at <= created:
                text = f"its first epoch begins at {iso(from_at)}, but it was created at {iso(created)}"
                self._report("epoch", text, at=from_at)
            return
        if number != before["epoch"] + 1:
            self._report("epoch", f"epoch {number} follows epoch {before['epoch']}: those between are gone", at=from_at)
        elif before["to_at"] != from_at:
            ended = "has no end" if before["to_at"] is None else f"ends at {iso(before['to_at'])}"
            text = f"epoch {number} begins at {iso(from_at)}, but epoch {before['epoch']} {ended}"
            self._report("epoch", text, at=from_at)

    def _add(self, epoch: Mapping[str, Any], to_at: int) -> None:
        number, spec, zone_name = epoch["epoch"], epoch["spec"], epoch["timezone"]
        if not isinstance(spec, str) or not isinstance(zone_name, str):
            self._report("damaged", f"epoch {number} has the spec {spec!r} in the zone {zone_name!r}")
            return
        policies = policies_of(epoch["policies"], self._row["managed_by"])
        found = recurrence_of(policies.kind, spec, zone_name, policies.dst, policies.anchor_at)
        if isinstance(found, str):
            self._report("damaged", f"epoch {number} cannot be checked: {found}")
            return
        if policies.kind != self._row["type"]:
            self._report(
                "epoch", f"epoch {number} is of type {policies.kind}, but it is stored as {self._row['type']!r}"
            )
        if isinstance(found, EveryN):
            if found.in_doubt:
                self._report("damaged", f"epoch {number} does not say what its interval counts from")
            found.in_doubt = found.in_doubt or not self.whole
        if not is_instant(epoch["from_at"]) or self.cursor_at is None:
            return
        if epoch["enabled"] == 0:
            return  # a pause: nothing comes in it
        end = epoch["to_at"] if is_instant(epoch["to_at"]) else self.cursor_at
        decided = DecidedEpoch(epoch, found, policies, min(end, self.cursor_at, to_at))
        self.all.append(decided)
        self._walked[decided.number] = decided

    def _check_last(self, epoch: Mapping[str, Any]) -> None:
        row, number, cursor_at = self._row, epoch["epoch"], self.cursor_at
        removed = row["removed_at"] is not None
        if row["epoch"] != number:
            self._report("epoch", f"its row is in epoch {row['epoch']!r}, but its last epoch is {number}")
        if row["spec"] != epoch["spec"] or row["timezone"] != epoch["timezone"]:
            text = (
                f"it is stored as {row['spec']!r} in {row['timezone']!r}, but its epoch {number} says "
                f"{epoch['spec']!r} in {epoch['timezone']!r}"
            )
            self._report("epoch", text)
        if (epoch["to_at"] is not None) != removed:
            state = (
                "was removed, but its epoch has no end" if removed else f"is in use, but its epoch {number} has ended"
            )
            self._report("epoch", f"it {state}")
        if removed and is_instant(epoch["to_at"]) and epoch["to_at"] != cursor_at:
            text = f"its last epoch ends at {iso(epoch['to_at'])}, but its cursor is at {iso(cursor_at)}"
            self._report("epoch", text, at=cursor_at)
        if cursor_at is not None and is_instant(epoch["from_at"]) and cursor_at < epoch["from_at"]:
            text = f"its cursor is at {iso(cursor_at)}, before its epoch {number} begins"
            self._report("epoch", text, at=cursor_at)

    # --- walking through them -----------------------------------------------------------------------------------------

    def numbered(self, number: object) -> DecidedEpoch | None:
        return self._walked.get(number) if type(number) is int else None

    def holding(self, at: int) -> DecidedEpoch | None:
        return next((decided for decided in self.all if decided.from_at < at <= decided.limit), None)

    @property
    def current(self) -> DecidedEpoch | None:
        return self.all[self._at] if self._at < len(self.all) else None

    def following(self, at: int) -> int | None:
        """Return the first occurrence after `at` that has to have a verdict; `at` never goes back."""
        while self._at < len(self.all):
            decided = self.all[self._at]
            if at < decided.limit:
                if isinstance(decided.recurrence, EveryN) and decided.recurrence.in_doubt:
                    return None  # the first that is recorded is taken as right
                found = decided.recurrence.after(max(at, decided.from_at))
                if found is not None and found <= decided.limit:
                    return found
            self._at += 1
        return None

    def count(self, first: int, last: int) -> int:
        return sum(
            decided.recurrence.count(max(first, decided.from_at + 1), min(last, decided.limit)) for decided in self.all
        )

    # --- the end ------------------------------------------------------------------------------------------------------

    def check_anchors(self) -> None:
        """Check an interval: each epoch has to go on from the anchor that the one before has left."""
        before: EpochPolicies | None = None
        steps: EveryN | None = None  # of the epoch before, unless it was a pause
        queued_at: int | None = None
        for epoch in self._epochs:
            policies = policies_of(epoch["policies"], self._row["managed_by"])
            number = epoch["epoch"]
            if policies.kind != "interval" or policies.anchor_at is None or not is_instant(epoch["from_at"]):
                return
            if before is None or before.start_at != policies.start_at:
                right, left = _first_anchor(policies, epoch), number != 1 and before is None
            elif steps is None:
                right, left = before.anchor_at, False
            else:
                right, left = steps.last_anchor, steps.left_at(policies.anchor_at)
            yet_to_start = policies.start_at is not None and policies.start_at > epoch["from_at"]
            restarted = _first_anchor(policies, epoch) if yet_to_start else None
            if not left and policies.anchor_at not in (right, queued_at, restarted):
                anchor = iso(policies.anchor_at)
                text = f"epoch {number} counts its interval from {anchor}, but it was left at {iso(right)}"
                self._report("chain", text, at=epoch["from_at"])
            decided = self._walked.get(number)
            steps = decided.recurrence if decided is not None and isinstance(decided.recurrence, EveryN) else None
            queued_at = decided.to_at if decided is not None and decided.left_queued else None
            before = policies
        if before is not None and self._row["removed_at"] is None:
            self._check_anchor(before.anchor_at, steps)

    def _check_anchor(self, since: int | None, steps: EveryN | None) -> None:
        """Check the anchor of an interval now against the start of its last run or its epoch."""
        stored, catching_up = self._row["anchor_at"], self._row["backlog_left"] is not None
        right = since if steps is None else steps.last_anchor
        if is_instant(stored) and (
            stored == right if steps is None else steps.stands_at(stored, catching_up=catching_up)
        ):
            return
        shown = iso(stored) if is_instant(stored) else repr(stored)
        text = f"it counts its interval from {shown}, but its last start or edit was at {iso(right)}"
        self._report("chain", text, at=self.cursor_at)


def _first_anchor(policies: EpochPolicies, epoch: Mapping[str, Any]) -> int | None:
    """Return the anchor of an interval that follows nothing: now, or such that its start is its first occurrence."""
    from_at: int = epoch["from_at"]
    if policies.start_at is None or policies.start_at <= from_at:
        return from_at
    steps = recurrence_of("interval", epoch["spec"], "UTC", "literal", from_at)
    return policies.start_at - steps.every if isinstance(steps, EveryN) else None
