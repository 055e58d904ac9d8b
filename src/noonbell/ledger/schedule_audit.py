"""The audit of one schedule: its occurrences against the runs and spans that answer for them.

Runs and spans form a chain in the order of time: each has to begin at the occurrence that follows the end of the one
before, and the last has to reach the cursor. A link that begins later leaves occurrences without a
verdict, one that begins earlier gives some a second one; either way the first wrong occurrence is known at once, and
nothing between two links is enumerated. Of an interval each link follows from the start of the last run, so one that is
gone or moved breaks it. At the end the whole is counted once more by other arithmetic.

Days that were pruned are links, too: each reaches from its first occurrence to its last and says how many were in it. A
run that was live when its day went lies inside such a link, and is counted with it.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from typing import Any, Final, Protocol

from noonbell.ledger.decided_epochs import DecidedEpoch, DecidedEpochs
from noonbell.ledger.ledger_rows import EARLIEST, LATEST, SECOND, is_instant, iso
from noonbell.ledger.links import AttemptedRuns, EndOrder, LatestEnds, PrunedPart, PrunedParts, RunChain
from noonbell.ledger.recurrence import EveryN
from noonbell.timing import QuietHours

CLOCK_SKEW: Final = SECOND  # how far two clocks may be apart before runs count as overlapping
# A clock that differs from that of another engine by less is not taken for one that was set back.
_SET_BACK: Final = 60 * SECOND


class Reporter(Protocol):
    """Takes findings about schedules. A remark is not a problem."""

    def __call__(self, kind: str, text: str, *, audit: ScheduleAudit, at: object, remark: bool) -> None: ...


class ScheduleAudit:
    """The state of the audit of one schedule while its rows are read in order."""

    __slots__ = (
        "_attempts", "_began", "_covered_by", "_covered_to", "_ends", "_expected", "_from_at", "_live",
        "_next_live", "_next_span", "_order", "_part", "_pruned", "_report", "_skew", "_spans", "_to_at", "_troubled",
        "accounted", "chain", "cursor_at", "epochs", "managed_by", "name", "quiet", "quiet_since", "row", "sid",
    )  # fmt: skip

    def __init__(
        self, row: Mapping[str, Any], report: Reporter, from_at: int | None, to_at: int | None, clock_skew: int
    ) -> None:
        self.row = row
        self.sid: int = row["sid"]
        self.name = row["name"] if isinstance(row["name"], str) else f"schedule {self.sid}"
        self.managed_by = row["managed_by"]
        self.accounted = 0
        self.cursor_at: int | None = row["cursor_at"] if is_instant(row["cursor_at"]) else None
        self.quiet: QuietHours | None = None  # as they stand now, and have stood
        self.quiet_since = LATEST
        self.epochs = DecidedEpochs(row, self.report, self.cursor_at, whole=from_at is None)
        self._report = report
        self._skew = clock_skew
        self._from_at = EARLIEST if from_at is None else from_at
        self._to_at = LATEST if to_at is None else to_at
        self._expected: int | None = None
        self._covered_to = EARLIEST
        self._covered_by = ""
        self._spans = array("q")  # from, to, from, to, …: two whole numbers a span, however many there are
        self._next_span = 0
        self._live: list[tuple[int, str, object, object]] = []  # run_for, state, epoch, started_at
        self._next_live = 0
        self._pruned = PrunedParts()
        self._part: PrunedPart | None = None  # the pruned part that was covered last
        self._attempts: dict[str, AttemptedRuns] = {}  # by kind
        self._troubled = False
        self.chain = RunChain(row)
        self._ends = LatestEnds()
        self._began: int | None = None  # the latest start of them
        self._order = EndOrder()
        for column in ("name", "spec", "timezone", "managed_by"):
            if not isinstance(row[column], str):
                self.report("damaged", f"its stored {column} is {row[column]!r}, which is not text")
        for column in ("cursor_at", "created_at"):
            if not is_instant(row[column]):
                self.report("damaged", f"its stored {column} is {row[column]!r}, which is not an instant")

    def report(self, kind: str, text: str, *, at: object = None, remark: bool = False) -> None:
        self._troubled = self._troubled or not remark
        if not remark and is_instant(at):
            decided = self.epochs.holding(at)
            if decided is not None and decided.outdated:
                text += " (by today's rules of its time zone, which are not those it was decided by)"
                remark = True
        self._report(kind, text, audit=self, at=at, remark=remark)

    def open_epochs(self, epochs: list[Mapping[str, Any]]) -> None:
        """Take the schedule's epochs, in order, and find the first occurrence that has to have a verdict."""
        if not epochs:
            self.report("epoch", "it has no epoch, so nothing says when it was to run")
            return
        self.epochs.take(epochs, self._to_at)
        if self.epochs:
            self._expected = self.epochs.following(self._from_at - 1)

    # --- rows that are gathered before the runs -----------------------------------------------------------------------

    def add_live(self, run_for: int, state: str, epoch: object, started: object) -> None:
        self._live.append((run_for, state, epoch, started))

    def add_pruned(self, part: PrunedPart) -> None:
        """Take a pruned day, in order."""
        decided = self.epochs.numbered(part.epoch)
        if decided is None:
            if self.epochs:
                self.report(
                    "pruned", f"{part} belongs to epoch {part.epoch}, which has no occurrences", at=part.first_at
                )
            return
        wrong = part.wrong()
        if wrong is None and not decided.from_at < part.first_at <= part.to_at <= decided.limit <= LATEST:
            wrong = "lies outside of what its epoch has decided" if part.to_at <= self._to_at else None
        ends = (part.first_at, part.to_at)
        if wrong is None and not isinstance(decided.recurrence, EveryN) and not all(map(decided.recurrence.has, ends)):
            wrong = f"reaches from {iso(part.first_at)} to {iso(part.to_at)}, which are not occurrences"
        if wrong is not None:
            self.report("pruned", f"{part} {wrong}", at=part.first_at)
            return
        self._pruned.add(part, decided.recurrence)

    def add_span(self, from_at: int, to_at: int, n: object, epoch: object, reason: object = "") -> None:
        """Check a span by itself and keep its ends for the chain."""
        decided = self.epochs.numbered(epoch)
        if decided is None:
            if self.epochs:
                text = (
                    f"the span from {iso(from_at)} to {iso(to_at)} belongs to epoch {epoch!r}, which it does not have"
                )
                self.report("span", text, at=from_at)
            return
        if to_at < from_at:
            self.report("span", f"the span from {iso(from_at)} ends before it begins, at {iso(to_at)}", at=from_at)
            return
        recurrence = decided.recurrence
        for end in (from_at,) if from_at == to_at else (from_at, to_at):
            inside = decided.from_at < end <= (decided.limit if end <= self._to_at else end)
            if not inside or not (isinstance(recurrence, EveryN) or recurrence.has(end)):
                text = (
                    f"the span from {iso(from_at)} to {iso(to_at)} ends on {iso(end)}, "
                    "which is not a decided occurrence"
                )
                self.report("span", text, at=end)
            if reason == "quiet hours" and self._known_quiet(decided) and not self._is_quiet(end):
                text = f"the span from {iso(from_at)} to {iso(to_at)} is of quiet hours, but {iso(end)} is in none"
                self.report("quiet", text, at=end)
        if isinstance(recurrence, EveryN) and (to_at - from_at) % recurrence.every:
            text = f"the span from {iso(from_at)} to {iso(to_at)} does not end on a step of its interval"
            self.report("span", text, at=from_at)
        counted = _counted(decided, from_at, to_at)
        if counted != n:
            text = f"the span from {iso(from_at)} to {iso(to_at)} says {n!r} occurrences, but there are {counted}"
            self.report("span", text, at=from_at)
        self._spans.extend((from_at, to_at))

    def _known_quiet(self, decided: DecidedEpoch) -> bool:
        """Return whether the quiet hours of an epoch are those of today: a change of them opens an epoch."""
        named: object = self.row["quiet_hours_policy_id"]
        stands = decided.from_at >= self.quiet_since and decided.policies.quiet_hours_policy_id == named
        return self.quiet is not None and stands

    def _is_quiet(self, at: int) -> bool:
        return self.quiet is not None and self.quiet.is_quiet(at)

    # --- the chain ----------------------------------------------------------------------------------------------------

    def run(self, run_for: int, epoch: object, started: object, ended: object, prev_for: object = None) -> None:
        """Take an ended run, in the order of time. `prev_for`: the scheduled run that ended before it, if one did."""
        self._catch_up(run_for)
        decided = self.epochs.numbered(epoch)
        if decided is not None:
            self._check_run(run_for, decided, started, ended, prev_for)
            live = self._live[self._next_live - 1] if self._next_live else None
            if decided.policies.consumes and (wrong := self._order.meet(run_for, decided.number, prev_for, live)):
                self.report("overlap", wrong, at=run_for)
        if run_for == self._expected and decided is not None and self._part is None and self.epochs.current is decided:
            self.accounted += 1
            self._covered_to, self._covered_by = run_for, "a run"
            decided.fired(started)
            self._expected = self.epochs.following(run_for)
            return
        self._cover_one(run_for, epoch, "a run", started)

    def _check_run(self, run_for: int, decided: DecidedEpoch, started: object, ended: object, prev_for: object) -> None:
        if not is_instant(started) or not is_instant(ended):
            return
        within = decided.to_at is None or started < decided.to_at
        latest = self._ends.latest(prev_for)
        set_back = self._ends.meet(run_for, ended, prev_for, max(self._skew, _SET_BACK))
        if decided.policies.overlap != "allow" and within and started < latest - self._skew:
            text = f"the run for {iso(run_for)} began at {iso(started)}, while one before it lasted to {iso(latest)}"
            self._report_earlier("overlap", text, decided, at=run_for, set_back=set_back)
        if started != self.row["removed_at"]:  # else it was queued, and abandoned without a start
            self._began = started
        if self._known_quiet(decided) and self._is_quiet(run_for):
            self.report("quiet", f"a run was fired for {iso(run_for)}, which lies in quiet hours", at=run_for)

    def _report_earlier(
        self, kind: str, text: str, decided: DecidedEpoch, *, at: int | None = None, set_back: bool = False
    ) -> None:
        """Report a start that lies before what came before it. `set_back`: the order of ends speaks for the clock.

        The engines of a lane go by the clock of their store. A task's scheduler goes by that of its host alone, which
        may have been set back. Overlaps that no clock can feign are found by the order of ends (`EndOrder`).
        """
        set_back = set_back or decided.policies.consumes
        self.report(kind, f"{text}{': the clock was set back' if set_back else ''}", at=at, remark=set_back)

    def _cover_one(self, run_for: int, epoch: object, what: str, started: object) -> None:
        if not self.epochs:
            return
        decided = self.epochs.holding(run_for)
        if decided is None or not (isinstance(decided.recurrence, EveryN) or decided.recurrence.has(run_for)):
            where = "" if decided is not None else ", and lies outside what its epochs have decided"
            self.report(
                "stray", f"{what} for {iso(run_for)} answers for nothing: that is not an occurrence{where}", at=run_for
            )
            return
        if decided.number != epoch:
            text = f"{what} for {iso(run_for)} names epoch {epoch!r}, but it belongs to epoch {decided.number}"
            self.report("epoch", text, at=run_for)
        self._cover(run_for, run_for, what, decided, started=started)

    def _catch_up(self, at: int) -> None:
        """Take the pruned days, spans and live runs up to `at`."""
        while True:
            part_from = self._pruned.next_at
            span_from = self._spans[self._next_span] if self._next_span < len(self._spans) else LATEST + 1
            live_for = self._live[self._next_live][0] if self._next_live < len(self._live) else LATEST + 1
            first = min(part_from, span_from, live_for)
            if first > at:
                return
            if first == part_from:
                self._cover_part(self._pruned.take())
            elif first == span_from:
                span_to = self._spans[self._next_span + 1]
                self._next_span += 2
                what = f"a span from {iso(span_from)} to {iso(span_to)}"
                self._cover(span_from, span_to, what, self.epochs.holding(min(span_to, self._to_at)))
            else:
                _, state, epoch, started = self._live[self._next_live]
                self._next_live += 1
                self._cover_one(live_for, epoch, f"a live run ({state})", started)

    def _cover(
        self, first: int, last: int, what: str, decided: DecidedEpoch | None, *, started: object = EARLIEST
    ) -> None:
        """Take a link; `started` is given for a run, None if it has not begun."""
        first, last = max(first, self._from_at), min(last, self._to_at)
        if last < first:
            return
        if self._part is not None and first <= self._part.to_at:
            self._cover_within(self._part, first, last, what, decided, started=started)
            return
        self._close_part()
        self._check_link(first, what, decided)
        self.accounted += 0 if decided is None else _counted(decided, first, last)
        if last >= self._covered_to:
            self._covered_to, self._covered_by = last, what
        if decided is not None and started != EARLIEST:
            decided.fired(started)
        elif (
            decided is not None
            and isinstance(decided.recurrence, EveryN)
            and last > (decided.recurrence.moves_at or LATEST)
        ):
            decided.recurrence.moves_at = None  # deleted during a catch-up, as in `_check_link`
        self._expected = self.epochs.following(self._covered_to)

    def _check_link(self, first: int, what: str, decided: DecidedEpoch | None) -> None:
        """Check that a link begins at the occurrence after the end of the one before."""
        expected = self._expected
        steps = decided.recurrence if decided is not None and isinstance(decided.recurrence, EveryN) else None
        if steps is not None and steps.in_doubt:
            steps.goes_through(first)
            return
        deleted = self.row["removed_at"] is not None and first > self._covered_to
        if steps is not None and deleted and first != expected and steps.has_not_moved(first):
            return  # it was deleted during a catch-up, whose anchor stays to its end
        if self._covered_by and first <= self._covered_to:
            text = f"the occurrence {iso(first)} has two verdicts: {self._covered_by}, and {what}"
            self.report("double", text, at=first)
        elif expected is not None and expected < first:
            self._missing(expected, first - 1)
        elif steps is not None and first != expected:
            right = "nothing more comes" if expected is None else f"the next is {iso(expected)}"
            self.report("chain", f"{what} begins at {iso(first)}, but counted from its last start {right}", at=first)
        if steps is not None and first != expected:
            steps.goes_through(first)  # one break is reported once

    def _missing(self, first: int, before: int) -> None:
        n = self.epochs.count(first, before)
        if n <= 1:
            text = f"the occurrence {iso(first)} has no verdict: no run and no span answers for it"
        else:
            text = (
                f"{n} occurrences, the first of them {iso(first)}, have no verdict: no run and no span answers for them"
            )
        self.report("missing", text, at=first)

    # --- pruned days --------------------------------------------------------------------------------------------------

    def _cover_part(self, part: PrunedPart) -> None:
        decided = self.epochs.numbered(part.epoch)
        if decided is None:
            return
        self._close_part()
        cut = part.first_at < self._from_at or part.to_at > self._to_at
        if not cut:
            self._check_link(part.first_at, str(part), decided)
        self._part = None if cut else part
        self.accounted += part.n if not cut else _counted(decided, max(part.first_at, self._from_at),
                                                         min(part.to_at, self._to_at))  # fmt: skip
        if part.to_at >= self._covered_to:
            self._covered_to, self._covered_by = part.to_at, str(part)
        self._go_on_from(decided, part)

    def _go_on_from(self, decided: DecidedEpoch, part: PrunedPart) -> None:
        if isinstance(decided.recurrence, EveryN):
            decided.recurrence.goes_through(part.to_at)
        if part.last_for is not None:
            decided.fired(part.last_started_at)
        self._expected = self.epochs.following(self._covered_to)

    def _cover_within(
        self, part: PrunedPart, first: int, last: int, what: str, decided: DecidedEpoch | None, *, started: object
    ) -> None:
        """Take a link inside a pruned part: a run that was live when its day was pruned."""
        if first <= part.kept_to:
            self.report("double", f"the occurrence {iso(first)} has two verdicts: one before, and {what}", at=first)
        n = 0 if decided is None else _counted(decided, first, last)
        part.kept_to = max(part.kept_to, last)
        part.kept += n
        self.accounted += n
        if decided is not None and started != EARLIEST and (part.last_for is None or first > part.last_for):
            part.last_for, part.last_started_at = first, started if is_instant(started) else None
            self._go_on_from(decided, part)

    def _close_part(self) -> None:
        """Check the count of a pruned part, once all that stayed of it is taken."""
        part, self._part = self._part, None
        if part is None:
            return
        decided = self.epochs.numbered(part.epoch)
        if decided is None:
            return
        counted, said = _counted(decided, part.first_at, part.to_at), part.n + part.kept
        if isinstance(decided.recurrence, EveryN):
            if said > counted:  # each start puts off what follows it, so there may be fewer
                text = f"{part} counts {part.n} occurrences, but no more than {counted - part.kept} fit"
                self.report("pruned", text, at=part.first_at)
        elif counted != said:
            kept = f" beside {part.kept} that stayed" if part.kept else ""
            text = f"{part} counts {part.n} occurrences{kept}, but there were {counted}"
            self.report("pruned", text, at=part.first_at)

    # --- attempts -----------------------------------------------------------------------------------------------------

    def add_attempt(self, run_for: int, kind: str) -> None:
        self._attempts.setdefault(kind, AttemptedRuns()).add(run_for)

    def meet_attempts(self, run_for: int, kind: str) -> None:
        """Take a run: the attempts recorded up to it have found their run, or have none."""
        for stray in self._attempts[kind].meet(run_for) if kind in self._attempts else ():
            text = f"attempts are recorded of a {kind} run for {iso(stray)}, which is not there"
            self.report("attempt", text, at=stray)

    # --- the end ------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Take what is left over, once all runs are taken, and count the whole once more."""
        self._catch_up(LATEST)
        self._close_part()
        for kind in list(self._attempts):
            self.meet_attempts(LATEST, kind)
        if not self.epochs:
            return
        if self._expected is not None:
            self._missing(self._expected, LATEST)
        whole = self.epochs.whole and self._to_at == LATEST
        if whole and not self._troubled and (wrong := self.chain.wrong()) is not None:
            self.report("chain", wrong)
        last = self.row["last_run_at"]
        if self._began is not None and not (is_instant(last) and last >= self._began):
            text = f"its last_run_at is {iso(last)}, but a run began at {iso(self._began)}"
            self._report_earlier("times", text, self.epochs.all[-1])
        if self.row["type"] == "interval":
            if whole and not self._troubled:
                self.epochs.check_anchors()
            return
        counted = self.epochs.count(self._from_at, self._to_at)
        if counted != self.accounted and not self._troubled:
            text = f"{counted} occurrences lie up to its cursor, but runs and spans answer for {self.accounted}"
            self.report("count", text, at=self.cursor_at)


def _counted(decided: DecidedEpoch, first: int, last: int) -> int:
    """Return the number of occurrences from one to another, both included."""
    recurrence = decided.recurrence
    if first == last:
        return 1
    return (last - first) // recurrence.every + 1 if isinstance(recurrence, EveryN) else recurrence.count(first, last)
