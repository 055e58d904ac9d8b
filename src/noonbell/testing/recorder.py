"""Recording a Scheduler's events as a trace.

    recorder = TraceRecorder()
    scheduler = Scheduler(store, clock=clock, on_event=recorder, time_zone=zone)
    recorder.expect(registrations, zone)
    await scheduler.initialize(registrations)
    ...
    assert check(recorder.trace) is None

`expect` records the arguments of the next `initialize`, since no event carries it. A crash is nothing that a scheduler
could report: record it with `crash`, and record `quiet` where the scheduler has had every chance to work.

Where the store is a FaultyStore, hand its commits to `committed` (`Faults.on_commit`): then a run starts in the trace
at the instant that its claim has decided for and ends when its end is in the ledger. That differs from the events only
where something goes wrong in between, and it is what counts then.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import tzinfo
from typing import Any, Final

from noonbell.core.instants import MICROSECOND
from noonbell.core.records import Declaration, Settlement
from noonbell.declarative.events import SchedulerEvent, SchedulerInitializationFailed, TaskEvent
from noonbell.ports import Claimed
from noonbell.testing.manual_clock import microseconds
from noonbell.testing.trace import DeclaredTask, EventKind, Reason, TraceEvent

_LIFECYCLE: Final[dict[str, EventKind]] = {
    "SchedulerInitializationCompleted": "init-ok",
    "SchedulerStopRequested": "stop-start",
    "SchedulerStopped": "stop-end",
}
_STARTS: Final = ("TaskRunStarted", "TaskRetryStarted")
_ENDS: Final[dict[str, EventKind]] = {"TaskRunCompleted": "run-ok", "TaskRunFailed": "run-failed"}


class TraceRecorder:
    """An `on_event` that writes a trace."""

    def __init__(self) -> None:
        self.trace: list[TraceEvent] = []
        self._expected = TraceEvent("init-start", 0, declared={})
        self._names: dict[int, str] = {}
        self._claims: dict[str, int] = {}  # task -> the instant of its last claim
        self._by_commits = False
        self._ended: dict[str, bool] = {}  # tasks whose end was reported but is not in the ledger yet; whether manual

    def expect(
        self, registrations: Iterable[Any], zone: tzinfo, *, valid: bool = True, refuse_drift: bool = False
    ) -> None:
        """Record the arguments of the next initialize."""
        declared = {
            name: DeclaredTask(cron, delay // MICROSECOND) for name, cron, _, delay in (registrations if valid else ())
        }
        self._expected = TraceEvent(
            "init-start", 0, declared=declared, zone=zone, valid=valid, refuse_drift=refuse_drift
        )

    def __call__(self, event: SchedulerEvent) -> None:
        at = microseconds(event.at)
        if isinstance(event, TaskEvent):
            self._task_event(event, at)
        elif event.name == "SchedulerInitializationStarted":
            expected = self._expected
            self.add("init-start", at, declared=expected.declared, zone=expected.zone, valid=expected.valid,
                     refuse_drift=expected.refuse_drift)  # fmt: skip
        elif isinstance(event, SchedulerInitializationFailed):
            self.add("init-failed", at, reason=_reason(event.error), note=event.error)
        elif event.name in _LIFECYCLE:
            if event.name == "SchedulerStopped":
                self._give_up(at)
            self.add(_LIFECYCLE[event.name], at)

    def name_of(self, sid: int) -> str:
        """The task of a sid that was declared here."""
        return self._names[sid]

    def _task_event(self, event: TaskEvent, at: int) -> None:
        manual = event.cause == "manual"
        if event.name in _ENDS and self._by_commits:
            self._ended[event.task] = manual
        elif event.name in _STARTS:
            at = self._claims.get(event.task, at) if self._by_commits else at
            note = f"for {microseconds(event.scheduled_for)}, attempt {event.attempt}, {event.cause}"
            self.add("run-start", at, event.task, manual=manual, note=note)
        elif event.name in _ENDS:
            self.add(_ENDS[event.name], at, event.task, manual=manual)

    def _give_up(self, at: int) -> None:
        """The scheduler has stopped: ends that the store has not taken by now are lost."""
        for task, manual in self._ended.items():
            self.add("run-lost", at, task, manual=manual)
        self._ended.clear()

    def crash(self, at: int, note: str = "") -> None:
        """The process died."""
        self._ended.clear()
        self.add("crash", at, note=note)

    def quiet(self, at: int) -> None:
        """The scheduler has had every chance to work."""
        self.add("quiet", at)

    def add(self, kind: EventKind, at: int, task: str = "", **more: Any) -> None:
        self.trace.append(TraceEvent(kind, at, task, **more))

    # --- by the ledger ------------------------------------------------------------------------------------------------

    def committed(self, verb: str, asked: Any, answer: Any) -> None:
        """A store has committed something."""
        self._by_commits = True
        if verb == "declare":
            self._declared(asked, answer)
        elif verb == "claim":
            self._claimed(answer.claimed)
        elif verb == "trigger" and answer is not None:
            self._claims[self._names[asked]] = answer.started_at
        elif verb == "settle":
            self._settled(asked, answer.stale)

    def _declared(self, declaration: Declaration, sids: Sequence[int]) -> None:
        self._names.update((sid, new.name) for new, sid in zip(declaration.created, sids, strict=True))

    def _claimed(self, claimed: Claimed) -> None:
        for start in claimed.starts:
            self._claims[self._names[start.sid]] = start.started_at

    def _settled(self, settlements: Sequence[Settlement], stale: Sequence[Settlement]) -> None:
        refused = {id(settlement) for settlement in stale}
        for settlement in settlements:
            if id(settlement) not in refused:
                start = settlement.start
                self._ended.pop(self._names[start.sid], None)
                kind: EventKind = "run-ok" if settlement.outcome == "succeeded" else "run-failed"
                self.add(kind, settlement.ended_at, self._names[start.sid], manual=start.kind == "manual")


def _reason(error: str) -> Reason:
    kind = error.partition(":")[0]
    if kind.startswith("Store"):
        return "store"
    if kind == "ScheduleDriftError":
        return "drift"
    if kind in ("SchedulerInUseError", "SchedulerAlreadyActiveError"):
        return "active"
    return "other"
