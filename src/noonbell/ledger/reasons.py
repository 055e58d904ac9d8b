"""Reasons: why an occurrence had to wait, or was not polled for, from what the ledger records of engines and runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from noonbell.core.presence import Polls, lane_name
from noonbell.core.records import LifecycleEvent, Run
from noonbell.ledger.ledger_rows import SECOND, lifecycle_of
from noonbell.ledger.lifecycle import Absence, absence_now, absences
from noonbell.ledger.policies import is_declared
from noonbell.ledger.recurrence import EveryN
from noonbell.ledger.subject import Context, Subject
from noonbell.ports import RunFilter

FAR_BACK: Final = 1_000  # how many neighbouring spans are read in search of their run
_HOUR: Final = 3600 * SECOND
# The ledger records what was done, and not what kept a program from doing it earlier.
_NOT_KNOWN: Final = (
    "nothing recorded says why (the machine may have slept, its clock been set, or the program or its store "
    "been held up)"
)


class Reasons:
    """The lifecycle of the engines of a schedule's lane, and the runs before an occurrence."""

    def __init__(self, context: Context, subject: Subject, events: Sequence[LifecycleEvent], *, held: bool) -> None:
        self._context = context
        self._subject = subject
        self._near = context.times.near
        self._events = events
        self.held = held  # an engine of the lane is alive
        self.down = absence_now(events, context.now, held=held)

    @classmethod
    async def read(cls, context: Context, subject: Subject) -> Reasons:
        store, lane = context.store, context.lane
        if is_declared(lane):
            return cls(context, subject, await lifecycle_of(store, lane), held=await store.holder(lane) is not None)
        held = any(engine.lane == lane for engine in (await store.engines.members(context.now)).alive)
        return cls(context, subject, await lifecycle_of(store, lane_name(lane)), held=held)

    @property
    def started(self) -> LifecycleEvent | None:
        """The latest start of an engine."""
        return next((event for event in reversed(self._events) if event.event == "init-ok"), None)

    def since(self, gone: Absence, at: int) -> str:
        """Write since when no engine is up."""
        if gone.silent:
            return f" (instance {gone.instance}, up since {self._near(gone.since, at)}, ended without recording a stop)"
        if gone.crashed:
            return f" (instance {gone.instance} crashed)"
        return f" since {self._near(gone.since, at)} (instance {gone.instance} stopped)"

    def if_down(self, at: int) -> str:
        if self.down is None:
            return ""
        return f" The scheduler is down{self.since(self.down, at)}, so it waits for the next start."

    async def not_at_once(self, at: int, started: int) -> str:
        """Return why an occurrence had to wait: for a run before it, or for a poll."""
        before = await self.run_before(at)
        if before is not None and before.started_at <= at < before.ended_at:
            return f"a run was in progress ({self.lasted(before, at)})"
        return await self.not_polled(at, started)

    def lasted(self, run: Run, at: int) -> str:
        near = self._near
        return f"the one for {near(run.run_for, at)}, from {near(run.started_at, at)} to {near(run.ended_at, at)}"

    async def not_polled(self, at: int, started: int) -> str:
        """Return why no poll came for an occurrence before `started`: no engine was up, or none polled in time."""
        near, now = self._near, self._context.now
        gone = next((gone for gone in absences(self._events) if _between(gone, at, started)), None)
        if gone is None and started >= now:
            gone = self.down
        if gone is not None and gone.until is None:
            return f"the scheduler was down{self.since(gone, at)}"
        if gone is not None and gone.until is not None:
            if gone.crashed:
                crashed = f"instance {gone.instance} had crashed"
                return f"the scheduler was down: {crashed}, and the next start was at {near(gone.until, at)}"
            return f"the scheduler was down from {near(gone.since, at)} to {near(gone.until, at)}"
        starts_at = at + self._subject.delay(at)
        polls = (await self._context.store.engines.polls()).get(self._context.lane, Polls())
        gap = next((gap for gap in polls.at(now) if gap.since < starts_at <= gap.until), None)
        if gap is None or not gap.since:
            return f"the scheduler did not poll in time, and {_NOT_KNOWN}"
        return (
            f"no poll completed between {near(gap.since, at)} and {near(gap.until, at)} (the process was frozen or "
            "suspended, its event loop blocked, or the database unreachable)"
        )

    async def run_before(self, at: int) -> Run | None:
        """Return the run that came before an occurrence, over the spans in between."""
        store, subject = self._context.store, self._subject
        if isinstance(subject.recurrence, EveryN):
            back = max(20 * subject.recurrence.every, _HOUR)
            ended = await store.history.runs(RunFilter(subject.sid, at - back, at - 1, "scheduled"))
            return ended[-1] if ended else None
        for _ in range(FAR_BACK):
            before = subject.recurrence.latest(at - 1)
            if before is None or before <= subject.epoch.from_at:
                return None
            ended = await store.history.runs(RunFilter(subject.sid, before, before, "scheduled"))
            if ended:
                return ended[0]
            spans = await store.history.spans(subject.sid, before, before)
            if not spans:
                return None
            at = min(spans[0].from_at, before)
        return None


def _between(gone: Absence, due: int, started: int) -> bool:
    """Return whether an absence lies between an occurrence and its start."""
    return gone.since <= started if gone.until is None else due < gone.until <= started
