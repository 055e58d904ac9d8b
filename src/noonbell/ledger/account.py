"""The account of one schedule: its occurrences, laid against the runs and spans that answer for them.

An account is a chain. Runs and spans come in the order of time, each has to begin at the very occurrence that follows
the end of the one before, and the last has to reach the cursor. A link that begins later leaves occurrences without a
verdict, one that begins earlier gives some a second one; either way the first wrong occurrence is known at once, and
nothing between two links is enumerated. At the end the whole is counted once more by other arithmetic.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, Protocol

from noonbell.ledger.reading import (
    EARLIEST,
    LATEST,
    Rhythm,
    dst_policy,
    durable_bounds,
    is_instant,
    iso,
    rhythm,
    zone_named,
)
from noonbell.timing import rules_hash

_FIRST_MINUTE: Final = 61_000_000  # a schedule's account begins within the minute in which it was created


class Tell(Protocol):
    """Where findings go. A remark is told and is no problem."""

    def __call__(self, kind: str, text: str, *, account: Account, at: object, remark: bool) -> None: ...


class Stretch(NamedTuple):
    """An epoch as far as it is decided: occurrences in (from_at, limit]."""

    number: int
    from_at: int
    limit: int
    rhythm: Rhythm
    outdated: bool  # the zone's rules have changed since, so today's arithmetic proves nothing


class Account:
    """What is known of one schedule while its ledger streams by."""

    __slots__ = (
        "_at_stretch", "_attempts", "_covered_by", "_covered_to", "_expected", "_from_at", "_live", "_next_live",
        "_next_span", "_spans", "_tell", "_to_at", "_troubled", "accounted", "cursor_at", "managed_by", "name", "row",
        "sid", "stretches",
    )  # fmt: skip

    def __init__(self, row: Mapping[str, Any], tell: Tell, from_at: int | None, to_at: int | None) -> None:
        self.row = row
        self.sid: int = row["sid"]
        self.name = row["name"] if isinstance(row["name"], str) else f"schedule {self.sid}"
        self.managed_by = row["managed_by"]
        self.stretches: list[Stretch] = []
        self.accounted = 0
        self.cursor_at: int | None = row["cursor_at"] if is_instant(row["cursor_at"]) else None
        self._tell = tell
        self._from_at = EARLIEST if from_at is None else from_at
        self._to_at = LATEST if to_at is None else to_at
        self._at_stretch = 0
        self._expected: int | None = None
        self._covered_to = EARLIEST
        self._covered_by = ""
        self._spans = array("q")  # from, to, from, to, …: two whole numbers a span, however many there are
        self._next_span = 0
        self._live: list[tuple[int, str, object]] = []  # run_for, state, epoch
        self._next_live = 0
        self._attempts: dict[str, tuple[array[int], int]] = {}  # kind -> (run_for of recorded attempts, how many met)
        self._troubled = False
        for column in ("name", "spec", "timezone", "managed_by"):
            if not isinstance(row[column], str):
                self.tell("damaged", f"its stored {column} is {row[column]!r}, which is no text")
        for column in ("cursor_at", "created_at"):
            if not is_instant(row[column]):
                self.tell("damaged", f"its stored {column} is {row[column]!r}, which is no instant")

    def tell(self, kind: str, text: str, *, at: object = None, remark: bool = False) -> None:
        self._troubled = self._troubled or not remark
        if not remark and is_instant(at):
            stretch = self._stretch_of(at)
            if stretch is not None and stretch.outdated:
                text += " (by today's rules of its time zone, which are not those it was decided by)"
                remark = True
        self._tell(kind, text, account=self, at=at, remark=remark)

    # --- epochs -------------------------------------------------------------------------------------------------------

    def open_epochs(self, epochs: list[Mapping[str, Any]]) -> None:
        """Take the schedule's epochs, in order, and stand before the first occurrence to be accounted for."""
        if not epochs:
            self.tell("epoch", "it has no epoch, so nothing says when it was to run")
            return
        before: Mapping[str, Any] | None = None
        for epoch in epochs:
            self._check_epoch(epoch, before)
            self._add_stretch(epoch)
            before = epoch
        self._check_last_epoch(epochs[-1])
        if self.stretches:
            self._expected = self._following(self._from_at - 1)

    def _check_epoch(self, epoch: Mapping[str, Any], before: Mapping[str, Any] | None) -> None:
        number, from_at, to_at = epoch["epoch"], epoch["from_at"], epoch["to_at"]
        if not is_instant(from_at) or not (to_at is None or is_instant(to_at)):
            self.tell("damaged", f"its epoch {number} reaches from {from_at!r} to {to_at!r}, which are no instants")
            return
        if to_at is not None and to_at < from_at:
            self.tell(
                "epoch", f"its epoch {number} ends at {iso(to_at)}, before it begins at {iso(from_at)}", at=from_at
            )
        if before is None:
            created = self.row["created_at"]
            if number != 1:
                self.tell("epoch", f"its first epoch is number {number}: those before it are gone", at=from_at)
            elif is_instant(created) and not created - _FIRST_MINUTE <= from_at <= created:
                text = f"its first epoch begins at {iso(from_at)}, but it was created at {iso(created)}"
                self.tell("epoch", text, at=from_at)
            return
        if number != before["epoch"] + 1:
            self.tell("epoch", f"epoch {number} follows epoch {before['epoch']}: those between are gone", at=from_at)
        elif before["to_at"] != from_at:
            ended = "has no end" if before["to_at"] is None else f"ends at {iso(before['to_at'])}"
            text = f"epoch {number} begins at {iso(from_at)}, but epoch {before['epoch']} {ended}"
            self.tell("epoch", text, at=from_at)

    def _add_stretch(self, epoch: Mapping[str, Any]) -> None:
        number, spec, zone_name = epoch["epoch"], epoch["spec"], epoch["timezone"]
        if not isinstance(spec, str) or not isinstance(zone_name, str):
            self.tell("damaged", f"epoch {number} has the spec {spec!r} in the zone {zone_name!r}")
            return
        found = rhythm(spec, zone_name, dst_policy(epoch["policies"]))
        if isinstance(found, str):
            self.tell("damaged", f"epoch {number} cannot be checked: {found}")
            return
        if not is_instant(epoch["from_at"]) or self.cursor_at is None:
            return
        if epoch["enabled"] == 0:
            return  # a pause: nothing comes in it
        end = epoch["to_at"] if is_instant(epoch["to_at"]) else self.cursor_at
        zone = zone_named(zone_name)
        outdated = zone is not None and epoch["zone_hash"] != rules_hash(zone)
        from_at, limit = epoch["from_at"], min(end, self.cursor_at, self._to_at)
        bounds = durable_bounds(epoch["policies"])
        if bounds is not None:
            from_at = from_at if bounds.start_at is None else max(from_at, bounds.start_at - 1)
            limit = limit if bounds.end_at is None else min(limit, bounds.end_at)
        self.stretches.append(Stretch(number, from_at, limit, found, outdated))

    def _check_last_epoch(self, epoch: Mapping[str, Any]) -> None:
        row, number = self.row, epoch["epoch"]
        removed = row["removed_at"] is not None
        if row["epoch"] != number:
            self.tell("epoch", f"it stands in epoch {row['epoch']!r}, but its last epoch is {number}")
        if row["spec"] != epoch["spec"] or row["timezone"] != epoch["timezone"]:
            text = (
                f"it is stored as {row['spec']!r} in {row['timezone']!r}, but its epoch {number} says "
                f"{epoch['spec']!r} in {epoch['timezone']!r}"
            )
            self.tell("epoch", text)
        if (epoch["to_at"] is not None) != removed:
            state = (
                "was removed, but its epoch has no end" if removed else f"is in use, but its epoch {number} has ended"
            )
            self.tell("epoch", f"it {state}")
        if removed and is_instant(epoch["to_at"]) and epoch["to_at"] != self.cursor_at:
            text = f"its last epoch ends at {iso(epoch['to_at'])}, but its cursor stands at {iso(self.cursor_at)}"
            self.tell("epoch", text, at=self.cursor_at)
        if self.cursor_at is not None and is_instant(epoch["from_at"]) and self.cursor_at < epoch["from_at"]:
            text = f"its cursor stands at {iso(self.cursor_at)}, before its epoch {number} begins"
            self.tell("epoch", text, at=self.cursor_at)

    def _stretch_of(self, at: int) -> Stretch | None:
        return next((stretch for stretch in self.stretches if stretch.from_at < at <= stretch.limit), None)

    def _following(self, at: int) -> int | None:
        """The first occurrence after `at` that has to have a verdict."""
        stretches = self.stretches
        while self._at_stretch < len(stretches):
            stretch = stretches[self._at_stretch]
            if at < stretch.limit:
                found = stretch.rhythm.after(max(at, stretch.from_at))
                if found is not None and found <= stretch.limit:
                    return found
            self._at_stretch += 1
        return None

    def _count(self, first: int, last: int) -> int:
        return sum(
            stretch.rhythm.count(max(first, stretch.from_at + 1), min(last, stretch.limit))
            for stretch in self.stretches
        )

    # --- the chain ----------------------------------------------------------------------------------------------------

    def add_live(self, run_for: int, state: str, epoch: object) -> None:
        self._live.append((run_for, state, epoch))

    def add_span(self, from_at: int, to_at: int, n: object, epoch: object) -> None:
        """Check a span by itself and keep its ends for the chain."""
        stretch = next((stretch for stretch in self.stretches if stretch.number == epoch), None)
        if stretch is None:
            if self.stretches:
                text = (
                    f"the span from {iso(from_at)} to {iso(to_at)} belongs to epoch {epoch!r}, which it does not have"
                )
                self.tell("span", text, at=from_at)
            return
        if to_at < from_at:
            self.tell("span", f"the span from {iso(from_at)} ends before it begins, at {iso(to_at)}", at=from_at)
            return
        for end in (from_at, to_at):
            inside = stretch.from_at < end <= (stretch.limit if end <= self._to_at else end)
            if not inside or not stretch.rhythm.has(end):
                text = (
                    f"the span from {iso(from_at)} to {iso(to_at)} ends on {iso(end)}, which is no decided occurrence"
                )
                self.tell("span", text, at=end)
        counted = stretch.rhythm.count(from_at, to_at)
        if counted != n:
            text = f"the span from {iso(from_at)} to {iso(to_at)} says {n!r} occurrences, but there are {counted}"
            self.tell("span", text, at=from_at)
        self._spans.extend((from_at, to_at))

    def run(self, run_for: int, epoch: object) -> None:
        """An ended run, in the order of time."""
        self._catch_up(run_for)
        if run_for == self._expected and self.stretches[self._at_stretch].number == epoch:
            self.accounted += 1
            self._covered_to, self._covered_by = run_for, "a run"
            self._expected = self._following(run_for)
            return
        self._cover_one(run_for, epoch, "a run")

    def _cover_one(self, run_for: int, epoch: object, what: str) -> None:
        if not self.stretches:
            return
        stretch = self._stretch_of(run_for)
        if stretch is None or not stretch.rhythm.has(run_for):
            where = "" if stretch is not None else ", and lies outside what its epochs have decided"
            self.tell(
                "stray", f"{what} for {iso(run_for)} answers for nothing: that is no occurrence{where}", at=run_for
            )
            return
        if stretch.number != epoch:
            text = f"{what} for {iso(run_for)} names epoch {epoch!r}, but it belongs to epoch {stretch.number}"
            self.tell("epoch", text, at=run_for)
        self._cover(run_for, run_for, what)

    def _catch_up(self, at: int) -> None:
        """Let the spans and live runs up to `at` take their places."""
        while True:
            span_from = self._spans[self._next_span] if self._next_span < len(self._spans) else None
            live_for = self._live[self._next_live][0] if self._next_live < len(self._live) else None
            if span_from is not None and span_from <= at and (live_for is None or span_from <= live_for):
                span_to = self._spans[self._next_span + 1]
                self._next_span += 2
                self._cover(span_from, span_to, f"a span from {iso(span_from)} to {iso(span_to)}")
            elif live_for is not None and live_for <= at:
                _, state, epoch = self._live[self._next_live]
                self._next_live += 1
                self._cover_one(live_for, epoch, f"a live run ({state})")
            else:
                return

    def _cover(self, first: int, last: int, what: str) -> None:
        first, last = max(first, self._from_at), min(last, self._to_at)
        if last < first:
            return
        expected = self._expected
        if self._covered_by and first <= self._covered_to:
            text = f"the occurrence {iso(first)} has two verdicts: {self._covered_by}, and {what}"
            self.tell("double", text, at=first)
        elif expected is not None and expected < first:
            self._missing(expected, first - 1)
        self.accounted += self._count(first, last)
        if last >= self._covered_to:
            self._covered_to, self._covered_by = last, what
        self._expected = self._following(self._covered_to)

    def _missing(self, first: int, before: int) -> None:
        n = self._count(first, before)
        if n <= 1:
            text = f"the occurrence {iso(first)} has no verdict: no run and no span answers for it"
        else:
            text = (
                f"{n} occurrences, the first of them {iso(first)}, have no verdict: no run and no span answers for them"
            )
        self.tell("missing", text, at=first)

    # --- attempts -----------------------------------------------------------------------------------------------------

    def add_attempt(self, run_for: int, kind: str) -> None:
        known, met = self._attempts.setdefault(kind, (array("q"), 0))
        if not known or known[-1] != run_for:
            known.append(run_for)
        self._attempts[kind] = (known, met)

    def meet_attempts(self, run_for: int, kind: str) -> None:
        """A run has come by: the attempts recorded up to it have found their run, or have none."""
        if kind not in self._attempts:
            return
        known, met = self._attempts[kind]
        while met < len(known) and known[met] <= run_for:
            if known[met] != run_for:
                self._stray_attempt(known[met], kind)
            met += 1
        self._attempts[kind] = (known, met)

    def _stray_attempt(self, run_for: int, kind: str) -> None:
        self.tell(
            "attempt", f"attempts are recorded of a {kind} run for {iso(run_for)}, which is not there", at=run_for
        )

    # --- the end ------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """All has come by: see what is left over, and count the whole once more."""
        self._catch_up(LATEST)
        for kind in list(self._attempts):
            self.meet_attempts(LATEST, kind)
        if not self.stretches:
            return
        if self._expected is not None:
            self._missing(self._expected, LATEST)
        counted = self._count(self._from_at, self._to_at)
        if counted != self.accounted and not self._troubled:
            text = f"{counted} occurrences lie up to its cursor, but runs and spans answer for {self.accounted}"
            self.tell("count", text, at=self.cursor_at)
