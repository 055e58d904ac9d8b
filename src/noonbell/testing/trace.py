"""The theory of what observers see, as a checker of traces.

A trace is a sequence of events with wall times: the life of one scheduler (initialisations, stops, crashes) and the
runs of its tasks. `check` reads it once, from front to back, and reports the first statement that does not hold:

- S1  a run starts only when the scheduler was obliged to start it
- S2  between two due moments at most one run starts that ends well
- S3  at the end of a stop nothing is running
- S4  invalid registrations are never accepted
- S5  valid registrations are refused only for a stated reason
- S6  no second init-ok before a stop-end or a crash
- L1  an obligation is served, L2 an initialisation ends, L3 a stop ends, by the next moment of rest
- F1  after a crash or a stop-end no run starts before the next init-ok
- F2  runs of one task never overlap
- F3  every end has its start

Liveness is asked at `quiet` events alone: the writer of the trace states there that the scheduler has had every chance
to work (its store is sound, its loop has nothing left to do). Due moments come from `occurrences`, which shares nothing
with the engine.

What may have happened unseen is neither demanded nor forbidden. A claim that the crash or a store's failure cut off may
or may not be in the ledger, and so may the declaration of an initialisation that ended in either. So each task has two
accounts: what obliges the scheduler to start it, and what permits it.

An end in the trace is a recorded end: a run whose end was lost in a crash is interrupted, and runs again; likewise one
whose end a failing store did not take until the stop gave it up (run-lost). The time of a run-start is the instant
that its claim has decided for.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, timedelta, tzinfo
from typing import Final, Literal, NamedTuple

from noonbell.core.instants import MICROSECOND, moment
from noonbell.testing.occurrences import falls_due, minute_start

EventKind = Literal[
    "init-start", "init-ok", "init-failed", "stop-start", "stop-end",
    "run-start", "run-ok", "run-failed", "run-lost", "crash", "quiet", "store-fault", "clock-set",
]  # fmt: skip
Reason = Literal["", "invalid", "active", "store", "drift", "other"]


STATEMENTS: Final[Mapping[str, str]] = {
    "S1": "a run starts only when the scheduler was obliged to start it",
    "S2": "between two due moments at most one run starts that ends well",
    "S3": "at the end of a stop nothing is running",
    "S4": "invalid registrations are never accepted",
    "S5": "valid registrations are refused only for a stated reason",
    "S6": "no second init-ok before a stop-end or a crash",
    "L1": "an obligation is served",
    "L2": "an initialisation ends",
    "L3": "a stop ends once nothing is running",
    "F1": "after a crash or a stop-end no run starts before the next init-ok",
    "F2": "runs of one task never overlap",
    "F3": "every end has its start",
}


class DeclaredTask(NamedTuple):
    """The parts of a registration that the theory needs. The delay is in microseconds."""

    cron: str
    retry_delay: int


@dataclass(frozen=True, slots=True)
class TraceEvent:
    """One event. `at` is wall time in microseconds since 1970; of a clock-set it is the time before.

    Of an init-start: `declared`, `zone`, whether the registrations are `valid` and whether drift is to be refused. Of
    an init-failed: the `reason`. Of a run: its `task`, and whether a person asked for it. `note` is for the reader.
    """

    kind: EventKind
    at: int
    task: str = ""
    manual: bool = False
    declared: Mapping[str, DeclaredTask] | None = None
    zone: tzinfo = UTC
    valid: bool = True
    refuse_drift: bool = False
    reason: Reason = ""
    note: str = ""

    def __str__(self) -> str:
        parts = [_iso(self.at), self.kind, self.task, self.reason, self.note]
        if self.declared is not None:
            parts.append(f"in {self.zone}:")
            parts.extend(f"[{name}: {cron}, retry {delay / 1e6:g} s]" for name, (cron, delay) in self.declared.items())
        return " ".join(part for part in parts if part)


@dataclass(frozen=True, slots=True)
class Violation:
    """The first statement that a trace breaks, and where."""

    statement: str
    index: int
    at: int
    task: str
    detail: str

    def __str__(self) -> str:
        where = f" of task {self.task!r}" if self.task else ""
        said = STATEMENTS[self.statement]
        return f"{self.statement} ({said}) is broken at event {self.index}{where}, {_iso(self.at)}: {self.detail}"


def check(
    trace: Iterable[TraceEvent],
    *,
    patience: timedelta = timedelta(seconds=1),
    statements: Collection[str] = STATEMENTS,
) -> Violation | None:
    """The first violation of one of the statements, or None.

    `patience` is how long a retry may be overdue at a quiet moment. Where all statements are asked for, S2 is never the
    first to break: it follows from S1.
    """
    checker = _Checker(patience // MICROSECOND, statements)
    for index, event in enumerate(trace):
        try:
            checker.see(event)
        except _BrokenError as broken:
            return Violation(broken.statement, index, event.at, broken.task, broken.detail)
    return None


def _iso(at: int) -> str:
    return moment(at).isoformat()


class _BrokenError(Exception):
    def __init__(self, statement: str, task: str, detail: str) -> None:
        self.statement, self.task, self.detail = statement, task, detail


@dataclass(slots=True)
class _Task:
    """The known facts of a registered task."""

    name: str
    cron: str
    zone: tzinfo
    delay: int
    obliging_after: int  # due moments after this oblige
    permitting_after: int  # due moments after this permit
    running: Literal["", "scheduled", "manual"] = ""
    started_at: int = 0
    retry_at: int | None = None
    retry_certain: bool = True
    orphan: bool = False
    claimed_at: int | None = None  # it may have been claimed at this instant, unseen
    well_at: int | None = None  # the start of its last run that ended well
    reached: int | None = None  # the latest of all starts since then: the clock may have gone back in between
    crons: set[tuple[str, tzinfo]] = field(default_factory=set)  # in force since then

    def obliged(self, at: int, patience: int) -> str:
        """Why it has to start, or nothing."""
        if self.orphan:
            return "it was interrupted by a crash"
        if self.retry_at is not None and self.retry_certain and self.retry_at + patience <= at:
            return f"its retry was due at {_iso(self.retry_at)}"
        if falls_due(self.cron, self.zone, self.obliging_after, at):
            return f"{self.cron} matched after {_iso(self.obliging_after)}"
        return ""

    def permitted(self, at: int) -> bool:
        if self.orphan or self.claimed_at is not None or (self.retry_at is not None and self.retry_at <= at):
            return True
        return falls_due(self.cron, self.zone, self.permitting_after, at)

    def start(self, at: int) -> None:
        self.running, self.started_at = "scheduled", at
        decided_at = at if self.claimed_at is None else max(at, self.claimed_at)
        self.reached = decided_at if self.reached is None else max(decided_at, self.reached)
        self.obliging_after = max(self.obliging_after, decided_at)
        self.permitting_after = max(self.permitting_after, at)
        self.retry_at, self.retry_certain, self.orphan, self.claimed_at = None, True, False, None


class _Checker:
    def __init__(self, patience: int, statements: Collection[str]) -> None:
        self._patience = patience
        self._statements = statements
        self._phase: Literal["down", "active", "stopping"] = "down"
        self._tasks: dict[str, _Task] = {}
        self._init: TraceEvent | None = None
        self._unsure: list[TraceEvent] = []  # initialisations since the last init-ok that may have been written
        self._store_failed = False  # since the init-start

    def see(self, event: TraceEvent) -> None:
        match event.kind:
            case "init-start":
                self._init, self._store_failed = event, False
            case "init-ok":
                self._init_ok(event)
            case "init-failed":
                self._init_failed(event)
            case "stop-start":
                self._note_claims(event.at)
                self._phase = "stopping"
            case "stop-end":
                self._stop_end()
            case "run-start":
                self._run_start(event)
            case "run-ok" | "run-failed":
                self._run_end(event)
            case "run-lost":
                self._run_lost(event)
            case "crash":
                self._crash(event)
            case "quiet":
                self._quiet(event)
            case "store-fault" | "clock-set":
                self._store_failed = self._store_failed or event.kind == "store-fault"
                self._note_claims(event.at)

    def _fail(self, statement: str, detail: str, task: str = "") -> None:
        """Report a broken statement. If it was not asked for, the trace is read on as well as it can be."""
        if statement in self._statements:
            raise _BrokenError(statement, task, detail)

    # --- initialising ---------------------------------------------------------------------------------------------

    def _init_ok(self, event: TraceEvent) -> None:
        begun = self._init
        if begun is None or begun.declared is None:
            self._fail("F3", "init-ok without an init-start")
            return
        if not begun.valid:
            self._fail("S4", "the registrations are not valid")
        if self._phase != "down":
            self._fail("S6", f"the scheduler was {self._phase}")
        before, self._tasks = self._tasks, {}
        for name, declared in begun.declared.items():
            task = before.get(name)
            if task is None:
                task = self._new(name, declared, begun, event)
            elif any(name not in (unsure.declared or {}) for unsure in self._unsure):
                self._maybe_new(task, begun, event)
            task.cron, task.delay, task.zone = declared.cron, declared.retry_delay, begun.zone
            task.crons.add((task.cron, task.zone))
            self._tasks[name] = task
        self._phase, self._init = "active", None
        self._unsure.clear()

    def _new(self, name: str, declared: DeclaredTask, begun: TraceEvent, event: TraceEvent) -> _Task:
        """It first comes: the current minute is its first. Between start and end of the init a minute may turn."""
        unseen = [unsure.at for unsure in self._unsure if name in (unsure.declared or {})]
        minutes = [minute_start(at) for at in (begun.at, event.at, *unseen)]
        return _Task(
            name, declared.cron, begun.zone, declared.retry_delay,
            obliging_after=max(minutes) - 1, permitting_after=min(minutes) - 1,
        )  # fmt: skip

    def _maybe_new(self, task: _Task, begun: TraceEvent, event: TraceEvent) -> None:
        """An initialisation without it may have been written: then what it was owed is forgotten."""
        if task.orphan:
            task.claimed_at = event.at
        task.orphan, task.retry_certain = False, False
        minutes = [minute_start(at) - 1 for at in (begun.at, event.at, *(unsure.at for unsure in self._unsure))]
        task.obliging_after = max(task.obliging_after, *minutes)
        task.permitting_after = min(task.permitting_after, *minutes)
        task.well_at = task.reached = None

    def _init_failed(self, event: TraceEvent) -> None:
        begun, self._init = self._init, None
        if begun is None:
            self._fail("F3", "init-failed without an init-start")
            return
        if not begun.valid:
            return
        stated = {
            "active": self._phase != "down",
            "store": self._store_failed,
            "drift": begun.refuse_drift,
        }
        if not stated.get(event.reason, False):
            self._fail("S5", f"refused for {event.reason or 'no reason'}, which was not so ({event.note})")
        if event.reason == "store":
            self._unsure.append(begun)

    # --- ending ---------------------------------------------------------------------------------------------------

    def _stop_end(self) -> None:
        if self._phase != "stopping":
            self._fail("F3", "stop-end without a stop-start")
            return
        for task in self._tasks.values():
            if task.running:
                self._fail("S3", f"its run of {_iso(task.started_at)} is running", task.name)
        self._phase = "down"

    def _crash(self, event: TraceEvent) -> None:
        self._note_claims(event.at)
        if self._init is not None:
            self._unsure.append(self._init)
        for task in self._tasks.values():
            task.orphan = task.orphan or task.running == "scheduled"
            task.running = ""
        self._phase, self._init = "down", None

    def _note_claims(self, at: int) -> None:
        """Whatever was pending may have been claimed without being seen to start."""
        if self._phase == "active":
            for task in self._tasks.values():
                if task.running != "scheduled" and task.permitted(at):
                    task.claimed_at = max(at, task.claimed_at or at)

    # --- runs -----------------------------------------------------------------------------------------------------

    def _run_start(self, event: TraceEvent) -> None:
        if self._phase == "down":
            self._fail("F1", "the scheduler is down", event.task)
        task = self._tasks.get(event.task)
        if task is None:
            self._fail("S1", "it is not registered", event.task)
            return
        if task.running:
            self._fail("F2", f"its run of {_iso(task.started_at)} is still running", task.name)
        if self._phase != "active":
            self._fail("S1", f"the scheduler is {self._phase}", task.name)
        if event.manual:
            task.running, task.started_at = "manual", event.at
            return
        if not task.permitted(event.at):
            self._fail(
                "S1", f"nothing is pending: {task.cron} has not matched after {_iso(task.permitting_after)}", task.name
            )
        task.start(event.at)

    def _run_end(self, event: TraceEvent) -> None:
        task = self._tasks.get(event.task)
        if task is None or not task.running or event.manual != (task.running == "manual"):
            self._fail("F3", "the end of a run that was not running", event.task)
            return
        task.running = ""
        if event.manual:
            return
        if event.kind == "run-failed":
            task.retry_at = event.at + task.delay
            return
        since, reached = task.well_at, task.started_at if task.reached is None else task.reached
        if since is not None and not any(falls_due(cron, zone, since, reached) for cron, zone in task.crons):
            self._fail("S2", f"runs of {_iso(since)} and {_iso(task.started_at)} both ended well", task.name)
        task.well_at, task.reached = task.started_at, None
        task.crons = {(task.cron, task.zone)}

    def _run_lost(self, event: TraceEvent) -> None:
        task = self._tasks.get(event.task)
        if task is None or not task.running:
            self._fail("F3", "the end of a run that was not running", event.task)
            return
        if not self._store_failed:
            self._fail("S3", "its end was given up, though the store had not failed", task.name)
        task.orphan, task.running = task.running == "scheduled", ""

    def _quiet(self, event: TraceEvent) -> None:
        if self._init is not None:
            self._fail("L2", f"it began at {_iso(self._init.at)}")
        if self._phase == "stopping" and not any(task.running for task in self._tasks.values()):
            self._fail("L3", "nothing is running")
        if self._phase != "active":
            return
        for task in self._tasks.values():
            why = "" if task.running else task.obliged(event.at, self._patience)
            if why:
                self._fail("L1", f"it has not started, though {why}", task.name)
