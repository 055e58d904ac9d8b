"""What the engine and the stores hand to each other.

Instants are whole microseconds since 1970 (UTC), in fields that end in `_at` or `_for`. The structs are plain values:
a store fills them from rows and writes them back, `decide` turns one into the other.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

# The wake-up of a run that is to start at the next look, whatever the clock says by then: it may be set back.
AT_ONCE: Final = 0

Kind = Literal["scheduled", "manual"]
LiveState = Literal["queued", "running", "waiting"]
Cause = Literal["cron", "retry", "orphan", "manual"]
Outcome = Literal["succeeded", "failed", "abandoned", "unknown"]
Verdict = Literal["skipped", "missed", "coalesced"]


class LiveRun(msgspec.Struct, gc=False):
    """A run that has not ended: executing, waiting for its retry, or queued to start."""

    sid: int
    kind: Kind
    run_for: int
    fence: int
    owner: str | None
    state: LiveState
    attempt: int  # how many attempts have been started
    wake_at: int | None
    started_at: int | None  # of its first attempt
    attempt_at: int | None  # of its latest attempt
    crashes: int
    epoch: int
    cause: Cause


class Due(msgspec.Struct, gc=False):
    """A schedule that may have to start, with its live run if it has one."""

    sid: int
    epoch: int
    cursor_at: int
    live: LiveRun | None


class Span(msgspec.Struct, gc=False):
    """Neighbouring occurrences that share a verdict other than fired."""

    sid: int
    from_at: int  # the first of them
    to_at: int  # the last of them
    n: int
    verdict: Verdict
    reason: str
    epoch: int


class Run(msgspec.Struct, gc=False):
    """A run that has ended."""

    sid: int
    run_for: int
    kind: Kind
    outcome: Outcome
    attempts: int
    started_at: int
    ended_at: int
    owner: str
    epoch: int


class Start(msgspec.Struct, gc=False):
    """An attempt that the claim has committed; the action may be called now."""

    sid: int
    kind: Kind
    run_for: int
    fence: int
    attempt: int
    cause: Cause
    epoch: int
    started_at: int
    due_at: int  # when it could have started at the earliest: lateness counts from here
    following: int | None  # the schedule's next occurrence, put back when the run ends
    preempted: LiveRun | None = None


class Decision(msgspec.Struct, gc=False):
    """What a claim does with one schedule."""

    sid: int
    cursor_at: int
    next_run_at: int | None
    start: Start | None = None
    span: Span | None = None


class Settlement(msgspec.Struct, gc=False):
    """The end of an attempt. With `wake_at` the run waits for its retry; without, it has ended."""

    start: Start
    owner: str
    outcome: Outcome
    ended_at: int
    wake_at: int | None = None
    error: str | None = None


class Attempt(msgspec.Struct, gc=False):
    """The record of one attempt, kept where there is something to tell: a failure, or a repeat."""

    sid: int
    run_for: int
    kind: Kind
    attempt: int
    outcome: Outcome
    cause: Cause
    started_at: int
    ended_at: int
    owner: str
    error: str | None


class Epoch(msgspec.Struct, gc=False):
    """A stretch (from_at, to_at] in which a schedule's spec, zone and policies stayed the same; to_at None: open."""

    sid: int
    epoch: int
    from_at: int
    to_at: int | None
    spec: str
    timezone: str
    zone_hash: str
    policies: str
    enabled: bool


class NewSchedule(msgspec.Struct, gc=False):
    """A schedule to be created, with its first epoch."""

    schedule_id: str
    name: str
    type: str
    spec: str
    timezone: str
    zone_hash: str
    policies: str
    retry_delay_us: int
    cursor_at: int
    next_run_at: int | None


class ChangedSchedule(msgspec.Struct, gc=False):
    """A schedule whose stored row is to be brought up to the declaration.

    With `new_epoch` the running epoch ends at the cursor and the next one begins there.
    """

    sid: int
    spec: str
    timezone: str
    zone_hash: str
    policies: str
    retry_delay_us: int
    epoch: int
    cursor_at: int
    next_run_at: int | None
    new_epoch: bool


class RemovedSchedule(msgspec.Struct, gc=False):
    """A schedule that is no longer declared: its row and ledger stay, closed at the cursor; its live run ends."""

    sid: int
    cursor_at: int


class LifecycleEvent(msgspec.Struct, gc=False):
    """A step in the life of a scheduler: init-ok, stop-start, stop-end, crash (inferred at the next start)."""

    managed_by: str
    at: int
    instance: str
    event: Literal["init-ok", "stop-start", "stop-end", "crash"]
    detail: str = ""


class Declaration(msgspec.Struct):
    """Everything that one `initialize` changes; a store applies it whole or not at all.

    `revived` are live runs in their new state (orphans put back to `queued`), written by key (sid, kind, run_for).
    `interrupted` are manual runs of a dead instance: nobody asked for a repeat, so they end as `unknown`. `events` are
    added to the lifecycle in order. `parked` are schedules that stay as they are and do not wake: not in use until they
    are among the `changed` of a later declaration.
    """

    managed_by: str
    at: int
    created: list[NewSchedule]
    changed: list[ChangedSchedule]
    removed: list[RemovedSchedule]
    revived: list[LiveRun]
    interrupted: list[LiveRun]
    events: list[LifecycleEvent]
    parked: list[int] = []
